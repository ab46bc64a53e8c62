package job

import (
	"hash/crc32"
	"hash/maphash"
	"iter"
)

type key struct {
	hash  [16]byte
	run   RunID
	atMs  int64
	input uint32 // [InputSum] of what it was used with; 0: not known
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// InputSum returns a checksum of the input of a trigger, by which a second use of
// its idempotency key is compared with the first. has says that the trigger has an
// input of its own. The sum is never 0.
func InputSum(has bool, input []byte) uint32 {
	sum := crc32.Checksum(input, castagnoli)
	if !has {
		sum = ^sum
	}
	return max(sum, 1)
}

// keys are the idempotency keys of a slot. The oldest are forgotten first, when
// their window is over or when there are too many, so they stand in a ring. Where
// one stands is looked up by its hash in two tables: what comes goes into the
// young one, and when that holds as many as there may be keys, it becomes the old
// one, and whatever the old one before it held is forgotten by then. So nothing is
// ever removed from a table: a key of long ago is far from every cache, and there
// is one to forget for each that comes. Go's map takes twice the time and three
// times the memory. The zero value is empty.
type keys struct {
	ring       []key  // a power of two, or none
	next       uint32 // number of the next key, which stands at that place modulo the size of the ring
	n          int    // keys that are remembered
	young, old index
}

// index is a hash table of the numbers of keys. Numbers of keys that are
// forgotten stay in it.
type index struct {
	places []uint64 // a power of two, or none: 31 bits of the hash and a 1, then the number; 0: empty
	n      int
}

// mixed makes places that nobody outside can foresee: whoever chooses keys could
// otherwise make many of them meet at one.
func mixed(hash [16]byte) uint64 { return maphash.Bytes(tableSeed, hash[:]) }

const keyMark = 1 << 32

func (x *index) home(h uint64) int { return int(h>>40) & (len(x.places) - 1) }

func (x *index) after(i int) int { return (i + 1) & (len(x.places) - 1) }

func (x *index) add(h uint64, number uint32) {
	i := x.home(h)
	for x.places[i] != 0 {
		i = x.after(i)
	}
	x.places[i] = h<<33 | keyMark | uint64(number)
	x.n++
}

// find returns the key of a hash, or nil.
func (k *keys) find(hash [16]byte) *key {
	if k.n == 0 {
		return nil
	}
	h := mixed(hash)
	for _, x := range []*index{&k.young, &k.old} {
		if x.n == 0 {
			continue
		}
		for i := x.home(h); x.places[i] != 0; i = x.after(i) {
			if p := x.places[i]; p>>32 == (h<<33|keyMark)>>32 {
				if e := k.at(uint32(p)); e != nil && e.hash == hash {
					return e
				}
			}
		}
	}
	return nil
}

// at returns the key of that number, or nil when it is forgotten.
func (k *keys) at(number uint32) *key {
	if age := k.next - number; age == 0 || age > uint32(k.n) { // modulo 2³², like the numbers
		return nil
	}
	return &k.ring[int(number)&(len(k.ring)-1)]
}

// add remembers a key, unless its hash is there, and forgets those whose time
// is over.
func (k *keys) add(e key) {
	for k.n > 0 {
		if oldest := k.at(k.next - uint32(k.n)); k.n < MaxKeys && e.atMs-oldest.atMs <= KeyWindow.Milliseconds() {
			break
		}
		k.n--
	}
	if k.find(e.hash) != nil {
		return
	}
	if k.n == len(k.ring) {
		k.grow()
	}
	if k.young.n == MaxKeys {
		k.young, k.old = k.old, k.young
		if k.young.n = 0; k.young.places == nil {
			k.young.places = make([]uint64, len(k.old.places))
		}
		clear(k.young.places)
	}
	if 2*k.young.n >= len(k.young.places) {
		k.widen()
	}
	k.ring[int(k.next)&(len(k.ring)-1)] = e
	k.young.add(mixed(e.hash), k.next)
	k.next++
	k.n++
}

// grow makes room for twice the keys.
func (k *keys) grow() {
	ring := make([]key, max(8, 2*len(k.ring)))
	for number := k.next - uint32(k.n); number != k.next; number++ {
		ring[int(number)&(len(ring)-1)] = *k.at(number)
	}
	k.ring = ring
}

// widen makes the young table twice as large, for the keys of it that are not
// forgotten.
func (k *keys) widen() {
	wider := index{places: make([]uint64, max(16, 2*len(k.young.places)))}
	for back := min(uint32(k.young.n), uint32(k.n)); back > 0; back-- {
		number := k.next - back
		wider.add(mixed(k.at(number).hash), number)
	}
	k.young = wider
}

// all yields the keys, the oldest first.
func (k *keys) all() iter.Seq[key] {
	return func(yield func(key) bool) {
		for number := k.next - uint32(k.n); number != k.next; number++ {
			if !yield(*k.at(number)) {
				return
			}
		}
	}
}
