package binary

import "fmt"

// checkIndex checks that an instruction refers to an existing function, global or type of
// the module. The rewriter adds its own at the end of these index spaces. An index that
// was out of range would refer to one of them, and let a guest set the counter that
// meters it.
func (m *Module) checkIndex(in Instr) error {
	var what string
	var count int
	switch in.Op {
	case OpCall, OpReturnCall, OpRefFunc:
		what, count = "function", m.FuncCount()
	case OpGlobalGet, OpGlobalSet:
		what, count = "global", m.GlobalCount()
	case OpCallIndirect, OpReturnCallIndirect:
		what, count = "type", len(m.Types)
	case OpBlock, OpLoop, OpIf:
		if !in.TypeIndex {
			return nil
		}
		what, count = "type", len(m.Types)
	default:
		return nil
	}
	if int64(in.Index) >= int64(count) {
		return fmt.Errorf("instruction names %s %d of %d", what, in.Index, count)
	}
	return nil
}

// check checks the indices outside of code, for the same reason.
func (p *parser) check() error {
	m := p.m
	for _, im := range m.Imports {
		if im.Kind == KindFunc && int64(im.Type) >= int64(len(m.Types)) {
			return fmt.Errorf("%w: import %s.%s has unknown type %d", ErrMalformed, im.Module, im.Name, im.Type)
		}
	}
	for i, t := range m.Funcs {
		if int64(t) >= int64(len(m.Types)) {
			return fmt.Errorf("%w: function %d has unknown type %d", ErrMalformed, m.ImportedFuncs+i, t)
		}
	}
	if len(m.Bodies) != len(m.Funcs) {
		return fmt.Errorf("%w: %d bodies for %d functions", ErrMalformed, len(m.Bodies), len(m.Funcs))
	}
	for _, e := range m.Exports {
		if (e.Kind == KindFunc && int64(e.Index) >= int64(m.FuncCount())) ||
			(e.Kind == KindGlobal && int64(e.Index) >= int64(m.GlobalCount())) {
			return fmt.Errorf("%w: export %q names unknown %s %d", ErrMalformed, e.Name, e.Kind, e.Index)
		}
	}
	if m.Start != nil && int64(m.StartFn) >= int64(m.FuncCount()) {
		return fmt.Errorf("%w: start names unknown function %d", ErrMalformed, m.StartFn)
	}
	return p.checkInitialisers()
}

func (p *parser) checkInitialisers() error {
	m := p.m
	for _, g := range m.Globals {
		if err := p.checkConst(g.Init); err != nil {
			return err
		}
	}
	for _, e := range m.Elements {
		for _, f := range e.Funcs {
			if int64(f) >= int64(m.FuncCount()) {
				return fmt.Errorf("%w: element segment names unknown function %d", ErrMalformed, f)
			}
		}
		if err := p.checkConst(e.Offset); err != nil {
			return err
		}
		for _, x := range e.Exprs {
			if err := p.checkConst(x); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *parser) checkConst(expr []byte) (err error) {
	ConstInstructions(expr, func(in Instr) bool {
		if err = p.m.checkIndex(in); err != nil {
			err = fmt.Errorf("%w: initialiser: %w", ErrMalformed, err)
		}
		return err == nil
	})
	return err
}
