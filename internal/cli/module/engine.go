package module

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// cacheVariable names the folder with compiled modules.
const cacheVariable = "WHEELWORK_COMPILED"

// engineFlags are the flags of commands that run handlers on this machine.
type engineFlags struct {
	noEnv, noCache bool
	cacheSize      string
}

func (f *engineFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.noEnv, "no-env", false, "leave WHEELWORK_RUN_ID and the other variables of a run out of the environment of a WASI command, which a host adds")
	cmd.Flags().BoolVar(&f.noCache, "no-cache", false, "compile the module again, and keep no compiled code on disk")
	cmd.Flags().StringVar(&f.cacheSize, "compile-cache", "1GiB", "most disk space for compiled modules, as `SIZE`, in "+cacheVariable+" or a folder of your cache: the least recently used ones are deleted")
}

// newEngine creates an engine for the flags. Without a folder for compiled code it only costs
// time, so the command continues.
func (c *commands) newEngine(cmd *cobra.Command, f engineFlags, cfg wasm.Config) (*wasm.Engine, error) {
	size, err := command.Size(f.cacheSize)
	if err != nil {
		return nil, command.Usage(cmd, "--compile-cache %q: %s", f.cacheSize, err)
	}
	cfg.NoVariables, cfg.CacheBytes = f.noEnv, size
	if !f.noCache {
		if cfg.CacheDir, err = c.cacheDir(); err != nil {
			c.Note("the compiled module is not kept: %s", err)
		}
	}
	return wasm.New(cmd.Context(), cfg)
}

// cacheDir returns the folder with compiled modules, which it creates.
func (c *commands) cacheDir() (string, error) {
	dir := c.getenv(cacheVariable)
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("set %s to a folder: %w", cacheVariable, err)
		}
		dir = filepath.Join(cache, "wheelwork", "compiled")
	}
	return dir, os.MkdirAll(dir, 0o700)
}

// load packs a module and loads it, with the interpreter of a script.
func load(ctx context.Context, engine *wasm.Engine, code []byte) (wasm.Info, error) {
	code, err := wasm.Pack(ctx, code, "")
	if err != nil {
		return wasm.Info{}, err
	}
	digest := modules.Digest(code)
	if err := loadModule(ctx, engine, digest, code); err != nil {
		return wasm.Info{}, err
	}
	info, _ := engine.Info(digest)
	return info, nil
}
