package quickjs

import (
	"errors"
	"fmt"

	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

const (
	// Module is the name of the module that the interpreter imports.
	Module = "env"

	hostName = "host" // the name of the only host function that JavaScript can call

	sdkFile = "wheelwork.js" // the file that scripts import as "wheelwork"
	sdkName = "wheelwork"

	stackBytes = 256 << 10 // bytes of the stack for JavaScript; the interpreter's own stack has a megabyte
)

// Bounds of texts, in bytes.
const (
	maxText         = 4 << 10
	maxFunctionName = 128
)

// State has the locations of a driver's values in the memory of its instance. All instances
// with the same memory image have the same state.
type State struct {
	scratch uint32 // address of 16 bytes for results
	handler uint32 // box of the function that runs a handler by name
	nothing uint32 // box of undefined
}

// A Driver drives one instance of the interpreter.
type Driver struct {
	mod     api.Module
	script  *script.Script
	exports map[string]api.Function
	State
}

// New returns the driver of an instance that runs a script.
func New(mod api.Module, s *script.Script) *Driver { return &Driver{mod: mod, script: s} }

// Error is an error of a script that prevents its start, or that the script cannot catch.
type Error struct{ Text, Trace string }

func (e *Error) Error() string { return e.Text }

var errNoMemory = errors.New("there is no memory left for the script: raise the memory limit")

// do calls an export of the interpreter.
func (d *Driver) do(c *guest.Call, name string, args ...uint64) (uint64, error) {
	f := d.exports[name]
	if f == nil {
		if f = d.mod.ExportedFunction(name); f == nil {
			return 0, fmt.Errorf("the interpreter exports no %s", name)
		}
		if d.exports == nil {
			d.exports = make(map[string]api.Function)
		}
		d.exports[name] = f
	}
	var stack [8]uint64
	copy(stack[:], args)
	if err := f.CallWithStack(c, stack[:max(len(args), 1)]); err != nil {
		return 0, err
	}
	return stack[0], nil
}
