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

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/store"
)

const (
	// catchUpEvery is how far behind a standby may be.
	catchUpEvery = 2 * time.Second
	// standbyAgain is the pause after an attempt that etcd did not answer.
	standbyAgain = time.Second
	// checkpointEvery is how often a standby says where it is though nothing has
	// changed: what it said may have gone with a lease.
	checkpointEvery = 10 * time.Second
	// flushPatience is how long an owner that ends waits until etcd has what it
	// accepted, beside the lease that the journal waits itself.
	flushPatience = 5 * time.Second
	// presenceEvery is how often a server tells of itself and of what it owns.
	presenceEvery = time.Second
)

// unit is a group of apps with one journal and one owner at a time, as this
// server sees it: the server owns it and works, or it stands by, with its store
// near the journal's end and the code of modules on its disk. A unit goes to and
// fro between the two as long as the process lives.
//
// A planned move: the owner sees that another server is wanted, and that this
// one is ready, which is to say near the end of this very ownership. It hears
// nothing new, brings what it heard to the journal, writes its store and gives
// the ownership up. The other one takes it and replays the little that is left.
type unit struct {
	name string
	// maxHosts is with how many the unit tells nothing of them; negative: never.
	maxHosts int
	dir      func(...string) string
	roster   *roster
	conf     sched.Config // without Journal, Epoch, Store and Meter
	tel      *telemetry
	peers    *peers
	router   *router
	log      *slog.Logger

	shepherd atomic.Pointer[shepherd] // while the server owns the unit

	rack    atomic.Pointer[rack] // of the services; nil while the server does not own the unit
	applied atomic.Uint64        // by the store of a standby
	behind  atomic.Bool          // the journal does not reach back to what is in that store
	store   *store.Store         // of the goroutine of live
	aside   aside                // likewise
	standby *sched.Standby       // likewise; nil while there is none
	reports atomic.Pointer[unitReport]
}

// live stands by and works, in turn, until ctx ends. An error means that the
// process should end: the disk failed, or it holds what cannot be continued.
func (u *unit) live(ctx context.Context) (err error) {
	defer func() {
		if u.store != nil { // nil: it was closed, and did not open again
			err = errors.Join(err, u.store.Close())
		}
	}()
	for ctx.Err() == nil {
		err := u.standBy(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		j, err := u.roster.cluster.Own(ctx, u.name)
		var held *etcd.OwnedError
		switch {
		case errors.As(err, &held):
			continue
		case err != nil:
			u.log.Warn("a unit could not be taken", "error", err)
			pause(ctx, standbyAgain/4)
			continue
		}
		if err := u.work(ctx, j); err != nil {
			return fmt.Errorf("unit %s: %w", u.name, err)
		}
	}
	return nil
}

// standBy follows the journal until the unit is to be taken.
func (u *unit) standBy(ctx context.Context) error {
	tick := time.NewTicker(catchUpEvery)
	defer tick.Stop()
	var saidReady uint64 // the epoch for which this server has said that it is ready
	var saidAt time.Time // when it said where it is
	caught := standbyState{}
	said := "" // whom it follows
	for {
		changed := u.roster.change()
		s := u.roster.standing(u.name)
		mine := s.want == u.conf.ID
		if s.owner.Server == "" && mine && u.lacks(ctx) { // and the steward has another one take it, if there is one
			if !u.untilChange(ctx, changed, tick.C, s) {
				return nil
			}
			continue
		}
		if s.owner.Server == "" && mine {
			return nil
		}
		if s.owner.Server == u.conf.ID && mine { // of this server's last process, or of its last ownership that has not gone yet
			return nil
		}
		if s.owner.Server == u.conf.ID { // likewise, and another one is to have it, who would wait for as long as this process lives
			if err := u.roster.cluster.Release(ctx, u.name, s.owner.Epoch); err != nil {
				u.log.Warn("a unit that this server does not serve could not be given up; it tries again", "error", err)
			}
		} else if s.owner.Server != said {
			if said = s.owner.Server; said != "" {
				u.log.Info("this server stands by", "unit", u.name, "owner", s.owner.Server, "address", s.owner.Address)
			}
		}
		now, err := u.catchUp(ctx, s.owner, caught, time.Since(saidAt) >= checkpointEvery)
		if err != nil || ctx.Err() != nil {
			return err
		}
		if now.said {
			saidAt = time.Now()
		}
		caught = now
		if mine && caught.whole && s.owner.Server != "" && saidReady != s.owner.Epoch {
			if err := u.roster.cluster.Note(ctx, u.roster.group, rowReady+u.name+"/"+u.conf.ID, strconv.FormatUint(s.owner.Epoch, 10), true); err != nil {
				u.log.Warn("a standby could not say that it is ready", "error", err)
			} else {
				saidReady = s.owner.Epoch
			}
		}
		if !mine {
			saidReady = 0
		}
		if !u.untilChange(ctx, changed, tick.C, s) {
			return nil
		}
	}
}

// lacks reports whether this server cannot work with what is on its disk: its
// store does not reach to where the journal begins. What it says of where it is
// keeps the journal from being trimmed further.
func (u *unit) lacks(ctx context.Context) bool {
	begins, err := u.roster.cluster.Begins(ctx, u.name)
	if err != nil {
		return true // nothing can be taken now either
	}
	lacks := u.store.Applied()+1 < begins
	if lacks && !u.behind.Swap(lacks) {
		u.log.Warn("the journal of a unit does not reach back to what is on this server's disk: it waits for a server with the state, and cannot take over before", "unit", u.name)
	}
	u.behind.Store(lacks)
	return lacks
}

// untilChange waits until something is to be done: what happens to other units
// is nothing to this one. It reports false when ctx has ended.
func (u *unit) untilChange(ctx context.Context, changed <-chan struct{}, tick <-chan time.Time, was standing) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick:
			return true
		case <-changed:
			changed = u.roster.change()
			if is := u.roster.standing(u.name); is.owner != was.owner || is.want != was.want {
				return true
			}
		}
	}
}

// standbyState is how far a standby is.
type standbyState struct {
	applied uint64
	missing []string // digests of modules that it has no code of
	looked  bool     // which code is missing is known
	whole   bool     // it has all records that there were when it looked
	said    bool     // where it is, in etcd
}

func (u *unit) catchUp(ctx context.Context, owner etcd.Owner, was standbyState, say bool) (standbyState, error) {
	c := u.roster.cluster
	is := standbyState{applied: u.store.Applied(), missing: was.missing, looked: was.looked}
	end, err := c.End(ctx, u.name)
	if err != nil {
		u.log.Warn("etcd did not answer a standby", "error", err)
		return is, ctx.Err()
	}
	if end != is.applied+1 || !is.looked {
		// It is not to be trimmed away while it is read.
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
	is.missing = u.peers.fetch(ctx, u.conf.Modules, []string{owner.Address}, is.missing)
	is.whole = true // what code is missing still is fetched by the owner that this server becomes
	if say {
		if err := c.Checkpoint(ctx, u.name, is.applied+1); err != nil {
			u.log.Warn("a standby could not say where it is", "error", err)
		} else {
			is.said = true
		}
	}
	return is, ctx.Err()
}

// follow brings the standby up to the end of the journal.
func (u *unit) follow(ctx context.Context) (at sched.CaughtUp, err error) {
	if u.standby == nil {
		cfg := u.conf
		cfg.Journal = u.roster.cluster.View(ctx, u.name)
		cfg.Logger, cfg.Meter = nil, nil // it happens all the time
		if u.standby, err = sched.Follow(cfg); err != nil {
			return at, err
		}
	}
	if at, err = u.standby.CatchUp(); err != nil {
		u.standby = nil
	}
	return at, err
}

// refill begins with the owner's state: the disk is new, or the server was away
// for so long that the journal does not reach back to what is on it. What this
// server said of where it is keeps the journal from being trimmed further.
func (u *unit) refill(ctx context.Context, owner etcd.Owner, why error) error {
	if owner.Server == "" || owner.Server == u.conf.ID {
		u.log.Warn("the state of a unit cannot be fetched while nobody owns it", "unit", u.name, "because", why)
		return ctx.Err()
	}
	u.log.Info("this standby begins with the state of the server that works", "unit", u.name, "from", owner.Address, "because", why)
	start := time.Now()
	u.standby = nil
	if err := u.store.Close(); err != nil {
		return err
	}
	var got Restored
	fetched := u.peers.state(owner.Address, func(from apiv1.BackupsClient) (err error) {
		got, err = refill(ctx, from, u.name, u.dir("store"))
		return err
	})
	if err := u.openStore(ctx); err != nil {
		return errors.Join(fetched, err)
	}
	if fetched != nil {
		u.log.Warn("a standby could not fetch the state; it tries again", "unit", u.name, "from", owner.Address, "error", fetched)
		return ctx.Err()
	}
	u.forgetAside(got.Applied)
	u.log.Info("this standby has the state of the server that works", "unit", u.name, "applied", got.Applied, "bytes", got.Size, "in", time.Since(start).Round(time.Millisecond))
	if err := u.roster.cluster.Checkpoint(ctx, u.name, got.Applied+1); err != nil {
		u.log.Warn("a standby could not say where it is", "error", err)
	}
	return ctx.Err()
}

// work serves the unit until ctx ends, the ownership is lost or the unit is
// wanted elsewhere.
func (u *unit) work(ctx context.Context, j *etcd.Journal) (err error) {
	start := time.Now()
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := u.roster.cluster.Unfollow(ctx, u.name); err != nil {
		u.log.Warn("the owner of a unit counts as its standby, so that its journal is not trimmed", "error", err)
	}
	conf := u.conf
	conf.Journal, conf.Epoch = j, j.Epoch()
	meter, unregister, err := u.tel.unitMeter(u.name)
	if err != nil {
		return err
	}
	defer unregister()
	conf.Meter = meter
	s, err := u.serve(conf)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		if !u.owns(ctx, j) { // it went while the journal was read
			u.log.Info("a unit was taken by another server while its journal was read", "unit", u.name, "epoch", j.Epoch(), "error", err)
			return nil
		}
		return err
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- s.Run(running) }()
	r := newRack(s)
	why := u.begin(ctx, j, s, ended)
	if why == "" {
		sh := newShepherd(u, s, j.Epoch())
		u.shepherd.Store(sh)
		u.rack.Store(r)
		u.roster.poke()
		u.log.Info("this server works now", "unit", u.name, "epoch", j.Epoch(), "after", time.Since(start).Round(time.Millisecond))
		var fetching sync.WaitGroup
		fetching.Go(func() { u.fetchMissing(running, s) })
		if len(u.roster.units) > 1 {
			fetching.Go(func() { sh.run(running) })
		}
		why = u.untilOver(ctx, j, s, ended)
		u.rack.Store(nil)
		u.shepherd.Store(nil)
		stop()
		fetching.Wait()
	}
	stop()
	over := time.Now()
	select {
	case err = <-ended:
	case <-time.After(flushPatience):
		// etcd does not answer. Closed, the journal gives up what it could not write
		// by the end of a lease: whoever waits for it learns that nobody knows.
		u.log.Warn("etcd does not take what is still to be written", "unit", u.name)
		err = errors.Join(j.Close(), <-ended)
	}
	r.close(err == nil)
	u.reports.Store(nil)
	u.log.Info("this server does not work any more", "unit", u.name, "epoch", j.Epoch(), "why", why, "flushed_in", time.Since(over).Round(time.Millisecond))
	if err == nil {
		return nil
	}
	if lost := j.Err(); lost == nil || !errors.Is(lost, journal.ErrFenced) {
		return err
	}
	// What the journal did not take is not in the store; it begins again with what
	// is there, as after a crash.
	if err := u.store.Close(); err != nil {
		return err
	}
	return u.openStore(ctx)
}

// owns reports whether an ownership still holds. The journal learns that it ended when its
// lease is renewed or something is written, which may be later: a server that was cut off
// while it read the journal finds the records of the next owner first. When etcd does not
// answer, the server stands by and tries again.
func (u *unit) owns(ctx context.Context, j *etcd.Journal) bool {
	if j.Err() != nil {
		return false
	}
	o, ok, err := u.roster.cluster.Owner(ctx, u.name)
	return err == nil && ok && o.Server == u.conf.ID && o.Epoch == j.Epoch()
}

// serve returns the server of a unit that was taken, which goes on with what this
// server holds as its standby.
func (u *unit) serve(conf sched.Config) (*sched.Server, error) {
	if standby := u.standby; standby != nil {
		u.standby = nil
		return standby.TakeOver(conf)
	}
	return sched.New(conf)
}

// begin declares the apps that the unit holds, without which nobody may be
// routed to it. It returns why it could not, "" when it did.
func (u *unit) begin(ctx context.Context, j *etcd.Journal, s *sched.Server, ended chan error) string {
	for {
		load, err := s.Load(ctx)
		if err == nil {
			u.report(load, crowdReport{})
			err = u.roster.declare(ctx, u.name, load.Apps)
		}
		if err == nil {
			err = u.roster.settleAll(ctx, u.name, load.Shares)
		}
		if err == nil {
			return ""
		}
		select {
		case <-ctx.Done():
			return "the process ends"
		case <-j.Lost():
			return "the ownership was lost"
		case err := <-ended:
			ended <- err
			return "it failed"
		case <-time.After(standbyAgain / 4):
			u.log.Warn("the apps of a unit could not be declared", "unit", u.name, "error", err)
		}
	}
}

func (u *unit) report(l sched.Load, c crowdReport) {
	r := &unitReport{Rate: l.ScheduleRate, Hosts: l.Hosts, Apps: len(l.Apps), Zone: l.Zone, Rates: ratesOf(l.Shares), crowdReport: c}
	if sh := u.shepherd.Load(); sh != nil {
		r.Stuck = sh.stuck()
	}
	u.reports.Store(r)
}

// untilOver waits until the server has to stop working, and says why.
func (u *unit) untilOver(ctx context.Context, j *etcd.Journal, s *sched.Server, ended chan error) string {
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	since := time.Now()
	for {
		changed := u.roster.change()
		at := u.roster.standing(u.name)
		if at.owner.Epoch == j.Epoch() && at.want != "" && at.want != u.conf.ID && at.ready {
			return "the server " + at.want + " is to own it"
		}
		if at.owner.Epoch != j.Epoch() && u.deposed(ctx, j) {
			return "the ownership was ended"
		}
		select {
		case <-changed:
		case <-tick.C:
			if load, err := s.Load(ctx); err == nil {
				u.report(load, u.crowd(ctx, s, load.Hosts, since))
			}
		case <-ctx.Done():
			return "the process ends"
		case <-j.Lost():
			return "the ownership was lost"
		case err := <-ended:
			ended <- err
			return "it failed"
		}
	}
}

// deposed reports whether etcd has the ownership no more, though the lease goes on:
// nobody sends anything to a unit without an owner, and so it would not learn it
// from a write.
func (u *unit) deposed(ctx context.Context, j *etcd.Journal) bool {
	ctx, cancel := context.WithTimeout(ctx, presenceEvery)
	defer cancel()
	o, ok, err := u.roster.cluster.Owner(ctx, u.name)
	return err == nil && (!ok || o.Epoch != j.Epoch())
}

// fetchMissing gets the code of modules that came to be after this server last
// looked, from whoever has it.
func (u *unit) fetchMissing(ctx context.Context, s *sched.Server) {
	missing, err := s.Missing(ctx)
	for err == nil && len(missing) > 0 {
		var from []string
		for id, p := range u.roster.look().servers {
			if id != u.conf.ID {
				from = append(from, p.Address)
			}
		}
		if missing = u.peers.fetch(ctx, u.conf.Modules, from, missing); len(missing) > 0 && !pause(ctx, catchUpEvery) {
			return
		}
	}
}

// rack holds the services of a unit while this server owns it.
type rack struct {
	sched    *sched.Server
	services map[string]any // by the service's name
	gone     chan struct{}  // closed when the unit is served no more
	clean    bool           // what was not answered by then was not done; valid when gone is closed

	mu     sync.RWMutex
	closed bool
	calls  sync.WaitGroup
}

func newRack(s *sched.Server) *rack {
	r := &rack{sched: s, services: map[string]any{}, gone: make(chan struct{})}
	s.Register(registrar(r.services))
	return r
}

// enter notes a call that uses the unit; it reports false when there is nothing
// to use any more. Who enters leaves.
func (r *rack) enter() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.closed {
		r.calls.Add(1)
	}
	return !r.closed
}

func (r *rack) leave() { r.calls.Done() }

// close cuts what is under way and waits for it: nobody reads the unit's store
// after that. clean says that the server ended in order.
func (r *rack) close(clean bool) {
	r.mu.Lock()
	r.closed, r.clean = true, clean
	r.mu.Unlock()
	close(r.gone)
	r.calls.Wait()
}

// peers are the other servers, to be asked for the code of modules.
type peers struct {
	token, caCert string // of members
	key           string // of servers alone
	log           *slog.Logger

	mu    sync.Mutex
	conns map[[2]string]*grpc.ClientConn // by address and token, see conn
}

// state has something fetch state from a server, as a server. One of an older
// version knows members only.
func (p *peers) state(address string, fetch func(apiv1.BackupsClient) error) (err error) {
	for _, token := range []string{p.key, p.token} {
		conn, derr := dialMember(address, token, p.caCert)
		if derr != nil {
			return derr
		}
		err = fetch(apiv1.NewBackupsClient(conn))
		conn.Close() //nolint:errcheck // nothing is under way
		if status.Code(err) != codes.Unauthenticated {
			break
		}
	}
	return err
}

// fetch gets the code of modules from the first of some servers that has it. It
// returns what is still missing.
func (p *peers) fetch(ctx context.Context, to *modules.Store, from, digests []string) []string {
	digests = slices.Clone(digests)
	for _, address := range from {
		if len(digests) == 0 || address == "" {
			continue
		}
		conn, err := dialMember(address, p.token, p.caCert)
		if err != nil {
			p.log.Warn("a server could not fetch the code of modules", "from", address, "error", err)
			continue
		}
		digests = slices.DeleteFunc(digests, func(digest string) bool {
			err := fetchModule(ctx, apiv1.NewWorkerClient(conn), to, digest)
			if err != nil && ctx.Err() == nil {
				p.log.Warn("a server could not fetch the code of a module", "digest", digest, "from", address, "error", err)
			}
			return err == nil
		})
		conn.Close() //nolint:errcheck // nothing is under way
	}
	return digests
}
