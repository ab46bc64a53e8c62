package projection

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/store"
)

// someRuns returns n ended runs whose outputs have very different lengths.
func someRuns(t *testing.T, n int) []*job.Run {
	t.Helper()
	definition, err := proto.Marshal(&apiv1.Job{App: "default", Name: "j", Handler: &apiv1.Handler{Module: "m@1"}})
	if err != nil {
		t.Fatal(err)
	}
	slot := job.NewSlot("default", 0)
	var runs []*job.Run
	for i := range n {
		row := &apiv1.RunRow{
			Id: fmt.Appendf(nil, "%016d", i), App: "default", Job: "j", State: string(job.Succeeded), Definition: definition,
			Output: bytes.Repeat([]byte{byte(i)}, i*i*7%5000),
		}
		if i%97 == 96 {
			row.Output = bytes.Repeat([]byte{byte(i)}, rowRoom+i)
		}
		if err := slot.LoadRun(row); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, slot.Runs.Get(job.RunID(row.Id)))
	}
	return runs
}

// TestRoomsAreUsedAgain checks that rows stay until forget, that their buffers ("rooms")
// then serve the next rows, and that unneeded buffers are released.
func TestRoomsAreUsedAgain(t *testing.T) {
	runs := someRuns(t, 300)
	f := &finished{rows: map[job.RunID]int{}}
	live := someRuns(t, 50)
	var took []int
	for round, n := range []int{300, 300, 3, 3, 250} {
		spare := len(f.spare)
		for _, r := range runs[:n] {
			if err := f.add(r); err != nil {
				t.Fatal(err)
			}
		}
		row, err := f.write(live[round])
		if err != nil {
			t.Fatal(err)
		}
		want, err := live[round].AppendRow(nil)
		if err != nil || !bytes.Equal(row, want) {
			t.Fatalf("round %d: the row of a live run is not what was written, %v", round, err)
		}
		for _, r := range runs[:n] {
			want, err := r.AppendRow(nil)
			if err != nil || !bytes.Equal(f.row("default", r.ID), want) {
				t.Fatalf("round %d: the row of run %s is not what was written, %v", round, r.ID, err)
			}
		}
		if round == 1 && (spare == 0 || len(f.spare) != 0 || len(f.used) != spare) {
			t.Fatalf("of %d rooms, %d were used again", spare, len(f.used))
		}
		took = append(took, len(f.used))
		f.forget()
		if f.row("default", runs[0].ID) != nil || len(f.spare) != took[round] {
			t.Fatalf("round %d: %d rooms are kept of %d", round, len(f.spare), took[round])
		}
	}
	if took[0] < 3 || took[2] != 1 {
		t.Fatalf("it took %d rooms: the test tests nothing", took)
	}
}

// TestKeyRoomsAreUsedAgain checks that a buffer for keys is reused only after its capture
// is in the store, and not if it is much too large.
func TestKeyRoomsAreUsedAgain(t *testing.T) {
	c := New(Config{StatsBatch: 1})
	a := &App{}
	add := func(n int) *Batch {
		for i := range n {
			c.KeyAdded(a, [16]byte{byte(i)}, job.RunID{1}, 1, 0)
		}
		done := &Batch{batch: &store.Batch{Keys: []store.Keys{{Value: c.keys[a].bytes}}}}
		c.reset()
		return done
	}
	room := func(c *Batch) []byte { return c.batch.Keys[0].Value }
	first, second := add(1000), add(1000)
	one, two := room(first), room(second)
	if &one[0] == &two[0] {
		t.Fatal("a room is used while the writer has it")
	}
	c.reuse(first)
	three := room(add(1000))
	if &three[0] != &one[0] || !bytes.Equal(three, two) {
		t.Fatal("the room is not used again")
	}
	c.reuse(second)
	small := add(2)
	c.reuse(small)
	if len(c.keyRooms) != 0 {
		t.Fatal("a large room is kept for few keys")
	}
}

// TestRoomsAreLetGo checks that spare buffers are released keepRooms after the last
// capture, and that the loop is woken only once for that.
func TestRoomsAreLetGo(t *testing.T) {
	const every = 200 * time.Millisecond
	now := time.Now()
	busy := map[string]func(c *View){
		"nothing":                 func(*View) {},
		"the writer is at work":   func(c *View) { c.writer.busy = true },
		"a row has changed":       func(c *View) { c.small = map[string]func() proto.Message{"row": nil} },
		"a run has ended":         func(c *View) { c.ends.runs = make([]ended, 1) },
		"there was no capture":    func(c *View) { c.roomy = false },
		"the writer has not told": func(c *View) { c.writing.runs = make([]ended, 1) },
	}
	for what, set := range busy {
		c := New(Config{StatsBatch: 1, Every: every})
		c.writer.last = now
		for _, r := range someRuns(t, 300) {
			if err := c.RunEnded(r); err != nil {
				t.Fatal(err)
			}
		}
		a := &App{}
		c.KeyAdded(a, [16]byte{1}, job.RunID{1}, 1, 0)
		done := &Batch{batch: &store.Batch{Keys: []store.Keys{{Value: c.keys[a].bytes}}}}
		c.reset()
		c.ends.forget()
		c.reuse(done)
		set(c)
		rooms := func() int { return len(c.ends.spare) + len(c.keyRooms) }
		before := rooms()
		if before == 0 {
			t.Fatal("the test tests nothing")
		}
		if c.relax(now.Add(keepRooms - 1)); rooms() != before {
			t.Errorf("%s: rooms go at once", what)
		}
		wait, woken := c.Wait(now)
		c.relax(now.Add(keepRooms))
		if what != "nothing" {
			if rooms() != before {
				t.Errorf("%s: rooms go", what)
			}
			if woken && !c.Dirty() {
				t.Errorf("%s: the loop wakes for nothing, in %v", what, wait)
			}
			continue
		}
		if !woken || wait != keepRooms || rooms() != 0 {
			t.Errorf("the loop is woken: %v, in %v; %d rooms are kept", woken, wait, rooms())
		}
		if _, woken := c.Wait(now.Add(keepRooms)); woken {
			t.Error("the loop is woken once more")
		}
	}
}

// TestStatsDoNotKeepReaders checks that readers which wait for the store do not wait for
// deferred statistics, but for all other rows.
func TestStatsDoNotKeepReaders(t *testing.T) {
	for _, c := range []struct {
		what                      string
		busy, late, fresh, served bool
	}{
		{"nothing to write", false, false, false, true},
		{"stats are under way", true, true, false, true},
		{"stats are under way, and a row changed", true, true, true, false},
		{"rows are under way", true, false, false, false},
	} {
		v := New(Config{Every: time.Hour, StatsBatch: 20_000})
		v.writer.busy, v.writer.late = c.busy, c.late
		if c.fresh {
			v.small = map[string]func() proto.Message{"row": nil}
		}
		ready := v.Await(0)
		if _, err := v.Turn(time.Now(), 0); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ready:
			if !c.served {
				t.Errorf("%s: the reader is served", c.what)
			}
		default:
			if c.served {
				t.Errorf("%s: the reader waits", c.what)
			}
		}
	}
}

// TestStatsInPieces checks that captures with statistics only are small and frequent, and
// write as many rows in all as one large capture.
func TestStatsInPieces(t *testing.T) {
	for _, batch := range []int{20_000, 100, 40, 7, 1} {
		const every = 200 * time.Millisecond
		c := New(Config{StatsBatch: batch, Every: every})
		pieces := int(every / c.distance())
		if got := pieces * (batch / c.pieces); got > batch || got < batch/2 {
			t.Errorf("%d at once are %d in pieces", batch, got)
		}
		if each := batch / c.pieces; each > 500 {
			t.Errorf("a piece of %d is %d", batch, each)
		}
		if c.writer.large = true; c.distance() != 10*every {
			t.Error("under load stats are written as often")
		}
		c.writer.large, c.small = false, map[string]func() proto.Message{"row": nil}
		if c.distance() != every {
			t.Error("beside other rows there are as many captures")
		}
	}
}

// TestManyLiveRunsWait checks that rows of live runs are not written while a very large
// number of them is about to end. The rows of ended runs do not force them out either, as
// long as there is room for those.
func TestManyLiveRunsWait(t *testing.T) {
	const every = 200 * time.Millisecond
	for _, c := range []struct {
		live, ended int
		manyEnded   bool
		distance    time.Duration
	}{
		{10, 10, false, every},
		{2*manyRows + 1, 0, false, 20 * every},
		{100, soonRuns, true, every},
		{75_000, soonRuns, false, 20 * every},
		{2 * manyRows, 3 * soonRuns / 2, true, every},
		{1_000_000, 2 * soonRuns, true, 20 * every},
	} {
		v := New(Config{StatsBatch: 20_000, Every: every})
		v.runs, v.ends.runs = make([]*job.Run, c.live+c.ended), make([]ended, c.ended)
		if v.manyEnded() != c.manyEnded || v.distance() != c.distance {
			t.Errorf("%d live and %d ended: %v, %v", c.live, c.ended, v.manyEnded(), v.distance())
		}
	}
}

// TestKeysAreForgotten checks that a chunk of idempotency keys is retained exactly as
// long as one of its keys is valid.
func TestKeysAreForgotten(t *testing.T) {
	slots := new([job.Slots]*job.Slot)
	for i := range slots {
		slots[i] = job.NewSlot("a", uint8(i))
	}
	a := NewApp("a", slots)
	const nowMs = 1_800_000_000_000
	var n uint64
	add := func(slot, keys int) {
		for range keys {
			n++
			var hash [16]byte
			binary.LittleEndian.PutUint64(hash[:], n)
			slots[slot].LoadKey(hash, job.RunID{}, nowMs, 0)
		}
	}
	add(0, 10)
	add(1, 1)
	busy := (&keyRoom{atMs: nowMs, slots: 1}).chunk(&a, 1)
	both := (&keyRoom{atMs: nowMs, slots: 1 | 2}).chunk(&a, 2)
	add(0, job.MaxKeys-1)
	if busy.over(nowMs) || both.over(nowMs) {
		t.Fatal("a chunk is dropped whose last key is remembered")
	}
	add(0, 1)
	if !busy.over(nowMs) {
		t.Error("a chunk stays whose keys are forgotten")
	}
	if both.over(nowMs) {
		t.Error("a chunk is dropped of which the key of another slot is remembered")
	}
	if !both.over(nowMs + job.KeyWindow.Milliseconds() + 1) {
		t.Error("a chunk stays whose keys are too old")
	}
}
