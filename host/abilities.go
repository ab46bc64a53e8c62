package host

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// Sometimes is an executor that cannot always run what it is for: the program
// behind it may be down. Such a host is sent nothing for it meanwhile.
type Sometimes interface {
	runtime.Executor
	// Up says whether what has this name can run now; of "plugin:NAME" it is NAME.
	Up(name string) bool
	// Watch has f called when that has changed, and forgets who was called before.
	Watch(f func())
}

// abilities are what the host runs now, in the words of Hello.abi.
func (h *Host) abilities() []string {
	abi := slices.Clone(h.cfg.ABI)
	for _, key := range slices.Sorted(maps.Keys(h.cfg.Others)) {
		if x, ok := h.cfg.Others[key].(Sometimes); ok {
			if _, name, _ := strings.Cut(key, ":"); !x.Up(name) {
				continue
			}
		}
		abi = append(abi, key)
	}
	return abi
}

// watchOthers tells the server when what the host runs has changed.
func (h *Host) watchOthers() {
	var one sync.Mutex // the last call tells the last state
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
	tell() // what has changed before anybody watched
}
