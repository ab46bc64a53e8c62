package wasm

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

// linesHandlers describes the functions of testdata/lines.c, by index, and the traces of
// their traps.
var linesHandlers = []struct {
	name  string
	error string
	trace []string
}{
	{"divide", "trap: integer divide by zero", []string{"divide lines.c:12", "sum lines.c:38", "handle lines.c:46"}},
	{"far", "trap: out of bounds memory access", []string{"far lines.c:17 lines.c:23 lines.c:31", "handle lines.c:48"}},
	{"unreachable", "trap: unreachable", []string{"handle lines.c:50"}},
}

// TestTracesNameLines checks the traces of traps in a module with debug information, in
// both versions in use. The rewriter moves all of its code.
func TestTracesNameLines(t *testing.T) {
	for _, file := range []string{"lines", "lines5"} {
		for _, reuse := range []string{"reset", "fresh"} { // with dirty bits and without
			e := newEngine(t, Config{CacheDir: t.TempDir()})
			code := withSection(fixture(t, file), "wheelwork.manifest",
				`{"handlers":[{"name":"divide"},{"name":"far"},{"name":"unreachable"}],"reuse":"`+reuse+`"}`)
			digest := load(t, e, code)
			for _, h := range linesHandlers {
				r := e.Run(context.Background(), runtime.Task{Digest: digest, Handler: h.name}, &recorder{})
				if r.Code != guest.CodeTrap || r.Error != h.error {
					t.Errorf("%s %s: %+v, want %s", file, h.name, r, h.error)
				}
				if got := frames(r.Trace); !slices.Equal(got, h.trace) {
					t.Errorf("%s %s: %q, want %q, of\n%s", file, h.name, got, h.trace, r.Trace)
				}
			}
		}
	}
}

// TestLinesOfTheCompilerHere compiles the source again with the installed compiler, in all
// versions of the format. The traces must name the same lines.
func TestLinesOfTheCompilerHere(t *testing.T) {
	clang, err := exec.LookPath("clang")
	if err != nil {
		testkit.Lacks(t, "needs clang (Debian packages clang and lld), which is not installed")
	}
	for _, flag := range []string{"-g", "-gdwarf-2", "-gdwarf-3", "-gdwarf-5"} {
		out := filepath.Join(t.TempDir(), "lines.wasm")
		cmd := exec.Command(clang, "--target=wasm32", "-O1", "-nostdlib", "-Wl,--no-entry", flag, "-fdebug-compilation-dir=.", "-o", out, "lines.c")
		// The compiler runs any wasm-opt in PATH, which would remove lines and names.
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(clang))
		cmd.Dir = "testdata"
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		code, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		e := newEngine(t, Config{})
		digest := load(t, e, withSection(code, "wheelwork.manifest", `{"handlers":[{"name":"divide"},{"name":"far"},{"name":"unreachable"}]}`))
		for _, h := range linesHandlers {
			r := e.Run(context.Background(), runtime.Task{Digest: digest, Handler: h.name}, &recorder{})
			if got := frames(r.Trace); !slices.Equal(got, h.trace) {
				t.Errorf("%s %s: %q, want %q", flag, h.name, got, h.trace)
			}
		}
	}
}

// TestTracesAreThoseOfThePlainModule compares with the traces of the engine for the
// original module.
func TestTracesAreThoseOfThePlainModule(t *testing.T) {
	ctx := context.Background()
	plain, err := specRuntime(t).Instantiate(ctx, fixture(t, "lines"))
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, Config{})
	digest := load(t, e, withSection(fixture(t, "lines"), "wheelwork.manifest", `{"handlers":[{"name":"divide"},{"name":"far"},{"name":"unreachable"}]}`))
	places := regexp.MustCompile(`\t\t(0x[0-9a-f]+: | +)`)
	for i, h := range linesHandlers {
		_, err := plain.ExportedFunction("wheelwork_handle").Call(ctx, uint64(i))
		if err == nil {
			t.Fatalf("%s does not trap", h.name)
		}
		_, want, _ := strings.Cut(err.Error(), "\n")
		want = places.ReplaceAllString(want, "\t\t")
		want = strings.ReplaceAll(want, "./lines.c", "lines.c") // the directory is not in the line table
		r := e.Run(ctx, runtime.Task{Digest: digest, Handler: h.name}, &recorder{})
		if r.Trace != want {
			t.Errorf("%s: metered\n%s\nplain\n%s", h.name, r.Trace, want)
		}
	}
}

// TestLinesSurviveARestart loads a module from the cache, which contains its line table.
func TestLinesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		e := newEngine(t, Config{CacheDir: dir})
		r := e.Run(context.Background(), runtime.Task{Digest: load(t, e, fixture(t, "lines"))}, &recorder{})
		if got := frames(r.Trace); !slices.Equal(got, linesHandlers[0].trace) {
			t.Errorf("%q of\n%s", got, r.Trace)
		}
	}
}

// TestBrokenLinesAreNoReason changes each byte of a line table. The module must still run,
// and its traces must name the functions.
func TestBrokenLinesAreNoReason(t *testing.T) {
	e := newEngine(t, Config{})
	whole := fixture(t, "lines")
	const name = ".debug_line"
	begin := bytes.Index(whole, []byte(name)) + len(name)
	size := 4 + int(binary.LittleEndian.Uint32(whole[begin:]))
	lost := 0
	for at := begin; at < begin+size; at += 3 {
		code := bytes.Clone(whole)
		code[at] ^= 0xff
		r := e.Run(context.Background(), runtime.Task{Digest: load(t, e, code)}, &recorder{})
		if r.Code != guest.CodeTrap || !strings.Contains(r.Trace, "\t.divide(i32) i32\n") || strings.Contains(r.Trace, "0x") {
			t.Errorf("byte %d of the line table is broken: %+v", at-begin, r)
		}
		if got := frames(r.Trace); !slices.Equal(got, linesHandlers[0].trace) {
			lost++
		}
	}
	if lost == 0 {
		t.Error("no byte of the line table matters")
	}
}

var column = regexp.MustCompile(`:\d+( \(inlined\))?$`)

// frames returns the functions of a trace with their positions, without columns.
func frames(trace string) []string {
	var all []string
	for _, line := range strings.Split(trace, "\n") {
		if at, ok := strings.CutPrefix(line, "\t\t"); ok {
			at = column.ReplaceAllString(strings.TrimLeft(at, "./"), "")
			all[len(all)-1] += " " + at
		} else if name, ok := strings.CutPrefix(line, "\t"); ok {
			name, _, _ = strings.Cut(strings.TrimPrefix(name, "."), "(")
			all = append(all, name)
		}
	}
	return all
}
