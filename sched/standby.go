package sched

import (
	"context"
	"fmt"
	"slices"
)

// CaughtUp is where a standby stands.
type CaughtUp struct {
	Applied uint64   // the store includes the records up to here
	Missing []string // digests of modules whose code is not on this server's disk
}

// CatchUp brings the store of a server that does not own its slots up to the end
// of the journal, and decides nothing: it is for a standby, so that there is
// little to replay when it takes over. Of the configuration it needs what [New]
// does. Nobody else may use the store meanwhile.
func CatchUp(cfg Config) (CaughtUp, error) {
	if err := cfg.defaults(); err != nil {
		return CaughtUp{}, err
	}
	l, err := rebuild(&cfg, newHub())
	if err != nil {
		return CaughtUp{}, fmt.Errorf("catch up with the journal: %w", err)
	}
	if l.view.dirty() {
		c, err := l.capture()
		if err != nil {
			return CaughtUp{}, err
		}
		if err := cfg.Store.Commit(c.batch); err != nil {
			return CaughtUp{}, fmt.Errorf("write the store: %w", err)
		}
	}
	return CaughtUp{Applied: cfg.Store.Applied(), Missing: l.missing()}, nil
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
