package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/life"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/store"
)

const (
	// catchUpEvery is how far behind the owner a standby may be.
	catchUpEvery = 2 * time.Second
	// standbyAgain is the pause after a request that etcd did not answer.
	standbyAgain = time.Second
	// checkpointEvery is how often a standby reports its position even if that has not
	// changed: an earlier report may have ended with a lease.
	checkpointEvery = 10 * time.Second
	// flushPatience is how long an owner that ends waits until etcd has what it accepted,
	// in addition to the lease for which the journal itself waits.
	flushPatience = 5 * time.Second
	// presenceEvery is how often a server reports itself and what it owns.
	presenceEvery = time.Second
)

// partition has one journal and one owner at a time, as this server sees it.
// The server is either its owner, which serves it, or a standby, with its store near the
// end of the journal and the code of modules on its disk. Package life decides when it
// changes between the two; the methods of [life.Effects] carry that out.
type partition struct {
	name string
	// maxHosts is the number of hosts up to which the partition reports nothing of them,
	// because each works for every partition. Negative: it never reports them, unless
	// hosts are divided already.
	maxHosts int
	dir      func(...string) string
	view     *cluster.View
	conf     sched.Config // without Journal, Epoch, Store and Meter
	tel      *telemetry
	peers    *router.Peers
	router   *router.Router
	log      *slog.Logger

	mover atomic.Pointer[slotMover] // while the server owns the partition

	services atomic.Pointer[router.Services] // nil while the server does not own the partition
	applied  atomic.Uint64                   // last record in the store of a standby
	behind   atomic.Bool                     // the journal does not reach back to the end of that store
	store    *store.Store                    // only for the goroutine of live
	aside    aside                           // likewise
	standby  *sched.Standby                  // likewise; nil while there is none
	owned    *ownership                      // likewise; nil on a standby
	reports  atomic.Pointer[cluster.PartitionReport]
}

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

// live runs the life of the partition until ctx ends. An error means that the process
// should end: the disk failed, or it holds what cannot be continued.
func (u *partition) live(ctx context.Context) (err error) {
	defer func() {
		if u.store != nil { // nil: it was closed, and could not be opened again
			err = errors.Join(err, u.store.Close())
		}
	}()
	return life.Run(ctx, u)
}

// standing returns what this server sees of the partition.
func (u *partition) standing() (life.Standing, etcd.Owner) {
	s := u.view.StandingOf(u.name)
	return life.Standing{Owner: s.Owner.Server, Epoch: s.Owner.Epoch, Want: s.Want, Ready: s.Ready}, s.Owner
}

// Follow implements [life.Effects]. It follows the journal until this server should take
// the partition.
func (u *partition) Follow(ctx context.Context) (life.Event, error) {
	tick := time.NewTicker(catchUpEvery)
	defer tick.Stop()
	f := standbyMemory{}
	for ctx.Err() == nil {
		changed := u.view.Change()
		s, owner := u.standing()
		step := life.StepOfStandby(s, u.conf.ID)
		take := step == life.TakeBack || step == life.TakeIfWhole && !u.lacks(ctx)
		if ctx.Err() != nil {
			break
		}
		if take {
			return life.Elected, nil
		}
		if step != life.TakeIfWhole {
			if err := u.followOnce(ctx, s, owner, step, &f); err != nil {
				if ctx.Err() != nil {
					break
				}
				return life.Failed, err
			}
		}
		if !u.untilChange(ctx, changed, tick.C, s, owner) {
			break
		}
	}
	return life.Halted, nil
}

// standbyMemory is what a standby remembers between two steps.
type standbyMemory struct {
	progress standbyState
	saidAt   time.Time // of the last report of its position
	owner    string    // that was logged last
	ready    uint64    // the epoch for which this server reported that it is ready
}

// followOnce catches up with the owner and reports the progress.
func (u *partition) followOnce(ctx context.Context, s life.Standing, owner etcd.Owner, step life.StandbyStep, f *standbyMemory) error {
	if step == life.ReleaseAndFollow {
		if err := u.view.Etcd.Release(ctx, u.name, s.Epoch); err != nil {
			u.log.Warn("a partition that this server does not serve could not be given up; it tries again", "error", err)
		}
	} else if s.Owner != f.owner {
		if f.owner = s.Owner; f.owner != "" {
			u.log.Info("this server is a standby", "partition", u.name, "owner", owner.Server, "address", owner.Address)
		}
	}
	now, err := u.catchUp(ctx, owner, f.progress, time.Since(f.saidAt) >= checkpointEvery)
	if err != nil || ctx.Err() != nil {
		return err
	}
	if f.progress = now; now.said {
		f.saidAt = time.Now()
	}
	if life.ReportsReady(s, u.conf.ID, now.whole, f.ready) {
		if err := u.view.Etcd.Note(ctx, u.view.Group, cluster.RowReady+u.name+"/"+u.conf.ID, strconv.FormatUint(s.Epoch, 10), true); err != nil {
			u.log.Warn("a standby could not report that it is ready", "error", err)
		} else {
			f.ready = s.Epoch
		}
	}
	if s.Want != u.conf.ID {
		f.ready = 0
	}
	return nil
}

// Take implements [life.Effects].
func (u *partition) Take(ctx context.Context) (life.Event, error) {
	j, err := u.view.Etcd.Own(ctx, u.name)
	var held *etcd.OwnedError
	switch {
	case errors.As(err, &held):
		return life.Refused, nil
	case err != nil:
		u.log.Warn("a partition could not be taken", "error", err)
		wait.For(ctx, standbyAgain/4)
		return life.Refused, nil
	}
	u.owned = &ownership{journal: j, since: time.Now()}
	return life.Granted, nil
}

// lacks reports whether this server cannot serve the partition from its disk, because the
// journal does not reach back to its store. The position that it reports keeps the
// journal from being trimmed further.
func (u *partition) lacks(ctx context.Context) bool {
	begins, err := u.view.Etcd.Begins(ctx, u.name)
	if err != nil {
		return true // nothing can be taken now in any case
	}
	lacks := u.store.Applied()+1 < begins
	if lacks && !u.behind.Swap(lacks) {
		u.log.Warn("the journal of a partition does not reach back to what is on this server's disk: it waits for a server with the state, and cannot take over before", "partition", u.name)
	}
	u.behind.Store(lacks)
	return lacks
}

// untilChange waits until there is something to do. Changes of other partitions do not
// end the wait. It reports false when ctx has ended.
func (u *partition) untilChange(ctx context.Context, changed <-chan struct{}, tick <-chan time.Time, was life.Standing, owner etcd.Owner) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			return true
		case <-changed:
			changed = u.view.Change()
			if is, now := u.standing(); now != owner || is.Want != was.Want {
				return true
			}
		}
	}
}

// standbyState is the progress of a standby.
type standbyState struct {
	applied uint64
	missing []string // digests of modules without code
	looked  bool     // missing is known
	whole   bool     // it has all records that the journal had when it looked
	said    bool     // its position is in etcd
}

func (u *partition) catchUp(ctx context.Context, owner etcd.Owner, was standbyState, say bool) (standbyState, error) {
	c := u.view.Etcd
	is := standbyState{applied: u.store.Applied(), missing: was.missing, looked: was.looked}
	end, err := c.End(ctx, u.name)
	if err != nil {
		u.log.Warn("etcd did not answer a standby", "error", err)
		return is, ctx.Err()
	}
	if end != is.applied+1 || !is.looked {
		// This keeps the records from being trimmed while they are read.
		if err := c.Checkpoint(ctx, u.name, is.applied+1); err != nil {
			u.log.Warn("a standby could not say where it is", "error", err)
			return is, ctx.Err()
		}
		at, err := u.follow(ctx)
		switch {
		case errors.Is(err, journal.ErrTrimmed):
			return is, u.refill(ctx, owner, err)
		case ctx.Err() != nil:
			return is, ctx.Err()
		case err != nil:
			u.log.Warn("a standby did not catch up", "error", err)
			return is, nil
		}
		is.applied, is.missing, is.looked, say = at.Applied, at.Missing, true, true
	}
	u.applied.Store(is.applied)
	u.behind.Store(false)
	is.missing = u.peers.Fetch(ctx, u.conf.Modules, []string{owner.Address}, is.missing)
	is.whole = true // the owner that this server becomes fetches the code that is still missing
	if say {
		if err := c.Checkpoint(ctx, u.name, is.applied+1); err != nil {
			u.log.Warn("a standby could not say where it is", "error", err)
		} else {
			is.said = true
		}
	}
	return is, ctx.Err()
}

// follow applies the journal to the standby, up to its end.
func (u *partition) follow(ctx context.Context) (at sched.CaughtUp, err error) {
	if u.standby == nil {
		cfg := u.conf
		cfg.Journal = u.view.Etcd.View(ctx, u.name)
		cfg.Logger, cfg.Meter = nil, nil // catching up is too frequent to log
		if u.standby, err = sched.Follow(cfg); err != nil {
			return at, err
		}
	}
	if at, err = u.standby.CatchUp(); err != nil {
		u.standby = nil
	}
	return at, err
}

// refill replaces the store by the owner's: the disk is new, the store was set aside, or
// the server was away for so long that the journal does not reach back to it. The
// position that this server reported keeps the journal from being trimmed further.
func (u *partition) refill(ctx context.Context, owner etcd.Owner, why error) error {
	if owner.Server == "" || owner.Server == u.conf.ID {
		u.log.Warn("the state of a partition cannot be fetched while nobody owns it", "partition", u.name, "because", why)
		return ctx.Err()
	}
	u.log.Info("this standby begins with the state of the server that works", "partition", u.name, "from", owner.Address, "because", why)
	start := time.Now()
	u.standby = nil
	if err := u.store.Close(); err != nil {
		return err
	}
	var got Restored
	fetched := u.peers.State(owner.Address, func(from apiv1.BackupsClient) (err error) {
		got, err = refill(ctx, from, u.name, u.dir("store"))
		return err
	})
	if err := u.openStore(ctx); err != nil {
		return errors.Join(fetched, err)
	}
	if fetched != nil {
		u.log.Warn("a standby could not fetch the state; it tries again", "partition", u.name, "from", owner.Address, "error", fetched)
		return ctx.Err()
	}
	u.forgetAside(got.Applied)
	u.log.Info("this standby has the state of the server that works", "partition", u.name, "applied", got.Applied, "bytes", got.Size, "in", time.Since(start).Round(time.Millisecond))
	if err := u.view.Etcd.Checkpoint(ctx, u.name, got.Applied+1); err != nil {
		u.log.Warn("a standby could not say where it is", "error", err)
	}
	return ctx.Err()
}

// Restore implements [life.Effects]. It starts the scheduler of the partition, which
// continues from the state that this server has as a standby.
func (u *partition) Restore(ctx context.Context) (life.Event, error) {
	event, err := u.restore(ctx)
	if event != life.Restored || err != nil {
		err = errors.Join(err, u.owned.close())
	}
	return event, u.wrap(err)
}

func (u *partition) restore(ctx context.Context) (life.Event, error) {
	o := u.owned
	if err := u.view.Etcd.Unfollow(ctx, u.name); err != nil {
		u.log.Warn("the owner of a partition counts as its standby, so that its journal is not trimmed", "error", err)
	}
	conf := u.conf
	conf.Journal, conf.Epoch = o.journal, o.journal.Epoch()
	meter, unregister, err := u.tel.partitionMeter(u.name)
	if err != nil {
		return life.Failed, err
	}
	o.release = append(o.release, unregister)
	conf.Meter = meter
	if o.server, err = u.open(conf); err != nil {
		switch {
		case ctx.Err() != nil:
			return life.Halted, nil
		case !u.owns(ctx, o.journal): // the ownership ended while the journal was read
			u.log.Info("a partition was taken by another server while its journal was read", "partition", u.name, "epoch", o.journal.Epoch(), "error", err)
			return life.Lost, nil
		}
		return life.Failed, err
	}
	o.running, o.stop = context.WithCancel(context.WithoutCancel(ctx))
	o.release = append(o.release, o.stop)
	o.ended = make(chan error, 1)
	go func() { o.ended <- o.server.Run(o.running) }()
	o.calls = router.NewServices(o.server)
	return life.Restored, nil
}

func (u *partition) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("partition %s: %w", u.name, err)
}

// Serve implements [life.Effects]. It lets calls reach the partition until ctx ends, the
// ownership is lost or another server should own the partition.
func (u *partition) Serve(ctx context.Context) (life.Event, error) {
	o := u.owned
	sh := newSlotMover(u, o.server, o.journal.Epoch())
	u.mover.Store(sh)
	u.services.Store(o.calls)
	u.view.Wake()
	u.log.Info("this server serves a partition", "partition", u.name, "epoch", o.journal.Epoch(), "after", time.Since(o.since).Round(time.Millisecond))
	var beside sync.WaitGroup
	beside.Go(func() { u.fetchMissing(o.running, o.server) })
	if len(u.view.Partitions) > 1 {
		beside.Go(func() { sh.run(o.running) })
	}
	event := u.untilOver(ctx, o)
	u.services.Store(nil)
	u.mover.Store(nil)
	o.stop()
	beside.Wait()
	return event, nil
}

// Leave implements [life.Effects].
func (u *partition) Leave(context.Context) (life.Event, error) {
	event, err := u.leave(u.owned)
	if err = errors.Join(err, u.owned.close()); err != nil {
		return life.Failed, u.wrap(err)
	}
	u.owned = nil
	return event, nil
}

func (u *partition) leave(o *ownership) (life.Event, error) {
	o.stop()
	over := time.Now()
	var err error
	select {
	case err = <-o.ended:
	case <-time.After(flushPatience):
		// etcd does not answer. A closed journal gives up what it could not write by the
		// end of a lease: its waiters get an error saying that the outcome is unknown.
		u.log.Warn("etcd does not take what is still to be written", "partition", u.name)
		err = errors.Join(o.journal.Close(), <-o.ended)
	}
	o.calls.Close(err == nil)
	u.reports.Store(nil)
	u.log.Info("this server has stopped serving a partition", "partition", u.name, "epoch", o.journal.Epoch(), "why", o.why, "flushed_in", time.Since(over).Round(time.Millisecond))
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
func (u *partition) Reopen(ctx context.Context) (life.Event, error) {
	if err := u.store.Close(); err != nil {
		return life.Failed, u.wrap(err)
	}
	return life.Reopened, u.wrap(u.openStore(ctx))
}

// owns reports whether an ownership still holds. The journal learns of its end when it
// renews its lease or writes something, which may be later: a server that was cut off
// while it read the journal first finds the records of the next owner. When etcd does not
// answer, owns reports false: the server becomes a standby and tries again.
func (u *partition) owns(ctx context.Context, j *etcd.Journal) bool {
	if j.Err() != nil {
		return false
	}
	o, ok, err := u.view.Etcd.Owner(ctx, u.name)
	return err == nil && ok && o.Server == u.conf.ID && o.Epoch == j.Epoch()
}

// open returns the scheduler of a partition that was taken. It continues from the state
// that this server has as a standby, if it has one.
func (u *partition) open(conf sched.Config) (*sched.Server, error) {
	if standby := u.standby; standby != nil {
		u.standby = nil
		return standby.TakeOver(conf)
	}
	return sched.New(conf)
}

// Declare implements [life.Effects]. It declares the apps that the partition holds; before
// that, no call may be routed to it.
func (u *partition) Declare(ctx context.Context) (life.Event, error) {
	o := u.owned
	for {
		load, err := o.server.Load(ctx)
		if err == nil {
			u.report(load, cluster.DemandReport{})
			err = u.view.Declare(ctx, u.name, load.Apps)
		}
		if err == nil {
			err = u.view.SettleAll(ctx, u.name, load.Shares)
		}
		if err == nil {
			return life.Declared, nil
		}
		if _, event, over := o.wait(ctx, time.After(standbyAgain/4), nil); over {
			return event, nil
		}
		u.log.Warn("the apps of a partition could not be declared", "partition", u.name, "error", err)
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

func (u *partition) report(l sched.Load, c cluster.DemandReport) {
	r := &cluster.PartitionReport{Rate: l.ScheduleRate, Hosts: l.Hosts, Apps: len(l.Apps), Zone: l.Zone, Rates: ratesOf(l.Shares), DemandReport: c}
	if sh := u.mover.Load(); sh != nil {
		r.Stuck = sh.stuck()
	}
	u.reports.Store(r)
}

// untilOver waits until the server has to stop serving the partition.
func (u *partition) untilOver(ctx context.Context, o *ownership) life.Event {
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	since := time.Now()
	for {
		changed := u.view.Change()
		s, _ := u.standing()
		switch life.StepOfOwner(s, u.conf.ID, o.journal.Epoch()) {
		case life.Yield:
			o.why = "the server " + s.Want + " should own it"
			return life.HandOver
		case life.Verify:
			if u.deposed(ctx, o.journal) {
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
				u.report(load, u.demand(ctx, o.server, load.Hosts, since))
			}
		}
	}
}

// deposed reports whether etcd has the ownership no longer, although its lease continues.
// The server would not learn that from a write: no call is sent to a partition without an
// owner, so it has nothing to write.
func (u *partition) deposed(ctx context.Context, j *etcd.Journal) bool {
	ctx, cancel := context.WithTimeout(ctx, presenceEvery)
	defer cancel()
	o, ok, err := u.view.Etcd.Owner(ctx, u.name)
	return err == nil && (!ok || o.Epoch != j.Epoch())
}

// fetchMissing fetches the code of modules that were added after this server last looked,
// from any server that has it.
func (u *partition) fetchMissing(ctx context.Context, s *sched.Server) {
	missing, err := s.Missing(ctx)
	for err == nil && len(missing) > 0 {
		var from []string
		for id, p := range u.view.Snapshot().Servers {
			if id != u.conf.ID {
				from = append(from, p.Address)
			}
		}
		if missing = u.peers.Fetch(ctx, u.conf.Modules, from, missing); len(missing) > 0 && !wait.For(ctx, catchUpEvery) {
			return
		}
	}
}

// demand returns what the owner of a partition reports of its hosts. The report is empty
// while there are so few hosts that the balancer does not need it.
func (u *partition) demand(ctx context.Context, s *sched.Server, hosts int, since time.Time) (r cluster.DemandReport) {
	if len(u.view.Partitions) < 2 || u.view.Divided().GetUnitsPerHost() == 0 && (u.maxHosts < 0 || hosts <= u.maxHosts) {
		return r
	}
	c, err := s.HostDemand(ctx)
	if err != nil {
		return r
	}
	return u.view.Count(u.name, c, time.Since(since) >= cluster.DemandSettles)
}

// Serving implements [router.Hosted].
func (u *partition) Serving() *router.Services { return u.services.Load() }

// Code implements [router.Hosted].
func (u *partition) Code() *modules.Store { return u.conf.Modules }

// CopyOut implements [router.Hosted].
func (u *partition) CopyOut(ctx context.Context, app string) error {
	h := u.mover.Load()
	if h == nil {
		return status.Errorf(codes.Unavailable, "the partition %s goes to another server", u.name)
	}
	return h.CopyOut(ctx, app)
}
