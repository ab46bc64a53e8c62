// Package abi names what passes between a host and a reactor module: import
// and export names, status codes and error numbers. wheelwork.wit describes the
// same functions; a test of runtime/wasm compares it with the code.
//
// Rules of every function: a pointer and a length are i32 into the module's
// memory "memory". A result >= 0 is success or a length, a result < 0 is one of
// the negative Errno values. A function that reads into the guest takes a
// pointer and a capacity, writes at most the capacity and returns the full
// length, so that a guest can come back with a larger buffer. A pointer out of
// range is a trap.
package abi

import _ "embed"

// WIT is the text of wheelwork.wit.
//
//go:embed wheelwork.wit
var WIT string

// Names that a module imports and exports.
const (
	ImportModule    = "wheelwork_v1"
	ExportHandle    = "wheelwork_handle" // (handler i32) -> status i32
	ExportInit      = "_initialize"      // () -> (), optional, once per instance
	ExportStart     = "_start"           // () -> (): a WASI command
	ExportMemory    = "memory"
	ManifestSection = "wheelwork.manifest" // custom section, JSON: {"handlers":[{"name":"main"},…]}
	DefaultHandler  = "main"
)

// Status is what wheelwork_handle returns.
type Status int32

// The statuses. Any other value counts as StatusRetryable.
const (
	StatusOK        Status = 0
	StatusRetryable Status = 1
	StatusPermanent Status = 2
	StatusCancelled Status = 3 // the handler saw that it should stop, and did
)

// Cancel is what the import "cancelled" returns.
type Cancel int32

// The reasons to stop.
const (
	CancelNone         Cancel = 0
	CancelRequested    Cancel = 1
	CancelDeadlineNear Cancel = 2
	CancelLeaseLost    Cancel = 3 // reserved
)

// Errno is a WASI error number. Functions return its negative.
type Errno int32

// The errors that functions of wheelwork_v1 return.
const (
	ErrnoInvalid  Errno = 28 // an argument that makes no sense
	ErrnoNoEntry  Errno = 44 // no such parameter
	ErrnoOverflow Errno = 61 // more than a limit allows
)

// Log levels of the import "log".
const (
	LogDebug = 0
	LogInfo  = 1
	LogWarn  = 2
	LogError = 3
)
