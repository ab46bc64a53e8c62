// Package abi defines the interface between a host and a reactor module: the names of
// imports and exports, status codes and error numbers. The file wheelwork.wit describes
// the same functions; a test of runtime/wasm compares it with the code.
//
// The rules of every function:
//
//   - A pointer and a length are i32 values that refer to the module's memory "memory".
//   - A result >= 0 is success or a length. A result < 0 is a negated Errno.
//   - A function that writes to a buffer of the guest takes a pointer and a capacity.
//     It writes at most the capacity and returns the full length, so that the guest
//     can call again with a larger buffer.
//   - A pointer out of range is a trap.
package abi

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
)

// WIT is the text of the file wheelwork.wit.
//
//go:embed wheelwork.wit
var WIT string

// Names of imports and exports.
const (
	ImportModule    = "wheelwork_v1"
	ExportHandle    = "wheelwork_handle"   // (handler i32) -> status i32
	ExportRun       = "wheelwork_run"      // (handler i32) -> status i32, optional: runs a batch of tasks in one call
	ExportDescribe  = "wheelwork_describe" // () -> (), optional: writes the manifest with output_write
	ExportInit      = "_initialize"        // () -> (), optional, once per instance
	ExportStart     = "_start"             // () -> (): a WASI command
	ExportMemory    = "memory"
	ManifestSection = "wheelwork.manifest" // custom section with the manifest in JSON: {"handlers":[{"name":"main"},…]}
	DefaultHandler  = "main"
)

// Minor is the newest minor version that this code serves. The lists below name the
// functions that a version after 1.0 added.
const Minor = 1

// Version returns the name of a minor version, which hosts advertise and modules require.
func Version(minor int) string { return ImportModule + "." + strconv.Itoa(minor) }

// The versions of WASI that hosts advertise and modules require.
const (
	WASIPreview1 = "wasi-p1" // wasi_snapshot_preview1
	WASIPreview0 = "wasi-p0" // wasi_unstable, the version before preview 1
)

// Served returns the versions that a host with this code advertises.
func Served() []string { return []string{WASIPreview1, WASIPreview0, Version(Minor)} }

// Serves reports whether a host that advertises served can run a module that requires
// need. A minor version includes all earlier ones.
func Serves(served []string, need string) bool {
	major, minor, ok := cutMinor(need)
	for _, s := range served {
		if s == need {
			return true
		}
		if m, n, isVersion := cutMinor(s); ok && isVersion && m == major && n >= minor {
			return true
		}
	}
	return false
}

func cutMinor(version string) (major string, minor int, ok bool) {
	major, text, ok := strings.Cut(version, ".")
	minor, err := strconv.Atoi(text)
	return major, minor, ok && err == nil && minor >= 0
}

// Since returns the minor version that added a function.
func Since(function string) int {
	if slices.Contains(since1, function) {
		return 1
	}
	return 0
}

var since1 = []string{
	"sleep", "checkpoint_get", "checkpoint_put", "kv_get", "kv_put", "kv_cas", "kv_delete", "job_enqueue", "map",
	"secret_get", "http_send", "http_head", "http_recv", "http_close", "metric_add", "job_next", "job_done",
}

// Results of job_next.
const (
	NextNone  = 0 // no task within the timeout; more may follow later
	NextReady = 1
	NextEnd   = 2 // the batch is over: the guest must return from wheelwork_run
)

// Status is the result of wheelwork_handle.
type Status int32

// The statuses. The host treats any other value as StatusRetryable.
const (
	StatusOK        Status = 0
	StatusRetryable Status = 1
	StatusPermanent Status = 2
	StatusCancelled Status = 3 // the handler noticed the cancellation and stopped
)

// Cancel is the result of the import "cancelled".
type Cancel int32

// The reasons of a cancellation.
const (
	CancelNone         Cancel = 0
	CancelRequested    Cancel = 1
	CancelDeadlineNear Cancel = 2
	CancelLeaseLost    Cancel = 3 // reserved
)

// Errno is a WASI error number. Functions return it negated.
type Errno int32

// Errors of the functions of wheelwork_v1.
const (
	ErrnoAgain      Errno = 6  // the service was not available; a later call may succeed
	ErrnoBadHandle  Errno = 8  // no such handle
	ErrnoCancelled  Errno = 11 // the attempt was cancelled, or its deadline passed, while the call waited
	ErrnoQuota      Errno = 19 // the attempt has used up its number of calls
	ErrnoConflict   Errno = 20 // the entry has another version
	ErrnoInvalid    Errno = 28 // an argument is not valid
	ErrnoIO         Errno = 29 // the service failed
	ErrnoHandles    Errno = 33 // the attempt has too many open handles
	ErrnoNoEntry    Errno = 44 // no such parameter, key, secret or checkpoint
	ErrnoNoSys      Errno = 52 // this host does not have the service
	ErrnoOverflow   Errno = 61 // a limit was exceeded
	ErrnoNotGranted Errno = 76 // the module has no grant for it
)

// Levels of the import "log".
const (
	LogDebug = 0
	LogInfo  = 1
	LogWarn  = 2
	LogError = 3
)

// Kinds of the import "metric_add".
const (
	MetricCounter   = 0
	MetricGauge     = 1
	MetricHistogram = 2
)

// AnyVersion is -1, as the expected version of kv_cas and kv_delete. It matches every
// version, and also a missing value.
const AnyVersion = -1
