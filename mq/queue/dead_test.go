package queue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
)

// graveyard returns a queue with six dead letters, a second apart: a/g 1k 2 3k!, b/g 4k
// 5! and b/h 4k, where k is a key and ! permanent.
func graveyard(t *testing.T) (*Queue, []Dead) { return retaining(t, 0) }

// retaining is graveyard with a retention.
func retaining(t *testing.T, dead time.Duration) (*Queue, []Dead) {
	cfg := small(t.TempDir())
	cfg.MaxAttempts, cfg.RetainDead = 1, dead
	q := open(t, cfg)
	publish(t, q, msg("a", "k", "1"), msg("a", "", "2"), msg("a", "k", "3"), msg("b", "k", "4"), msg("b", "", "5"))
	kill := func(c *Consumer, permanent bool) {
		nack(t, c, fetch(t, c, 1)[0], permanent)
		time.Sleep(time.Second)
	}
	a, b, h := consumer(t, q, "a", "g"), consumer(t, q, "b", "g"), consumer(t, q, "b", "h")
	for i := range 3 {
		kill(a, i == 2)
	}
	kill(b, false)
	kill(b, true)
	kill(h, false)
	ds, next, err := q.Dead(Filter{}, "", 100)
	if err != nil || next != "" || len(ds) != 6 {
		t.Fatalf("%d dead letters, next %q, %v", len(ds), next, err)
	}
	return q, ds
}

func letters(ds []Dead) string {
	s := ""
	for _, d := range ds {
		s += string(d.Body)
	}
	return s
}

func TestDeadFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, all := graveyard(t)
		for _, tc := range []struct {
			name string
			f    Filter
			want string
		}{
			{"all", Filter{}, "123454"},
			{"topic", Filter{Topic: "a"}, "123"},
			{"group", Filter{Group: "h"}, "4"},
			{"topic and group", Filter{Topic: "b", Group: "g"}, "45"},
			{"key", Filter{Key: "k"}, "1344"},
			{"no such key", Filter{Key: "kk"}, ""},
			{"permanent", Filter{Reason: Permanent}, "35"},
			{"attempts", Filter{Reason: Attempts}, "1244"},
			{"from", Filter{From: all[4].Died}, "54"},
			{"to", Filter{To: all[4].Died}, "1234"},
			{"error", Filter{Error: "broke: 4"}, "44"},
			{"ids", Filter{IDs: []uint64{all[1].ID, all[3].ID, 99999}}, "24"},
			{"no ids", Filter{IDs: []uint64{}}, ""},
			{"ids and topic", Filter{IDs: []uint64{all[1].ID, all[3].ID}, Topic: "b"}, "4"},
		} {
			for limit := 1; limit < 8; limit++ {
				var got []Dead
				for token, pages := "", 0; ; pages++ {
					ds, next, err := q.Dead(tc.f, token, limit)
					if err != nil || len(ds) > limit || pages > 7 {
						t.Fatalf("%s: page of %d, %v", tc.name, len(ds), err)
					}
					got = append(got, ds...)
					if token = next; token == "" {
						break
					}
				}
				if letters(got) != tc.want {
					t.Errorf("%s in pages of %d: %s, want %s", tc.name, limit, letters(got), tc.want)
				}
			}
		}
		if _, _, err := q.Dead(Filter{}, "x", 1); !errors.Is(err, ErrInvalid) {
			t.Errorf("bad token: %v", err)
		}
		if _, _, err := q.Dead(Filter{}, "", 0); !errors.Is(err, ErrInvalid) {
			t.Errorf("no limit: %v", err)
		}
		if _, err := q.GetDead(99999); !errors.Is(err, ErrNotFound) {
			t.Errorf("GetDead: %v", err)
		}
	})
}

func TestDeadChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, all := graveyard(t)
		if err := q.Edit(all[0].ID, []byte("one")); err != nil {
			t.Fatal(err)
		}
		if err := q.Edit(99999, nil); !errors.Is(err, ErrNotFound) {
			t.Fatalf("Edit: %v", err)
		}
		if err := q.Edit(all[0].ID, make([]byte, q.MaxBody()+1)); !errors.Is(err, mq.ErrTooLarge) {
			t.Fatalf("Edit: %v", err)
		}
		q = reopen(t, q)
		d, err := q.GetDead(all[0].ID)
		if err != nil || string(d.Body) != "one" || d.MessageID != all[0].MessageID || !d.Died.Equal(all[0].Died) {
			t.Fatalf("after Edit: %+v, %v", d, err)
		}
		for _, tc := range []struct {
			do   func(Filter) (int, error)
			f    Filter
			n    int
			left string
		}{
			{q.Drop, Filter{Topic: "b", Group: "g", Reason: Permanent}, 1, "one2344"},
			{q.Drop, Filter{Error: "nothing"}, 0, "one2344"},
			{q.Replay, Filter{Topic: "a", Key: "k"}, 2, "244"},
			{q.Replay, Filter{IDs: []uint64{all[0].ID}}, 0, "244"},
			{q.Replay, Filter{Topic: "b"}, 2, "2"},
		} {
			n, err := tc.do(tc.f)
			ds, _, listErr := q.Dead(Filter{}, "", 100)
			if n != tc.n || err != nil || listErr != nil || letters(ds) != tc.left {
				t.Fatalf("%+v: %d, %v, %s are left, want %d, %s", tc.f, n, err, letters(ds), tc.n, tc.left)
			}
		}
		a, b, h := consumer(t, q, "a", "g"), consumer(t, q, "b", "g"), consumer(t, q, "b", "h")
		ds := fetch(t, a, 10)
		want(t, ds, "one")
		if ds[0].Attempt != 1 || ds[0].ID != all[0].MessageID {
			t.Fatalf("replayed as %+v", ds[0])
		}
		ack(t, a, ds...)
		want(t, fetch(t, a, 10), "3")
		want(t, fetch(t, b, 10), "4")
		want(t, fetch(t, h, 10), "4 5")
	})
}

func TestChangeOfOneByTwo(t *testing.T) {
	q := open(t, small(t.TempDir()))
	publish(t, q, msg("a", "", "1"))
	c := consumer(t, q, "a", "g")
	nack(t, c, fetch(t, c, 1)[0], true)
	ds, _, err := q.Dead(Filter{}, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.claim(ds[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := q.Edit(ds[0].ID, nil); !errors.Is(err, ErrBusy) {
		t.Fatalf("Edit: %v", err)
	}
	if n, err := q.Replay(Filter{}); n != 0 || err != nil {
		t.Fatalf("Replay: %d, %v", n, err)
	}
	q.unclaim(ds[0].ID)
	if n, err := q.Replay(Filter{}); n != 1 || err != nil {
		t.Fatalf("Replay: %d, %v", n, err)
	}
}

// A Replay of many letters takes several units. Wherever it is cut, each message is
// either a letter or delivered again, never both.
func TestReplayCut(t *testing.T) {
	cfg := small(t.TempDir())
	q := open(t, cfg)
	c := consumer(t, q, "a", "g")
	for i := range 12 {
		publish(t, q, msg("a", "", fmt.Sprint(i)))
		nack(t, c, fetch(t, c, 1)[0], true)
	}
	first := q.log.Next()
	for i := range 12 {
		ids := q.deadIDs[i]
		if n, err := q.Replay(Filter{IDs: []uint64{ids}}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	for _, at := range recordOffsets(t, q) {
		dir := crash(t, q)
		if err := os.RemoveAll(filepath.Join(dir, "index")); err != nil {
			t.Fatal(err)
		}
		zeroFrom(t, dir, at)
		cut := open(t, small(dir))
		if cut.log.Next() < first {
			continue
		}
		s := cut.Stats()
		if lag := s.Topics[0].Groups[0].Lag; s.Dead+int(lag) != 12 || lag != cut.log.Next()-first {
			t.Fatalf("cut at record %d of %d: %d letters and %d messages", cut.log.Next(), first, s.Dead, lag)
		}
		if err := cut.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRetainDead checks that dead letters go when their retention has passed, and not
// before.
func TestRetainDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := retaining(t, time.Hour)
		left := func() int {
			ds, _, err := q.Dead(Filter{}, "", 100)
			if err != nil {
				t.Fatal(err)
			}
			return len(ds)
		}
		time.Sleep(59 * time.Minute)
		if n := left(); n != 6 {
			t.Errorf("%d dead letters after 59 minutes, want 6", n)
		}
		time.Sleep(3 * time.Minute)
		if n := left(); n != 0 {
			t.Errorf("%d dead letters after their retention, want none", n)
		}
	})
}
