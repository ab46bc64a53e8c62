package module

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/modules/oci"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// pushToOCI writes an upload to an OCI layout or a registry.
func (c *commands) pushToOCI(cmd *cobra.Command, place string, upload sdk.Upload) error {
	to, err := oci.Parse(place)
	if err != nil {
		return command.Usage(cmd, "--oci: %s", err)
	}
	kept, err := keptBytes(cmd.Context(), upload.Code, upload.Manifest)
	if err != nil {
		return err
	}
	a := oci.Artifact{Code: kept, Name: upload.Name, Version: upload.Version}
	for _, s := range upload.Signatures {
		a.Signatures = append(a.Signatures, modules.Signature{Key: s.GetKey(), Signature: s.GetSignature()})
	}
	manifest, err := oci.Push(cmd.Context(), to, a)
	if err != nil {
		return err
	}
	pushed := struct {
		Place    string `json:"place"`
		Manifest string `json:"manifest"`
		Digest   string `json:"digest"`
	}{to.String(), manifest, modules.Digest(a.Code)}
	return c.PrintOne([]string{"place", "manifest", "digest"}, output.Object(pushed, func() []output.Cell {
		return []output.Cell{{Text: pushed.Place}, {Text: pushed.Manifest}, {Text: pushed.Digest}}
	}))
}

// pushVersionToOCI copies a version of the server to an OCI layout or a registry.
func (c *commands) pushVersionToOCI(cmd *cobra.Command, ref, place string) error {
	return c.Wait(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, _ []string) error {
		m, code, err := c.fetchVersion(ctx, client, ref)
		if err != nil {
			return err
		}
		return c.pushToOCI(cmd, place, sdk.Upload{Name: m.GetName(), Version: m.GetVersion(), Code: code, Signatures: m.GetSignatures()})
	})(cmd, nil)
}

// fetchVersion returns a version with its bytes, and verifies their digest.
func (c *commands) fetchVersion(ctx context.Context, client *sdk.Client, ref string) (*sdk.Module, []byte, error) {
	m, err := client.Module(ctx, c.App, ref)
	if err != nil {
		return nil, nil, err
	}
	code, err := client.DownloadModule(ctx, c.App, ref)
	if err != nil {
		return nil, nil, err
	}
	if got := modules.Digest(code); got != m.GetDigest() {
		return nil, nil, fmt.Errorf("download module %s: the server sent %s, the version is %s", ref, got, m.GetDigest())
	}
	return m, code, nil
}

func (c *commands) pull() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "pull PLACE [NAME@VERSION]",
		Short: "Copy a module from an OCI layout, a registry or the server",
		Long: `Copy a module from PLACE: an OCI image layout (oci:DIR[:TAG] or FILE.tar[:TAG]), a
registry (HOST/REPOSITORY[:TAG]), or the server (NAME@VERSION). The command checks
its digests. --file writes it to a file; a second argument pushes it to the server
under that name, with its signatures.`,
		Example: `  wheelwork module pull registry.example/team/totals:1 totals@1
  wheelwork module pull totals@1 --file totals.wasm`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				return nil
			}
			return command.Arguments("PLACE")(cmd, args)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "`file` for the module's bytes")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && file == "" {
			return command.Usage(cmd, "say where it should go: --file FILE, or NAME@VERSION to push it as")
		}
		var a oci.Artifact
		var err error
		if isVersion(args[0]) {
			err = c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
				m, code, err := c.fetchVersion(ctx, client, args[0])
				a = oci.Artifact{Code: code}
				for _, s := range m.GetSignatures() {
					a.Signatures = append(a.Signatures, modules.Signature{Key: s.GetKey(), Signature: s.GetSignature()})
				}
				return err
			})(cmd, nil)
		} else {
			a, err = pullOCI(cmd, args[0])
		}
		if err != nil {
			return err
		}
		return c.pulled(cmd, a, file, args[1:])
	}
	return cmd
}

func pullOCI(cmd *cobra.Command, place string) (oci.Artifact, error) {
	from, err := oci.Parse(place)
	if err != nil {
		return oci.Artifact{}, command.Usage(cmd, "%s", err)
	}
	return oci.Pull(cmd.Context(), from)
}

// pulled saves a pulled module to a file, uploads it as a version, or does both.
func (c *commands) pulled(cmd *cobra.Command, a oci.Artifact, file string, as []string) error {
	if file != "" {
		if err := os.WriteFile(file, a.Code, 0o644); err != nil {
			return fmt.Errorf("write the module: %w", err)
		}
		c.Note("%s: %s", file, modules.Digest(a.Code))
	}
	if len(as) == 0 {
		got := struct {
			File   string `json:"file"`
			Digest string `json:"digest"`
			Size   int    `json:"size"`
		}{file, modules.Digest(a.Code), len(a.Code)}
		return c.PrintOne([]string{"file", "digest", "size"}, output.Object(got, func() []output.Cell {
			return []output.Cell{{Text: got.File}, {Text: got.Digest}, {Text: output.Bytes(int64(got.Size))}}
		}))
	}
	name, version, err := sdk.SplitModule(as[0])
	if err != nil {
		return command.Usage(cmd, "%s", err)
	}
	if name == "" || len(a.Code) == 0 {
		return errors.New("nothing was pulled")
	}
	upload := sdk.Upload{App: c.App, Name: name, Version: version, Code: a.Code}
	for _, s := range a.Signatures {
		upload.Signatures = append(upload.Signatures, &sdk.Signature{Key: s.Key, Signature: s.Signature})
	}
	return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
		return c.upload(ctx, client, upload)
	})(cmd, nil)
}
