package wasm

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	scripts "github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/codecache"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/inspect"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/lines"
)

// A module is a compiled module.
type module struct {
	info       inspect.Info
	compiled   wazero.CompiledModule
	globals    []string                  // names of the exports of its mutable globals
	marks      *marks                    // nil: the module has no dirty bits
	runs       bool                      // it exports the function that takes batches
	resettable bool                      // memory and globals are all the state that a call changes
	gone       bool                      // it was unloaded; guarded by the pool's lock
	last       atomic.Pointer[idleStack] // the stack used last, because most tasks of a module are of one app
	grants     atomic.Pointer[granted]
	script     *scripts.Script       // the script that an interpreter runs; nil: the module is no script
	image      atomic.Pointer[image] // state after _initialize; nil until an instance has reached it
	files      codecache.Held        // files of the compile cache that are held while the module is loaded
	lines      *lines.Table          // source lines of its code; nil: unknown
	stubs      *hostabi.Stubs        // implements the optional imports that wheelwork_v1 lacks; nil: none is missing
}

// sharedTasks is the number of tasks that an instance runs when it is never reset, which
// bounds leaks in the guest.
const sharedTasks = 10_000

// reuse determines how an instance is reused after a task: as the module asks, or fresh if
// its state cannot be reset.
func (m *module) reuse() manifest.Reuse {
	switch want := m.info.Manifest.Reuse; {
	case want == manifest.ReuseShared, want == manifest.ReuseFresh:
		return want
	case !m.resettable:
		return manifest.ReuseFresh
	}
	return manifest.ReuseReset
}

// granted caches the key of the last grants: computing it takes longer than a task, and the
// tasks of a module and app share one Grants value.
type granted struct {
	grants *runtime.Grants
	key    string
}

// grantKey returns equal keys for equal grants.
func (m *module) grantKey(g *runtime.Grants) string {
	if g == nil {
		return ""
	}
	if last := m.grants.Load(); last != nil && last.grants == g {
		return last.key
	}
	text, err := json.Marshal(g)
	if err != nil {
		panic(fmt.Sprintf("wasm: grants have no JSON: %v", err)) // cannot happen: grants are strings and numbers
	}
	sum := sha256.Sum256(text)
	m.grants.Store(&granted{g, string(sum[:])})
	return string(sum[:])
}

// bound applies the limits of the module's manifest for a handler to the task, where the
// task has no limit or a larger one.
func (m *module) bound(t *runtime.Task, index int) {
	h := m.limits(index)
	if h.none() {
		return
	}
	t.Limits.MemoryBytes = smaller(t.Limits.MemoryBytes, h.MemoryMiB<<20)
	t.Limits.Fuel = smaller(t.Limits.Fuel, h.Fuel)
	if h.TimeoutMs > 0 {
		if latest := time.Now().Add(h.timeout()); t.Deadline.IsZero() || t.Deadline.After(latest) {
			t.Deadline = latest
		}
	}
}

// smaller returns the smaller of two limits; 0 means no limit.
func smaller(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// handlerLimits are the limits of a handler in its module's manifest.
type handlerLimits struct{ *manifest.Handler }

func (h handlerLimits) none() bool { return h.MemoryMiB == 0 && h.Fuel == 0 && h.TimeoutMs == 0 }

func (h handlerLimits) timeout() time.Duration { return time.Duration(h.TimeoutMs) * time.Millisecond }

// limits returns the manifest's limits of a handler; zero limits if the manifest names
// none.
func (m *module) limits(index int) handlerLimits {
	if h := m.info.Manifest.Handlers; index < len(h) {
		return handlerLimits{&h[index]}
	}
	return handlerLimits{&manifest.Handler{}}
}

func (m *module) batches(handler string) bool {
	if !m.runs {
		return false
	}
	for _, h := range m.info.Manifest.Handlers {
		if h.Name == handler {
			return h.Batch
		}
	}
	return false
}
