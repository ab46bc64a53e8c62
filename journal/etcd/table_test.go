package etcd

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/journal"
)

// watched is a table as a watching server sees it.
type watched struct {
	mu    sync.Mutex
	rows  map[string]string
	whole int
	moved chan struct{}
}

func watchTable(t *testing.T, c *Cluster, table string) *watched {
	w := &watched{rows: map[string]string{}, moved: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Facts(ctx, table, func(facts []Fact, whole bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if whole {
				w.rows = map[string]string{}
				w.whole++
			}
			for _, f := range facts {
				if f.Deleted {
					delete(w.rows, f.Key)
				} else {
					w.rows[f.Key] = f.Value
				}
			}
			select {
			case w.moved <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return w
}

// until waits until the rows are equal to want.
func (w *watched) until(t *testing.T, want map[string]string) {
	t.Helper()
	end := time.After(20 * time.Second)
	for {
		w.mu.Lock()
		is := maps.Clone(w.rows)
		w.mu.Unlock()
		if maps.Equal(is, want) {
			return
		}
		select {
		case <-w.moved:
		case <-end:
			t.Fatalf("the table is %v, want %v", is, want)
		}
	}
}

// TestTable: all servers see the rows, first values stay, and leased rows and elections
// end with their server.
func TestTable(t *testing.T) {
	endpoint, prefix := shared(t)
	ctx := within(t, time.Minute)
	a, b := connect(t, "a", prefix, endpoint), connect(t, "b", prefix, endpoint)
	seen := watchTable(t, b, "g")
	if err := a.Note(ctx, "g", "x", "1", false); err != nil {
		t.Fatal(err)
	}
	if err := a.Note(ctx, "g", "here/a", "a", true); err != nil {
		t.Fatal(err)
	}
	if err := a.Note(ctx, "other", "x", "9", false); err != nil {
		t.Fatal(err)
	}
	for value, c := range map[string]*Cluster{"1": a, "2": b} {
		if got, err := c.First(ctx, "g", "x", value); got != "1" || err != nil {
			t.Errorf("first of %s: %q, %v", value, got, err)
		}
	}
	if got, err := b.First(ctx, "g", "app/y", "main"); got != "main" || err != nil {
		t.Errorf("first: %q, %v", got, err)
	}
	seen.until(t, map[string]string{"x": "1", "here/a": "a", "app/y": "main"})
	if err := b.Forget(ctx, "g", "x"); err != nil {
		t.Fatal(err)
	}
	seen.until(t, map[string]string{"here/a": "a", "app/y": "main"})

	for range 2 {
		if leads, who, err := a.Elect(ctx, "work"); !leads || who.Server != "a" || err != nil {
			t.Fatalf("a: %v, %v, %v", leads, who, err)
		}
		if leads, who, err := b.Elect(ctx, "work"); leads || who.Server != "a" || err != nil {
			t.Fatalf("b: %v, %v, %v", leads, who, err)
		}
	}
	if _, _, err := a.Elect(ctx, "a/b"); err == nil {
		t.Error("a work of a strange name")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	seen.until(t, map[string]string{"app/y": "main"})
	if _, ok, err := b.Elected(ctx, "work"); ok || err != nil {
		t.Errorf("somebody is elected: %v", err)
	}
	if leads, _, err := b.Elect(ctx, "work"); !leads || err != nil {
		t.Errorf("b: %v, %v", leads, err)
	}
}

// TestAnOwnerIsNoStandby: after Unfollow, the checkpoint that a server set as a standby
// does not keep its own journal from being trimmed.
func TestAnOwnerIsNoStandby(t *testing.T) {
	endpoint, prefix := shared(t)
	ctx := within(t, time.Minute)
	c := connect(t, "a", prefix, endpoint)
	if err := c.Checkpoint(ctx, "one", 1); err != nil {
		t.Fatal(err)
	}
	j := own(t, c, "one")
	if got, err := c.Standbys(ctx, "one"); len(got) != 1 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	for i := range 10 {
		mustPut(t, j, fmt.Sprint(i))
	}
	if err := j.Trim(8); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(ctx, "one", 1, func(uint64, journal.Slot, []byte) error { return nil }); err != nil {
		t.Errorf("trimmed past a standby: %v", err)
	}
	if err := c.Unfollow(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	if err := j.Trim(8); err != nil {
		t.Fatal(err)
	}
	if err := c.Read(ctx, "one", 1, func(uint64, journal.Slot, []byte) error { return nil }); err == nil {
		t.Error("nobody follows, and nothing was trimmed")
	}
	if end, err := c.End(ctx, "one"); end != 11 || err != nil {
		t.Errorf("it ends at %d, %v", end, err)
	}
}
