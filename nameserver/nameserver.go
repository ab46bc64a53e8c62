// Package nameserver knows which servers live and tells each host where to go.
//
// A server holds a stream open and reports its address and its load on it; when
// the stream has been gone for longer than the lease, the server is lost. Its
// state is rebuilt from these reports, so a nameserver that is restarted needs
// no disk. What it decides can move load; it can never break safety, which
// rests on epochs and on the journal.
package nameserver

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Config is what a nameserver is made of.
type Config struct {
	Lease time.Duration // how long a silent server keeps its apps; default 3 s
	// Settle is how long after its start the nameserver gives nobody an app that
	// it has not heard of: a server that lives, and has not come back yet, may
	// have it. Default: not at all, as is right for a server's own nameserver.
	Settle time.Duration
	Logger *slog.Logger // default: discard
}

// Nameserver is safe for concurrent use.
type Nameserver struct {
	apiv1.UnimplementedNameserverServer
	cfg     Config
	settled time.Time // until when it gives nobody an app

	mu      sync.Mutex
	servers map[string]*server
	owner   map[string]string // app -> server; sticky while the server is not lost
	units   units             // of the cluster, if the servers are one
	epoch   uint64
	changed chan struct{} // closed and replaced at every change of who is where
}

type server struct {
	report   *apiv1.ServerReport
	epoch    uint64
	joinedAt time.Time
	seenAt   time.Time
	up       bool // its stream is open
}

// New returns a nameserver that knows nobody.
func New(cfg Config) *Nameserver {
	cfg.Lease = cmp.Or(cfg.Lease, 3*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	n := &Nameserver{
		cfg: cfg, settled: time.Now().Add(cfg.Settle),
		servers: map[string]*server{}, owner: map[string]string{}, units: newUnits(), changed: make(chan struct{}),
	}
	if cfg.Settle > 0 {
		time.AfterFunc(cfg.Settle, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.notifyLocked()
		})
	}
	return n
}

// Register puts the service on r.
func (n *Nameserver) Register(r grpc.ServiceRegistrar) { apiv1.RegisterNameserverServer(r, n) }

// Load is a server as [Pick] sees it.
type Load struct {
	Server       string
	ScheduleRate float64 // fires and triggers a second, decaying
	Apps         int
}

// Pick returns the server that a new app goes to: the one with the smallest
// schedule rate. One that has just joined counts as idle and is used at once;
// among equals the one with the fewest apps, then the first by name.
func Pick(loads []Load) (string, bool) {
	if len(loads) == 0 {
		return "", false
	}
	best := slices.MinFunc(loads, func(a, b Load) int {
		return cmp.Or(cmp.Compare(a.ScheduleRate, b.ScheduleRate), cmp.Compare(a.Apps, b.Apps), cmp.Compare(a.Server, b.Server))
	})
	return best.Server, true
}

// Join is a server's session.
func (n *Nameserver) Join(stream apiv1.Nameserver_JoinServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.Server == "" || first.Address == "" {
		return status.Error(codes.InvalidArgument, "a server must report its id and its address")
	}
	s, err := n.join(first)
	if err != nil {
		n.cfg.Logger.Warn("a server was refused", "server", first.Server, "address", first.Address, "error", err)
		return err
	}
	n.cfg.Logger.Info("server joined", "server", first.Server, "address", first.Address)
	defer n.leave(first.Server, s)
	if err := stream.Send(&apiv1.ServerOrder{Epoch: s.epoch}); err != nil {
		return err
	}
	for {
		report, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(report.AllUnits) > 0 != (len(first.AllUnits) > 0) {
			return status.Error(codes.InvalidArgument, "a server reports units either always or never")
		}
		n.mu.Lock()
		report.Server = first.Server
		s.report, s.seenAt = report, time.Now()
		n.hearLocked(s)
		n.mu.Unlock()
	}
}

// join takes a server in. It takes nothing from another server that lives: neither
// its place, nor its apps.
func (n *Nameserver) join(r *apiv1.ServerReport) (*server, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.joinableLocked(r); err != nil {
		return nil, err
	}
	n.epoch++
	s := &server{report: r, epoch: n.epoch, joinedAt: time.Now(), seenAt: time.Now(), up: true}
	n.servers[r.Server] = s
	if len(r.AllUnits) > 0 {
		n.units.hear(r)
	} else {
		n.claimLocked(r)
	}
	n.notifyLocked()
	return s, nil
}

// joinableLocked refuses a server whose id, apps or units a live server holds; n.mu must
// be held.
func (n *Nameserver) joinableLocked(r *apiv1.ServerReport) error {
	if was := n.servers[r.Server]; was != nil && was.up && was.report.Address != r.Address {
		return status.Errorf(codes.AlreadyExists, "the server %s lives at %s, and this one says that it is the same at %s: each server needs a data directory of its own", r.Server, was.report.Address, r.Address)
	}
	for id, s := range n.servers {
		if id != r.Server && s.up && (len(s.report.AllUnits) > 0) != (len(r.AllUnits) > 0) {
			return status.Errorf(codes.FailedPrecondition, "the server %s and this one are not of one kind: either all servers of a nameserver share an etcd, or none does", id)
		}
	}
	return nil
}

// claimLocked gives a server the apps on its disk, except those that another server
// holds which lives; n.mu must be held.
func (n *Nameserver) claimLocked(r *apiv1.ServerReport) {
	now := time.Now()
	for _, app := range r.Apps {
		if id, ok := n.owner[app]; ok && id != r.Server && n.aliveLocked(n.servers[id], now) {
			n.cfg.Logger.Warn("a server has an app that another server holds: it stays with that", "app", app, "server", r.Server, "holder", id)
			continue
		}
		n.owner[app] = r.Server
	}
}

// hearLocked takes in what a server reports; n.mu must be held.
func (n *Nameserver) hearLocked(s *server) {
	if len(s.report.AllUnits) == 0 {
		n.adoptLocked(s)
		return
	}
	if n.servers[s.report.Server] == s && n.units.hear(s.report) {
		n.notifyLocked()
	}
}

// adoptLocked notes apps that a server holds and that have no owner yet, as
// those that came to be while this nameserver was away. n.mu must be held.
func (n *Nameserver) adoptLocked(s *server) {
	adopted := false
	for _, app := range s.report.Apps {
		if _, ok := n.owner[app]; !ok && n.servers[s.report.Server] == s {
			n.owner[app], adopted = s.report.Server, true
		}
	}
	if adopted {
		n.notifyLocked()
	}
}

// leave begins the lease of a server whose stream has ended.
func (n *Nameserver) leave(id string, s *server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.servers[id] != s {
		return // it has joined again
	}
	s.up = false
	s.seenAt = time.Now()
	n.cfg.Logger.Info("server left", "server", id)
	time.AfterFunc(n.cfg.Lease, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.notifyLocked()
	})
}

// notifyLocked wakes the watchers; n.mu must be held.
func (n *Nameserver) notifyLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// aliveLocked reports whether a server may be given to others.
func (n *Nameserver) aliveLocked(s *server, now time.Time) bool {
	return s != nil && (s.up || now.Sub(s.seenAt) < n.cfg.Lease)
}

// assignLocked returns the server of an app. A lost server's apps are on its
// disk: they wait for it. n.mu must be held.
func (n *Nameserver) assignLocked(app, unit string, now time.Time) *apiv1.Assignment {
	if len(n.units.all) > 0 {
		return n.ofUnitLocked(app, unit, now)
	}
	if id, ok := n.owner[app]; ok {
		if s := n.servers[id]; n.aliveLocked(s, now) {
			return &apiv1.Assignment{Server: id, Address: s.report.Address, Epoch: s.epoch}
		}
		return &apiv1.Assignment{}
	}
	if now.Before(n.settled) {
		return &apiv1.Assignment{}
	}
	apps := map[string]int{}
	for _, id := range n.owner {
		apps[id]++
	}
	var loads []Load
	for id, s := range n.servers {
		if s.up {
			loads = append(loads, Load{Server: id, ScheduleRate: s.report.ScheduleRate, Apps: apps[id]})
		}
	}
	id, ok := Pick(loads)
	if !ok {
		return &apiv1.Assignment{}
	}
	n.owner[app] = id
	return &apiv1.Assignment{Server: id, Address: n.servers[id].report.Address, Epoch: n.servers[id].epoch}
}

// ofUnitLocked returns the owner of a unit, or of an app's when unit is "". n.mu
// must be held.
func (n *Nameserver) ofUnitLocked(app, unit string, now time.Time) *apiv1.Assignment {
	a := &apiv1.Assignment{Unit: cmp.Or(unit, n.units.of(app)), Units: n.units.all}
	o := n.units.owner[a.Unit]
	if s := n.servers[o.server]; n.aliveLocked(s, now) {
		a.Server, a.Address, a.Epoch = o.server, s.report.Address, o.epoch
	}
	return a
}

// assign returns the assignment of an app, or of a unit, and a channel that is closed when it
// may have changed.
func (n *Nameserver) assign(app, unit string) (*apiv1.Assignment, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.assignLocked(app, unit, time.Now()), n.changed
}

// works reports whether a host is to have a session with the owner of a unit.
func (n *Nameserver) works(req *apiv1.WatchRequest) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.units.works(req.HostId, req.Apps, req.Unit)
}

// defaultApp is asked for by hosts that serve every app.
const defaultApp = "default"

// Watch sends a host its assignment, now and at every change.
func (n *Nameserver) Watch(req *apiv1.WatchRequest, stream apiv1.Nameserver_WatchServer) error {
	app := defaultApp
	if len(req.Apps) > 0 {
		app = req.Apps[0]
	}
	var last *apiv1.Assignment
	for {
		a, changed := n.assign(app, req.Unit)
		a.Leave = req.Unit != "" && !n.works(req)
		if last == nil || !proto.Equal(a, last) {
			if err := stream.Send(a); err != nil {
				return err
			}
			last = a
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// Route answers where an app's commands go.
func (n *Nameserver) Route(_ context.Context, req *apiv1.RouteRequest) (*apiv1.Assignment, error) {
	a, _ := n.assign(cmp.Or(req.App, defaultApp), "")
	if a.Server == "" && time.Now().Before(n.settled) {
		return nil, status.Error(codes.Unavailable, "the nameserver has just started and waits for the servers to come back: try again in a moment")
	}
	if a.Server == "" && a.Unit != "" {
		return nil, status.Errorf(codes.Unavailable, "the unit %s, where the app is, has no owner now: try again in a moment", a.Unit)
	}
	if a.Server == "" {
		return nil, status.Error(codes.Unavailable, "no server is alive: start one with `wheelwork server --nameserver ADDRESS`")
	}
	return a, nil
}

// ListServers lists servers by name.
func (n *Nameserver) ListServers(context.Context, *apiv1.ListServersRequest) (*apiv1.ListServersResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	resp := &apiv1.ListServersResponse{}
	for id, s := range n.servers {
		m := &apiv1.Server{
			Id: id, Address: s.report.Address, State: "up", ScheduleRate: s.report.ScheduleRate, Hosts: s.report.Hosts,
			Apps: s.report.Apps, Version: s.report.Version, JoinedAt: timestamppb.New(s.joinedAt), LastSeenAt: timestamppb.New(s.seenAt),
		}
		if !n.aliveLocked(s, now) {
			m.State = "lost"
		}
		resp.Servers = append(resp.Servers, m)
	}
	slices.SortFunc(resp.Servers, func(a, b *apiv1.Server) int { return cmp.Compare(a.Id, b.Id) })
	return resp, nil
}
