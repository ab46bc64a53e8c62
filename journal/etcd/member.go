package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/tlsutil"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// MemberConfig configures an etcd member in this process.
type MemberConfig struct {
	Name   string // of the member: the server's id
	Dir    string // for its files
	Client string // URL at which servers reach it
	Peer   string // URL at which the other members reach it
	// ListenClient and ListenPeer are the URLs to listen at, if they differ from those at
	// which others reach the member; default Client and Peer.
	ListenClient, ListenPeer string
	// Members are the peer URLs of the first members by name, this member included; nil:
	// it is the only one. They count only while Dir is new; later etcd knows its members.
	Members map[string]string
	// Join are client URLs of a running cluster: if Dir is new, the member is added to
	// that cluster. It excludes Members.
	Join  []string
	Token string // of the cluster, so that members of two clusters never mix; default "wheelwork"

	// The certificate files of the member towards clients and other members, which must
	// both present a certificate of the same authority. "": no TLS, which is allowed on
	// loopback addresses only.
	Cert, Key, CA string
	// ServerName is a name that the certificates of all members and clients must have, whatever their addresses; "": a
	// certificate has the address of its member, and any of the authority's lets a client in.
	ServerName string

	Quota     int64         // bytes of the database; default 8 GiB
	Heartbeat time.Duration // default 100 ms
	Election  time.Duration // default ten heartbeats
	NoSync    bool          // for tests: a crash of the machine loses acknowledged records
	Logger    *slog.Logger  // default: discard
}

// Member is an etcd member in this process.
type Member struct {
	etcd   *embed.Etcd
	client string
	doors  *doors
	quiet  *atomic.Bool // silences its log
}

// doors holds the gRPC servers through which clients reach the member.
type doors struct {
	mu      sync.Mutex
	servers []*grpc.Server
	closed  bool
}

func (d *doors) add(s *grpc.Server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		s.Stop()
		return
	}
	d.servers = append(d.servers, s)
}

// close ends all requests of clients, streams included, and returns when no handler runs,
// or after patience.
func (d *doors) close(patience time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	var each sync.WaitGroup
	for _, s := range d.servers {
		each.Go(s.Stop)
	}
	done := make(chan struct{})
	go func() { each.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience):
	}
}

// addresses holds the parsed URLs of a member.
type addresses struct{ client, peer, listenClient, listenPeer *url.URL }

func (c *MemberConfig) check() (a addresses, err error) {
	if !validName(c.Name) {
		return a, fmt.Errorf("etcd: %q is not a member's name: use 1 to 200 letters, digits and . _ - ~", c.Name)
	}
	if len(c.Members) > 0 && len(c.Join) > 0 {
		return a, errors.New("etcd: a member either begins a cluster or joins one")
	}
	if at, ok := c.Members[c.Name]; len(c.Members) > 0 && (!ok || at != c.Peer) {
		return a, fmt.Errorf("etcd: the members of the cluster do not include %s=%s", c.Name, c.Peer)
	}
	secure := c.Cert != ""
	if secure != (c.Key != "") || secure != (c.CA != "") {
		return a, errors.New("etcd: TLS needs a certificate, its key and the authority: give all three or none")
	}
	for _, x := range []struct {
		to *(*url.URL)
		s  string
	}{
		{&a.client, c.Client},
		{&a.peer, c.Peer},
		{&a.listenClient, cmp.Or(c.ListenClient, c.Client)},
		{&a.listenPeer, cmp.Or(c.ListenPeer, c.Peer)},
	} {
		if *x.to, err = c.address(x.s, secure); err != nil {
			return a, err
		}
	}
	return a, nil
}

// address parses a URL. Beyond this machine TLS is required, because a client of etcd can
// write everything.
func (c *MemberConfig) address(s string, secure bool) (*url.URL, error) {
	u, err := url.Parse(s)
	want := "http"
	if secure {
		want = "https"
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("etcd: %q is no URL: %w", s, err)
	case u.Scheme != want || u.Port() == "" || strings.Trim(u.Path, "/") != "":
		return nil, fmt.Errorf("etcd: %q is not %s://HOST:PORT", s, want)
	case !secure && !loopback(u.Hostname()):
		return nil, fmt.Errorf("etcd: %s is not on this machine: TLS is required, give a certificate, its key and the authority", s)
	}
	return u, nil
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// tlsConfig returns the TLS configuration of this process as a client of other members;
// nil: no TLS.
func (c *MemberConfig) tlsConfig() (*tls.Config, error) {
	if c.Cert == "" {
		return nil, nil
	}
	return ClientTLS(c.Cert, c.Key, c.CA, c.ServerName)
}

// ClientTLS reads the certificate files with which a server authenticates itself to etcd
// and verifies etcd. serverName is as in [MemberConfig].
func ClientTLS(cert, key, ca, serverName string) (*tls.Config, error) {
	info := transport.TLSInfo{CertFile: cert, KeyFile: key, TrustedCAFile: ca, MinVersion: tls.VersionTLS13, ServerName: serverName}
	conf, err := info.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read the certificates towards etcd: %w", err)
	}
	return conf, nil
}

// Start starts a member and waits until it serves and is a voter, or until ctx ends. That
// needs a majority of the members, and the member must have caught up with them.
func Start(ctx context.Context, cfg MemberConfig) (*Member, error) {
	at, err := cfg.check()
	if err != nil {
		return nil, err
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	quiet, in := &atomic.Bool{}, &doors{}
	e := embed.NewConfig()
	e.ServiceRegister, e.GRPCAdditionalServerOptions = in.add, []grpc.ServerOption{grpc.WaitForHandlers(true)}
	e.Name, e.Dir = cfg.Name, filepath.Clean(cfg.Dir)
	e.ListenClientUrls, e.AdvertiseClientUrls = []url.URL{*at.listenClient}, []url.URL{*at.client}
	e.ListenPeerUrls, e.AdvertisePeerUrls = []url.URL{*at.listenPeer}, []url.URL{*at.peer}
	e.InitialCluster = cfg.Name + "=" + cfg.Peer
	if len(cfg.Members) > 0 {
		e.InitialCluster = memberList(cfg.Members)
	}
	e.InitialClusterToken = cmp.Or(cfg.Token, "wheelwork")
	if cfg.Cert != "" {
		info := transport.TLSInfo{CertFile: cfg.Cert, KeyFile: cfg.Key, TrustedCAFile: cfg.CA, ClientCertAuth: true}
		if cfg.ServerName != "" {
			// Hosts have certificates of the same authority, without this name.
			info.ServerName, info.AllowedHostnames, info.SkipClientSANVerify = cfg.ServerName, []string{cfg.ServerName}, true
		}
		e.ClientTLSInfo, e.PeerTLSInfo, e.TlsMinVersion = info, info, string(tlsutil.TLSVersion13)
	}
	e.QuotaBackendBytes = cmp.Or(cfg.Quota, 8<<30)
	beat := cmp.Or(cfg.Heartbeat, 100*time.Millisecond)
	election := cmp.Or(cfg.Election, 10*beat)
	e.TickMs, e.ElectionMs = uint(beat.Milliseconds()), uint(election.Milliseconds())
	e.UnsafeNoFsync = cfg.NoSync
	// The servers compact the history, because they know which standbys follow it.
	e.AutoCompactionRetention = "0"
	e.EnableGRPCGateway = false
	e.LogLevel = "error"
	e.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(&core{cfg.Logger, quiet}))
	if len(cfg.Join) > 0 && !cfg.begun() {
		if e.InitialCluster, err = cfg.join(ctx); err != nil {
			return nil, err
		}
		e.ClusterState = embed.ClusterStateFlagExisting
	}
	started, err := embed.StartEtcd(e)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", cfg.Dir, err)
	}
	select {
	case <-started.Server.ReadyNotify():
		if err = cfg.promote(ctx, started); err == nil {
			return &Member{started, cfg.Client, in, quiet}, nil
		}
	case err = <-started.Err():
	case <-started.Server.StopNotify():
		err = errors.New("it stopped: see its log")
	case <-ctx.Done():
		err = fmt.Errorf("a majority of its members does not answer: %w", ctx.Err())
	}
	in.close(doorPatience)
	started.Server.HardStop() // a member that never had a leader cannot stop in order
	started.Close()
	return nil, fmt.Errorf("start etcd in %s: %w", cfg.Dir, err)
}

func memberList(m map[string]string) string {
	var list []string
	for name, at := range m {
		list = append(list, name+"="+at)
	}
	slices.Sort(list)
	return strings.Join(list, ",")
}

// begun reports whether the directory has the files of a member, which name the other
// members.
func (c *MemberConfig) begun() bool {
	_, err := os.Stat(filepath.Join(c.Dir, "member", "wal"))
	return err == nil
}

// join adds the member to the cluster as a learner and returns the list of all members.
// If an unfinished start has already added it, that entry is used. If it was a member
// that ran, its files are lost, and with them all votes and log entries that it
// acknowledged: join removes it first.
func (c *MemberConfig) join(ctx context.Context) (string, error) {
	at := strings.Join(c.Join, ", ")
	secure, err := c.tlsConfig()
	if err != nil {
		return "", err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: c.Join, TLS: secure, DialTimeout: 5 * time.Second, Logger: bridge(c.Logger)})
	if err != nil {
		return "", fmt.Errorf("join the cluster at %s: %w", at, err)
	}
	defer client.Close() //nolint:errcheck // nothing is under way
	var members []*pb.Member
	err = patiently(ctx, func(ctx context.Context) (err error) {
		members, err = c.enter(ctx, client)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("join the cluster at %s: %w", at, err)
	}
	all := map[string]string{}
	for _, m := range members {
		name := m.Name
		if slices.Contains(m.PeerURLs, c.Peer) {
			name = c.Name
		}
		if name == "" || len(m.PeerURLs) == 0 {
			return "", fmt.Errorf("the cluster at %s has a member that was added and never started (%v): first start or remove it", at, m.PeerURLs)
		}
		all[name] = m.PeerURLs[0]
	}
	return memberList(all), nil
}

// enter takes the next step towards a list of members that includes this one. It reads
// the list each time, because the outcome of an attempt without an answer is unknown.
func (c *MemberConfig) enter(ctx context.Context, client *clientv3.Client) ([]*pb.Member, error) {
	list, err := client.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	self := slices.IndexFunc(list.Members, func(m *pb.Member) bool { return slices.Contains(m.PeerURLs, c.Peer) })
	if self >= 0 && list.Members[self].Name == "" {
		return list.Members, nil
	}
	if self >= 0 {
		lost := list.Members[self]
		if _, err := client.MemberRemove(ctx, lost.ID); err != nil {
			return nil, err
		}
		c.Logger.Info("a member of etcd whose files are lost was removed, and joins again", "name", lost.Name, "peer", c.Peer)
	}
	if slices.ContainsFunc(list.Members, func(m *pb.Member) bool { return m.IsLearner }) {
		// etcd would refuse the member, and yet restarted members would call it by the number that was refused.
		return nil, rpctypes.ErrTooManyLearners
	}
	added, err := client.MemberAddAsLearner(ctx, []string{c.Peer})
	if err != nil {
		return nil, err
	}
	return added.Members, nil
}

// promote makes a learner a voter once it has caught up with the other members. A member
// joins as a learner, which counts for no majority: a member that never starts, or that
// copies the state for a long time, stops no other member. A learner that an unfinished
// start left behind is promoted by the next start.
func (c *MemberConfig) promote(ctx context.Context, e *embed.Etcd) error {
	if !e.Server.IsLearner() {
		return nil
	}
	var others []string
	for _, m := range e.Server.Cluster().Members() {
		if !m.IsLearner {
			others = append(others, m.ClientURLs...)
		}
	}
	secure, err := c.tlsConfig()
	if err != nil {
		return err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: others, TLS: secure, DialTimeout: 5 * time.Second, Logger: bridge(c.Logger)})
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // nothing is under way
	err = patiently(ctx, func(ctx context.Context) error {
		_, err := client.MemberPromote(ctx, uint64(e.Server.MemberID()))
		if errors.Is(err, rpctypes.ErrMemberNotLearner) { // the answer to an attempt was lost
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("make the member a voter with the help of %s: %w", strings.Join(others, ", "), err)
	}
	// The member refuses most calls until it has learned of its promotion.
	for e.Server.IsLearner() {
		if err := pause(ctx, joinPause); err != nil {
			return err
		}
	}
	return nil
}

const (
	joinPause    = 200 * time.Millisecond // between two attempts to change the members
	joinPatience = 5 * time.Second        // of one attempt
)

// patiently repeats a change of the members while etcd does not answer, or refuses the
// change for now: the members have not been connected for long enough, another member
// joins, or the joining member has not caught up yet.
func patiently(ctx context.Context, change func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, joinPatience)
		err := change(attempt)
		cancel()
		switch {
		case err == nil, ctx.Err() != nil:
			return err
		case errors.Is(err, rpctypes.ErrUnhealthy), errors.Is(err, rpctypes.ErrTooManyLearners), errors.Is(err, rpctypes.ErrMemberLearnerNotReady):
		case passing(err), errors.Is(err, rpctypes.ErrPeerURLExist), errors.Is(err, rpctypes.ErrMemberExist):
		default:
			return err
		}
		if pause(ctx, joinPause) != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Client returns the URL at which clients reach the member.
func (m *Member) Client() string { return m.client }

// Endpoints returns the client URLs of the voting members, this one's first: the others
// are for when this one does not answer.
func (m *Member) Endpoints() []string {
	all := []string{m.client}
	for _, other := range m.etcd.Server.Cluster().Members() {
		for _, at := range other.ClientURLs {
			if !other.IsLearner && !slices.Contains(all, at) {
				all = append(all, at)
			}
		}
	}
	return all
}

// leader returns the id of the leader that this member knows. 0: it knows none, and so
// can write nothing, or it is stopping.
func (m *Member) leader() uint64 {
	select {
	case <-m.etcd.Server.StoppingNotify():
		return 0
	default:
		return uint64(m.etcd.Server.Leader())
	}
}

// Failed returns the channel with the error that ended the member.
func (m *Member) Failed() <-chan error { return m.etcd.Err() }

// resignPatience bounds the transfer of the leadership by a member that stops. Without a
// transfer the others elect a leader after the election timeout; if all members stop at
// once, there is no successor.
const resignPatience = 500 * time.Millisecond

// resign transfers the leadership to another member, if this one has it.
func (m *Member) resign() {
	s := m.etcd.Server
	ctx, cancel := context.WithTimeout(context.Background(), resignPatience)
	defer cancel()
	for _, other := range s.Cluster().Members() {
		if s.Leader() != s.MemberID() || ctx.Err() != nil {
			return
		}
		if other.ID != s.MemberID() && !other.IsLearner {
			_ = s.MoveLeader(ctx, uint64(s.MemberID()), uint64(other.ID)) // if it fails, the loop tries the next member
		}
	}
}

// doorPatience bounds the wait for running handlers when a member stops. close has told
// the handlers to stop, so they end at once.
const doorPatience = 5 * time.Second

// Close stops the member: first the requests of clients, then the core of etcd. In the
// other order, a handler would read from a closed store, which panics. And if etcd itself
// ended the requests, it would wait for their streams.
func (m *Member) Close() error {
	m.quiet.Store(true)
	m.resign()
	m.doors.close(doorPatience)
	m.etcd.Server.HardStop()
	m.etcd.Close()
	return nil
}
