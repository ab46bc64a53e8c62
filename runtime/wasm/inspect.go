package wasm

import (
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
)

// ErrInvalidModule is wrapped by every error of Inspect and Load that the module causes.
// The error's text is one sentence for the uploader.
var ErrInvalidModule = inspect.ErrInvalidModule

// A Kind is the way in which a module is called.
type Kind = inspect.Kind

// The kinds of modules.
const (
	Command     = inspect.Command     // exports _start: input on stdin, output on stdout
	Reactor     = inspect.Reactor     // exports wheelwork_handle
	Script      = inspect.Script      // source text and the digest of its interpreter
	Interpreter = inspect.Interpreter // runs scripts; one that exports _start is a command as well
)

// Info describes a module that may be uploaded.
type Info = inspect.Info

// A Stub replaces an optional import that this version does not serve.
type Stub = hostabi.Stub

// Inspect is the check of an upload: it describes a module, or refuses it with one sentence
// that states the problem and the solution. Its time is proportional to the module's size,
// about 50 ms for a megabyte.
func Inspect(code []byte) (Info, error) { return inspect.Module(code) }

// UploadLimits are the limits of an upload that a server's operator can change.
type UploadLimits = inspect.UploadLimits

// DefaultUploadLimits returns the limits of a server that is not configured.
func DefaultUploadLimits() UploadLimits { return inspect.DefaultUploadLimits() }

// MaxUploadLimits returns the largest limits, which are those of hosts.
func MaxUploadLimits() UploadLimits { return inspect.MaxUploadLimits() }

// InspectWithin is Inspect with the limits of a server.
func InspectWithin(code []byte, limits UploadLimits) (Info, error) {
	return inspect.ModuleWithin(code, limits)
}

// WithManifest returns code with text as its manifest section, which is how a module
// carries its manifest: some compilers cannot emit the section themselves. It refuses a
// module that already has the section, because it would be unclear which one applies. The
// same arguments give the same bytes.
func WithManifest(code []byte, text string) ([]byte, error) { return inspect.WithManifest(code, text) }

// AppendManifest is [WithManifest] for a module and a manifest that were checked before. It
// checks neither.
func AppendManifest(code []byte, text string) []byte { return inspect.AppendManifest(code, text) }

// Metered returns the form in which a module runs, for tests that compare it with the
// module itself. It imports wheelwork_meter.tick, (i64) -> i64. The argument of tick is the
// rest of the budget, with the bytes of stack in its upper half and the units of fuel in
// its lower half. tick returns a budget with new fuel.
func Metered(code []byte) ([]byte, error) {
	p, err := inspect.Rewrite(code, inspect.DefaultLimits())
	return p.Code, err
}
