package wasm

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
)

func TestWithManifest(t *testing.T) {
	code, err := WithManifest(greet.Module, `{"handlers":[{"name":"hello"},{"name":"again"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	info, err := Inspect(code)
	if err != nil || !slices.Equal(info.Handlers, []string{"hello", "again"}) {
		t.Fatalf("handlers %q, %v", info.Handlers, err)
	}
	if _, err := WithManifest(code, `{"handlers":[{"name":"x"}]}`); err == nil || !strings.Contains(err.Error(), "use one of them") {
		t.Errorf("a second manifest: %v", err)
	}
	if _, err := WithManifest(greet.Module, "{"); !errors.Is(err, ErrInvalidModule) || !strings.Contains(err.Error(), "not the JSON") {
		t.Errorf("a broken manifest: %v", err)
	}
	if _, err := WithManifest(greet.Module, `{"capabilites":{}}`); err == nil || !strings.Contains(err.Error(), "capabilites") {
		t.Errorf("a misspelt manifest: %v", err)
	}
	if _, err := WithManifest([]byte("junk"), "{}"); err == nil {
		t.Error("a manifest for junk")
	}
}

func TestPack(t *testing.T) {
	ctx := context.Background()
	describing := fixture(t, "describe")
	packed, err := Pack(ctx, describing, "")
	if err != nil {
		t.Fatal(err)
	}
	info, err := Inspect(packed)
	if err != nil {
		t.Fatal(err)
	}
	want := manifest.Manifest{Handlers: []manifest.Handler{{Name: "one"}, {Name: "two"}}, Capabilities: runtime.Grants{KV: []runtime.Bucket{{Name: "b", Write: true}}}}
	if diff := cmp.Diff(want, info.Manifest); diff != "" || !slices.Equal(info.Handlers, []string{"one", "two"}) {
		t.Errorf("handlers %q, manifest (-want +got):\n%s", info.Handlers, diff)
	}
	if again, err := Pack(ctx, packed, ""); err != nil || !bytes.Equal(again, packed) {
		t.Errorf("what is packed is packed again: %v", err)
	}
	// A manifest beside the module takes precedence over wheelwork_describe.
	beside, err := Pack(ctx, describing, `{"handlers":[{"name":"mine"}]}`)
	if err != nil {
		t.Fatal(err)
	}
	if info, err = Inspect(beside); err != nil || !slices.Equal(info.Handlers, []string{"mine"}) {
		t.Errorf("handlers %q, %v", info.Handlers, err)
	}
	for _, plain := range []string{"loop", "sleep"} {
		if code, err := Pack(ctx, fixture(t, plain), ""); err != nil || !bytes.Equal(code, fixture(t, plain)) {
			t.Errorf("%s, which says nothing of itself, was changed: %v", plain, err)
		}
	}
	if _, err := Pack(ctx, fixture(t, "describetask"), ""); !errors.Is(err, ErrInvalidModule) || !strings.Contains(err.Error(), "input_len was called in wheelwork_describe") {
		t.Errorf("asks for a task: %v", err)
	}
	work := spent(func() { _, err = Pack(ctx, fixture(t, "describeloop"), "") })
	if !errors.Is(err, ErrInvalidModule) || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("never ends: %v", err)
	}
	if work > describeTime+time.Second {
		t.Errorf("it ran for %v", work)
	}
	if _, err := Pack(ctx, []byte("junk"), ""); !errors.Is(err, ErrInvalidModule) {
		t.Errorf("junk: %v", err)
	}
}

func TestOptionalImports(t *testing.T) {
	e := newEngine(t, Config{})
	plain := fixture(t, "optional")
	if err := e.Load(context.Background(), inspect.Digest(plain), plain); err == nil || !strings.Contains(err.Error(), "wheelwork_v1.telepathy, which is not served") {
		t.Errorf("without a manifest: %v", err)
	}
	one := withSection(plain, abi.ManifestSection, `{"optional":["telepathy"]}`)
	if _, err := Inspect(one); err == nil || !strings.Contains(err.Error(), "wheelwork_v1.foresight, which is not served") {
		t.Errorf("one of two: %v", err)
	}
	code := withSection(plain, abi.ManifestSection, `{"optional":["telepathy","foresight","map"]}`)
	info, err := Inspect(code)
	if err != nil || len(info.Stubs) != 2 || !slices.Equal(info.Needs, []string{"wheelwork_v1.0"}) {
		t.Fatalf("%+v, %v", info, err)
	}
	digest := load(t, e, code)
	for range 2 { // the second time with the same instance
		r := e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{})
		if len(r.Output) != 16 || int64(binary.LittleEndian.Uint64(r.Output)) != -52 || int64(binary.LittleEndian.Uint64(r.Output[8:])) != -52 {
			t.Fatalf("optional functions answer %x (%+v), want -52", r.Output, r)
		}
	}
	// Optional imports must be functions of wheelwork_v1 with a result that can be an
	// error.
	elsewhere := withSection(importing(t, "env", "telepathy"), abi.ManifestSection, `{"optional":["telepathy"]}`)
	if _, err := Inspect(elsewhere); err == nil || !strings.Contains(err.Error(), "env.telepathy, which is not served") {
		t.Errorf("optional in another module: %v", err)
	}
	mem := withSection(importing(t, abi.ImportModule, "telepathy", 2, 0, 1), abi.ManifestSection, `{"optional":["telepathy"]}`)
	if _, err := Inspect(mem); err == nil || !strings.Contains(err.Error(), "only functions are served") {
		t.Errorf("an optional memory: %v", err)
	}
}

func TestManifestFitsItsModule(t *testing.T) {
	for _, tt := range []struct{ fixture, manifest, want string }{
		{"loop", `{"kind":"command"}`, "says that it is a command, but it is a reactor"},
		{"sleep", `{"kind":"reactor"}`, "says that it is a reactor, but it is a command"},
		{"sleep", `{"reuse":"reset"}`, "a command gets a fresh instance"},
		{"sleep", `{"reuse":"shared"}`, "a command gets a fresh instance"},
		{"sleep", `{"handlers":[{"name":"a"},{"name":"b"}]}`, "a command has one entry"},
		{"loop", `{"handlers":[{"name":"a","batch":true}]}`, "does not export wheelwork_run"},
		{"loop", `{"abi":"wheelwork_v1.2"}`, "this version serves wheelwork_v1.1"},
		{"loop", `{"abi":"wheelwork_v1.1","kind":"reactor","reuse":"fresh"}`, ""},
		{"sleep", `{"kind":"command","reuse":"fresh","handlers":[{"name":"main"}]}`, ""},
	} {
		_, err := Inspect(withSection(fixture(t, tt.fixture), abi.ManifestSection, tt.manifest))
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q in it", tt.fixture, tt.manifest, err, tt.want)
		}
	}
}

// TestNeeds checks which interfaces a module needs.
func TestNeeds(t *testing.T) {
	for _, tt := range []struct {
		fixture, manifest string
		want              []string
	}{
		{"loop", "", []string{"wheelwork_v1.0"}},
		{"sleep", "", []string{"wasi-p1"}},
		{"host", "", []string{"wasi-p1", "wheelwork_v1.0"}},
		{"script", "", []string{"wasi-p1", "wheelwork_v1.1"}},
		{"loop", `{"abi":"wheelwork_v1.1"}`, []string{"wheelwork_v1.1"}},
		{"sleep", `{"abi":"wheelwork_v1.1"}`, []string{"wasi-p1", "wheelwork_v1.1"}},
	} {
		code := fixture(t, tt.fixture)
		if tt.manifest != "" {
			code = withSection(code, abi.ManifestSection, tt.manifest)
		}
		info, err := Inspect(code)
		if err != nil || !slices.Equal(info.Needs, tt.want) {
			t.Errorf("%s %s needs %q, %v; want %q", tt.fixture, tt.manifest, info.Needs, err, tt.want)
		}
	}
	for _, tt := range []struct {
		served []string
		need   string
		want   bool
	}{
		{abi.Served(), "wasi-p1", true},
		{abi.Served(), "wheelwork_v1.0", true},
		{abi.Served(), "wheelwork_v1.1", true},
		{abi.Served(), "wheelwork_v1.2", false},
		{abi.Served(), "wheelwork_v2.0", false},
		{[]string{"wheelwork_v1.10"}, "wheelwork_v1.9", true},
		{[]string{"wheelwork_v1"}, "wheelwork_v1.0", false},
		{[]string{"plugin:a"}, "plugin:a", true},
		{nil, "wasi-p1", false},
	} {
		if got := abi.Serves(tt.served, tt.need); got != tt.want {
			t.Errorf("%q serves %s: %v", tt.served, tt.need, got)
		}
	}
}
