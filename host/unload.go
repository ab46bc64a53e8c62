package host

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// This file removes modules from the host: those that no job refers to, as the server
// reports, and those that the cache evicts. Machine code is several times as large as its
// module, so a host that never unloads would in the end hold much more machine code than
// it uses.

// unloader is an engine that can unload a module. Running tasks of the module continue.
type unloader interface {
	Unload(ctx context.Context, digest string) error
}

// interpreters is an engine that runs scripts in other modules.
type interpreters interface {
	InterpreterOf(digest string) string // "": it is no loaded script
}

// uses records which modules were used. The zero value is empty.
type uses struct {
	since sync.Map // by digest: *atomic.Bool, true if used since the last call of each
}

// mark records that a module is used now. It is called for each task.
func (u *uses) mark(digest string) {
	used, ok := u.since.Load(digest)
	if !ok {
		used, _ = u.since.LoadOrStore(digest, new(atomic.Bool))
	}
	if b := used.(*atomic.Bool); !b.Load() {
		b.Store(true)
	}
}

// each calls f for every module in u, with lately true if the module was used since the
// last call.
func (u *uses) each(f func(digest string, lately bool)) {
	u.since.Range(func(digest, used any) bool {
		f(digest.(string), used.(*atomic.Bool).Swap(false))
		return true
	})
}

func (u *uses) forget(digest string) { u.since.Delete(digest) }

// unload drops the modules that no job refers to, as the server reports: their compiled
// form, their bytes and their entries in the module table.
func (h *Host) unload(digests []string) {
	s := h.modules
	for _, digest := range digests {
		s.mu.Lock()
		delete(s.states, digest)
		if s.now == digest {
			s.now = ""
		}
		maps.DeleteFunc(s.checked, func(w want, _ bool) bool { return w.digest == digest })
		s.ahead = slices.DeleteFunc(s.ahead, func(w want) bool { return w.digest == digest })
		s.mu.Unlock()
		h.forget(digest)
		if err := h.cfg.Modules.Remove(digest); err != nil {
			h.cfg.Logger.Warn("a module that nothing refers to could not be removed", "digest", digest, "error", err)
			continue
		}
		h.cfg.Logger.Info("a module that nothing refers to was removed", "digest", digest)
	}
}

// forget drops the compiled form of a module.
func (h *Host) forget(digest string) {
	h.uses.forget(digest)
	engine, ok := h.cfg.Engine.(unloader)
	if !ok {
		return
	}
	if err := engine.Unload(context.Background(), digest); err != nil {
		h.cfg.Logger.Warn("a module could not be unloaded", "digest", digest, "error", err)
	}
}

// trim bounds the cache of modules. It also unloads the modules that the cache evicts,
// which are the least recently used ones.
func (h *Host) trim(keep string) error {
	scripts, _ := h.cfg.Engine.(interpreters)
	h.uses.each(func(digest string, lately bool) {
		if !lately {
			return
		}
		h.cfg.Modules.Touch(digest) // a loaded module is used without a read of its file
		if scripts != nil {
			if i := scripts.InterpreterOf(digest); i != "" {
				h.cfg.Modules.Touch(i)
			}
		}
	})
	_, err := h.cfg.Modules.Trim(h.cfg.ModuleBytes, func(d string) bool { return d == keep })
	h.uses.each(func(digest string, lately bool) {
		if digest == keep || h.cfg.Modules.Has(digest) {
			if lately {
				h.uses.mark(digest)
			}
			return
		}
		h.forget(digest)
		s := h.modules
		s.mu.Lock()
		delete(s.states, digest)
		s.mu.Unlock()
	})
	return err
}

// maxReloads bounds how often a task loads its module again.
const maxReloads = 3

// unloaded reports whether a task did not find its module: the module was unloaded
// between its check and the start of the task.
func unloaded(r runtime.Result) bool {
	return r.Outcome == runtime.HostError && r.Code == codeNotLoaded
}

// codeNotLoaded is the code of the result of an engine for a task whose module is not
// loaded.
const codeNotLoaded = "not_loaded"
