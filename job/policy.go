package job

import (
	"math/bits"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Limits of a definition.
const (
	DefaultTimeout = time.Hour
	MaxTimeout     = 30 * 24 * time.Hour
	MaxInput       = 64 << 10 // bytes
	MaxRetries     = 100
	MaxInterval    = 366 * 24 * time.Hour

	// MaxLost bounds how often a run is sent again because a host went away
	// with it: a task that kills its hosts must not walk through the fleet.
	MaxLost = 5
)

// Policy is the part of a definition that decides about attempts.
type Policy struct {
	Timeout    time.Duration // of one attempt
	Retries    int32         // after the first attempt
	Fixed      bool          // wait First each time; else double it up to Limit
	First      time.Duration
	Limit      time.Duration
	DelayAfter time.Duration // from the end of a run to the next one; 0: no delay schedule
}

// PolicyOf reads the policy of a definition that [Validate] has accepted.
func PolicyOf(d *apiv1.Job) Policy {
	p := Policy{Timeout: duration(d.GetTimeout()), First: time.Second, Limit: time.Minute}
	if p.Timeout == 0 {
		p.Timeout = DefaultTimeout
	}
	if r := d.GetRetry(); r != nil {
		p.Retries = r.GetMax()
		p.Fixed = r.GetBackoff() == "fixed"
		if v := duration(r.GetFirst()); v > 0 {
			p.First = v
		}
		if v := duration(r.GetLimit()); v > 0 {
			p.Limit = v
		}
	}
	if !d.GetPaused() {
		p.DelayAfter = duration(d.GetSchedule().GetDelay())
	}
	return p
}

func duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return d
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

// Verdict is what follows from the end of an attempt.
type Verdict struct {
	State   State         // terminal, Waiting or Queued
	RetryIn time.Duration // when Waiting
}

// hostsLost counts the attempts that ended because their host went away. A
// host that was drained gave its task back: that is not counted.
func (r *Run) hostsLost() int {
	n := 0
	for _, a := range r.Attempts {
		if a.Outcome == apiv1.Outcome_OUTCOME_LOST {
			n++
		}
	}
	return n
}

// Settle decides what becomes of a run whose current attempt ended so.
// retryAfter is the handler's wish, 0 for none.
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
		case o == apiv1.Outcome_OUTCOME_LOST && r.hostsLost() >= MaxLost:
			return Verdict{State: Failed}
		}
		return Verdict{State: Queued} // nobody asked for it: the host went away or was drained
	}
	if r.CancelRequested {
		return Verdict{State: Stopped}
	}
	if tried := r.Attempt - r.Lost; tried <= r.Policy.Retries {
		wait := r.Policy.Backoff(tried)
		if retryAfter > 0 {
			wait = min(retryAfter, MaxInterval)
		}
		return Verdict{State: Waiting, RetryIn: wait}
	}
	if o == apiv1.Outcome_OUTCOME_TIMED_OUT {
		return Verdict{State: TimedOut}
	}
	return Verdict{State: Failed}
}
