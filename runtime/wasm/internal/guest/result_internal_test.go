package guest

import (
	"errors"
	"testing"
)

// TestATraceWithoutLinesNamesNoPlaces checks that code offsets without a known line are
// removed from a trace.
func TestATraceWithoutLinesNamesNoPlaces(t *testing.T) {
	err := errors.New("wasm error: x\nwasm stack trace:\n\t.f()\n\t\t0x1f: wheelwork\n\t.g()\n\t\t0xfffffffffffffffff: wheelwork\n\t.h()")
	if got, want := new(Call).trace(err), "wasm stack trace:\n\t.f()\n\t.g()\n\t.h()"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
