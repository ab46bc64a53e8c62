package partition

import (
	"context"
	"errors"
	"strconv"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/life"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/sched"
)

// Follow implements [life.Effects]. It follows the journal until this server should take
// the partition.
func (r *Replica) Follow(ctx context.Context) (life.Event, error) {
	every := catchUpEvery
	if r.conf.Publish != nil {
		every = accessEvery
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	f := standbyMemory{}
	for ctx.Err() == nil {
		changed := r.view.Change()
		s, owner := r.standing()
		step := life.StepOfStandby(s, r.conf.ID)
		take := step == life.TakeBack || step == life.TakeIfWhole && !r.lacks(ctx)
		if ctx.Err() != nil {
			break
		}
		if take {
			return life.Elected, nil
		}
		if step != life.TakeIfWhole {
			if err := r.followOnce(ctx, s, owner, step, &f); err != nil {
				if ctx.Err() != nil {
					break
				}
				return life.Failed, err
			}
		}
		if !r.untilChange(ctx, changed, tick.C, s, owner) {
			break
		}
	}
	return life.Halted, nil
}

// standbyMemory is what a standby remembers between two steps.
type standbyMemory struct {
	progress   standbyState
	reportedAt time.Time // of the last report of its position
	owner      string    // that was logged last
	ready      uint64    // the epoch for which this server reported that it is ready
}

// followOnce catches up with the owner and reports the progress.
func (r *Replica) followOnce(ctx context.Context, s life.Standing, owner etcd.Owner, step life.StandbyStep, f *standbyMemory) error {
	if step == life.ReleaseAndFollow {
		if err := r.view.Etcd.Release(ctx, r.name, s.Epoch); err != nil {
			r.log.Warn("a partition that this server does not serve could not be given up; it tries again", "error", err)
		}
	} else if s.Owner != f.owner {
		if f.owner = s.Owner; f.owner != "" {
			r.log.Info("this server is a standby", "partition", r.name, "owner", owner.Server, "address", owner.Address)
		}
	}
	now, err := r.catchUp(ctx, owner, f.progress, time.Since(f.reportedAt) >= checkpointEvery)
	if err != nil || ctx.Err() != nil {
		return err
	}
	if f.progress = now; now.reported {
		f.reportedAt = time.Now()
	}
	if life.ReportsReady(s, r.conf.ID, now.whole, f.ready) {
		if err := r.view.Etcd.Note(ctx, r.view.Group, cluster.RowReady+r.name+"/"+r.conf.ID, strconv.FormatUint(s.Epoch, 10), true); err != nil {
			r.log.Warn("a standby could not report that it is ready", "error", err)
		} else {
			f.ready = s.Epoch
		}
	}
	if s.Want != r.conf.ID {
		f.ready = 0
	}
	return nil
}

// lacks reports whether this server cannot serve the partition from its disk, because the
// journal does not reach back to its store. The position that it reports keeps the
// journal from being trimmed further.
func (r *Replica) lacks(ctx context.Context) bool {
	begins, err := r.view.Etcd.Begins(ctx, r.name)
	if err != nil {
		return true // nothing can be taken now in any case
	}
	lacks := r.store.Applied()+1 < begins
	if lacks && !r.behind.Swap(lacks) {
		r.log.Warn("the journal of a partition does not reach back to what is on this server's disk: it waits for a server with the state, and cannot take over before", "partition", r.name)
	}
	r.behind.Store(lacks)
	return lacks
}

// untilChange waits until there is something to do. Changes of other partitions do not
// end the wait. It reports false when ctx has ended.
func (r *Replica) untilChange(ctx context.Context, changed <-chan struct{}, tick <-chan time.Time, was life.Standing, owner etcd.Owner) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			return true
		case <-changed:
			changed = r.view.Change()
			if is, now := r.standing(); now != owner || is.Want != was.Want {
				return true
			}
		}
	}
}

// standbyState is the progress of a standby.
type standbyState struct {
	applied  uint64
	missing  []string // digests of modules without code
	looked   bool     // missing is known
	whole    bool     // it has all records that the journal had when it looked
	reported bool     // its position is in etcd
}

func (r *Replica) catchUp(ctx context.Context, owner etcd.Owner, was standbyState, say bool) (standbyState, error) {
	c := r.view.Etcd
	is := standbyState{applied: r.store.Applied(), missing: was.missing, looked: was.looked}
	end, err := c.End(ctx, r.name)
	if err != nil {
		r.log.Warn("etcd did not answer a standby", "error", err)
		return is, ctx.Err()
	}
	if end != is.applied+1 || !is.looked {
		// This keeps the records from being trimmed while they are read.
		if err := c.Checkpoint(ctx, r.name, is.applied+1); err != nil {
			r.log.Warn("a standby could not say where it is", "error", err)
			return is, ctx.Err()
		}
		at, err := r.follow(ctx)
		switch {
		case errors.Is(err, journal.ErrTrimmed):
			return is, r.refill(ctx, owner, err)
		case ctx.Err() != nil:
			return is, ctx.Err()
		case err != nil:
			r.log.Warn("a standby did not catch up", "error", err)
			return is, nil
		}
		is.applied, is.missing, is.looked, say = at.Applied, at.Missing, true, true
	}
	r.applied.Store(is.applied)
	r.behind.Store(false)
	is.missing = r.router.Peers.Fetch(ctx, r.conf.Modules, []string{owner.Address}, is.missing)
	is.whole = true // the owner that this server becomes fetches the code that is still missing
	if say {
		if err := c.Checkpoint(ctx, r.name, is.applied+1); err != nil {
			r.log.Warn("a standby could not say where it is", "error", err)
		} else {
			is.reported = true
		}
	}
	return is, ctx.Err()
}

// follow applies the journal to the standby, up to its end.
func (r *Replica) follow(ctx context.Context) (at sched.CaughtUp, err error) {
	if r.standby == nil {
		cfg := r.conf
		cfg.Journal = r.view.Etcd.View(ctx, r.name)
		cfg.Logger, cfg.Meter = nil, nil // catching up is too frequent to log
		if r.standby, err = sched.Follow(cfg); err != nil {
			return at, err
		}
	}
	if at, err = r.standby.CatchUp(); err != nil {
		r.standby = nil
	}
	return at, err
}

// refill replaces the store by the owner's: the disk is new, the store was set aside, or
// the server was away for so long that the journal does not reach back to it. The
// position that this server reported keeps the journal from being trimmed further.
func (r *Replica) refill(ctx context.Context, owner etcd.Owner, why error) error {
	if owner.Server == "" || owner.Server == r.conf.ID {
		r.log.Warn("the state of a partition cannot be fetched while the partition has no owner", "partition", r.name, "because", why)
		return ctx.Err()
	}
	r.log.Info("this standby fetches the state from the owner", "partition", r.name, "from", owner.Address, "because", why)
	start := time.Now()
	r.standby = nil
	if err := r.store.Close(); err != nil {
		return err
	}
	var got archive.Restored
	fetched := r.router.Peers.State(owner.Address, func(from apiv1.BackupsClient) (err error) {
		got, err = archive.Refill(ctx, from, r.name, r.dir("store"))
		return err
	})
	if err := r.openStore(ctx); err != nil {
		return errors.Join(fetched, err)
	}
	if fetched != nil {
		r.log.Warn("a standby could not fetch the state; it tries again", "partition", r.name, "from", owner.Address, "error", fetched)
		return ctx.Err()
	}
	r.forgetAside(got.Applied)
	r.log.Info("this standby has the state of the owner", "partition", r.name, "applied", got.Applied, "bytes", got.Size, "in", time.Since(start).Round(time.Millisecond))
	if err := r.view.Etcd.Checkpoint(ctx, r.name, got.Applied+1); err != nil {
		r.log.Warn("a standby could not say where it is", "error", err)
	}
	return ctx.Err()
}
