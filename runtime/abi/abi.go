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

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"
)

// WIT is the text of wheelwork.wit.
//
//go:embed wheelwork.wit
var WIT string

// Names that a module imports and exports.
const (
	ImportModule    = "wheelwork_v1"
	ExportHandle    = "wheelwork_handle"   // (handler i32) -> status i32
	ExportRun       = "wheelwork_run"      // (handler i32) -> status i32, optional: a batch of tasks in one call
	ExportDescribe  = "wheelwork_describe" // () -> (), optional: writes the manifest with output_write
	ExportInit      = "_initialize"        // () -> (), optional, once per instance
	ExportStart     = "_start"             // () -> (): a WASI command
	ExportMemory    = "memory"
	ManifestSection = "wheelwork.manifest" // custom section, JSON: {"handlers":[{"name":"main"},…]}
	DefaultHandler  = "main"
)

// Minor is the newest minor version that this code serves. A function that was
// added later than 1.0 is in a list below.
const Minor = 1

// Version names a minor version, as hosts advertise it and modules need it.
func Version(minor int) string { return ImportModule + "." + strconv.Itoa(minor) }

// Served is what a host that runs this code advertises.
func Served() []string { return []string{"wasi-p1", Version(Minor)} }

// Serves says whether a host that advertises served can run what needs need: a
// minor version includes those before it.
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

// Since returns the minor version with which a function came.
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

// What job_next returns.
const (
	NextNone  = 0 // none within the timeout; there may be more later
	NextReady = 1
	NextEnd   = 2 // the batch is over: return from wheelwork_run
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
	ErrnoAgain      Errno = 6  // a service could not be reached, or not now; a later try may help
	ErrnoBadHandle  Errno = 8  // no such handle
	ErrnoCancelled  Errno = 11 // the attempt was cancelled, or its deadline passed, while the call waited
	ErrnoQuota      Errno = 19 // more calls than the attempt may make
	ErrnoConflict   Errno = 20 // the entry has another version
	ErrnoInvalid    Errno = 28 // an argument that makes no sense
	ErrnoIO         Errno = 29 // a service failed
	ErrnoHandles    Errno = 33 // more open handles than the attempt may have
	ErrnoNoEntry    Errno = 44 // no such parameter, key, secret or checkpoint
	ErrnoNoSys      Errno = 52 // this host does not serve it
	ErrnoOverflow   Errno = 61 // more than a limit allows
	ErrnoNotGranted Errno = 76 // the module was not granted it
)

// Log levels of the import "log".
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

// AnyVersion, as the expected version of kv_cas and kv_delete, is -1: any, and none too.
const AnyVersion = -1
