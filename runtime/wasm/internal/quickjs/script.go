package quickjs

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"strings"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

// begin makes d the interpreter of a call.
func (d *Driver) begin(c *guest.Call) *steps {
	c.Interpreter = d
	return &steps{c: c, d: d}
}

// Start evaluates the sources.
func (d *Driver) Start(c *guest.Call) error {
	s := d.begin(c)
	if s.do("qjs_init") != 0 && s.err == nil {
		return errors.New("the interpreter could not be started")
	}
	s.do("qjs_set_max_stack_size", stackBytes)
	s.do("qjs_set_module_loader", 1)
	d.scratch = uint32(s.do("wasm_malloc", 16))
	if s.err == nil && d.scratch == 0 {
		s.err = errNoMemory
	}
	d.nothing = uint32(s.do("qjs_get_undefined"))
	name := s.alloc(hostName)
	s.global("__wheelwork_host", s.do("qjs_new_host_function", name, uint64(len(hostName)), 0))
	code := s.alloc(startCode(d.script.Main))
	file := s.alloc("start.js")
	box := s.do("qjs_eval", code, uint64(len(startCode(d.script.Main))), file, 0)
	if s.do("qjs_is_exception", box) != 0 && s.err == nil {
		return &Error{Text: s.exception()}
	}
	value, ok := s.await(box)
	if s.err != nil {
		return s.err
	}
	if said := s.string(value, guest.MaxTrace); s.err == nil && (said != "" || !ok) {
		text, trace, _ := strings.Cut(said, "\n")
		return &Error{Text: cmp.Or(text, "it cannot be evaluated"), Trace: trace}
	}
	d.handler = uint32(s.global("__wheelwork_run", 0))
	return s.err
}

// startCode returns the code that loads the script. Its value is a promise of "", or of an
// error text.
func startCode(main string) string {
	file, _ := json.Marshal("./" + main) // a JSON string is a JavaScript string
	return `(async () => {
  try {
    const { run } = await import("` + sdkName + `");
    const handlers = await import(` + string(file) + `);
    globalThis.__wheelwork_run = (name) => run(handlers, name);
    return "";
  } catch (e) {
    return e instanceof Error ? e.name + ": " + e.message + "\n" + e.stack : "it threw " + String(e);
  }
})()`
}

// Run runs the named handler for the call's task.
func (d *Driver) Run(c *guest.Call, handler string) (abi.Status, error) {
	s := d.begin(c)
	argv := uint64(d.scratch)
	name := s.text(handler)
	if s.err == nil {
		d.mod.Memory().WriteUint32Le(d.scratch, uint32(name))
	}
	box := s.do("qjs_call", uint64(d.handler), uint64(d.nothing), 1, argv)
	if s.do("qjs_is_exception", box) != 0 && s.err == nil {
		// The SDK catches the exceptions of handlers, so this one cannot be caught.
		return 0, &Error{Text: s.exception()}
	}
	value, ok := s.await(box)
	if s.err == nil && !ok {
		return 0, &Error{Text: s.string(value, maxText)}
	}
	status := math.Float64frombits(s.do("qjs_get_float64", value))
	return abi.Status(status), s.err
}
