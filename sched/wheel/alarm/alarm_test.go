package alarm

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestFakeTime: in fake time the alarm is as exact as the clock.
func TestFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New()
		defer a.Stop()
		begin := time.Now()
		rings := func(want time.Duration) {
			t.Helper()
			<-a.C
			if got := time.Since(begin); got != want {
				t.Fatalf("rang after %v, want %v", got, want)
			}
		}
		a.Set(time.Hour)
		rings(time.Hour)
		a.Set(time.Hour)
		a.Set(time.Minute) // earlier
		rings(time.Hour + time.Minute)
		a.Set(time.Minute)
		a.Set(2 * time.Hour) // later
		rings(3*time.Hour + time.Minute)
		for _, now := range []time.Duration{0, -time.Second} {
			a.Set(now)
			rings(3*time.Hour + time.Minute)
		}
		a.Set(time.Nanosecond)
		rings(3*time.Hour + time.Minute + 1)
	})
}

// TestSetReplaces: an earlier Set has no effect after the next one, whether the alarm has
// rung or not.
func TestSetReplaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New()
		a.Set(time.Second)
		time.Sleep(2 * time.Second) // it has rung, and C was not read
		a.Set(time.Hour)
		begin := time.Now()
		<-a.C
		if got := time.Since(begin); got != time.Hour {
			t.Fatalf("rang after %v, want 1h", got)
		}
		a.Set(time.Second)
		a.Stop()
		select {
		case <-a.C:
			t.Fatal("rang after it was stopped")
		case <-time.After(time.Hour):
		}
	})
}

// TestRealTime: with the kernel's timer the alarm always rings, and never early.
func TestRealTime(t *testing.T) {
	a := New()
	defer a.Stop()
	for i := range 200 {
		d := time.Duration(i) * 10 * time.Microsecond
		begin := time.Now()
		a.Set(d)
		if i%3 == 0 {
			a.Set(d / 2)
			d /= 2
		}
		<-a.C
		if got := time.Since(begin); got < d {
			t.Fatalf("rang after %v, want at least %v", got, d)
		}
	}
}
