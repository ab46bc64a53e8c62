// Package wheel is a hierarchical timing wheel: many deadlines, few of them
// near. An entry with a value of 8 bytes costs 16 bytes, about ten nanoseconds to add,
// and a few more for each level that it moves down.
//
//	level 7   256 slots of 2^56
//	…
//	level 2   256 slots of 65 536
//	level 1   256 slots of 256
//	level 0   256 slots of one unit      fired from here
//
// Time is a number in a unit of the owner's choice; the scheduler counts Unix
// milliseconds. An entry lies at the level of the highest byte in which its deadline
// differs from the current time, in the slot of that byte. So the levels cover every
// positive int64, and an entry moves down at most once for each level.
//
// A cancelled entry stays in the wheel. The owner knows which entries are still valid,
// ignores the others when they fire, and calls Sweep when there may be many of them. So
// an entry that is never cancelled needs no memory outside the wheel.
//
// The wheel reads no clock and starts no goroutine. It is not safe for
// concurrent use.
package wheel

import (
	"math"
	"math/bits"
)

const (
	levels = 8
	slots  = 256
	// end is the largest deadline: end+1 must not overflow.
	end = math.MaxInt64 - 1
)

// Entry is a value with its deadline.
type Entry[T any] struct {
	Due int64
	V   T
}

// Wheel holds values of type T by their deadline. Its memory is that of the most entries
// since it was last empty. If T has no pointers, the garbage collector does not scan it.
type Wheel[T any] struct {
	cur   int64 // Invariant: every entry with due < cur has been fired
	n     int
	slot  [levels][slots]list
	taken [levels][slots / 64]uint64 // a bit for each slot that is not empty
	slab  slab[T]
}

// New returns an empty wheel whose current time is now. A negative time counts as 0.
func New[T any](now int64) *Wheel[T] {
	w := &Wheel[T]{cur: min(max(now, 0), end)}
	w.slab.reset()
	return w
}

// Len returns the number of entries, cancelled ones included.
func (w *Wheel[T]) Len() int { return w.n }

// Add adds v with a deadline. If the deadline has passed, v fires at the next Advance.
func (w *Wheel[T]) Add(due int64, v T) {
	w.n++
	w.put(Entry[T]{max(min(due, end), w.cur), v})
}

func (w *Wheel[T]) put(e Entry[T]) {
	// The 1 gives an entry that is due at the current time the level 0.
	level := (bits.Len64(uint64(e.Due^w.cur)|1) - 1) / 8
	i := index(e.Due, level)
	l := &w.slot[level][i]
	if l.first == 0 {
		w.taken[level][i/64] |= 1 << (i % 64)
	}
	w.slab.push(l, e)
}

func index(t int64, level int) int { return int(t>>(8*level)) & (slots - 1) }

// take empties a slot and returns its list.
func (w *Wheel[T]) take(level, i int) list {
	l := w.slot[level][i]
	w.slot[level][i] = list{}
	w.taken[level][i/64] &^= 1 << (i % 64)
	return l
}

// Advance moves the current time to now and calls fire for each entry with due <= now, in
// the order of the deadlines. Entries with equal deadlines fire in the order in which
// they were added. due is the deadline of the entry, or the current time of its Add if
// that was later. fire may call Add, but no other method of the wheel.
func (w *Wheel[T]) Advance(now int64, fire func(due int64, v T)) {
	now = min(now, end)
	for w.cur <= now {
		t, level := w.firstSlot()
		if t > now {
			w.moveTo(now + 1)
			break
		}
		w.moveTo(t)
		if level > 0 {
			continue // moveTo has moved the entries of the slot down
		}
		due := w.take(0, index(t, 0))
		w.moveTo(t + 1)
		for c := due.first; c != 0; {
			k := w.slab.at(c)
			w.n -= int(k.n)
			for i := range k.n {
				fire(k.e[i].Due, k.e[i].V)
			}
			c = w.slab.release(c)
		}
	}
	w.shrink()
}

// Sweep drops cancelled entries. It calls judge with several entries at a time. judge
// must set holds for each of them, at the same index: true if the entry stays. It gets
// several entries because its look-ups seldom hit the cache, and the misses of several
// look-ups overlap. Sweep visits each entry once, so the owner should call it when about
// half of the entries may be cancelled.
func (w *Wheel[T]) Sweep(judge func(entries []Entry[T], holds []bool)) {
	keep := new([chunkLen]bool)
	for level := range levels {
		for i, ok := w.firstTaken(level, 0); ok; i, ok = w.firstTaken(level, i+1) {
			l := &w.slot[level][i]
			w.n -= w.slab.filter(l, keep, judge)
			if l.first == 0 {
				w.take(level, i)
			}
		}
	}
	w.shrink()
}

// shrink frees the memory of a wheel that has become empty.
func (w *Wheel[T]) shrink() {
	if w.n == 0 && len(w.slab.pages) > 1 {
		w.slab.reset()
	}
}

// Next returns the time at which the owner should call Advance; no entry is due before
// it. ok is false if the wheel is empty.
func (w *Wheel[T]) Next() (at int64, ok bool) {
	if w.n == 0 {
		return 0, false
	}
	at, level := w.firstSlot()
	if level == 0 {
		return at, true
	}
	// The entry with the first deadline lies in the first slot. If the slot has only one
	// chunk, Next searches it, so that the owner wakes exactly once for the entry.
	// Otherwise the owner wakes at the start of the slot, and Advance moves the entries
	// down.
	l := w.slot[level][index(at, level)]
	if l.first != l.last {
		return at, true
	}
	at = end
	k := w.slab.at(l.first)
	for i := range k.n {
		at = min(at, k.e[i].Due)
	}
	return at, true
}

// firstSlot returns the start and the level of the first slot that is not empty. In an
// empty wheel they are math.MaxInt64 and levels.
func (w *Wheel[T]) firstSlot() (start int64, level int) {
	for level := range levels {
		// Above level 0 the slot of cur is empty, because moveTo has moved its entries
		// down.
		if i, ok := w.firstTaken(level, index(w.cur, level)); ok {
			width := 8 * level
			return w.cur>>(width+8)<<(width+8) | int64(i)<<width, level
		}
	}
	return math.MaxInt64, levels
}

func (w *Wheel[T]) firstTaken(level, from int) (int, bool) {
	for i := from; i < slots; i = (i/64 + 1) * 64 {
		if word := w.taken[level][i/64] >> (i % 64); word != 0 {
			return i + bits.TrailingZeros64(word), true
		}
	}
	return 0, false
}

// moveTo sets the current time to t and moves down the entries of the slots in which t
// lies. All slots between the old time and t must be empty.
func (w *Wheel[T]) moveTo(t int64) {
	changed := bits.Len64(uint64(w.cur ^ t))
	w.cur = t
	for level := (changed - 1) / 8; level > 0; level-- {
		i := index(t, level)
		if w.slot[level][i].first == 0 {
			continue
		}
		down := w.take(level, i)
		for c := down.first; c != 0; {
			k := w.slab.at(c)
			for _, e := range k.e[:k.n] {
				w.put(e)
			}
			c = w.slab.release(c)
		}
	}
}
