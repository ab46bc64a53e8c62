package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/mq"
)

// ClusterConfig configures a server with a member of etcd in it: three or five such
// servers need no other etcd. Its certificates are those of [EtcdConfig].
type ClusterConfig struct {
	On     bool
	Listen string // HOST:PORT at which servers reach the member; default 127.0.0.1:2379
	Peer   string // HOST:PORT at which the other members reach it; default 127.0.0.1:2380
	// Advertise and PeerAdvertise are where others reach the member if a proxy or an
	// address translation is in between. The default is Listen and Peer; if set, those
	// two are only where the member listens.
	Advertise, PeerAdvertise string
	// Join are addresses of running members, as others reach their Listen. A server whose
	// directory has no member yet joins them.
	Join []string
	// Members are the addresses, as others reach Peer, of all servers that begin the
	// cluster together, including this one; none: it begins alone.
	Members []string
}

const (
	memberDir   = "etcd" // in the data directory
	memberWaits = 10 * time.Second
)

// memberName returns a member's name, which is made of its address: no two members share
// one. A member that lost its files has the same name when it comes back.
func memberName(peer string) string {
	return strings.NewReplacer(":", "-", "[", "", "]", "").Replace(peer)
}

// memberConfig returns how the server's member is started.
func memberConfig(cfg *ServerConfig, dir string, log *slog.Logger) (etcd.MemberConfig, error) {
	c := cfg.Cluster
	c.Listen, c.Peer = cmp.Or(c.Listen, "127.0.0.1:2379"), cmp.Or(c.Peer, "127.0.0.1:2380")
	client, peer := cmp.Or(c.Advertise, c.Listen), cmp.Or(c.PeerAdvertise, c.Peer)
	m := etcd.MemberConfig{Name: memberName(peer), Dir: dir, Cert: cfg.Etcd.Cert, Key: cfg.Etcd.Key, CA: cfg.Etcd.CA, ServerName: cfg.Etcd.serverName, Logger: log}
	scheme := "http://"
	if m.Cert != "" {
		scheme = "https://"
	}
	m.Client, m.Peer, m.ListenClient, m.ListenPeer = scheme+client, scheme+peer, scheme+c.Listen, scheme+c.Peer
	for flag, at := range map[string]string{"--cluster-advertise": c.Advertise, "--cluster-peer-advertise": c.PeerAdvertise} {
		if _, _, err := net.SplitHostPort(at); at != "" && err != nil {
			return m, fmt.Errorf("%s %q is not HOST:PORT, at which others reach the member: %w", flag, at, err)
		}
	}
	switch {
	case len(cfg.Etcd.Endpoints) > 0:
		return m, errors.New("--cluster is for a server with a member of etcd in it, --etcd-endpoints for an etcd beside the servers: give one of them")
	case len(c.Join) > 0 && len(c.Members) > 0:
		return m, errors.New("a server joins a cluster that runs (--join), or begins one with others (--cluster-members): give one of them")
	}
	for _, at := range c.Join {
		if _, _, err := net.SplitHostPort(at); err != nil {
			return m, fmt.Errorf("--join %q is not HOST:PORT, the --cluster-listen of another server: %w", at, err)
		}
		if at != client { // the same list may be given to all servers
			m.Join = append(m.Join, scheme+at)
		}
	}
	if len(c.Members) > 0 {
		if !slices.Contains(c.Members, peer) {
			return m, fmt.Errorf("--cluster-members %s does not include this server's --cluster-peer or --cluster-peer-advertise %s", strings.Join(c.Members, ","), peer)
		}
		m.Members = map[string]string{}
		for _, at := range c.Members {
			m.Members[memberName(at)] = scheme + at
		}
	}
	return m, nil
}

// startMember starts the member of etcd in this server and points cfg to it. It waits
// until a majority of the members is up.
func startMember(ctx context.Context, d *datadir.Dir, cfg *ServerConfig, log *slog.Logger) (*etcd.Member, error) {
	dir := d.Join(memberDir)
	m, err := memberConfig(cfg, dir, log)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := mayBegin(d, len(m.Join) > 0, cfg); err != nil {
			return nil, err
		}
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for tick := time.NewTicker(memberWaits); ; {
			select {
			case <-tick.C:
				log.Warn("the server waits until a majority of the cluster's members is there", "peer", m.Peer)
			case <-done:
				tick.Stop()
				return
			}
		}
	}()
	member, err := etcd.Start(ctx, m)
	if err != nil {
		return nil, err
	}
	cfg.Etcd.Endpoints, cfg.Etcd.member = member.Endpoints(), member
	log.Info("the etcd of this server is ready", "client", m.Client, "peer", m.Peer, "members", len(cfg.Etcd.Endpoints))
	return member, nil
}

// mayBegin refuses a directory for a new member if it holds the records of a standalone
// server, which an empty journal would hide, or, unless the member joins others, if it
// was that of a cluster's server.
func mayBegin(d *datadir.Dir, joins bool, cfg *ServerConfig) error {
	had, err := hasRecords(d, cfg)
	switch {
	case err != nil:
		return err
	case had:
		return errOwnJournal
	case joins:
		return nil
	}
	if _, err := os.Stat(d.Join(datadir.ClusteredFile)); err == nil {
		return fmt.Errorf("the data directory %s is that of a cluster's server, and there is no member of etcd in it: join the others with --join, which brings its state back, or name the etcd that it had with --etcd-endpoints", d.Path)
	}
	return nil
}

var errOwnJournal = errors.New("the data directory has a journal of its own: take what is in it along with `wheelwork cluster init`, or choose another directory with --data")

// hasRecords reports whether the directory has the journal of a standalone server with
// records in it.
func hasRecords(d *datadir.Dir, cfg *ServerConfig) (bool, error) {
	if _, err := os.Stat(d.Join("journal")); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	l, err := mq.Open(mq.Config{Dir: d.Join("journal"), Writer: cfg.Writer})
	if err != nil {
		return false, fmt.Errorf("open the journal: %w", err)
	}
	return l.Next() > 1, l.Close()
}

// memberError is the error of a server whose member of etcd has failed.
type memberError struct{ err error }

func (e *memberError) Error() string { return fmt.Sprintf("the server's member of etcd: %v", e.err) }
func (e *memberError) Unwrap() error { return e.err }

// watchMember ends the server when its member fails.
func watchMember(ctx context.Context, m *etcd.Member, fail context.CancelCauseFunc) {
	select {
	case err := <-m.Failed():
		if err != nil && ctx.Err() == nil {
			fail(&memberError{err})
		}
	case <-ctx.Done():
	}
}

// EtcdAccess returns how commands reach the etcd of a cluster.
func EtcdAccess(cfg EtcdConfig) (etcd.Access, error) {
	a := etcd.Access{Endpoints: cfg.Endpoints}
	if cfg.Cert == "" && cfg.Key == "" && cfg.CA == "" {
		return a, nil
	}
	if err := credential.CheckKeyFile("--etcd-key", cfg.Key); err != nil {
		return a, err
	}
	var err error
	a.TLS, err = etcd.ClientTLS(cfg.Cert, cfg.Key, cfg.CA, "")
	return a, err
}

// ReachEtcd returns an error if no endpoint of the etcd accepts a connection within 2 s.
// The client of etcd would retry until its context ends, and not say why.
func ReachEtcd(ctx context.Context, cfg EtcdConfig) error {
	var last error
	for _, endpoint := range cfg.Endpoints {
		host := endpoint
		if u, err := url.Parse(endpoint); err == nil && u.Host != "" {
			host = u.Host
		}
		conn, err := (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, "tcp", host)
		if err == nil {
			return conn.Close()
		}
		last = err
	}
	return fmt.Errorf("etcd at %s does not answer: %w", strings.Join(cfg.Endpoints, ", "), last)
}
