package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sched/wheel/alarm"
)

// price is the cost of timers in one store: insert and cancel in ns for each timer, bytes
// for each timer, and gc in ms.
type price struct{ insert, cancel, bytes, gc float64 }

// cost measures adding, holding and cancelling timers. All timers are one to two hours
// ahead, so that none fires.
func (b *bench) cost(ctx context.Context) error {
	b.note("cost of %d timers", b.size.timers)
	parties := []party{&ours{}, &afterFunc{}, &russellLuo{}}
	prices := map[string][]price{}
	for round := range b.size.costs {
		for _, p := range parties {
			if err := ctx.Err(); err != nil {
				return err
			}
			prices[p.name()] = append(prices[p.name()], priceOf(p, b.size.timers, uint64(round)))
		}
	}
	// The minimum counts, because other activity on the machine only adds time.
	of := func(name string, f func(price) float64) float64 {
		least := f(prices[name][0])
		for _, p := range prices[name] {
			least = min(least, f(p))
		}
		return least
	}
	for _, row := range []struct {
		name, unit string
		f          func(price) float64
		goal       *report.Goal
	}{
		{"timer/insert/1e6", "ns", func(p price) float64 { return p.insert }, report.AtMost(0.1)},
		{"timer/cancel/1e6", "ns", func(p price) float64 { return p.cancel }, report.AtMost(0.1)},
		{"timer/gc", "ms", func(p price) float64 { return p.gc }, nil},
	} {
		b.report.AddRatio(row.name, of("wheel", row.f), row.unit, "AfterFunc", of("AfterFunc", row.f), row.goal)
		b.report.AddRatio(row.name+"/timingwheel", of("wheel", row.f), row.unit, "timingwheel", of("timingwheel", row.f), nil)
	}
	// The median counts, because the rest of the process frees memory as well as it
	// allocates it.
	bytes := func(name string) float64 {
		var all []float64
		for _, p := range prices[name] {
			all = append(all, p.bytes)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	b.report.Add("timer/bytes", bytes("wheel"), "B", report.AtMost(32))
	b.report.AddRatio("timer/bytes/AfterFunc", bytes("wheel"), "B", "AfterFunc", bytes("AfterFunc"), nil)
	b.report.AddRatio("timer/bytes/timingwheel", bytes("wheel"), "B", "timingwheel", bytes("timingwheel"), nil)
	return nil
}

func priceOf(p party, n int, seed uint64) price {
	r := rand.New(rand.NewPCG(1, seed))
	after := make([]time.Duration, n)
	for i := range after {
		after[i] = time.Hour + time.Duration(r.Int64N(int64(time.Hour)))
	}
	order := r.Perm(n)
	before := heap()
	p.reserve(n)
	begin := time.Now()
	for i, d := range after {
		p.add(i, d)
	}
	insert := time.Since(begin)
	held := heap() - before
	begin = time.Now()
	runtime.GC()
	gc := time.Since(begin)
	begin = time.Now()
	for _, i := range order {
		p.cancel(i)
	}
	cancel := time.Since(begin)
	p.close()
	runtime.KeepAlive(after)
	runtime.KeepAlive(order)
	return price{
		insert: float64(insert.Nanoseconds()) / float64(n),
		cancel: float64(cancel.Nanoseconds()) / float64(n),
		bytes:  float64(held) / float64(n),
		gc:     float64(gc.Microseconds()) / 1000,
	}
}

// heap returns the bytes in use. It collects twice, because a pool releases its objects
// at the second collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// idle measures the processor time of a wheel whose timers are all far in the future.
func (b *bench) idle(ctx context.Context) error {
	const wait = time.Second
	b.note("%d timers that are far away, for %v", b.size.timers, wait)
	o := &ours{}
	o.reserve(b.size.timers)
	for i := range b.size.timers {
		o.add(i, time.Hour+time.Duration(i))
	}
	runtime.GC()
	at, _ := o.w.Next()
	bell := alarm.New()
	defer bell.Stop()
	bell.Set(time.Duration(at) * time.Millisecond)
	var before, after unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &before); err != nil {
		return err
	}
	select {
	case <-bell.C: // fires in an hour
	case <-time.After(wait):
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := unix.Getrusage(unix.RUSAGE_SELF, &after); err != nil {
		return err
	}
	used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.report.Add("timer/idle", 100*float64(used)/float64(wait), "% of a processor", report.AtMost(0.1))
	runtime.KeepAlive(o)
	return nil
}
