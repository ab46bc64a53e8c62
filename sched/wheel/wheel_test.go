package wheel

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The wheel against a sorted list: same entries, same times, never early.
func TestWheelMatchesSortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(0, 1<<41).Draw(t, "start")
		w := New[int](now)
		model := map[int]int64{} // id -> due
		id := 0
		span := rapid.SampledFrom([]int64{10, 300, 70_000, 1 << 25, 1 << 34})
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for range steps {
			if rapid.Bool().Draw(t, "add") {
				due := now + rapid.Int64Range(-5, span.Draw(t, "span")).Draw(t, "due")
				w.Add(due, id)
				model[id] = due
				id++
				continue
			}
			if at, ok := w.Next(); ok != (len(model) > 0) {
				t.Fatalf("Next says %v with %d entries", ok, len(model))
			} else if ok {
				for i, due := range model {
					if due >= now && due < at {
						t.Fatalf("Next says %d, entry %d is due at %d", at, i, due)
					}
				}
			}
			now += rapid.Int64Range(0, span.Draw(t, "span")).Draw(t, "step")
			last := int64(-1)
			w.Advance(now, func(due int64, v int) {
				want, ok := model[v]
				if !ok {
					t.Fatalf("entry %d fired twice", v)
				}
				if due > now || due < want || due < last {
					t.Fatalf("entry %d of %d fired as %d at %d after %d", v, want, due, now, last)
				}
				last = due
				delete(model, v)
			})
			for i, due := range model {
				if due <= now {
					t.Fatalf("entry %d of %d did not fire at %d", i, due, now)
				}
			}
			if w.Len() != len(model) {
				t.Fatalf("Len %d, want %d", w.Len(), len(model))
			}
			now++ // Advance(now) has consumed now itself
		}
	})
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

func BenchmarkAdd(b *testing.B) {
	w := New[*int](0)
	r := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		w.Add(r.Int64N(3_600_000), nil)
	}
}

func BenchmarkFire(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	w := New[*int](0)
	for range b.N {
		w.Add(r.Int64N(3_600_000), nil)
	}
	b.ResetTimer()
	w.Advance(3_600_000, func(int64, *int) {})
}
