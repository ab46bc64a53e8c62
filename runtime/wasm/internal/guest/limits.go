package guest

import (
	"math"
	"time"
)

// Defaults of runtime.Limits.
const (
	defaultOutputBytes = 1 << 20
	defaultLogBytes    = 1 << 20
	defaultLogLines    = 20_000
	defaultLogRate     = 2000
	defaultCalls       = 100_000
)

// progressEvery is the minimum time between two progress reports to the sink.
const progressEvery = 100 * time.Millisecond

// unlimited is the fuel of a task without a limit: no guest runs long enough to use it up.
const unlimited = math.MaxInt64

// Bounds of a slice: the number of units (about one instruction each) that a guest runs
// between two ticks. The slice adapts to sliceTime, because a unit takes from 0.3 ns up to
// a hundred times as long when every load misses the caches.
const (
	firstSlice = 50_000
	minSlice   = 5_000
	maxSlice   = 1_000_000
	sliceTime  = 200 * time.Microsecond
)

const (
	// cancelGrace is how long a handler may continue after a cancel, so that a handler that
	// polls for cancellation can return by itself.
	cancelGrace = 3 * time.Millisecond
	// deadlineNear is the time before the deadline from which "cancelled" warns the guest.
	deadlineNear = time.Second
	// longSleep is the longest sleep during which a guest retains its execution slot of the
	// host. For a shorter sleep it costs more to run another task than to wait.
	longSleep = 50 * time.Millisecond
)

// orDefault returns the value of a limit; 0 means the default.
func orDefault(v, def int64) int64 {
	if v <= 0 {
		return def
	}
	return v
}
