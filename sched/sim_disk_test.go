package sched_test

import (
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/journal"
)

var errPower = errors.New("the power failed")

// disk is the journal of a simulated machine. Its disk may be full, and its power may
// fail. Then records that were appended lazily and not flushed are lost, and the append
// at that moment fails whether or not it reached the disk.
type disk struct {
	journal.Journal
	note string        // the file that an orderly close of the journal leaves
	slow time.Duration // how long a replay takes

	mu    sync.Mutex
	lazy  []journal.Record // appended lazily, not yet passed on
	lost  uint64           // records that reached no disk
	room  int64            // the room while the disk is full
	full  bool
	dead  bool
	fuse  int  // appends until the power fails; 0: it does not
	whole bool // whether that append still reaches the disk
}

// flushAfter is the longest time for which the journal may hold lazily appended records.
const flushAfter = 100 * time.Millisecond

func (d *disk) Append(recs []journal.Record, done func(error)) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := append(d.lazy, recs...)
	d.lazy = nil
	if d.fuse > 0 && !d.dead {
		d.fuse--
		if d.dead = d.fuse == 0; d.dead && d.whole {
			last, err := d.Journal.Append(all, func(error) {})
			go done(errPower)
			return last, err
		}
	}
	if d.dead {
		d.lost += uint64(len(all))
		go done(errPower)
		return d.Journal.Next() + d.lost - 1, nil
	}
	return d.Journal.Append(all, done)
}

func (d *disk) AppendLazy(recs []journal.Record) (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead {
		d.lost += uint64(len(recs))
	} else {
		if len(d.lazy) == 0 {
			time.AfterFunc(flushAfter, func() { d.flush() }) //nolint:errcheck // Close sees the error as well
		}
		d.lazy = append(d.lazy, copied(recs)...)
	}
	return d.Journal.Next() + d.lost + uint64(len(d.lazy)) - 1, nil
}

// copied returns a deep copy of records. The caller of an append owns the originals.
func copied(recs []journal.Record) []journal.Record {
	own := slices.Clone(recs)
	for i := range own {
		own[i].Body = slices.Clone(own[i].Body)
	}
	return own
}

// spare cancels a pending power failure.
func (d *disk) spare() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fuse = 0
}

func (d *disk) flush() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead || len(d.lazy) == 0 {
		return nil
	}
	_, err := d.Journal.AppendLazy(d.lazy)
	d.lazy = nil
	return err
}

func (d *disk) Next() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Journal.Next() + d.lost + uint64(len(d.lazy))
}

func (d *disk) Room() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return d.room
	}
	return d.Journal.Room()
}

// Close removes the note of an orderly close when the power has failed.
func (d *disk) Close() error {
	err := errors.Join(d.flush(), d.Journal.Close())
	if d.isDead() {
		err = errors.Join(err, os.RemoveAll(d.note))
	}
	return err
}

func (d *disk) Read(from uint64, fn func(uint64, journal.Slot, []byte) error) error {
	time.Sleep(d.slow)
	return d.Journal.Read(from, fn)
}

func (d *disk) Orderly() bool     { return d.Journal.(journal.Orderly).Orderly() }
func (d *disk) Opened() time.Time { return d.Journal.(journal.Orderly).Opened() }
func (d *disk) Settle()           { d.Journal.(journal.Orderly).Settle() }

// fill limits the room on the disk until free is called.
func (d *disk) fill(room int64) { d.set(func() { d.full, d.room = true, room }) }
func (d *disk) free()           { d.set(func() { d.full = false }) }

// cutPower makes the power fail at the n-th append from now on. If whole, that append
// still reaches the disk.
func (d *disk) cutPower(n int, whole bool) { d.set(func() { d.fuse, d.whole = n, whole }) }

func (d *disk) isDead() (dead bool) { d.set(func() { dead = d.dead }); return dead }

func (d *disk) set(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}
