package job

import (
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/route"
)

// checkRouting is a check of [Validate]. It drops a routing without any effect, so that
// equal definitions are equal.
func checkRouting(d *apiv1.Job) error {
	r, err := route.New(d.Routing)
	if err == nil && r == nil {
		d.Routing = nil
	}
	return err
}

// Routed returns the run as the strategies of routes see it.
func (r *Run) Routed() route.Run {
	x := route.Run{ID: r.ID, App: r.App, Job: r.Job, Attempt: r.Attempt, Input: r}
	for _, a := range r.Attempts {
		if faulty(a) {
			x.Failed = append(x.Failed, a.Host)
		}
	}
	return x
}

// faulty reports whether an attempt ended by a fault of the task or of the host. A
// drained host has no fault.
func faulty(a Attempt) bool {
	switch a.Outcome {
	case apiv1.Outcome_OUTCOME_RETRYABLE, apiv1.Outcome_OUTCOME_PERMANENT, apiv1.Outcome_OUTCOME_TIMED_OUT,
		apiv1.Outcome_OUTCOME_HOST_ERROR, apiv1.Outcome_OUTCOME_LOST:
		return true
	}
	return false
}
