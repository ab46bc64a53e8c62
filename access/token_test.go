package access

import (
	"bytes"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

// TestTokens checks that tokens differ, have 160 bits, and that each changed or missing character
// is noticed.
func TestTokens(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		text, err := NewToken(rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckToken(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if id := TokenID(Digest(text)); seen[text] || seen[id] || strings.Contains(text, id) {
			t.Errorf("%s with the id %s", text, id)
		} else {
			seen[text], seen[id] = true, true
		}
		for i := range text {
			other := byte('a')
			if text[i] == 'a' {
				other = 'b'
			}
			if CheckToken(text[:i]+string(other)+text[i+1:]) == nil || CheckToken(text[:i]+text[i+1:]) == nil {
				t.Errorf("character %d of %s may change, or be missing", i, text)
			}
		}
	}
	one, err := NewToken(bytes.NewReader(make([]byte, tokenBytes)))
	if err != nil || one != "wwk_"+strings.Repeat("a", 32)+checksum(strings.Repeat("a", 32)) {
		t.Errorf("%s, %v", one, err)
	}
	broken := errors.New("broken")
	if _, err := NewToken(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("without random bytes: %v", err)
	}
}
