package quickjs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
)

const i32 = api.ValueTypeI32

// Functions returns the functions that the interpreter imports besides WASI.
func Functions() []hostabi.Function {
	types := func(t ...api.ValueType) []api.ValueType { return t }
	f := func(name string, params, results []api.ValueType, do func(*guest.Call, hostabi.Memory, []uint64)) hostabi.Function {
		return hostabi.Function{Name: name, Params: params, Results: results, Do: do}
	}
	zero := func(_ *guest.Call, _ hostabi.Memory, stack []uint64) { stack[0] = 0 }
	return []hostabi.Function{
		f("host_call", types(i32, i32, i32, i32, i32), types(i32), hostCall),
		f("host_interrupt", nil, types(i32), zero),
		f("host_promise_rejection", types(i32, i32, i32), nil, func(*guest.Call, hostabi.Memory, []uint64) {}),
		f("host_module_normalize", types(i32, i32), types(i32), resolve),
		f("host_module_load", types(i32, i32), types(i32), load),
		f("host_get_timezone_offset", types(i32, i32), types(i32), zero), // UTC
	}
}

// Instantiate creates the module that the interpreter imports.
func Instantiate(ctx context.Context, rt wazero.Runtime) error {
	b := rt.NewHostModuleBuilder(Module)
	for _, f := range Functions() {
		b.NewFunctionBuilder().WithGoModuleFunction(&f, f.Params, f.Results).Export(f.Name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// stepsOf returns the steps for a host function that the interpreter of a call has called.
func stepsOf(c *guest.Call) *steps { return &steps{c: c, d: c.Interpreter.(*Driver)} }

// hostCall is the host function that JavaScript calls. Its first argument is the name of a
// function in wheelwork.wit; numbers, strings and byte arrays follow as that function's
// parameters.
func hostCall(c *guest.Call, mem hostabi.Memory, stack []uint64) {
	s := stepsOf(c)
	argc, argv := uint32(stack[3]), uint32(stack[4])
	box, err := s.call(mem, argc, argv)
	var wrong *wrongCall
	if s.err == nil && errors.As(err, &wrong) {
		e := s.do("qjs_new_error")
		key := s.alloc("message")
		s.do("qjs_set_prop_string", e, key, s.text(wrong.text))
		s.do("qjs_throw", e)
		box, err = 0, nil
	}
	if err = cmp.Or(s.err, err); err != nil {
		if c.Cause() == nil && errors.Is(err, errNoMemory) {
			c.Endf("%v", err)
		}
		panic(err) // ends the guest's call
	}
	stack[0] = box
}

// wrongCall is an error of a host call that JavaScript may catch.
type wrongCall struct{ text string }

func (e *wrongCall) Error() string { return e.text }

func (s *steps) call(mem hostabi.Memory, argc, argv uint32) (uint64, error) {
	if argc == 0 || argc > hostabi.MaxArgs {
		return 0, &wrongCall{fmt.Sprintf("%d arguments", argc)}
	}
	var boxes [hostabi.MaxArgs]uint64
	for i := range argc {
		box, ok := s.d.mod.Memory().ReadUint32Le(argv + 4*i)
		if !ok {
			return 0, &wrongCall{"arguments outside the memory"}
		}
		boxes[i] = uint64(box)
	}
	if s.do("qjs_is_string", boxes[0]) == 0 {
		return 0, &wrongCall{"the first argument is no name of a function"}
	}
	name := s.string(boxes[0], maxFunctionName)
	if s.err != nil {
		return 0, s.err
	}
	if box, done, err := s.ownCall(name, boxes[1:argc]); done {
		return box, err
	}
	f, ok := hostabi.Lookup(name)
	switch {
	case !ok:
		return 0, &wrongCall{fmt.Sprintf("the host has no function %q", name)}
	case f.NeedsTask && s.c.Initializing():
		return 0, &wrongCall{fmt.Sprintf("%s was called while the script was loaded, when there is no task yet: call it in a handler", name)}
	}
	var params [hostabi.MaxArgs]uint64
	var strings []uint64
	n := 0
	for _, box := range boxes[1:argc] {
		if n+2 > len(params) {
			return 0, &wrongCall{fmt.Sprintf("%s has %d parameters", name, len(f.Params))}
		}
		switch {
		case s.do("qjs_is_number", box) != 0:
			if n >= len(f.Params) {
				return 0, &wrongCall{fmt.Sprintf("%s has %d parameters", name, len(f.Params))}
			}
			params[n] = number(f.Params[n], math.Float64frombits(s.do("qjs_get_float64", box)))
			n++
		case s.do("qjs_is_string", box) != 0:
			ptr, size := s.borrow(box)
			strings = append(strings, ptr)
			params[n], params[n+1] = ptr, size
			n += 2
		default:
			ptr, size, ok := s.bytes(box)
			if !ok && s.err == nil {
				return 0, &wrongCall{fmt.Sprintf("an argument of %s is neither number, text nor Uint8Array", name)}
			}
			params[n], params[n+1] = ptr, size
			n += 2
		}
		if s.err != nil {
			return 0, s.err
		}
	}
	if n != len(f.Params) {
		return 0, &wrongCall{fmt.Sprintf("%s has %d parameters, it was called with %d", name, len(f.Params), n)}
	}
	f.Do(s.c, hostabi.NewMemory(s.c, name, mem.View()), params[:])
	for _, ptr := range strings {
		s.do("qjs_free_cstring", ptr)
	}
	if len(f.Results) == 0 {
		return s.do("qjs_get_undefined"), s.err
	}
	return s.number(f.Results[0], params[0]), s.err
}

// ownCall serves functions that only scripts have; done is false for other names.
func (s *steps) ownCall(name string, args []uint64) (box uint64, done bool, err error) {
	if name != "bytes" && name != "text" && name != "address" && name != "pause" {
		return 0, false, nil
	}
	if len(args) != 1 {
		return 0, true, &wrongCall{name + " takes one argument"}
	}
	switch name {
	case "bytes":
		if s.do("qjs_is_string", args[0]) == 0 {
			return 0, true, &wrongCall{"bytes takes text"}
		}
		ptr, size := s.borrow(args[0])
		s.c.Work(int(uint32(size)))
		box = s.do("qjs_new_uint8_array", ptr, size)
		s.do("qjs_free_cstring", ptr)
	case "text":
		ptr, size, ok := s.bytes(args[0])
		if !ok && s.err == nil {
			return 0, true, &wrongCall{"text takes a Uint8Array"}
		}
		view, _ := s.d.mod.Memory().Read(uint32(ptr), uint32(size))
		s.c.Work(len(view))
		box = s.text(strings.ToValidUTF8(string(view), "\uFFFD"))
	case "address": // for functions that write to an address besides their buffer
		ptr, _, ok := s.bytes(args[0])
		if !ok && s.err == nil {
			return 0, true, &wrongCall{"address takes a Uint8Array"}
		}
		box = s.do("qjs_new_number", math.Float64bits(float64(uint32(ptr))))
	case "pause":
		ms := math.Float64frombits(s.do("qjs_get_float64", args[0]))
		if s.err == nil && ms > 0 {
			s.c.Sleep(time.Duration(min(ms*1e6, math.MaxInt64/2)))
		}
		box = s.do("qjs_get_undefined")
	}
	return box, true, s.err
}

// resolve returns the file that an import refers to.
func resolve(c *guest.Call, mem hostabi.Memory, stack []uint64) {
	base, name := zeroEnded(c, mem, stack[0]), zeroEnded(c, mem, stack[1])
	file := name
	switch {
	case name == sdkName:
		file = sdkFile
	case strings.HasPrefix(name, "./"), strings.HasPrefix(name, "../"):
		file = path.Join(path.Dir(base), name)
	}
	s := stepsOf(c)
	stack[0] = s.alloc(file)
	s.mustGoOn()
}

// load returns the source of a file, or throws.
func load(c *guest.Call, mem hostabi.Memory, stack []uint64) {
	name := zeroEnded(c, mem, stack[0])
	s := stepsOf(c)
	source, ok := s.d.script.Files[name]
	if !ok {
		files := slices.Sorted(maps.Keys(s.d.script.Files))
		e := s.do("qjs_new_error")
		text := s.text(fmt.Sprintf("there is no module %q in the script; it has %s", name, strings.Join(files, ", ")))
		s.do("qjs_set_prop_string", e, s.alloc("message"), text)
		s.do("qjs_throw", e)
		stack[0] = 0
		s.mustGoOn()
		return
	}
	out := uint32(stack[1])
	stack[0] = s.alloc(source)
	s.mustGoOn()
	mem.View().WriteUint32Le(out, uint32(len(source)))
}

// mustGoOn ends the guest if a step failed in a host function.
func (s *steps) mustGoOn() {
	switch {
	case s.err == nil:
	case s.c.Cause() == nil && errors.Is(s.err, errNoMemory):
		s.c.Endf("%v", s.err)
	default:
		panic(s.err)
	}
}

// zeroEnded reads a zero-terminated string of less than 4096 bytes.
func zeroEnded(c *guest.Call, mem hostabi.Memory, ptr uint64) string {
	const most = 4096
	if view := mem.View(); view != nil {
		size := view.Size()
		if at := uint32(ptr); at < size {
			b, _ := view.Read(at, min(most, size-at))
			if text, _, ok := strings.Cut(string(b), "\x00"); ok {
				return text
			}
		}
	}
	c.Endf("%s: the name at %d has no end", mem.Function(), uint32(ptr))
	return ""
}
