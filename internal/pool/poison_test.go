//go:build poison

package pool

import (
	"bytes"
	"strings"
	"testing"
)

type object struct {
	Name  string
	Bytes []byte
	n     int
	parts []part
	next  *object
}

type part struct{ id uint8 }

// fails returns the text with which fn panics.
func fails(fn func()) (text string) {
	defer func() { text, _ = recover().(string) }()
	fn()
	return ""
}

// TestReleasedIsOverwritten checks that code which reads an object after its release sees
// other values, and that values which the object refers to remain valid.
func TestReleasedIsOverwritten(t *testing.T) {
	var p Pool[object]
	o, b := p.Get(), []byte("bytes")
	parts := []part{{1}, {2}}
	*o = object{Name: "a", Bytes: b, n: 1, parts: parts[:1], next: &object{Name: "b"}}
	next := o.next
	p.Release(o)
	if o.Name != poison || string(o.Bytes) != poison || o.n != -0x2152 || o.parts != nil || o.next != nil {
		t.Errorf("after its release the object is %+v", o)
	}
	if parts[0].id != 0xad || parts[1].id != 0xad {
		t.Errorf("after the release the parts of the object are %v", parts)
	}
	if string(b) != "bytes" || next.Name != "b" {
		t.Errorf("the release changed other objects: %q, %q", b, next.Name)
	}
	if again := p.Get(); again == o {
		t.Error("a released object is used again")
	}
}

// TestReleasedBytes checks that a released buffer is overwritten.
func TestReleasedBytes(t *testing.T) {
	var p Pool[[]byte]
	b := []byte("text")
	room := b
	p.Release(&b)
	if !bytes.Equal(room, []byte{0xdd, 0xdd, 0xdd, 0xdd}) {
		t.Errorf("after its release the buffer has %q", room)
	}
}

// TestReleasedTwice checks that a second release panics.
func TestReleasedTwice(t *testing.T) {
	var p Lists[object]
	o := p.Get()
	p.Release(o)
	if text := fails(func() { p.Release(o) }); !strings.Contains(text, "released twice") {
		t.Errorf("the second release: %q", text)
	}
}

// TestChangedAfterRelease checks that a pool panics for an object that was changed after
// its release.
func TestChangedAfterRelease(t *testing.T) {
	var p Lists[object]
	o := p.Get()
	p.Release(o)
	o.n = 1
	if text := fails(func() {
		for range quarantined {
			p.Release(p.Get())
		}
	}); !strings.Contains(text, "changed after its release") {
		t.Errorf("the object was changed, and the pool says %q", text)
	}
}
