package job

import "hash/maphash"

// places are a hash table of numbers, those of entries that somebody has in a
// list. Whoever looks one up goes through the places of its hash and compares the
// entries. It has no pointers. The zero value is empty.
type places []place // a power of two, or none; a number is at its hash's place or behind, without a gap

// place is 32 bits of a hash, then a number and 1; 0: empty.
type place uint64

func placeOf(hash, number uint32) place { return place(hash)<<32 | place(number+1) }

func (p place) hash() uint32 { return uint32(p >> 32) }

func (p place) number() uint32 { return uint32(p) - 1 }

// tableSeed makes places that nobody outside can foresee.
var tableSeed = maphash.MakeSeed()

func (t places) home(hash uint32) int { return int(hash) & (len(t) - 1) }

func (t places) after(i int) int { return (i + 1) & (len(t) - 1) }

// first returns where a number of that hash stands; -1: there is none.
func (t places) first(hash uint32) int {
	if len(t) == 0 {
		return -1
	}
	return t.seek(t.home(hash), hash)
}

// next returns where the one behind i stands.
func (t places) next(i int, hash uint32) int { return t.seek(t.after(i), hash) }

func (t places) seek(i int, hash uint32) int {
	for ; t[i] != 0; i = t.after(i) {
		if t[i].hash() == hash {
			return i
		}
	}
	return -1
}

// put adds a number; there are n others.
func (t *places) put(hash, number uint32, n int) {
	if 5*(n+1) > 4*len(*t) {
		old := *t
		*t = make(places, max(8, 2*len(old)))
		for _, p := range old {
			if p != 0 {
				t.settle(p)
			}
		}
	}
	t.settle(placeOf(hash, number))
}

func (t places) settle(p place) {
	i := t.home(p.hash())
	for t[i] != 0 {
		i = t.after(i)
	}
	t[i] = p
}

// remove empties a place.
func (t places) remove(hole int) {
	// Close the gap: who stands behind it moves up, unless that is before its home.
	for i := t.after(hole); t[i] != 0; i = t.after(i) {
		if home := t.home(t[i].hash()); (i-home)&(len(t)-1) >= (i-hole)&(len(t)-1) {
			t[hole], hole = t[i], i
		}
	}
	t[hole] = 0
}
