package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sched/wheel"
	"github.com/wheelworkhq/wheelwork/sched/wheel/alarm"
)

// lead is the time from the start of a round to its first deadline. The timers are added
// in it.
const lead = 150 * time.Millisecond

// racer is a store of timers that holds many timers far in the future and fires others.
type racer struct {
	name string
	// race sets timers to the given times after now, which are sorted, and returns how
	// late each fired.
	race func(due []time.Duration) []time.Duration
	// close cancels the timers far in the future.
	close func()
}

// far returns the due time of the i-th timer far in the future.
func far(i int) time.Duration { return time.Hour + time.Duration(i)*3*time.Millisecond }

// deadlines returns random deadlines, sorted.
func deadlines(rate int, window time.Duration, seed uint64) []time.Duration {
	r := rand.New(rand.NewPCG(7, seed))
	due := make([]time.Duration, int(float64(rate)*window.Seconds()))
	for i := range due {
		due[i] = lead + time.Duration(r.Int64N(int64(window)))
	}
	slices.Sort(due)
	return due
}

// late measures how late timers fire, at two rates.
func (b *bench) late(ctx context.Context) error {
	var racers []racer
	for _, enter := range []func(live int) racer{raceFloor, raceOurs, raceAfterFunc, raceRussellLuo} {
		r := enter(b.size.timers)
		defer r.close()
		racers = append(racers, r)
	}
	for _, rate := range []struct {
		name     string
		second   int
		absolute *report.Goal
	}{{"5k", 5_000, report.AtMost(1)}, {"100k", 100_000, nil}} {
		b.note("%d rounds of %d timers a second among %d", b.size.rounds, rate.second, b.size.timers)
		var rounds []map[string][]time.Duration // sorted lateness by racer
		early, of := 0, 0
		for i := range b.size.rounds {
			due := deadlines(rate.second, b.size.window, uint64(i))
			round := map[string][]time.Duration{}
			runtime.GC()
			for k := range racers {
				if err := ctx.Err(); err != nil {
					return err
				}
				r := racers[(k+i)%len(racers)]
				late := r.race(due)
				slices.Sort(late)
				round[r.name] = late
			}
			if l := round["wheel"]; l[0] < 0 {
				return fmt.Errorf("a timer went off %v early", -l[0])
			}
			n, _ := slices.BinarySearch(round["timingwheel"], 0)
			early, of = early+n, of+len(due)
			rounds = append(rounds, round)
		}
		prefix := "late/" + rate.name
		b.against(prefix+"/p99", rounds, 0.99, "AfterFunc", report.AtMost(0.25))
		if rate.absolute != nil {
			var all []float64
			for _, r := range rounds {
				all = append(all, quantile(r["wheel"], 0.99))
			}
			slices.Sort(all)
			b.report.Add(prefix+"/p99/absolute", all[len(all)/2], "ms", rate.absolute)
		}
		b.against(prefix+"/p99/timingwheel", rounds, 0.99, "timingwheel", nil)
		b.report.Note(fmt.Sprintf("timingwheel was early %d times of %d", early, of))
		b.against(prefix+"/p99/floor", rounds, 0.99, "nanosleep", nil)
		b.against(prefix+"/p50", rounds, 0.5, "AfterFunc", nil)
		b.against(prefix+"/p50/floor", rounds, 0.5, "nanosleep", nil)
	}
	return nil
}

// against adds a row with a quantile of ours and of another racer, from the round whose
// ratio of both is the median. Other activity on the machine affected both in that round.
func (b *bench) against(row string, rounds []map[string][]time.Duration, q float64, other string, goal *report.Goal) {
	type pair struct{ ours, theirs float64 }
	var all []pair
	for _, r := range rounds {
		all = append(all, pair{quantile(r["wheel"], q), quantile(r[other], q)})
	}
	slices.SortFunc(all, func(a, b pair) int { return cmp.Compare(a.ours*b.theirs, b.ours*a.theirs) })
	m := all[len(all)/2]
	b.report.AddRatio(row, m.ours, "ms", other, m.theirs, goal)
}

// quantile returns a quantile in ms, at least a nanosecond, because shorter times are not
// measurable.
func quantile(sorted []time.Duration, q float64) float64 {
	return max(float64(sorted[int(q*float64(len(sorted)-1))]), 1) / 1e6
}

// raceFloor shows the limit of the kernel: a locked thread sleeps until each deadline and
// holds no timers.
func raceFloor(int) racer {
	return racer{"nanosleep", func(dues []time.Duration) []time.Duration {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		late := make([]time.Duration, len(dues))
		start := time.Now()
		for i, due := range dues {
			for d := due - time.Since(start); d > 0; d = due - time.Since(start) {
				ts := unix.NsecToTimespec(int64(d))
				_ = unix.Nanosleep(&ts, nil) // if interrupted, the loop sleeps again
			}
			late[i] = time.Since(start) - due
		}
		return late
	}, nothing}
}

// raceOurs drives the wheel as the scheduler's loop does: one goroutine waits for the
// alarm. A tick of the wheel is a nanosecond here.
func raceOurs(live int) racer {
	w := wheel.New[int32](0)
	for i := range live {
		w.Add(int64(far(i)), -1)
	}
	bell, start := alarm.New(), time.Now()
	return racer{"wheel", func(dues []time.Duration) []time.Duration {
		late := make([]time.Duration, len(dues))
		base := time.Since(start)
		for i, due := range dues {
			w.Add(int64(base+due), int32(i))
		}
		for left := len(dues); left > 0; {
			w.Advance(int64(time.Since(start)), func(_ int64, i int32) {
				late[i] = time.Since(start) - base - dues[i]
				left--
			})
			if at, ok := w.Next(); ok && left > 0 {
				bell.Set(time.Duration(at) - time.Since(start))
				<-bell.C
			}
		}
		return late
	}, bell.Stop}
}

func raceAfterFunc(live int) racer {
	others := &afterFunc{}
	others.reserve(live)
	for i := range live {
		others.add(i, far(i))
	}
	return racer{"AfterFunc", raceFuncs(func(d time.Duration, f func()) { time.AfterFunc(d, f) }), others.close}
}

func raceRussellLuo(live int) racer {
	others := &russellLuo{}
	others.reserve(live)
	for i := range live {
		others.add(i, far(i))
	}
	w := others.w
	return racer{"timingwheel", raceFuncs(func(d time.Duration, f func()) { w.AfterFunc(d, f) }), others.close}
}

// raceFuncs returns the race function of a store that calls a function for each timer.
func raceFuncs(after func(time.Duration, func())) func([]time.Duration) []time.Duration {
	return func(dues []time.Duration) []time.Duration {
		late := make([]time.Duration, len(dues))
		var wg sync.WaitGroup
		wg.Add(len(dues))
		start := time.Now()
		for i, due := range dues {
			after(due-time.Since(start), func() {
				late[i] = time.Since(start) - due
				wg.Done()
			})
		}
		wg.Wait()
		return late
	}
}

// early counts the timers that fire too early, among many. Each timer that fires sets
// another one at a random nanosecond of the next 100 ms.
func (b *bench) early(ctx context.Context) error {
	b.note("%d timers, none early", b.size.fires)
	live := min(b.size.fires, 100_000)
	r := rand.New(rand.NewPCG(3, 3))
	w := wheel.New[uint32](0)
	due := make([]time.Duration, live) // requested due times
	start := time.Now()
	set := func(i uint32) {
		due[i] = time.Since(start) + time.Duration(r.Int64N(int64(100*time.Millisecond)))
		w.Add(int64(due[i]), i)
	}
	for i := range live {
		set(uint32(i))
	}
	fired, early := 0, 0
	bell := alarm.New()
	defer bell.Stop()
	for fired < b.size.fires {
		w.Advance(int64(time.Since(start)), func(_ int64, i uint32) {
			if time.Since(start) < due[i] {
				early++
			}
			fired++
			set(i)
		})
		at, _ := w.Next()
		bell.Set(time.Duration(at) - time.Since(start))
		select {
		case <-bell.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	b.report.Add("early", float64(early), "timers", report.AtMost(0))
	b.report.Note(fmt.Sprintf("of %d", fired))
	return nil
}
