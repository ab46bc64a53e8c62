// Package wheel is a hierarchical timing wheel: many deadlines, few of them
// near. Adding costs a slice append, cancelling costs nothing: the owner leaves
// the entry and ignores it when it fires.
//
//	level 3   256 slots of 2^24 ms   (49 days in all)
//	level 2   256 slots of 2^16 ms
//	level 1   256 slots of 256 ms
//	level 0   256 slots of 1 ms      fired from here
//
// An entry lies at the level of the highest byte in which its deadline differs
// from the current time, so each entry moves down at most three times. What is
// farther than level 3 reaches waits in a list that is looked at every 49 days.
//
// The wheel reads no clock and starts no goroutine. It is not safe for
// concurrent use.
package wheel

import "math/bits"

const (
	levels = 4
	slots  = 256
)

type entry[T any] struct {
	due int64
	v   T
}

// Wheel holds values of type T by their deadline in Unix milliseconds.
type Wheel[T any] struct {
	cur   int64 // Invariant: every entry with due < cur has been fired
	slot  [levels][slots][]entry[T]
	taken [levels][slots / 64]uint64 // a bit for each slot that holds something
	far   []entry[T]
	n     int
}

// New returns an empty wheel that stands at now.
func New[T any](now int64) *Wheel[T] { return &Wheel[T]{cur: now} }

// Len returns the number of entries, cancelled ones included.
func (w *Wheel[T]) Len() int { return w.n }

// Add puts v in. A deadline that has passed fires at the next Advance.
func (w *Wheel[T]) Add(due int64, v T) {
	w.n++
	w.place(entry[T]{max(due, w.cur), v})
}

func (w *Wheel[T]) place(e entry[T]) {
	diff := uint64(e.due ^ w.cur)
	level := 0
	if diff != 0 {
		level = (bits.Len64(diff) - 1) / 8
	}
	if level >= levels {
		w.far = append(w.far, e)
		return
	}
	i := index(e.due, level)
	w.slot[level][i] = append(w.slot[level][i], e)
	w.taken[level][i/64] |= 1 << (i % 64)
}

func index(t int64, level int) int { return int(t>>(8*level)) & (slots - 1) }

// Advance moves the time to now and calls fire for each entry with due <= now,
// in the order of their deadlines. fire may call Add.
func (w *Wheel[T]) Advance(now int64, fire func(due int64, v T)) {
	for w.cur <= now {
		t, level := w.nextSlot()
		if t > now {
			w.moveTo(now + 1)
			return
		}
		w.moveTo(t)
		if level > 0 {
			continue // the slot was moved down by moveTo
		}
		i := index(t, 0)
		due := w.slot[0][i]
		w.slot[0][i] = nil
		w.taken[0][i/64] &^= 1 << (i % 64)
		w.n -= len(due)
		w.moveTo(t + 1)
		for _, e := range due {
			fire(e.due, e.v)
		}
	}
}

// Next returns a time at which Advance should be called: no entry is due
// before. ok is false when the wheel is empty.
func (w *Wheel[T]) Next() (at int64, ok bool) {
	if w.n == 0 {
		return 0, false
	}
	at, _ = w.nextSlot()
	return at, true
}

// nextSlot returns the start of the first slot that holds something and its
// level; for the far list, the start of the next round of level 3.
func (w *Wheel[T]) nextSlot() (start int64, level int) {
	for level := range levels {
		from := index(w.cur, level)
		if level > 0 {
			from++ // the slot that cur lies in was moved down
		}
		if i, ok := w.firstTaken(level, from); ok {
			width := 8 * level
			return w.cur>>(width+8)<<(width+8) | int64(i)<<width, level
		}
	}
	return (w.cur>>(8*levels) + 1) << (8 * levels), levels
}

func (w *Wheel[T]) firstTaken(level, from int) (int, bool) {
	for i := from; i < slots; i = (i/64 + 1) * 64 {
		if word := w.taken[level][i/64] >> (i % 64); word != 0 {
			return i + bits.TrailingZeros64(word), true
		}
	}
	return 0, false
}

// moveTo sets the time and moves down what lies in the slots that it enters.
func (w *Wheel[T]) moveTo(t int64) {
	old := w.cur
	w.cur = t
	if old>>(8*levels) != t>>(8*levels) {
		far := w.far
		w.far = nil
		for _, e := range far {
			w.place(e)
		}
	}
	for level := levels - 1; level > 0; level-- {
		if old>>(8*level) == t>>(8*level) {
			continue
		}
		i := index(t, level)
		down := w.slot[level][i]
		if len(down) == 0 {
			continue
		}
		w.slot[level][i] = nil
		w.taken[level][i/64] &^= 1 << (i % 64)
		for _, e := range down {
			w.place(e)
		}
	}
}
