package wasm

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/local"
)

// batchPlayer returns a player of the script fixture with a manifest that allows batches.
func batchPlayer(t *testing.T, cfg Config) *player {
	e := newEngine(t, cfg)
	code := withSection(fixture(t, "script"), "wheelwork.manifest", `{"handlers":[{"name":"main","batch":true},{"name":"alone"}]}`)
	return &player{t: t, engine: e, digest: load(t, e, code), task: runtime.Task{App: "shop", Job: "j"}}
}

// item returns a task of a batch.
func (p *player) item(id string, s *script, end, status uint64) (*runtime.Item, *recorder) {
	task, sink := p.task, &recorder{}
	task.RunID, task.Digest, task.Input, task.Deadline = id, p.digest, s.input(end, status), within(20*time.Second)
	return &runtime.Item{Ctx: context.Background(), Task: task, Sink: sink}, sink
}

// saying returns a script that logs text and outputs the id of its run.
func saying(t *testing.T, text string) (*script, int) {
	s := newScript(t)
	s.call("log", uint64(1), text)
	s.call("progress", uint64(1), uint64(2), text)
	return s, s.call("param_get", "run_id", 10)
}

func outcomes(items []*runtime.Item) string {
	var out []string
	for _, it := range items {
		out = append(out, fmt.Sprintf("%s/%d/%s", it.Task.RunID, it.Result.Outcome, it.Result.Code))
	}
	return strings.Join(out, " ")
}

func TestBatch(t *testing.T) {
	p := batchPlayer(t, Config{Services: &local.Services{}})
	if !p.engine.Batches(p.digest, "") || p.engine.Batches(p.digest, "alone") || p.engine.Batches("sha256:0", "") {
		t.Error("which handlers take batches is not what the manifest says")
	}
	var items []*runtime.Item
	var sinks []*recorder
	var scripts []*script
	for i := range 5 {
		s, _ := saying(t, fmt.Sprint("task ", i))
		status := uint64(0)
		if i == 3 {
			s.call("fail", uint64(2), uint64(0), "E_BAD", "it is bad")
			status = 1
		}
		it, sink := p.item(fmt.Sprint("r", i), s, opReturn, status)
		items, sinks, scripts = append(items, it), append(sinks, sink), append(scripts, s)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	items[1].Ctx = ctx
	p.engine.RunBatch(items)
	if got, want := outcomes(items), "r0/1/ r1/5/stopped r2/1/ r3/3/E_BAD r4/1/"; got != want {
		t.Fatalf("outcomes %s, want %s", got, want)
	}
	for i, it := range items {
		if i == 1 {
			if len(sinks[i].lines) != 0 {
				t.Errorf("a task that was cancelled before has run: %q", sinks[i].lines)
			}
			continue
		}
		d := done{it.Result, scripts[i], sinks[i]}
		if got := d.buffer(2, 2); got != it.Task.RunID {
			t.Errorf("task %d is told that it is %q", i, got)
		}
		said := fmt.Sprint("task ", i)
		if !cmp.Equal(sinks[i].lines, []string{said}) || len(sinks[i].progress) != 1 || sinks[i].progress[0].message != said {
			t.Errorf("task %d said %q and %v", i, sinks[i].lines, sinks[i].progress)
		}
		if it.Result.Duration <= 0 {
			t.Errorf("task %d took %v", i, it.Result.Duration)
		}
	}
	if n := p.engine.pool.len(); n != 1 {
		t.Errorf("%d idle instances, want the one that ran them all", n)
	}
}

// TestABatchGoesOnAfterATrap fails one task in each possible way; the others must run.
func TestABatchGoesOnAfterATrap(t *testing.T) {
	p := batchPlayer(t, Config{})
	item := func(id string, end, status uint64) *runtime.Item {
		s, _ := saying(t, id)
		it, _ := p.item(id, s, end, status)
		return it
	}
	trap, loop, leave, hang := item("trap", opTrap, 0), item("loop", opLoop, 0), item("leave", opLeave, 2), item("hang", opHang, 0)
	loop.Task.Deadline = within(attackTime)
	after := item("after", opReturn, 0)
	after.Task.Deadline = within(attackTime + 50*time.Millisecond) // the deadline at which a guest that hangs between two tasks is ended
	items := []*runtime.Item{item("a", opReturn, 0), trap, item("b", opReturn, 0), loop, leave, item("c", opReturn, 0), hang, after, item("d", opReturn, 0)}
	work := spent(func() { p.engine.RunBatch(items) })
	got := outcomes(items)
	if want := "a/1/ trap/2/trap b/1/ loop/4/deadline leave/3/status c/1/ hang/1/ after/4/deadline d/1/"; got != want {
		t.Errorf("outcomes %s, want %s", got, want)
	}
	if work > 2*attackTime+2*slack {
		t.Errorf("it ran for %v", work)
	}
	if trap.Result.Trace == "" {
		t.Error("the trap has no trace")
	}
}

// TestTheLastTaskOfABatchCannotHang ends a guest that hangs after its last task.
func TestTheLastTaskOfABatchCannotHang(t *testing.T) {
	p := batchPlayer(t, Config{})
	s, _ := saying(t, "x")
	one, _ := p.item("one", s, opReturn, 0)
	two, _ := p.item("two", s, opHang, 0)
	start := time.Now()
	work := spent(func() { p.engine.RunBatch([]*runtime.Item{one, two}) })
	if got := outcomes([]*runtime.Item{one, two}); got != "one/1/ two/1/" {
		t.Errorf("outcomes %s", got)
	}
	if took := time.Since(start); took < time.Second || work > time.Second+slack {
		t.Errorf("it ended after %v, of which it ran for %v; want %v", took, work, time.Second)
	}
}

// TestBetweenTwoTasks calls functions of a task while there is none.
func TestBetweenTwoTasks(t *testing.T) {
	p := batchPlayer(t, Config{Services: &local.Services{}})
	s := newScript(t)
	s.call("job_done", uint64(2))
	s.call("log", uint64(1), "nobody's line")
	s.call("input_len")
	one, oneSink := p.item("one", s, opReturn, 0)
	plain, _ := saying(t, "two")
	two, twoSink := p.item("two", plain, opReturn, 0)
	p.engine.RunBatch([]*runtime.Item{one, two})
	if got := outcomes([]*runtime.Item{one, two}); got != "one/3/status two/1/" {
		t.Errorf("outcomes %s", got)
	}
	if len(oneSink.lines) != 0 || !cmp.Equal(twoSink.lines, []string{"two"}) {
		t.Errorf("lines %q and %q: what is said between two tasks is nobody's", oneSink.lines, twoSink.lines)
	}
	// Opening a second task at once fails, and so does opening one outside a batch.
	s = newScript(t)
	next := s.call("job_next", uint64(0))
	it, sink := p.item("open", s, opReturn, 0)
	other, _ := p.item("other", plain, opReturn, 0)
	p.engine.RunBatch([]*runtime.Item{it, other})
	if d := (done{it.Result, s, sink}); d.result(next) != -28 || other.Result.Outcome != runtime.Succeeded {
		t.Errorf("job_next while a task is open: %d", d.result(next))
	}
	s = newScript(t)
	next = s.call("job_next", uint64(0))
	end := s.call("job_done", uint64(0))
	if d := p.play(s); d.result(next) != -28 || d.result(end) != -28 {
		t.Errorf("without a batch: %d, %d", d.result(next), d.result(end))
	}
}

// TestBatchesAreOfOneKind passes tasks together that must not share an instance.
func TestBatchesAreOfOneKind(t *testing.T) {
	a := runtime.Task{App: "a", Digest: "d", Handler: "h", Grants: &runtime.Grants{}}
	for name, change := range map[string]func(*runtime.Task){
		"app":     func(t *runtime.Task) { t.App = "b" },
		"module":  func(t *runtime.Task) { t.Digest = "e" },
		"handler": func(t *runtime.Task) { t.Handler = "i" },
		"grants":  func(t *runtime.Task) { t.Grants = &runtime.Grants{Secrets: []string{"S"}} },
		"limits":  func(t *runtime.Task) { t.Limits.MemoryBytes = 1 },
	} {
		b := a
		if !together(&a, &b) {
			t.Fatal("tasks of one kind are parted")
		}
		if change(&b); together(&a, &b) {
			t.Errorf("another %s goes together", name)
		}
	}
	a.Grants = &runtime.Grants{Files: []runtime.FileGrant{{Mount: "/tmp"}}}
	if b := a; together(&a, &b) {
		t.Error("tasks with files share an instance")
	}
	p := batchPlayer(t, Config{})
	s, _ := saying(t, "x")
	one, _ := p.item("one", s, opReturn, 0)
	two, _ := p.item("two", s, opReturn, 0)
	two.Task.App = "other"
	lost, _ := p.item("lost", s, opReturn, 0)
	lost.Task.Digest = "sha256:00"
	alone, _ := p.item("alone", s, opReturn, 0)
	alone.Task.Handler = "alone"
	items := []*runtime.Item{one, two, lost, lost, alone, alone}
	p.engine.RunBatch(items)
	if got := outcomes(items); got != "one/1/ two/1/ lost/6/not_loaded lost/6/not_loaded alone/1/ alone/1/" {
		t.Errorf("outcomes %s", got)
	}
}

// TestNothingIsLeftBehindByABatch checks the reset after a whole batch.
func TestNothingIsLeftBehindByABatch(t *testing.T) {
	p := batchPlayer(t, Config{})
	leave := newScript(t)
	leave.bytes([]byte("secret"))
	one, _ := p.item("one", leave, opReturn, 0)
	two, _ := p.item("two", leave, opReturn, 0)
	p.engine.RunBatch([]*runtime.Item{one, two})
	look := newScript(t)
	look.op(uint64(0)) // so that this input does not contain the address of the data
	if d := p.play(look); strings.Contains(string(d.Output), "secret") {
		t.Error("a task found what a batch left")
	}
	peek := newScript(t)
	out := peek.call("output_write", uint64(scriptData), uint64(6))
	if d := p.play(peek); d.result(out) != 0 || string(d.Output[:6]) != "\x00\x00\x00\x00\x00\x00" {
		t.Errorf("memory has %q", d.Output[:6])
	}
}
