package queue

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
)

// small is the configuration of a queue whose log has small segments and does not sync.
func small(dir string) Config {
	return Config{Dir: dir, Log: mq.Config{SegmentBytes: 64 << 10, Sync: mq.OS, Writer: "pwrite", ReserveBytes: -1}}
}

func open(t testing.TB, cfg Config) *Queue {
	t.Helper()
	q, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() })
	return q
}

func consumer(t testing.TB, q *Queue, topic, group string) *Consumer {
	t.Helper()
	c, err := q.Consumer(topic, group)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func publish(t testing.TB, q *Queue, msgs ...Message) []Receipt {
	t.Helper()
	rs, err := q.PublishSync(msgs...)
	if err != nil {
		t.Fatal(err)
	}
	return rs
}

func fetch(t testing.TB, c *Consumer, most int) []Delivery {
	t.Helper()
	ds, err := c.Fetch(t.Context(), most)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// none fails if there is a message to fetch.
func none(t testing.TB, c *Consumer) {
	t.Helper()
	ds, _, err := c.take(10)
	if err != nil || len(ds) > 0 {
		t.Fatalf("fetched %v, %v; nothing was due", bodies(ds), err)
	}
}

func ack(t testing.TB, c *Consumer, ds ...Delivery) {
	t.Helper()
	done := make(chan error, 1)
	if err := c.Ack(ds, func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func nack(t testing.TB, c *Consumer, d Delivery, permanent bool) {
	t.Helper()
	if err := c.Nack(d, errors.New("it broke: "+string(d.Body)), permanent); err != nil {
		t.Fatal(err)
	}
	if err := c.q.Sync(); err != nil {
		t.Fatal(err)
	}
}

func bodies(ds []Delivery) string {
	var s []string
	for _, d := range ds {
		s = append(s, string(d.Body))
	}
	return strings.Join(s, " ")
}

func want(t testing.TB, ds []Delivery, bs string) {
	t.Helper()
	if got := bodies(ds); got != bs {
		t.Fatalf("fetched %q, want %q", got, bs)
	}
}

// crash returns a copy of the directory as a kill would leave it.
func crash(t testing.TB, q *Queue) string {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"log", "index"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(filepath.Join(q.cfg.Dir, sub))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			b, err := os.ReadFile(filepath.Join(q.cfg.Dir, sub, e.Name()))
			if errors.Is(err, fs.ErrNotExist) {
				continue // a segment in preparation
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, sub, e.Name()), b, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

func reopen(t testing.TB, q *Queue) *Queue {
	t.Helper()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, q.cfg)
}

func msg(topic, key, body string) Message {
	return Message{Topic: topic, Key: key, Body: []byte(body), Origin: "test"}
}

func TestPublishFetchAck(t *testing.T) {
	q := open(t, small(t.TempDir()))
	rs := publish(t, q, msg("a", "", "1"), msg("b", "", "x"), msg("a", "", "2"))
	if rs[0].ID >= rs[1].ID || rs[1].ID >= rs[2].ID {
		t.Fatalf("ids do not ascend: %v", rs)
	}
	c, d := consumer(t, q, "a", "g"), consumer(t, q, "a", "h")
	ds := fetch(t, c, 10)
	want(t, ds, "1 2")
	if d := ds[1]; d.ID != rs[2].ID || d.Topic != "a" || d.Group != "g" || d.Origin != "test" || d.Attempt != 1 || d.Position != 1 {
		t.Fatalf("delivery is %+v", d)
	}
	ack(t, c, ds[0])
	if err := c.Ack(ds[:1], nil); !errors.Is(err, ErrStale) {
		t.Fatalf("second Ack: %v", err)
	}
	none(t, c)
	want(t, fetch(t, d, 1), "1")
	want(t, fetch(t, d, 10), "2")

	q = reopen(t, q)
	c, d = consumer(t, q, "a", "g"), consumer(t, q, "a", "h")
	want(t, fetch(t, c, 10), "2")
	want(t, fetch(t, d, 10), "1 2")
}

func TestCloseGivesBack(t *testing.T) {
	q := open(t, small(t.TempDir()))
	publish(t, q, msg("a", "k", "1"), msg("a", "k", "2"), msg("a", "", "3"))
	c, d := consumer(t, q, "a", "g"), consumer(t, q, "a", "g")
	ds := fetch(t, c, 10)
	want(t, ds, "1 3")
	none(t, d)
	c.Close()
	want(t, fetch(t, d, 10), "1 3")
	if err := c.Ack(ds, nil); !errors.Is(err, ErrStale) {
		t.Fatalf("Ack after Close: %v", err)
	}
	if _, err := c.Fetch(t.Context(), 1); !errors.Is(err, ErrClosed) {
		t.Fatalf("Fetch after Close: %v", err)
	}
}

func TestFetchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, small(t.TempDir()))
		c := consumer(t, q, "a", "g")
		got := make(chan []Delivery, 1)
		go func() { got <- fetch(t, c, 1) }()
		synctest.Wait()
		publish(t, q, msg("a", "", "1"))
		want(t, <-got, "1")

		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 2)
		go func() { _, err := c.Fetch(ctx, 1); ended <- err }()
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("Fetch of a cancelled context: %v", err)
		}
		go func() { _, err := c.Fetch(context.Background(), 1); ended <- err }()
		synctest.Wait()
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Fatalf("Fetch of a closed queue: %v", err)
		}
	})
}

func TestOrderOfKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, small(t.TempDir()))
		publish(t, q, msg("a", "k", "k1"), msg("a", "k", "k2"), msg("a", "l", "l1"), msg("a", "k", "k3"), msg("a", "", "n"))
		c := consumer(t, q, "a", "g")
		ds := fetch(t, c, 10)
		want(t, ds, "k1 l1 n")
		ack(t, c, ds[1], ds[2])
		nack(t, c, ds[0], false)
		none(t, c)

		q = reopen(t, q) // the retry still holds back its key
		c = consumer(t, q, "a", "g")
		none(t, c)
		time.Sleep(999 * time.Millisecond)
		none(t, c)
		time.Sleep(time.Millisecond)
		ds = fetch(t, c, 10)
		want(t, ds, "k1")
		if ds[0].Attempt != 2 {
			t.Fatalf("attempt %d after one failure", ds[0].Attempt)
		}
		nack(t, c, ds[0], true) // a dead letter releases the next one
		ds = fetch(t, c, 10)
		want(t, ds, "k2")
		ack(t, c, ds...)
		want(t, fetch(t, c, 10), "k3")
	})
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, small(t.TempDir()))
		start := time.Now()
		publish(
			t, q,
			Message{Topic: "a", Body: []byte("3h"), After: 3 * time.Hour},
			Message{Topic: "a", Body: []byte("1h"), At: start.Add(time.Hour), Key: "k"},
			Message{Topic: "a", Body: []byte("past"), At: start.Add(-time.Hour)},
			msg("a", "k", "now"),
		)
		c := consumer(t, q, "a", "g")
		ds := fetch(t, c, 10)
		want(t, ds, "past now")
		ack(t, c, ds...)
		s := q.Stats().Topics[0].Groups[0]
		if s.Delayed != 2 || s.Lag != 2 || s.Ready != 0 {
			t.Fatalf("stats are %+v", s)
		}
		q = reopen(t, q)
		c = consumer(t, q, "a", "g")
		want(t, fetch(t, c, 10), "1h")
		if d := time.Since(start); d < time.Hour || d > time.Hour+2*tick {
			t.Fatalf("delivered after %v", d)
		}
		want(t, fetch(t, c, 10), "3h")
		if d := time.Since(start); d < 3*time.Hour || d > 3*time.Hour+2*tick {
			t.Fatalf("delivered after %v", d)
		}
	})
}

func TestLevelsAndDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small(t.TempDir())
		cfg.Levels = []time.Duration{time.Second, time.Minute}
		cfg.MaxAttempts = 4
		told := make(chan Dead, 10)
		cfg.OnDead = func(d Dead) { told <- d }
		q := open(t, cfg)
		publish(t, q, msg("a", "", "1"))
		c := consumer(t, q, "a", "g")
		for i, delay := range []time.Duration{0, time.Second, time.Minute, time.Minute} {
			before := time.Now()
			ds := fetch(t, c, 1)
			if got := time.Since(before); got < delay || got > delay+10*time.Millisecond || ds[0].Attempt != i+1 {
				t.Fatalf("attempt %d came after %v, want %d after %v", ds[0].Attempt, got, i+1, delay)
			}
			nack(t, c, ds[0], false)
		}
		none(t, c)
		d := <-told
		if d.Reason != Attempts || d.Attempts != 4 || d.Topic != "a" || d.Group != "g" || string(d.Body) != "1" ||
			d.FirstError != "it broke: 1" || d.LastFailed.Sub(d.FirstFailed) < 2*time.Minute || d.Origin != "test" {
			t.Fatalf("dead letter is %+v", d)
		}
		synctest.Wait()
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(filepath.Join(cfg.Dir, "index")); err != nil {
			t.Fatal(err)
		}
		q = open(t, cfg)
		synctest.Wait()
		if len(told) > 0 {
			t.Fatal("the alarm was raised again although nothing crashed")
		}
		if got, err := q.GetDead(d.ID); err != nil || got.Attempts != 4 {
			t.Fatalf("GetDead: %+v, %v", got, err)
		}
	})
}

func TestAlarmAfterCrash(t *testing.T) {
	cfg := small(t.TempDir())
	hold, entered := make(chan struct{}), make(chan struct{}, 1)
	cfg.OnDead = func(Dead) { entered <- struct{}{}; <-hold }
	q := open(t, cfg)
	publish(t, q, msg("a", "", "1"))
	c := consumer(t, q, "a", "g")
	nack(t, c, fetch(t, c, 1)[0], true)
	<-entered
	cfg.Dir = crash(t, q) // in the middle of the call
	close(hold)
	told := make(chan Dead, 1)
	cfg.OnDead = func(d Dead) { told <- d }
	open(t, cfg)
	if d := <-told; string(d.Body) != "1" {
		t.Fatalf("told of %+v", d)
	}
}

func TestVisibility(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small(t.TempDir())
		cfg.Visibility = 30 * time.Second
		q := open(t, cfg)
		publish(t, q, msg("a", "k", "1"), msg("a", "k", "2"))
		c := consumer(t, q, "a", "g")
		first := fetch(t, c, 1)
		start := time.Now()
		again := fetch(t, c, 1)
		want(t, again, "1")
		if d := time.Since(start); d < 31*time.Second || d > 33*time.Second || again[0].Attempt != 2 {
			t.Fatalf("attempt %d after %v, want 2 after the 30 s and the first level", again[0].Attempt, d)
		}
		if err := c.Ack(first, nil); !errors.Is(err, ErrStale) {
			t.Fatalf("Ack of the delivery that ran out: %v", err)
		}
		ack(t, c, again...)
		want(t, fetch(t, c, 1), "2")
	})
}

func TestDedup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small(t.TempDir())
		cfg.DedupWindow, cfg.DedupKeys = time.Minute, 3
		q := open(t, cfg)
		m := func(key string) Message { return Message{Topic: "a", Dedup: key, Body: []byte(key)} }
		rs := publish(t, q, m("x"), m("y"), m("x"))
		if rs[2] != (Receipt{rs[0].ID, true}) || rs[1].Duplicate {
			t.Fatalf("receipts are %v", rs)
		}
		q = reopen(t, q)
		if r := publish(t, q, m("x")); r[0] != (Receipt{rs[0].ID, true}) {
			t.Fatalf("after a restart: %v", r)
		}
		cfg.Dir = crash(t, q)
		if err := os.RemoveAll(filepath.Join(cfg.Dir, "index")); err != nil {
			t.Fatal(err)
		}
		if r := publish(t, open(t, cfg), m("y")); r[0] != (Receipt{rs[1].ID, true}) {
			t.Fatalf("after a rebuild: %v", r)
		}
		if r := publish(t, q, Message{Topic: "b", Dedup: "x"}); r[0].Duplicate {
			t.Fatal("keys of two topics were mixed up")
		}
		publish(t, q, m("z"), m("v")) // five keys: x and y are forgotten
		if r := publish(t, q, m("x"), m("v")); r[0].Duplicate || !r[1].Duplicate {
			t.Fatalf("beyond DedupKeys: %v", r)
		}
		time.Sleep(time.Minute)
		if r := publish(t, q, m("v")); r[0].Duplicate {
			t.Fatal("the key was known beyond the window")
		}
		if s := q.Stats(); s.Duplicates != 2 {
			t.Fatalf("%d duplicates counted, want 2 since the restart", s.Duplicates)
		}
	})
}

func TestArguments(t *testing.T) {
	q := open(t, small(t.TempDir()))
	long := strings.Repeat("x", 1025)
	for _, tc := range []struct {
		name string
		m    Message
		err  error
	}{
		{"no topic", Message{}, ErrInvalid},
		{"long topic", Message{Topic: long}, ErrInvalid},
		{"topic of bytes", Message{Topic: "\xff"}, ErrInvalid},
		{"long key", Message{Topic: "a", Key: long}, ErrInvalid},
		{"long dedup", Message{Topic: "a", Dedup: long}, ErrInvalid},
		{"long origin", Message{Topic: "a", Origin: long}, ErrInvalid},
		{"two delays", Message{Topic: "a", After: 1, At: time.Now()}, ErrInvalid},
		{"far future", Message{Topic: "a", At: time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)}, ErrInvalid},
		{"large", Message{Topic: "a", Body: make([]byte, q.MaxBody()+1)}, mq.ErrTooLarge},
	} {
		if err := q.Publish([]Message{tc.m}, func([]Receipt, error) { t.Error("called back") }); !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.err)
		}
	}
	if _, err := q.Consumer("a", ""); !errors.Is(err, ErrInvalid) {
		t.Errorf("no group: %v", err)
	}
	if _, err := q.Peek("nowhere", 0, 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("Peek: %v", err)
	}
	if err := q.RemoveGroup("a", "g"); !errors.Is(err, ErrNotFound) {
		t.Errorf("RemoveGroup: %v", err)
	}
	if _, err := Open(q.cfg); !errors.Is(err, mq.ErrLocked) {
		t.Errorf("second Open: %v", err)
	}
	publish(t, q, Message{Topic: "a", Key: long[1:], Dedup: long[1:], Origin: long[1:], Body: make([]byte, q.MaxBody())})
	c := consumer(t, q, "a", "g")
	nack(t, c, fetch(t, c, 1)[0], true) // the largest message fits as a dead letter
	if n, err := q.Replay(Filter{}); n != 1 || err != nil {
		t.Fatalf("Replay: %d, %v", n, err)
	}
}

func TestPublishUnitUndone(t *testing.T) {
	q := open(t, small(t.TempDir()))
	publish(t, q, msg("a", "", "1"))
	var large []Message
	for range 3 {
		large = append(large, Message{Topic: "a", Dedup: fmt.Sprint(len(large)), Body: make([]byte, q.MaxBody()/2)})
	}
	if _, err := q.PublishSync(large...); !errors.Is(err, mq.ErrTooLarge) {
		t.Fatalf("a unit larger than a segment: %v", err)
	}
	rs := publish(t, q, Message{Topic: "a", Dedup: "0", Body: []byte("2")})
	if rs[0].Duplicate {
		t.Fatal("what was not published is a duplicate")
	}
	want(t, fetch(t, consumer(t, q, "a", "g"), 10), "1 2")
}

func TestRemoveGroup(t *testing.T) {
	q := open(t, small(t.TempDir()))
	publish(t, q, msg("a", "", "1"), msg("a", "", "2"))
	c := consumer(t, q, "a", "g")
	ds := fetch(t, c, 2)
	nack(t, c, ds[0], true)
	if err := q.RemoveGroup("a", "g"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fetch(t.Context(), 1); !errors.Is(err, ErrNotFound) {
		t.Fatalf("Fetch: %v", err)
	}
	if err := c.Ack(ds[1:], nil); !errors.Is(err, ErrStale) {
		t.Fatalf("Ack: %v", err)
	}
	if n, err := q.Replay(Filter{}); n != 0 || !errors.Is(err, ErrNotFound) {
		t.Fatalf("Replay: %d, %v", n, err)
	}
	q = reopen(t, q)
	if s := q.Stats(); len(s.Topics[0].Groups) != 0 || s.Dead != 1 {
		t.Fatalf("stats are %+v", s)
	}
	want(t, fetch(t, consumer(t, q, "a", "g"), 10), "1 2")
	if n, err := q.Drop(Filter{Group: "g"}); n != 1 || err != nil {
		t.Fatalf("Drop: %d, %v", n, err)
	}
}

func TestPeekAndTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, small(t.TempDir()))
		publish(t, q, msg("a", "k", "1"), msg("a", "", "2"), Message{Topic: "a", Body: []byte("3"), After: time.Hour})
		vs, err := q.Peek("a", 1, 10)
		if err != nil || len(vs) != 2 || string(vs[0].Body) != "2" || vs[1].Due.Sub(vs[1].Published) != time.Hour {
			t.Fatalf("Peek: %+v, %v", vs, err)
		}
		got := make(chan string, 10)
		stop := errors.New("stop")
		ended := make(chan error, 1)
		go func() {
			ended <- q.Tail(t.Context(), "a", 2, func(v View) error {
				got <- string(v.Body)
				if string(v.Body) == "5" {
					return stop
				}
				return nil
			})
		}()
		synctest.Wait()
		publish(t, q, msg("a", "", "4"))
		synctest.Wait()
		publish(t, q, msg("a", "", "5"))
		if err := <-ended; err != stop {
			t.Fatal(err)
		}
		if s := <-got + <-got + <-got; s != "345" {
			t.Fatalf("Tail saw %s", s)
		}
		want(t, fetch(t, consumer(t, q, "a", "g"), 10), "1 2 4 5")
	})
}

func TestManyPending(t *testing.T) {
	cfg := small(t.TempDir())
	cfg.MaxPending = 3
	q := open(t, cfg)
	for i := range 6 {
		publish(t, q, msg("a", "k", fmt.Sprint(i)))
	}
	publish(t, q, msg("a", "", "other"))
	c := consumer(t, q, "a", "g")
	for i := range 6 {
		ds := fetch(t, c, 1)
		want(t, ds, fmt.Sprint(i))
		if n := len(c.group.pending); n > 3 {
			t.Fatalf("%d pending", n)
		}
		ack(t, c, ds...)
	}
	want(t, fetch(t, c, 1), "other")
}

func TestManyDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small(t.TempDir())
		cfg.MaxDead = 1
		q := open(t, cfg)
		publish(t, q, msg("a", "", "1"), msg("a", "", "2"))
		c := consumer(t, q, "a", "g")
		ds := fetch(t, c, 2)
		nack(t, c, ds[0], true)
		nack(t, c, ds[1], true)
		if _, err := q.Drop(Filter{}); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ds = fetch(t, c, 1)
		want(t, ds, "2")
		if d := time.Since(start); d < 2*time.Hour {
			t.Fatalf("tried again after %v, want the last level", d)
		}
		nack(t, c, ds[0], true)
		if s := q.Stats(); s.Dead != 1 {
			t.Fatalf("%d dead", s.Dead)
		}
	})
}

func TestManyTopics(t *testing.T) {
	q := open(t, small(t.TempDir()))
	for i := range 40 {
		var ms []Message
		for j := range 20 {
			ms = append(ms, msg(fmt.Sprintf("t%d", j), "", fmt.Sprint(i)))
		}
		publish(t, q, ms...)
	}
	q.recent = recent{limit: 1} // so that the log is read
	for j := range 20 {
		ds := fetch(t, consumer(t, q, fmt.Sprintf("t%d", j), "g"), 100)
		if len(ds) != 40 || string(ds[39].Body) != "39" {
			t.Fatalf("topic %d: %s", j, bodies(ds))
		}
	}
}

func TestConcurrent(t *testing.T) {
	q := open(t, small(t.TempDir()))
	const producers, each = 8, 200
	errs := make(chan error, 2*producers)
	for p := range producers {
		go func() {
			for i := range each {
				if _, err := q.PublishSync(msg("a", fmt.Sprint(p), fmt.Sprintf("%d/%d", p, i))); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	type seen struct{ key, body string }
	got := make(chan seen)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 4 {
		c := consumer(t, q, "a", "g")
		go func() {
			for {
				ds, err := c.Fetch(ctx, 7)
				if err != nil {
					errs <- nil
					return
				}
				for _, d := range ds {
					got <- seen{d.Key, string(d.Body)}
				}
				if err := c.Ack(ds, nil); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	next := map[string]int{}
	for range producers * each {
		s := <-got
		if s.body != fmt.Sprintf("%s/%d", s.key, next[s.key]) {
			t.Fatalf("key %s: got %s, want number %d", s.key, s.body, next[s.key])
		}
		next[s.key]++
	}
	cancel()
	for range producers + 4 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
	if s := q.Stats().Topics[0].Groups[0]; s.Lag != 0 || s.Acked != producers*each {
		t.Fatalf("stats are %+v", s)
	}
}

func TestTimers(t *testing.T) {
	var h timers
	for _, due := range []int64{5, 1, 4, 1, 3, 9, 2} {
		h.push(timer{due, uint64(10 - due)})
	}
	var got []int64
	for len(h) > 0 {
		got = append(got, h.pop().due)
	}
	if !slices.Equal(got, []int64{1, 1, 2, 3, 4, 5, 9}) {
		t.Fatal(got)
	}
}
