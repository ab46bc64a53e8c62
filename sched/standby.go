package sched

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Standby holds the state of slots that another server owns, and keeps the store of
// this one near the end of their journal. It decides nothing. It is for one goroutine.
type Standby struct{ l *loop }

// CaughtUp is where a standby stands.
type CaughtUp struct {
	Applied uint64   // the store includes the records up to here
	Missing []string // digests of modules whose code is not on this server's disk
}

// Follow reads the state from the store. Of the configuration it needs what [New]
// does. Nobody else may use the store from here on.
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

// CatchUp brings state and store up to the end of the journal. After an error the
// standby is of no use any more: what it holds may be between two records.
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

// TakeOver is [New] for a server that has stood by: it goes on with what the standby
// holds, so that only what came to the journal since the last CatchUp is read. The store is
// that of the standby, which is of no use any more.
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

// Missing returns the digests of modules whose code is not on this server's disk.
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
