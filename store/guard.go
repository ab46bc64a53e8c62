package store

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrFull means that the disk has too little free space to write safely. Nothing was
// written. The same call may succeed later.
var ErrFull = errors.New("disk is full")

// Badger writes in the background after a commit, through memory maps: without free space
// it crashes the process. The guard therefore reserves space for
//
//   - tables of the rows that are in memory only: at most unflushedLimit, the
//     memtables that are waiting (3), being written (1) and being filled (1), each
//     with a transaction;
//   - new tables of compactions, written before the old ones go: never more than
//     all tables, at most compactionLimit: level 0 when it is full, the
//     base level and the second compactor.
//
// Slack covers other writers between two checks of the disk: a segment of the journal, and
// headers of new files.
const (
	unflushedLimit  = 5 * (memTableBytes + memTableBytes*15/100)
	compactionLimit = 512 << 20
	slack           = 64 << 20

	closeSlack = 1 << 20 // for headers and the manifest, when badger closes

	// statEvery is the largest age of a check of the disk. A process that fills the disk
	// writes a GiB a second: in 100 ms that is more than slack.
	statEvery = 5 * time.Millisecond
)

// guard refuses writes while the disk has less free space than must stay free.
type guard struct {
	dir  string
	stat func(dir string) (free, total int64, err error)
	need func() int64 // bytes that must stay free

	mu      sync.Mutex
	looked  time.Time
	free    int64 // free space at looked, less the writes allowed since then
	reserve int64 // result of need at looked
}

// check allows a write of n bytes or returns [ErrFull].
func (g *guard) check(n int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now := time.Now(); now.Sub(g.looked) >= statEvery {
		free, _, err := g.stat(g.dir)
		if err != nil {
			return err
		}
		g.looked, g.free, g.reserve = now, free, g.need()
	}
	if g.free-n < g.reserve {
		return fmt.Errorf("%w: %s has %s free, and %s must stay free while writing %s: make room on it",
			ErrFull, g.dir, mebibytes(g.free), mebibytes(g.reserve), mebibytes(n))
	}
	g.free -= n
	return nil
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<19)>>20) }

// reserveFor returns the space described above for a view with that many bytes in tables
// and that many not flushed to tables yet.
func reserveFor(tables, unflushed int64) int64 {
	unflushed = min(unflushed, unflushedLimit)
	return slack + unflushed + min(tables+unflushed, compactionLimit)
}
