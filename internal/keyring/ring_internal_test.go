package keyring

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

// line is a line of a key file.
func line(fill byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, keyBytes)) + "\n"
}

// ring returns a ring with the keys of a file.
func ring(t testing.TB, fills ...byte) *Ring {
	t.Helper()
	var text strings.Builder
	for _, fill := range fills {
		text.WriteString(line(fill))
	}
	keys, err := Parse(text.String())
	if err != nil {
		t.Fatal(err)
	}
	return NewRing(keys)
}

// TestSeal checks that open returns the sealed value, and fails if a bit differs or the
// bytes were sealed for another app or name.
func TestSeal(t *testing.T) {
	s := ring(t, 1)
	value := []byte("the value")
	sealed, err := s.Seal("app", "name", value)
	if err != nil || bytes.Contains(sealed, value) {
		t.Fatalf("sealed %q, %v", sealed, err)
	}
	if again, err := s.Seal("app", "name", value); err != nil || bytes.Equal(again, sealed) {
		t.Errorf("sealed again it is the same: %v", err)
	}
	if got, err := s.Open("app", "name", sealed); err != nil || !bytes.Equal(got, value) {
		t.Errorf("opened %q, %v", got, err)
	}
	for _, place := range [][2]string{{"app", "other"}, {"other", "name"}, {"ap", "pname"}, {"", ""}} {
		if got, err := s.Open(place[0], place[1], sealed); err == nil {
			t.Errorf("opened %q in the place of %q", got, place)
		}
	}
	for i := range len(sealed) * 8 {
		broken := bytes.Clone(sealed)
		broken[i/8] ^= 1 << (i % 8)
		if got, err := s.Open("app", "name", broken); err == nil {
			t.Errorf("opened %q with bit %d turned", got, i)
		}
	}
	for n := range len(sealed) {
		if got, err := s.Open("app", "name", sealed[:n]); err == nil {
			t.Errorf("opened %q of %d bytes", got, n)
		}
	}
	if _, err := ring(t, 2).Open("app", "name", sealed); !errors.Is(err, errOtherKey) {
		t.Errorf("with another key: %v", err)
	}
	if _, err := (*Ring)(nil).Open("app", "name", sealed); !errors.Is(err, errNoKey) {
		t.Errorf("without a key: %v", err)
	}
	if _, err := (*Ring)(nil).Seal("app", "name", value); !errors.Is(err, errNoKey) {
		t.Errorf("sealed without a key: %v", err)
	}
}

// TestRing: the newest key that all servers have seals, every key of the ring opens, and a
// ring that changes works on.
func TestRing(t *testing.T) {
	value := []byte("the value")
	seal := func(r *Ring) []byte {
		t.Helper()
		sealed, err := r.Seal("app", "name", value)
		if err != nil {
			t.Fatal(err)
		}
		return sealed
	}
	r := ring(t, 1)
	ids := ring(t, 1, 2, 3).Keys().IDs()
	first := seal(r)
	if SealedBy(first) != ids[0] {
		t.Errorf("sealed by %s, want %s", SealedBy(first), ids[0])
	}
	r.Set(ring(t, 1, 2, 3).Keys())
	last := seal(r)
	if SealedBy(last) != ids[2] {
		t.Errorf("sealed by %s, want the newest %s", SealedBy(last), ids[2])
	}
	for _, sealed := range [][]byte{first, last} {
		if got, err := r.Open("app", "name", sealed); err != nil || !bytes.Equal(got, value) {
			t.Errorf("opened %q, %v", got, err)
		}
	}
	for have, want := range map[string]string{"": ids[0], ids[0]: ids[0], ids[0] + ids[1]: ids[1], ids[1] + ids[2]: ids[2]} {
		r.Lacking = func(id string) []string {
			if strings.Contains(have, id) {
				return nil
			}
			return []string{"other"}
		}
		if got := SealedBy(seal(r)); got != want {
			t.Errorf("the others have %q: sealed by %s, want %s", have, got, want)
		}
		if id, lacking := r.Newest(); id != ids[2] || (len(lacking) == 0) != strings.Contains(have, id) {
			t.Errorf("the newest is %s, and %v lack it", id, lacking)
		}
	}
	r.Set(ring(t, 2, 3).Keys())
	if _, err := r.Open("app", "name", first); !errors.Is(err, errOtherKey) {
		t.Errorf("with a removed key: %v", err)
	}
	if got, err := r.Open("app", "name", last); err != nil || !bytes.Equal(got, value) {
		t.Errorf("opened %q, %v", got, err)
	}
	if id := SealedBy([]byte("short")); id != "" {
		t.Errorf("sealed by %q", id)
	}
}

// TestFile: a key file of one line is read as before. Keys are added at its end, and the
// newest stays.
func TestFile(t *testing.T) {
	for want, text := range map[string]string{
		"it has no key":                 "# nothing\n\n",
		"line 2 is no key: it is not b": line(1) + "?\n",
		"line 1 is no key: a key has 3": "AAAA\n",
		"line 3 has the key":            line(1) + line(2) + line(1),
		"more than 16":                  lines(17),
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	for _, text := range []string{line(1), strings.TrimSpace(line(1)), "# made by hand\r\n\r\n" + strings.TrimSpace(line(1)) + "\r\n"} {
		first, err := Parse(text)
		if err != nil || len(first.IDs()) != 1 {
			t.Fatalf("%q: %v, %v", text, first.IDs(), err)
		}
		more, id, err := Add(text)
		if err != nil {
			t.Fatal(err)
		}
		both, err := Parse(more)
		if ids := both.IDs(); err != nil || len(ids) != 2 || ids[0] != first.IDs()[0] || ids[1] != id {
			t.Fatalf("%q: %v, %v", more, ids, err)
		}
		if _, err := Remove(more, id); err == nil || !strings.Contains(err.Error(), "newest") {
			t.Errorf("the newest: %v", err)
		}
		if _, err := Remove(more, "00"); err == nil || !strings.Contains(err.Error(), id) {
			t.Errorf("an unknown key: %v", err)
		}
		less, err := Remove(more, first.IDs()[0])
		if err != nil {
			t.Fatal(err)
		}
		if left, err := Parse(less); err != nil || len(left.IDs()) != 1 || !left.Has(id) {
			t.Errorf("%q: %v, %v", less, left.IDs(), err)
		}
		if older := strings.TrimSpace(less); !strings.HasPrefix(text, "#") && strings.Contains(older, "\n") {
			t.Errorf("a program that reads one key only cannot read %q", less)
		}
	}
	if _, _, err := Add(lines(16)); err == nil {
		t.Error("a file grew beyond its bound")
	}
	if _, _, err := Add("?"); err == nil {
		t.Error("a key was added to a file that holds something else")
	}
	if one, _ := New(); one == func() string { two, _ := New(); return two }() {
		t.Error("two new keys are the same")
	}
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(byte(i)))
	}
	return b.String()
}

func FuzzOpenSecret(f *testing.F) {
	s := ring(f, 1)
	sealed, err := s.Seal("app", "name", []byte("v"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sealed)
	f.Add(sealed[:21])
	f.Add([]byte{sealForm})
	f.Fuzz(func(t *testing.T, b []byte) {
		// The seeds are sealed by another process with the same key and other nonces.
		if got, err := s.Open("app", "name", b); err == nil && string(got) != "v" {
			t.Errorf("opened %q of bytes that were not sealed", got)
		}
	})
}
