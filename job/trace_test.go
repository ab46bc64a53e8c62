package job

import (
	"strings"
	"testing"
)

func TestTraceText(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, tt := range []struct{ parent, state, want string }{
		{parent, "", parent},
		{parent, "rojo=00f067aa0ba902b7,congo=t61 rcW", parent + " rojo=00f067aa0ba902b7,congo=t61 rcW"},
		{parent, strings.Repeat("x", 512), parent + " " + strings.Repeat("x", 512)},
		{parent, strings.Repeat("x", 513), parent},
		{parent, "a=b\nc", parent},
		{parent, "a=é", parent},
		{"", "a=b", ""},
		{parent[1:], "", ""},
		{parent + "0", "", ""},
		{strings.ToUpper(parent), "", ""},
		{strings.Replace(parent, "-", "_", 1), "", ""},
		{"ff" + parent[2:], "", ""},
		{"00-00000000000000000000000000000000-b7ad6b7169203331-01", "", ""},
		{"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "", ""},
	} {
		text := TraceText(tt.parent, tt.state)
		if text != tt.want {
			t.Errorf("%q and %q: %q, want %q", tt.parent, tt.state, text, tt.want)
		}
		if p, s := SplitTrace(text); text != "" && (p != parent || s != strings.TrimPrefix(strings.TrimPrefix(tt.want, parent), " ")) {
			t.Errorf("%q is split into %q and %q", text, p, s)
		}
	}
	if p, s := SplitTrace(""); p+s != "" {
		t.Errorf("no trace is split into %q and %q", p, s)
	}
}
