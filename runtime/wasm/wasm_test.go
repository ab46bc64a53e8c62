package wasm

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
)

// fixture reads a module of testdata.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	code, err := os.ReadFile(filepath.Join("testdata", name+".wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// withHandlers appends a manifest that names handlers.
func withHandlers(code []byte, names ...string) []byte {
	manifest := `{"handlers":[`
	for i, n := range names {
		if i > 0 {
			manifest += ","
		}
		manifest += `{"name":"` + n + `"}`
	}
	return withSection(code, abi.ManifestSection, manifest+"]}")
}

// withSection appends a custom section.
func withSection(code []byte, name, body string) []byte {
	section := append(wasmbinary.AppendName(nil, name), body...)
	return wasmbinary.AppendSection(code[:len(code):len(code)], wasmbinary.SectionCustom, section)
}

func newEngine(t testing.TB, cfg Config) *Engine {
	t.Helper()
	e, err := New(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// load loads a module and returns its digest.
func load(t testing.TB, e *Engine, code []byte) string {
	t.Helper()
	digest := inspect.Digest(code)
	if err := e.Load(context.Background(), digest, code); err != nil {
		t.Fatal(err)
	}
	return digest
}

// recorder is a sink that records all calls.
type recorder struct {
	mu       sync.Mutex
	lines    []string
	levels   []runtime.Level
	progress []step
	onLog    func(line string) // called without the lock; may be nil
}

type step struct {
	done, total int64
	message     string
}

func (r *recorder) Log(level runtime.Level, line []byte) {
	r.mu.Lock()
	r.lines = append(r.lines, string(line))
	r.levels = append(r.levels, level)
	r.mu.Unlock()
	if r.onLog != nil {
		r.onLog(string(line))
	}
}

func (r *recorder) Progress(done, total int64, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.progress = append(r.progress, step{done, total, message})
}

// within returns a deadline after d, much longer than the task should take.
func within(d time.Duration) time.Time { return time.Now().Add(d) }

// u32 decodes a number that a fixture has output.
func u32(t testing.TB, output []byte) uint32 {
	t.Helper()
	if len(output) < 4 {
		t.Fatalf("output has %d bytes, want a number of 4", len(output))
	}
	return binary.LittleEndian.Uint32(output)
}

func TestFixturesMatchTheirSources(t *testing.T) {
	tool, err := exec.LookPath("wat2wasm")
	if err != nil {
		testkit.Lacks(t, "needs wat2wasm (Debian package wabt), which is not installed")
	}
	sources, err := filepath.Glob("testdata/*.wat")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no sources found: %v", err)
	}
	for _, src := range sources {
		out := filepath.Join(t.TempDir(), "out.wasm")
		if msg, err := exec.Command(tool, src, "-o", out).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", src, err, msg)
		}
		want, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(src)
		if have := fixture(t, name[:len(name)-len(".wat")]); string(have) != string(want) {
			t.Errorf("%s is not what %s compiles to: run the recipe in testdata/README.md", name, src)
		}
	}
}

// TestCloseWaitsForLoads closes an engine during a load whose caller has returned. The
// compiler must not use freed memory.
func TestCloseWaitsForLoads(t *testing.T) {
	e, err := New(context.Background(), Config{CacheDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	code := fixture(t, "count")
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := e.Load(ended, inspect.Digest(code), code); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := e.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	other := fixture(t, "loop")
	if err := e.Load(context.Background(), inspect.Digest(other), other); !errors.Is(err, errClosed) {
		t.Errorf("a load after the end: %v", err)
	}
	held, err := New(context.Background(), Config{})
	if err != nil {
		t.Fatal(err)
	}
	end, err := held.begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Close(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("closing beside a load, without patience: %v", err)
	}
	end()
	if err := held.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
