package core

import (
	"github.com/wheelworkhq/wheelwork/job"
)

// setBack has the times of the state that are ahead of the clock because the clock was
// set back (ADR 36). Rates, delays, retries and timeouts go on at their pace. Times that
// name the clock, as those of cron do, wait until the clock shows them.
//
// The times in the state do not change. With the next record of a job or a run its times
// are by the clock again. After a restart, turnBack(0) finds the times that are still
// ahead.
type setBack struct {
	until int64              // the latest time that the clock has shown, in Unix ms
	runs  map[*job.Run]int64 // by how much the times of a run are ahead, in ms
	jobs  map[*job.Job]replanned
}

// replanned is the next planned time of a job, in Unix ms.
type replanned struct {
	of, to int64 // in the state, and by the clock that was set back
}

// lag returns by how much the times of a live run are ahead of the clock, in ms; 0: they
// are not.
func (b *setBack) lag(r *job.Run) int64 { return b.runs[r] }

// next returns the next planned time of a job by the present clock, in Unix ms; 0: the
// job has none.
func (b *setBack) next(j *job.Job) int64 {
	if p, ok := b.jobs[j]; ok && p.of == j.NextMs {
		return p.to
	}
	return j.NextMs
}

// account drops the entry of a run or a job whose times an effect has replaced.
func (b *setBack) account(e *job.Effect) {
	switch e.Change {
	case job.RunStarted, job.RunWaiting, job.RunEnded, job.RunRevoked:
		delete(b.runs, e.Run)
	case job.JobDeleted, job.JobMoved, job.JobChanged:
		if p, ok := b.jobs[e.Job]; ok && (p.of != e.Job.NextMs || e.Change == job.JobDeleted) {
			delete(b.jobs, e.Job)
		}
	}
}

func (b *setBack) putRun(r *job.Run, lag int64) {
	if b.runs == nil {
		b.runs = map[*job.Run]int64{}
	}
	b.runs[r] += lag
}
