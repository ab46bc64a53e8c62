package wasm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
)

func TestInspectDescribes(t *testing.T) {
	code := withHandlers(fixture(t, "memory"), "main", "fill")
	have, err := Inspect(code)
	if err != nil {
		t.Fatal(err)
	}
	want := Info{
		Kind: Reactor, Handlers: []string{"main", "fill"},
		Imports: []string{"wheelwork_v1.output_write"}, Exports: []string{"memory", "wheelwork_handle"},
		ABI: []string{"wheelwork_v1"}, Needs: []string{"wheelwork_v1.0"}, MinMemoryBytes: 64 << 10,
		Manifest: manifest.Manifest{Handlers: []manifest.Handler{{Name: "main"}, {Name: "fill"}}},
		Size:     int64(len(code)), Digest: inspect.Digest(code),
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("reactor (-want +got):\n%s", diff)
	}
	have, err = Inspect(fixture(t, "sleep"))
	if err != nil {
		t.Fatal(err)
	}
	if have.Kind != Command || !cmp.Equal(have.Handlers, []string{"main"}) || !cmp.Equal(have.ABI, []string{"wasi_snapshot_preview1"}) {
		t.Errorf("command = %+v", have)
	}
}

// importing returns the loop module with one additional import: a function of type index 0,
// or another kind given by its encoding.
func importing(t *testing.T, module, name string, kind ...byte) []byte {
	t.Helper()
	if len(kind) == 0 {
		kind = []byte{0, 0}
	}
	body := wasmbinary.AppendName(wasmbinary.AppendName([]byte{1}, module), name)
	return insertImports(t, fixture(t, "loop"), append(body, kind...))
}

// insertImports inserts an import section after the type section, which is the first one.
func insertImports(t *testing.T, code, body []byte) []byte {
	t.Helper()
	if code[8] != wasmbinary.SectionType || code[9] >= 0x80 {
		t.Fatal("the fixture does not begin with a short type section")
	}
	end := 10 + int(code[9])
	out := wasmbinary.AppendSection(code[:end:end], wasmbinary.SectionImport, body)
	return append(out, code[end:]...)
}

func TestInspectRefuses(t *testing.T) {
	loop := fixture(t, "loop")
	tests := []struct {
		name string
		code []byte
		want string // part of the error, which must state the problem and the solution
	}{
		{"nothing", nil, `not WebAssembly (it starts with ""): upload the .wasm file`},
		{"text", []byte("#!/bin/sh\necho hello"), `not WebAssembly (it starts with "#!/bin/s"): upload`},
		{"component", []byte("\x00asm\x0d\x00\x01\x00rest"), "component, which is not served: compile to a wasm32-wasip1 core module"},
		{"version", []byte("\x00asm\x02\x00\x00\x00"), "version 02 00 00 00 is unknown"},
		{"cut off", loop[:len(loop)-3], "damaged or cut off"},
		{"unknown module", importing(t, "env", "emscripten_notify"), "imports env.emscripten_notify, which is not served: the modules served are wasi_snapshot_preview1 and wheelwork_v1"},
		{"unknown function", importing(t, abi.ImportModule, "teleport"), "imports wheelwork_v1.teleport, which is not served: wheelwork_v1 has input_len, input_read"},
		{"unknown WASI function", importing(t, "wasi_snapshot_preview1", "fd_teleport"), "no function of WASI preview 1"},
		{"meter", importing(t, "wheelwork_meter", "tick"), "imports wheelwork_meter.tick, which is not served"},
		{"wrong type", importing(t, abi.ImportModule, "now_ms"), "imports wheelwork_v1.now_ms as (i32) -> (i32), but that function is () -> (i64)"},
		{"imported memory", importing(t, "env", "memory", 2, 0, 1), "imports the memory env.memory, but only functions"},
		{"no entry", fixture(t, "loop")[:0:0], "not WebAssembly"},
		{"neither entry", renameExport(t, loop, "wheelwork_handle", "wheelwork_hamdle"), "exports neither _start nor wheelwork_handle: build a WASI command"},
		{"reserved", renameExport(t, loop, "memory", "wheelw"), `does not export its memory as "memory"`},
		{"table", fixture(t, "bigtable"), "elements of one table: 100000000, at most 131072 are accepted"},
		{"manifest", withSection(loop, abi.ManifestSection, "{"), "the manifest is not the JSON expected"},
		{"no handlers", withSection(loop, abi.ManifestSection, `{"handlers":[]}`), "names 0 handlers"},
		{"twice", withHandlers(loop, "a", "a"), `names the handler "a", which is empty, too long, not printable or listed twice`},
		{"types", assemble([]byte{0, 0x42, 0, 0x0b}), "type"},
	}
	for _, tt := range tests {
		_, err := Inspect(tt.code)
		if err == nil {
			t.Errorf("%s: accepted", tt.name)
			continue
		}
		if !errors.Is(err, ErrInvalidModule) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\nwant %q", tt.name, err, tt.want)
		}
	}
}

// renameExport replaces a name with another of the same length.
func renameExport(t *testing.T, code []byte, from, to string) []byte {
	t.Helper()
	if len(from) != len(to) || strings.Count(string(code), from) != 1 {
		t.Fatalf("cannot rename %s to %s", from, to)
	}
	return []byte(strings.Replace(string(code), from, to, 1))
}

// TestGuestCannotReachTheMeter uses modules whose indices would refer to additions of the
// rewriter: its globals, types and helpers.
func TestGuestCannotReachTheMeter(t *testing.T) {
	bodies := map[string][]byte{
		"set fuel":      {0, 0x42, 0, 0x24, 0, 0x41, 0, 0x0b},
		"read stack":    {0, 0x23, 1, 0x1a, 0x41, 0, 0x0b},
		"type of tick":  {0, 0x42, 0, 0x02, 1, 0x0b, 0x1a, 0x41, 0, 0x0b},
		"call helper":   {0, 0x41, 0, 0x41, 0, 0x41, 0, 0x10, 1, 0x41, 0, 0x0b},
		"wrapped index": {0, 0x10, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x41, 0, 0x0b},
	}
	for name, body := range bodies {
		if _, err := Inspect(assemble(body)); !errors.Is(err, ErrInvalidModule) || !strings.Contains(err.Error(), "instruction names") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadChecksTheDigest(t *testing.T) {
	e := newEngine(t, Config{})
	err := e.Load(context.Background(), "sha256:"+strings.Repeat("0", 64), fixture(t, "loop"))
	if !errors.Is(err, ErrDigest) {
		t.Errorf("error = %v", err)
	}
	if err := e.Load(context.Background(), inspect.Digest([]byte("x")), []byte("x")); !errors.Is(err, ErrInvalidModule) {
		t.Errorf("error = %v", err)
	}
}

func TestLoadTwiceAndAtOnce(t *testing.T) {
	e := newEngine(t, Config{CacheDir: t.TempDir()})
	code := fixture(t, "host")
	digest := inspect.Digest(code)
	if e.Loaded(digest) {
		t.Fatal("loaded before Load")
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := e.Load(context.Background(), digest, code); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if !e.Loaded(digest) || e.Load(context.Background(), digest, nil) != nil {
		t.Error("a loaded module was not recognised")
	}
}

func TestCompileCacheIsKeyedByTheEngine(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	want := "github.com/tetratelabs/wazero " + strings.TrimPrefix(engineVersion, "wazero-")
	if !strings.Contains(string(mod), want+"\n") {
		t.Errorf("engineVersion is %s, which go.mod does not require: set it to the version there", engineVersion)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, cfg := range []Config{{Slots: -1}, {MaxPoolBytes: -1}, {CacheBytes: -1}, {MaxMemoryBytes: 1<<32 + 1}} {
		if _, err := New(context.Background(), cfg); err == nil {
			t.Errorf("%+v accepted", cfg)
		}
	}
}

// TestUploadLimits loads a function with more locals than a server accepts by default: a host
// accepts what a server with larger limits has accepted.
func TestUploadLimits(t *testing.T) {
	code := []byte("\x00asm\x01\x00\x00\x00" + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x07\x0a\x01\x06_start\x00\x00" +
		"\x0a\x07\x01\x05\x01\x8e\x27\x7f\x0b") // 5006 locals
	if _, err := Inspect(code); err == nil || !strings.Contains(err.Error(), "locals of one function: 5006, at most 5000 are accepted: make it smaller or split it, or raise --upload-locals of the server") {
		t.Errorf("by default: %v", err)
	}
	if _, err := InspectWithin(code, UploadLimits{Locals: 5006}); err != nil {
		t.Errorf("with a larger limit: %v", err)
	}
	e := newEngine(t, Config{})
	if r := e.Run(context.Background(), runtime.Task{Digest: load(t, e, code), Deadline: within(20 * time.Second)}, &recorder{}); r.Outcome != runtime.Succeeded {
		t.Errorf("on a host: %+v", r)
	}
}
