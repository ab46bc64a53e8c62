package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// Part is the report of [Verify] or [Repair] about one part of a store.
type Part struct {
	Name   string // "view", "snapshots", "history", "keys", "revisions", "audit", "logs"
	Files  int
	Bytes  int64
	Rows   uint64 // blocks of a log, rows of snapshots; 0 for the view
	Damage []Damage
}

// Damage is one damaged or missing part.
type Damage struct {
	File       string // within the part's directory; "": a file is missing
	Offset     int64
	Lost       bool  // data is lost that only this file had
	From, To   int64 // positions in the log that are lost
	Why        string
	Repairable bool // Repair can repair it
}

func (d Damage) String() string {
	where := "a file is missing"
	if d.File != "" {
		where = fmt.Sprintf("%s at %d", d.File, d.Offset)
	}
	if d.To > d.From {
		return fmt.Sprintf("%s: %s; positions %d to %d are lost", where, d.Why, d.From, d.To-1)
	}
	return where + ": " + d.Why
}

// segmentLogs are the parts that are logs of segments.
var segmentLogs = []string{historyName, keysName, revisionsName, auditName, logsName}

// kindOf returns the kind in the segments of a part.
func kindOf(name string) string {
	if name == revisionsName {
		return revisionKind
	}
	return name
}

// Verify reads the whole closed store in dir and changes nothing. Damage is reported in
// the parts. The error is about the reading itself.
func Verify(dir string) ([]Part, Reach, error) {
	lock, err := lockDir(dir)
	if err != nil {
		return nil, Reach{}, fmt.Errorf("store: verify %s: %w", dir, err)
	}
	defer lock.Close() //nolint:errcheck // nothing was written to it
	parts, reach, err := verify(dir)
	if err != nil {
		return nil, reach, fmt.Errorf("store: verify %s: %w", dir, err)
	}
	return parts, reach, nil
}

func verify(dir string) ([]Part, Reach, error) {
	snapshots, c, err := verifySnapshots(dir)
	if err != nil {
		return nil, Reach{}, err
	}
	view := Part{Name: viewName, Bytes: diskUsage(filepath.Join(dir, viewName), "")}
	reach := look(dir, c)
	if reach.Unread != nil {
		view.Damage = append(view.Damage, Damage{File: viewName, Why: reach.Unread.Error() + "; the next start makes the view again from snapshots and journal"})
	}
	parts := []Part{view, snapshots}
	for _, name := range segmentLogs {
		r, err := segment.Verify(filepath.Join(dir, name), kindOf(name), lengthOf(dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, reach, err
		}
		parts = append(parts, partOf(name, r))
	}
	return parts, reach, nil
}

func partOf(name string, r segment.Report) Part {
	p := Part{Name: name, Files: r.Files, Bytes: r.Bytes, Rows: uint64(r.Blocks)}
	for _, d := range r.Damage {
		p.Damage = append(p.Damage, Damage{File: d.File, Offset: d.Offset, Lost: d.To > d.From, From: d.From, To: d.To, Why: d.Why, Repairable: true})
	}
	return p
}

// lengthOf returns the length of a log that the view needs. Without a known length that
// is the readable length.
func lengthOf(dir, name string) int64 {
	m, err := readView(filepath.Join(dir, viewName))
	switch {
	case err != nil || name == logsName:
		return segment.Tail
	case name == historyName:
		return m.history
	case name == revisionsName:
		return m.revisions
	case name == auditName:
		return m.audit
	}
	return m.keys
}

func verifySnapshots(dir string) (Part, chain, error) {
	p := Part{Name: snapshotsDir}
	at := filepath.Join(dir, snapshotsDir)
	c, err := newestChain(at)
	if err != nil {
		return p, c, err
	}
	damaged := func(err error) {
		p.Damage = append(p.Damage, Damage{File: snapshotsDir, Lost: true, Why: err.Error() + "; while the view is intact the next snapshot replaces it"})
	}
	if c.damaged != nil {
		damaged(c.damaged)
	}
	for _, k := range c.links {
		err := loadLink(at, k, func(_, _ []byte, _ bool) error { return nil })
		if isTrouble(err) {
			return p, c, err
		}
		if err != nil {
			damaged(err)
		}
		p.Files++
		p.Bytes += k.size
		p.Rows += k.rows
	}
	return p, c, nil
}

// Repaired is the report of [Repair].
type Repaired struct {
	Parts      []Part // as they were before the repair
	Quarantine string // directory with the originals, within that of the store; "": no file was changed
}

// Repair gives up damaged data in the history, keys, revisions, audit events and logs of the closed store in dir,
// so that the rest is usable. It retains the originals of changed files in quarantine. It
// leaves the view and the snapshots alone, because a server rebuilds them.
func Repair(dir string) (Repaired, error) {
	r, err := repair(dir)
	if err != nil {
		return r, fmt.Errorf("store: repair %s: %w", dir, err)
	}
	return r, nil
}

func repair(dir string) (r Repaired, err error) {
	lock, err := lockDir(dir)
	if err != nil {
		return r, err
	}
	defer lock.Close() //nolint:errcheck // nothing was written to it
	if r.Parts, _, err = verify(dir); err != nil {
		return r, err
	}
	for _, p := range r.Parts {
		if len(p.Damage) == 0 || !p.Damage[0].Repairable {
			continue
		}
		keep := func(name string) (err error) {
			if r.Quarantine == "" {
				if r.Quarantine, err = newQuarantine(dir, whyRepaired(r.Parts)); err != nil {
					return err
				}
			}
			return keepFile(filepath.Join(dir, r.Quarantine, p.Name), filepath.Join(dir, p.Name, name))
		}
		if _, err := segment.Repair(filepath.Join(dir, p.Name), kindOf(p.Name), lengthOf(dir, p.Name), keep); err != nil {
			return r, err
		}
	}
	return r, nil
}

func whyRepaired(parts []Part) string {
	var b strings.Builder
	fmt.Fprintf(&b, "store repair, %s\n", time.Now().UTC().Format(time.RFC3339))
	for _, p := range parts {
		for _, d := range p.Damage {
			fmt.Fprintf(&b, "%s: %s\n", p.Name, d)
		}
	}
	return b.String()
}

// keepFile copies a file to a directory and syncs the copy. A hard link would not do:
// opening the log may truncate the original.
func keepFile(dir, name string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(filepath.Join(dir, filepath.Base(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close(), syncDir(dir))
}
