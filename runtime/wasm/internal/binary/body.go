package binary

import "errors"

var errUnbalanced = errors.New("blocks are not balanced")

// body checks one function body. Locals and instructions must be within the limits, and
// blocks must be balanced.
func (p *parser) body(raw []byte, params int) (Body, error) {
	r := &reader{buf: raw}
	b := Body{}
	b.LocalCount = p.locals(r)
	b.RawLocals = raw[:r.off]
	b.Code = raw[r.off:]
	b.Instrs = p.instrs(r, params, b.LocalCount)
	return b, r.err
}

func (p *parser) locals(r *reader) int {
	total := 0
	for range r.count("groups of locals of one function", p.limits.Locals) {
		n := r.u32()
		r.valueType()
		if total += int(n); total > p.limits.Locals {
			r.fail(&LimitError{What: "locals of one function", Have: int64(total), Max: int64(p.limits.Locals)})
			return 0
		}
	}
	return total
}

// instrs checks the instructions and returns their number.
func (p *parser) instrs(r *reader, params, locals int) int {
	c := control{limits: p.limits, locals: locals, open: []Op{OpBlock}} // the function itself is a block
	count := 0
	for len(c.open) > 0 {
		in := r.instr(p.limits.BranchTargets)
		if r.err != nil {
			return 0
		}
		count++
		if err := c.step(in.Op); err != nil {
			r.fail(err)
			return 0
		}
		if err := p.m.checkIndex(in); err != nil {
			r.fail(err)
			return 0
		}
		if in.Op >= OpBr && in.Op <= OpBrTable && int64(in.Index) >= int64(len(c.open)) {
			r.failf("a branch leaves %d of %d blocks", int64(in.Index)+1, len(c.open)) // the rewriter puts bodies into a block of its own
			return 0
		}
		if in.Op >= OpLocalGet && in.Op <= OpLocalTee && int64(in.Index) >= int64(params+locals) {
			r.failf("instruction names local %d of %d", in.Index, params+locals) // the rewriter adds its own locals
			return 0
		}
	}
	if !r.empty() {
		r.fail(errUnbalanced)
	}
	if p.work += c.work; p.work > p.limits.ModuleWork {
		r.fail(&LimitError{What: "blocks times locals of all functions", Have: int64(p.work), Max: int64(p.limits.ModuleWork)})
	}
	return count
}

// control tracks the blocks of a function. It bounds the constructs for which the time of
// a compiler grows faster than linearly.
type control struct {
	limits   Limits
	locals   int
	open     []Op // the blocks around the next instruction; an if becomes OpElse at its else
	branches int  // number of loops and ifs among them
	work     int
}

func (c *control) step(op Op) error {
	switch op {
	case OpBlock, OpLoop, OpIf:
		c.open = append(c.open, op)
		c.branches += branch(op)
		c.work += c.locals
		return c.check()
	case OpElse:
		if c.open[len(c.open)-1] != OpIf {
			return errUnbalanced
		}
		c.open[len(c.open)-1] = OpElse
	case OpEnd:
		c.branches -= branch(c.open[len(c.open)-1])
		c.open = c.open[:len(c.open)-1]
	}
	return nil
}

// branch returns 1 for a block that counts as a branch, and otherwise 0.
func branch(op Op) int {
	if op == OpBlock {
		return 0
	}
	return 1
}

func (c *control) check() error {
	switch {
	case len(c.open) > c.limits.Nesting:
		return &LimitError{What: "blocks nested in one another", Have: int64(len(c.open)), Max: int64(c.limits.Nesting)}
	case c.branches > c.limits.BranchNesting:
		return &LimitError{What: "loops and ifs nested in one another", Have: int64(c.branches), Max: int64(c.limits.BranchNesting)}
	case c.work > c.limits.ControlWork:
		return &LimitError{What: "blocks times locals of one function", Have: int64(c.work), Max: int64(c.limits.ControlWork)}
	}
	return nil
}

// Instructions calls yield for each instruction of a body that Parse has accepted.
func (b Body) Instructions(yield func(Instr) bool) {
	r := &reader{buf: b.Code}
	for !r.empty() {
		in := r.instr(len(b.Code))
		if r.err != nil || !yield(in) {
			return
		}
	}
}

// ConstInstructions calls yield for each instruction of a constant expression.
func ConstInstructions(expr []byte, yield func(Instr) bool) {
	Body{Code: expr}.Instructions(yield)
}
