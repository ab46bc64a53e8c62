package sched

import (
	"math"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// A pace is the mean time of a job's handler on a logarithmic scale: there is one
// byte for it in each of a million jobs. 0 is not measured, and p stands for
// 2^((p-1)/8) microseconds, so that neighbours differ by 9 %. 255 stands for an hour
// and whatever is longer.

// slowAfter is the mean time from which on a job is slow.
const slowAfter = time.Second

var (
	paceTimes = func() (times [256]time.Duration) {
		for p := 1; p < len(times); p++ {
			times[p] = time.Duration(math.Exp2(float64(p-1)/8) * float64(time.Microsecond))
		}
		return times
	}()
	slowPace = paceOf(slowAfter)
)

// paceOf returns the pace of a time, which is never 0.
func paceOf(d time.Duration) uint8 {
	us := max(float64(d)/float64(time.Microsecond), 1)
	return uint8(min(1+math.Round(8*math.Log2(us)), 255))
}

// isQuick reports whether runs of a pace are worth waiting for at a host. A job that
// was not measured counts as slow.
func isQuick(pace uint8) bool { return pace != 0 && pace < slowPace }

// paces knows how long handlers take. The zero value knows nothing.
type paces struct {
	// alike has the paces of jobs that run the same handler with the same input. A job
	// that was not measured takes as long as they do: very many jobs that differ in
	// nothing but their name, and have one run each, are one job here.
	alike map[likeness]uint8
}

// likeness is what a handler is given, and which one it is.
type likeness struct {
	shape *job.Shape
	input uint32 // [job.InputSum]
}

// maxAlike bounds what is remembered. It is forgotten as a whole.
const maxAlike = 4096

func likenessOf(r *job.Run) likeness { return likeness{r.Shape(), job.InputSum(true, r.Given())} }

// of returns the pace of a run's handler; 0: it is not known.
func (p *paces) of(r *job.Run) uint8 {
	if pace := r.Owner().Pace; pace != 0 || len(p.alike) == 0 {
		return pace
	}
	return p.alike[likenessOf(r)]
}

// learn takes how long an attempt of a run took. One that was stopped would have
// taken longer.
func (p *paces) learn(r *job.Run, took time.Duration, outcome apiv1.Outcome) {
	j := r.Owner()
	switch mean := paceTimes[j.Pace]; {
	case outcome == apiv1.Outcome_OUTCOME_LOST || outcome == apiv1.Outcome_OUTCOME_HOST_ERROR:
	case outcome == apiv1.Outcome_OUTCOME_STOPPED && took <= mean:
	case j.Pace != 0:
		j.Pace = paceOf(mean + (took-mean)/4)
	default:
		j.Pace = paceOf(took)
		if p.alike == nil || len(p.alike) >= maxAlike {
			p.alike = map[likeness]uint8{}
		}
		p.alike[likenessOf(r)] = j.Pace
	}
}
