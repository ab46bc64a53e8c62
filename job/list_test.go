package job_test

import (
	"slices"
	"testing"

	"github.com/wheelworkhq/wheelwork/job"
)

// TestPositions sorts positions of jobs as texts, which is how lists and their tokens compare them.
func TestPositions(t *testing.T) {
	type entry struct {
		name      string
		last, nxt int64
	}
	jobs := []entry{{"a", 0, 0}, {"b", 5, 1 << 41}, {"c", 1 << 41, 7}, {"d", 5, 7}}
	for order, want := range map[string][]string{"": {"a", "b", "c", "d"}, "name": {"a", "b", "c", "d"}, "last_run": {"c", "b", "d", "a"}, "next_time": {"c", "d", "b", "a"}} {
		o, err := job.OrderOf(order)
		if err != nil {
			t.Fatal(err)
		}
		var positions, names []string
		for _, j := range jobs {
			positions = append(positions, o.Position(j.name, j.last, j.nxt))
		}
		slices.Sort(positions)
		for _, p := range positions {
			names = append(names, o.NameAt(p))
		}
		if !slices.Equal(names, want) {
			t.Errorf("order %q: %v, want %v", order, names, want)
		}
	}
	if _, err := job.OrderOf("size"); err == nil {
		t.Error("the order size was taken")
	}
	if name := job.ByLastRun.NameAt("short"); name != "" {
		t.Errorf("what is none names %q", name)
	}
}
