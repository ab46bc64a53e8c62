package fair

import (
	"math"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// A pace is the mean duration of a job's handler on a logarithmic scale, in one byte because
// a partition may have a million jobs. 0 means not measured. p means 2^((p-1)/8) microseconds,
// so adjacent values differ by 9 %. 255 means an hour or more.

// slowAfter is the mean duration from which a job is slow.
const slowAfter = time.Second

var (
	// Times has the duration of each pace.
	Times = func() (times [256]time.Duration) {
		for p := 1; p < len(times); p++ {
			times[p] = time.Duration(math.Exp2(float64(p-1)/8) * float64(time.Microsecond))
		}
		return times
	}()
	slowPace = PaceOf(slowAfter)
)

// PaceOf returns the pace of a duration. It is never 0.
func PaceOf(d time.Duration) uint8 {
	us := max(float64(d)/float64(time.Microsecond), 1)
	return uint8(min(1+math.Round(8*math.Log2(us)), 255))
}

// IsQuick reports whether a host may hold runs of a pace beyond its free slots. A job
// without a measured duration is slow.
func IsQuick(pace uint8) bool { return pace != 0 && pace < slowPace }

// Paces has the durations of handlers. The zero value is empty.
type Paces struct {
	// alike has the paces of handlers with the same input. A job without a measurement of
	// its own takes the pace of a job that is alike. This serves apps with many jobs that
	// differ only in their name and have one run each.
	alike map[likeness]uint8
	// last is what Of has looked up last, with its pace: jobs that are alike mostly follow each
	// other. It is zero if there is none.
	last struct {
		likeness
		pace uint8
	}
}

// likeness identifies a handler and its input.
type likeness struct {
	shape *job.Shape
	input uint32 // [job.InputSum]
}

// maxAlike bounds the entries of paces.alike. The map is cleared when it is full.
const maxAlike = 4096

func likenessOf(r *job.Run) likeness { return likeness{r.Shape(), job.InputSum(true, r.Given())} }

// Of returns the pace of a run's handler; 0: unknown.
func (p *Paces) Of(r *job.Run) uint8 {
	if pace := r.Owner().Pace; pace != 0 || len(p.alike) == 0 {
		return pace
	}
	if k := likenessOf(r); k != p.last.likeness {
		p.last.likeness, p.last.pace = k, p.alike[k]
	}
	return p.last.pace
}

// Learn updates the pace of a run's job with the duration of an attempt. The duration of
// a stopped attempt counts only if it is above the mean: the attempt would have taken longer.
func (p *Paces) Learn(r *job.Run, took time.Duration, outcome apiv1.Outcome) {
	j := r.Owner()
	switch mean := Times[j.Pace]; {
	case outcome == apiv1.Outcome_OUTCOME_LOST || outcome == apiv1.Outcome_OUTCOME_HOST_ERROR:
	case outcome == apiv1.Outcome_OUTCOME_STOPPED && took <= mean:
	case j.Pace != 0:
		j.Pace = PaceOf(mean + (took-mean)/4)
	default:
		j.Pace = PaceOf(took)
		if p.alike == nil || len(p.alike) >= maxAlike {
			p.alike = map[likeness]uint8{}
		}
		k := likenessOf(r)
		p.alike[k] = j.Pace
		p.last.likeness, p.last.pace = k, j.Pace
	}
}
