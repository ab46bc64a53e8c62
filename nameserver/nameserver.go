// Package nameserver tells hosts which server to connect to.
//
// A server holds a stream open and reports its address and its load on it. When the
// stream has been gone for longer than the lease, the server counts as lost. All state
// follows from these reports, so a nameserver needs no disk and may restart. Its answers
// can move load. They cannot break safety, which rests on epochs and on the journal.
//
// Several servers that report to one nameserver belong to one cluster. A standalone
// server has a nameserver to itself ([Taken]).
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

// Config configures a nameserver.
type Config struct {
	Lease time.Duration // time for which a silent server stays known; default 3 s
	// Only is the id of the one server that may join; a server sets it for its own
	// nameserver. With "" a standalone server may join while no other server lives.
	Only   string
	Logger *slog.Logger // default: discard
}

// Nameserver is safe for concurrent use.
type Nameserver struct {
	apiv1.UnimplementedNameserverServer
	cfg Config

	mu         sync.Mutex
	servers    map[string]*server
	alone      string     // id of the standalone server that joined last; "": the servers form a cluster
	partitions partitions // partitions of the cluster
	epoch      uint64
	changed    chan struct{} // closed and replaced when any assignment changes
}

type server struct {
	report   *apiv1.ServerReport
	epoch    uint64
	joinedAt time.Time
	seenAt   time.Time
	up       bool // its stream is open
}

// New returns a nameserver without servers.
func New(cfg Config) *Nameserver {
	cfg.Lease = cmp.Or(cfg.Lease, 3*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Nameserver{cfg: cfg, servers: map[string]*server{}, partitions: newPartitions(), changed: make(chan struct{})}
}

// Register registers the service on r.
func (n *Nameserver) Register(r grpc.ServiceRegistrar) { apiv1.RegisterNameserverServer(r, n) }

// Join implements the session of a server.
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
		if clustered(report) != clustered(first) {
			return status.Error(codes.InvalidArgument, "a server reports partitions either always or never")
		}
		n.mu.Lock()
		report.Server = first.Server
		s.report, s.seenAt = report, time.Now()
		n.hearLocked(s)
		n.mu.Unlock()
	}
}

// join adds a server. It takes neither the hosts nor the partitions of another live
// server.
func (n *Nameserver) join(r *apiv1.ServerReport) (*server, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if err := n.joinableLocked(r, now); err != nil {
		return nil, err
	}
	n.epoch++
	s := &server{report: r, epoch: n.epoch, joinedAt: now, seenAt: now, up: true}
	n.servers[r.Server] = s
	if clustered(r) {
		n.alone = ""
		n.partitions.receive(r)
	} else {
		n.alone = r.Server
	}
	n.notifyLocked()
	return s, nil
}

// joinableLocked refuses a server whose id a live server uses at another address. It
// refuses a standalone server while another server lives, and a server of a cluster while
// a standalone server is up. With Config.Only it refuses all other ids. n.mu must be
// held.
func (n *Nameserver) joinableLocked(r *apiv1.ServerReport, now time.Time) error {
	if was := n.servers[r.Server]; was != nil && was.up && was.report.Address != r.Address {
		return status.Errorf(codes.AlreadyExists, "the server %s is live at %s, and another server with the same id is at %s: each server needs a data directory of its own", r.Server, was.report.Address, r.Address)
	}
	for id, s := range n.servers {
		if id == r.Server {
			continue
		}
		switch {
		case !clustered(r) && n.aliveLocked(s, now):
			return Taken(s.report)
		case clustered(r) && s.up && !clustered(s.report):
			return status.Errorf(codes.FailedPrecondition, "the server %s at %s works with this nameserver and is of no cluster: stop it, or make it the first server of the cluster with `wheelwork cluster init` (docs/cluster.md)", id, s.report.Address)
		}
	}
	if n.cfg.Only != "" && r.Server != n.cfg.Only {
		return status.Errorf(codes.Unavailable, "this is the own nameserver of the server %s, which has not joined yet: try again in a moment", n.cfg.Only)
	}
	return nil
}

// hearLocked merges a report of a server. n.mu must be held.
func (n *Nameserver) hearLocked(s *server) {
	if clustered(s.report) && n.servers[s.report.Server] == s && n.partitions.receive(s.report) {
		n.notifyLocked()
	}
}

// leave starts the lease of a server whose stream has ended.
func (n *Nameserver) leave(id string, s *server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.servers[id] != s {
		return // the server has joined again
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

// notifyLocked wakes the watchers. n.mu must be held.
func (n *Nameserver) notifyLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// aliveLocked reports whether hosts may be sent to a server. n.mu must be held.
func (n *Nameserver) aliveLocked(s *server, now time.Time) bool {
	return s != nil && (s.up || now.Sub(s.seenAt) < n.cfg.Lease)
}

// assignLocked returns the server of an app or of a partition. n.mu must be held.
func (n *Nameserver) assignLocked(app, partition string, now time.Time) *apiv1.Assignment {
	switch s := n.servers[n.alone]; {
	case s != nil && partition == "" && n.aliveLocked(s, now):
		return &apiv1.Assignment{Server: n.alone, Address: s.report.Address, Epoch: s.epoch}
	case s != nil || len(n.partitions.all) == 0:
		return &apiv1.Assignment{}
	}
	return n.ofPartitionLocked(app, partition, now)
}

// ofPartitionLocked returns the owner of a partition or, if unit is "", of the partition of an
// app. n.mu must be held.
func (n *Nameserver) ofPartitionLocked(app, partition string, now time.Time) *apiv1.Assignment {
	a := &apiv1.Assignment{Unit: cmp.Or(partition, n.partitions.of(app)), Units: n.partitions.all}
	o := n.partitions.owner[a.Unit]
	if s := n.servers[o.server]; n.aliveLocked(s, now) {
		a.Server, a.Address, a.Epoch = o.server, s.report.Address, o.epoch
	}
	return a
}

// assign returns the assignment of an app or of a partition, and a channel that is closed
// when it may have changed.
func (n *Nameserver) assign(app, partition string) (*apiv1.Assignment, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.assignLocked(app, partition, time.Now()), n.changed
}

// works reports whether a host should have a session with the owner of a partition.
func (n *Nameserver) works(req *apiv1.WatchRequest) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.partitions.works(req.HostId, req.Apps, req.Unit)
}

// defaultApp is the app in the requests of hosts that serve every app.
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

// Route returns the server that accepts the commands of an app.
func (n *Nameserver) Route(_ context.Context, req *apiv1.RouteRequest) (*apiv1.Assignment, error) {
	a, _ := n.assign(cmp.Or(req.App, defaultApp), "")
	if a.Server == "" && a.Unit != "" {
		return nil, status.Errorf(codes.Unavailable, "the partition %s, where the app is, has no owner now: try again in a moment", a.Unit)
	}
	if a.Server == "" {
		return nil, status.Error(codes.Unavailable, "no server is alive, or this nameserver has just started and none has come back yet: try again in a moment, or start one with `wheelwork server --nameserver ADDRESS`")
	}
	return a, nil
}

// ListServers lists the servers by name.
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
