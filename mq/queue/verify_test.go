package queue

import (
	"errors"
	"strings"
	"testing"
)

func TestVerifyLog(t *testing.T) {
	q := open(t, small(t.TempDir()))
	for range 300 { // several segments
		publish(t, q, msg("t", "", strings.Repeat("x", 1000)))
	}
	r, err := q.VerifyLog(nil)
	if err != nil || !r.Sound() || r.Records < 300 || len(r.Segments) < 3 {
		t.Fatalf("%d records in %d segments, damage %v, %v", r.Records, len(r.Segments), r.Damage, err)
	}
	stop := errors.New("stop")
	if _, err := q.VerifyLog(func(int64, int64) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v, want the error of progress", err)
	}
	calls, closed := 0, make(chan error, 1)
	_, err = q.VerifyLog(func(int64, int64) error {
		if calls++; calls == 1 {
			go func() { closed <- q.Close() }()
			<-q.stopping
		}
		return nil
	})
	if !errors.Is(err, ErrClosed) || calls != 1 {
		t.Errorf("Close during a verification: %v after %d calls, want ErrClosed after 1", err, calls)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := q.VerifyLog(nil); err == nil {
		t.Error("a closed queue was verified")
	}
}
