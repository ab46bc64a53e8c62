package module

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/toolchain"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

func (c *commands) build() *cobra.Command {
	var batch bool
	var flags cacheFlags
	cmd := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Build the module of a project with the compiler of its language",
		Long: `Build the module of a project, by default the one in this folder, with the compiler
of its language, and add its manifest. If the compiler is missing, the error says how
to install it. Scripts need no compiler: the command packs their sources, and parses
them if this machine has their interpreter.`,
		Example: `  wheelwork module build hello && wheelwork module push hello@1 hello/hello.wasm`,
		Args:    cobra.MaximumNArgs(1),
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&batch, "batch", false, "the source also exports wheelwork_run (Zig needs this flag)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := readProject(folder(args))
		if err != nil {
			return err
		}
		code, info, err := p.make(cmd.Context(), batch)
		if err == nil {
			err = c.checkScript(cmd, info, code, flags)
		}
		if err == nil {
			err = p.write(code)
		}
		if err != nil {
			return err
		}
		c.Note("built %s", p.output())
		return c.PrintOne(builtColumns(), output.Object(builtModule{
			Name: p.Name, File: p.output(), Kind: string(info.Kind), Size: info.Size, Handlers: info.Handlers, Digest: info.Digest,
		}, func() []output.Cell {
			return []output.Cell{
				{Text: p.Name},
				{Text: string(info.Kind)},
				{Text: output.Bytes(info.Size)},
				{Text: strings.Join(info.Handlers, ", ")},
				{Text: info.Digest},
			}
		}))
	}
	return cmd
}

// folder returns the optional argument of a command on a project.
func folder(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return args[0]
}

// builtModule is the JSON about a built module.
type builtModule struct {
	Name     string   `json:"name"`
	File     string   `json:"file"`
	Kind     string   `json:"kind"`
	Size     int64    `json:"size"`
	Handlers []string `json:"handlers"`
	Digest   string   `json:"digest"`
}

func builtColumns() []string { return []string{"name", "kind", "size", "handlers", "digest"} }

// build builds a project's module and writes it to the project's output file.
func (p project) build(ctx context.Context, batch bool) (wasm.Info, error) {
	code, info, err := p.make(ctx, batch)
	if err != nil {
		return wasm.Info{}, err
	}
	return info, p.write(code)
}

// make builds a project's module with its manifest.
func (p project) make(ctx context.Context, batch bool) ([]byte, wasm.Info, error) {
	code, err := p.compile(ctx, batch)
	if err != nil {
		return nil, wasm.Info{}, err
	}
	manifest, err := p.manifest()
	if err != nil {
		return nil, wasm.Info{}, err
	}
	if manifest != "" {
		if code, err = wasm.WithManifest(code, manifest); err != nil {
			return nil, wasm.Info{}, fmt.Errorf("put the manifest into the module: %w", err)
		}
	}
	info, err := wasm.Inspect(code)
	if err != nil {
		return nil, wasm.Info{}, fmt.Errorf("the module was built, but a server would refuse it: %w", err)
	}
	return code, info, nil
}

func (p project) write(code []byte) error {
	if err := os.WriteFile(p.output(), code, 0o644); err != nil {
		return fmt.Errorf("write the module: %w", err)
	}
	return nil
}

// compile builds the module's code without its manifest.
func (p project) compile(ctx context.Context, batch bool) ([]byte, error) {
	if _, ok := script.ByLanguage(p.Language); ok {
		names, err := sources(p.dir, p.Language)
		if err != nil {
			return nil, err
		}
		return packScript(p.Language, p.dir, p.Main, names)
	}
	temp, err := os.MkdirTemp("", "wheelwork-build-")
	if err != nil {
		return nil, fmt.Errorf("build: %w", err)
	}
	defer os.RemoveAll(temp) //nolint:errcheck // the system cleans up temporary folders
	out := filepath.Join(temp, "handler.wasm")
	err = toolchain.Build(ctx, toolchain.Source{Language: p.Language, Dir: p.dir, Main: filepath.FromSlash(p.Main), Batch: batch}, out)
	if err != nil {
		return nil, err
	}
	code, err := os.ReadFile(out)
	if err != nil {
		return nil, fmt.Errorf("read what was built: %w", err)
	}
	return code, nil
}
