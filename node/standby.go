package node

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/store"
)

// EtcdConfig is for servers that share a journal: one of them works, the others
// stand by and take over when it is lost.
type EtcdConfig struct {
	Endpoints     []string // of etcd; none: the journal is on this server's disk
	Group         string   // the servers that share one journal; default "main"
	Cert, Key, CA string   // with which the server shows itself to etcd and checks it; "": no TLS, on this machine only
}

const (
	// catchUpEvery is how far behind a standby may be.
	catchUpEvery = 2 * time.Second
	// standbyAgain is the pause after an attempt that etcd did not answer.
	standbyAgain = time.Second
)

// standby is a server until it owns its group's journal.
type standby struct {
	cluster *etcd.Cluster
	group   string
	cfg     sched.Config
	kept    *keptStore // cfg.Store
	dir     string     // its
	token   string     // of members
	caCert  string
	log     *slog.Logger
}

// joinGroup connects to etcd.
func joinGroup(ctx context.Context, cfg ServerConfig, id string, log *slog.Logger) (*etcd.Cluster, error) {
	address := cmp.Or(cfg.Advertise, cfg.Listen)
	if _, port, err := net.SplitHostPort(address); err != nil || port == "0" {
		return nil, fmt.Errorf("servers that share a journal tell each other where they are: give --listen a port, or --advertise HOST:PORT, instead of %q", address)
	}
	var secure *tls.Config
	if cfg.Etcd.Cert != "" || cfg.Etcd.Key != "" || cfg.Etcd.CA != "" {
		var err error
		if secure, err = etcd.ClientTLS(cfg.Etcd.Cert, cfg.Etcd.Key, cfg.Etcd.CA); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return etcd.Connect(ctx, etcd.Config{Endpoints: cfg.Etcd.Endpoints, Grows: cfg.Cluster.On, Server: id, Address: address, TLS: secure, Logger: log})
}

// wait stands by until the journal is this server's. Meanwhile it keeps its
// store near the journal's end, and the modules' code on its disk.
func (s *standby) wait(ctx context.Context) (*etcd.Journal, error) {
	said, waits := "", false
	for {
		behind, err := s.behind(ctx)
		if behind && !waits {
			waits = true
			s.log.Warn("the journal does not reach back to what is on this server's disk: it waits for a server with the state, and cannot take over before", "group", s.group)
		}
		if behind && !pause(ctx, standbyAgain/4) || ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if behind {
			continue
		}
		var j *etcd.Journal
		if err == nil {
			j, err = s.cluster.Own(ctx, s.group)
		}
		var held *etcd.OwnedError
		switch {
		case err == nil:
			s.log.Info("this server works now", "group", s.group, "epoch", j.Epoch())
			return j, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.As(err, &held):
			s.log.Warn("etcd did not answer a standby", "error", err)
			if !pause(ctx, standbyAgain) {
				return nil, ctx.Err()
			}
			continue
		}
		if said != held.Owner.Server {
			said = held.Owner.Server
			s.log.Info("this server stands by", "group", s.group, "owner", held.Owner.Server, "address", held.Owner.Address)
		}
		if err := s.untilFree(ctx, held.Owner); err != nil {
			return nil, err
		}
	}
}

// behind reports whether this server cannot work with what is on its disk: its
// store does not reach to where the journal begins. If a server works it is asked
// for the state.
func (s *standby) behind(ctx context.Context) (bool, error) {
	begins, err := s.cluster.Begins(ctx, s.group)
	if err != nil || s.kept.Applied()+1 >= begins {
		return false, err
	}
	owner, ok, err := s.cluster.Owner(ctx, s.group)
	if err != nil || !ok {
		return err == nil, err
	}
	// It is not to be trimmed further meanwhile.
	if err := s.cluster.Checkpoint(ctx, s.group, s.kept.Applied()+1); err != nil {
		return false, err
	}
	err = s.begin(ctx, owner, fmt.Errorf("the journal begins at %d, and the store ends at %d", begins, s.kept.Applied()))
	return s.kept.Applied()+1 < begins, err
}

// untilFree catches up again and again until the owner is gone.
func (s *standby) untilFree(ctx context.Context, owner etcd.Owner) error {
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	free := make(chan struct{})
	go func() {
		defer close(free)
		if err := s.cluster.Free(waiting, s.group); err != nil && waiting.Err() == nil {
			pause(waiting, standbyAgain) // etcd does not answer: look again
		}
	}()
	defer func() { stop(); <-free }()
	tick := time.NewTicker(catchUpEvery)
	defer tick.Stop()
	for {
		if err := s.catchUp(ctx, owner); err != nil {
			return err
		}
		select {
		case <-free:
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

func (s *standby) catchUp(ctx context.Context, owner etcd.Owner) error {
	// It is not to be trimmed away while it is read.
	if err := s.cluster.Checkpoint(ctx, s.group, s.cfg.Store.Applied()+1); err != nil {
		s.log.Warn("a standby could not say where it is", "error", err)
		return ctx.Err()
	}
	cfg := s.cfg
	cfg.Journal = s.cluster.View(ctx, s.group)
	cfg.Logger = nil // it happens all the time
	at, err := sched.CatchUp(cfg)
	switch {
	case errors.Is(err, journal.ErrTrimmed):
		return s.begin(ctx, owner, err)
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		s.log.Warn("a standby did not catch up", "error", err)
		return nil
	}
	if err := s.fetch(ctx, owner, at.Missing); err != nil {
		s.log.Warn("a standby could not fetch the code of modules", "from", owner.Address, "error", err)
	}
	if err := s.cluster.Checkpoint(ctx, s.group, at.Applied+1); err != nil {
		s.log.Warn("a standby could not say where it is", "error", err)
	}
	return ctx.Err()
}

// keptStore is a store that a standby may replace by another one.
type keptStore struct{ *store.Store }

// begin begins with the owner's state: the disk is new, or the server was away
// for so long that the journal does not reach back to what is on it. What this
// server said of where it is keeps the journal from being trimmed further.
func (s *standby) begin(ctx context.Context, owner etcd.Owner, why error) error {
	s.log.Info("this standby begins with the state of the server that works", "group", s.group, "from", owner.Address, "because", why)
	start := time.Now()
	conn, err := dialMember(owner.Address, s.token, s.caCert)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is under way
	if err := s.kept.Close(); err != nil {
		return err
	}
	got, fetched := refill(ctx, apiv1.NewBackupsClient(conn), s.group, s.dir)
	if s.kept.Store, err = store.Open(store.Config{Dir: s.dir, Logger: s.log}); err != nil {
		return errors.Join(fetched, err)
	}
	s.cfg.Store = s.kept.Store
	if fetched != nil {
		s.log.Warn("a standby could not fetch the state; it tries again", "from", owner.Address, "error", fetched)
		return ctx.Err()
	}
	s.log.Info("this standby has the state of the server that works", "applied", got.Applied, "bytes", got.Size, "in", time.Since(start).Round(time.Millisecond))
	if err := s.cluster.Checkpoint(ctx, s.group, got.Applied+1); err != nil {
		s.log.Warn("a standby could not say where it is", "error", err)
	}
	return ctx.Err()
}

// fetch gets the code of modules from the owner.
func (s *standby) fetch(ctx context.Context, owner etcd.Owner, digests []string) error {
	if len(digests) == 0 {
		return nil
	}
	conn, err := dialMember(owner.Address, s.token, s.caCert)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing is under way
	for _, digest := range digests {
		if err := fetchModule(ctx, apiv1.NewWorkerClient(conn), s.cfg.Modules, digest); err != nil {
			return fmt.Errorf("%s: %w", digest, err)
		}
	}
	return nil
}

func fetchModule(ctx context.Context, from apiv1.WorkerClient, to *modules.Store, digest string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stream, err := from.FetchModule(ctx, &apiv1.FetchModuleRequest{Digest: digest})
	if err != nil {
		return err
	}
	var code bytes.Buffer
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		code.Write(chunk.GetData())
	}
	if got := modules.Digest(code.Bytes()); got != digest {
		return fmt.Errorf("the owner sent other bytes: %s", got)
	}
	_, err = to.Put(code.Bytes())
	return err
}

// pause waits; it reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
