package core

import (
	"github.com/wheelworkhq/wheelwork/job"
)

// overlapQueue has the live runs of a job with a bounding overlap policy.
type overlapQueue struct {
	// in has the runs that may be dispatched, held those that wait for them, in the order
	// of their acceptance. Invariant: held is empty while the policy admits one more.
	in   map[job.RunID]*job.Run
	held []*job.Run
}

// bucket is the token bucket that limits the starts of one job or app.
type bucket struct {
	tokens   float64
	perToken float64 // ms
	atMs     int64
	waiting  int // runs with a readmitTimer for the bucket
}

func (b *bucket) empty() bool { return b != nil && b.tokens < 1 }

func (b *bucket) take() {
	if b != nil {
		b.tokens--
	}
}
