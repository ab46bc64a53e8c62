package console

import (
	"cmp"
	"fmt"
	"slices"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

const (
	// maxDrawn and maxEdges bound the nodes and the edges of a drawing. The table of a larger
	// workflow has all of its nodes.
	maxDrawn = 200
	maxEdges = 1000

	// The sizes of a drawing, in pixels.
	nodeWidth, nodeHeight = 176, 50
	layerGap, rowGap      = 56, 16
	graphMargin           = 8 // room around the drawing, for the ring of the focus and edges that pass all nodes
)

// graph is a drawing of a workflow: its nodes in layers, from left to right.
type graph struct {
	Width, Height int
	Nodes         []graphNode
	Edges         []graphLine
}

// graphNode is a node with the corner of its box.
type graphNode struct {
	*apiv1.NodeState
	X, Y int
}

// Short returns the name as far as the box has room.
func (n graphNode) Short() string { return shorten(21, n.Name) }

// TextX returns the left end of the texts, NameY and StateY their base lines, and Width and Height
// the size of the box.
func (n graphNode) TextX() int  { return n.X + 12 }
func (n graphNode) NameY() int  { return n.Y + 21 }
func (n graphNode) StateY() int { return n.Y + 39 }
func (n graphNode) Width() int  { return nodeWidth }
func (n graphNode) Height() int { return nodeHeight }

// graphLine is an edge: the line, its arrow head, and the state of the node at its begin.
type graphLine struct {
	Line, Head, State string
}

// drawGraph draws the nodes of a run by the definition of its workflow. It returns nil if the
// definition does not have exactly these nodes, or if there are too many.
func drawGraph(nodes []*apiv1.Node, states []*apiv1.NodeState) *graph {
	if len(nodes) == 0 || len(nodes) > maxDrawn || len(nodes) != len(states) {
		return nil
	}
	stateOf := map[string]*apiv1.NodeState{}
	for _, s := range states {
		stateOf[s.Name] = s
	}
	edges := 0
	for _, n := range nodes {
		if stateOf[n.Name] == nil {
			return nil
		}
		edges += len(n.After)
	}
	if edges > maxEdges {
		return nil
	}
	g, box := &graph{}, map[string]graphNode{}
	columns := layers(nodes)
	rows := 0
	for _, c := range columns {
		rows = max(rows, len(c))
	}
	g.Width = 2*graphMargin + len(columns)*nodeWidth + (len(columns)-1)*layerGap
	g.Height = 2*graphMargin + rows*nodeHeight + (rows-1)*rowGap
	tops := make([]int, len(columns)) // of the columns
	for x, column := range columns {
		top := (rows - len(column)) * (nodeHeight + rowGap) / 2
		tops[x] = graphMargin + top
		for y, n := range column {
			at := graphNode{stateOf[n.Name], graphMargin + x*(nodeWidth+layerGap), graphMargin + top + y*(nodeHeight+rowGap)}
			box[n.Name] = at
			g.Nodes = append(g.Nodes, at)
		}
	}
	for _, n := range nodes {
		for _, before := range n.After {
			if from, ok := box[before]; ok {
				g.Edges = append(g.Edges, lineOf(from, box[n.Name], func(column, y int) int {
					return min(max(passage(tops[column], len(columns[column]), y), 2), g.Height-2)
				}))
			}
		}
	}
	return g
}

// lineOf draws the edge between two nodes. It passes the columns between them beside their boxes,
// at the height that free returns for a column and the height at which the line arrives.
func lineOf(from, to graphNode, free func(column, y int) int) graphLine {
	const arrow, half = 7, 4
	x, y := from.X+nodeWidth, from.Y+nodeHeight/2
	x2, y2 := to.X-arrow, to.Y+nodeHeight/2
	line := fmt.Appendf(nil, "M%d %d", x, y)
	for c := columnOf(from) + 1; c < columnOf(to); c++ {
		left := graphMargin + c*(nodeWidth+layerGap)
		next := free(c, y+(y2-y)*(left-x)/max(1, x2-x))
		line = fmt.Appendf(line, "C%d %d %d %d %d %dH%d", x+layerGap/2, y, left-layerGap/2, next, left, next, left+nodeWidth)
		x, y = left+nodeWidth, next
	}
	line = fmt.Appendf(line, "C%d %d %d %d %d %d", x+layerGap/2, y, x2-layerGap/2, y2, x2, y2)
	return graphLine{
		Line:  string(line),
		Head:  fmt.Sprintf("M%d %dl%d %d-%d %dz", x2, y2-half, arrow, half, arrow, half),
		State: from.State,
	}
}

func columnOf(n graphNode) int { return (n.X - graphMargin) / (nodeWidth + layerGap) }

// passage returns the height, next to y, between two boxes of a column, or above or below all of them.
func passage(top, boxes, y int) int {
	const step = nodeHeight + rowGap
	nearest := (y - (top - rowGap/2) + step/2) / step
	return top - rowGap/2 + min(max(nearest, 0), boxes)*step
}

// layers puts each node into the layer after the last one of the nodes before it, and orders a layer
// by the mean row of these, which keeps crossings few. Nodes of a cycle, which no definition has, come
// into a last layer.
func layers(nodes []*apiv1.Node) [][]*apiv1.Node {
	layer, open := map[string]int{}, map[string]int{} // open: nodes before it without a layer
	after := map[string][]*apiv1.Node{}
	known := map[string]bool{}
	for _, n := range nodes {
		known[n.Name] = true
	}
	var ready []*apiv1.Node
	for _, n := range nodes {
		for _, before := range n.After {
			if known[before] {
				open[n.Name]++
				after[before] = append(after[before], n)
			}
		}
		if open[n.Name] == 0 {
			ready = append(ready, n)
		}
	}
	last := 0
	for len(ready) > 0 {
		n := ready[0]
		ready = ready[1:]
		last = max(last, layer[n.Name])
		for _, next := range after[n.Name] {
			layer[next.Name] = max(layer[next.Name], layer[n.Name]+1)
			if open[next.Name]--; open[next.Name] == 0 {
				ready = append(ready, next)
			}
		}
	}
	for _, n := range nodes {
		if open[n.Name] > 0 {
			layer[n.Name] = last + 1
		}
	}
	var columns [][]*apiv1.Node
	for _, n := range nodes {
		for len(columns) <= layer[n.Name] {
			columns = append(columns, nil)
		}
		columns[layer[n.Name]] = append(columns[layer[n.Name]], n)
	}
	columns = slices.DeleteFunc(columns, func(c []*apiv1.Node) bool { return len(c) == 0 })
	order(columns)
	return columns
}

// order sorts the nodes of each layer by the mean height of the nodes before them.
func order(columns [][]*apiv1.Node) {
	height := map[string]float64{} // relative to the middle of the drawing, in rows
	for _, column := range columns {
		mean := func(n *apiv1.Node) float64 {
			sum, count := 0.0, 0
			for _, before := range n.After {
				if h, ok := height[before]; ok {
					sum, count = sum+h, count+1
				}
			}
			return sum / float64(max(count, 1))
		}
		slices.SortStableFunc(column, func(a, b *apiv1.Node) int { return cmp.Compare(mean(a), mean(b)) })
		for i, n := range column {
			height[n.Name] = float64(i) - float64(len(column)-1)/2
		}
	}
}

// definitionOf returns the nodes of a workflow as they were when a run of it was accepted; nil: that
// revision is not kept, or the visitor may not read it.
func (c *console) definitionOf(v *visit, run *apiv1.Run) []*apiv1.Node {
	j, err := c.jobs.GetJob(v.ctx, &apiv1.GetJobRequest{App: v.app, Name: run.Job})
	if err == nil && j.Revision == run.JobRevision {
		return j.GetWorkflow().GetNodes()
	}
	r, err := c.revisions.GetRevision(v.ctx, &apiv1.GetRevisionRequest{App: v.app, Kind: job.KindJob, Name: run.Job, Number: run.JobRevision})
	if err != nil {
		return nil
	}
	return r.GetJob().GetWorkflow().GetNodes()
}
