package module

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/interpreter"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// cacheVariable names the folder with compiled modules.
const cacheVariable = "WHEELWORK_COMPILED"

// cacheFlags are the flags of commands that compile modules on this machine.
type cacheFlags struct {
	off  bool
	size string
}

func (f *cacheFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.off, "no-cache", false, "compile the module again, and keep no compiled code on disk")
	cmd.Flags().StringVar(&f.size, "compile-cache", "1GiB", "most disk space for compiled modules, as `SIZE`, in "+cacheVariable+" or a folder of your cache: the least recently used ones are deleted")
}

// engineFlags are the flags of commands that run handlers on this machine.
type engineFlags struct {
	cacheFlags
	noEnv bool
}

func (f *engineFlags) add(cmd *cobra.Command) {
	f.cacheFlags.add(cmd)
	cmd.Flags().BoolVar(&f.noEnv, "no-env", false, "leave WHEELWORK_RUN_ID and the other variables of a run out of the environment of a WASI command, which a host adds")
}

// newEngine creates an engine for the flags. Without a folder for compiled code it only costs
// time, so the command continues.
func (c *commands) newEngine(cmd *cobra.Command, f cacheFlags, cfg wasm.Config) (*wasm.Engine, error) {
	size, err := command.Size(f.size)
	if err != nil {
		return nil, command.Usage(cmd, "--compile-cache %q: %s", f.size, err)
	}
	cfg.CacheBytes = size
	if !f.off {
		if cfg.CacheDir, err = c.cacheDir(); err != nil {
			cfg.CacheDir = ""
			c.Note("the compiled module is not kept: %s", err)
		}
	}
	return wasm.New(cmd.Context(), cfg)
}

// checkScript parses a script as a server does. A machine without the interpreter leaves that to
// the server.
func (c *commands) checkScript(cmd *cobra.Command, info wasm.Info, code []byte, flags cacheFlags) error {
	if info.Kind != wasm.Script {
		return nil
	}
	if _, err := localInterpreter(info.Interpreter); errors.Is(err, interpreter.ErrMissing) {
		c.Note("the script was not parsed: %s", err)
		return nil
	}
	ctx := cmd.Context()
	engine, err := c.newEngine(cmd, flags, wasm.Config{})
	if err != nil {
		return err
	}
	defer engine.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the process ends with it
	if err := loadModule(ctx, engine, info.Digest, code); err != nil {
		return err
	}
	return engine.CheckScript(ctx, info.Digest)
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
	if known, ok := script.ByDigest(digest); ok && !known.Command { // it says so before it compiles
		return wasm.Info{}, fmt.Errorf("this is the interpreter %s, which is a library without a command of its own: run a script instead, as in \"wheelwork module run hello.js\"", known.Name())
	}
	if err := loadModule(ctx, engine, digest, code); err != nil {
		return wasm.Info{}, err
	}
	info, _ := engine.Info(digest)
	return info, nil
}
