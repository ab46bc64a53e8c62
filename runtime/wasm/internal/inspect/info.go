package inspect

import (
	"errors"
	"fmt"

	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/oneline"
)

// ErrInvalidModule is wrapped by every error that the module causes. The error's text is one
// sentence for the uploader.
var ErrInvalidModule = errors.New("module refused")

// A Kind is the way in which a module is called.
type Kind string

// The kinds of modules.
const (
	Command     Kind = "command"     // exports _start: input on stdin, output on stdout
	Reactor     Kind = "reactor"     // exports wheelwork_handle
	Script      Kind = "script"      // source text and the digest of its interpreter
	Interpreter Kind = "interpreter" // runs scripts; one that exports _start is a command as well
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
	Stubs          []hostabi.Stub // optional imports that the host does not serve
	MinMemoryBytes int64          // linear memory at the start
	MaxMemoryBytes int64          // the module's own maximum; 0: none
	Size           int64          // bytes
	Digest         string         // "sha256:<hex>"
	Interpreter    string         // digest of the interpreter that runs a script; "" for every other kind
}

// Refuse formats a refusal as one printable line, because the names in it come from the
// module.
func Refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalidModule, oneline.Printable(fmt.Sprintf(format, args...)))
}
