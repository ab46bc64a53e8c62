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
	input uint32 // [InputSum] of the input at the first use; 0: unknown
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// InputSum returns a checksum of the input of a trigger, to compare a second use of an
// idempotency key with the first. has reports that the trigger has an input of its own.
// The sum is never 0.
func InputSum(has bool, input []byte) uint32 {
	sum := crc32.Checksum(input, castagnoli)
	if !has {
		sum = ^sum
	}
	return max(sum, 1)
}

// keys are the idempotency keys of a slot, in a ring from the oldest to the newest. The
// oldest key is removed when its window ends, or when there are more than MaxKeys. Two
// indexes find a key by its hash. New keys go into the young index. When the young index
// has MaxKeys keys, it becomes the old one, and all keys of the former old index have been
// removed from the ring. So an index never removes an entry: the cell of an old key is in
// no processor cache, and each new key would pay for one such removal. Go's map takes
// twice the time and three times the memory. The zero value is empty.
type keys struct {
	ring       []key  // a power of two, or none
	next       uint32 // number of the next key; a key is in the ring at its number modulo the ring's size
	n          int    // keys in the ring
	young, old keyIndex
}

// keyIndex is an open-addressing hash table of the numbers of keys. It retains the numbers
// of keys that are no longer in the ring.
type keyIndex struct {
	cells []uint64 // a power of two, or none: 31 bits of the hash and a 1, then the number; 0: empty
	n     int
}

// mixed adds a secret to a hash: without it, a client could choose many keys that share
// a cell.
func mixed(hash [16]byte) uint64 { return maphash.Bytes(tableSeed, hash[:]) }

const usedCell = 1 << 32

func (x *keyIndex) start(h uint64) int { return int(h>>40) & (len(x.cells) - 1) }

func (x *keyIndex) after(i int) int { return (i + 1) & (len(x.cells) - 1) }

func (x *keyIndex) add(h uint64, number uint32) {
	i := x.start(h)
	for x.cells[i] != 0 {
		i = x.after(i)
	}
	x.cells[i] = h<<33 | usedCell | uint64(number)
	x.n++
}

// find returns the key of a hash, or nil.
func (k *keys) find(hash [16]byte) *key {
	if k.n == 0 {
		return nil
	}
	h := mixed(hash)
	for _, x := range []*keyIndex{&k.young, &k.old} {
		if x.n == 0 {
			continue
		}
		for i := x.start(h); x.cells[i] != 0; i = x.after(i) {
			if p := x.cells[i]; p>>32 == (h<<33|usedCell)>>32 {
				if e := k.at(uint32(p)); e != nil && e.hash == hash {
					return e
				}
			}
		}
	}
	return nil
}

// at returns the key with a number, or nil if it is no longer in the ring.
func (k *keys) at(number uint32) *key {
	if age := k.next - number; age == 0 || age > uint32(k.n) { // modulo 2³², like the numbers
		return nil
	}
	return &k.ring[int(number)&(len(k.ring)-1)]
}

// add adds a key, unless its hash is present, and removes the keys whose window has ended.
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
		if k.young.n = 0; k.young.cells == nil {
			k.young.cells = make([]uint64, len(k.old.cells))
		}
		clear(k.young.cells)
	}
	if 2*k.young.n >= len(k.young.cells) {
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

// widen doubles the young index and omits the keys that are no longer in the ring.
func (k *keys) widen() {
	wider := keyIndex{cells: make([]uint64, max(16, 2*len(k.young.cells)))}
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
