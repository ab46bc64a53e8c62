package projection

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/store"
)

// bundling is a view with its store; it makes a batch when the test calls write.
type bundling struct {
	t    *testing.T
	s    *store.Store
	v    *View
	slot *job.Slot
}

// apps is a Target.
type apps map[string]*App

func (to apps) App(name string) *App {
	if to[name] == nil {
		slots := new([job.Slots]*job.Slot)
		for i := range slots {
			slots[i] = job.NewSlot(name, uint8(i))
		}
		a := NewApp(name, slots)
		to[name] = &a
	}
	return to[name]
}

func (apps) LoadedJob(*job.Job) {}

func (apps) LoadCanary(string, string, *job.Tally) {}

func (apps) LoadAccess(string, string, []byte) error { return nil }

func (apps) LoadAudit(*apiv1.AuditHeadRow) {}

func newView(s *store.Store) *View {
	return New(Config{Store: s, BundleRuns: 10, StatsBatch: 1000})
}

func newBundling(t *testing.T) *bundling {
	t.Helper()
	s, err := store.Open(store.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // the test is over
	b := &bundling{t: t}
	b.open(s)
	return b
}

// open loads the store into a new view, as a server does at its start.
func (b *bundling) open(s *store.Store) {
	b.t.Helper()
	to := apps{}
	b.s, b.v = s, newView(s)
	if _, err := b.v.Load(to); err != nil {
		b.t.Fatal(err)
	}
	b.slot = to.App("default").Slots[0]
}

// come creates the live runs first to last-1.
func (b *bundling) come(first, last int) {
	b.t.Helper()
	definition, err := proto.Marshal(&apiv1.Job{App: "default", Name: "j", Handler: &apiv1.Handler{Module: "m@1"}})
	if err != nil {
		b.t.Fatal(err)
	}
	for i := first; i < last; i++ {
		row := &apiv1.RunRow{Id: b.id(i), App: "default", Job: "j", State: string(job.Queued), Definition: definition, Input: make([]byte, 40<<10)}
		if err := b.slot.LoadRun(row); err != nil {
			b.t.Fatal(err)
		}
		b.v.RunChanged(b.run(i))
	}
}

func (*bundling) id(i int) []byte { return fmt.Appendf(nil, "%06d\x00%09d", i, i) }

func (b *bundling) run(i int) *job.Run { return b.slot.Runs.Get(job.RunID(b.id(i))) }

// set changes the state of runs.
func (b *bundling) set(state job.State, runs ...int) {
	for _, i := range runs {
		r := b.run(i)
		r.State = state
		b.v.RunChanged(r)
	}
}

// write writes the changed rows to the store.
func (b *bundling) write() {
	b.t.Helper()
	if err := b.v.Flush(time.Now(), 0); err != nil {
		b.t.Fatal(err)
	}
}

// stored returns the number of runs with a row of their own, and of runs in packed rows.
func (b *bundling) stored() (own, bundled int) {
	b.t.Helper()
	s := b.s
	if err := s.Load(store.Loader{Run: func(string, [16]byte, []byte) error { own++; return nil }}); err != nil {
		b.t.Fatal(err)
	}
	if err := s.Rows(bundlePrefix, "", "", func(_ string, value []byte) error {
		row := &apiv1.LiveRow{}
		if err := proto.Unmarshal(value, row); err != nil {
			return err
		}
		bundled += len(row.Runs)
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
	return own, bundled
}

// want checks the rows in the store, and that a loop which loads it has these runs in
// these states.
func (b *bundling) want(what string, own, bundled int, states map[int]job.State) {
	b.t.Helper()
	if o, n := b.stored(); o != own || n != bundled {
		b.t.Errorf("%s: %d runs have rows of their own and %d are in the bundle, want %d and %d", what, o, n, own, bundled)
	}
	b.open(b.s)
	got := map[int]job.State{}
	for i := range 1000 {
		if r := b.run(i); r != nil {
			got[i] = r.State
		}
	}
	if !maps.Equal(got, states) {
		b.t.Errorf("%s: after a restart there are %v, want %v", what, got, states)
	}
}

func all(state job.State, runs ...int) map[int]job.State {
	states := map[int]job.State{}
	for _, i := range runs {
		states[i] = state
	}
	return states
}

func upTo(n int) (list []int) {
	for i := range n {
		list = append(list, i)
	}
	return list
}

// TestBundle checks three properties: a large number of live runs is written in packed
// rows; runs that are still live get rows of their own in the next capture; and a restart
// finds each run as it was captured last.
func TestBundle(t *testing.T) {
	t.Run("few", func(t *testing.T) {
		b := newBundling(t)
		b.come(0, 10)
		b.write()
		b.want("as many as the limit", 10, 0, all(job.Queued, upTo(10)...))
	})
	t.Run("many", func(t *testing.T) {
		b := newBundling(t)
		b.come(0, 30)
		b.write()
		if rows := b.v.bundle.rows; rows < 5 {
			t.Fatalf("they fit into %d rows: the test tests nothing", rows)
		}
		b.want("many", 0, 30, all(job.Queued, upTo(30)...))
		// The restarted loop has loaded the packed rows, and writes them again.
		b.write()
		b.want("after the restart", 0, 30, all(job.Queued, upTo(30)...))
	})
	t.Run("they go on", func(t *testing.T) {
		b := newBundling(t)
		b.come(0, 30)
		b.write()
		b.set(job.Succeeded, upTo(25)...)
		b.set(job.Running, 25)
		if !b.v.Dirty() {
			t.Fatal("there is nothing to capture")
		}
		b.write()
		states := all(job.Queued, 26, 27, 28, 29)
		states[25] = job.Running
		b.want("they go on", 5, 0, states)
	})
	t.Run("nothing else happens", func(t *testing.T) {
		b := newBundling(t)
		b.come(0, 30)
		b.write()
		if !b.v.Dirty() {
			t.Fatal("the bundle stays for ever")
		}
		b.write()
		if b.v.Dirty() {
			t.Error("there is still something to capture")
		}
		b.want("nothing else happened", 30, 0, all(job.Queued, upTo(30)...))
	})
	t.Run("a smaller one follows", func(t *testing.T) {
		b := newBundling(t)
		b.come(0, 30)
		b.write()
		b.set(job.Running, upTo(12)...)
		b.set(job.Succeeded, 20, 21)
		b.write()
		states := all(job.Queued, 12, 13, 14, 15, 16, 17, 18, 19, 22, 23, 24, 25, 26, 27, 28, 29)
		maps.Copy(states, all(job.Running, upTo(12)...))
		b.want("a smaller one follows", 16, 12, states)
	})
	t.Run("newer than a row", func(t *testing.T) {
		b := newBundling(t)
		b.come(0, 5)
		b.write() // one row for each run
		b.come(5, 30)
		b.set(job.Running, upTo(5)...)
		b.write()
		states := all(job.Queued, upTo(30)...)
		maps.Copy(states, all(job.Running, upTo(5)...))
		b.want("newer than a row", 5, 30, states)
		// After that restart, the capture also deletes the old rows of the runs that end.
		b.set(job.Succeeded, upTo(29)...)
		b.write()
		b.want("they have ended", 1, 0, all(job.Queued, 29))
	})
	t.Run("once more with the same id", func(t *testing.T) {
		b := newBundling(t)
		b.come(0, 30)
		b.write()
		r := b.run(7) // revoked and planned again
		r.State = job.Cancelled
		b.v.RunChanged(r)
		b.slot.Runs = job.Runs{}
		b.come(7, 8)
		b.set(job.Waiting, 7)
		b.write()
		states := all(job.Queued, slices.DeleteFunc(upTo(30), func(i int) bool { return i == 7 })...)
		states[7] = job.Waiting
		b.want("once more with the same id", 30, 0, states)
	})
	t.Run("what cannot be read", func(t *testing.T) {
		b := newBundling(t)
		if err := b.s.Commit(&store.Batch{Rows: []store.Row{{Key: bundleRow(0), Value: []byte{0xff}}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := newView(b.s).Load(apps{}); err == nil {
			t.Error("a bundle that is damaged is passed over")
		}
	})
}
