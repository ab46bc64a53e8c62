package job

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestTableIsLikeAMap(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		want := map[string]*Job{}
		var got Jobs
		names := 1 + r.IntN(300)
		for range 3000 {
			name := fmt.Sprint("job ", r.IntN(names))
			switch {
			case want[name] == nil && r.IntN(3) > 0:
				j := &Job{kind: &kind{}, text: name, nameLen: uint8(len(name))}
				want[name] = j
				got.add(j)
			case r.IntN(2) == 0:
				delete(want, name)
				got.remove(name)
			}
			if j := want[name]; j != nil && got.At(j.Number()) != j {
				t.Fatalf("seed %d: number %d of %s is %p, want %p", seed, j.Number(), name, got.At(j.Number()), j)
			}
			if got.Get(name) != want[name] || got.Len() != len(want) {
				t.Fatalf("seed %d: %s is %p of %d, want %p of %d", seed, name, got.Get(name), got.Len(), want[name], len(want))
			}
		}
		seen := map[*Job]bool{}
		for j := range got.All() {
			if seen[j] || want[j.Name()] != j {
				t.Fatalf("seed %d: %s comes twice, or was removed", seed, j.Name())
			}
			seen[j] = true
		}
		for name, j := range want {
			if got.At(j.Number()) != j {
				t.Fatalf("seed %d: the number of %s is another's", seed, name)
			}
			if got.Get(name) != j || !seen[j] {
				t.Fatalf("seed %d: %s is lost", seed, name)
			}
		}
	}
}

func TestRunsAreLikeAMap(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		want := map[RunID]*Run{}
		var got Runs
		ids := 1 + r.IntN(300)
		if seed%5 == 4 {
			ids = 6000 // enough that an empty table drops its memory
		}
		for step := range 12_000 {
			id := RunID{7: byte(r.IntN(ids)), 8: byte(r.IntN(ids) >> 8)}
			empties := step%6000 > 5000
			switch {
			case empties && len(want) > 0: // one run after another
				for id = range want {
					break
				}
				delete(want, id)
				got.remove(id)
			case want[id] == nil && r.IntN(3) > 0:
				x := &Run{ID: id}
				want[id] = x
				got.add(x)
			case r.IntN(2) == 0:
				delete(want, id)
				got.remove(id)
			}
			if got.Get(id) != want[id] || got.Len() != len(want) {
				t.Fatalf("seed %d: %x is %p of %d, want %p of %d", seed, id, got.Get(id), got.Len(), want[id], len(want))
			}
		}
		seen := map[*Run]bool{}
		for x := range got.All() {
			if seen[x] || want[x.ID] != x {
				t.Fatalf("seed %d: %x comes twice, or was removed", seed, x.ID)
			}
			seen[x] = true
		}
		for id, x := range want {
			if got.Get(id) != x || !seen[x] {
				t.Fatalf("seed %d: %x is lost", seed, id)
			}
		}
	}
}

// TestRunsChangeWhileTheyAreRangedOver checks that a loop over the runs may end runs.
func TestRunsChangeWhileTheyAreRangedOver(t *testing.T) {
	var runs Runs
	const n = 10_000
	for i := range n {
		runs.add(&Run{ID: RunID{8: byte(i), 9: byte(i >> 8)}})
	}
	if runs.table.Cells() <= retainedCells {
		t.Fatal("so few runs test nothing")
	}
	seen := 0
	for r := range runs.All() {
		runs.remove(r.ID)
		if seen++; seen%3 == 0 {
			runs.add(&Run{ID: RunID{0: 1, 8: byte(seen), 9: byte(seen >> 8)}})
			runs.remove(RunID{0: 1, 8: byte(seen), 9: byte(seen >> 8)})
		}
	}
	if seen != n || runs.Len() != 0 || runs.table.Cells() > 0 {
		t.Errorf("%d of %d runs, %d are left in %d cells", seen, n, runs.Len(), runs.table.Cells())
	}
}
