package session

import (
	"math/rand/v2"
	"testing"
)

// TestHeld applies the same random operations to the table and to a map.
func TestHeld(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h held
	want := map[key]*task{}
	some := func() key { // few runs, with several attempts in several apps, so that hashes collide
		k := key{app: []string{"a", "b"}[r.IntN(2)], attempt: int32(r.IntN(3))}
		k.run[15] = byte(r.IntN(100))
		return k
	}
	for i := range 50_000 {
		k := some()
		if got := h.get(k); got != want[k] {
			t.Fatalf("step %d: %v has the task %v, want %v", i, k, got, want[k])
		}
		switch {
		case r.IntN(5) < 2+i/10_000%2: // it grows and shrinks
			if held := want[k]; held != nil {
				h.remove(held)
				h.remove(held) // no effect
			}
			delete(want, k)
		default:
			task := new(task).named(k)
			if put := h.put(task); put != (want[k] == nil) {
				t.Fatalf("step %d: %v is put: %v", i, k, put)
			} else if put {
				want[k] = task
			}
		}
	}
	if h.len() != len(want) {
		t.Errorf("%d tasks, want %d", h.len(), len(want))
	}
	for got := range h.all() {
		if want[got.key] != got {
			t.Errorf("%v is not held", got.key)
		}
		delete(want, got.key)
	}
	if len(want) > 0 {
		t.Errorf("all leaves out %v", want)
	}
	for got := range h.all() { // the caller may stop early
		h.remove(got)
		break
	}
}

func TestHeldNothing(t *testing.T) {
	var h held
	h.remove(new(task).named(key{app: "a"}))
	if h.get(key{app: "a"}) != nil || h.len() != 0 {
		t.Error("something is held")
	}
	for range h.all() {
		t.Error("something is held")
	}
}
