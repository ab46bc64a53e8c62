package store

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
)

// Rebuild throws the view of the closed store in dir away and makes it again from
// the newest complete chain of snapshots; the history stays. The caller then
// opens the store and replays the journal from Applied()+1. progress, which may
// be nil, hears of bytes.
func Rebuild(dir string, progress func(done, total int64)) error {
	if err := rebuildLocked(dir, progress); err != nil {
		return fmt.Errorf("store: rebuild %s: %w", dir, err)
	}
	return nil
}

func rebuildLocked(dir string, progress func(done, total int64)) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return err
	}
	defer lock.Close() //nolint:errcheck // nothing was written to it
	cfg := Config{Dir: dir}
	if err := cfg.setDefaults(); err != nil {
		return err
	}
	c, err := newestChain(filepath.Join(dir, snapshotsDir))
	if err != nil {
		return err
	}
	return rebuild(cfg, c, progress)
}

// rebuild makes the view from a chain. It is made beside the old one and takes
// its name when it is complete, so that a crash costs only time.
func rebuild(cfg Config, c chain, progress func(done, total int64)) error {
	if c.damaged != nil {
		return fmt.Errorf("a snapshot is damaged: put a copy of it back, or remove it if the journal still has all that came after number %d: %w", c.applied(), c.damaged)
	}
	made := filepath.Join(cfg.Dir, newViewName)
	if err := os.RemoveAll(made); err != nil {
		return err
	}
	room := guard{dir: cfg.Dir, stat: cfg.stat, need: func() int64 {
		return cmp.Or(cfg.MinFreeBytes, reserveFor(c.bytes(), c.bytes()))
	}}
	if err := room.check(c.bytes()); err != nil {
		return err
	}
	if err := fillView(made, filepath.Join(cfg.Dir, snapshotsDir), c, cfg.Logger, progress); err != nil {
		return err
	}
	view := filepath.Join(cfg.Dir, viewName)
	return errors.Join(
		os.RemoveAll(view),
		os.RemoveAll(filepath.Join(cfg.Dir, bootedName)),
		os.Rename(made, view),
		syncDir(cfg.Dir),
	)
}

// fillView makes a view in dir that holds what the links say.
func fillView(dir, snapshots string, c chain, logger *slog.Logger, progress func(done, total int64)) (err error) {
	db, err := openBadger(dir, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	w := newWriter(db)
	defer func() { w.discard() }()
	var done int64
	for _, k := range c.links {
		err := loadLink(snapshots, k, func(key, value []byte, deleted bool) error {
			if value = append([]byte{}, value...); deleted {
				value = nil
			}
			return w.set(append([]byte{}, key...), value)
		})
		if err != nil {
			return err
		}
		if done += k.size; progress != nil {
			progress(done, c.bytes())
		}
	}
	return w.commit()
}

func loadLink(dir string, k link, fn func(key, value []byte, deleted bool) error) error {
	f, err := os.Open(filepath.Join(dir, k.filename()))
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // only read
	if err := readRows(f, k, fn); err != nil {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	return nil
}
