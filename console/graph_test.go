package console

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// nodesFrom returns nodes from texts as "c<a,b": c is after a and b.
func nodesFrom(texts ...string) (nodes []*apiv1.Node, states []*apiv1.NodeState) {
	for _, text := range texts {
		name, before, _ := strings.Cut(text, "<")
		n := &apiv1.Node{Name: name, Job: "totals"}
		if before != "" {
			n.After = strings.Split(before, ",")
		}
		nodes, states = append(nodes, n), append(states, &apiv1.NodeState{Name: name, Job: "totals", State: "pending"})
	}
	return nodes, states
}

func TestLayers(t *testing.T) {
	for _, tc := range []struct{ nodes, want string }{
		{"a", "a"},
		{"a b<a c<b", "a|b|c"},
		{"c<b b<a a", "a|b|c"},
		{"a b<a c<a d<b,c", "a|b c|d"},
		{"a b<a c<a,b", "a|b|c"},     // an edge over a layer
		{"a b c<b d<a", "a b|d c"},   // without a crossing
		{"a b<c c<b d<a", "a|d|b c"}, // a cycle
		{"a<nowhere b<a,a", "a|b"},   // an edge from nothing, and one twice
		{"e1 e2 e3 m<e1,e2,e3 x<m y<m n<x,y", "e1 e2 e3|m|x y|n"},
	} {
		nodes, _ := nodesFrom(strings.Fields(tc.nodes)...)
		var columns []string
		for _, column := range layers(nodes) {
			var names []string
			for _, n := range column {
				names = append(names, n.Name)
			}
			columns = append(columns, strings.Join(names, " "))
		}
		if got := strings.Join(columns, "|"); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.nodes, got, tc.want)
		}
	}
}

// TestDrawGraph checks that no two boxes overlap, that all are in the drawing and edges go from left to
// right.
func TestDrawGraph(t *testing.T) {
	texts := []string{"start"}
	for i := range 90 {
		texts = append(texts, fmt.Sprintf("n%d<start,n%d", i, i*7%(i+1)/2))
	}
	nodes, states := nodesFrom(texts...)
	g := drawGraph(nodes, states)
	if g == nil || len(g.Nodes) != 91 {
		t.Fatalf("%v", g)
	}
	for i, n := range g.Nodes {
		if n.X < 0 || n.Y < 0 || n.X+nodeWidth > g.Width || n.Y+nodeHeight > g.Height {
			t.Errorf("%s at %d, %d is outside of %d × %d", n.Name, n.X, n.Y, g.Width, g.Height)
		}
		for _, o := range g.Nodes[:i] {
			if n.X < o.X+nodeWidth && o.X < n.X+nodeWidth && n.Y < o.Y+nodeHeight && o.Y < n.Y+nodeHeight {
				t.Errorf("%s and %s overlap", n.Name, o.Name)
			}
		}
	}
	nodes, states = nodesFrom("a", "b<a")
	states[0].State = "succeeded"
	g = drawGraph(nodes, states)
	if len(g.Edges) != 1 || g.Edges[0].Line != "M184 33C212 33 205 33 233 33" || g.Edges[0].Head != "M233 29l7 4-7 4z" || g.Edges[0].State != "succeeded" {
		t.Errorf("%+v", g.Edges)
	}
	if drawGraph(nodes, states[:1]) != nil || drawGraph(nil, nil) != nil {
		t.Error("a graph of other nodes was drawn")
	}
	if other, _ := nodesFrom("a", "c<a"); drawGraph(other, states) != nil {
		t.Error("the graph of another definition was drawn")
	}
	var many []string
	for i := range maxDrawn + 1 {
		many = append(many, fmt.Sprintf("n%d", i))
	}
	if nodes, states := nodesFrom(many...); drawGraph(nodes, states) != nil || drawGraph(nodes[1:], states[1:]) == nil {
		t.Errorf("the bound is not %d nodes", maxDrawn)
	}
}

// TestGraphOfRun draws the workflow as it was when the run began.
func TestGraphOfRun(t *testing.T) {
	const id = "01WRKF0000000000000000000G"
	f := newFake().populate()
	now, _ := nodesFrom("read", "other<read")
	then, states := nodesFrom("read", "report<read")
	states[0].State, states[0].Run = "succeeded", doneRun
	f.jobs = append(f.jobs, &apiv1.Job{App: "default", Name: "daily", Revision: 2, Workflow: &apiv1.Workflow{Nodes: now}})
	f.revisions["daily"] = []*apiv1.Revision{{Number: 1, Job: &apiv1.Job{Name: "daily", Workflow: &apiv1.Workflow{Nodes: then}}}}
	run := &apiv1.Run{Id: id, App: "default", Job: "daily", State: "running", JobRevision: 1, Nodes: states}
	f.runs = append(f.runs, run)
	s := newSite(t, f).signIn(t)
	for lang, state := range map[string]string{"en": "Succeeded", "zh": "成功"} {
		resp, body := s.do(t, "GET", "/apps/default/runs/"+id, nil, "Accept-Language", lang)
		checkPage(t, body)
		for _, want := range []string{
			`<a class="node s-succeeded" id="graph-read" href="/apps/default/runs/` + doneRun + `">`, `<text class="name" x="20" y="29">read</text> <text x="20" y="47">` + state + `</text>`,
			`<g class="node s-pending" id="graph-report" role="img"`, `<g class="edge s-succeeded">`,
		} {
			if resp.StatusCode != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s: the page does not hold %s", lang, want)
			}
		}
	}
	f.change(func() { run.JobRevision = 7 })
	if _, body := s.do(t, "GET", "/apps/default/runs/"+id, nil); strings.Contains(body, `class="graph"`) || !strings.Contains(body, `id="node-report"`) {
		t.Error("a graph was drawn whose definition is not known")
	}
}

// TestEdgesPassBesideNodes draws workflows with edges that skip layers. No edge crosses a box.
func TestEdgesPassBesideNodes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		var nodes []*apiv1.Node
		var states []*apiv1.NodeState
		for i := range 2 + r.IntN(20) {
			n := &apiv1.Node{Name: "n" + strconv.Itoa(i)}
			for j := range i {
				if r.IntN(4) == 0 {
					n.After = append(n.After, "n"+strconv.Itoa(j))
				}
			}
			nodes, states = append(nodes, n), append(states, &apiv1.NodeState{Name: n.Name})
		}
		g := drawGraph(nodes, states)
		for _, e := range g.Edges {
			for _, at := range pointsOf(t, e.Line) {
				if at[1] < 0 || at[1] > float64(g.Height) {
					t.Fatalf("round %d: %s leaves the drawing", round, e.Line)
				}
				for _, n := range g.Nodes {
					if at[0] > float64(n.X) && at[0] < float64(n.X+nodeWidth) && at[1] > float64(n.Y) && at[1] < float64(n.Y+nodeHeight) {
						t.Fatalf("round %d: %s crosses %s at %d,%d", round, e.Line, n.Name, n.X, n.Y)
					}
				}
			}
		}
	}
}

// pointsOf returns points of a path of absolute commands M, C and H.
func pointsOf(t *testing.T, path string) (all [][2]float64) {
	t.Helper()
	var x, y float64
	for _, part := range regexp.MustCompile(`[MCH][^MCH]*`).FindAllString(path, -1) {
		var v []float64
		for _, f := range strings.Fields(part[1:]) {
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				t.Fatal(err)
			}
			v = append(v, n)
		}
		switch part[0] {
		case 'M':
			x, y = v[0], v[1]
		case 'H':
			for i := range 51 {
				all = append(all, [2]float64{x + (v[0]-x)*float64(i)/50, y})
			}
			x = v[0]
		case 'C':
			for i := range 51 {
				s := float64(i) / 50
				at := func(a, b, c, d float64) float64 {
					return (1-s)*(1-s)*(1-s)*a + 3*(1-s)*(1-s)*s*b + 3*(1-s)*s*s*c + s*s*s*d
				}
				all = append(all, [2]float64{at(x, v[0], v[2], v[4]), at(y, v[1], v[3], v[5])})
			}
			x, y = v[4], v[5]
		}
	}
	return all
}
