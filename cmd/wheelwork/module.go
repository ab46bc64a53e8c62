package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *cli) moduleCommand() *cobra.Command {
	return group("module", "Upload WebAssembly modules, or run them here", c.modulePush(), c.moduleList(), c.moduleRun(), c.moduleGrant(), c.moduleGrants())
}

func (c *cli) modulePush() *cobra.Command {
	var manifest string
	cmd := &cobra.Command{
		Use:     "push NAME@VERSION FILE.wasm",
		Short:   "Upload a version of a module; versions never change",
		Example: `  GOOS=wasip1 GOARCH=wasm go build -o totals.wasm . && wheelwork module push totals@1 totals.wasm`,
		Args:    arguments("NAME@VERSION", "FILE.wasm"),
	}
	cmd.Flags().StringVar(&manifest, "manifest", "", "JSON `file` that describes the module's handlers")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		upload, err := c.readUpload(cmd, args[0], args[1], manifest)
		if err != nil {
			return err
		}
		return c.wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			bar := c.progress(int64(len(upload.Code)), "upload", true)
			upload.Progress = func(sent, _ int64) { bar.reached(sent) }
			module, result, err := client.PushModule(ctx, upload)
			bar.end()
			if err != nil {
				return err
			}
			c.note("%s@%s: %s", module.GetName(), module.GetVersion(), result)
			return c.printOne(moduleColumns(), message(module, func() []cell { return moduleRow(module) }))
		})(cmd, args)
	}
	return cmd
}

func (c *cli) readUpload(cmd *cobra.Command, ref, file, manifest string) (sdk.Upload, error) {
	name, version, err := sdk.SplitModule(ref)
	if err != nil {
		return sdk.Upload{}, usage(cmd, "%s", err)
	}
	upload := sdk.Upload{App: c.app, Name: name, Version: version}
	if upload.Code, err = os.ReadFile(file); err != nil {
		return sdk.Upload{}, fmt.Errorf("read the module: %w", err)
	}
	if manifest == "" {
		return upload, nil
	}
	text, err := os.ReadFile(manifest)
	if err != nil {
		return sdk.Upload{}, fmt.Errorf("read the manifest: %w", err)
	}
	if !json.Valid(text) {
		return sdk.Upload{}, fmt.Errorf("read the manifest: %s is not JSON", manifest)
	}
	upload.Manifest = string(text)
	return upload, nil
}

func (c *cli) moduleList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the modules of an app",
		Args:  arguments(),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			modules, err := client.Modules(ctx, c.app)
			if err != nil {
				return err
			}
			return c.printAll(moduleColumns(), func(yield func(record, error) bool) {
				for _, m := range modules {
					if !yield(message(m, func() []cell { return moduleRow(m) }), nil) {
						return
					}
				}
			})
		}),
	}
}

func moduleColumns() []string {
	return []string{"name", "version", "kind", "size", "handlers", "created at", "digest"}
}

func moduleRow(m *sdk.Module) []cell {
	return []cell{
		{m.GetName(), none},
		{m.GetVersion(), none},
		{m.GetKind(), none},
		{bytesText(m.GetSize()), none},
		{strings.Join(m.GetHandlers(), ", "), none},
		{moment(m.GetCreatedAt()), none},
		{m.GetDigest(), none},
	}
}
