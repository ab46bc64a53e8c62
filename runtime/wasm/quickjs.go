package wasm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
)

// QuickJS is a reactor that this driver controls: an instance evaluates the sources once,
// its image is taken as of any reactor after _initialize, and then it runs one exported
// function of the script for each task.
//
// The driver refers to a JavaScript value by the address of a box in the guest's memory. It
// does not free the boxes: the reset after each task frees them all.
const (
	quickModule = "env"  // the module that the interpreter imports
	quickName   = "host" // the name of the only host function that JavaScript can call

	quickEntry = "wheelwork.js" // the file that scripts import as "wheelwork"
	quickSDK   = "wheelwork"

	quickStack = 256 << 10 // bytes of the stack for JavaScript; the interpreter's own stack has a megabyte
)

// Results of the interpreter's promise_state.
const (
	promisePending   = 0
	promiseFulfilled = 1
)

// quick drives one instance.
type quick struct {
	exports map[string]api.Function
	scratch uint32 // address of 16 bytes for results
	handler uint32 // box of the function that runs a handler by name
	nothing uint32 // box of undefined
}

// quickFunctions returns the functions that the interpreter imports besides WASI.
func quickFunctions() []hostFunction {
	types := func(t ...api.ValueType) []api.ValueType { return t }
	return []hostFunction{
		{"host_call", types(i32, i32, i32, i32, i32), types(i32), false, quickCall},
		{"host_interrupt", nil, types(i32), false, func(_ *call, _ memory, stack []uint64) { stack[0] = 0 }},
		{"host_promise_rejection", types(i32, i32, i32), nil, false, func(*call, memory, []uint64) {}},
		{"host_module_normalize", types(i32, i32), types(i32), false, quickResolve},
		{"host_module_load", types(i32, i32), types(i32), false, quickLoad},
		{"host_get_timezone_offset", types(i32, i32), types(i32), false, func(_ *call, _ memory, stack []uint64) { stack[0] = 0 }}, // UTC
	}
}

func instantiateQuick(ctx context.Context, rt wazero.Runtime) error {
	b := rt.NewHostModuleBuilder(quickModule)
	for _, f := range quickFunctions() {
		b.NewFunctionBuilder().WithGoModuleFunction(&f, f.params, f.results).Export(f.name)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// do calls an export of the interpreter.
func (q *quick) do(c *call, inst *instance, name string, args ...uint64) (uint64, error) {
	f := q.exports[name]
	if f == nil {
		if f = inst.mod.ExportedFunction(name); f == nil {
			return 0, fmt.Errorf("the interpreter exports no %s", name)
		}
		if q.exports == nil {
			q.exports = make(map[string]api.Function)
		}
		q.exports[name] = f
	}
	var stack [8]uint64
	copy(stack[:], args)
	if err := f.CallWithStack(c, stack[:max(len(args), 1)]); err != nil {
		return 0, err
	}
	return stack[0], nil
}

// steps calls exports one after another; after an error it skips all further calls.
type steps struct {
	c    *call
	inst *instance
	err  error
}

func (s *steps) do(name string, args ...uint64) uint64 {
	if s.err != nil {
		return 0
	}
	v, err := s.inst.quick.do(s.c, s.inst, name, args...)
	s.err = err
	return v
}

var errNoMemory = errors.New("there is no memory left for the script: raise the memory limit")

// alloc copies data into the guest, followed by a zero byte.
func (s *steps) alloc(data string) uint64 {
	ptr := s.do("wasm_malloc", uint64(len(data)+1))
	if s.err != nil {
		return 0
	}
	mem := s.inst.mod.Memory()
	if ptr == 0 || !mem.WriteString(uint32(ptr), data) || !mem.WriteByte(uint32(ptr)+uint32(len(data)), 0) {
		s.err = errNoMemory
		return 0
	}
	return ptr
}

func (s *steps) free(ptr uint64) { s.do("wasm_free", ptr) }

// text creates a JavaScript string.
func (s *steps) text(data string) uint64 {
	ptr := s.alloc(data)
	box := s.do("qjs_new_string", ptr, uint64(len(data)))
	s.free(ptr)
	return box
}

// string reads a JavaScript string, up to limit bytes.
func (s *steps) string(box uint64, limit int) string {
	scratch := uint64(s.inst.quick.scratch)
	ptr := s.do("qjs_get_string_len", box, scratch)
	if s.err != nil || ptr == 0 {
		return ""
	}
	size, _ := s.inst.mod.Memory().ReadUint32Le(uint32(scratch))
	b, _ := s.inst.mod.Memory().Read(uint32(ptr), min(size, uint32(limit)))
	text := strings.ToValidUTF8(string(b), "\uFFFD")
	s.do("qjs_free_cstring", ptr)
	return text
}

// global returns a property of the global object, or sets it if value is not 0.
func (s *steps) global(name string, value uint64) uint64 {
	object := s.do("qjs_get_global")
	key := s.alloc(name)
	var box uint64
	if value == 0 {
		box = s.do("qjs_get_prop_string", object, key)
	} else {
		s.do("qjs_set_prop_string", object, key, value)
	}
	s.free(key)
	return box
}

// settle runs the interpreter's pending jobs until a promise is settled, and returns its
// value. It returns any other value unchanged. ok is false when the promise was rejected.
func (s *steps) settle(box uint64) (value uint64, ok bool) {
	if s.do("qjs_is_promise", box) == 0 {
		return box, true
	}
	for s.err == nil {
		switch s.do("qjs_promise_state", box) {
		case promisePending:
			if s.do("qjs_is_job_pending") == 0 && s.err == nil {
				s.err = &scriptError{text: "a promise will never be settled: nothing that it waits for goes on"}
				return 0, false
			}
			s.do("qjs_execute_pending_job")
		case promiseFulfilled:
			return s.do("qjs_promise_result", box), true
		default:
			return s.do("qjs_promise_result", box), false
		}
	}
	return 0, false
}

// exception returns the text of the interpreter's current exception.
func (s *steps) exception() string { return s.string(s.do("qjs_get_exception"), maxMessage) }

// adopt copies the locations of the driver's values from the image of another instance.
func (q *quick) adopt(im *image) {
	if q != nil {
		q.scratch, q.handler, q.nothing = im.quick.scratch, im.quick.handler, im.quick.nothing
	}
}

// start evaluates the sources.
func (q *quick) start(c *call, inst *instance) error {
	c.inst = inst
	s := &steps{c: c, inst: inst}
	if s.do("qjs_init") != 0 && s.err == nil {
		return errors.New("the interpreter could not be started")
	}
	s.do("qjs_set_max_stack_size", quickStack)
	s.do("qjs_set_module_loader", 1)
	q.scratch = uint32(s.do("wasm_malloc", 16))
	if s.err == nil && q.scratch == 0 {
		s.err = errNoMemory
	}
	q.nothing = uint32(s.do("qjs_get_undefined"))
	name := s.alloc(quickName)
	s.global("__wheelwork_host", s.do("qjs_new_host_function", name, uint64(len(quickName)), 0))
	code := s.alloc(quickStart(inst.module.script.Main))
	file := s.alloc("start.js")
	box := s.do("qjs_eval", code, uint64(len(quickStart(inst.module.script.Main))), file, 0)
	if s.do("qjs_is_exception", box) != 0 && s.err == nil {
		return &scriptError{text: s.exception()}
	}
	value, ok := s.settle(box)
	if s.err != nil {
		return s.err
	}
	if said := s.string(value, maxTrace); s.err == nil && (said != "" || !ok) {
		text, trace, _ := strings.Cut(said, "\n")
		return &scriptError{text: cmp.Or(text, "it cannot be evaluated"), trace: trace}
	}
	q.handler = uint32(s.global("__wheelwork_run", 0))
	return s.err
}

// quickStart returns the code that loads the script. Its value is a promise of "", or of an
// error text.
func quickStart(main string) string {
	file, _ := json.Marshal("./" + main) // a JSON string is a JavaScript string
	return `(async () => {
  try {
    const { run } = await import("` + quickSDK + `");
    const handlers = await import(` + string(file) + `);
    globalThis.__wheelwork_run = (name) => run(handlers, name);
    return "";
  } catch (e) {
    return e instanceof Error ? e.name + ": " + e.message + "\n" + e.stack : "it threw " + String(e);
  }
})()`
}

// run runs the named handler for the call's task.
func (q *quick) run(c *call, inst *instance, handler string) (abi.Status, error) {
	c.inst = inst
	s := &steps{c: c, inst: inst}
	argv := uint64(q.scratch)
	name := s.text(handler)
	if s.err == nil {
		inst.mod.Memory().WriteUint32Le(q.scratch, uint32(name))
	}
	box := s.do("qjs_call", uint64(q.handler), uint64(q.nothing), 1, argv)
	if s.do("qjs_is_exception", box) != 0 && s.err == nil {
		// The SDK catches the exceptions of handlers, so this one cannot be caught.
		return 0, &scriptError{text: s.exception()}
	}
	value, ok := s.settle(box)
	if s.err == nil && !ok {
		return 0, &scriptError{text: s.string(value, maxMessage)}
	}
	status := math.Float64frombits(s.do("qjs_get_float64", value))
	return abi.Status(status), s.err
}

// quickCall is the host function that JavaScript calls. Its first argument is the name of a
// function in wheelwork.wit; numbers, strings and byte arrays follow as that function's
// parameters.
func quickCall(c *call, mem memory, stack []uint64) {
	s := &steps{c: c, inst: c.inst}
	argc, argv := uint32(stack[3]), uint32(stack[4])
	box, err := s.hostCall(mem, argc, argv)
	var wrong *wrongCall
	if s.err == nil && errors.As(err, &wrong) {
		e := s.do("qjs_new_error")
		key := s.alloc("message")
		s.do("qjs_set_prop_string", e, key, s.text(wrong.text))
		s.do("qjs_throw", e)
		box, err = 0, nil
	}
	if err = cmp.Or(s.err, err); err != nil {
		if c.cause == nil && errors.Is(err, errNoMemory) {
			c.endf("%v", err)
		}
		panic(err) // ends the guest's call
	}
	stack[0] = box
}

// wrongCall is an error of a host call that JavaScript may catch.
type wrongCall struct{ text string }

func (e *wrongCall) Error() string { return e.text }

// maxArgs is larger than the number of parameters of any host function.
const maxArgs = 16

func (s *steps) hostCall(mem memory, argc, argv uint32) (uint64, error) {
	if argc == 0 || argc > maxArgs {
		return 0, &wrongCall{fmt.Sprintf("%d arguments", argc)}
	}
	var boxes [maxArgs]uint64
	for i := range argc {
		box, ok := s.inst.mod.Memory().ReadUint32Le(argv + 4*i)
		if !ok {
			return 0, &wrongCall{"arguments outside the memory"}
		}
		boxes[i] = uint64(box)
	}
	if s.do("qjs_is_string", boxes[0]) == 0 {
		return 0, &wrongCall{"the first argument is no name of a function"}
	}
	name := s.string(boxes[0], maxCode)
	if s.err != nil {
		return 0, s.err
	}
	if box, done, err := s.ownCall(name, boxes[1:argc]); done {
		return box, err
	}
	f, ok := hostTable()[name]
	switch {
	case !ok:
		return 0, &wrongCall{fmt.Sprintf("the host has no function %q", name)}
	case f.task && s.c.starting:
		return 0, &wrongCall{fmt.Sprintf("%s was called while the script was loaded, when there is no task yet: call it in a handler", name)}
	}
	var params [maxArgs]uint64
	var strings []uint64
	n := 0
	for _, box := range boxes[1:argc] {
		if n+2 > len(params) {
			return 0, &wrongCall{fmt.Sprintf("%s has %d parameters", name, len(f.params))}
		}
		switch {
		case s.do("qjs_is_number", box) != 0:
			if n >= len(f.params) {
				return 0, &wrongCall{fmt.Sprintf("%s has %d parameters", name, len(f.params))}
			}
			params[n] = number(f.params[n], math.Float64frombits(s.do("qjs_get_float64", box)))
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
	if n != len(f.params) {
		return 0, &wrongCall{fmt.Sprintf("%s has %d parameters, it was called with %d", name, len(f.params), n)}
	}
	f.fn(s.c, memory{s.c, name, mem.view}, params[:])
	for _, ptr := range strings {
		s.do("qjs_free_cstring", ptr)
	}
	if len(f.results) == 0 {
		return s.do("qjs_get_undefined"), s.err
	}
	return s.number(f.results[0], params[0]), s.err
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
		s.c.work(int(uint32(size)))
		box = s.do("qjs_new_uint8_array", ptr, size)
		s.do("qjs_free_cstring", ptr)
	case "text":
		ptr, size, ok := s.bytes(args[0])
		if !ok && s.err == nil {
			return 0, true, &wrongCall{"text takes a Uint8Array"}
		}
		view, _ := s.inst.mod.Memory().Read(uint32(ptr), uint32(size))
		s.c.work(len(view))
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
			s.c.sleep(time.Duration(min(ms*1e6, math.MaxInt64/2)))
		}
		box = s.do("qjs_get_undefined")
	}
	return box, true, s.err
}

// borrow returns a string's bytes in the guest's memory, valid until qjs_free_cstring.
func (s *steps) borrow(box uint64) (ptr, size uint64) {
	ptr = s.do("qjs_get_string_len", box, uint64(s.inst.quick.scratch))
	if s.err == nil && ptr == 0 {
		s.err = errNoMemory
	}
	n, _ := s.inst.mod.Memory().ReadUint32Le(s.inst.quick.scratch)
	return ptr, uint64(n)
}

// bytes returns the location of the bytes of a Uint8Array in the guest's memory; ok is
// false for other values.
func (s *steps) bytes(box uint64) (ptr, size uint64, ok bool) {
	scratch := s.inst.quick.scratch
	buffer := s.do("qjs_get_typed_array_buffer", box, uint64(scratch), uint64(scratch+4), uint64(scratch+8))
	if s.do("qjs_is_exception", buffer) != 0 {
		s.do("qjs_free_value", s.do("qjs_get_exception"))
		return 0, 0, false
	}
	if s.err != nil {
		return 0, 0, false
	}
	mem := s.inst.mod.Memory()
	off, _ := mem.ReadUint32Le(scratch)
	length, _ := mem.ReadUint32Le(scratch + 4)
	start := s.do("qjs_get_array_buffer", buffer, uint64(scratch+12))
	s.do("qjs_free_value", buffer)
	if s.err != nil {
		return 0, 0, false
	}
	if start == 0 { // an empty array has no memory
		return 0, 0, length == 0
	}
	return uint64(uint32(start) + off), uint64(length), true
}

// number converts a JavaScript number to a parameter. It saturates at the range of int64,
// and an i32 gets the low 32 bits; the functions check their ranges.
func number(t api.ValueType, v float64) uint64 {
	switch t {
	case api.ValueTypeF64:
		return math.Float64bits(v)
	case api.ValueTypeF32:
		return uint64(math.Float32bits(float32(v)))
	case i64:
		return uint64(toInt64(v))
	}
	return uint64(uint32(toInt64(v)))
}

// toInt64 truncates the fraction and saturates; NaN becomes 0.
func toInt64(v float64) int64 {
	switch {
	case v != v:
		return 0
	case v >= math.MaxInt64:
		return math.MaxInt64
	case v <= math.MinInt64:
		return math.MinInt64
	}
	return int64(v)
}

// number converts a result to a JavaScript number.
func (s *steps) number(t api.ValueType, v uint64) uint64 {
	f := float64(int64(v))
	switch t {
	case i32:
		f = float64(int32(v))
	case api.ValueTypeF64:
		f = math.Float64frombits(v)
	}
	return s.do("qjs_new_number", math.Float64bits(f))
}

// hostTable holds all host functions by name.
var hostTable = sync.OnceValue(func() map[string]hostFunction {
	table := make(map[string]hostFunction)
	for _, f := range hostFunctions() {
		table[f.name] = f
	}
	return table
})

// quickResolve returns the file that an import refers to.
func quickResolve(c *call, mem memory, stack []uint64) {
	base, name := mem.zeroEnded(stack[0]), mem.zeroEnded(stack[1])
	file := name
	switch {
	case name == quickSDK:
		file = quickEntry
	case strings.HasPrefix(name, "./"), strings.HasPrefix(name, "../"):
		file = path.Join(path.Dir(base), name)
	}
	s := &steps{c: c, inst: c.inst}
	stack[0] = s.alloc(file)
	s.mustGoOn()
}

// quickLoad returns the source of a file, or throws.
func quickLoad(c *call, mem memory, stack []uint64) {
	name := mem.zeroEnded(stack[0])
	s := &steps{c: c, inst: c.inst}
	source, ok := c.inst.module.script.Files[name]
	if !ok {
		files := slices.Sorted(maps.Keys(c.inst.module.script.Files))
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
	mem.view.WriteUint32Le(out, uint32(len(source)))
}

// mustGoOn ends the guest if a step failed in a host function.
func (s *steps) mustGoOn() {
	switch {
	case s.err == nil:
	case s.c.cause == nil && errors.Is(s.err, errNoMemory):
		s.c.endf("%v", s.err)
	default:
		panic(s.err)
	}
}

// zeroEnded reads a zero-terminated string of less than 4096 bytes.
func (m memory) zeroEnded(ptr uint64) string {
	const most = 4096
	if m.view != nil {
		size := m.view.Size()
		if at := uint32(ptr); at < size {
			b, _ := m.view.Read(at, min(most, size-at))
			if text, _, ok := strings.Cut(string(b), "\x00"); ok {
				return text
			}
		}
	}
	m.c.endf("%s: the name at %d has no end", m.fn, uint32(ptr))
	return ""
}
