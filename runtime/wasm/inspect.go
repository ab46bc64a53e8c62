package wasm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// ErrInvalidModule is wrapped by every error of Inspect and Load that the module causes.
// The error's text is one sentence for the uploader.
var ErrInvalidModule = errors.New("module refused")

// A Kind is the way in which a module is called.
type Kind string

// The kinds of modules.
const (
	Command Kind = "command" // exports _start: input on stdin, output on stdout
	Reactor Kind = "reactor" // exports wheelwork_handle
)

// Info describes a module that may be uploaded.
type Info struct {
	Kind           Kind
	Handlers       []string // the index of a handler is the argument of its call
	Imports        []string // "module.function", sorted
	Exports        []string // names, sorted
	ABI            []string // the modules that it imports from, sorted
	Needs          []string // the interfaces that a host must advertise to run it: "wasi-p1", "wheelwork_v1.1"
	Manifest       manifest.Manifest
	Stubs          []Stub // optional imports that the host does not serve
	MinMemoryBytes int64  // linear memory at the start
	MaxMemoryBytes int64  // the module's own maximum; 0: none
	Size           int64  // bytes
	Digest         string // "sha256:<hex>"
	Interpreter    string // digest of the interpreter that runs a script; "" for every other kind
}

// Inspect is the check of an upload: it describes a module, or refuses it with one sentence
// that states the problem and the solution. Its time is proportional to the module's size,
// about 50 ms for a megabyte.
func Inspect(code []byte) (Info, error) {
	parsed, info, err := inspect(code)
	if err != nil {
		return Info{}, err
	}
	if info.Kind == Script { // it has no code
		return info, nil
	}
	if err := checkTypes(parsed); err != nil {
		return Info{}, err
	}
	return info, nil
}

// inspect is Inspect without the check of types, which compiling does too.
func inspect(code []byte) (*binary.Module, Info, error) {
	m, err := binary.Parse(code, binary.DefaultLimits())
	if err != nil {
		return nil, Info{}, explain(code, err)
	}
	info := Info{Size: int64(len(code)), Digest: digestOf(code)}
	if info.Manifest, err = readManifest(m); err != nil {
		return nil, Info{}, err
	}
	if ok, err := inspectScript(code, &info); ok || err != nil {
		return m, info, err
	}
	if err := errors.Join(describeImports(m, &info), describeExports(m, &info)); err != nil {
		return nil, Info{}, firstError(err)
	}
	if info.Kind == Interpreter { // the host always serves the driver's functions, so it need not advertise them
		info.ABI, info.Needs = nil, nil
	} else if err := fits(&info); err != nil {
		return nil, Info{}, err
	} else {
		info.Handlers = info.handlers()
	}
	if m.Memory != nil {
		info.MinMemoryBytes = int64(m.Memory.Min) * binary.PageSize
		info.MaxMemoryBytes = int64(m.Memory.Max) * binary.PageSize
	}
	return m, info, nil
}

// firstError returns the first of several joined errors, so that a refusal is one sentence.
func firstError(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()[0]
	}
	return err
}

// refuse formats a refusal as one printable line, because the names in it come from the
// module.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidModule, printable(fmt.Sprintf(format, args...)))
}

const maxRefusal = 600 // bytes

// printable replaces control characters and truncates long texts.
func printable(s string) string {
	if len(s) > maxRefusal {
		s = s[:maxRefusal] + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// explain converts a parser's error to a refusal that tells the uploader what to do.
func explain(code []byte, err error) error {
	var limit *binary.LimitError
	switch {
	case errors.Is(err, binary.ErrNotWasm):
		return refuse("this is not WebAssembly (it starts with %q): upload the .wasm file that your compiler wrote", head(code))
	case errors.Is(err, binary.ErrComponent):
		return refuse("this is a component, which is not served: compile to a wasm32-wasip1 core module")
	case errors.As(err, &limit):
		return refuse("too much for one module: %v: make it smaller or split it", limit)
	case errors.Is(err, binary.ErrMalformed):
		return refuse("%v: the file is damaged or cut off, build and upload it again", err)
	}
	return refuse("%v", err)
}

func head(code []byte) []byte { return code[:min(len(code), 8)] }

func describeImports(m *binary.Module, info *Info) error {
	served := servedFunctions()
	if inspectInterpreter(info, served) {
		info.Kind = Interpreter
	}
	for _, im := range m.Imports {
		name := im.Module + "." + im.Name
		if im.Kind != binary.KindFunc {
			return refuse("it imports the %s %s, but only functions are served: let the module define its own", im.Kind, name)
		}
		want, ok := served[name]
		if !ok && im.Module == abi.ImportModule && slices.Contains(info.Manifest.Optional, im.Name) {
			s, err := stub(im.Name, m.Types[im.Type])
			if err != nil {
				return refuse("it imports %s as %s: %v", name, signature(m.Types[im.Type]), err)
			}
			if i := slices.IndexFunc(info.Stubs, func(o Stub) bool { return o.Name == s.Name }); i < 0 {
				info.Stubs = append(info.Stubs, s)
			} else if o := info.Stubs[i]; string(o.Params) != string(s.Params) || string(o.Results) != string(s.Results) {
				return refuse("it imports %s twice with different types", name)
			}
			want, ok = m.Types[im.Type], true
		}
		if !ok {
			return refuse("it imports %s, which is not served: %s", name, whatIsServed(im.Module))
		}
		if t := m.Types[im.Type]; !slices.Equal(t.Params, want.Params) || !slices.Equal(t.Results, want.Results) {
			return refuse("it imports %s as %s, but that function is %s: use the header or SDK of this version", name, signature(t), signature(want))
		}
		info.Imports = append(info.Imports, name)
		if !slices.Contains(info.ABI, im.Module) {
			info.ABI = append(info.ABI, im.Module)
		}
	}
	slices.Sort(info.Imports)
	slices.Sort(info.ABI)
	return nil
}

func whatIsServed(module string) string {
	switch module {
	case abi.ImportModule:
		var names []string
		for _, f := range hostFunctions() {
			names = append(names, f.name)
		}
		return abi.ImportModule + " has " + strings.Join(names, ", ")
	case wasi_snapshot_preview1.ModuleName:
		return "that is no function of WASI preview 1"
	}
	return "the modules served are " + wasi_snapshot_preview1.ModuleName + " and " + abi.ImportModule +
		"; compile for wasm32-wasip1 and without JavaScript glue"
}

// servedFunctions maps "module.function" to the function's type.
func servedFunctions() map[string]binary.FuncType {
	served := make(map[string]binary.FuncType, 64)
	for name, t := range wasiFunctions() {
		served[wasi_snapshot_preview1.ModuleName+"."+name] = t
	}
	for _, f := range hostFunctions() {
		served[abi.ImportModule+"."+f.name] = binary.FuncType{Params: f.params, Results: f.results}
	}
	return served
}

// wasiFunctions reads the functions of WASI preview 1 and their types from the engine,
// once.
var wasiFunctions = sync.OnceValue(func() map[string]binary.FuncType {
	ctx := context.Background()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer rt.Close(ctx)
	compiled, err := wasi_snapshot_preview1.NewBuilder(rt).Compile(ctx)
	if err != nil {
		panic(fmt.Sprintf("wasm: the engine's own WASI module does not compile: %v", err))
	}
	types := make(map[string]binary.FuncType)
	for name, def := range compiled.ExportedFunctions() {
		types[name] = binary.FuncType{Params: def.ParamTypes(), Results: def.ResultTypes()}
	}
	return types
})

func signature(t binary.FuncType) string {
	names := func(types []byte) string {
		out := make([]string, len(types))
		for i, t := range types {
			out[i] = api.ValueTypeName(t)
		}
		return "(" + strings.Join(out, " ") + ")"
	}
	return names(t.Params) + " -> " + names(t.Results)
}

// describeExports determines the module's kind from its exports.
func describeExports(m *binary.Module, info *Info) error {
	for _, e := range m.Exports {
		if strings.HasPrefix(e.Name, meter.Prefix) {
			return refuse("it exports %q, but names that begin with %q are reserved: rename the export", e.Name, meter.Prefix)
		}
		info.Exports = append(info.Exports, e.Name)
	}
	slices.Sort(info.Exports)
	switch {
	case info.Kind == Interpreter:
		return nil
	case exports(m, abi.ExportHandle):
		info.Kind = Reactor
		return checkReactor(m)
	case exports(m, abi.ExportStart):
		info.Kind = Command
		return checkExport(m, abi.ExportStart, binary.FuncType{})
	}
	return refuse("it exports neither %s nor %s: build a WASI command (a program with main), or a reactor with the SDK", abi.ExportStart, abi.ExportHandle)
}

func exports(m *binary.Module, name string) bool {
	_, ok := m.Export(name, binary.KindFunc)
	return ok
}

func checkReactor(m *binary.Module) error {
	i32 := []byte{binary.I32}
	if err := checkExport(m, abi.ExportHandle, binary.FuncType{Params: i32, Results: i32}); err != nil {
		return err
	}
	if exports(m, abi.ExportInit) {
		if err := checkExport(m, abi.ExportInit, binary.FuncType{}); err != nil {
			return err
		}
	}
	if exports(m, abi.ExportRun) {
		if err := checkExport(m, abi.ExportRun, binary.FuncType{Params: i32, Results: i32}); err != nil {
			return err
		}
	}
	if exports(m, abi.ExportDescribe) {
		if err := checkExport(m, abi.ExportDescribe, binary.FuncType{}); err != nil {
			return err
		}
	}
	if _, ok := m.Export(abi.ExportMemory, binary.KindMemory); !ok || m.Memory == nil {
		return refuse("it does not export its memory as %q: tell the linker to export the memory", abi.ExportMemory)
	}
	return nil
}

func checkExport(m *binary.Module, name string, want binary.FuncType) error {
	e, _ := m.Export(name, binary.KindFunc)
	if have := m.FuncType(e.Index); !slices.Equal(have.Params, want.Params) || !slices.Equal(have.Results, want.Results) {
		return refuse("it exports %s as %s, but that must be %s: change its signature", name, signature(have), signature(want))
	}
	return nil
}

// checkTypes makes the engine's interpreter check the module's types. It checks the
// rewritten form, because that form will run and has no unchecked sections.
func checkTypes(m *binary.Module) error {
	ctx := context.Background()
	cfg := Config{}.withDefaults()
	rt := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter().
		WithCoreFeatures(features).WithMemoryLimitPages(pages(cfg.MaxMemoryBytes)))
	defer rt.Close(ctx)
	compiled, err := compile(rt, meter.Rewrite(m, meterOptions(cfg)).Code)
	if err != nil {
		return err
	}
	return compiled.Close(ctx)
}

// oneLine returns the first line of a text, or "unknown" if it is empty.
func oneLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return cmp.Or(strings.TrimSpace(line), "unknown")
}

// Metered returns the form in which a module runs, for tests that compare it with the
// module itself. It imports wheelwork_meter.tick, (i64) -> i64. The argument of tick is the
// rest of the budget, with the bytes of stack in its upper half and the units of fuel in
// its lower half. tick returns a budget with new fuel.
func Metered(code []byte) ([]byte, error) {
	p, err := rewrite(code, meterOptions(Config{}.withDefaults()))
	return p.Code, err
}
