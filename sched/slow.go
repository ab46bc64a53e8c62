package sched

import (
	"time"

	"github.com/wheelworkhq/wheelwork/job"
)

// Slow jobs leave room to quick ones. Where runs of a job take long, a host
// would soon execute nothing else: a hundred of them fill all slots, and what
// takes a millisecond waits for minutes. So a part of the slots of each host is
// kept from slow jobs, as long as there are quick ones about.
const (
	// slowAfter is the mean time of its handler from which on a job is slow.
	slowAfter = time.Second
	// quickFor is how long a quick run is a sign of more.
	quickFor = time.Minute
	// keptShare is the part of a host's slots that is kept, 1 of so many, and at
	// least one. A host with one slot keeps none.
	keptShare = 4
)

// noteTime learns how long the runs of a job take.
func (l *loop) noteTime(r *job.Run, took time.Duration) {
	k := jobKey{r.App, r.Job}
	mean, known := l.slow[k]
	if !known && took < slowAfter {
		l.apps[r.App].quickAt = l.now
		return
	}
	if !known {
		mean = took
	}
	if mean += (took - mean) / 4; mean < slowAfter {
		delete(l.slow, k)
		return
	}
	l.slow[k] = mean
}

// keeps reports whether a host keeps its last free slots from a run.
func (l *loop) keeps(h *host, r *job.Run) bool {
	if l.slow[jobKey{r.App, r.Job}] == 0 || h.hello.Slots < 2 || l.now.Sub(l.apps[r.App].quickAt) > quickFor {
		return false
	}
	n := 0
	for _, x := range h.running {
		if l.slow[jobKey{x.App, x.Job}] > 0 {
			n++
		}
	}
	slots := int(h.hello.Slots)
	return n >= slots-max(slots/keptShare, 1)
}

// roomFor returns the host itself or, when it keeps its slots from the run,
// another one that does not; nil when there is none.
func (l *loop) roomFor(r *job.Run, h *host) *host {
	if !l.keeps(h, r) {
		return h
	}
	if choosy(r) {
		return nil
	}
	var best *host
	for _, other := range l.hosts {
		if !other.connected || other.draining || other.credits <= 0 || !other.serves(r.App) || !other.abilities.Has(r.Shape().Needs) || l.keeps(other, r) {
			continue
		}
		if best == nil || other.credits > best.credits || other.credits == best.credits && other.hello.Host < best.hello.Host {
			best = other
		}
	}
	return best
}
