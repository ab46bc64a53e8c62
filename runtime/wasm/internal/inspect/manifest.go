package inspect

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"

	"github.com/wheelworkhq/wheelwork/runtime/manifest"
)

// WithManifest returns code with text as its manifest section, which is how a module
// carries its manifest: some compilers cannot emit the section themselves. It refuses a
// module that already has the section, because it would be unclear which one applies. The
// same arguments give the same bytes.
func WithManifest(code []byte, text string) ([]byte, error) {
	m, err := wasmbinary.Parse(code, wasmbinary.MaxLimits())
	if err != nil {
		return nil, explain(code, err)
	}
	if _, ok := m.Custom(abi.ManifestSection); ok {
		return nil, Refuse("it has a section %s and there is a manifest beside it: use one of them", abi.ManifestSection)
	}
	if _, err := manifest.Parse([]byte(text)); err != nil {
		return nil, Refuse("%v", err)
	}
	return AppendManifest(code, text), nil
}

// AppendManifest is [WithManifest] for a module and a manifest that were checked before. It
// checks neither.
func AppendManifest(code []byte, text string) []byte {
	name := abi.ManifestSection
	body := binary.AppendUvarint(nil, uint64(len(name)))
	body = append(body, name...)
	body = append(body, text...)
	out := append(make([]byte, 0, len(code)+len(body)+8), code...)
	out = append(out, 0) // a custom section
	out = binary.AppendUvarint(out, uint64(len(body)))
	return append(out, body...)
}

// readManifest parses the manifest section of a module; without one the manifest is empty.
func readManifest(m *wasmbinary.Module) (manifest.Manifest, error) {
	section, ok := m.Custom(abi.ManifestSection)
	if !ok {
		return manifest.Manifest{}, nil
	}
	parsed, err := manifest.Parse(section)
	if err != nil {
		return manifest.Manifest{}, Refuse("%v (its section %s)", err, abi.ManifestSection)
	}
	return parsed, nil
}

// fits checks a manifest against its module.
func fits(info *Info) error {
	m := info.Manifest
	switch {
	case m.Kind != "" && m.Kind != string(info.Kind):
		return Refuse("its manifest says that it is a %s, but it is a %s", m.Kind, info.Kind)
	case info.Kind == Command && (m.Reuse == manifest.ReuseReset || m.Reuse == manifest.ReuseShared):
		return Refuse("its manifest asks for the reuse %q, but a command gets a fresh instance for each task: leave it out", m.Reuse)
	case info.Kind == Command && len(m.Handlers) > 1:
		return Refuse("its manifest names %d handlers, but a command has one entry", len(m.Handlers))
	}
	for _, h := range m.Handlers {
		if h.Batch && !slices.Contains(info.Exports, abi.ExportRun) {
			return Refuse("its manifest says that %q takes batches, but it does not export %s", h.Name, abi.ExportRun)
		}
	}
	if m.ABI != "" {
		minor, err := manifest.Minor(m.ABI)
		if err != nil {
			return Refuse("%v", err)
		}
		if minor > abi.Minor {
			return Refuse("its manifest asks for %s, but this version serves %s: upgrade, or build it for an older one", m.ABI, abi.Version(abi.Minor))
		}
		info.Needs = append(info.Needs, m.ABI)
	}
	info.needs()
	return nil
}

// needs sets Needs to the interfaces that hosts must advertise: wasi-p0, wasi-p1, and the newest
// minor version that introduced a function that the module imports and does not declare
// optional.
func (info *Info) needs() {
	minor, own := 0, false
	for _, v := range info.Needs {
		n, err := manifest.Minor(v)
		own = true
		if err == nil {
			minor = max(minor, n)
		}
	}
	info.Needs = nil
	for _, name := range info.Imports {
		function, ours := strings.CutPrefix(name, abi.ImportModule+".")
		if !ours {
			continue
		}
		own = true
		if !slices.Contains(info.Manifest.Optional, function) {
			minor = max(minor, abi.Since(function))
		}
	}
	if slices.ContainsFunc(info.ABI, hostabi.IsPreview0) {
		info.Needs = append(info.Needs, abi.WASIPreview0)
	}
	if slices.ContainsFunc(info.ABI, hostabi.IsPreview1) {
		info.Needs = append(info.Needs, abi.WASIPreview1)
	}
	if own || info.Kind == Reactor {
		info.Needs = append(info.Needs, abi.Version(minor))
	}
}

// handlers returns the names of a module's handlers.
func (info *Info) handlers() []string {
	if info.Kind == Command || info.Kind == Interpreter || len(info.Manifest.Handlers) == 0 {
		return []string{abi.DefaultHandler}
	}
	var names []string
	for _, h := range info.Manifest.Handlers {
		names = append(names, h.Name)
	}
	return names
}

// errStub is the reason why an optional function cannot have a stub.
var errStub = errors.New("an optional function must return one i32 or i64")

// stub returns the stub of a function of wheelwork_v1.
func stub(name string, t wasmbinary.FuncType) (hostabi.Stub, error) {
	if len(t.Results) != 1 || t.Results[0] != wasmbinary.I32 && t.Results[0] != wasmbinary.I64 {
		return hostabi.Stub{}, errStub
	}
	return hostabi.Stub{Name: name, Params: t.Params, Results: t.Results}, nil
}
