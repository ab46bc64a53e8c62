package partition

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/life"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/cluster/slotmover"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/store"
)

const (
	// catchUpEvery is how far behind the owner a standby may be.
	catchUpEvery = 2 * time.Second
	// accessEvery is the same for the partition with the access state: a revoked token must be
	// refused everywhere within two seconds.
	accessEvery = time.Second
	// standbyAgain is the pause after a request that etcd did not answer.
	standbyAgain = time.Second
	// checkpointEvery is how often a standby reports its position even if that has not
	// changed: an earlier report may have ended with a lease.
	checkpointEvery = 10 * time.Second
	// flushPatience is how long an owner that ends waits until etcd has what it accepted,
	// in addition to the lease for which the journal itself waits.
	flushPatience = 5 * time.Second
	// reportEvery is how often an owner reports the partition.
	reportEvery = time.Second
)

// Config configures a [Replica].
type Config struct {
	Name   string                      // of the partition
	Dir    func(path ...string) string // where its files are
	Retain store.Retention
	View   *cluster.View
	Sched  sched.Config // what the partitions of a server share
	// Meter returns the meter of the partition. unregister ends the metrics of that meter.
	Meter func(partition string) (_ metric.Meter, unregister func(), err error)
	// MaxHosts is the number of hosts up to which the partition reports nothing of them,
	// because each works for every partition. Negative: it never reports them, unless
	// hosts are divided already.
	MaxHosts int
	Router   *router.Router
	Logger   *slog.Logger
}

// Replica is a partition as this server has it. The server is either its owner, which
// serves it, or a standby, with its store near the end of the journal and the code of
// modules on its disk. Package life decides when it changes between the two; the methods
// of [life.Effects] carry that out.
type Replica struct {
	// Operations makes the service of operations for each ownership. It is set before Run; nil: there
	// is none.
	Operations func() sched.Operations

	name     string
	maxHosts int
	dir      func(...string) string
	retain   store.Retention
	view     *cluster.View
	conf     sched.Config // without Journal, Epoch and Meter
	meter    func(string) (metric.Meter, func(), error)
	router   *router.Router
	log      *slog.Logger

	services atomic.Pointer[router.Services]         // nil while the server does not own the partition
	mover    atomic.Pointer[slotmover.Mover]         // likewise
	report   atomic.Pointer[cluster.PartitionReport] // likewise
	applied  atomic.Uint64                           // last record in the store of a standby
	behind   atomic.Bool                             // the journal does not reach back to the end of that store

	// Only the goroutine of Run uses these.
	store   *store.Store
	aside   aside
	standby *sched.Standby // nil while there is none
	owned   *ownership     // nil on a standby
}

// Open opens the files of a partition. Run must be called afterwards, and closes them.
func Open(ctx context.Context, cfg Config) (_ *Replica, err error) {
	r := &Replica{
		name: cfg.Name, maxHosts: cfg.MaxHosts, dir: cfg.Dir, retain: cfg.Retain, view: cfg.View, conf: cfg.Sched, meter: cfg.Meter, router: cfg.Router, log: cfg.Logger,
	}
	r.conf.Partition = r.name
	if r.conf.Modules, err = modules.Open(r.dir("modules")); err != nil {
		return nil, err
	}
	if err := r.openStore(ctx); err != nil {
		return nil, err
	}
	if len(r.view.Partitions) > 1 {
		r.conf.Remote = r.router.Remote(r.name)
		r.conf.Gathered = func(app string, have int) bool { return r.view.Gathered(r.name, app, have) }
	}
	return r, nil
}

// Run runs the life of the partition until ctx ends. An error means that the process
// should end: the disk failed, or it holds what cannot be continued.
func (r *Replica) Run(ctx context.Context) (err error) {
	defer func() {
		if r.store != nil { // nil: it was closed, and could not be opened again
			err = errors.Join(err, r.store.Close())
		}
	}()
	return life.Run(ctx, r)
}

// standing returns what this server sees of the partition.
func (r *Replica) standing() (life.Standing, etcd.Owner) {
	s := r.view.StandingOf(r.name)
	return life.Standing{Owner: s.Owner.Server, Epoch: s.Owner.Epoch, Want: s.Want, Ready: s.Ready}, s.Owner
}

func (r *Replica) setReport(l sched.Load, c cluster.DemandReport) {
	report := &cluster.PartitionReport{Rate: l.ScheduleRate, Hosts: l.Hosts, Apps: len(l.Apps), Zone: l.Zone, Rates: ratesOf(l.Shares), DemandReport: c}
	if mover := r.mover.Load(); mover != nil {
		report.Stuck = mover.Stuck()
	}
	r.report.Store(report)
}

// demand returns what the owner of a partition reports of its hosts. The report is empty
// while there are so few hosts that the balancer does not need it.
func (r *Replica) demand(ctx context.Context, s *sched.Server, hosts int, since time.Time) (d cluster.DemandReport) {
	if len(r.view.Partitions) < 2 || r.view.Divided().GetUnitsPerHost() == 0 && (r.maxHosts < 0 || hosts <= r.maxHosts) {
		return d
	}
	c, err := s.HostDemand(ctx)
	if err != nil {
		return d
	}
	return r.view.Count(r.name, c, time.Since(since) >= cluster.DemandSettles)
}

// Serving implements [router.Hosted].
func (r *Replica) Serving() *router.Services { return r.services.Load() }

// Code implements [router.Hosted].
func (r *Replica) Code() *modules.Store { return r.conf.Modules }

// CopyOut implements [router.Hosted].
func (r *Replica) CopyOut(ctx context.Context, app string) error {
	mover := r.mover.Load()
	if mover == nil {
		return status.Errorf(codes.Unavailable, "the partition %s goes to another server", r.name)
	}
	return mover.CopyOut(ctx, app)
}

// Name returns the name of the partition.
func (r *Replica) Name() string { return r.name }

// Store returns the store of the partition. A caller that entered the services of the
// partition may read it until it leaves them.
func (r *Replica) Store() *store.Store { return r.conf.Store }

// Report returns what the owner of the partition reports; nil: this server is a standby.
func (r *Replica) Report() *cluster.PartitionReport { return r.report.Load() }

// Progress returns the progress of the standby.
func (r *Replica) Progress() cluster.FollowState {
	return cluster.FollowState{Applied: r.applied.Load(), Behind: r.behind.Load()}
}

// maxRated is the number of apps of which a partition reports the rates.
const maxRated = 20

// ratesOf returns the rates of the slots of the apps with the highest rates.
func ratesOf(shares map[string]sched.Share) map[string][]float64 {
	type rated struct {
		app string
		sum float64
	}
	var all []rated
	for app, sh := range shares {
		sum := 0.0
		for _, rate := range sh.Rates {
			sum += rate
		}
		if sum > 0.01 {
			all = append(all, rated{app, sum})
		}
	}
	slices.SortFunc(all, func(a, b rated) int { return cmp.Or(-cmp.Compare(a.sum, b.sum), cmp.Compare(a.app, b.app)) })
	rates := map[string][]float64{}
	for _, x := range all[:min(len(all), maxRated)] {
		sh := shares[x.app]
		for _, rate := range sh.Rates {
			rates[x.app] = append(rates[x.app], float64(int64(rate*100))/100)
		}
	}
	return rates
}
