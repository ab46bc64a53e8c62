package wheel

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// timer is a value of an owner that cancels entries: an id that is reused, and the number
// of its use.
type timer struct{ id, gen uint32 }

// model is a wheel together with its expected content: a list sorted by deadline.
type model struct {
	t      testing.TB
	w      *Wheel[timer]
	now    int64 // the next time that may fire
	gens   []uint32
	free   []uint32
	live   []pending // sorted by due, equal ones in the order of adding
	stale  int       // entries of cancelled timers that may be in the wheel
	serial uint64
}

type pending struct {
	due    int64
	serial uint64
	timer
}

func newModel(t testing.TB, now int64) *model {
	return &model{t: t, w: New[timer](now), now: min(max(now, 0), end)}
}

func (m *model) holds(_ int64, v timer) bool { return m.gens[v.id] == v.gen }

// one returns a judge that calls holds for each entry.
func one[T any](holds func(due int64, v T) bool) func([]Entry[T], []bool) {
	return func(entries []Entry[T], hold []bool) {
		for i, e := range entries {
			hold[i] = holds(e.Due, e.V)
		}
	}
}

func (m *model) add(due int64) {
	if len(m.free) == 0 {
		m.free = append(m.free, uint32(len(m.gens)))
		m.gens = append(m.gens, 0)
	}
	id := m.free[len(m.free)-1]
	m.free = m.free[:len(m.free)-1]
	m.serial++
	p := pending{max(due, m.now), m.serial, timer{id, m.gens[id]}}
	i, _ := slices.BinarySearchFunc(m.live, p, func(a, b pending) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.serial, b.serial)) })
	m.live = slices.Insert(m.live, i, p)
	m.w.Add(due, p.timer)
}

func (m *model) end(id uint32) {
	m.gens[id]++
	m.free = append(m.free, id)
}

func (m *model) cancel(i int) {
	if len(m.live) > 0 {
		i %= len(m.live)
		m.end(m.live[i].id)
		m.live = slices.Delete(m.live, i, i+1)
		m.stale++
	}
}

func (m *model) sweep() {
	m.w.Sweep(one(m.holds))
	m.stale = 0
}

// advance advances the wheel to now and checks each entry that fires. While entries fire,
// it adds again further timers, at distances that depend on the deadlines.
func (m *model) advance(now int64, again int) {
	m.t.Helper()
	m.w.Advance(now, func(due int64, v timer) {
		if due > now {
			m.t.Fatalf("early: %d fired at %d", due, now)
		}
		if !m.holds(due, v) {
			m.stale--
			return
		}
		want := m.live[0]
		if due != want.due || v != want.timer {
			m.t.Fatalf("at %d: fired %v of %d, want %v", now, v, due, want)
		}
		m.live = m.live[1:]
		m.end(v.id)
		m.now = max(m.now, due+1)
		if again > 0 {
			again--
			m.add(due + int64(again%3)*97 - 50)
		}
	})
	m.now = max(m.now, now+1)
	if len(m.live) > 0 && m.live[0].due <= now {
		m.t.Fatalf("at %d: %v has not fired", now, m.live[0])
	}
	m.check()
}

func (m *model) check() {
	m.t.Helper()
	if n := m.w.Len(); n < len(m.live) || n > len(m.live)+m.stale {
		m.t.Fatalf("Len %d with %d live and %d stale", n, len(m.live), m.stale)
	}
	at, ok := m.w.Next()
	if ok != (m.w.Len() > 0) {
		m.t.Fatalf("Next says %v with %d entries", ok, m.w.Len())
	}
	if len(m.live) > 0 && at > m.live[0].due {
		m.t.Fatalf("Next says %d, and %v is due before", at, m.live[0])
	}
	if ok && at < m.now {
		m.t.Fatalf("Next says %d, which was fired at %d", at, m.now)
	}
}

// span returns a distance. The distances reach every level and the edges between levels.
func span(b byte, x uint16) int64 {
	d := int64(1) << (b % 62)
	switch b >> 6 {
	case 0:
		return d
	case 1:
		return d - 1
	case 2:
		return d + int64(x)
	default:
		return int64(x)
	}
}

// play executes operations of 4 bytes each.
func (m *model) play(ops []byte) {
	for ; len(ops) >= 4; ops = ops[4:] {
		x := binary.LittleEndian.Uint16(ops[2:])
		d := span(ops[1], x)
		switch ops[0] % 8 {
		case 0, 1, 2:
			m.add(saturate(m.now, d))
		case 3:
			m.add(m.now - d)
		case 4:
			m.cancel(int(x))
		case 5:
			if ops[1]%16 == 0 {
				m.sweep()
			} else {
				m.cancel(int(x))
			}
		case 6: // like an owner that sleeps until Next
			if at, ok := m.w.Next(); ok && at < end {
				m.advance(at, 0)
			}
		case 7:
			if now := saturate(m.now, d); now < end {
				m.advance(now, int(x%8))
			}
		}
		m.check()
	}
	m.drain()
}

// drain advances from deadline to deadline until the wheel is empty.
func (m *model) drain() {
	m.t.Helper()
	for at, ok := m.w.Next(); ok && at < end; at, ok = m.w.Next() {
		m.advance(at, 0)
	}
	m.sweep()
	if m.w.Len() != len(m.live) || len(m.live) > 0 && m.live[0].due < end {
		m.t.Fatalf("%d entries and %d timers are left", m.w.Len(), len(m.live))
	}
}

func saturate(now, d int64) int64 {
	if now > math.MaxInt64-d {
		return math.MaxInt64
	}
	return now + d
}

// TestAgainstSortedList compares the wheel with a sorted list. WHEELWORK_LONG=1 makes a
// hundred times as many rounds.
func TestAgainstSortedList(t *testing.T) {
	rounds := 300
	if testkit.Long() {
		rounds *= 100
	}
	seed := testkit.Seed(t)
	for round := range rounds {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		ops := make([]byte, 4*r.IntN(2000))
		near := byte(r.IntN(62)) + 1 // gives some rounds many entries in few slots
		for i := range ops {
			ops[i] = byte(r.Uint32())
			if i%4 == 1 && r.IntN(4) > 0 {
				ops[i] = 128 + ops[i]%near
			}
		}
		now := r.Int64N(1 << r.IntN(63))
		if round%8 == 0 { // around a carry into a high byte
			now = now&^(1<<40-1) - r.Int64N(4)
		}
		newModel(t, now).play(ops)
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
	}
}

func FuzzAgainstSortedList(f *testing.F) {
	f.Add(int64(0), []byte{0, 8, 0, 0, 7, 16, 0, 0})
	f.Add(int64(255), []byte{0, 72, 0, 0, 0, 8, 0, 0, 6, 0, 0, 0, 5, 0, 0, 0})
	f.Add(int64(1<<32-1), []byte{0, 61, 0, 0, 4, 0, 0, 0, 0, 32, 0, 0, 5, 16, 0, 0, 7, 40, 1, 1})
	f.Add(int64(math.MaxInt64), []byte{0, 1, 0, 0, 7, 61, 0, 0})
	f.Add(int64(math.MinInt64), []byte{3, 1, 0, 0, 7, 61, 3, 0})
	f.Fuzz(func(t *testing.T, now int64, ops []byte) {
		newModel(t, now).play(ops[:min(len(ops), 4000)])
	})
}

// TestCarries fires entries before, at and after each carry between two levels, and jumps
// over the carry.
func TestCarries(t *testing.T) {
	for level := 1; level < levels; level++ {
		edge := int64(1) << (8 * level)
		for _, before := range []int64{1, 2, 255, 256} {
			for _, jump := range []int64{0, 1, 2, 256, 1000} {
				t.Run(fmt.Sprintf("%d-%d+%d", edge, before, jump), func(t *testing.T) {
					m := newModel(t, edge-before)
					for _, d := range []int64{-1, 0, 1, 2, 255, 256, 257} {
						m.add(edge + d)
						m.add(edge + d)
						m.add(saturate(edge, edge*255+d)) // and of the next higher levels
					}
					m.advance(edge-1, 0)
					m.advance(edge-1+jump, 0)
					m.drain()
				})
			}
		}
	}
}

// TestHorizon fires entries that are years and centuries away, and at the largest
// deadline.
func TestHorizon(t *testing.T) {
	const year = 365 * 24 * 3_600_000
	m := newModel(t, 56*year)
	for _, due := range []int64{57 * year, 456 * year, 1 << 56, 1<<62 + 5, end} {
		m.add(due - 1)
		m.advance(due-2, 0)
		m.advance(due-1, 0)
		if m.w.Len() != 0 {
			t.Fatalf("%d did not fire", due)
		}
	}
	m.w.Advance(math.MaxInt64, func(int64, timer) { t.Fatal("nothing was there") })
	m.w.Add(math.MaxInt64, timer{}) // beyond the largest deadline
	m.w.Advance(math.MaxInt64, func(int64, timer) { t.Fatal("fired after the end of time") })
	if at, ok := m.w.Next(); !ok || at < end {
		t.Fatalf("Next says %d, %v", at, ok)
	}
}

// TestNextIsExact: Next returns the deadline of the only entry.
func TestNextIsExact(t *testing.T) {
	for _, d := range []int64{0, 1, 255, 256, 70_000, 3_600_000, 1 << 40} {
		w := New[int](1_000_000)
		w.Add(1_000_000+d, 1)
		if at, ok := w.Next(); !ok || at != 1_000_000+d {
			t.Errorf("the only timer is due in %d, Next says %d", d, at-1_000_000)
		}
	}
}

// TestNextAmongMany: Next is not after the first deadline, wherever in its slot the entry
// lies.
func TestNextAmongMany(t *testing.T) {
	for n := range 5 * chunkLen {
		w := New[int](0)
		for i := range n + 1 {
			w.Add(int64(65_535-i), i)
		}
		if at, ok := w.Next(); !ok || at > int64(65_535-n) {
			t.Fatalf("the first of %d is due at %d, Next says %d", n+1, 65_535-n, at)
		}
	}
}

// TestSweepOfOneSlot: a sweep preserves the order of the remaining entries, wherever the
// chunks of a slot end, and afterwards the slot takes further entries.
func TestSweepOfOneSlot(t *testing.T) {
	for n := range 4*chunkLen + 2 {
		for from := 0; from <= n; from += max(1, n/9) {
			for _, to := range []int{from, from + 1, from + chunkLen, from + 2*chunkLen, n} {
				w := New[*int](0)
				var want []int
				for i := range n {
					w.Add(300, &i)
					if i >= from && i < to {
						want = append(want, i)
					}
				}
				w.Sweep(one(func(_ int64, v *int) bool { return *v >= from && *v < to }))
				kept := 0
				for _, page := range w.slab.pages {
					for _, c := range page {
						for _, e := range c.e {
							if e.V != nil {
								kept++
							}
						}
					}
				}
				if w.Len() != len(want) || kept != len(want) {
					t.Fatalf("%d of %d hold, %d are counted and %d kept", len(want), n, w.Len(), kept)
				}
				for i := range chunkLen + 1 {
					w.Add(300, &i)
					want = append(want, i)
				}
				var got []int
				w.Advance(300, func(_ int64, v *int) { got = append(got, *v) })
				if !slices.Equal(got, want) {
					t.Fatalf("[%d,%d) of %d: fired %v, want %v", from, to, n, got, want)
				}
			}
		}
	}
}

func TestAddWhileFiring(t *testing.T) {
	w := New[string](0)
	w.Add(5, "first")
	var got []string
	fire := func(due int64, v string) {
		got = append(got, v)
		if v == "first" {
			w.Add(5, "late")
			w.Add(300, "later")
		}
	}
	w.Advance(10, fire)
	if !slices.Equal(got, []string{"first", "late"}) {
		t.Fatalf("fired %v", got)
	}
	w.Advance(299, fire)
	if len(got) != 2 {
		t.Fatalf("fired early: %v", got)
	}
	w.Advance(300, fire)
	if len(got) != 3 {
		t.Fatalf("not fired at its time: %v", got)
	}
}

// TestMemory: the wheel reuses its memory, and frees it when it becomes empty.
func TestMemory(t *testing.T) {
	w := New[timer](0)
	fill := func(n int) {
		for i := range n {
			w.Add(int64(i%5000), timer{id: uint32(i)})
		}
	}
	fill(100_000)
	pages := len(w.slab.pages)
	if most := (100_000/chunkLen+5000)/pageLen + 2; pages > most {
		t.Fatalf("%d pages, want at most %d", pages, most)
	}
	for range 10 {
		keep := false
		w.Sweep(one(func(int64, timer) bool { keep = !keep; return keep }))
		fill(50_000)
	}
	if n := len(w.slab.pages); n > pages*11/10+1 {
		t.Fatalf("%d pages after sweeps, %d before", n, pages)
	}
	w.Sweep(one(func(int64, timer) bool { return false }))
	if w.Len() != 0 || len(w.slab.pages) != 1 {
		t.Fatalf("%d entries and %d pages are left", w.Len(), len(w.slab.pages))
	}
	fill(100_000)
	w.Advance(5000, func(int64, timer) {})
	if w.Len() != 0 || len(w.slab.pages) != 1 {
		t.Fatalf("%d entries and %d pages are left", w.Len(), len(w.slab.pages))
	}
	// The wheel has no reference to a value that has fired or was dropped.
	p := New[*int](0)
	p.Add(1, new(int))
	p.Add(2, new(int))
	p.Add(1000, new(int))
	p.Advance(1, func(int64, *int) {})
	p.Sweep(one(func(due int64, _ *int) bool { return due == 1000 }))
	kept := 0
	for _, c := range p.slab.pages[0] {
		for _, e := range c.e {
			if e.V != nil {
				kept++
			}
		}
	}
	if kept != 1 {
		t.Fatalf("%d values are kept, want 1", kept)
	}
}

func BenchmarkAdd(b *testing.B) {
	w := New[timer](0)
	r := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		w.Add(r.Int64N(3_600_000), timer{})
	}
}

func BenchmarkFire(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	w := New[timer](0)
	for range b.N {
		w.Add(r.Int64N(3_600_000), timer{})
	}
	b.ResetTimer()
	w.Advance(3_600_000, func(int64, timer) {})
}

// BenchmarkSweep sweeps a million timers that were added in random order, half of which
// are cancelled.
func BenchmarkSweep(b *testing.B) {
	const n = 1_000_000
	r := rand.New(rand.NewPCG(1, 2))
	for b.Loop() {
		b.StopTimer()
		w := New[uint64](0)
		for i := range n {
			w.Add(r.Int64N(3_600_000), uint64(i))
		}
		b.StartTimer()
		w.Sweep(func(entries []Entry[uint64], holds []bool) {
			for i := range entries {
				holds[i] = entries[i].V&1 == 0
			}
		})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/timer")
}
