package router

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/modules/transfer"
)

// Peers are the other servers: their connections, and how they are asked for code of
// modules and for state.
type Peers struct {
	Own *transport.Identity // with the token of this server in the installation
	Key *transport.Identity // with the token of the cluster's servers only
	// Machine has the certificate of this server, which replaces both tokens towards the servers for which Certified
	// reports true; nil: this server has none.
	Machine   *transport.Identity
	Certified func(address string) bool
	Log       *slog.Logger

	mu    sync.Mutex
	conns map[peer]*grpc.ClientConn
}

// peer is another server, and the identity with which this one calls it.
type peer struct {
	address string
	as      *transport.Identity
}

// towards returns the identity with which this server calls another one: its certificate if the other server knows
// certificates, and else a token.
func (p *Peers) towards(address string, token *transport.Identity) *transport.Identity {
	if p.Machine != nil && p.Certified(address) {
		return p.Machine
	}
	return token
}

// State calls fetch with a connection to a server, with the token of servers or, if the
// server is of an older version and does not know that, with the token of all processes.
// The connection is not shared: a shared one to a server that is lost could delay a
// standby by as long as it takes to notice the loss, about 30 s.
func (p *Peers) State(address string, fetch func(apiv1.BackupsClient) error) (err error) {
	for _, as := range []*transport.Identity{p.towards(address, p.Key), p.Own} {
		conn, derr := as.Dial(address)
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

// Fetch gets the code of modules from the first of several servers that has it. It
// returns the digests that are still missing.
func (p *Peers) Fetch(ctx context.Context, to *modules.Store, from, digests []string) []string {
	digests = slices.Clone(digests)
	for _, address := range from {
		if len(digests) == 0 || address == "" {
			continue
		}
		conn, err := p.towards(address, p.Own).Dial(address)
		if err != nil {
			p.Log.Warn("a server could not fetch the code of modules", "from", address, "error", err)
			continue
		}
		digests = slices.DeleteFunc(digests, func(digest string) bool {
			err := fetchModule(ctx, apiv1.NewWorkerClient(conn), to, digest)
			if err != nil && ctx.Err() == nil {
				p.Log.Warn("a server could not fetch the code of a module", "digest", digest, "from", address, "error", err)
			}
			return err == nil
		})
		conn.Close() //nolint:errcheck // nothing is under way
	}
	return digests
}

// Conn returns a connection to another server, with the certificate of this one or the token of servers. It is shared,
// and stays open until Close.
func (p *Peers) Conn(address string) (grpc.ClientConnInterface, error) {
	return p.kept(address, p.towards(address, p.Key))
}

func (p *Peers) kept(address string, as *transport.Identity) (grpc.ClientConnInterface, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := peer{address, as}
	if c := p.conns[at]; c != nil {
		return c, nil
	}
	c, err := as.Dial(address)
	if err != nil {
		return nil, err
	}
	if p.conns == nil {
		p.conns = map[peer]*grpc.ClientConn{}
	}
	p.conns[at] = c
	return c, nil
}

// Close closes the shared connections.
func (p *Peers) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close() //nolint:errcheck // nothing is under way
	}
	p.conns = nil
	return nil
}

func fetchModule(ctx context.Context, from apiv1.WorkerClient, to *modules.Store, digest string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	code, err := transfer.Fetch(ctx, from, digest)
	if err != nil {
		return err
	}
	_, err = to.Put(code)
	return err
}
