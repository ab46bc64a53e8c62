package sched_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// texts returns the inputs prefix+from to prefix+(to-1), one for each part.
func texts(prefix string, from, to int) [][]byte {
	var inputs [][]byte
	for i := from; i < to; i++ {
		inputs = append(inputs, fmt.Append(nil, prefix, i))
	}
	return inputs
}

// sum adds the outputs in the lines that the reducing part receives, and counts the
// lines.
func sum(input []byte) (total, lines int, err error) {
	for line := range strings.Lines(string(input)) {
		var l job.ReduceLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			return 0, 0, err
		}
		n, err := strconv.Atoi(*l.Output)
		if err != nil {
			return 0, 0, err
		}
		total += n
		lines++
	}
	return total, lines, nil
}

// tree is a handler whose root maps ten branches, each of which maps ten leaves. A leaf
// returns its number. Every tenth part fails at its first attempt; the retry of a branch
// maps again.
func tree(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
	word, _, _ := strings.Cut(string(task.Input), " ")
	out := "0"
	var err error
	switch {
	case task.Role == job.RoleReduce:
		total, lines, err := sum(task.Input)
		return runtime.Result{Outcome: runtime.Succeeded, Output: fmt.Append(nil, total, " of ", lines), Error: fmt.Sprint(err)}
	case task.Role == job.RoleRoot:
		err = guest(ctx).Map(ctx, &task, 0, texts("branch ", 0, 5))
		if err == nil {
			err = guest(ctx).Map(ctx, &task, 5, texts("branch ", 5, 10))
		}
	case word == "branch":
		err = guest(ctx).Map(ctx, &task, 0, texts("leaf ", 0, 10))
	default:
		_, out, _ = strings.Cut(string(task.Input), " ")
	}
	if err != nil {
		return done(err)
	}
	if task.Attempt == 1 && task.Part%10 == 0 {
		return runtime.Result{Outcome: runtime.Retryable, Error: "once"}
	}
	return runtime.Result{Outcome: runtime.Succeeded, Output: []byte(out)}
}

func TestMapReduce(t *testing.T) {
	serve(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["tree"] = tree
		c.apply(&apiv1.Job{Name: "tree", Retry: &apiv1.Retry{Max: 1}, Fanout: &apiv1.Fanout{Mode: "map_reduce", Reduce: "sum"}})
		r := c.succeeds("tree")
		if r.Parts != 112 || r.PartsSucceeded != 112 || r.PartsFailed != 0 || r.Output != "450 of 111" || r.Fanout != "map_reduce" {
			t.Errorf("parent: %v", r)
		}
		roles, retried := map[string]int{}, 0
		for _, p := range c.all("tree", "") {
			if p.Parent != r.Id {
				continue
			}
			if roles[p.Role]++; p.Attempt > 1 {
				retried++
			}
			if want := map[bool]string{true: "sum", false: "main"}[p.Role == "reduce"]; p.Handler != want {
				t.Errorf("a %s calls handler %s", p.Role, p.Handler)
			}
		}
		if roles["root"] != 1 || roles["part"] != 110 || roles["reduce"] != 1 || retried != 12 {
			t.Errorf("roles %v, %d were tried again", roles, retried)
		}
		if n := len(w.handlers.of("tree")); n != 112+12 {
			t.Errorf("%d executions of 112 parts, of which 12 failed once", n)
		}
		j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "tree"})
		if err != nil || j.Stats.Live != 0 || j.Stats.Succeeded != 1 {
			t.Errorf("counters count the parent alone: %v, %v", j.GetStats(), err)
		}
		if n := w.countRows("map"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

// TestMapFails checks the results of a failed part, of outputs that are too large, of
// exceeded limits, and of calls from jobs that may not map.
func TestMapFails(t *testing.T) {
	serve(t, func(t *testing.T, w *world, c *client) {
		do := func(name string, f *apiv1.Fanout, h handler) *apiv1.Run {
			t.Helper()
			w.handlers.byJob[name] = h
			c.apply(&apiv1.Job{Name: name, Fanout: f})
			return c.wait(c.trigger(name, ""))
		}
		maps := func(ctx context.Context, task runtime.Task, inputs [][]byte) error {
			if task.Role != job.RoleRoot {
				return nil
			}
			return guest(ctx).Map(ctx, &task, 0, inputs)
		}
		r := do("bad", &apiv1.Fanout{Mode: "map_reduce"}, func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			if task.Role == job.RoleReduce {
				t.Error("it reduces without the part that failed")
			}
			if task.Part == 7 {
				return runtime.Result{Outcome: runtime.Permanent, Error: "seven"}
			}
			return done(maps(ctx, task, texts("", 0, 20)))
		})
		if r.State != "failed" || r.Parts != 21 || r.PartsSucceeded != 20 || r.PartsFailed != 1 || !strings.Contains(r.Error, "part 7 is failed: seven") {
			t.Errorf("a part that fails: %v", r)
		}
		r = do("large", &apiv1.Fanout{Mode: "map_reduce"}, func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Succeeded, Output: bytes.Repeat([]byte{'x'}, 500_000), Error: fmt.Sprint(maps(ctx, task, texts("", 0, 5)))}
		})
		if r.State != "failed" || r.Code != "reduce_limit" || r.PartsFailed != 0 || r.PartsSucceeded != 6 {
			t.Errorf("large outputs: %v", r)
		}
		r = do("deep", &apiv1.Fanout{Mode: "map", MaxDepth: 3}, func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			return done(guest(ctx).Map(ctx, &task, 0, texts("", 0, 1)))
		})
		if r.State != "failed" || r.Parts != 4 || !strings.Contains(r.Error, "max_depth") {
			t.Errorf("deep: %v", r)
		}
		r = do("wide", &apiv1.Fanout{Mode: "map", MaxParts: 10}, func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			return done(maps(ctx, task, texts("", 0, 10)))
		})
		if r.State != "failed" || !strings.Contains(r.Error, "max_parts") || r.Parts != 1 {
			t.Errorf("wide: %v", r)
		}
		r = do("gap", &apiv1.Fanout{Mode: "map"}, func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			return done(guest(ctx).Map(ctx, &task, 3, texts("", 0, 1)))
		})
		if r.State != "failed" || !strings.Contains(r.Error, "missing") {
			t.Errorf("gap: %v", r)
		}
		r = do("none", nil, func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			return done(guest(ctx).Map(ctx, &task, 0, texts("", 0, 1)))
		})
		if r.State != "failed" || !strings.Contains(r.Error, "fanout.mode") {
			t.Errorf("a job that does not map: %v", r)
		}
		r = do("alone", &apiv1.Fanout{Mode: "map_reduce"}, func(_ context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			return runtime.Result{Outcome: runtime.Succeeded, Output: []byte(task.Role)}
		})
		if r.State != "succeeded" || r.Parts != 2 || r.Output != "reduce" {
			t.Errorf("nothing mapped: %v", r)
		}
		for name, f := range map[string]*apiv1.Fanout{
			"unknown handler": {Mode: "map_reduce", Reduce: "nothing"}, "reduce of map": {Mode: "map", Reduce: "sum"},
			"shards of map": {Mode: "map", Shards: 3}, "parts of shards": {Mode: "shards", Shards: 3, MaxParts: 4}, "too many": {Mode: "map", MaxParts: 2_000_000},
			"too deep": {Mode: "map", MaxDepth: 65}, "mode": {Mode: "reduce"},
		} {
			_, err := c.jobs.ApplyJob(t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{Name: "x", Handler: &apiv1.Handler{Module: "m@1"}, Fanout: f}})
			if code := status.Code(err); code != codes.InvalidArgument && code != codes.FailedPrecondition {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestMapMany maps more parts than are live at once, restarts the server in between, and
// counts the executions of each part.
func TestMapMany(t *testing.T) {
	const parts = 100_000
	serve(t, func(t *testing.T, w *world, c *client) {
		w.addHost("h2", 16)
		w.addHost("h3", 16)
		var mu sync.Mutex
		seen := make([]int, parts)
		w.handlers.byJob["many"] = func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			switch task.Role {
			case job.RoleRoot:
				return done(guest(ctx).Map(ctx, &task, 0, texts("", 0, parts)))
			case job.RoleReduce:
				total, lines, err := sum(task.Input)
				return runtime.Result{Outcome: runtime.Succeeded, Output: fmt.Append(nil, total, " of ", lines, err)}
			}
			n, err := strconv.Atoi(string(task.Input))
			if err != nil || n != task.Part-1 {
				return done(fmt.Errorf("part %d has the input %q", task.Part, task.Input))
			}
			mu.Lock()
			seen[n]++
			mu.Unlock()
			return runtime.Result{Outcome: runtime.Succeeded}
		}
		c.apply(&apiv1.Job{Name: "many", Fanout: &apiv1.Fanout{Mode: "map"}})
		id := c.trigger("many", "")
		for c.run(id).Parts <= parts { // until the map is complete
			time.Sleep(time.Millisecond)
		}
		w.stopServer()
		w.start()
		c.reconnect(w)
		r := c.wait(id)
		if r.State != "succeeded" || r.Parts != parts+1 || r.PartsSucceeded != parts+1 {
			t.Errorf("parent: %v", r)
		}
		for n, times := range seen {
			if times == 0 {
				t.Fatalf("part %d did not run", n+1)
			}
		}
		if n := w.countRows("map"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
	})
}

func TestCancelMap(t *testing.T) {
	serve(t, func(t *testing.T, w *world, c *client) {
		const parts = 20_000 // most of them are queued
		w.handlers.byJob["slow"] = func(ctx context.Context, task runtime.Task, s runtime.Sink) runtime.Result {
			if task.Role == job.RoleRoot {
				return done(guest(ctx).Map(ctx, &task, 0, texts("", 0, parts)))
			}
			return sleeping(time.Hour)(ctx, task, s)
		}
		for _, restart := range []bool{false, true} {
			c.apply(&apiv1.Job{Name: "slow", Fanout: &apiv1.Fanout{Mode: "map"}})
			id := c.trigger("slow", "")
			time.Sleep(2 * time.Second)
			if restart {
				w.stopServer()
				w.start()
				c.reconnect(w)
				time.Sleep(2 * time.Second)
			}
			if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}); err != nil {
				t.Fatal(err)
			}
			if r := c.wait(id); r.State != "stopped" || r.Parts != parts+1 || r.PartsSucceeded != 1 || r.PartsFailed != parts {
				t.Errorf("cancelled: %v", r)
			}
		}
		// The timeout applies to each attempt, the deadline to the start.
		c.apply(&apiv1.Job{Name: "slow", Timeout: "1s", Deadline: "1m", Fanout: &apiv1.Fanout{Mode: "map"}})
		w.handlers.byJob["slow"] = func(ctx context.Context, task runtime.Task, s runtime.Sink) runtime.Result {
			if task.Role == job.RoleRoot {
				return done(guest(ctx).Map(ctx, &task, 0, texts("", 0, 400)))
			}
			return sleeping(time.Hour)(ctx, task, s)
		}
		if r := c.wait(c.trigger("slow", "")); r.State != "failed" || r.PartsFailed != 400 || r.Code != "timeout" {
			t.Errorf("timed out: %v", r)
		}
		w.removeHost("h1")
		if r := c.wait(c.trigger("slow", "")); r.State != "missed" || r.Parts != 0 {
			t.Errorf("nobody to run it: %v", r)
		}
	})
}

// TestMapChaos maps and reduces while servers stop and lose their power and hosts crash
// or lose their network. Each run ends with the sum of all its leaves, however often some
// of them ran.
func TestMapChaos(t *testing.T) {
	seeds := []uint64{1, 2, 3}
	if testkit.Long() {
		for n := range uint64(50) {
			seeds = append(seeds, 100+n)
		}
	}
	for _, seed := range testkit.Seeds(t, seeds...) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { mapChaos(t, seed) })
		})
	}
}

func mapChaos(t *testing.T, seed uint64) {
	s := &sim{t: t, r: rand.New(rand.NewPCG(seed, 7)), w: newWorld(t), ledger: &ledger{}, acked: map[string]string{}}
	var mu sync.Mutex
	children := map[string]string{} // leaf -> the run that it enqueued
	s.ledger.do = func(ctx context.Context, task runtime.Task, sink runtime.Sink) runtime.Result {
		h := rand.New(rand.NewPCG(seed, uint64(task.Part)<<8+uint64(task.Attempt)))
		if res := sleeping(time.Duration(h.IntN(400))*time.Millisecond)(ctx, task, sink); res.Outcome != runtime.Succeeded {
			return res
		}
		if task.Job == "child" {
			return done(nil)
		}
		word, n, _ := strings.Cut(string(task.Input), " ")
		if word == "leaf" {
			id, err := guest(ctx).Enqueue(ctx, &task, runtime.Submit{Job: "child", Input: task.Input})
			if err != nil {
				return runtime.Result{Outcome: runtime.Retryable, Error: err.Error()}
			}
			mu.Lock()
			if before := children[task.RunID]; before != "" && before != id {
				t.Errorf("leaf %s enqueued %s, then %s", task.RunID, before, id)
			}
			children[task.RunID] = id
			mu.Unlock()
		}
		res := tree(ctx, task, sink)
		if res.Outcome == runtime.Permanent { // a guest service was unavailable for long
			res.Outcome = runtime.Retryable
		}
		if word == "leaf" && res.Outcome == runtime.Succeeded && h.IntN(4) == 0 && task.Attempt < 4 {
			return runtime.Result{Outcome: runtime.Retryable, Error: "leaf " + n}
		}
		return res
	}
	s.w.requests = everything()
	s.w.wrap = func(inner journal.Journal) journal.Journal {
		s.disk = &disk{Journal: inner}
		return s.disk
	}
	s.w.start()
	s.c = s.w.client()
	s.c.push()
	s.c.grant(everything())
	for i := range 3 {
		m := &machine{w: s.w, id: fmt.Sprint("h", i+1), slots: 4, ledger: s.ledger}
		s.machines = append(s.machines, m)
		m.start()
	}
	s.c.apply(&apiv1.Job{Name: "tree", Timeout: "2m", Retry: &apiv1.Retry{Max: 50, First: "100ms", Limit: "2s"}, Fanout: &apiv1.Fanout{Mode: "map_reduce"}})
	s.c.apply(&apiv1.Job{Name: "child"})
	var ids []string
	for range 3 {
		ids = append(ids, s.c.trigger("tree", ""))
		for range 3 {
			switch s.r.IntN(4) {
			case 0:
				s.stopServer(false)
				s.startServer()
			case 1:
				s.disk.cutPower(1+s.r.IntN(20), s.chance(2))
				for n := 0; !s.disk.isDead() && n < 200; n++ {
					time.Sleep(100 * time.Millisecond)
				}
				if s.disk.isDead() {
					synctest.Wait()
					s.stopServer(true)
					s.startServer()
				} else {
					s.disk.spare()
				}
			default:
				s.troubleHost()
			}
			s.sleep(2 * time.Second)
		}
	}
	for _, m := range s.machines {
		if m.heal(); m.stop == nil {
			m.start()
		}
	}
	for _, id := range ids {
		r := s.c.wait(id)
		if r.State != "succeeded" || r.Parts != 112 || r.PartsSucceeded != 112 || r.Output != "450 of 111" {
			t.Errorf("parent: %v", r)
		}
	}
	time.Sleep(time.Minute)
	if live := s.list("live", 100); len(live) > 0 {
		t.Errorf("%d runs have not ended, as %v", len(live), live[0])
	}
	made := slices.Sorted(func(yield func(string) bool) {
		mu.Lock()
		defer mu.Unlock()
		for _, id := range children {
			if !yield(id) {
				return
			}
		}
	})
	if n := len(slices.Compact(made)); n != 3*100 {
		t.Errorf("300 leaves enqueued %d runs", n)
	}
	var runs []string
	for _, r := range s.c.all("child", "") {
		runs = append(runs, r.Id)
	}
	slices.Sort(runs)
	if !slices.Equal(made, runs) {
		t.Errorf("%d children are there, %d were acknowledged", len(runs), len(made))
	}
	for _, m := range s.machines {
		m.stop()
	}
	s.c.close()
	s.stopServer(false)
}

// TestRetryOfAMap retries a map_reduce run. A retried part continues its map where it
// ended, succeeded parts do not run again, and the reducing part gets the outputs of all
// runs. The server is restarted in between.
func TestRetryOfAMap(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			serve(t, func(t *testing.T, w *world, c *client) {
				var mu sync.Mutex
				broken, ran := map[string]bool{}, map[string]int{} // keys are the inputs of the parts
				set := func(inputs ...string) {
					mu.Lock()
					defer mu.Unlock()
					clear(broken)
					clear(ran)
					for _, in := range inputs {
						broken[in] = true
					}
				}
				w.handlers.byJob["j"] = func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
					in := string(task.Input)
					if task.Role == job.RoleReduce {
						in = "reduce"
					}
					mu.Lock()
					bad := broken[in]
					ran[in]++
					mu.Unlock()
					var err error
					switch {
					case in == "root":
						err = guest(ctx).Map(ctx, &task, 0, texts("branch ", 0, 5))
					case in == "branch 2" && bad:
						err = guest(ctx).Map(ctx, &task, 0, texts("leaf ", 0, 3)) // the other leaves are not mapped
					case in == "branch 2" || in == "branch 4":
						err = guest(ctx).Map(ctx, &task, 0, texts("leaf ", 0, 6))
					case in == "reduce":
						total, lines, err := sum(task.Input)
						if err == nil && !bad {
							return runtime.Result{Outcome: runtime.Succeeded, Output: fmt.Append(nil, total, " of ", lines)}
						}
					}
					switch {
					case err != nil:
						return done(err)
					case bad:
						return runtime.Result{Outcome: runtime.Permanent, Error: in + " is broken"}
					}
					return runtime.Result{Outcome: runtime.Succeeded, Output: []byte("1")}
				}
				c.apply(&apiv1.Job{Name: "j", Input: "root", Fanout: &apiv1.Fanout{Mode: "map_reduce"}})
				var last *apiv1.Run
				run := func(id string) *apiv1.Run {
					t.Helper()
					if restart {
						w.stopServer()
						w.start()
						c.reconnect(w)
					}
					last = c.wait(id)
					if last.PartsSucceeded+last.PartsFailed != last.Parts {
						t.Errorf("the counts do not add up: %v", last)
					}
					return last
				}
				retry := func() *apiv1.Run {
					t.Helper()
					again, err := c.runs.RetryRun(t.Context(), &apiv1.RetryRunRequest{Id: last.Id})
					if err != nil {
						t.Fatal(err)
					}
					return run(again.Id)
				}
				check := func(what string, r *apiv1.Run, state string, parts, failed int32, output string, want map[string]int) {
					t.Helper()
					mu.Lock()
					defer mu.Unlock()
					if !maps.Equal(ran, want) {
						t.Errorf("%s: ran %v, want %v", what, ran, want)
					}
					if r.State != state || r.Parts != parts || r.PartsFailed != failed || r.Output != output {
						t.Errorf("%s: %v", what, r)
					}
					clear(ran)
				}
				// 1 root, 5 branches, 3 leaves of branch 2 and 6 leaves of branch 4
				set("branch 1", "branch 2", "leaf 5")
				check("first", run(c.trigger("j", "")), "failed", 15, 3, "", map[string]int{
					"root": 1, "branch 0": 1, "branch 1": 1, "branch 2": 1, "branch 3": 1, "branch 4": 1,
					"leaf 0": 2, "leaf 1": 2, "leaf 2": 2, "leaf 3": 1, "leaf 4": 1, "leaf 5": 1,
				})
				set("branch 1")
				check("second", retry(), "failed", 18, 1, "", map[string]int{
					"branch 1": 1, "branch 2": 1, "leaf 5": 2, "leaf 3": 1, "leaf 4": 1,
				})
				set("reduce")
				check("third", retry(), "failed", 19, 1, "", map[string]int{"branch 1": 1, "reduce": 1})
				set()
				check("fourth", retry(), "succeeded", 19, 0, "18 of 18", map[string]int{"reduce": 1})
				// A retry of a succeeded run starts from the beginning.
				if r := retry(); r.State != "succeeded" || r.Output != "18 of 18" || ran["root"] != 1 {
					t.Errorf("all of it: %v, %v", r, ran)
				}
				time.Sleep(time.Minute) // map rows of an ended run are deleted with a delay
				if n := w.countRows("map"); n != 0 {
					t.Errorf("%d rows are left", n)
				}
			})
		})
	}
}

// TestRetryOfAMapIsRefused checks that a retry is refused if the inputs of the failed
// parts exceed 1 MiB, or if parts beyond the map window had not begun.
func TestRetryOfAMapIsRefused(t *testing.T) {
	serve(t, func(t *testing.T, w *world, c *client) {
		const many = job.MapWindow + 100
		w.handlers.byJob["many"] = func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			if task.Role == job.RoleRoot {
				large := strings.Repeat("x", 60_000)
				err := guest(ctx).Map(ctx, &task, 0, texts(large, 0, 10))
				if err == nil {
					err = guest(ctx).Map(ctx, &task, 10, texts(large, 10, 20))
				}
				return done(err)
			}
			return runtime.Result{Outcome: runtime.Permanent, Error: "no"}
		}
		w.handlers.byJob["slow"] = func(ctx context.Context, task runtime.Task, s runtime.Sink) runtime.Result {
			if task.Role == job.RoleRoot {
				return done(guest(ctx).Map(ctx, &task, 0, texts("", 0, many)))
			}
			return sleeping(time.Hour)(ctx, task, s)
		}
		for name, want := range map[string]string{"many": "their inputs are more than 1 MiB", "slow": "had not begun"} {
			c.apply(&apiv1.Job{Name: name, Fanout: &apiv1.Fanout{Mode: "map"}})
			id := c.trigger(name, "")
			if name == "slow" {
				time.Sleep(5 * time.Second)
				if _, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}); err != nil {
					t.Fatal(err)
				}
			}
			c.wait(id)
			_, err := c.runs.RetryRun(t.Context(), &apiv1.RetryRunRequest{Id: id})
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "trigger job "+name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		// A retry uses the current definition: the job has no map now.
		w.handlers.byJob["once"] = func(ctx context.Context, task runtime.Task, _ runtime.Sink) runtime.Result {
			if task.Role == job.RoleRoot {
				return done(guest(ctx).Map(ctx, &task, 0, texts("", 0, 3)))
			}
			return runtime.Result{Outcome: map[bool]runtime.Outcome{true: runtime.Succeeded, false: runtime.Permanent}[task.Parts == 0]}
		}
		c.apply(&apiv1.Job{Name: "once", Fanout: &apiv1.Fanout{Mode: "map"}})
		r := c.wait(c.trigger("once", ""))
		c.apply(&apiv1.Job{Name: "once"})
		again, err := c.runs.RetryRun(t.Context(), &apiv1.RetryRunRequest{Id: r.Id})
		if err != nil {
			t.Fatal(err)
		}
		if r := c.wait(again.Id); r.State != "succeeded" || r.Parts != 0 {
			t.Errorf("without a fan-out: %v", r)
		}
	})
}
