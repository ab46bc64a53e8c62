package host

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// Sometimes is an executor that is not always available: the program that it needs may be
// down. While it is down, the server sends this host no tasks for it.
type Sometimes interface {
	runtime.Executor
	// Up reports whether the executor can run the handlers of this name now; for the key
	// "plugin:NAME" the name is NAME.
	Up(name string) bool
	// Watch replaces the function that is called after each change of Up.
	Watch(f func())
}

// Restricted is an executor that only some apps may use. The server sends this host no
// tasks for it of other apps.
type Restricted interface {
	runtime.Executor
	// Apps returns the apps that may use the handlers of this name, as for [Sometimes];
	// nil: all.
	Apps(name string) []string
}

// abilities returns what the host can run now, in the format of Hello.abi.
func (h *Host) abilities() []string {
	abi := slices.Clone(h.cfg.ABI)
	for _, key := range slices.Sorted(maps.Keys(h.cfg.Others)) {
		_, name, _ := strings.Cut(key, ":")
		if x, ok := h.cfg.Others[key].(Sometimes); ok && !x.Up(name) {
			continue
		}
		if x, ok := h.cfg.Others[key].(Restricted); ok && len(x.Apps(name)) > 0 {
			for _, app := range x.Apps(name) {
				abi = append(abi, job.ForApp(key, app))
			}
			continue
		}
		abi = append(abi, key)
	}
	return abi
}

// watchOthers reports each change of the abilities to the server.
func (h *Host) watchOthers() {
	var one sync.Mutex // orders the calls: the last report has the latest state
	tell := func() {
		one.Lock()
		defer one.Unlock()
		h.worker.Abilities(h.abilities())
	}
	for _, x := range h.cfg.Others {
		if x, ok := x.(Sometimes); ok {
			x.Watch(tell)
		}
	}
	tell() // reports a change that was before the calls of Watch
}
