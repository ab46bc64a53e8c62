package projection

import (
	"slices"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// TestOverdueStats checks that a busy server defers statistics only as long as the
// recount after a crash stays bounded.
func TestOverdueStats(t *testing.T) {
	s := job.NewSlot("a", 0)
	var jobs []*job.Job
	for _, name := range []string{"one", "two", "three"} {
		s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{Name: name}}}}, nil)
		jobs = append(jobs, s.Jobs.Get(name))
	}
	var c View
	c.deferred.groups = make([]statsGroup, 1)
	c.deferred.begin(500)
	c.JobCounted(jobs[0])
	c.JobCounted(jobs[1])
	c.deferred.begin(700)
	c.JobCounted(jobs[2])
	c.JobCounted(jobs[0]) // already waits
	c.deferred.begin(900)

	for _, at := range []struct {
		length int64
		since  time.Duration
		want   int
	}{
		{900, time.Hour, 0},
		{500 + maxUncounted, time.Hour, 0},
		{501 + maxUncounted, time.Second, overdueRate},
		{501 + maxUncounted, time.Second / 5, overdueRate / 5},
	} {
		if n := c.deferred.overdue(at.length, at.since); n != at.want {
			t.Errorf("of %d bytes, %v after the last ones: %d stats are overdue, want %d", at.length, at.since, n, at.want)
		}
	}

	var written []string
	write := func(left int) int64 {
		return c.deferred.write(left, func(j *job.Job) { written = append(written, j.Name()) })
	}
	for _, step := range []struct {
		left int
		from int64
	}{{0, 500}, {1, 500}, {1, 700}, {5, 900}} {
		if from := write(step.left); from != step.from {
			t.Errorf("after %v are written all runs before %d are counted, want %d", written, from, step.from)
		}
	}
	if want := []string{"one", "two", "three"}; !slices.Equal(written, want) {
		t.Errorf("written %v, want %v", written, want)
	}
	if n := c.deferred.overdue(900+maxUncounted, time.Hour); n != 0 {
		t.Errorf("%d stats are overdue of none", n)
	}
}
