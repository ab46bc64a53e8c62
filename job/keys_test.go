package job

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
)

// oracle is the simplest implementation of keys.
type oracle struct {
	m     map[[16]byte]RunID
	queue []key
}

func (o *oracle) add(k key) {
	for len(o.queue) > 0 && (len(o.queue) >= MaxKeys || k.atMs-o.queue[0].atMs > KeyWindow.Milliseconds()) {
		delete(o.m, o.queue[0].hash)
		o.queue = o.queue[1:]
	}
	if _, ok := o.m[k.hash]; !ok {
		o.m[k.hash] = k.run
		o.queue = append(o.queue, k)
	}
}

// TestKeys compares keys with a map, in phases with many new keys and phases in which
// keys expire. The numbers of the keys overflow during the test.
func TestKeys(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	k, o := keys{next: math.MaxUint32 - 100_000}, oracle{m: map[[16]byte]RunID{}}
	hash := func(n uint64) (h [16]byte) {
		binary.LittleEndian.PutUint64(h[:], n) // deliberately not uniform
		return h
	}
	atMs, last := int64(0), uint64(0)
	for step := range 600_000 {
		switch r.IntN(150_000) {
		case 0:
			atMs += KeyWindow.Milliseconds() + 1 // all keys expire
		case 1:
			atMs += r.Int64N(KeyWindow.Milliseconds())
		}
		if r.IntN(10) > 0 {
			last++
		}
		n := last - min(r.Uint64N(10)*r.Uint64N(20_000), last) // mostly a new key, sometimes an old one
		e := key{hash: hash(n), atMs: atMs}
		binary.BigEndian.PutUint64(e.run[:], uint64(step))
		k.add(e)
		o.add(e)
		if k.n != len(o.queue) {
			t.Fatalf("step %d: %d keys, want %d", step, k.n, len(o.queue))
		}
		for range 3 {
			h := hash(last - min(r.Uint64N(100_000), last))
			want, ok := o.m[h]
			got := k.find(h)
			if (got != nil) != ok || got != nil && got.run != want {
				t.Fatalf("step %d: key %x is %v, want %v %v", step, h, got, want, ok)
			}
		}
	}
	i := 0
	for e := range k.all() {
		if e != o.queue[i] {
			t.Fatalf("key %d is %v, want %v", i, e, o.queue[i])
		}
		i++
	}
	if i != len(o.queue) || i == 0 {
		t.Fatalf("%d keys, want %d", i, len(o.queue))
	}
	if len(k.ring) != MaxKeys || k.young.Cells()+k.old.Cells() > 4*MaxKeys {
		t.Errorf("%d keys take a ring of %d and tables of %d and %d", i, len(k.ring), k.young.Cells(), k.old.Cells())
	}
}
