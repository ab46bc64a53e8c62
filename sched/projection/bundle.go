package projection

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/store"
)

// Under load a projection batch has thousands of live runs, and nearly all of them have
// ended when the next batch is made. With one row for each run, written and soon deleted,
// these rows were most of the work of badger. So the runs are written together in a few
// large rows, the packed rows (bundle in the code, ADR 29). The next batch replaces the
// packed rows, and writes a separate row for each of their runs that has not changed. In
// four pairs the row e2e/batch100 of bench/sched was 1.06 times as high as without the rows
// of live runs altogether, and with rows of this size 1.16 times as high as with large ones.
//
// Invariant: the state of a run in a packed row is newer than the run's own row, if it has
// one.

// bundle describes the packed rows of the store, as they are after the projection batch
// that the writer has.
type bundle struct {
	rows int        // number of packed rows
	runs []*job.Run // the runs in the packed rows
}

// bundleBytes is the approximate size of a packed row. Two such rows fit into one 16 KiB
// block of a table of the store. For a larger row the store doubles the block. To build a
// table with such blocks it needs buffers of four times the table's size, which it retains
// under load.
const bundleBytes = 15 << 9

func bundleRow(i int) string { return fmt.Sprintf("%s%04d", bundlePrefix, i) }

const bundlePrefix = "live/"

// addRuns adds the changed live runs to the projection batch, and deletes the rows of
// those that have ended.
func (v *View) addRuns(c *Batch) error {
	own := func(r *job.Run) error {
		b, err := v.ends.write(r)
		c.batch.Runs = append(c.batch.Runs, store.RunRow{App: r.App, ID: r.ID, Value: b})
		r.Mark |= isStored
		return err
	}
	for _, r := range v.bundle.runs {
		if r.Mark&isDirty == 0 { // still live: a run that has ended is dirty
			if err := own(r); err != nil {
				return err
			}
		}
	}
	clear(v.bundle.runs)
	v.bundle.runs = v.bundle.runs[:0]
	live := 0
	for _, r := range v.runs {
		if !r.State.Terminal() {
			live++
		}
	}
	for _, r := range v.runs {
		r.Mark &^= isDirty
		switch {
		case r.State.Terminal():
			if r.Mark&isStored != 0 {
				c.batch.Runs = append(c.batch.Runs, store.RunRow{App: r.App, ID: r.ID})
				r.Mark &^= isStored
			}
		case live > v.cfg.BundleRuns:
			v.bundle.runs = append(v.bundle.runs, r)
		default:
			if err := own(r); err != nil {
				return err
			}
		}
	}
	return v.putBundle(c)
}

// putBundle replaces the packed rows of the previous projection batch.
func (v *View) putBundle(to *Batch) error {
	before, b := v.bundle.rows, []byte(nil)
	v.bundle.rows = 0
	put := func() {
		to.batch.Rows = append(to.batch.Rows, store.Row{Key: bundleRow(v.bundle.rows), Value: b})
		to.bundled = append(to.bundled, b)
		v.bundle.rows++
		b = nil
	}
	for _, r := range v.bundle.runs {
		if b == nil {
			if n := len(v.bundleRooms); n > 0 {
				b, v.bundleRooms = v.bundleRooms[n-1], v.bundleRooms[:n-1]
			} else {
				b = make([]byte, 0, bundleBytes+bundleBytes/8)
			}
		}
		var err error
		if b, err = r.AppendLive(b); err != nil {
			return err
		}
		if len(b) >= bundleBytes {
			put()
		}
	}
	if b != nil {
		put()
	}
	for i := v.bundle.rows; i < before; i++ {
		to.batch.Rows = append(to.batch.Rows, store.Row{Key: bundleRow(i)})
	}
	return nil
}

// appRun identifies a run in the store.
type appRun struct {
	app string
	id  job.RunID
}

// loadBundle reads the packed rows of the store. The first projection batch replaces them:
// the caller marks their runs as changed.
func (v *View) loadBundle() (map[appRun]*apiv1.RunRow, error) {
	runs := map[appRun]*apiv1.RunRow{}
	err := v.cfg.Store.Rows(bundlePrefix, "", "", func(key string, value []byte) error {
		row := &apiv1.LiveRow{}
		if err := proto.Unmarshal(value, row); err != nil {
			return fmt.Errorf("row %q: %w", key, err)
		}
		for _, r := range row.Runs {
			if len(r.Id) != len(job.RunID{}) {
				return fmt.Errorf("row %q: a run has an id of %d bytes", key, len(r.Id))
			}
			runs[appRun{r.App, job.RunID(r.Id)}] = r
		}
		v.bundle.rows++
		return nil
	})
	return runs, err
}
