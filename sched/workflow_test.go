package sched_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// workflow applies a workflow job and returns the error.
func (c *client) workflow(j *apiv1.Job, nodes ...*apiv1.Node) error {
	j.Workflow = &apiv1.Workflow{Nodes: nodes}
	_, err := c.jobs.ApplyJob(context.Background(), &apiv1.ApplyJobRequest{Job: j})
	return err
}

// flow applies a workflow that must be accepted. A node without a job gets a new job with
// the name of the node.
func (c *client) flow(j *apiv1.Job, nodes ...*apiv1.Node) {
	c.t.Helper()
	for _, n := range nodes {
		if n.Job == "" {
			n.Job = n.Name
			c.apply(&apiv1.Job{Name: n.Job})
		}
	}
	if err := c.workflow(j, nodes...); err != nil {
		c.t.Fatal(err)
	}
}

func node(name string, after ...string) *apiv1.Node { return &apiv1.Node{Name: name, After: after} }

func when(n *apiv1.Node, when string) *apiv1.Node { n.When = when; return n }

func given(n *apiv1.Node, input string) *apiv1.Node { n.Input = input; return n }

// nodeStates returns "name=state" of the nodes of a run, in order.
func nodeStates(r *apiv1.Run) string {
	var out []string
	for _, n := range r.Nodes {
		out = append(out, n.Name+"="+n.State)
	}
	return strings.Join(out, " ")
}

func (c *client) run(id string) *apiv1.Run {
	c.t.Helper()
	r, err := c.runs.GetRun(context.Background(), &apiv1.GetRunRequest{Id: id})
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *client) retry(id string) *apiv1.Run {
	c.t.Helper()
	r, err := c.runs.RetryRun(context.Background(), &apiv1.RetryRunRequest{Id: id})
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

// says returns a handler that succeeds with the given output.
func says(output string) handler {
	return func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
		return runtime.Result{Outcome: runtime.Succeeded, Output: []byte(output)}
	}
}

var refuses handler = func(context.Context, runtime.Task, runtime.Sink) runtime.Result {
	return runtime.Result{Outcome: runtime.Permanent, Error: "no", Code: "exit"}
}

var later handler = func(_ context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
	if t.Attempt < 3 {
		return runtime.Result{Outcome: runtime.Retryable, Error: "not yet"}
	}
	return runtime.Result{Outcome: runtime.Succeeded}
}

func TestWorkflow(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["read"] = says(`{"rows":[{"id":7}],"total":120}`)
		w.handlers.byJob["load"] = sleeping(3 * time.Second) // its output is its input
		c.apply(&apiv1.Job{Name: "load", Input: "none"})
		c.flow(&apiv1.Job{Name: "w", Input: `{"day":"Monday"}`},
			node("read"),
			&apiv1.Node{Name: "left", Job: "load", After: []string{"read"}, Input: "${input.day} ${nodes.read.output.rows.0.id}"},
			&apiv1.Node{Name: "right", Job: "load", After: []string{"read"}, When: "nodes.read.output.total > 100"},
			when(node("low", "read"), "nodes.read.output.total <= 100"),
			given(node("join", "left", "right", "low"), `{"left":${json(nodes.left.output)},"low":"${nodes.low.output}"}`),
		)
		id := c.trigger("w", "")
		time.Sleep(time.Second)
		r := c.run(id)
		if got := nodeStates(r); r.State != "running" || got != "read=succeeded left=running right=running low=skipped join=pending" {
			t.Fatalf("%s: %s", r.State, got)
		}
		why, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: id})
		if err != nil || why.Why != "2 of its 5 nodes have ended; under way: left, right" {
			t.Errorf("explained: %v, %v", why, err)
		}
		r = c.wait(id)
		if r.State != "succeeded" || r.Output != `{"join":{"left":"Monday 7","low":""}}` || r.Trigger != "manual" || r.Attempt != 0 {
			t.Errorf("the run: %v", r)
		}
		for _, n := range r.Nodes {
			if n.Name == "low" {
				if n.Run != "" || n.Error == "" {
					t.Errorf("the node that was left out: %v", n)
				}
				continue
			}
			run := c.run(n.Run)
			if run.Trigger != "workflow" || run.Cause != id || run.Node != n.Name || run.Job != n.Job || n.StartedAt == nil || !proto.Equal(n.StartedAt, run.StartedAt) || !proto.Equal(n.FinishedAt, run.FinishedAt) {
				t.Errorf("node %v\nrun %v", n, run)
			}
			if n.Name == "right" && run.Input != "none" {
				t.Errorf("the input of a node without one is %q", run.Input)
			}
		}
		j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: "w"})
		if err != nil || j.Stats.Succeeded != 1 || j.Stats.Live != 0 || len(j.Workflow.Nodes) != 5 {
			t.Errorf("the job: %v, %v", j, err)
		}
		if _, err := c.runs.RetryRun(t.Context(), &apiv1.RetryRunRequest{Id: r.Nodes[0].Run}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), id) {
			t.Errorf("retry of a node: %v", err)
		}
		if again := c.wait(c.retry(id).Id); again.State != "succeeded" || len(w.handlers.of("read")) != 2 {
			t.Errorf("a retry of one that succeeded begins anew: %v", again)
		}
	})
}

func TestWorkflowFailures(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["bad"] = refuses
		w.handlers.byJob["big"] = says(strings.Repeat("x", job.MaxNodeOutput+1))
		for _, name := range []string{"bad", "good", "big", "gone"} {
			c.apply(&apiv1.Job{Name: name})
		}
		at := func(n *apiv1.Node, j string) *apiv1.Node { n.Job = j; return n }
		optional := func(n *apiv1.Node) *apiv1.Node { n.Optional = true; return n }
		for _, x := range []struct {
			name  string
			nodes []*apiv1.Node
			state string
			want  string
			why   string
		}{
			{
				"failure",
				[]*apiv1.Node{
					at(node("a"), "bad"), at(node("b", "a"), "good"), at(when(node("c", "a"), "failure"), "good"), at(when(node("d", "b", "c"), "end"), "good"),
				},
				"failed", "a=failed b=skipped c=succeeded d=succeeded", "node a is failed: no",
			},
			{"optional", []*apiv1.Node{optional(at(node("a"), "bad")), at(node("b", "a"), "good")}, "succeeded", "a=failed b=succeeded", ""},
			{
				"large",
				[]*apiv1.Node{at(node("a"), "big"), at(given(node("b", "a"), "${nodes.a.output}"), "good"), at(node("c", "a"), "good")},
				"failed", "a=succeeded b=failed c=succeeded", "node b is failed: input: the output was too large to retain",
			},
			{"deleted", []*apiv1.Node{at(node("a"), "gone"), at(node("b"), "good")}, "failed", "a=failed b=succeeded", "job gone does not exist"},
		} {
			c.flow(&apiv1.Job{Name: x.name}, x.nodes...)
			if x.name == "deleted" {
				if _, err := c.jobs.DeleteJob(t.Context(), &apiv1.DeleteJobRequest{Name: "gone", Force: true}); err != nil {
					t.Fatal(err)
				}
				if _, err := c.jobs.PauseJob(t.Context(), &apiv1.PauseJobRequest{Name: x.name}); err != nil {
					t.Errorf("pause of a workflow that lacks a job: %v", err)
				}
			}
			r := c.wait(c.trigger(x.name, ""))
			if got := nodeStates(r); r.State != x.state || got != x.want || !strings.Contains(r.Error, x.why) {
				t.Errorf("%s: %s %q %s", x.name, r.State, r.Error, got)
			}
		}
	})
}

func TestWorkflowIsChecked(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		for _, name := range []string{"a", "b"} {
			c.apply(&apiv1.Job{Name: name})
		}
		at := func(j string) *apiv1.Node { return &apiv1.Node{Name: "n", Job: j} }
		c.flow(&apiv1.Job{Name: "inner"}, at("a"))
		c.flow(&apiv1.Job{Name: "outer"}, at("inner"))
		c.apply(&apiv1.Job{Name: "later", Dependency: &apiv1.Dependency{Jobs: []string{"outer"}}})
		c.apply(&apiv1.Job{Name: "b", Dependency: &apiv1.Dependency{Jobs: []string{"a"}}})
		for _, x := range []struct {
			name string
			job  *apiv1.Job
			node *apiv1.Node
			code codes.Code
			want string
		}{
			{"no job", &apiv1.Job{Name: "x"}, at("nobody"), codes.FailedPrecondition, "apply that one first"},
			{"no name", &apiv1.Job{Name: "x"}, &apiv1.Node{Job: "a"}, codes.InvalidArgument, "not the name of a node"},
			{"itself", &apiv1.Job{Name: "x"}, at("x"), codes.InvalidArgument, "circle: x, which runs x"},
			{"nesting", &apiv1.Job{Name: "inner"}, at("outer"), codes.InvalidArgument, "circle: inner, which runs outer, which runs inner"},
			{"after its node", &apiv1.Job{Name: "x", Dependency: &apiv1.Dependency{Jobs: []string{"a"}}}, at("a"), codes.InvalidArgument, "circle: x, which runs a, after which runs x"},
			{"after what follows its node", &apiv1.Job{Name: "inner", Dependency: &apiv1.Dependency{Jobs: []string{"b"}}}, at("a"), codes.InvalidArgument, "circle: inner, which runs a, after which runs b, after which runs inner"},
			{"no circle", &apiv1.Job{Name: "inner"}, at("later"), codes.OK, ""}, // outer starts both, neither starts outer
		} {
			if err := c.workflow(x.job, x.node); status.Code(err) != x.code || x.want != "" && !strings.Contains(err.Error(), x.want) {
				t.Errorf("%s: %v", x.name, err)
			}
		}
	})
}

func TestNestedWorkflow(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		broken := true
		w.handlers.byJob["flaky"] = func(ctx context.Context, task runtime.Task, s runtime.Sink) runtime.Result {
			if broken {
				return refuses(ctx, task, s)
			}
			return says("whole")(ctx, task, s)
		}
		w.handlers.byJob["first"] = says("1")
		c.apply(&apiv1.Job{Name: "first"})
		c.apply(&apiv1.Job{Name: "flaky"})
		c.flow(&apiv1.Job{Name: "inner"}, node("begin"), &apiv1.Node{Name: "flaky", Job: "flaky", After: []string{"begin"}})
		c.flow(&apiv1.Job{Name: "outer", Input: "in"},
			&apiv1.Node{Name: "first", Job: "first"},
			&apiv1.Node{Name: "sub", Job: "inner", After: []string{"first"}, Input: "${input}"},
			given(node("last", "sub"), "${nodes.sub.output.flaky}"),
			when(node("clean", "sub"), "end"),
		)
		r := c.wait(c.trigger("outer", ""))
		if got := nodeStates(r); r.State != "failed" || got != "first=succeeded sub=failed last=skipped clean=succeeded" || r.Error != "node sub is failed: node flaky is failed: no" {
			t.Fatalf("%s %q %s", r.State, r.Error, got)
		}
		broken = false
		w.stopServer() // the runs that the retry retains are in the history by now
		w.start()
		c.reconnect(w)
		again := c.wait(c.retry(r.Id).Id)
		if got := nodeStates(again); again.State != "succeeded" || again.Cause != r.Id || again.Trigger != "retry" || again.Output != `{"last":"whole","clean":""}` {
			t.Fatalf("%s %q %s %s", again.State, again.Error, got, again.Output)
		}
		for name, want := range map[string]int{"first": 1, "begin": 1, "flaky": 2, "last": 1, "clean": 2} {
			if n := len(w.handlers.of(name)); n != want {
				t.Errorf("%s ran %d times, want %d", name, n, want)
			}
		}
		if n := again.Nodes[0]; !n.Kept || n.Run != r.Nodes[0].Run {
			t.Errorf("the node that was kept: %v", n)
		}
		if sub := c.run(again.Nodes[1].Run); !sub.Nodes[0].Kept || sub.Nodes[1].Kept || sub.Trigger != "workflow" {
			t.Errorf("the nested run: %v", sub)
		}
	})
}

func TestResumeAfterChange(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["c"] = refuses
		c.flow(&apiv1.Job{Name: "w"}, node("a"), node("b", "a"), node("c", "b"))
		first := c.wait(c.trigger("w", ""))
		b := node("b", "a")
		b.Job, b.Input = "b", "new"
		c.flow(&apiv1.Job{Name: "w"}, node("a"), b, node("c", "b"))
		second := c.wait(c.retry(first.Id).Id)
		if got := nodeStates(second); got != "a=succeeded b=succeeded c=failed" || !second.Nodes[0].Kept || second.Nodes[1].Kept {
			t.Errorf("%s: %v", got, second.Nodes)
		}
		delete(w.handlers.byJob, "c")
		if third := c.wait(c.retry(second.Id).Id); third.State != "succeeded" || !third.Nodes[0].Kept || !third.Nodes[1].Kept {
			t.Errorf("%v", third)
		}
		for name, want := range map[string]int{"a": 1, "b": 2, "c": 3} {
			if n := len(w.handlers.of(name)); n != want {
				t.Errorf("%s ran %d times, want %d", name, n, want)
			}
		}
	})
}

func TestCancelWorkflow(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			simulate(t, func(t *testing.T, w *world, c *client) {
				w.handlers.byJob["slow"] = sleeping(time.Hour)
				c.apply(&apiv1.Job{Name: "slow"})
				c.flow(&apiv1.Job{Name: "inner"}, &apiv1.Node{Name: "slow", Job: "slow"}, node("next", "slow"))
				c.flow(&apiv1.Job{Name: "w"},
					node("quick"), &apiv1.Node{Name: "long", Job: "slow", After: []string{"quick"}},
					&apiv1.Node{Name: "sub", Job: "inner"}, when(node("clean", "long", "sub"), "end"))
				id := c.trigger("w", "")
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
				r := c.wait(id)
				if got := nodeStates(r); r.State != "stopped" || got != "quick=succeeded long=stopped sub=stopped clean=cancelled" {
					t.Errorf("%s: %s", r.State, got)
				}
				if sub := c.run(r.Nodes[2].Run); sub.State != "stopped" || nodeStates(sub) != "slow=stopped next=cancelled" || sub.Error == "" {
					t.Errorf("the nested one: %v", sub)
				}
				delete(w.handlers.byJob, "slow")
				if r = c.wait(c.retry(id).Id); r.State != "succeeded" || !r.Nodes[0].Kept {
					t.Errorf("it does not go on: %v", r)
				}
			})
		})
	}
}

func TestTimeoutOfWorkflow(t *testing.T) {
	for _, restart := range []bool{false, true} {
		simulate(t, func(t *testing.T, w *world, c *client) {
			w.handlers.byJob["slow"] = sleeping(time.Hour)
			c.flow(&apiv1.Job{Name: "w", Timeout: "10s"}, node("slow"), node("next", "slow"))
			c.flow(&apiv1.Job{Name: "free"}, &apiv1.Node{Name: "slow", Job: "slow"})
			id, free := c.trigger("w", ""), c.trigger("free", "")
			start := time.Now()
			if restart {
				time.Sleep(3 * time.Second)
				w.stopServer()
				w.start()
				c.reconnect(w)
			}
			r := c.wait(id)
			if got := nodeStates(r); r.State != "timed_out" || r.Code != "timeout" || got != "slow=stopped next=cancelled" {
				t.Errorf("%s %s %q: %s", r.State, r.Code, r.Error, got)
			}
			if d := time.Since(start); d < 10*time.Second || d > 11*time.Second {
				t.Errorf("it ended after %s", d)
			}
			if r := c.run(free); r.State != "running" {
				t.Errorf("one without a timeout is %s", r.State)
			}
		})
	}
}

func TestScheduledWorkflow(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		w.handlers.byJob["slow"] = sleeping(25 * time.Second)
		c.flow(&apiv1.Job{Name: "w", Schedule: &apiv1.Schedule{Every: "10s"}, Overlap: &apiv1.Overlap{Policy: "discard"}}, node("slow"))
		c.flow(&apiv1.Job{Name: "delayed", Schedule: &apiv1.Schedule{Delay: "10s"}}, &apiv1.Node{Name: "n", Job: "slow"})
		c.flow(&apiv1.Job{Name: "missed", Deadline: "5s", Overlap: &apiv1.Overlap{Policy: "queue"}}, &apiv1.Node{Name: "n", Job: "slow"})
		c.apply(&apiv1.Job{Name: "after", Dependency: &apiv1.Dependency{Jobs: []string{"w"}, PassOutput: true}})
		held := []string{c.trigger("missed", ""), c.trigger("missed", "")}
		time.Sleep(94 * time.Second)
		got := states(c.all("w", ""))
		if s, k := count(got, "succeeded"), count(got, "skipped"); s != 2 || k != 6 {
			t.Errorf("%d succeeded and %d skipped of %q", s, k, got)
		}
		if n := len(c.all("delayed", "succeeded")); n != 2 { // at 10 and 45 s, each takes 25
			t.Errorf("the delayed one ran %d times", n)
		}
		if a, b := c.run(held[0]), c.run(held[1]); a.State != "succeeded" || b.State != "missed" || len(b.Nodes) != 0 {
			t.Errorf("%v, %v", a, b)
		}
		followed := c.all("after", "succeeded")
		if len(followed) != 2 || !strings.HasPrefix(c.run(followed[0].Id).Input, `{"slow":`) {
			t.Errorf("what depends on it: %v", followed)
		}
	})
}

// scales records the largest append to a journal.
type scales struct {
	journal.Journal
	most int // bytes; read it only after the server has stopped
}

func (s *scales) Append(recs []journal.Record, done func(error)) (uint64, error) {
	n := 0
	for _, r := range recs {
		n += len(r.Body)
	}
	s.most = max(s.most, n)
	return s.Journal.Append(recs, done)
}

func TestWideWorkflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, s := newWorld(t), &scales{}
		w.wrap = func(inner journal.Journal) journal.Journal {
			s.Journal = inner
			return s
		}
		w.start()
		c := w.client()
		c.push()
		w.addHost("h1", 50)
		w.handlers.byJob["part"] = says("") // outputs are empty, so the records consist of inputs
		c.apply(&apiv1.Job{Name: "part"})
		nodes := []*apiv1.Node{node("split")}
		var parts []string
		for i := range 200 {
			parts = append(parts, fmt.Sprint("part", i))
			nodes = append(nodes, &apiv1.Node{Name: parts[i], Job: "part", After: []string{"split"}, Input: strings.Repeat("x", 10<<10)}) // 2 MB in all
		}
		c.flow(&apiv1.Job{Name: "wide"}, nodes[0])
		if err := c.workflow(&apiv1.Job{Name: "wide"}, append(nodes, &apiv1.Node{Name: "join", Job: "split", After: parts})...); err == nil || !strings.Contains(err.Error(), "1 MiB") {
			t.Fatalf("a definition of 2 MB: %v", err)
		}
		for _, n := range nodes[1:] {
			n.Input = "${input}${input}" // the same size, expanded from a small definition
		}
		if err := c.workflow(&apiv1.Job{Name: "wide", Input: strings.Repeat("x", 5<<10)}, append(nodes, &apiv1.Node{Name: "join", Job: "split", After: parts})...); err != nil {
			t.Fatal(err)
		}
		r := c.wait(c.trigger("wide", ""))
		if r.State != "succeeded" || len(r.Nodes) != 202 {
			t.Fatalf("%s %s", r.State, nodeStates(r))
		}
		runs := map[string]bool{}
		for _, call := range w.handlers.of("part") {
			runs[call.run] = true
		}
		if n := len(w.handlers.of("part")); n != 200 || len(runs) != 200 {
			t.Errorf("%d executions of %d runs, want 200", n, len(runs))
		}
		c.close()
		w.close()
		if w.failed != nil || s.most > 3<<19 {
			t.Errorf("the inputs have 2 MB, and %d bytes were written at once; the server: %v", s.most, w.failed)
		}
	})
}

func TestWorkflowOnFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var d *disk
		w.wrap = func(inner journal.Journal) journal.Journal {
			d = &disk{Journal: inner}
			return d
		}
		w.start()
		c := w.client()
		c.push()
		w.addHost("h1", 2)
		c.flow(&apiv1.Job{Name: "w", Schedule: &apiv1.Schedule{Every: "1h"}}, node("a"))
		time.Sleep(time.Hour - 200*time.Millisecond) // until the run is armed
		d.fill(0)
		time.Sleep(10 * time.Second)
		live := c.all("w", "live")
		if len(live) != 1 || live[0].State != "queued" {
			t.Fatalf("a run began on a full disk: %v", live)
		}
		why, err := c.runs.ExplainRun(t.Context(), &apiv1.ExplainRunRequest{Id: live[0].Id})
		if err != nil || !strings.Contains(why.Why, "disk is full") || len(why.Hosts) > 0 {
			t.Errorf("explained: %v, %v", why, err)
		}
		d.free()
		if r := c.wait(live[0].Id); r.State != "succeeded" {
			t.Errorf("%v", r)
		}
		c.close()
		w.close()
	})
}

// TestWorkflowChaos lets a seed choose workflows and failures. In every case, each node
// of a run has at most one run, each run that the state of a workflow names exists, and
// the workflow ends as its nodes determine.
func TestWorkflowChaos(t *testing.T) {
	seeds := []uint64{1, 2, 5}
	if testkit.Long() {
		for n := range uint64(100) {
			seeds = append(seeds, 100+n)
		}
	}
	for _, seed := range testkit.Seeds(t, seeds...) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { workflowChaos(t, seed) }) })
	}
}

func workflowChaos(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	var d *disk
	w.wrap = func(inner journal.Journal) journal.Journal {
		d = &disk{Journal: inner}
		return d
	}
	w.start()
	c := w.client()
	c.push()
	w.addHost("h0", 3)
	w.addHost("h1", 3)
	for name, h := range map[string]handler{"quick": sleeping(time.Millisecond), "slow": sleeping(1500 * time.Millisecond), "bad": refuses, "fails": later} {
		w.handlers.byJob[name] = h
		c.apply(&apiv1.Job{Name: name, Retry: &apiv1.Retry{Max: 3, First: "200ms"}})
	}
	workflows := []string{"w0", "w1", "w2"}
	for k, name := range workflows { // a workflow may nest earlier ones
		var nodes []*apiv1.Node
		for i := range 2 + r.IntN(7) {
			n := &apiv1.Node{Name: fmt.Sprint("n", i), Job: pick(r, append([]string{"quick", "quick", "slow", "slow", "fails", "bad"}, workflows[:k]...)...)}
			for a := range i {
				if r.IntN(3) == 0 {
					n.After = append(n.After, fmt.Sprint("n", a))
				}
			}
			if n.Optional = r.IntN(4) == 0; len(n.After) > 0 {
				n.When = pick(r, "", "", "end", "failure", `nodes.`+n.After[0]+`.state == "succeeded"`)
				n.Input = pick(r, "", "${nodes."+n.After[0]+".output}")
			}
			nodes = append(nodes, n)
		}
		c.flow(&apiv1.Job{Name: name}, nodes...)
	}
	up := func() {
		time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
		w.start()
		c.reconnect(w)
	}
	var acked []string
	cancelled := map[string]bool{}
	for range 40 {
		switch r.IntN(9) {
		case 0:
			w.stopServer()
			up()
		case 5: // the disk has no room, or only room for the ends of runs
			d.fill(pick[int64](r, 0, 6<<20))
			time.Sleep(time.Duration(r.IntN(6000)) * time.Millisecond)
			d.free()
			time.Sleep(2 * time.Second) // until the loop and the hosts have tried again
		case 1: // the power fails between two appends
			d.cutPower(1+r.IntN(12), r.IntN(2) == 0)
			for n := 0; !d.isDead() && n < 200; n++ {
				c.jobs.TriggerJob(t.Context(), &apiv1.TriggerJobRequest{Name: pick(r, workflows...)}) //nolint:errcheck // it may not be answered
				time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			}
			synctest.Wait()
			w.stopServer()
			up()
		case 2:
			name := fmt.Sprint("h", r.IntN(2))
			w.removeHost(name)
			time.Sleep(time.Duration(r.IntN(12_000)) * time.Millisecond)
			w.addHost(name, 1+r.IntN(3))
		case 3:
			if len(acked) > 0 {
				id := pick(r, acked...)
				_, err := c.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id})
				cancelled[id] = cancelled[id] || err == nil // otherwise the run has ended
			}
		case 4:
			if len(acked) > 0 {
				if again, err := c.runs.RetryRun(t.Context(), &apiv1.RetryRunRequest{Id: pick(r, acked...)}); err == nil { // otherwise the run is live
					acked = append(acked, again.Id)
				}
			}
		default:
			acked = append(acked, c.trigger(pick(r, workflows...), ""))
		}
		time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
	}
	time.Sleep(10 * time.Minute)

	runs := map[string]*apiv1.Run{}
	ofNode := map[string]string{} // key is cause/node
	for _, run := range c.all("", "") {
		runs[run.Id] = run
		if !job.State(run.State).Terminal() {
			t.Errorf("seed %d: run %s of %s is %s", seed, run.Id, run.Job, run.State)
		}
		if run.Node == "" {
			continue
		}
		k := run.Cause + "/" + run.Node
		if ofNode[k] != "" {
			t.Errorf("seed %d: node %s has the runs %s and %s", seed, k, ofNode[k], run.Id)
		}
		ofNode[k] = run.Id
	}
	for _, id := range acked {
		if runs[id] == nil {
			t.Errorf("seed %d: acknowledged run %s is not there", seed, id)
		}
	}
	for id, run := range runs {
		if !slices.Contains(workflows, run.Job) {
			continue
		}
		run = c.run(id)
		bad, named := false, 0
		def, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: run.Job})
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range run.Nodes {
			switch {
			case n.Kept:
				if n.State != "succeeded" || ofNode[id+"/"+n.Name] != "" || runs[n.Run] == nil || runs[n.Run].State != "succeeded" {
					t.Errorf("seed %d: run %s keeps %v and ran %s", seed, id, n, ofNode[id+"/"+n.Name])
				}
			case n.Run != "":
				named++
				if runs[n.Run] == nil || runs[n.Run].State != n.State || runs[n.Run].Node != n.Name || runs[n.Run].Cause != id {
					t.Errorf("seed %d: node %v of %s, its run %v", seed, n, id, runs[n.Run])
				}
			case n.State != "skipped" && n.State != "cancelled":
				t.Errorf("seed %d: node %v of %s has no run", seed, n, id)
			}
			bad = bad || n.State != "succeeded" && n.State != "skipped" && !def.Workflow.Nodes[i].Optional
		}
		for k := range ofNode {
			if strings.HasPrefix(k, id+"/") {
				named--
			}
		}
		if named != 0 {
			t.Errorf("seed %d: run %s names %d more runs than it has", seed, id, named)
		}
		stopped := run.State == "stopped" || run.State == "cancelled"
		if stopped != run.CancelRequested && run.State != "succeeded" && run.State != "failed" || stopped && !run.CancelRequested {
			t.Errorf("seed %d: run %s is %s, cancel requested: %v", seed, id, run.State, run.CancelRequested)
		}
		if !stopped && (run.State == "failed") != bad {
			t.Errorf("seed %d: run %s is %s with %s", seed, id, run.State, nodeStates(run))
		}
		if cancelled[id] && !run.CancelRequested {
			t.Errorf("seed %d: the cancel of run %s is forgotten", seed, id)
		}
	}
	for _, name := range append(workflows, "quick", "slow", "bad", "fails") {
		j, err := c.jobs.GetJob(t.Context(), &apiv1.GetJobRequest{Name: name})
		if err != nil || j.Stats.Live != 0 {
			t.Errorf("seed %d: job %s: %v, %v", seed, name, j.GetStats(), err)
		}
	}
	if len(runs) < 50 {
		t.Errorf("seed %d: only %d runs", seed, len(runs))
	}
	c.close()
	w.close()
}
