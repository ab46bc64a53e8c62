package sched

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Standby follows the journal of a partition that another server owns: it applies the
// records to its own state and store. It decides nothing. It is not safe for concurrent
// use.
type Standby struct{ l *loop }

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
	l, err := load(&cfg)
	if err != nil {
		return nil, fmt.Errorf("read the state that a standby begins with: %w", err)
	}
	return &Standby{l}, nil
}

// CatchUp brings state and store up to the end of the journal. After an error the standby
// cannot be used further, because its state may be inconsistent.
func (s *Standby) CatchUp() (CaughtUp, error) {
	l := s.l
	l.setNow(time.Now())
	if err := l.replay(); err != nil {
		return CaughtUp{}, fmt.Errorf("catch up with the journal: %w", err)
	}
	l.forget()
	l.flushMetrics()
	if l.failure != nil {
		return CaughtUp{}, l.failure
	}
	if v := &l.view; v.dirty() {
		c, err := l.capture()
		if err != nil {
			return CaughtUp{}, err
		}
		if err := c.write(l.cfg.Store); err != nil {
			return CaughtUp{}, fmt.Errorf("write the store: %w", err)
		}
		l.committed(c, nil)
	}
	return CaughtUp{Applied: l.cfg.Store.Applied(), Missing: l.missing()}, nil
}

// TakeOver turns the standby into the server that owns the partition, and returns it
// ready to Run, like [New]. It reads only the records that were appended since the last
// CatchUp. cfg.Store must be the store of the standby. The standby cannot be used
// afterwards.
func (s *Standby) TakeOver(cfg Config) (*Server, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	if cfg.Store != s.l.cfg.Store {
		return nil, errors.New("sched: a standby takes over with its own store")
	}
	m, err := newMetrics(cfg.Meter)
	if err != nil {
		return nil, err
	}
	s.l.cfg, s.l.metrics = &cfg, m
	s.l.setNow(time.Now())
	return serve(cfg, s.l)
}

// Missing returns the digests of modules whose code is not on this server's disk, sorted.
func (s *Server) Missing(ctx context.Context) ([]string, error) {
	return ask(ctx, s.loop, func(l *loop) ([]string, error) { return l.missing(), nil })
}

func (l *loop) missing() (digests []string) {
	for _, a := range l.apps {
		for _, s := range a.slots {
			for _, m := range s.Modules {
				if m.CollectedAt == nil && !l.cfg.Modules.Has(m.Digest) && !slices.Contains(digests, m.Digest) {
					digests = append(digests, m.Digest)
				}
			}
		}
	}
	slices.Sort(digests)
	return digests
}
