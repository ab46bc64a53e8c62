package job

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/expr"
)

// flow parses a workflow from lines "name after,after when", where when is the rest of
// the line. A name with a '?' is optional. Each node has job j.
func flow(lines ...string) *apiv1.Workflow {
	w := &apiv1.Workflow{}
	for _, line := range lines {
		f := strings.SplitN(line, " ", 3)
		n := &apiv1.Node{Name: strings.TrimSuffix(f[0], "?"), Job: "j", Optional: strings.HasSuffix(f[0], "?")}
		if len(f) > 1 && f[1] != "-" {
			n.After = strings.Split(f[1], ",")
		}
		if len(f) > 2 {
			n.When = f[2]
		}
		w.Nodes = append(w.Nodes, n)
	}
	return w
}

func graph(t testing.TB, w *apiv1.Workflow) *Graph {
	t.Helper()
	g, err := newGraph(w)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// stand parses rows from "state" or "state=output". A missing row is pending. Nodes that
// are not pending have a run.
func stand(w *apiv1.Workflow, states ...string) []*apiv1.NodeRow {
	var rows []*apiv1.NodeRow
	for i, n := range w.Nodes {
		r := &apiv1.NodeRow{Name: n.Name, Job: n.Job, State: string(Pending)}
		if i < len(states) && states[i] != "" && states[i] != "pending" {
			state, output, _ := strings.Cut(states[i], "=")
			r.State, r.Output, r.Run = state, []byte(output), make([]byte, 16)
			if state == "skipped" {
				r.Run = nil
			}
		}
		rows = append(rows, r)
	}
	return rows
}

func everyJob(string) bool { return true }

func TestNext(t *testing.T) {
	diamond := flow("a", "b a", "c a", "d b,c")
	for _, c := range []struct {
		name   string
		w      *apiv1.Workflow
		states []string
		want   string // "node=state" of each move, in order
	}{
		{"the first ones start", flow("a", "b", "c a"), nil, "a=running b=running"},
		{"nothing while one runs", diamond, []string{"running"}, ""},
		{"both arms", diamond, []string{"succeeded"}, "b=running c=running"},
		{"waits for both arms", diamond, []string{"succeeded", "succeeded", "running"}, ""},
		{"joins", diamond, []string{"succeeded", "succeeded", "succeeded"}, "d=running"},
		{"a failure skips all behind it", diamond, []string{"failed"}, "b=skipped c=skipped d=skipped"},
		{"a failed arm", diamond, []string{"succeeded", "timed_out", "succeeded"}, "d=skipped"},
		{"a skipped arm does not count", diamond, []string{"succeeded", "skipped", "succeeded"}, "d=running"},
		{"only skipped arms", diamond, []string{"succeeded", "skipped", "skipped"}, "d=skipped"},
		{"on failure, none", flow("a", "f a failure"), []string{"succeeded"}, "f=skipped"},
		{"on failure, one", flow("a", "b", "f a,b failure"), []string{"succeeded", "stopped"}, "f=running"},
		{"a skip is no failure", flow("a", "f a failure"), []string{"skipped"}, "f=skipped"},
		{"at the end after a failure", flow("a", "b a", "z b end"), []string{"failed"}, "b=skipped z=running"},
		{"an optional failure", flow("a?", "b a"), []string{"failed"}, "b=running"},
		{"an optional failure is one", flow("a?", "f a failure"), []string{"failed"}, "f=running"},
		{"a skipped optional one is skipped", flow("a?", "b a"), []string{"skipped"}, "b=skipped"},
		{"condition true", flow("a", `b a nodes.a.output == "yes"`), []string{"succeeded=yes\n"}, "b=running"},
		{"condition false", flow("a", `b a nodes.a.output == "yes"`, "c b"), []string{"succeeded=no"}, "b=skipped c=skipped"},
		{"a condition needs success", flow("a", `b a nodes.a.output != "yes"`), []string{"failed"}, "b=skipped"},
		{"unless it asks for the state", flow("a", `b a nodes.a.state == "failed"`), []string{"failed"}, "b=running"},
		{"a condition without an answer", flow("a", "b a nodes.a.output > 3"), []string{"succeeded=many"}, "b=failed"},
		{"what fails so counts", flow("a", "b a nodes.a.output > 3", "f b failure"), []string{"succeeded=many"}, "b=failed f=running"},
		{"a condition on the input", flow("a - input.full"), nil, "a=running"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, rows := graph(t, c.w), stand(c.w, c.states...)
			var got []string
			for _, m := range g.Next(rows, []byte(`{"full":true}`), everyJob) {
				got = append(got, g.Name(m.Node)+"="+string(m.State))
				if m.State == Running == (m.Error != "") {
					t.Errorf("node %s is %s: %q", g.Name(m.Node), m.State, m.Error)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", strings.Join(got, " "), c.want)
			}
		})
	}
}

func TestNextOfRunThatWasSkipped(t *testing.T) {
	w := flow("a", "b a", "f a failure")
	rows := stand(w, "skipped")
	rows[0].Run = make([]byte, 16) // skipped by the overlap policy of its job
	moves := graph(t, w).Next(rows, nil, everyJob)
	if len(moves) != 2 || moves[0].State != Skipped || moves[1].State != Running {
		t.Errorf("a run that was skipped is a failure: %+v", moves)
	}
}

func TestInputs(t *testing.T) {
	for _, c := range []struct {
		template, want, code string
	}{
		{"plain $ {x}", "plain $ {x}", ""},
		{"${input}", `{"day":"Monday","n":12345678901234567890}`, ""},
		{"on ${ input.day }, ${input.n}", "on Monday, 12345678901234567890", ""},
		{"${nodes.a.output}", `{"rows":[{"id":7,"name":"say \"x\""}],"ok":true,"none":null}`, ""},
		{"${nodes.a.output.rows.0.id} ${nodes.a.output.ok} ${nodes.a.output.none}", "7 true null", ""},
		{"${nodes.a.output.rows}", `[{"id":7,"name":"say \"x\""}]`, ""},
		{`{"name":${json(nodes.a.output.rows.0.name)}}`, `{"name":"say \"x\""}`, ""},
		{"$${input} ${nodes.a.state}", "${input} succeeded", ""},
		{"<${nodes.left.output}>${json(nodes.left.output)}", "<>null", ""}, // the node was skipped
		{"${nodes.left.output.x}", "", codeInput},
		{"${nodes.a.output.rows.1.id}", "", codeInput},
		{"${nodes.a.output.rows.-1.id}", "", codeInput},
		{"${nodes.text.output.x}", "", codeInput},
		{"${nodes.lost.output}", "", codeLost},
		{strings.Repeat("${input}", 3000), "", codeInput},
	} {
		w := flow("a", "left a nodes.a.output == 1", "text", "lost", "z a,left,text,lost end")
		w.Nodes[4].Input = c.template
		g := graph(t, w)
		rows := stand(w, `succeeded={"rows":[{"id":7,"name":"say \"x\""}],"ok":true,"none":null}`, "skipped", "succeeded=text", "succeeded")
		rows[3].LostBytes = 1 << 17
		moves := g.Next(rows, []byte(`{"day":"Monday","n":12345678901234567890}`), everyJob)
		if len(moves) != 1 {
			t.Fatalf("%.40s: %+v", c.template, moves)
		}
		if m := moves[0]; string(m.Input) != c.want || m.Code != c.code || m.HasInput == (c.code != "") || (m.Error != "") != (c.code != "") {
			t.Errorf("%.40s: %q %s %s", c.template, m.Input, m.Code, m.Error)
		}
	}
}

func TestMissingJob(t *testing.T) {
	w := flow("a", "b a")
	moves := graph(t, w).Next(stand(w), nil, func(string) bool { return false })
	if len(moves) != 2 || moves[0].State != Failed || moves[0].Code != codeNoJob || moves[1].State != Skipped {
		t.Errorf("got %+v", moves)
	}
}

func TestConditions(t *testing.T) {
	for _, c := range []struct {
		text string
		want string // true, false, or part of the error
	}{
		{"true", "true"},
		{"not true", "false"},
		{"true or false and false", "true"},
		{"(true or false) and false", "false"},
		{"not false and not false", "true"},
		{"not (false or true)", "false"},
		{"1 < 2 and 2 <= 2 and 3 > 2 and 2 >= 2 and 1 != 2", "true"},
		{"-1.5 < -1e0", "true"},
		{`"a" == 'a'`, "true"},
		{`"a\"b" == 'a"b'`, "true"},
		{`nodes.a.output.total == 12`, "true"},
		{`nodes.a.output.total == "12"`, "true"},
		{`nodes.a.output.total > 11.5`, "true"},
		{`nodes.a.output.name == "Ann"`, "true"},
		{`nodes.a.output.name == 12`, "false"},
		{`nodes.a.output.ready`, "true"},
		{`nodes.a.output.ready == "true"`, "true"},
		{`nodes.a.output.gone == null`, "true"},
		{`nodes.a.output.gone != 0`, "true"},
		{`nodes.a.output.list.1 == 5`, "true"},
		{`nodes.a.output.list == "[4,5]"`, "true"},
		{`nodes.a.state == "succeeded"`, "true"},
		{`nodes.b.output == null`, "true"}, // the node failed
		{`input.big == 12345678901234567890`, "true"},
		{`true or nodes.a.output.name > 1`, "true"}, // the right side is not evaluated
		{`nodes.a.output.name > 1`, `> compares numbers, and nodes.a.output.name is "Ann"`},
		{`1 < nodes.a.output.gone`, "nodes.a.output.gone is missing"},
		{`nodes.a.output.name`, "neither true nor false"},
		{`not nodes.a.output.gone`, "missing, which is neither"},
		{`input.x.y == 1 and nodes.c.output.x == 1`, "false"},
		{`nodes.c.output.x == 1`, "not JSON"},
		{"", "want a value, found the end"},
		{"1 <", "want a value"},
		{"1 = 2", "not an operator"},
		{"1 2", "want and, or, or the end"},
		{"(1 == 1", "closing bracket"},
		{"1 (", "want an operator"},
		{`"open`, "does not end"},
		{"'open", "does not end"},
		{"1 + 2", "has no meaning"},
		{"5x > 1", "want a number"},
		{"total > 1", "not a reference"},
		{"nodes.a > 1", "not a reference"},
		{"nodes.a.output..x", "empty part"},
		{"nodes.nobody.output == 1", "no node"},
		{"nodes.z.output == 1", "may not have ended"},
		{strings.Repeat("(", 60) + "true" + strings.Repeat(")", 60), "nested more than"},
		{strings.Repeat("not ", 60) + "true", "nested more than"},
		{"input == '" + strings.Repeat("x", expr.MaxCondition) + "'", "the limit is"},
	} {
		got := func() string {
			w := flow("a", "b", "c", "d a,b,c "+c.text, "z d")
			w.Nodes[3].When = c.text
			if c.text == "" {
				_, _, err := expr.ParseCondition("")
				return err.Error()
			}
			g, err := newGraph(w)
			if err != nil {
				return err.Error()
			}
			g.nodes[3].onSuccess = false // b failed, so the condition must be evaluated anyway
			rows := stand(w, `succeeded={"total":12,"name":"Ann","ready":true,"list":[4,5]}`, "failed", "succeeded=text")
			m := g.Next(rows, []byte(`{"big":12345678901234567890,"x":[]}`), everyJob)[0]
			switch m.State {
			case Running:
				return "true"
			case Skipped:
				return "false"
			}
			return m.Error
		}()
		if got != c.want && (!strings.Contains(got, c.want) || c.want == "true" || c.want == "false") {
			t.Errorf("%.60s: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestGraphErrors(t *testing.T) {
	many := flow()
	for i := range maxNodes + 1 {
		many.Nodes = append(many.Nodes, &apiv1.Node{Name: fmt.Sprint("n", i), Job: "j"})
	}
	dense := flow()
	for i := range 200 {
		n := &apiv1.Node{Name: fmt.Sprint("n", i), Job: "j"}
		for k := range i {
			n.After = append(n.After, fmt.Sprint("n", k))
		}
		dense.Nodes = append(dense.Nodes, n)
	}
	input := func(text string) *apiv1.Workflow {
		w := flow("a", "b", "c b")
		w.Nodes[2].Input = text
		return w
	}
	for _, c := range []struct {
		w    *apiv1.Workflow
		want string
	}{
		{flow(), "1 to 1000"},
		{many, "1 to 1000"},
		{dense, "more than 10000"},
		{flow("a", "a"), "two nodes with the name"},
		{flow("a.b"), "not the name of a node"},
		{flow("-a"), "not the name of a node"},
		{flow("a b"), `after names "b", but the workflow has no such node`},
		{flow("a", "b a,a"), "twice"},
		{flow("a a"), "cycle: a after a"},
		{flow("z", "a z,c", "b a", "c b", "d c"), "cycle: a after c after b after a"},
		{flow("a - failure"), "fill in after"},
		{flow("a", "b a sometimes"), "neither success, failure, end nor a condition"},
		{&apiv1.Workflow{Nodes: []*apiv1.Node{{Name: "a"}}}, "job is missing"},
		{input("${nodes.a.output}"), "may not have ended"},
		{input("${nodes.c.output}"), "may not have ended"},
		{input("${nodes.x.output}"), "no node"},
		{input("${secret}"), "not a reference"},
		{input("${input"), "no closing bracket"},
		{input(strings.Repeat("x", MaxInput+1)), "limit"},
	} {
		if _, err := newGraph(c.w); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s: %v, want %q", c.w, err, c.want)
		}
	}
	for _, c := range []struct {
		d    *apiv1.Job
		want string
	}{
		{&apiv1.Job{Name: "w", Workflow: flow("a")}, ""},
		{&apiv1.Job{Name: "w"}, "handler.module is missing"},
		{&apiv1.Job{Name: "w", Workflow: flow("a"), Handler: &apiv1.Handler{Module: "m@1"}}, "handler is set"},
		{&apiv1.Job{Name: "w", Workflow: flow("a"), Retry: &apiv1.Retry{}}, "retry is set"},
		{&apiv1.Job{Name: "w", Workflow: flow("a"), Routing: &apiv1.Routing{}}, "routing is set"},
		{&apiv1.Job{Name: "w", Workflow: flow("a"), Fanout: &apiv1.Fanout{Mode: "broadcast"}}, "fanout is set"},
	} {
		if err := Validate(c.d); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v: %v, want %q", c.d, err, c.want)
		}
	}
}

func TestResult(t *testing.T) {
	for _, c := range []struct {
		name      string
		w         *apiv1.Workflow
		states    []string
		cancelled bool
		want      State
		why       string
		output    string
	}{
		{"all is well", flow("a", "b a", "c a"), []string{"succeeded=x", "succeeded=7\n", "succeeded=say \"x\""}, false, Succeeded, "", `{"b":7,"c":"say \"x\""}`},
		{"a branch was not taken", flow("a", "b a"), []string{"succeeded=1", "skipped"}, false, Succeeded, "", `{}`},
		{"one failed", flow("a", "b"), []string{"timed_out", "succeeded=1"}, false, Failed, "node a is timed_out", `{"b":1}`},
		{"an optional one failed", flow("a?", "b a"), []string{"failed", "succeeded=1"}, false, Succeeded, "", `{"b":1}`},
		{"somebody stopped a node", flow("a"), []string{"stopped"}, false, Failed, "node a is stopped", `{}`},
		{"cancelled", flow("a", "b a"), []string{"succeeded", "cancelled"}, true, Stopped, "", `{}`},
		{"cancelled too late", flow("a"), []string{"succeeded={}"}, true, Succeeded, "", `{"a":{}}`},
		{"no text", flow("a", "b"), []string{"succeeded=\xff", "succeeded="}, false, Succeeded, "", `{"b":""}`},
	} {
		to, why, _, output := graph(t, c.w).Result(stand(c.w, c.states...), c.cancelled)
		if to != c.want || why != c.why || string(output) != c.output || !json.Valid(output) {
			t.Errorf("%s: %s %q %s", c.name, to, why, output)
		}
	}
	// The reason names the first failure.
	w := flow("a", "b")
	rows := stand(w, "failed", "failed")
	rows[0].FinishedMs, rows[1].FinishedMs, rows[1].Error, rows[1].Code = 2, 1, "no disk", "exit"
	if _, why, code, _ := graph(t, w).Result(rows, false); why != "node b is failed: no disk" || code != "exit" {
		t.Errorf("%q %q", why, code)
	}
	// The output is bounded for any outputs of the nodes.
	w = flow()
	for i := range 40 {
		w.Nodes = append(w.Nodes, &apiv1.Node{Name: fmt.Sprint("n", i), Job: "j"})
	}
	rows = stand(w)
	for _, r := range rows {
		r.State, r.Output = "succeeded", []byte(strings.Repeat("\x01", 20<<10)) // six bytes each in JSON
	}
	if _, _, _, output := graph(t, w).Result(rows, false); len(output) > maxNodesOutput || len(output) < maxNodesOutput/2 || !json.Valid(output) {
		t.Errorf("an output of %d bytes", len(output))
	}
}

func TestKeep(t *testing.T) {
	w := flow("a", "b a", "c a", "d b,c", "z d end", "nested a")
	w.Nodes[3].Input = "${nodes.b.output}"
	g := graph(t, w)
	rows := stand(w, "succeeded", "succeeded", "failed", "skipped", "succeeded", "failed")
	for i, r := range rows {
		r.Form = g.nodes[i].form
	}
	keep := func(want string) {
		t.Helper()
		if got := strings.Join(g.Keep(rows), " "); got != want {
			t.Errorf("keeps %q, want %q", got, want)
		}
	}
	keep("a b") // z succeeded after d, which runs again
	rows[5].Nodes = []*apiv1.NodeRow{{Name: "x", State: "succeeded"}}
	keep("a b nested")
	rows[1].LostBytes = 5 // d needs the output
	keep("a nested")
	rows[1].LostBytes, rows[0].LostBytes = 0, 5 // no node needs the output
	keep("a b nested")
	rows[1].Form++
	keep("a nested")
	rows[0].Form++ // another job or input
	keep("")
}

func TestEnded(t *testing.T) {
	w := flow("a", "b a", "c a")
	w.Nodes[1].Input = "${nodes.a.output}"
	g := graph(t, w)
	id := RunID{1}
	run := func(state State, output int) *Run {
		return &Run{ID: id, Node: "a", State: state, Output: make([]byte, output), Error: strings.Repeat("x", 5000), FinishedMs: 9}
	}
	rows := stand(w, "running")
	rows[0].Run = id[:]
	for _, c := range []struct {
		run    *Run
		others int
		output int
		lost   int64
	}{
		{run(Succeeded, MaxNodeOutput), 0, MaxNodeOutput, 0},
		{run(Succeeded, MaxNodeOutput+1), 0, 0, MaxNodeOutput + 1},
		{run(Succeeded, 10), maxNodesOutput - 9, 0, 10},
		{run(Failed, 10), 0, 0, 0},
	} {
		rows[1].Output = make([]byte, c.others)
		i, row := g.Ended(rows, c.run)
		if i != 0 || len(row.Output) != c.output || row.LostBytes != c.lost || row.State != string(c.run.State) || row.FinishedMs != 9 || len(row.Error) > maxNodeError {
			t.Errorf("node %d: %.200s", i, row)
		}
	}
	other := run(Succeeded, 0)
	other.ID = RunID{2}
	if _, row := g.Ended(rows, other); row != nil {
		t.Error("the end of another run counts")
	}
	rows[0].State = "failed"
	if _, row := g.Ended(rows, run(Succeeded, 0)); row != nil {
		t.Error("a node ended twice")
	}
}

// TestWorkflowFold draws records for runs of a workflow, including some that do not fit,
// and checks that a replay and the rows give the same state.
func TestWorkflowFold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := NewSlot("app", 0), int64(1_700_000_000_000)
		w := flow("a", "b a", "c a", "d b,c")
		var records []*apiv1.Record
		apply := func(rec *apiv1.Record) {
			now += 10
			rec.AtMs = now
			records = append(records, proto.CloneOf(rec))
			for _, e := range s.Apply(rec, nil) {
				if e.Change == RunEnded && (!e.Run.State.Terminal() || s.Runs.Get(e.Run.ID) != nil) {
					t.Fatalf("run %s ended as %s", e.Run.ID, e.Run.State)
				}
			}
		}
		apply(&apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: &apiv1.Job{App: "app", Name: "w", Workflow: w, Priority: 3}}}})
		var ids []RunID
		for n := range rapid.IntRange(1, 40).Draw(t, "records") {
			id := OccurrenceID("app", "w", time.UnixMilli(now), fmt.Sprint(n))
			if len(ids) > 0 && rapid.IntRange(0, 4).Draw(t, "new") > 0 {
				id = rapid.SampledFrom(ids).Draw(t, "run")
			}
			state := rapid.SampledFrom([]State{Running, Succeeded, Failed, Skipped}).Draw(t, "state")
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				ids = append(ids, id)
				a := &apiv1.Accepted{Run: id[:], Job: "w", Node: "n", Priority: 5}
				if rapid.Bool().Draw(t, "resumed") {
					a.Kept = []*apiv1.NodeRow{
						{Name: "a", Job: "j", State: "succeeded", Output: []byte("x")},
						{Name: "b", Job: "j", State: "failed", Nodes: []*apiv1.NodeRow{{Name: "n"}}},
					}
				}
				apply(&apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: a}})
			case 1:
				apply(&apiv1.Record{Kind: &apiv1.Record_CancelRequested{CancelRequested: &apiv1.CancelRequested{Run: id[:]}}})
			default:
				a := &apiv1.Advanced{Run: id[:], GoOn: []string{"a", "b"}}
				name := rapid.SampledFrom([]string{"a", "b", "d", "nobody"}).Draw(t, "node")
				a.Nodes = []*apiv1.NodeRow{{Name: name, Job: "j", State: string(state), Run: id[:], StartedMs: now}}
				if rapid.IntRange(0, 5).Draw(t, "ends") == 0 {
					a.State, a.Output = string(state), []byte("{}")
				}
				apply(&apiv1.Record{Kind: &apiv1.Record_Advanced{Advanced: a}})
			}
			for r := range s.Runs.All() {
				if (r.State == Running) != r.HasNodes() || r.HasNodes() && (len(r.Nodes.Rows) != 4 || r.Nodes.Kept != nil) {
					t.Fatalf("run %s is %s with nodes %v", r.ID, r.State, r.Nodes)
				}
			}
		}
		again := NewSlot("app", 0)
		for _, rec := range records {
			again.Apply(rec, nil)
		}
		same(t, "replayed", s, again)
		same(t, "loaded from its rows", s, reload(t, s))
	})
}

func TestPriorityOfNodes(t *testing.T) {
	s := NewSlot("app", 0)
	accept := func(d *apiv1.Job) *Run {
		s.Apply(&apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: d}}}, nil)
		id := OccurrenceID("app", d.Name, time.UnixMilli(1), "")
		s.Apply(&apiv1.Record{Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id[:], Job: d.Name, Priority: 4}}}, nil)
		return s.Runs.Get(id)
	}
	if r := accept(&apiv1.Job{Name: "none"}); r.Policy.Priority != 4 || r.Definition().Priority != 4 || s.Jobs.Get("none").Policy().Priority != 0 {
		t.Errorf("priority %d", r.Policy.Priority)
	}
	if r := accept(&apiv1.Job{Name: "own", Priority: -2}); r.Policy.Priority != -2 {
		t.Errorf("priority %d, it has its own", r.Policy.Priority)
	}
}

// FuzzGraph checks that no definition makes the parser panic, and that a parsed condition
// has a value or an error.
func FuzzGraph(f *testing.F) {
	f.Add(`nodes.a.output.x > 3 and not (nodes.a.state == "failed")`, "${nodes.a.output.x} $${", "{\"x\":5}")
	f.Add("input.list.0 == 'x' or true", "${json(input)}", `{"list":["x"]}`)
	f.Add(strings.Repeat("(", 55), "${", "[[[")
	f.Fuzz(func(t *testing.T, when, input, output string) {
		w := &apiv1.Workflow{Nodes: []*apiv1.Node{{Name: "a", Job: "j"}, {Name: "b", Job: "j", After: []string{"a"}, When: when, Input: input}}}
		g, err := newGraph(w)
		if err != nil {
			if err.Error() == "" {
				t.Error("no reason")
			}
			return
		}
		rows := stand(w, "succeeded")
		rows[0].Output = []byte(output)
		moves := g.Next(rows, []byte(output), everyJob)
		if len(moves) != 1 || !slices.Contains([]State{Running, Skipped, Failed}, moves[0].State) {
			t.Fatalf("%+v", moves)
		}
		if m := moves[0]; len(m.Input) > MaxInput || (m.State == Running) != (m.Error == "" && m.Code == "") {
			t.Fatalf("%+v", m)
		}
		rows[1].State, rows[1].Output = "succeeded", []byte(output)
		if _, _, _, out := g.Result(rows, false); !json.Valid(out) {
			t.Fatalf("not JSON: %q", out)
		}
	})
}
