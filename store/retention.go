package store

import (
	"cmp"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Retention is how long finished runs stay after their end, and lines of runs after they
// were stored, and how many bytes of revisions stay. 0 in a [Config]: for ever. 0 of an
// app: as the Config says.
//
// The values are visible limits: readers do not find older runs, except up to 255 that
// are in one block with a younger one. Disk space becomes free later, in whole segments,
// when all apps have no use for a segment (ADR 44).
type Retention struct {
	Runs, Logs time.Duration
	// RevisionBytes, of an app, is the limit for the revisions of its definitions on disk;
	// 0: Config.RevisionBytes. A new limit counts with the next commit, snapshot or
	// read of revisions.
	RevisionBytes int64
	// SinceMs, of an app, is the time, in Unix ms, before which no run, revision or
	// line is shown: the app was deleted then. 0: none.
	SinceMs int64
}

// retention holds the retention of a store and of its apps. It is safe for concurrent
// use; readers take no lock.
type retention struct {
	all  Retention
	apps atomic.Pointer[map[string]Retention] // immutable; nil: none has its own
	mu   sync.Mutex                           // serializes changes
}

// SetRetention sets the retention of an app. The caller sets that of all apps before the
// first Snapshot, which removes segments. It may be called concurrently with all other
// methods.
func (s *Store) SetRetention(app string, r Retention) {
	k := &s.retention
	k.mu.Lock()
	defer k.mu.Unlock()
	next := map[string]Retention{}
	if apps := k.apps.Load(); apps != nil {
		if (*apps)[app] == r {
			return
		}
		next = maps.Clone(*apps)
	}
	next[app] = r
	if r == (Retention{}) {
		delete(next, app)
	}
	k.apps.Store(&next)
}

// of returns the retention of an app.
func (k *retention) of(app string) Retention {
	r := Retention{}
	if apps := k.apps.Load(); apps != nil {
		r = (*apps)[app]
	}
	return Retention{Runs: cmp.Or(r.Runs, k.all.Runs), Logs: cmp.Or(r.Logs, k.all.Logs), RevisionBytes: r.RevisionBytes, SinceMs: r.SinceMs}
}

// runsFrom, revisionsFrom and logsFrom return the time, in Unix ms, before which runs,
// revisions and lines are not shown.
func (r Retention) runsFrom() int64      { return max(before(r.Runs), cmp.Or(r.SinceMs, math.MinInt64)) }
func (r Retention) revisionsFrom() int64 { return cmp.Or(r.SinceMs, math.MinInt64) }
func (r Retention) logsFrom() int64      { return max(before(r.Logs), cmp.Or(r.SinceMs, math.MinInt64)) }

// longest returns the longest retention of any app.
func (k *retention) longest() Retention {
	r := k.all
	if apps := k.apps.Load(); apps != nil {
		for _, a := range *apps {
			r.Runs, r.Logs = longer(r.Runs, a.Runs), longer(r.Logs, a.Logs)
		}
	}
	return r
}

// longer returns the longer of the store's retention and that of an app, 0 meaning for
// ever and no value of its own.
func longer(all, app time.Duration) time.Duration {
	if all == 0 {
		return 0
	}
	return max(all, app)
}

// before returns the time, in Unix ms, before which rows with the given retention are gone.
func before(keep time.Duration) int64 {
	if keep == 0 {
		return math.MinInt64
	}
	return time.Now().Add(-keep).UnixMilli()
}

// retain unlinks segments that are past the retention of all apps.
func (s *Store) retain() error {
	keep := s.retention.longest()
	var runs, logs int64
	var err error
	if keep.Runs > 0 {
		if runs, err = s.history.Retain(before(keep.Runs)); err != nil {
			return err
		}
	}
	if keep.Logs > 0 {
		logs, err = s.logs.Retain(before(keep.Logs))
	}
	if runs+logs > 0 {
		s.cfg.Logger.Info("store: removed old segments", "history_bytes", runs, "log_bytes", logs)
	}
	return err
}
