package host

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// This file takes modules out of the host again: those that the server says
// nothing refers to any more, and those whose bytes had to leave the cache.
// Machine code is several times as large as the module it was made from, so a
// host that only ever loads ends with more of it than it has work.

// unloader is an engine that can forget a module. Tasks of it that run go on.
type unloader interface {
	Unload(ctx context.Context, digest string) error
}

// interpreters is an engine that runs scripts with other modules.
type interpreters interface {
	InterpreterOf(digest string) string // "": it is no loaded script
}

// uses is what of the modules that are loaded was used. The zero value is empty.
type uses struct {
	since sync.Map // by digest: *atomic.Bool, used since it was last asked
}

// mark notes that a module is used now. It is called for each task.
func (u *uses) mark(digest string) {
	used, ok := u.since.Load(digest)
	if !ok {
		used, _ = u.since.LoadOrStore(digest, new(atomic.Bool))
	}
	if b := used.(*atomic.Bool); !b.Load() {
		b.Store(true)
	}
}

// each calls f for every module that was used, and whether that was since the
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
		h.cfg.Modules.Touch(digest) // the file was read once, when it was loaded
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

// unloaded reports whether a task found its module gone: it was unloaded between
// the look and the start.
func unloaded(r runtime.Result) bool {
	return r.Outcome == runtime.HostError && r.Code == codeNotLoaded
}

// codeNotLoaded is what engines say of a task whose module is not loaded.
const codeNotLoaded = "not_loaded"
