package store

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// RebuildOptions configure [Rebuild]. The zero value checks nothing against a journal.
type RebuildOptions struct {
	// Journal is the journal that the server replays after the rebuild.
	Journal Journal
	// AcceptLoss continues although records are lost that only the view includes. It does
	// not continue if no server could start afterwards.
	AcceptLoss bool
	// Progress, which may be nil, is called with the bytes that are loaded and their
	// total.
	Progress func(done, total int64)
}

// Rebuilt is the result of [Rebuild].
type Rebuilt struct {
	Reach              // reach of the store before the rebuild
	First, Last uint64 // lost records, which only the old view included; 0, 0: none
	Quarantine  string // directory within that of the store with the old view; "": there was no view
}

// Rebuild makes a new view of the closed store in dir from the newest complete chain of
// snapshots; the history stays. The caller then opens the store and replays the journal
// from Applied()+1. If snapshots and journal lack records that the view includes, Rebuild
// changes nothing and returns a [*ShortJournalError]. The old view is moved to the
// store's quarantine and never deleted.
func Rebuild(dir string, opt RebuildOptions) (Rebuilt, error) {
	r, err := rebuildLocked(dir, opt)
	if err != nil {
		return r, fmt.Errorf("store: rebuild %s: %w", dir, err)
	}
	return r, nil
}

func rebuildLocked(dir string, opt RebuildOptions) (r Rebuilt, err error) {
	if _, err := os.Stat(dir); err != nil {
		return r, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return r, err
	}
	defer lock.Close() //nolint:errcheck // nothing was written to it
	cfg := Config{Dir: dir}
	if err := cfg.setDefaults(); err != nil {
		return r, err
	}
	c, err := newestChain(filepath.Join(dir, snapshotsDir))
	if err != nil {
		return r, err
	}
	r.Reach = look(dir, c)
	var short *ShortJournalError
	if err := r.Check(opt.Journal); errors.As(err, &short) {
		if !opt.AcceptLoss || !short.Startable() {
			return r, err
		}
		r.First, r.Last = short.Lost()
	}
	aside := func() (string, error) {
		if _, err := os.Stat(filepath.Join(dir, viewName)); errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		why := "store rebuild replaced this view\n"
		if r.Unread != nil {
			why += fmt.Sprintf("it could not be read: %v\n", r.Unread)
		}
		place, err := newQuarantine(dir, why)
		r.Quarantine = place
		return filepath.Join(place, viewName), err
	}
	return r, rebuild(cfg, c, opt.Progress, aside)
}

// rebuild makes a view from a chain. It is made beside the old view and gets its name
// when it is complete, so a crash costs only time. The old view is moved to the name that
// aside returns, within the directory of the store; "": it is removed.
func rebuild(cfg Config, c chain, progress func(done, total int64), aside func() (string, error)) error {
	if c.damaged != nil {
		return fmt.Errorf("a snapshot is damaged: restore a copy of it, or remove it if the journal still has all records after number %d: %w", c.applied(), c.damaged)
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
	to, err := aside()
	if err != nil {
		return err
	}
	view := filepath.Join(cfg.Dir, viewName)
	if to == "" {
		err = os.RemoveAll(view)
	} else if err = os.Rename(view, filepath.Join(cfg.Dir, to)); errors.Is(err, fs.ErrNotExist) {
		err = nil // there was no view
	}
	return errors.Join(
		err,
		os.RemoveAll(filepath.Join(cfg.Dir, bootedName)),
		os.Rename(made, view),
		syncDir(cfg.Dir),
	)
}

// newQuarantine makes a directory for originals that a repair replaces, with a file that
// has the reason, and returns its name within dir. Nothing deletes it.
func newQuarantine(dir, why string) (string, error) {
	name := filepath.Join(quarantineName, time.Now().UTC().Format("20060102T150405.000000000Z"))
	if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
		return "", err
	}
	if err := writeSynced(filepath.Join(dir, name, "why.txt"), []byte(why)); err != nil {
		return "", err
	}
	return name, errors.Join(syncDir(filepath.Join(dir, name)), syncDir(filepath.Join(dir, quarantineName)), syncDir(dir))
}

// fillView makes a view in dir from the links of a chain.
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
