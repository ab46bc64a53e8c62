package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq/queue"
	"github.com/wheelworkhq/wheelwork/nameserver"
	"github.com/wheelworkhq/wheelwork/sched"
)

// EtcdConfig is the configuration of servers that share their journals in etcd. Each
// partition of the cluster has one owner; the other servers are its standbys and can take
// it over.
type EtcdConfig struct {
	Endpoints []string // addresses of etcd; none: the journal is on this server's disk
	Group     string   // the cluster name; default "main"
	// Units is the number of partitions of a new cluster, at most 24; default 6. It is
	// fixed afterwards.
	Units int
	// SplitRate is the rate, in schedules a second, from which an app may be split over
	// partitions. Default 500; negative: only operators split apps.
	SplitRate float64
	// MaxHosts bounds the hosts of a partition. Up to so many hosts in the cluster, each
	// works for all partitions; more are divided among them. An app with more hosts than
	// that may be split. Default 100; negative: hosts are never divided.
	MaxHosts int
	// Settle is the minimum dwell time of a partition with its owner, unless that is lost
	// or drained. Default 10 s.
	Settle time.Duration
	// Cert, Key and CA are files by which the server and etcd verify each other. "": no
	// TLS, on this machine only.
	Cert, Key, CA string

	member *etcd.Member // the etcd member in this process; nil: there is none
}

// defaultPartitions can be shared evenly by two servers and by three. A cluster may begin with
// one server and grow, and the number of partitions is fixed.
const defaultPartitions = 6

// maxPartitions bounds the number of partitions: one transaction of etcd has room for so many
// journals.
const maxPartitions = 24

// memberParts are the open parts of a server that is in a cluster.
type memberParts struct {
	closers
	data       *dataDir
	queue      *queue.Queue // the ingress
	id         string
	address    string
	view       *cluster.View
	partitions []*partition
	router     *router.Router
	balancer   *cluster.Balancer
	zone       string
	power      float64 // what this server can do, relative to the other servers
	trips      trips
	log        *slog.Logger
}

// trips are the durations of the last writes to etcd.
type trips struct {
	last [32]time.Duration
	n    int
}

func (t *trips) add(d time.Duration) {
	t.last[t.n%len(t.last)] = d
	t.n++
}

// tripsEnough is a number of writes of which at least one was not delayed, even on a busy
// machine.
const tripsEnough = 32

// least returns the shortest of the last writes, which is the round trip to etcd; 0 until
// there are enough of them. Longer writes show how busy the machine is, not where it is.
func (t *trips) least() time.Duration {
	if t.n < tripsEnough {
		return 0
	}
	return slices.Min(t.last[:min(t.n, len(t.last))])
}

// joinCluster connects to etcd. It also returns the address that this server tells the
// others.
func joinCluster(ctx context.Context, cfg ServerConfig, id string, log *slog.Logger) (*etcd.Cluster, string, error) {
	address := cmp.Or(cfg.Advertise, cfg.Listen)
	if _, port, err := net.SplitHostPort(address); err != nil || port == "0" {
		return nil, "", fmt.Errorf("servers that share a journal tell each other where they are: give --listen a port, or --advertise HOST:PORT, instead of %q", address)
	}
	var secure *tls.Config
	if cfg.Etcd.Cert != "" || cfg.Etcd.Key != "" || cfg.Etcd.CA != "" {
		var err error
		if secure, err = etcd.ClientTLS(cfg.Etcd.Cert, cfg.Etcd.Key, cfg.Etcd.CA); err != nil {
			return nil, "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	c, err := etcd.Connect(ctx, etcd.Config{Endpoints: cfg.Etcd.Endpoints, Member: cfg.Etcd.member, Grows: cfg.Cluster.On, Server: id, Address: address, TLS: secure, Logger: log})
	return c, address, withoutAnswer(err, cfg.Etcd.Endpoints)
}

// withoutAnswer explains a timeout of etcd with the addresses that the server must reach:
// a longer wait would not help.
func withoutAnswer(err error, endpoints []string) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("etcd at %s did not answer in time: this machine must reach the addresses in --etcd-endpoints, or for --cluster that in --cluster-advertise", strings.Join(endpoints, ", "))
}

// openMember joins the cluster and opens what the server has of each partition. conf
// holds the settings that the partitions share.
func openMember(ctx context.Context, d *dataDir, cfg ServerConfig, conf sched.Config, tokens processTokens, tel *telemetry, log *slog.Logger) (_ *memberParts, err error) {
	if cfg.Capacity < 0 || math.IsNaN(cfg.Capacity) || math.IsInf(cfg.Capacity, 0) {
		return nil, fmt.Errorf("--capacity %v: want a positive number, the processors of a usual server or so", cfg.Capacity)
	}
	m := &memberParts{id: conf.ID, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if cfg.Etcd.Units < 0 || cfg.Etcd.Units > maxPartitions {
		return nil, fmt.Errorf("--units %d: a cluster has 1 to %d", cfg.Etcd.Units, maxPartitions)
	}
	c, address, err := joinCluster(ctx, cfg, conf.ID, log)
	if err != nil {
		return nil, err
	}
	m.add(c)
	m.address = address
	m.view = cluster.NewView(c, cmp.Or(cfg.Etcd.Group, "main"), conf.ID, address, log)
	if err := m.view.Begin(ctx, cmp.Or(cfg.Etcd.Units, defaultPartitions)); err != nil {
		return nil, err
	}
	key, err := c.First(ctx, m.view.Group, cluster.RowKey, newToken("ws_"))
	if err != nil {
		return nil, err
	}
	p := &router.Peers{Token: cmp.Or(tokens.own(), key), Key: key, CACert: cfg.CACert, Log: log}
	m.add(p)
	m.router = &router.Router{View: m.view, Partitions: map[string]router.Hosted{}, Peers: p}
	for i, name := range m.view.Partitions {
		u := &partition{name: name, maxHosts: cmp.Or(cfg.Etcd.MaxHosts, cluster.DefaultMaxHosts), view: m.view, conf: conf, tel: tel, peers: p, log: log, dir: d.join}
		if i > 0 { // the first one is where a standalone server has its store
			u.dir = func(parts ...string) string { return d.join(append([]string{"units", name}, parts...)...) }
		}
		if u.conf.Modules, err = modules.Open(u.dir("modules")); err != nil {
			return nil, err
		}
		if err := u.openStore(ctx); err != nil {
			return nil, err
		}
		if len(m.view.Partitions) > 1 {
			u.conf.Remote = m.router.Remote(name)
			u.conf.Gathered = func(app string, have int) bool { return m.view.Gathered(name, app, have) }
		}
		u.router = m.router
		m.partitions = append(m.partitions, u)
		m.router.Partitions[name] = u
	}
	m.zone, m.power = cfg.Zone, cfg.Capacity
	if m.power == 0 {
		m.power = float64(runtime.GOMAXPROCS(0))
	}
	m.balancer = cluster.NewBalancer(m.view, cluster.BalancerConfig{Settle: cfg.Etcd.Settle, SplitRate: cfg.Etcd.SplitRate, MaxHosts: cfg.Etcd.MaxHosts}, log)
	return m, nil
}

// run takes part in the cluster until ctx ends.
func (m *memberParts) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	// The listener closes after the last partition was released. Until then callers must
	// learn the new owners, so the cluster view is followed until the parts are closed.
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	followed := make(chan error, 1)
	go func() { followed <- m.view.Follow(following) }()
	m.add(closeFunc(func() error {
		stop()
		return <-followed
	}))
	m.tell(ctx) // before it can own anything
	g.Go(func() error { return m.present(ctx) })
	g.Go(func() error { return m.balancer.Run(ctx) })
	for _, u := range m.partitions {
		g.Go(func() error { return u.live(ctx) })
	}
	return g.Wait()
}

// present writes this server's row in etcd regularly, until ctx ends.
func (m *memberParts) present(ctx context.Context) error {
	tick := time.NewTicker(presenceEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			m.tell(ctx)
		case <-ctx.Done():
			leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), presenceEvery)
			defer cancel()
			_ = m.view.Etcd.Forget(leaving, m.view.Group, cluster.RowHere+m.id) // otherwise the row ends with its lease
			return nil
		}
	}
}

func (m *memberParts) tell(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*presenceEvery)
	defer cancel()
	begin := time.Now()
	p := cluster.Presence{
		Address: m.address, Version: version.String(), At: begin.UnixMilli(), Splits: true, Divides: true, Passes: true, Owns: map[string]cluster.PartitionReport{}, Follows: map[string]cluster.FollowState{},
		Zone: m.zone, Capacity: m.power, TripUs: m.trips.least().Microseconds(),
	}
	for _, u := range m.partitions {
		if r := u.reports.Load(); r != nil {
			p.Owns[u.name] = *r
		} else {
			p.Follows[u.name] = cluster.FollowState{Applied: u.applied.Load(), Behind: u.behind.Load()}
		}
	}
	row, err := json.Marshal(p)
	if err == nil {
		err = m.view.Etcd.Note(ctx, m.view.Group, cluster.RowHere+m.id, string(row), true)
	}
	if err == nil {
		m.trips.add(time.Since(begin))
	}
	if err != nil && ctx.Err() == nil {
		m.log.Warn("etcd was not told that this server lives", "error", err)
	}
}

// owns returns the partitions that this server serves now, with their epochs, and the
// number of the host assignment. Hosts must learn a change of these at once.
func (m *memberParts) owns() string {
	var b strings.Builder
	for _, u := range m.partitions {
		if services := u.services.Load(); services != nil {
			fmt.Fprintf(&b, "%s=%d ", u.name, services.Sched.Epoch())
		}
	}
	if n := m.view.Divided().GetNumber(); n > 0 { // hosts wait for it
		fmt.Fprintf(&b, "hosts=%d", n)
	}
	return b.String()
}

// load returns this server's report to a nameserver.
func (m *memberParts) load(ctx context.Context) *apiv1.ServerReport {
	r := &apiv1.ServerReport{Server: m.id, Address: m.address, Version: version.String(), AllUnits: m.view.Partitions, HostAssignment: m.view.Divided()}
	for _, u := range m.partitions {
		services := u.services.Load()
		if services == nil || !services.Enter() {
			continue
		}
		l, err := services.Sched.Load(ctx)
		epoch := services.Sched.Epoch()
		services.Leave()
		if err != nil {
			continue
		}
		r.Units = append(r.Units, &apiv1.UnitReport{Unit: u.name, Epoch: epoch, ScheduleRate: l.ScheduleRate, Hosts: int32(l.Hosts), Apps: l.Apps})
		r.ScheduleRate += l.ScheduleRate
		r.Hosts = max(r.Hosts, int32(l.Hosts))
		r.Apps = append(r.Apps, l.Apps...)
	}
	slices.Sort(r.Apps)
	return r
}

// clusterNames is the nameserver in each server of a cluster: it answers from the state
// in etcd.
type clusterNames struct {
	apiv1.UnimplementedNameserverServer
	m *memberParts
}

func (n *clusterNames) partitionFor(partition, app string) string {
	if partition != "" {
		return partition
	}
	if partition, ok := n.m.view.PartitionOf(cmp.Or(app, "default")); ok {
		return partition
	}
	return n.m.view.Fallback()
}

// Route returns the owner of the partition that takes an app's commands. If there is
// none, it waits at most Patience for one.
func (n *clusterNames) Route(ctx context.Context, req *apiv1.RouteRequest) (*apiv1.Assignment, error) {
	ctx, cancel := context.WithTimeout(ctx, router.Patience)
	defer cancel()
	for {
		changed := n.m.view.Change()
		a := n.m.view.Assignment(n.partitionFor("", req.App))
		if a.Server != "" {
			return a, nil
		}
		select { // a call during a take-over is answered after it
		case <-changed:
		case <-ctx.Done():
			return nil, status.Errorf(codes.Unavailable, "the partition %s, where the app is, has no owner now: try again in a moment", a.Unit)
		}
	}
}

// Watch sends a host its assignment, now and at every change.
func (n *clusterNames) Watch(req *apiv1.WatchRequest, stream apiv1.Nameserver_WatchServer) error {
	if req.Unit != "" && n.m.router.Partitions[req.Unit] == nil {
		return status.Errorf(codes.NotFound, "the cluster has no partition %q", req.Unit)
	}
	app := ""
	if len(req.Apps) > 0 {
		app = req.Apps[0]
	}
	var last *apiv1.Assignment
	for {
		changed := n.m.view.Reroute()
		a := n.m.view.Assignment(n.partitionFor(req.Unit, app))
		a.Leave = req.Unit != "" && !n.m.view.Works(req)
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

// Join refuses every server: those of the cluster are in etcd, and no other server can
// join.
func (n *clusterNames) Join(stream apiv1.Nameserver_JoinServer) error {
	report, err := stream.Recv()
	if err != nil {
		return err
	}
	if len(report.AllUnits) == 0 {
		return nameserver.Taken(&apiv1.ServerReport{Server: n.m.id, Address: n.m.address, AllUnits: n.m.view.Partitions})
	}
	return status.Error(codes.FailedPrecondition, "this server is of a cluster on etcd, and nameserver of that alone: start the other server with the same --etcd-endpoints")
}

// ListServers lists servers by id.
func (n *clusterNames) ListServers(context.Context, *apiv1.ListServersRequest) (*apiv1.ListServersResponse, error) {
	v := n.m.view.Snapshot()
	resp := &apiv1.ListServersResponse{}
	for id, p := range v.Servers {
		s := &apiv1.Server{Id: id, Address: p.Address, State: "up", Version: p.Version, LastSeenAt: timestamppb.New(time.UnixMilli(p.At))}
		if v.Draining[id] {
			s.State = "draining"
		}
		for _, u := range p.Owns {
			s.ScheduleRate += u.Rate
			s.Hosts = max(s.Hosts, int32(u.Hosts))
		}
		for partition, o := range v.Owners {
			if o.Server == id {
				s.Apps = append(s.Apps, n.m.view.AppsOf(partition)...)
			}
		}
		slices.Sort(s.Apps)
		resp.Servers = append(resp.Servers, s)
	}
	slices.SortFunc(resp.Servers, func(a, b *apiv1.Server) int { return strings.Compare(a.Id, b.Id) })
	return resp, nil
}

// membership shows and moves the ownership of partitions.
type membership struct {
	apiv1.UnimplementedMembershipServer
	m *memberParts
}

// GetCluster shows the cluster as this server sees it.
func (s *membership) GetCluster(ctx context.Context, _ *apiv1.GetClusterRequest) (*apiv1.ClusterStatus, error) {
	leader, err := s.m.balancer.Leader(ctx)
	if err != nil && ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return cluster.Status(s.m.view.Snapshot(), s.m.view.Group, s.m.id, leader, s.m.view.Etcd.Refuses()), nil
}

// DrainServer asks a server to give away the partitions that it owns. It does not wait
// until it has.
func (s *membership) DrainServer(ctx context.Context, req *apiv1.DrainServerRequest) (*apiv1.ClusterStatus, error) {
	v := s.m.view.Snapshot()
	id, err := v.Find(req.Server)
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	others := 0
	for other := range v.Servers {
		if other != id && !v.Draining[other] {
			others++
		}
	}
	if others == 0 {
		return nil, status.Errorf(codes.FailedPrecondition, "the server %s is the only one that may own anything: start another one, or undrain one, before it is drained", id)
	}
	if err := s.m.view.Etcd.Note(ctx, s.m.view.Group, cluster.RowDrain+id, "1", false); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return s.after(ctx, func(v cluster.Snapshot) bool { return v.Draining[id] })
}

// UndrainServer lets a server own partitions again.
func (s *membership) UndrainServer(ctx context.Context, req *apiv1.UndrainServerRequest) (*apiv1.ClusterStatus, error) {
	v := s.m.view.Snapshot()
	id := req.Server
	if !v.Draining[id] { // a lost server is known by its id alone
		var err error
		if id, err = v.Find(req.Server); err != nil {
			return nil, status.Error(codes.NotFound, err.Error())
		}
	}
	if err := s.m.view.Etcd.Forget(ctx, s.m.view.Group, cluster.RowDrain+id); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return s.after(ctx, func(v cluster.Snapshot) bool { return !v.Draining[id] })
}

// MoveUnit assigns a partition to a server. It does not wait for the move.
func (s *membership) MoveUnit(ctx context.Context, req *apiv1.MoveUnitRequest) (*apiv1.ClusterStatus, error) {
	v := s.m.view.Snapshot()
	if !slices.Contains(v.Partitions, req.Unit) {
		return nil, status.Errorf(codes.NotFound, "the cluster has no partition %q: it has %s", req.Unit, strings.Join(v.Partitions, ", "))
	}
	id, err := v.Find(req.Server)
	if err != nil {
		return nil, status.Error(codes.NotFound, err.Error())
	}
	if v.Draining[id] {
		return nil, status.Errorf(codes.FailedPrecondition, "the server %s is drained: `wheelwork cluster undrain %s` first", id, req.Server)
	}
	if err := s.m.view.Etcd.Note(ctx, s.m.view.Group, cluster.RowWant+req.Unit, id, false); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return s.after(ctx, func(v cluster.Snapshot) bool { return v.Wants[req.Unit] == id })
}

// Forward applies commands that another server has accepted.
func (s *membership) Forward(ctx context.Context, req *apiv1.ForwardRequest) (*apiv1.ForwardResponse, error) {
	n := len(req.Commands)
	if n > router.MaxCommands || len(req.AtMs) != n || (len(req.Runs) != n && len(req.Runs) != 0) {
		return nil, status.Errorf(codes.InvalidArgument, "%d commands with %d times and %d runs: want at most %d, and a time and a run for each", n, len(req.AtMs), len(req.Runs), router.MaxCommands)
	}
	accepted := make([]*apiv1.Ingress, n)
	for i, c := range req.Commands {
		accepted[i] = &apiv1.Ingress{Command: c, AtMs: req.AtMs[i], TraceParent: req.TraceParent}
		if len(req.Runs) > 0 {
			accepted[i].Run = req.Runs[i]
		}
	}
	results, err := s.m.router.Apply(context.WithValue(ctx, router.Forwarded{}, true), accepted, req.Again)
	return &apiv1.ForwardResponse{Results: results}, err
}

// after returns the status of the cluster once this server has seen a change that was
// made, or after 1 s.
func (s *membership) after(ctx context.Context, seen func(cluster.Snapshot) bool) (*apiv1.ClusterStatus, error) {
	waiting, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		changed := s.m.view.Change()
		if seen(s.m.view.Snapshot()) {
			break
		}
		select {
		case <-changed:
			continue
		case <-waiting.Done():
		}
		break
	}
	return s.GetCluster(ctx, &apiv1.GetClusterRequest{})
}

// alone answers for a standalone server.
type alone struct {
	apiv1.UnimplementedMembershipServer
	names apiv1.NameserverClient
	id    string
}

// GetCluster shows the servers that the nameserver knows. Each owns the state on its
// disk.
func (s *alone) GetCluster(ctx context.Context, _ *apiv1.GetClusterRequest) (*apiv1.ClusterStatus, error) {
	list, err := s.names.ListServers(ctx, &apiv1.ListServersRequest{})
	if err != nil {
		return nil, err
	}
	st := &apiv1.ClusterStatus{Server: s.id}
	for _, m := range list.Servers {
		st.Servers = append(st.Servers, &apiv1.Member{
			Id: m.Id, Address: m.Address, State: m.State, Version: m.Version, ScheduleRate: m.ScheduleRate, LastSeenAt: m.LastSeenAt,
		})
		st.Apps += int32(len(m.Apps))
	}
	return st, nil
}

var errAlone = status.Error(codes.FailedPrecondition, "this server keeps its journal on its own disk: what it owns stays with it. Servers that share their journals in etcd (--etcd-endpoints) move what they own")

// DrainServer is refused.
func (s *alone) DrainServer(context.Context, *apiv1.DrainServerRequest) (*apiv1.ClusterStatus, error) {
	return nil, errAlone
}

// UndrainServer is refused.
func (s *alone) UndrainServer(context.Context, *apiv1.UndrainServerRequest) (*apiv1.ClusterStatus, error) {
	return nil, errAlone
}

// Forward is refused.
func (s *alone) Forward(context.Context, *apiv1.ForwardRequest) (*apiv1.ForwardResponse, error) {
	return nil, errAlone
}

// MoveUnit is refused.
func (s *alone) MoveUnit(context.Context, *apiv1.MoveUnitRequest) (*apiv1.ClusterStatus, error) {
	return nil, errAlone
}
