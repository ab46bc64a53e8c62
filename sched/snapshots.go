package sched

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/wheelworkhq/wheelwork/store"
)

// snapshots takes a snapshot of the store and trims the journal behind it, each time that
// [Config.SnapshotEvery] or the growth of the journal asks for it. It returns nil when
// ctx or the loop ends. A full disk is no error: the next check tries again.
func (s *Server) snapshots(ctx context.Context) error {
	const look = 5 * time.Second
	last, size := time.Now(), s.cfg.Journal.Bytes()
	trimmed := s.cfg.Store.Applied()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.loop.Mail.Done:
			return nil
		case <-tick.C:
		}
		grown := s.cfg.Journal.Bytes() - size
		large := grown >= s.cfg.SnapshotBytes && grown >= s.cfg.SnapshotTimes*s.cfg.Store.RowBytes()
		aged := time.Since(last) >= s.cfg.SnapshotEvery && (s.cfg.Store.Applied() != trimmed || s.cfg.Store.Removing())
		if !large && !aged {
			continue
		}
		applied, err := s.cfg.Store.Snapshot(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, store.ErrFull):
			continue
		case err != nil:
			return fmt.Errorf("snapshot: %w", err)
		}
		if err := s.cfg.Journal.Trim(applied + 1); err != nil {
			return fmt.Errorf("trim the journal: %w", err)
		}
		last, size, trimmed = time.Now(), s.cfg.Journal.Bytes(), applied
		s.cfg.Logger.Debug("snapshot taken", "applied", applied, "journal_bytes", size)
	}
}
