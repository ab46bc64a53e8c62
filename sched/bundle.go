package sched

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/store"
)

// Under load a capture finds thousands of runs that are live at its moment, and the
// next one finds that nearly all of them have ended: a row for each, set and soon
// deleted, was most of what badger had to do. So they go to the store together, in a
// few large rows: the bundle. The next capture replaces it, and gives those of its
// runs that are still there a row of their own.
//
// Invariant: what the bundle says of a run is newer than the run's own row, if it has
// one.

// bundle is what the store has of it, or will have with the capture under way.
type bundle struct {
	rows int        // how many rows of the store it takes
	runs []*job.Run // the runs in it
}

// bundleBytes is about how large a row of a bundle is: two of them fit into a block
// of a table of the store, of 16 KiB. For a larger one the store makes a block by
// doubling, and a table with such blocks takes four times its size to be made, in
// buffers that are kept while there is a load.
const bundleBytes = 15 << 9

func bundleRow(i int) string { return fmt.Sprintf("%s%04d", bundlePrefix, i) }

const bundlePrefix = "live/"

// captureRuns writes the live runs that have changed, and removes those that have
// ended.
func (l *loop) captureRuns(c *capture) error {
	v := &l.view
	own := func(r *job.Run) error {
		b, err := v.ends.write(r)
		c.batch.Runs = append(c.batch.Runs, store.RunRow{App: r.App, ID: r.ID, Value: b})
		r.Mark |= isStored
		return err
	}
	for _, r := range v.bundle.runs {
		if r.Mark&isDirty == 0 { // it goes on; what has ended has changed
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
		case live > l.cfg.BundleRuns:
			v.bundle.runs = append(v.bundle.runs, r)
		default:
			if err := own(r); err != nil {
				return err
			}
		}
	}
	return v.putBundle(c)
}

// putBundle writes the bundle in place of the one before.
func (c *checkpoints) putBundle(to *capture) error {
	before, b := c.bundle.rows, []byte(nil)
	c.bundle.rows = 0
	put := func() {
		to.batch.Rows = append(to.batch.Rows, store.Row{Key: bundleRow(c.bundle.rows), Value: b})
		to.bundled = append(to.bundled, b)
		c.bundle.rows++
		b = nil
	}
	for _, r := range c.bundle.runs {
		if b == nil {
			if n := len(c.bundleRooms); n > 0 {
				b, c.bundleRooms = c.bundleRooms[n-1], c.bundleRooms[:n-1]
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
	for i := c.bundle.rows; i < before; i++ {
		to.batch.Rows = append(to.batch.Rows, store.Row{Key: bundleRow(i)})
	}
	return nil
}

// appRun names a run of the store.
type appRun struct {
	app string
	id  job.RunID
}

// loadBundle reads the bundle of the store. Its runs are written anew with the first
// capture, which removes it.
func (c *checkpoints) loadBundle(s *store.Store) (map[appRun]*apiv1.RunRow, error) {
	runs := map[appRun]*apiv1.RunRow{}
	err := s.Rows(bundlePrefix, "", "", func(key string, value []byte) error {
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
		c.bundle.rows++
		return nil
	})
	return runs, err
}
