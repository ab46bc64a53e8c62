package wasm

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

func TestLogLinesAreLimited(t *testing.T) {
	p := newPlayer(t, Config{})
	s := newScript(t)
	s.call("log", uint64(1), strings.Repeat("x\n", 10))
	s.call("log", uint64(1), "more")
	d := p.play(s, func(task *runtime.Task) { task.Limits.LogLines = 7 })
	if len(d.sink.lines) != 8 || d.sink.lines[6] != "x" || !strings.Contains(d.sink.lines[7], "log limit of 7 lines") {
		t.Errorf("lines %q", d.sink.lines)
	}
}

// TestLogRate checks that a burst is free and that further lines are delayed.
func TestLogRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(t, Config{})
		s := newScript(t)
		const rate = 10
		for range 4 {
			s.call("log", uint64(1), strings.Repeat("x\n", rate))
		}
		start := time.Now()
		d := p.play(s, func(task *runtime.Task) { task.Limits.LogRate = rate })
		if took := time.Since(start); len(d.sink.lines) != 4*rate || took < 2900*time.Millisecond || took > 3100*time.Millisecond {
			t.Errorf("%d lines after %v, want 40 after 3 s", len(d.sink.lines), took)
		}
		// A guest that logs no faster than its rate waits for its lines at most once, when
		// the first burst is used up.
		s = newScript(t)
		for range 10 {
			s.call("log", uint64(1), strings.Repeat("x\n", rate/2))
			s.call("sleep", uint64(600))
		}
		start = time.Now()
		d = p.play(s, func(task *runtime.Task) { task.Limits.LogRate = rate })
		if took := time.Since(start); d.Outcome != runtime.Succeeded || took > 6500*time.Millisecond {
			t.Errorf("%v after %v, want 6 to 6.5 s", d.Outcome, took)
		}
		// The deadline applies while a guest waits.
		s = newScript(t)
		s.call("log", uint64(1), strings.Repeat("x\n", 100*rate))
		s.call("log", uint64(1), "late")
		start = time.Now()
		d = p.play(s, func(task *runtime.Task) { task.Limits.LogRate, task.Deadline = rate, within(time.Second) })
		if took := time.Since(start); d.Outcome != runtime.TimedOut || took != time.Second || len(d.sink.lines) != 100*rate {
			t.Errorf("%v after %v with %d lines", d.Code, took, len(d.sink.lines))
		}
	})
}

// TestErrorsOfServicesAreLogged checks that errors of services count against the limits of
// the log.
func TestErrorsOfServicesAreLogged(t *testing.T) {
	p := newPlayer(t, Config{})
	s := newScript(t)
	for range 10 {
		s.call("secret_get", "KEY", 1)
	}
	d := p.play(s, func(task *runtime.Task) { task.Limits.LogLines = 3 })
	if len(d.sink.lines) != 4 {
		t.Errorf("lines %q", d.sink.lines)
	}
}

// TestClocksAreCoarse checks the resolution of the guests' clocks.
func TestClocksAreCoarse(t *testing.T) {
	wall, _ := guest.Walltime()
	if wall == 0 || guest.Nanotime()%int64(time.Millisecond) != 0 {
		t.Errorf("wall clock %d, steady clock %d", wall, guest.Nanotime())
	}
	_, nsec := guest.Walltime()
	if nsec%int32(time.Millisecond) != 0 {
		t.Errorf("wall clock has %d ns", nsec)
	}
	last := int64(0)
	for range 1000 {
		now := guest.Nanotime()
		if now < last {
			t.Fatal("the steady clock went back")
		}
		last = now
	}
}

// TestLimitsOfTheManifest checks that the manifest's limits of a handler apply where a task
// has no smaller limit.
func TestLimitsOfTheManifest(t *testing.T) {
	e := newEngine(t, Config{})
	with := func(limits string) string {
		return load(t, e, AppendManifest(fixture(t, "count"), `{"handlers":[{"name":"main"},{"name":"spin",`+limits+`}]}`))
	}
	run := func(digest string, l runtime.Limits) runtime.Result {
		return e.Run(context.Background(), runtime.Task{Digest: digest, Handler: "spin", Limits: l}, &recorder{})
	}
	fuel := with(`"fuel":1000`)
	if r := run(fuel, runtime.Limits{}); r.Outcome != runtime.Permanent || r.Code != "fuel" || !strings.Contains(r.Error, "1000") {
		t.Errorf("with the fuel of the manifest: %+v", r)
	}
	if r := run(fuel, runtime.Limits{Fuel: 100_000_000}); r.Outcome != runtime.Permanent || r.Code != "fuel" || !strings.Contains(r.Error, "1000") {
		t.Errorf("a task that asks for more fuel than the manifest: %+v", r)
	}
	if r := run(with(`"fuel":100000000`), runtime.Limits{}); r.Outcome != runtime.Succeeded {
		t.Errorf("with enough fuel: %+v", r)
	}
	if r := run(with(`"fuel":100000000`), runtime.Limits{Fuel: 900}); r.Code != "fuel" || !strings.Contains(r.Error, " 900 ") {
		t.Errorf("a task that allows less fuel than the manifest: %+v", r)
	}
	large := load(t, e, AppendManifest(fixture(t, "memory"), `{"handlers":[{"name":"main","memory_mib":512}]}`))
	for limit, want := range map[int64]int64{0: 512 << 20, 8 << 20: 8 << 20, 2 << 30: 512 << 20} {
		task := runtime.Task{Digest: large, Limits: runtime.Limits{MemoryBytes: limit}}
		if p, refused := e.prepare(&task); refused != nil || p.limit != want {
			t.Errorf("a task that asks for %d bytes may have %d of the manifest's 512 MiB, want %d", limit, p.limit, want)
		}
	}
	if r := e.Run(context.Background(), runtime.Task{Digest: fuel, Handler: "main"}, &recorder{}); r.Code == "fuel" {
		t.Errorf("the other handler: %+v", r)
	}
	if r := run(with(`"memory_mib":1`), runtime.Limits{}); r.Outcome != runtime.Succeeded {
		t.Errorf("with enough memory: %+v", r)
	}
	loop := load(t, e, AppendManifest(fixture(t, "loop"), `{"handlers":[{"name":"main","timeout_ms":20}]}`))
	if r := e.Run(context.Background(), runtime.Task{Digest: loop, Deadline: time.Now().Add(time.Hour)}, &recorder{}); r.Outcome != runtime.TimedOut {
		t.Errorf("a loop without an end under a manifest that allows 20 ms: %+v", r)
	}
}
