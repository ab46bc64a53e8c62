package quickjs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

// Flags of the interpreter's qjs_eval.
const (
	evalModule      = 1 << 0
	evalCompileOnly = 1 << 5
)

// Check parses the sources in a new instance, and the files that they import, and evaluates
// nothing. Its error is an *Error whose text names file, line and column if the sources are at
// fault.
func (d *Driver) Check(c *guest.Call) error {
	s := d.begin(c)
	if s.do("qjs_init") != 0 && s.err == nil {
		return errors.New("the interpreter could not be started")
	}
	s.do("qjs_set_max_stack_size", stackBytes)
	s.do("qjs_set_module_loader", 1)
	d.scratch = uint32(s.do("wasm_malloc", 16))
	for _, name := range slices.Sorted(maps.Keys(d.script.Files)) {
		if ext := path.Ext(name); name == sdkFile || ext != ".js" && ext != ".mjs" {
			continue
		}
		text := d.script.Files[name]
		code, file := s.alloc(text), s.alloc(name)
		box := s.do("qjs_eval", code, uint64(len(text)), file, evalModule|evalCompileOnly)
		if s.do("qjs_is_exception", box) != 0 && s.err == nil {
			return s.syntaxError(name)
		}
		s.free(code)
		s.free(file)
	}
	return s.err
}

// place finds file, line and column in the first line of a stack.
var place = regexp.MustCompile(`at (?:[^\n]*\()?([^\n()]+:\d+:\d+)`)

// syntaxError returns the current exception, with its place in the sources.
func (s *steps) syntaxError(file string) error {
	box := s.do("qjs_get_exception")
	key := s.alloc("stack")
	stack := s.string(s.do("qjs_get_prop_string", box, key), maxText)
	text := cmp.Or(s.string(box, maxText), "it cannot be parsed")
	if s.err != nil {
		return s.err
	}
	if at := place.FindStringSubmatch(stack); at != nil {
		file = at[1]
	}
	return &Error{Text: fmt.Sprintf("%s: %s", file, text)}
}
