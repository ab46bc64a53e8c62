package mq

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestBodies(t *testing.T) {
	long := strings.Repeat("é", 200)
	for _, tt := range []struct {
		text         string
		body         []byte
		short, whole string
	}{
		{`{"a":1}`, []byte{1}, `{"a":1}`, "{\n  \"a\": 1\n}"},
		{"", []byte("plain\ntext"), "plain\ntext", "plain\ntext"},
		{"", []byte(long), strings.Repeat("é", 160) + "…", long},
		{"", []byte("\x1b[2J"), "1b5b324a", hex.Dump([]byte("\x1b[2J"))},
		{"", make([]byte, 100), strings.Repeat("00", 80) + "…", hex.Dump(make([]byte, 100))},
	} {
		if got := excerpt(tt.text, tt.body); got != tt.short {
			t.Errorf("excerpt of %q: %q, want %q", tt.body, got, tt.short)
		}
		if got := bodyText(tt.text, tt.body); got != tt.whole {
			t.Errorf("%q in full: %q, want %q", tt.body, got, tt.whole)
		}
	}
}
