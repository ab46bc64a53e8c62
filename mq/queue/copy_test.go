package queue

import (
	"bytes"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
)

// TestCopy: a copy of a trimmed log opens as a queue in the state at the moment of the
// copy. Nothing is trimmed during a copy.
func TestCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := open(t, small(t.TempDir()))
		c := consumer(t, q, "a", "g")
		publish(t, q, msg("a", "k", "dead"), msg("a", "l", "retry"), msg("a", "m", "held"))
		fill(t, q, "a", 500)
		ds := fetch(t, c, 1000)
		nack(t, c, ds[0], true)
		nack(t, c, ds[1], false)
		ack(t, c, ds[3:]...)
		time.Sleep(2 * tick)
		synctest.Wait()
		first := q.log.First()
		if first == 1 {
			t.Fatal("it is not trimmed, and the test shows less")
		}
		copied := q.Copy()
		publish(t, q, msg("a", "n", "too late"))
		fill(t, q, "a", 500)
		ack(t, c, fetch(t, c, 1000)...)
		time.Sleep(2 * tick)
		synctest.Wait()
		if q.log.First() != first || copied.First() != first {
			t.Fatalf("the log was trimmed to %d while it was copied from %d", q.log.First(), copied.First())
		}
		cfg := small(t.TempDir())
		l, err := mq.Open(mq.Config{Dir: filepath.Join(cfg.Dir, "log"), SegmentBytes: 64 << 10, Writer: "pwrite", ReserveBytes: -1, First: copied.First()})
		if err != nil {
			t.Fatal(err)
		}
		err = copied.Each(func(e mq.Entry) error {
			_, err := l.Write([]mq.Record{{Queue: e.Queue, Type: e.Type, Body: bytes.Clone(e.Body)}})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		copied.Close()
		time.Sleep(2 * tick)
		synctest.Wait()
		if q.log.First() == first {
			t.Error("the log is not trimmed after the copy either")
		}
		b := open(t, cfg)
		if s := b.Stats(); s.Dead != 1 || s.Topics[0].Groups[0].Lag != 2 {
			t.Fatalf("stats are %+v", s)
		}
		cb := consumer(t, b, "a", "g")
		got := fetch(t, cb, 10)
		want(t, got, "retry held")
		if got[0].Attempt != 2 {
			t.Errorf("attempt %d", got[0].Attempt)
		}
		ack(t, cb, got...)
		none(t, cb)
	})
}
