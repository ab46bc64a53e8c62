package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

var (
	//go:embed guests/c.wasm
	cGuest []byte
	//go:embed guests/far.wasm
	farGuest []byte
	//go:embed guests/rust.wasm
	rustGuest []byte
	//go:embed guests/extism.wasm
	extismGuest []byte
	//go:embed guests/go/main.go
	goReactorSource []byte
	//go:embed guests/gocommand/main.go
	goCommandSource []byte
)

// buildGuests compiles the guests that are too large to store as modules.
func (b *bench) buildGuests(ctx context.Context) (err error) {
	if b.goReactor, err = b.buildGo(ctx, goReactorSource, "-buildmode=c-shared"); err != nil {
		return err
	}
	b.goCommand, err = b.buildGo(ctx, goCommandSource)
	return err
}

func (b *bench) buildGo(ctx context.Context, source []byte, flags ...string) ([]byte, error) {
	dir, err := os.MkdirTemp(b.dir, "guest-")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "main.go")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, err
	}
	out := filepath.Join(dir, "guest.wasm")
	args := append([]string{"build", "-trimpath", "-ldflags=-s -w", "-o", out}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, file)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GO111MODULE=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build a Go guest: %w\n%s", err, text)
	}
	return os.ReadFile(out)
}

// manifest returns a manifest with the handlers of the C guest, in their order.
func manifest(reuse string) string {
	return `{"handlers":[{"name":"echo","batch":true},{"name":"pages"},{"name":"all"},{"name":"loop"}],"reuse":"` + reuse + `"}`
}

// silent is a sink that drops all logs and progress.
type silent struct{}

func (silent) Log(runtime.Level, []byte)     {}
func (silent) Progress(int64, int64, string) {}

// load loads a module into the engine, with a manifest unless it is "".
func load(ctx context.Context, e *wasm.Engine, code []byte, manifest string) (digest string, err error) {
	if manifest != "" {
		if code, err = wasm.WithManifest(code, manifest); err != nil {
			return "", err
		}
	}
	info, err := wasm.Inspect(code)
	if err != nil {
		return "", err
	}
	return info.Digest, e.Load(ctx, info.Digest, code)
}
