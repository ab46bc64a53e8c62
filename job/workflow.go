package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/expr"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// Limits of a workflow.
const (
	maxNodes       = 1000
	maxLinks       = 10_000   // entries of after, in total
	maxWorkflow    = 1 << 20  // bytes of a workflow
	MaxNodeOutput  = 64 << 10 // bytes of the output of a node that a run retains
	maxNodesOutput = 1 << 20  // bytes of all outputs that a run retains
	maxNodeError   = 512      // bytes of the error of a node that a run retains
)

// Pending is the state of a node that waits for earlier nodes. All other states of a node
// are states of runs.
const Pending State = "pending"

// The codes of nodes that ended without a run.
const (
	codeNoJob = "no_job"       // its job no longer exists
	codeWhen  = "when"         // its condition failed to evaluate; of a skipped node: the condition is false
	codeInput = "input"        // its input cannot be computed
	codeLost  = "output_limit" // an output that it needs was too large to retain
)

// Graph is a workflow after parsing and checking. It is immutable.
type Graph struct {
	nodes []node
	index map[string]int
	order []int // nodes in topological order: each comes after those in its after
}

type node struct {
	name, job string
	after     []int
	when      string // success, failure or end; "": cond
	cond      *expr.Condition
	onSuccess bool          // cond is evaluated only if the node would run on success
	input     expr.Template // nil: the node has the input of its job
	optional  bool
	last      bool // no node comes after it, so its output is part of the workflow's output
	needed    bool // a later node or the workflow's output needs its output
	form      uint64
}

var nodeForm = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$`)

// newGraph parses and checks a workflow. An error names the wrong node and says what to
// do.
func newGraph(w *apiv1.Workflow) (*Graph, error) {
	switch n := len(w.GetNodes()); {
	case n == 0 || n > maxNodes:
		return nil, fmt.Errorf("workflow.nodes has %d nodes, it must have 1 to %d", n, maxNodes)
	case proto.Size(w) > maxWorkflow:
		return nil, fmt.Errorf("workflow is %d bytes, the limit is %d (1 MiB)", proto.Size(w), maxWorkflow)
	}
	g := &Graph{nodes: make([]node, len(w.Nodes)), index: make(map[string]int, len(w.Nodes))}
	for i, n := range w.Nodes {
		if !nodeForm.MatchString(n.GetName()) {
			return nil, fmt.Errorf("workflow.nodes[%d]: %q is not the name of a node: use letters, digits, '_' and '-', at most 64, and do not begin with '-'", i, n.GetName())
		}
		if _, ok := g.index[n.Name]; ok {
			return nil, fmt.Errorf("workflow.nodes has two nodes with the name %q", n.Name)
		}
		g.index[n.Name] = i
	}
	if err := g.link(w); err != nil {
		return nil, err
	}
	before := g.ancestors()
	for i, n := range w.Nodes {
		refs, err := g.nodes[i].read(n)
		if err == nil {
			err = g.bind(i, refs, before)
		}
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", n.Name, err)
		}
	}
	return g, nil
}

// link resolves the names in after and computes the order.
func (g *Graph) link(w *apiv1.Workflow) error {
	links := 0
	followers := make([][]int, len(w.Nodes))
	missing := make([]int, len(w.Nodes)) // by node: number of earlier nodes that are not in order yet
	for i, n := range w.Nodes {
		for k, name := range n.After {
			at, ok := g.index[name]
			switch {
			case !ok:
				return fmt.Errorf("node %s: after names %q, but the workflow has no such node", n.Name, name)
			case slices.Contains(n.After[:k], name):
				return fmt.Errorf("node %s: after names %q twice", n.Name, name)
			}
			g.nodes[i].after = append(g.nodes[i].after, at)
			followers[at] = append(followers[at], i)
			if links++; links > maxLinks {
				return fmt.Errorf("the nodes of the workflow have more than %d names in after", maxLinks)
			}
		}
		missing[i] = len(n.After)
	}
	for i, n := range missing {
		if n == 0 {
			g.order = append(g.order, i)
		}
		g.nodes[i].last = len(followers[i]) == 0
	}
	for k := 0; k < len(g.order); k++ {
		for _, f := range followers[g.order[k]] {
			if missing[f]--; missing[f] == 0 {
				g.order = append(g.order, f)
			}
		}
	}
	if len(g.order) < len(w.Nodes) {
		return g.circle(w, missing)
	}
	return nil
}

// circle returns an error that names the nodes of a circle. Each node with missing
// earlier nodes leads to one.
func (g *Graph) circle(w *apiv1.Workflow, missing []int) error {
	at := slices.IndexFunc(missing, func(n int) bool { return n > 0 })
	var path []int
	for !slices.Contains(path, at) {
		path = append(path, at)
		next := slices.IndexFunc(g.nodes[at].after, func(i int) bool { return missing[i] > 0 })
		at = g.nodes[at].after[next]
	}
	path = append(path[slices.Index(path, at):], at)
	names := make([]string, len(path))
	for i, k := range path {
		names[i] = w.Nodes[k].Name
	}
	return fmt.Errorf("workflow: its nodes form a cycle: %s", strings.Join(names, " after "))
}

// nodeSet is a set of nodes.
type nodeSet []uint64

func (b nodeSet) has(i int) bool { return b[i/64]&(1<<(i%64)) != 0 }

// ancestors returns, for each node, the nodes that have ended when it starts.
func (g *Graph) ancestors() []nodeSet {
	words := (len(g.nodes) + 63) / 64
	before := make([]nodeSet, len(g.nodes))
	for _, i := range g.order {
		before[i] = make(nodeSet, words)
		for _, a := range g.nodes[i].after {
			before[i][a/64] |= 1 << (a % 64)
			for k, w := range before[a] {
				before[i][k] |= w
			}
		}
	}
	return before
}

// read parses the fields of a node except after. The references are not bound yet.
func (n *node) read(m *apiv1.Node) (refs []*expr.Reference, err error) {
	if err := naming.Check("job", m.Job); err != nil {
		return nil, err
	}
	n.name, n.job, n.optional = m.Name, m.Job, m.Optional
	switch m.When {
	case "":
		n.when = "success"
	case "success", "failure", "end":
		n.when = m.When
	default:
		if n.cond, refs, err = expr.ParseCondition(m.When); err != nil {
			return nil, fmt.Errorf("when is neither success, failure, end nor a condition: %w", err)
		}
		n.onSuccess = !slices.ContainsFunc(refs, func(r *expr.Reference) bool { return r.State })
	}
	if n.when == "failure" && len(m.After) == 0 {
		return nil, fmt.Errorf("when is failure, but no node comes before this one: fill in after")
	}
	if err := CheckInput(len(m.Input)); err != nil {
		return nil, err
	}
	if m.Input != "" {
		var more []*expr.Reference
		if n.input, more, err = expr.ParseTemplate(m.Input); err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
		refs = append(refs, more...)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s", m.Job, m.Input)
	n.form = h.Sum64()
	n.needed = n.needed || n.last
	return refs, nil
}

// bind resolves the nodes of references. They must have ended when node i starts.
func (g *Graph) bind(i int, refs []*expr.Reference, before []nodeSet) error {
	for _, r := range refs {
		if r.Name == "" {
			continue
		}
		at, ok := g.index[r.Name]
		switch {
		case !ok:
			return fmt.Errorf("%s: the workflow has no node %q", r, r.Name)
		case !before[i].has(at):
			return fmt.Errorf("%s: node %s may not have ended when this one starts: name it in after", r, r.Name)
		}
		r.Index = at
		g.nodes[at].needed = g.nodes[at].needed || !r.State
	}
	return nil
}

// NodeJobs returns the jobs of a workflow's nodes, each once.
func NodeJobs(d *apiv1.Job) []string {
	var jobs []string
	seen := map[string]bool{}
	for _, n := range d.GetWorkflow().GetNodes() {
		if !seen[n.GetJob()] {
			seen[n.GetJob()] = true
			jobs = append(jobs, n.GetJob())
		}
	}
	return jobs
}

// failed reports whether a node that ended counts as a failure: it did not succeed, and
// was not skipped by its condition.
func failed(r *apiv1.NodeRow) bool {
	switch State(r.State) {
	case Succeeded, Pending, Running:
		return false
	case Skipped:
		return len(r.Run) > 0 // a policy of its job skipped its run
	}
	return true
}

func ended(r *apiv1.NodeRow) bool { return State(r.State).Terminal() }

// errLost reports that the output of a node was too large to retain.
var errLost = errors.New("the output was too large to retain")

// Move is the next state of a pending node.
type Move struct {
	Node        int   // index of the node
	State       State // Running: its run starts now; else a terminal state without a run
	HasInput    bool  // of its run; false: the run has the input of its job
	Input       []byte
	Error, Code string
}

// Next returns the moves of pending nodes, given the rows of all nodes in the order of
// the definition. hasJob reports whether a job exists.
func (g *Graph) Next(rows []*apiv1.NodeRow, input []byte, hasJob func(name string) bool) []Move {
	s := &expr.Scope{Input: input, Nodes: make([]expr.Node, len(rows)), Check: CheckInput}
	bad := make([]bool, len(rows))
	for i, r := range rows {
		s.Nodes[i], bad[i] = expr.Node{State: r.State, Output: r.Output, Done: State(r.State) == Succeeded}, failed(r)
		if r.LostBytes > 0 {
			s.Nodes[i].Lost = fmt.Errorf("%w: that of node %s has %d bytes, the limit is %d (64 KiB) for a node and %d for all",
				errLost, g.nodes[i].name, r.LostBytes, MaxNodeOutput, maxNodesOutput)
		}
	}
	var moves []Move
	for _, i := range g.order {
		n := &g.nodes[i]
		if State(s.Nodes[i].State) != Pending || slices.ContainsFunc(n.after, func(a int) bool { return !State(s.Nodes[a].State).Terminal() }) {
			continue
		}
		m := g.decide(i, s, bad, hasJob)
		s.Nodes[i].State, bad[i] = string(m.State), m.State == Failed
		moves = append(moves, m)
	}
	return moves
}

// decide returns the move of a node whose earlier nodes have all ended.
func (g *Graph) decide(i int, s *expr.Scope, bad []bool, hasJob func(string) bool) Move {
	n, m := &g.nodes[i], Move{Node: i, State: Running}
	fail := func(code string, err error) Move {
		if errors.Is(err, errLost) {
			code = codeLost
		}
		m.State, m.Error, m.Code = Failed, err.Error(), code
		return m
	}
	run, err := n.wanted(g, s, bad)
	switch {
	case err != nil:
		return fail(codeWhen, fmt.Errorf("when: %w", err))
	case !run && n.when == "failure":
		m.State, m.Error, m.Code = Skipped, "no node before it failed", codeWhen
		return m
	case !run && n.cond == nil:
		m.State, m.Error, m.Code = Skipped, "a node before it failed, or none succeeded", codeWhen
		return m
	case !run:
		m.State, m.Error, m.Code = Skipped, "its condition does not hold", codeWhen
		return m
	case !hasJob(n.job):
		return fail(codeNoJob, fmt.Errorf("job %s does not exist", n.job))
	case n.input == nil:
		return m
	}
	input, err := n.input.Fill(s)
	if err != nil {
		return fail(codeInput, fmt.Errorf("input: %w", err))
	}
	m.HasInput, m.Input = true, input
	return m
}

// wanted reports whether a node runs, now that its earlier nodes have all ended.
func (n *node) wanted(g *Graph, s *expr.Scope, bad []bool) (bool, error) {
	anyFailed, broken, some := false, false, len(n.after) == 0
	for _, a := range n.after {
		anyFailed = anyFailed || bad[a]
		broken = broken || bad[a] && !g.nodes[a].optional
		some = some || s.Nodes[a].Done || bad[a] && g.nodes[a].optional
	}
	success := some && !broken
	switch {
	case n.when == "end":
		return true, nil
	case n.when == "failure":
		return anyFailed, nil
	case n.cond == nil, n.onSuccess && !success:
		return success, nil
	}
	return n.cond.Holds(s)
}

// Result returns how a workflow ends whose nodes have all ended: its state, the reason
// and its code if it failed, and its output. cancelled reports that the run was cancelled
// by request.
func (g *Graph) Result(rows []*apiv1.NodeRow, cancelled bool) (to State, why, code string, output []byte) {
	to = Succeeded
	var first *apiv1.NodeRow
	for i, r := range rows {
		if s := State(r.State); cancelled && (s == Stopped || s == Cancelled) {
			return Stopped, "", "", g.output(rows)
		}
		if failed(r) && !g.nodes[i].optional && (first == nil || r.FinishedMs < first.FinishedMs) {
			first = r
		}
	}
	if first != nil {
		to = Failed
		why, code = fmt.Sprintf("node %s is %s", first.Name, first.State), first.Code
		if first.Error != "" {
			why += ": " + first.Error
		}
	}
	return to, why, code, g.output(rows)
}

// output returns the outputs of the last nodes as a JSON object. It omits an output that
// is not valid UTF-8, and an output with which the object would exceed maxNodesOutput.
func (g *Graph) output(rows []*apiv1.NodeRow) []byte {
	b := []byte{'{'}
	for i, r := range rows {
		if !g.nodes[i].last || State(r.State) != Succeeded || r.LostBytes > 0 || !utf8.Valid(r.Output) {
			continue
		}
		value := strings.TrimSpace(string(r.Output))
		if !json.Valid([]byte(value)) {
			value = expr.JSON(string(r.Output))
		}
		entry := expr.JSON(r.Name) + ":" + value
		if len(b)+len(entry)+2 > maxNodesOutput {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, entry...)
	}
	return append(b, '}')
}

// Keep returns the names of the nodes of a run that continue from the rows of an earlier
// run. Such a node has the same job and input as in the earlier run and comes after no
// node that runs again. The new run retains the result of a node that succeeded; a node
// of a nested workflow continues inside that workflow.
func (g *Graph) Keep(rows []*apiv1.NodeRow) []string {
	before := map[string]*apiv1.NodeRow{}
	for _, r := range rows {
		before[r.GetName()] = r
	}
	kept := make([]bool, len(g.nodes))
	var names []string
	for _, i := range g.order {
		n := &g.nodes[i]
		r := before[n.name]
		if r == nil || r.Form != n.form || slices.ContainsFunc(n.after, func(a int) bool { return !kept[a] }) {
			continue
		}
		kept[i] = State(r.State) == Succeeded && !(n.needed && r.LostBytes > 0)
		if kept[i] || len(r.Nodes) > 0 {
			names = append(names, n.name)
		}
	}
	return names
}

// Nodes is the state of the nodes of a run of a workflow.
type Nodes struct {
	// Rows are the nodes in the order of the definition; nil before the run has started.
	// A row is immutable: a change replaces it.
	Rows []*apiv1.NodeRow
	// Kept are the rows of an earlier run from which this run may continue. Invariant:
	// nil after the run has started.
	Kept []*apiv1.NodeRow
	// From is the node from which on the nodes run again, as the retry names it; "": it names none.
	From string

	graph *Graph
}

// HasNodes reports whether the run is of a workflow and has started. Its nodes run
// instead of it.
func (r *Run) HasNodes() bool { return r.Nodes != nil && len(r.Nodes.Rows) > 0 }

// Graph returns the workflow of a run. It fails if a version with another expression
// language accepted the definition.
func (r *Run) Graph() (*Graph, error) {
	if r.Nodes != nil && r.Nodes.graph != nil {
		return r.Nodes.graph, nil
	}
	g, err := newGraph(r.Shared().GetWorkflow())
	if err == nil && r.HasNodes() { // until then, the definition may change
		r.Nodes.graph = g
	}
	return g, err
}

// Given returns the input of a run: its own, or the input of its definition.
func (r *Run) Given() []byte {
	if r.HasInput {
		return r.Input
	}
	return []byte(r.defined())
}

// defined returns the input of the definition, or "" if it has none.
func (r *Run) defined() string {
	if !r.Policy.Input {
		return ""
	}
	return r.input()
}

// BeginNodes returns the first rows of a run. The nodes in goOn continue from the earlier
// run: see [Graph.Keep].
func (r *Run) BeginNodes(goOn []string) []*apiv1.NodeRow {
	kept := map[string]*apiv1.NodeRow{}
	if r.Nodes != nil {
		for _, k := range r.Nodes.Kept {
			kept[k.Name] = k
		}
	}
	var rows []*apiv1.NodeRow
	for _, n := range r.Shared().GetWorkflow().GetNodes() {
		k := kept[n.Name]
		row := &apiv1.NodeRow{Name: n.Name, Job: n.Job, State: string(Pending)}
		switch {
		case k == nil || !slices.Contains(goOn, n.Name):
		case State(k.State) == Succeeded:
			row = proto.CloneOf(k)
			row.Kept, row.Nodes = true, nil
		default:
			row.Nodes = k.Nodes
		}
		rows = append(rows, row)
	}
	return rows
}

// Started returns the row of a node whose run starts.
func (g *Graph) Started(i int, run RunID, atMs int64) *apiv1.NodeRow {
	n := &g.nodes[i]
	return &apiv1.NodeRow{Name: n.name, Job: n.job, State: string(Running), Run: run[:], StartedMs: atMs, Form: n.form}
}

// Unrun returns the row of a node that ends without a run.
func (g *Graph) Unrun(i int, to State, why, code string, atMs int64) *apiv1.NodeRow {
	n := &g.nodes[i]
	return &apiv1.NodeRow{Name: n.name, Job: n.job, State: string(to), Error: brief(why), Code: code, FinishedMs: atMs, Form: n.form}
}

// Ended returns the index and the new row of the node of a run that has ended; -1 if the
// run is not the current one of its node. rows are the current rows.
func (g *Graph) Ended(rows []*apiv1.NodeRow, run *Run) (i int, row *apiv1.NodeRow) {
	i, ok := g.index[run.Node]
	if !ok || runID(rows[i].Run) != run.ID || ended(rows[i]) {
		return -1, nil
	}
	row = proto.CloneOf(rows[i])
	row.State, row.Error, row.Code, row.FinishedMs = string(run.State), brief(run.Error), run.Code, run.FinishedMs
	if at := run.HandlerMs(); at > 0 {
		row.StartedMs = at
	}
	if run.State != Succeeded {
		return i, row
	}
	total := len(run.Output)
	for _, r := range rows {
		total += len(r.Output)
	}
	if !g.nodes[i].needed || len(run.Output) > MaxNodeOutput || total > maxNodesOutput {
		row.LostBytes = int64(len(run.Output))
	} else {
		row.Output = run.Output
	}
	return i, row
}

// NodeID returns the id of the run of a node. It is deterministic.
func (g *Graph) NodeID(r *Run, i int, atMs int64) RunID {
	n := &g.nodes[i]
	return OccurrenceID(r.App, n.job, time.UnixMilli(atMs), "node/"+n.name+"/"+r.ID.String())
}

// Job returns the name of the job of a node.
func (g *Graph) Job(i int) string { return g.nodes[i].job }

// Name returns the name of a node.
func (g *Graph) Name(i int) string { return g.nodes[i].name }

// brief shortens a text to maxNodeError bytes.
func brief(text string) string {
	if len(text) <= maxNodeError {
		return text
	}
	return strings.ToValidUTF8(text[:maxNodeError-3], "") + "…"
}

// advance applies a step of a run of a workflow. The first step starts the run.
func (s *Slot) advance(a *apiv1.Advanced, atMs int64, fx []Effect) []Effect {
	r := s.Runs.Get(runID(a.Run))
	if r == nil || !r.Policy.Workflow {
		return fx
	}
	change := RunChanged
	if !r.HasNodes() {
		if r.State != Queued && r.State != Armed {
			return fx
		}
		s.move(r, Running)
		begun := &Nodes{Rows: r.BeginNodes(a.GoOn)}
		if r.Nodes != nil {
			begun.From = r.Nodes.From
		}
		r.StartedMs, r.Nodes = atMs, begun
		change = RunStarted
	}
	for _, n := range a.Nodes {
		at := slices.IndexFunc(r.Nodes.Rows, func(row *apiv1.NodeRow) bool { return row.Name == n.GetName() })
		if at >= 0 && !ended(r.Nodes.Rows[at]) {
			r.Nodes.Rows[at] = n
		}
	}
	fx = append(fx, Effect{Change: change, Run: r, Job: r.owner})
	if to := State(a.State); to.Terminal() {
		r.Error, r.Code, r.Output = a.Error, a.Code, a.Output
		return s.end(r, to, a.JobNextMs, atMs, fx)
	}
	return fx
}
