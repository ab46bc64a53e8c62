package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestQueue: tasks of one app keep their order, apps take turns, and each pushed task is
// taken once, unless it was removed.
func TestQueue(t *testing.T) {
	var s slots
	waits := func(app string, n int) *task {
		return &task{key: key{app: app, attempt: int32(n)}, tenant: s.tenant(app)}
	}
	names := func(all []*task) (s []string) {
		for _, x := range all {
			s = append(s, fmt.Sprint(x.key.app, x.key.attempt))
		}
		return s
	}
	var q queue
	for i := range 5 {
		q.push(waits("a", i))
	}
	q.push(waits("b", 0))
	removed := waits("c", 0)
	q.push(removed)
	q.remove(removed)
	q.remove(removed)
	q.push(waits("d", 0))
	for i, want := range [][]string{{"a0", "a1"}, {"b0", "d0"}, {"a2", "a3"}, {"a4"}, nil} {
		if got := names(q.take(nil, 2, 0, &s)); !slices.Equal(got, want) {
			t.Fatalf("take %d gave %v, want %v", i, got, want)
		}
	}
	if lane := &q.levels[0].lanes[quickLane]; q.len() != 0 || len(lane.apps) != 0 || len(lane.of) != 0 {
		t.Fatalf("%d tasks are left, of %d apps", q.len(), len(lane.of))
	}

	r := rand.New(rand.NewPCG(1, 2))
	waiting, next, given := map[string][]int{}, map[string]int{}, 0
	for range 20_000 {
		app := string(rune('a' + r.IntN(4)))
		switch r.IntN(3) {
		case 0, 1:
			q.push(waits(app, next[app]))
			waiting[app] = append(waiting[app], next[app])
			next[app]++
		default:
			for _, x := range q.take(nil, 1+r.IntN(4), 0, &s) {
				if w := waiting[x.key.app]; len(w) == 0 || w[0] != int(x.key.attempt) {
					t.Fatalf("%s%d came, of %v", x.key.app, x.key.attempt, w)
				}
				waiting[x.key.app] = waiting[x.key.app][1:]
				given++
			}
		}
	}
	given += len(q.fresh())
	if all := next["a"] + next["b"] + next["c"] + next["d"]; given != all || q.len() != 0 {
		t.Fatalf("%d of %d tasks came out, %d are left", given, all, q.len())
	}
}
