package inspect

import (
	"errors"
	"slices"
	"strings"

	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/meter"
)

// Module is the check of an upload: it describes a module, or refuses it with one sentence
// that states the problem and the solution. Its time is proportional to the module's size,
// about 50 ms for a megabyte.
func Module(code []byte) (Info, error) { return ModuleWithin(code, UploadLimits{}) }

// ModuleWithin is Module with the limits of a server.
func ModuleWithin(code []byte, limits UploadLimits) (Info, error) {
	parsed, info, err := parse(code, limits.binary())
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

// Describe is Module without the check of types, which compiling does too.
func Describe(code []byte) (Info, error) {
	_, info, err := parse(code, binary.MaxLimits())
	return info, err
}

// DescribesItself describes a module, and reports whether the module has to run to tell its
// manifest: it exports wheelwork_describe and has no manifest section.
func DescribesItself(code []byte) (info Info, itself bool, err error) {
	m, info, err := parse(code, binary.MaxLimits())
	if err != nil {
		return Info{}, false, err
	}
	_, told := m.Custom(abi.ManifestSection)
	return info, !told && info.Kind == Reactor && slices.Contains(info.Exports, abi.ExportDescribe), nil
}

// parse is Module without the check of types, which compiling does too.
func parse(code []byte, limits binary.Limits) (*binary.Module, Info, error) {
	m, err := binary.Parse(code, limits)
	if err != nil {
		return nil, Info{}, explain(code, err)
	}
	info := Info{Size: int64(len(code)), Digest: Digest(code)}
	if info.Manifest, err = readManifest(m); err != nil {
		return nil, Info{}, err
	}
	if ok, err := inspectScript(code, &info); ok || err != nil {
		return m, info, err
	}
	if err := errors.Join(describeImports(m, &info), describeExports(m, &info)); err != nil {
		return nil, Info{}, firstError(err)
	}
	if info.Kind == Interpreter && !exports(m, abi.ExportStart) { // the host always serves the driver's functions, so it need not advertise them
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

// explain converts a parser's error to a refusal that tells the uploader what to do.
func explain(code []byte, err error) error {
	var limit *binary.LimitError
	switch {
	case errors.Is(err, binary.ErrNotWasm):
		return Refuse("this is not WebAssembly (it starts with %q): upload the .wasm file that your compiler wrote, or a script (.js, .py) with \"wheelwork module push\"", head(code))
	case errors.Is(err, binary.ErrComponent):
		return Refuse("this is a component, which is not served: compile to a wasm32-wasip1 core module")
	case errors.As(err, &limit):
		return Refuse("too much for one module: %v: make it smaller or split it%s", limit, raise(limit))
	case errors.Is(err, binary.ErrMalformed):
		return Refuse("%v: the file is damaged or cut off, build and upload it again", err)
	}
	return Refuse("%v", err)
}

func head(code []byte) []byte { return code[:min(len(code), 8)] }

func describeImports(m *binary.Module, info *Info) error {
	served := hostabi.Served()
	if inspectInterpreter(info, served) {
		info.Kind = Interpreter
	}
	for _, im := range m.Imports {
		name := im.Module + "." + im.Name
		if im.Kind != binary.KindFunc {
			return Refuse("it imports the %s %s, but only functions are served: let the module define its own", im.Kind, name)
		}
		want, ok := served[name]
		if !ok && im.Module == abi.ImportModule && slices.Contains(info.Manifest.Optional, im.Name) {
			s, err := stub(im.Name, m.Types[im.Type])
			if err != nil {
				return Refuse("it imports %s as %v: %v", name, m.Types[im.Type], err)
			}
			if i := slices.IndexFunc(info.Stubs, func(o hostabi.Stub) bool { return o.Name == s.Name }); i < 0 {
				info.Stubs = append(info.Stubs, s)
			} else if o := info.Stubs[i]; string(o.Params) != string(s.Params) || string(o.Results) != string(s.Results) {
				return Refuse("it imports %s twice with different types", name)
			}
			want, ok = m.Types[im.Type], true
		}
		if !ok {
			return Refuse("it imports %s, which is not served: %s", name, whatIsServed(im.Module))
		}
		if t := m.Types[im.Type]; !slices.Equal(t.Params, want.Params) || !slices.Equal(t.Results, want.Results) {
			return Refuse("it imports %s as %v, but that function is %v: use the header or SDK of this version", name, t, want)
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
	switch {
	case module == abi.ImportModule:
		var names []string
		for _, f := range hostabi.Functions() {
			names = append(names, f.Name)
		}
		return abi.ImportModule + " has " + strings.Join(names, ", ")
	case hostabi.IsPreview1(module):
		return "that is no function of WASI preview 1"
	case hostabi.IsPreview0(module):
		return "that is no function of WASI preview 0"
	}
	return "the modules served are " + wasi_snapshot_preview1.ModuleName + " and " + abi.ImportModule +
		"; compile for wasm32-wasip1 and without JavaScript glue"
}

// describeExports determines the module's kind from its exports.
func describeExports(m *binary.Module, info *Info) error {
	for _, e := range m.Exports {
		if strings.HasPrefix(e.Name, meter.Prefix) {
			return Refuse("it exports %q, but names that begin with %q are reserved: rename the export", e.Name, meter.Prefix)
		}
		info.Exports = append(info.Exports, e.Name)
	}
	slices.Sort(info.Exports)
	switch {
	case info.Kind == Interpreter && exports(m, abi.ExportStart):
		return checkExport(m, abi.ExportStart, binary.FuncType{})
	case info.Kind == Interpreter:
		return nil
	case exports(m, abi.ExportHandle):
		info.Kind = Reactor
		return checkReactor(m)
	case exports(m, abi.ExportStart):
		info.Kind = Command
		return checkExport(m, abi.ExportStart, binary.FuncType{})
	}
	return Refuse("it exports neither %s nor %s: build a WASI command (a program with main), or a reactor with the SDK", abi.ExportStart, abi.ExportHandle)
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
		return Refuse("it does not export its memory as %q: tell the linker to export the memory", abi.ExportMemory)
	}
	return nil
}

func checkExport(m *binary.Module, name string, want binary.FuncType) error {
	e, _ := m.Export(name, binary.KindFunc)
	if have := m.FuncType(e.Index); !slices.Equal(have.Params, want.Params) || !slices.Equal(have.Results, want.Results) {
		return Refuse("it exports %s as %v, but that must be %v: change its signature", name, have, want)
	}
	return nil
}
