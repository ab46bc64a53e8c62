package sched

import (
	"context"
	"errors"
	"fmt"

	"github.com/wheelworkhq/wheelwork/sched/core"
	"github.com/wheelworkhq/wheelwork/sched/projection"
)

// Standby follows the journal of a partition that another server owns: it applies the
// records to its own state and store. It decides nothing. It is not safe for concurrent
// use.
type Standby struct {
	cfg Config
	l   *core.Loop
}

// CaughtUp is the progress of a standby.
type CaughtUp struct {
	Applied uint64   // sequence of the last record that the store includes
	Missing []string // digests of modules whose code is not on this server's disk
}

// Follow returns a standby with the state that the store has. It requires the same fields
// of the configuration as [New]. From then on only the standby may use the store.
func Follow(cfg Config) (*Standby, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	l, err := core.Open(cfg.core(projection.New(cfg.projection())))
	if err != nil {
		return nil, fmt.Errorf("read the state that a standby begins with: %w", err)
	}
	return &Standby{cfg, l}, nil
}

// CatchUp brings state and store up to the end of the journal. After an error the standby
// cannot be used further, because its state may be inconsistent.
func (s *Standby) CatchUp() (CaughtUp, error) {
	if err := s.l.CatchUp(); err != nil {
		return CaughtUp{}, err
	}
	return CaughtUp{Applied: s.cfg.Store.Applied(), Missing: s.l.Catalog.Missing()}, nil
}

// Size returns the numbers of jobs and of runs that have not ended.
func (s *Standby) Size() (jobs, runs int64) { return s.l.State.Size() }

// TakeOver turns the standby into the server that owns the partition, and returns it
// ready to Run, like [New]. It reads only the records that were appended since the last
// CatchUp. cfg.Store must be the store of the standby. The standby cannot be used
// afterwards.
func (s *Standby) TakeOver(cfg Config) (*Server, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	if cfg.Store != s.cfg.Store {
		return nil, errors.New("sched: a standby takes over with its own store")
	}
	s.l.View.Configure(cfg.projection())
	if err := s.l.Configure(cfg.core(s.l.View)); err != nil {
		return nil, err
	}
	return serve(cfg, s.l)
}

// Missing returns the digests of modules whose code is not on this server's disk, sorted.
func (s *Server) Missing(ctx context.Context) ([]string, error) {
	return core.Ask(ctx, s.loop, func(l *core.Loop) ([]string, error) { return l.Catalog.Missing(), nil })
}
