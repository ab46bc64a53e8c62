package meter

import "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"

// leafCost is the largest cost, in units, of a leaf: a function that is charged by its
// callers.
const leafCost = 64

// A shape holds the properties of a function that must be known before any function is
// rewritten.
type shape struct {
	cost  int64 // of its instructions, each counted once
	calls bool  // it calls a defined function, or any function through a table
	loops bool
	bulk  bool // it fills, copies or initialises memory
	leaf  bool // it takes nothing from the budget; its callers are charged
	// invariant: leaf implies no calls, no loops, no bulk and cost <= leafCost
}

// look computes the shapes of all functions.
func (w *rewriter) look() {
	w.shapes = make([]shape, len(w.m.Bodies))
	for i, body := range w.m.Bodies {
		s := &w.shapes[i]
		for in := range body.Instructions {
			s.cost += w.plainCost(in)
			w.noteState(in.Op)
			switch in.Op {
			case binary.OpLoop:
				s.loops = true
			case binary.OpCall, binary.OpReturnCall:
				s.calls = s.calls || in.Index >= w.tick
			case binary.OpCallIndirect, binary.OpReturnCallIndirect:
				s.calls = true
			case binary.OpDataDrop:
				w.namesData = true
			case binary.OpMemoryFill, binary.OpMemoryCopy, binary.OpMemoryInit:
				s.bulk = true
				w.usesBulk = true
				w.namesData = w.namesData || in.Op == binary.OpMemoryInit
			}
		}
		s.leaf = !s.calls && !s.loops && !s.bulk && s.cost <= leafCost
	}
}

// takes reports whether a call of this function changes the budget. A caller that holds the
// budget in a local must then store it before the call.
func (w *rewriter) takes(index uint32) bool {
	return index >= w.tick && !w.shapes[index-w.tick].leaf
}

// handsOver reports whether an instruction calls code that changes the budget.
func (w *rewriter) handsOver(in binary.Instr) bool {
	switch in.Op {
	case binary.OpCall, binary.OpReturnCall:
		return w.takes(in.Index)
	case binary.OpCallIndirect, binary.OpReturnCallIndirect, binary.OpMemoryFill, binary.OpMemoryCopy:
		return true
	}
	return false
}

// plainCost is the cost of one instruction in units, without the cost of a called leaf.
func (w *rewriter) plainCost(in binary.Instr) int64 {
	switch in.Op {
	case binary.OpCall, binary.OpReturnCall:
		if in.Index < w.tick {
			return 64 // leaves native code for the host
		}
	case binary.OpCallIndirect, binary.OpReturnCallIndirect:
		return 8
	case binary.OpMemoryGrow:
		return 256
	case binary.OpMemoryInit, binary.OpTableInit, binary.OpTableCopy, binary.OpTableFill, binary.OpTableGrow:
		return leafCost + 1 // never in a leaf; bulkCost charges the rest behind the instruction
	}
	return 1
}

// cost is the cost of one instruction in units, including a leaf that it calls.
func (w *rewriter) cost(in binary.Instr) int64 {
	c := w.plainCost(in)
	if in.Op == binary.OpCall || in.Op == binary.OpReturnCall {
		if in.Index >= w.tick && w.shapes[in.Index-w.tick].leaf {
			c += w.shapes[in.Index-w.tick].cost
		}
	}
	return c
}

// bulkCost is the additional cost of an instruction that touches much memory or many table
// elements: a quarter unit per byte or element. It is charged with a check of its own.
func (w *rewriter) bulkCost(in binary.Instr) int64 {
	switch in.Op {
	case binary.OpMemoryInit:
		return w.dataLen(in.Index) / 4
	case binary.OpTableInit, binary.OpTableCopy, binary.OpTableFill, binary.OpTableGrow:
		return int64(w.opts.TableElements) / 4
	}
	return 0
}

func (w *rewriter) dataLen(segment uint32) int64 {
	if int64(segment) >= int64(len(w.m.Data)) {
		return 0 // invalid: the engine refuses the module
	}
	return int64(len(w.m.Data[segment].Bytes))
}

// noteState records instructions whose effect a reset of memory and globals would not undo.
func (w *rewriter) noteState(op binary.Op) {
	switch op {
	case binary.OpTableSet, binary.OpTableInit, binary.OpTableCopy, binary.OpTableFill, binary.OpTableGrow:
		w.notResettable = "it changes a table"
	case binary.OpDataDrop, binary.OpElemDrop:
		w.notResettable = "it drops a segment"
	}
}

// A point is an offset at which cost is charged.
type point struct {
	at    int   // offset in the body's code
	cost  int64 // in units, of the instructions that run when the point is reached
	check bool  // the fuel is compared with zero too: at a loop head and behind a bulk instruction
	again bool  // the iteration can be started again from here: the head of a loop without parameters
	// dominator is the point that always runs before this one in the same
	// iteration of the innermost loop. Invariant: dominator < own index.
	dominator int
}

// foldBelow is the cost in units below which an arm or continuation is charged at the start
// of its surroundings: a separate charge costs about as much.
const foldBelow = 48

// points returns the points at which a body is charged, the ends of its loops, and the
// number of instructions inside loops that hand the budget to a callee.
func (w *rewriter) points(body binary.Body) (points []point, loopEnds []int, handed int) {
	inLoops := 0
	points = append(w.pointBuf[:0], point{cost: 1})
	open := append(w.openBuf[:0], 0) // for each open block: the point of the current segment
	var loops []int                  // for each open block: its index in loopEnds, or -1
	loops = append(loops, -1)
	add := func(p point) int {
		points = append(points, p)
		return len(points) - 1
	}
	for in := range body.Instructions {
		top := len(open) - 1
		points[open[top]].cost += w.cost(in)
		if c := w.bulkCost(in); c > 0 {
			add(point{at: in.End, cost: c, check: true})
		}
		if inLoops > 0 && w.handsOver(in) {
			handed++
		}
		switch in.Op {
		case binary.OpBlock, binary.OpIf:
			open = append(open, add(point{at: in.End, dominator: open[top]}))
			loops = append(loops, -1)
		case binary.OpLoop:
			again := !in.TypeIndex || len(w.m.Types[in.Index].Params) == 0
			open = append(open, add(point{at: in.End, cost: 1, check: true, again: again}))
			inLoops++
			loops = append(loops, len(loopEnds))
			loopEnds = append(loopEnds, 0)
		case binary.OpElse:
			open[top] = add(point{at: in.End, dominator: open[top-1]})
		case binary.OpEnd:
			if l := loops[top]; l >= 0 {
				loopEnds[l] = in.End
				inLoops--
			}
			loops = loops[:top]
			if open = open[:top]; top > 0 {
				open[top-1] = add(point{at: in.End, dominator: open[top-1]})
			}
		}
	}
	w.pointBuf, w.openBuf = points, open
	return fold(points), loopEnds, handed
}

// fold moves small charges to their dominators, last point first, so that a charge can move
// on together with the charges that its point collected.
func fold(points []point) []point {
	for i := len(points) - 1; i > 0; i-- {
		if p := &points[i]; !p.check && p.cost < foldBelow {
			points[p.dominator].cost += p.cost
			p.cost = 0
		}
	}
	kept := points[:1]
	for _, p := range points[1:] {
		if p.cost > 0 {
			kept = append(kept, p)
		}
	}
	return kept
}

// findNests determines which functions may be part of a recursion.
func (w *rewriter) findNests() {
	w.nests = make([]bool, len(w.shapes))
	for i, s := range w.shapes {
		w.nests[i] = s.calls
	}
}
