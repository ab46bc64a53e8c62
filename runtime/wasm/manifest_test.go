package wasm

import (
	"slices"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/examples/greet"
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
	if _, err := WithManifest(greet.Module, "{"); err == nil || !strings.Contains(err.Error(), "not the JSON") {
		t.Errorf("a broken manifest: %v", err)
	}
	if _, err := WithManifest([]byte("junk"), "{}"); err == nil {
		t.Error("a manifest for junk")
	}
}
