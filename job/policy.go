package job

import (
	"encoding/binary"
	"hash/fnv"
	"math/bits"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/route"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// Limits of a definition.
const (
	defaultTimeout = time.Hour
	maxTimeout     = 30 * 24 * time.Hour
	MaxInput       = 64 << 10 // bytes
	maxRetries     = 100

	// maxLost bounds how often a run is dispatched again because its host was lost: a
	// task that kills its hosts must not bring down all of them.
	maxLost = 5
)

// Policy is the part of a definition that decides about due runs. Jobs and runs with
// equal policies share one. It is immutable.
type Policy struct {
	Timeout    time.Duration // of one attempt, or of the run of a workflow, where 0 means none
	Retries    int32         // after the first attempt
	Fixed      bool          // each wait is First; else the wait doubles up to Limit
	First      time.Duration
	Limit      time.Duration
	Jitter     float64       // the share of a wait, 0 to 1, by which it may be shortened
	DelayAfter time.Duration // from the end of a run to the next one; 0: no delay schedule

	Deadline  time.Duration // from the planned time to the first start; 0: none
	Priority  int32         // of waiting runs, those with a higher priority start first
	Overlap   Overlap
	Limited   int32 // the limit of the overlap policy; 0: none
	Rate      int32 // starts per RatePer; 0: no limit
	RatePer   time.Duration
	Broadcast bool         // one part for each host
	Shards    int32        // number of parts; 0: none
	Map       bool         // one part, which adds other parts
	Reduce    bool         // Map, and one more part that receives the outputs
	Workflow  bool         // the nodes run instead of the run itself
	Input     bool         // the definition has an input; if not, the loop skips its bytes, a likely cache miss
	Routing   string       // the encoded apiv1.Routing; "": none
	Route     *route.Route // compiled from Routing; nil: any host
}

// Overlap is the action for a run that becomes due while other runs of its job are live.
type Overlap uint8

// The overlap policies.
const (
	Parallel Overlap = iota // the run starts too, as far as the limit allows
	Queue                   // the run waits for the others
	Discard                 // the run is skipped
	Cover                   // the others are stopped first
)

// Fans reports whether a run is divided into parts.
func (p *Policy) Fans() bool { return p.Broadcast || p.Shards > 0 || p.Map }

// Bounded reports whether the overlap policy bounds the admitted runs of a job.
func (p *Policy) Bounded() bool { return p.Overlap != Parallel || p.Limited > 0 }

// Fanout returns the mode of the fan-out; "": none.
func (p *Policy) Fanout() string {
	switch {
	case p.Reduce:
		return "map_reduce"
	case p.Map:
		return "map"
	case p.Broadcast:
		return "broadcast"
	case p.Shards > 0:
		return "shards"
	}
	return ""
}

// policyOf reads the policy of a definition that [Validate] has accepted.
func policyOf(d *apiv1.Job) Policy {
	p := Policy{Timeout: schedule.Duration(d.GetTimeout()), First: time.Second, Limit: time.Minute}
	p.Workflow = d.GetWorkflow() != nil
	p.Input = d.GetInput() != "" || len(d.GetInputBytes()) > 0
	if p.Timeout == 0 && !p.Workflow {
		p.Timeout = defaultTimeout
	}
	if r := d.GetRetry(); r != nil {
		p.Retries = r.GetMax()
		p.Fixed = r.GetBackoff() == "fixed"
		if v := schedule.Duration(r.GetFirst()); v > 0 {
			p.First = v
		}
		if v := schedule.Duration(r.GetLimit()); v > 0 {
			p.Limit = v
		}
	}
	p.Jitter = d.GetRetry().GetJitter()
	if !d.GetPaused() {
		p.DelayAfter = schedule.Duration(d.GetSchedule().GetDelay())
	}
	p.Deadline, p.Priority = schedule.Duration(d.GetDeadline()), d.GetPriority()
	p.Overlap, p.Limited = overlaps[d.GetOverlap().GetPolicy()], d.GetOverlap().GetLimit()
	p.Rate, p.RatePer = RateOf(d.GetRate())
	p.Broadcast, p.Shards = d.GetFanout().GetMode() == "broadcast", d.GetFanout().GetShards()
	p.Reduce = d.GetFanout().GetMode() == "map_reduce"
	p.Map = p.Reduce || d.GetFanout().GetMode() == "map"
	if d.GetRouting() != nil {
		p.Routing = string(encodeRouting(d.Routing))
	}
	return p
}

var overlaps = map[string]Overlap{"": Parallel, "parallel": Parallel, "queue": Queue, "discard": Discard, "cover": Cover}

func encodeRouting(r *apiv1.Routing) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(r)
	if err != nil {
		panic("job: a validated routing does not encode: " + err.Error())
	}
	return b
}

// Backoff returns the wait before retry n (1 is the first).
func (p Policy) Backoff(n int32) time.Duration {
	wait := p.First
	if !p.Fixed && n > 1 {
		shift := uint(n - 1)
		if shift >= uint(bits.LeadingZeros64(uint64(wait))) {
			return p.Limit
		}
		wait <<= shift
	}
	return max(min(wait, p.Limit), 0)
}

// Verdict is the outcome of [Settle].
type Verdict struct {
	State   State         // terminal, Waiting or Queued
	RetryIn time.Duration // when Waiting
}

// hostsLost counts the attempts that ended because their host was lost. It does not count
// a task that a drained host gave back.
func (r *Run) hostsLost() int {
	n := 0
	for _, a := range r.Attempts {
		if a.Outcome == apiv1.Outcome_OUTCOME_LOST {
			n++
		}
	}
	return n
}

// Settle decides the next state of a run whose current attempt ended with the given
// outcome. retryAfter is the wait that the handler asked for; 0: none.
func Settle(r *Run, o apiv1.Outcome, retryAfter time.Duration) Verdict {
	switch o {
	case apiv1.Outcome_OUTCOME_SUCCEEDED:
		return Verdict{State: Succeeded}
	case apiv1.Outcome_OUTCOME_PERMANENT:
		return Verdict{State: Failed}
	case apiv1.Outcome_OUTCOME_STOPPED, apiv1.Outcome_OUTCOME_LOST:
		switch {
		case r.CancelRequested:
			return Verdict{State: Stopped}
		case o == apiv1.Outcome_OUTCOME_LOST && r.hostsLost() >= maxLost:
			return Verdict{State: Failed}
		}
		return Verdict{State: Queued} // not by request: the host was lost or drained
	}
	if r.CancelRequested {
		return Verdict{State: Stopped}
	}
	if tried := r.Attempt - r.Lost; tried <= r.Policy.Retries {
		wait := shortened(r.Policy.Backoff(tried), r.Policy.Jitter, r.ID, tried)
		if retryAfter > 0 {
			wait = min(retryAfter, schedule.MaxInterval)
		}
		return Verdict{State: Waiting, RetryIn: wait}
	}
	if o == apiv1.Outcome_OUTCOME_TIMED_OUT {
		return Verdict{State: TimedOut}
	}
	return Verdict{State: Failed}
}

// shortened shortens a wait by up to the given share. It is deterministic for a run and a
// retry.
func shortened(wait time.Duration, share float64, id RunID, retry int32) time.Duration {
	if share == 0 {
		return wait
	}
	h := fnv.New64a()
	h.Write(id[:])                                                //nolint:errcheck // a hash never fails
	h.Write(binary.LittleEndian.AppendUint32(nil, uint32(retry))) //nolint:errcheck // a hash never fails
	part := float64(h.Sum64()>>11) / (1 << 53)                    // 0 to less than 1
	return wait - time.Duration(part*share*float64(wait))
}

// Admission is the decision of the overlap policy about a due run.
type Admission uint8

// The admissions.
const (
	LetIn     Admission = iota
	Hold                // the run waits until there is room
	Skip                // the run ends as skipped
	LetInLast           // after the admitted runs have been stopped; waiting runs are skipped
)

// Admit applies the overlap policy to a due run. in is the number of admitted runs of its
// job, held the number of runs in the overlap queue.
func Admit(p *Policy, in, held int) Admission {
	switch p.Overlap {
	case Parallel:
		if p.Limited > 0 && in >= int(p.Limited) {
			return Hold
		}
		return LetIn
	case Queue:
		switch {
		case in == 0 && held == 0:
			return LetIn
		case p.Limited > 0 && held >= int(p.Limited):
			return Skip
		}
		return Hold
	case Discard:
		if in+held == 0 {
			return LetIn
		}
		return Skip
	default:
		if in == 0 {
			return LetIn
		}
		return LetInLast
	}
}
