package wasm

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
)

// cacheFiles returns the size in bytes of each file of a compile cache.
func cacheFiles(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	files := map[string]int64{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		files[path] = info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func total(files map[string]int64) (n int64) {
	for _, size := range files {
		n += size
	}
	return n
}

// TestCompileCacheIsBounded loads more modules than the cache has room for. Files of loaded
// modules must stay, other files must go, and removed modules must be compiled again.
func TestCompileCacheIsBounded(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	open := func(bytes int64) *Engine {
		e, err := New(ctx, Config{CacheDir: dir, CacheBytes: bytes})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	load := func(e *Engine, name string) string {
		t.Helper()
		code := fixture(t, name)
		if err := e.Load(ctx, inspect.Digest(code), code); err != nil {
			t.Fatal(err)
		}
		return inspect.Digest(code)
	}
	finish := func(e *Engine) {
		t.Helper()
		if err := e.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"count", "loop", "host", "memory"}
	e := open(1)
	for _, name := range names {
		load(e, name)
	}
	loaded := cacheFiles(t, dir)
	if len(loaded) != 3*len(names) { // for each module: rewritten code, machine code, and a note that they belong together
		t.Errorf("%d files while %d modules are loaded: %v", len(loaded), len(names), loaded)
	}
	load(e, "count")
	finish(e)

	// With room for all modules a restart compiles nothing.
	e = open(total(loaded))
	for _, name := range names {
		load(e, name)
	}
	for path := range cacheFiles(t, dir) {
		if _, ok := loaded[path]; !ok {
			t.Errorf("%s was made anew", path)
		}
	}
	digest := load(e, "count")
	if err := e.Unload(ctx, digest); err != nil {
		t.Fatal(err)
	}
	finish(e)

	// With room for about two of four modules, two are removed, and the others stay
	// complete.
	e = open(total(loaded) / 2)
	if got := total(cacheFiles(t, dir)); got > total(loaded)/2 || got == 0 {
		t.Errorf("%d bytes of %d are there, want at most half", got, total(loaded))
	}
	for _, name := range names {
		digest := load(e, name)
		if name != "count" {
			continue
		}
		if res := e.Run(ctx, runtime.Task{Digest: digest, Handler: "main"}, silent{}); res.Outcome == runtime.HostError {
			t.Errorf("a module that went and came back: %+v", res)
		}
	}
	if got := len(cacheFiles(t, dir)); got != len(loaded) {
		t.Errorf("%d files while all are loaded, want %d", got, len(loaded))
	}
	finish(e)
}

// TestModulesThatShareCode loads two modules that differ only in a custom section. They
// compile to the same file, which both use.
func TestModulesThatShareCode(t *testing.T) {
	dir := t.TempDir()
	ctx := context.Background()
	e, err := New(ctx, Config{CacheDir: dir, CacheBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(ctx) //nolint:errcheck // its end is not the test
	one := fixture(t, "count")
	two := append(append([]byte{}, one...), 0, 3, 1, 'x', 'y')
	for _, code := range [][]byte{one, two} {
		if err := e.Load(ctx, inspect.Digest(code), code); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Unload(ctx, inspect.Digest(one)); err != nil {
		t.Fatal(err)
	}
	e.evictor.Sweep()
	compiled, err := filepath.Glob(filepath.Join(dir, "*", "wazero-*", "*"))
	if err != nil || len(compiled) != 1 {
		t.Errorf("compiled are %v, %v; want one file, which the second module uses", compiled, err)
	}
	if err := e.Unload(ctx, inspect.Digest(two)); err != nil {
		t.Fatal(err)
	}
	e.evictor.Sweep()
	if files := cacheFiles(t, dir); len(files) != 0 {
		t.Errorf("nothing is loaded, and there are %v", files)
	}
	if _, err := os.Stat(filepath.Join(dir, CacheVersion())); err != nil {
		t.Errorf("the folder that the engine writes to is gone: %v", err)
	}
	if err := e.Load(ctx, inspect.Digest(one), one); err != nil {
		t.Errorf("after all was removed: %v", err)
	}
}

// TestCacheThatFailsCostsTime damages and removes the machine code in a compile cache, and the
// folder to which it is written. The module must load and run each time.
func TestCacheThatFailsCostsTime(t *testing.T) {
	ctx := context.Background()
	code := fixture(t, "count")
	digest := inspect.Digest(code)
	dir := t.TempDir()
	load := func(before func()) {
		t.Helper()
		e, err := New(ctx, Config{CacheDir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close(ctx) //nolint:errcheck // its end is not the test
		before()
		if err := e.Load(ctx, digest, code); err != nil {
			t.Fatal(err)
		}
		if res := e.Run(ctx, runtime.Task{Digest: digest, Handler: "main"}, silent{}); res.Outcome == runtime.HostError {
			t.Errorf("%+v", res)
		}
	}
	machineCode := func() string {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(dir, "*", "wazero-*", "*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("compiled are %v, %v; want one file", files, err)
		}
		return files[0]
	}
	load(func() {})
	whole, err := os.ReadFile(machineCode())
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, damaged := range map[string][]byte{"empty": nil, "cut in its head": whole[:10], "cut in its code": whole[:len(whole)/2], "flipped": flipped} {
		if err := os.WriteFile(machineCode(), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		load(func() {})
		if again, err := os.ReadFile(machineCode()); err != nil || !bytes.Equal(again, whole) {
			t.Errorf("%s: the file was not made again: %d bytes, %v", name, len(again), err)
		}
	}
	load(func() {
		if err := os.RemoveAll(filepath.Dir(machineCode())); err != nil {
			t.Fatal(err)
		}
	})
}
