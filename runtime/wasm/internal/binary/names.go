package binary

import "unicode/utf8"

// A FuncName is the debug name of a function.
type FuncName struct {
	Index uint32
	Name  []byte
}

// Names returns the module name and the function names of the custom section "name". A
// malformed custom section does not make a module invalid, so Names returns the names
// before the first error.
func (m *Module) Names() (module []byte, funcs []FuncName) {
	body, ok := m.Custom("name")
	if !ok {
		return nil, nil
	}
	r := &reader{buf: body}
	for !r.empty() {
		id := r.u8()
		sub := &reader{buf: r.bytes(r.u32())}
		switch {
		case r.err != nil:
			return module, funcs
		case id == 0:
			if name := sub.bytes(sub.u32()); utf8.Valid(name) {
				module = name
			}
		case id == 1:
			funcs = sub.funcNames(m.FuncCount())
		}
	}
	return module, funcs
}

// funcNames reads the entries as long as their indices ascend, as the format demands.
func (r *reader) funcNames(count int) []FuncName {
	var names []FuncName
	next := int64(0)
	for range r.count("function names", count) {
		n := FuncName{Index: r.u32()}
		n.Name = r.bytes(r.u32())
		if r.err != nil || int64(n.Index) < next || int64(n.Index) >= int64(count) {
			return names
		}
		next = int64(n.Index) + 1
		if utf8.Valid(n.Name) { // the engine refuses a module with a name that is not UTF-8
			names = append(names, n)
		}
	}
	return names
}
