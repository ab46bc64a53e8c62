package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/life"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/cluster/slotmover"
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/sched"
)

// ownership is a partition that this server owns, from the grant to the end. Only the
// goroutine that runs the life of the partition uses it.
type ownership struct {
	journal *etcd.Journal
	since   time.Time // of the grant
	release []func()  // what to undo at the end
	server  *sched.Server
	ended   chan error // the result of the server; a reader puts it back
	calls   *router.Services
	running context.Context // ends when the server should stop
	stop    context.CancelFunc
	why     string // it ends
}

// close gives the ownership up.
func (o *ownership) close() error {
	for _, f := range slices.Backward(o.release) {
		f()
	}
	return o.journal.Close()
}

// Take implements [life.Effects].
func (r *Replica) Take(ctx context.Context) (life.Event, error) {
	j, err := r.view.Etcd.Own(ctx, r.name)
	var held *etcd.OwnedError
	switch {
	case errors.As(err, &held):
		return life.Refused, nil
	case err != nil:
		r.log.Warn("a partition could not be taken", "error", err)
		wait.For(ctx, standbyAgain/4)
		return life.Refused, nil
	}
	r.owned = &ownership{journal: j, since: time.Now()}
	return life.Granted, nil
}

// Restore implements [life.Effects]. It starts the scheduler of the partition, which
// continues from the state that this server has as a standby.
func (r *Replica) Restore(ctx context.Context) (life.Event, error) {
	event, err := r.restore(ctx)
	if event != life.Restored || err != nil {
		err = errors.Join(err, r.owned.close())
	}
	return event, r.wrap(err)
}

func (r *Replica) restore(ctx context.Context) (life.Event, error) {
	o := r.owned
	if err := r.view.Etcd.Unfollow(ctx, r.name); err != nil {
		r.log.Warn("the owner of a partition counts as its standby, so that its journal is not trimmed", "error", err)
	}
	conf := r.conf
	conf.Journal, conf.Epoch = o.journal, o.journal.Epoch()
	meter, unregister, err := r.meter(r.name)
	if err != nil {
		return life.Failed, err
	}
	o.release = append(o.release, unregister)
	conf.Meter = meter
	if o.server, err = r.open(conf); err != nil {
		switch {
		case ctx.Err() != nil:
			return life.Halted, nil
		case !r.owns(ctx, o.journal): // the ownership ended while the journal was read
			r.log.Info("a partition was taken by another server while its journal was read", "partition", r.name, "epoch", o.journal.Epoch(), "error", err)
			return life.Lost, nil
		}
		return life.Failed, err
	}
	if r.Operations != nil {
		o.server.Operate(r.Operations())
	}
	for _, name := range o.server.UnreadableSecrets() {
		r.log.Warn("a secret cannot be read by this server, and runs that use it fail: set it again, or give the server the key file of the others", "partition", r.name, "secret", name)
	}
	o.running, o.stop = context.WithCancel(context.WithoutCancel(ctx))
	o.release = append(o.release, o.stop)
	o.ended = make(chan error, 1)
	go func() { o.ended <- o.server.Run(o.running) }()
	o.calls = router.NewServices(o.server)
	return life.Restored, nil
}

func (r *Replica) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("partition %s: %w", r.name, err)
}

// Serve implements [life.Effects]. It lets calls reach the partition until ctx ends, the
// ownership is lost or another server should own the partition.
func (r *Replica) Serve(ctx context.Context) (life.Event, error) {
	o := r.owned
	mover := slotmover.New(r.name, o.journal.Epoch(), o.server, r.router, r.log)
	r.mover.Store(mover)
	r.services.Store(o.calls)
	r.view.Wake()
	r.log.Info("this server serves a partition", "partition", r.name, "epoch", o.journal.Epoch(), "after", time.Since(o.since).Round(time.Millisecond))
	var beside sync.WaitGroup
	beside.Go(func() { r.fetchMissing(o.running, o.server) })
	if len(r.view.Partitions) > 1 {
		beside.Go(func() { mover.Run(o.running) })
	}
	event := r.untilOver(ctx, o)
	r.services.Store(nil)
	r.mover.Store(nil)
	o.stop()
	beside.Wait()
	return event, nil
}

// Leave implements [life.Effects].
func (r *Replica) Leave(context.Context) (life.Event, error) {
	event, err := r.leave(r.owned)
	if err = errors.Join(err, r.owned.close()); err != nil {
		return life.Failed, r.wrap(err)
	}
	r.owned = nil
	return event, nil
}

func (r *Replica) leave(o *ownership) (life.Event, error) {
	o.stop()
	over := time.Now()
	var err error
	select {
	case err = <-o.ended:
	case <-time.After(flushPatience):
		// etcd does not answer. A closed journal gives up what it could not write by the
		// end of a lease: its waiters get an error saying that the outcome is unknown.
		r.log.Warn("etcd does not accept the remaining records of a partition", "partition", r.name)
		err = errors.Join(o.journal.Close(), <-o.ended)
	}
	o.calls.Close(err == nil)
	r.report.Store(nil)
	r.log.Info("this server has stopped serving a partition", "partition", r.name, "epoch", o.journal.Epoch(), "why", o.why, "flushed_in", time.Since(over).Round(time.Millisecond))
	if err == nil {
		return life.Left, nil
	}
	if lost := o.journal.Err(); lost != nil && errors.Is(lost, journal.ErrFenced) {
		return life.Fenced, nil
	}
	return life.Failed, err
}

// Reopen implements [life.Effects]. Records that the journal did not take are not in the
// store: it is opened again as it is, as after a crash.
func (r *Replica) Reopen(ctx context.Context) (life.Event, error) {
	if err := r.store.Close(); err != nil {
		return life.Failed, r.wrap(err)
	}
	return life.Reopened, r.wrap(r.openStore(ctx))
}

// owns reports whether an ownership still holds. The journal learns of its end when it
// renews its lease or writes something, which may be later: a server that was cut off
// while it read the journal first finds the records of the next owner. When etcd does not
// answer, owns reports false: the server becomes a standby and tries again.
func (r *Replica) owns(ctx context.Context, j *etcd.Journal) bool {
	if j.Err() != nil {
		return false
	}
	o, ok, err := r.view.Etcd.Owner(ctx, r.name)
	return err == nil && ok && o.Server == r.conf.ID && o.Epoch == j.Epoch()
}

// open returns the scheduler of a partition that was taken. It continues from the state
// that this server has as a standby, if it has one.
func (r *Replica) open(conf sched.Config) (*sched.Server, error) {
	if standby := r.standby; standby != nil {
		r.standby = nil
		return standby.TakeOver(conf)
	}
	return sched.New(conf)
}

// Declare implements [life.Effects]. It declares the apps that the partition holds; before
// that, no call may be routed to it.
func (r *Replica) Declare(ctx context.Context) (life.Event, error) {
	o := r.owned
	for {
		load, err := o.server.Load(ctx)
		if err == nil {
			r.setReport(load, cluster.DemandReport{})
			err = r.view.Declare(ctx, r.name, load.Apps)
		}
		if err == nil {
			err = r.view.RecordSlots(ctx, r.name, load.Shares)
		}
		if err == nil {
			return life.Declared, nil
		}
		if _, event, over := o.wait(ctx, time.After(standbyAgain/4), nil); over {
			return event, nil
		}
		r.log.Warn("the apps of a partition could not be declared", "partition", r.name, "error", err)
	}
}

// wait waits until the ownership is over, with the event of its end, or until a tick or a
// change.
func (o *ownership) wait(ctx context.Context, tick <-chan time.Time, changed <-chan struct{}) (ticked bool, event life.Event, over bool) {
	select {
	case <-tick:
		return true, 0, false
	case <-changed:
		return false, 0, false
	case <-ctx.Done():
		o.why = "the process ends"
		return false, life.Halted, true
	case <-o.journal.Lost():
		o.why = "the ownership was lost"
		return false, life.Lost, true
	case err := <-o.ended:
		o.ended <- err
		o.why = "the scheduler failed"
		return false, life.Ended, true
	}
}

// untilOver waits until the server has to stop serving the partition.
func (r *Replica) untilOver(ctx context.Context, o *ownership) life.Event {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	since := time.Now()
	for {
		changed := r.view.Change()
		s, _ := r.standing()
		switch life.StepOfOwner(s, r.conf.ID, o.journal.Epoch()) {
		case life.Yield:
			o.why = "the server " + s.Want + " should own it"
			return life.HandOver
		case life.Verify:
			if r.deposed(ctx, o.journal) {
				o.why = "the ownership was ended"
				return life.Lost
			}
		case life.Stay:
		}
		ticked, event, over := o.wait(ctx, tick.C, changed)
		if over {
			return event
		}
		if ticked {
			if load, err := o.server.Load(ctx); err == nil {
				r.setReport(load, r.demand(ctx, o.server, load.Hosts, since))
			}
		}
	}
}

// deposed reports whether etcd has the ownership no longer, although its lease continues.
// The server would not learn that from a write: no call is sent to a partition without an
// owner, so it has nothing to write.
func (r *Replica) deposed(ctx context.Context, j *etcd.Journal) bool {
	ctx, cancel := context.WithTimeout(ctx, reportEvery)
	defer cancel()
	o, ok, err := r.view.Etcd.Owner(ctx, r.name)
	return err == nil && (!ok || o.Epoch != j.Epoch())
}

// fetchMissing fetches the code of modules that were added after this server last looked,
// from any server that has it.
func (r *Replica) fetchMissing(ctx context.Context, s *sched.Server) {
	missing, err := s.Missing(ctx)
	for err == nil && len(missing) > 0 {
		var from []string
		for id, p := range r.view.Snapshot().Servers {
			if id != r.conf.ID {
				from = append(from, p.Address)
			}
		}
		if missing = r.router.Peers.Fetch(ctx, r.conf.Modules, from, missing); len(missing) > 0 && !wait.For(ctx, catchUpEvery) {
			return
		}
	}
}
