package wasm

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	wasmbinary "github.com/wheelworkhq/wheelwork/runtime/wasm/internal/binary"

	"github.com/wheelworkhq/wheelwork/runtime/manifest"
)

// describeTime bounds the time of wheelwork_describe.
const describeTime = 2 * time.Second

// WithManifest returns code with text as its manifest section, which is how a module
// carries its manifest: some compilers cannot emit the section themselves. It refuses a
// module that already has the section, because it would be unclear which one applies. The
// same arguments give the same bytes.
func WithManifest(code []byte, text string) ([]byte, error) {
	m, err := wasmbinary.Parse(code, wasmbinary.DefaultLimits())
	if err != nil {
		return nil, explain(code, err)
	}
	if _, ok := m.Custom(abi.ManifestSection); ok {
		return nil, refuse("it has a section %s and was given a manifest besides: use one of them", abi.ManifestSection)
	}
	if _, err := manifest.Parse([]byte(text)); err != nil {
		return nil, refuse("%v", err)
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

// Pack returns the bytes under which a module is stored: its code with its manifest
// section. text is a manifest that was uploaded beside the code, or "". Without text and
// without a section Pack calls wheelwork_describe, if the module exports it. This runs the
// module's code for at most two seconds and with no grants. Pack returns any other module
// unchanged. Inspect decides whether the result may run.
func Pack(ctx context.Context, code []byte, text string) ([]byte, error) {
	if text != "" {
		return WithManifest(code, text)
	}
	m, info, err := inspect(code)
	if err != nil {
		return nil, err
	}
	if _, ok := m.Custom(abi.ManifestSection); ok || info.Kind != Reactor || !slices.Contains(info.Exports, abi.ExportDescribe) {
		return code, nil
	}
	if text, err = describe(ctx, code, info); err != nil {
		return nil, err
	}
	return WithManifest(code, text)
}

// describe runs wheelwork_describe and returns its output, the manifest.
func describe(ctx context.Context, code []byte, info Info) (string, error) {
	e, err := New(ctx, Config{Slots: 1})
	if err != nil {
		return "", err
	}
	defer e.Close(context.WithoutCancel(ctx)) //nolint:errcheck // frees memory; it has no error to tell
	if err := e.Load(ctx, info.Digest, code); err != nil {
		return "", err
	}
	task := runtime.Task{Digest: info.Digest, Deadline: time.Now().Add(describeTime), Limits: runtime.Limits{OutputBytes: manifest.MaxBytes}}
	c := newCall(ctx, &task, discard{}, e.slots)
	if err := c.start(); err != nil {
		return "", err
	}
	defer c.releaseSlot()
	inst, err := e.reactor(c, e.module(info.Digest), defaultMemoryBytes)
	if err == nil {
		defer inst.close(c) //nolint:errcheck // frees memory; it has no error to tell
		inst.arm(c, e.cfg.StackBytes)
		c.describing = true
		_, err = inst.mod.ExportedFunction(abi.ExportDescribe).Call(c)
	}
	if err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", refuse("its %s failed (%s): repair it, or upload the module with a manifest beside it", abi.ExportDescribe, c.errorResult(err).Error)
	}
	return string(c.output), nil
}

// readManifest parses the manifest section of a module; without one the manifest is empty.
func readManifest(m *wasmbinary.Module) (manifest.Manifest, error) {
	section, ok := m.Custom(abi.ManifestSection)
	if !ok {
		return manifest.Manifest{}, nil
	}
	parsed, err := manifest.Parse(section)
	if err != nil {
		return manifest.Manifest{}, refuse("%v (its section %s)", err, abi.ManifestSection)
	}
	return parsed, nil
}

// fits checks a manifest against its module.
func fits(info *Info) error {
	m := info.Manifest
	switch {
	case m.Kind != "" && m.Kind != string(info.Kind):
		return refuse("its manifest says that it is a %s, but it is a %s", m.Kind, info.Kind)
	case info.Kind == Command && (m.Reuse == manifest.ReuseReset || m.Reuse == manifest.ReuseShared):
		return refuse("its manifest asks for the reuse %q, but a command gets a fresh instance for each task: leave it out", m.Reuse)
	case info.Kind == Command && len(m.Handlers) > 1:
		return refuse("its manifest names %d handlers, but a command has one entry", len(m.Handlers))
	}
	for _, h := range m.Handlers {
		if h.Batch && !slices.Contains(info.Exports, abi.ExportRun) {
			return refuse("its manifest says that %q takes batches, but it does not export %s", h.Name, abi.ExportRun)
		}
	}
	if m.ABI != "" {
		minor, err := manifest.Minor(m.ABI)
		if err != nil {
			return refuse("%v", err)
		}
		if minor > abi.Minor {
			return refuse("its manifest asks for %s, but this version serves %s: upgrade, or build it for an older one", m.ABI, abi.Version(abi.Minor))
		}
		info.Needs = append(info.Needs, m.ABI)
	}
	info.needs()
	return nil
}

// needs sets Needs to the interfaces that hosts must advertise: wasi-p1, and the newest
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
	if slices.ContainsFunc(info.ABI, func(s string) bool { return s != abi.ImportModule }) {
		info.Needs = append(info.Needs, abi.Served()[0])
	}
	if own || info.Kind == Reactor {
		info.Needs = append(info.Needs, abi.Version(minor))
	}
}

// handlers returns the names of a module's handlers.
func (info *Info) handlers() []string {
	if info.Kind == Command || len(info.Manifest.Handlers) == 0 {
		return []string{abi.DefaultHandler}
	}
	var names []string
	for _, h := range info.Manifest.Handlers {
		names = append(names, h.Name)
	}
	return names
}

// errStub is the reason why an optional function cannot have a stub.
var errStub = errors.New("an optional function must give back one i32 or i64")

// A Stub replaces an optional import that this version does not serve. It returns the error
// "not served".
type Stub struct {
	Name            string
	Params, Results []byte // value types
}

// stub returns the stub of a function of wheelwork_v1.
func stub(name string, t wasmbinary.FuncType) (Stub, error) {
	if len(t.Results) != 1 || t.Results[0] != wasmbinary.I32 && t.Results[0] != wasmbinary.I64 {
		return Stub{}, errStub
	}
	return Stub{name, t.Params, t.Results}, nil
}
