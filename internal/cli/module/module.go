package module

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// commands are the commands about modules.
type commands struct {
	*output.Printer
	*connect.Server
	getenv func(string) string
}

// Command returns the command "module".
func Command(printer *output.Printer, server *connect.Server, getenv func(string) string) *cobra.Command {
	c := &commands{printer, server, getenv}
	return command.Group("module", "Upload WebAssembly modules, move them between versions, or run them here",
		c.create(), c.build(), c.test(), c.run(), c.push(), c.pull(), c.list(), c.inspect(), c.diff(),
		c.alias(), c.rollout(), c.delete(), c.collect(), c.keygen(), c.sign(), c.fetchInterpreter(), c.grant(), c.grants())
}

func (c *commands) push() *cobra.Command {
	var manifest, oci, key string
	var signatures []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "push NAME@VERSION [FILE.wasm]",
		Short: "Upload a version of a module; versions never change",
		Long: `Upload a version of a module to the server, which checks and compiles it; then the
hosts of the app load it. With --oci the module goes to an OCI image layout (a
directory or a .tar file) or a registry instead; without FILE.wasm the command copies
the version of the server there.`,
		Example: `  GOOS=wasip1 GOARCH=wasm go build -o totals.wasm . && wheelwork module push totals@1 totals.wasm
  wheelwork module push totals@1 totals.wasm --key release.key
  wheelwork module push totals@1 --oci registry.example/team/totals:1`,
		Args: func(cmd *cobra.Command, args []string) error {
			if oci != "" && len(args) == 1 {
				return nil
			}
			return command.Arguments("NAME@VERSION", "FILE.wasm")(cmd, args)
		},
	}
	cmd.Flags().StringVar(&manifest, "manifest", "", "JSON `file` that describes the module's handlers")
	cmd.Flags().StringVar(&oci, "oci", "", "`place` to write it to instead: oci:DIR[:TAG], FILE.tar[:TAG] or HOST/REPOSITORY[:TAG]")
	cmd.Flags().StringArrayVar(&signatures, "signature", nil, "`file` that `wheelwork module sign` wrote; may be repeated")
	cmd.Flags().StringVar(&key, "key", "", "`file` with a private key to sign it with")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "let the server check it as if it were stored, and store nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if dryRun && oci != "" {
			return command.Usage(cmd, "--dry-run asks the server, and --oci sends to none: give one of them")
		}
		if len(args) == 1 {
			return c.pushVersionToOCI(cmd, args[0], oci)
		}
		upload, err := c.readUpload(cmd, args[0], args[1], manifest)
		if err == nil {
			upload.Signatures, err = readSignatures(cmd.Context(), upload, signatures, key)
		}
		switch {
		case err != nil:
			return err
		case oci != "":
			return c.pushToOCI(cmd, oci, upload)
		}
		upload.DryRun = dryRun
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			if !dryRun {
				if err := c.pushInterpreter(ctx, client, upload, key); err != nil {
					return err
				}
			}
			return c.upload(ctx, client, upload)
		})(cmd, args)
	}
	return cmd
}

// upload pushes a version and reports the result.
func (c *commands) upload(ctx context.Context, client *sdk.Client, upload sdk.Upload) error {
	bar := c.Progress(int64(len(upload.Code)), "upload", true)
	upload.Progress = func(sent, _ int64) { bar.Reached(sent) }
	fresh := upload.App != sdk.DefaultApp && !connect.HasApp(ctx, client, upload.App)
	module, result, err := client.PushModule(ctx, upload)
	bar.End()
	if err != nil {
		return err
	}
	if fresh {
		c.Note("app %s is new: its name is that of --app", upload.App)
	}
	c.Note("%s@%s: %s", module.GetName(), module.GetVersion(), result)
	return c.PrintOne(moduleColumns(), moduleRecord(module))
}

func (c *commands) readUpload(cmd *cobra.Command, ref, file, manifest string) (sdk.Upload, error) {
	name, version, err := sdk.SplitModule(ref)
	if err != nil {
		return sdk.Upload{}, command.Usage(cmd, "%s", err)
	}
	upload := sdk.Upload{App: c.App, Name: name, Version: version}
	if upload.Code, err = readModule(file); err != nil {
		return sdk.Upload{}, err
	}
	upload.Manifest, err = readManifest(manifest)
	return upload, err
}

// readManifest reads a manifest file; "" means no manifest.
func readManifest(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the manifest: %w", err)
	}
	if !json.Valid(text) {
		return "", fmt.Errorf("read the manifest: %s is not JSON", file)
	}
	return string(text), nil
}

func (c *commands) list() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the modules of an app",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			modules, err := client.Modules(ctx, c.App)
			if err != nil {
				return err
			}
			if len(modules) == 0 {
				c.Note("%s", connect.WhyEmpty(ctx, client, c.App, ""))
			}
			return c.PrintAll(moduleColumns(), output.Each(modules, moduleRecord))
		}),
	}
}

func moduleColumns() []string {
	return []string{"name", "version", "kind", "size", "handlers", "created at", "digest", "signed by", "collected at"}
}

func moduleRecord(m *sdk.Module) output.Record {
	return output.Message(m, func() []output.Cell {
		return []output.Cell{
			{Text: m.GetName()},
			{Text: m.GetVersion()},
			{Text: m.GetKind()},
			{Text: output.Bytes(m.GetSize())},
			{Text: strings.Join(m.GetHandlers(), ", ")},
			{Text: output.Time(m.GetCreatedAt())},
			{Text: m.GetDigest()},
			{Text: strings.Join(signersOf(m), ", ")},
			{Text: output.Time(m.GetCollectedAt()), Tint: output.Yellow},
		}
	})
}
