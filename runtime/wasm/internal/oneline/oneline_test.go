package oneline_test

import (
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/oneline"
)

func TestLines(t *testing.T) {
	for _, tt := range []struct{ text, first, valid, printable string }{
		{"", "unknown", "", ""},
		{" \n ", "unknown", "", " ? "},
		{"one", "one", "one", "one"},
		{"\n one \r\ntwo\n", "one", "one", "? one ??two?"},
		{"bad \xff\nend", "bad \xff", "bad \uFFFD", "bad ??end"},
		{"bell \a", "bell \a", "bell \a", "bell ?"},
	} {
		if got := oneline.First(tt.text); got != tt.first {
			t.Errorf("First(%q) = %q, want %q", tt.text, got, tt.first)
		}
		if got := oneline.Valid(tt.text); got != tt.valid {
			t.Errorf("Valid(%q) = %q, want %q", tt.text, got, tt.valid)
		}
		if got := oneline.Printable(tt.text); got != tt.printable {
			t.Errorf("Printable(%q) = %q, want %q", tt.text, got, tt.printable)
		}
	}
	if got := oneline.Printable(strings.Repeat("x", 10_000)); len(got) > 700 || !strings.HasSuffix(got, "x…") {
		t.Errorf("a long text becomes %d bytes", len(got))
	}
}
