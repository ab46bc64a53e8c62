package queue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fill publishes n messages of about 1 KiB and returns their total number.
func fill(t *testing.T, q *Queue, topic string, n int) {
	t.Helper()
	for i := range n {
		publish(t, q, Message{Topic: topic, Body: []byte(fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000)))})
	}
}

func TestRetentionOfConsumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, small(t.TempDir()))
		a, b := consumer(t, q, "a", "g"), consumer(t, q, "a", "h")
		publish(
			t, q, msg("a", "k", "dead"), msg("a", "l", "retry"), msg("a", "m", "held"),
			Message{Topic: "a", Body: []byte("later"), After: 24 * time.Hour},
		)
		fill(t, q, "a", 500)
		ds := fetch(t, a, 1000)
		nack(t, a, ds[0], true)
		nack(t, a, ds[1], false)
		ack(t, a, ds[3:]...)
		time.Sleep(2 * tick)
		synctest.Wait()
		if q.log.First() != 1 {
			t.Fatal("trimmed although a group has consumed nothing")
		}
		hs := fetch(t, b, 1000)
		ack(t, b, hs...)
		time.Sleep(2 * tick)
		synctest.Wait()
		if q.log.First() < 400 {
			t.Fatalf("the log begins at %d although all was consumed", q.log.First())
		}
		if s := q.Stats(); s.Lost != 0 || s.Topics[0].First < 400 {
			t.Fatalf("stats are %+v", s)
		}
		names, err := filepath.Glob(filepath.Join(q.cfg.Dir, "index", "*"+indexSuffix))
		if err != nil || len(names) > 1 {
			t.Fatal(names, err)
		}
		for range 3 { // as it is, from the snapshot, and from the log alone
			s := q.Stats()
			if g := s.Topics[0].Groups[0]; g.Lag != 3 || s.Dead != 1 {
				t.Fatalf("stats are %+v", s)
			}
			d, _, err := q.Dead(Filter{}, "", 1)
			if err != nil || string(d[0].Body) != "dead" {
				t.Fatal(d, err)
			}
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			q = open(t, q.cfg)
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(q.cfg.Dir, "index")); err != nil {
				t.Fatal(err)
			}
			q = open(t, q.cfg)
		}
		a, b = consumer(t, q, "a", "g"), consumer(t, q, "a", "h")
		got := fetch(t, a, 10)
		want(t, got, "retry held")
		if got[0].Attempt != 2 {
			t.Fatalf("attempt %d", got[0].Attempt)
		}
		ack(t, a, got...)
		none(t, b)
		want(t, fetch(t, a, 10), "later")
		want(t, fetch(t, b, 10), "later")
		if n, err := q.Replay(Filter{}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		want(t, fetch(t, a, 10), "dead")
	})
}

func TestRetentionKeepsConsumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small(t.TempDir())
		cfg.Retention.KeepConsumed = time.Hour
		var used atomic.Int64
		cfg.Space = func(string) (int64, int64, error) { return 100 - used.Load(), 100, nil }
		q := open(t, cfg)
		c := consumer(t, q, "a", "g")
		fill(t, q, "a", 400)
		ack(t, c, fetch(t, c, 1000)...)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		if q.log.First() != 1 {
			t.Fatal("trimmed too early")
		}
		fill(t, q, "a", 400)
		ack(t, c, fetch(t, c, 1000)...)
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		if n := q.log.First(); n < 250 || n > 420 {
			t.Fatalf("the log begins at %d, want the first half to be gone", n)
		}
		used.Store(86) // early
		time.Sleep(2 * tick)
		synctest.Wait()
		if n := q.log.First(); n < 650 {
			t.Fatalf("the log begins at %d although the used disk space reached a watermark", n)
		}
	})
}

func TestRetentionLoses(t *testing.T) {
	for _, by := range []string{"age", "bytes"} {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := small(t.TempDir())
				if by == "age" {
					cfg.Retention.MaxAge = time.Hour
				} else {
					cfg.Retention.MaxBytes = 200 << 10
				}
				q := open(t, cfg)
				c := consumer(t, q, "a", "g")
				consumer(t, q, "a", "h")
				fill(t, q, "a", 400)
				fill(t, q, "nobody", 200)
				fill(t, q, "a", 150)
				ds := fetch(t, c, 300)
				ack(t, c, ds[1:]...) // the first one stays with its consumer
				time.Sleep(time.Hour + 2*tick)
				synctest.Wait()
				fill(t, q, "a", 2)
				s := q.Stats()
				a, n := s.Topics[0], s.Topics[1]
				g, h := a.Groups[0], a.Groups[1]
				if h.Lost < 300 || h.Lost != a.First || g.Lost+300 != a.First || n.Lost != n.First || s.Lost != g.Lost+h.Lost+n.Lost {
					t.Fatalf("stats are %+v %+v", a, n)
				}
				if g.Lag != a.Next-a.First+1 || h.Lag != a.Next-a.First {
					t.Fatalf("stats are %+v", a)
				}
				for _, rebuild := range []bool{false, true} {
					if err := q.Close(); err != nil {
						t.Fatal(err)
					}
					if rebuild {
						if err := os.RemoveAll(filepath.Join(q.cfg.Dir, "index")); err != nil {
							t.Fatal(err)
						}
					}
					q = open(t, q.cfg)
					r := q.Stats()
					if r.Lost != s.Lost || r.Topics[0].Groups[1].Lag != h.Lag || r.Topics[0].Groups[0].Lag != g.Lag {
						t.Fatalf("after a restart: %+v, before %+v", r.Topics, s.Topics)
					}
				}
				c = consumer(t, q, "a", "g")
				got := fetch(t, c, 1000)
				if uint64(len(got)) != g.Lag || len(got) < 3 || got[0].Position != 0 || got[1].Position != a.First {
					t.Fatalf("fetched %d of %d from %d", len(got), g.Lag, a.First)
				}
			})
		})
	}
}

// Dead letters that fill more than half of the log are not copied forward again and
// again.
func TestRetentionOfManyDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, small(t.TempDir()))
		c := consumer(t, q, "a", "g")
		for range 5 {
			fill(t, q, "a", 50)
			for _, d := range fetch(t, c, 100) {
				nack(t, c, d, true)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		next := q.log.Next()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := q.log.Next(); n != next {
			t.Fatalf("%d records were written while nothing happened", n-next)
		}
		ds, _, err := q.Dead(Filter{}, "", 1000)
		if err != nil || len(ds) != 250 {
			t.Fatal(len(ds), err)
		}
		if n, err := q.Drop(Filter{}); n != 250 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if s := q.log.Stats(); s.Segments > 4 {
			t.Fatalf("%d segments are left", s.Segments)
		}
	})
}

func TestMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := small(t.TempDir())
		var used atomic.Int64
		cfg.Space = func(string) (int64, int64, error) { return 1000 - 10*used.Load(), 1000, nil }
		var marks []Mark
		cfg.OnMark = func(m Mark) { marks = append(marks, m) }
		q := open(t, cfg)
		publish(t, q, msg("a", "", "1"), msg("a", "", "2"), msg("a", "", "3"))
		c := consumer(t, q, "a", "g")
		ds := fetch(t, c, 10)
		for _, n := range []int64{74, 75, 80, 85, 94, 95, 99} {
			used.Store(n)
			time.Sleep(3 * tick)
			synctest.Wait()
		}
		synctest.Wait()
		if got := fmt.Sprint(marks); got != "[{75 warn} {85 early} {95 refuse}]" {
			t.Fatalf("marks were %s", got)
		}
		if _, err := q.PublishSync(msg("a", "", "4")); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "99 %") {
			t.Fatalf("Publish on a full disk: %v", err)
		}
		if _, err := q.Consumer("a", "new"); !errors.Is(err, ErrFull) {
			t.Fatalf("Consumer on a full disk: %v", err)
		}
		ack(t, c, ds[0])
		nack(t, c, ds[1], true)
		nack(t, c, ds[2], false)
		if n, err := q.Drop(Filter{}); n != 1 || err != nil {
			t.Fatalf("Drop on a full disk: %d, %v", n, err)
		}
		if s := q.Stats(); s.DiskUsed != 99 || s.DiskLevel != "refuse" {
			t.Fatalf("stats are %+v", s)
		}
		used.Store(10)
		time.Sleep(2 * tick)
		synctest.Wait()
		publish(t, q, msg("a", "", "4"))
		if m := marks[len(marks)-1]; m != (Mark{10, "ok"}) {
			t.Fatalf("last mark is %v", m)
		}
	})
}

func TestSnapshotWhileOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, small(t.TempDir()))
		publish(t, q, msg("a", "", "1"))
		time.Sleep(snapshotEvery + 2*tick)
		synctest.Wait()
		m, err := q.readSnapshot()
		if err != nil || m.applied != q.log.Next() || len(m.topics) != 1 {
			t.Fatalf("snapshot is %+v, %v; the log ends at %d", m, err, q.log.Next())
		}
	})
}

// A jump of the wall clock changes only when messages are due.
func TestClockJumps(t *testing.T) {
	q := open(t, small(t.TempDir()))
	publish(t, q, Message{Topic: "a", Body: []byte("later"), After: time.Hour}, msg("a", "k", "1"), msg("a", "k", "2"))
	c := consumer(t, q, "a", "g")
	nack(t, c, fetch(t, c, 1)[0], false)
	take := func(at time.Duration) string {
		q.mu.Lock()
		items, err := c.group.take(c, time.Now().Add(at), 10, fetchBytes)
		q.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		s := ""
		for _, it := range items {
			d := Delivery{item: it, group: c.group, turn: it.turn}
			if err := c.fill(&d, raw{}); err != nil {
				t.Fatal(err)
			}
			s += string(d.Body)
			ack(t, c, d)
		}
		return s
	}
	for _, step := range []struct {
		at   time.Duration
		want string
	}{{-48 * time.Hour, ""}, {0, ""}, {time.Minute, "1"}, {-48 * time.Hour, "2"}, {59 * time.Minute, ""}, {48 * time.Hour, "later"}} {
		if got := take(step.at); got != step.want {
			t.Fatalf("at %v: %q, want %q", step.at, got, step.want)
		}
	}
}
