package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/modules/transfer"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// This file brings modules to the host: it caches their bytes, checks their signatures,
// prefetches modules for the server, and reports their states to the server.

const (
	// defaultModuleBytes bounds the cache of modules on disk.
	defaultModuleBytes = 1 << 30
	// maxModules bounds each list of the module table, in modules. The host checks or
	// reports a module again after its entry was dropped.
	maxModules = 4096
)

// want names a module and the app that needs it.
type want struct {
	app    string
	digest string
	trust  string // see apiv1.Task
}

// moduleTable has the state of each module in the host.
type moduleTable struct {
	kick chan struct{} // capacity 1: ahead has an entry

	mu      sync.Mutex
	states  map[string]*apiv1.ModuleState // by digest
	checked map[want]bool                 // the modules with sufficient signatures
	ahead   []want                        // to prefetch; invariant: no entry twice
	now     string                        // digest of the module that loadAhead loads; "" after it was unloaded
}

func newModuleTable() *moduleTable {
	return &moduleTable{kick: make(chan struct{}, 1), states: map[string]*apiv1.ModuleState{}, checked: map[want]bool{}}
}

// prefetch queues the modules that the server wants to have loaded before their first task.
func (h *Host) prefetch(asked []*apiv1.Prefetch) {
	s := h.modules
	s.mu.Lock()
	for _, p := range asked {
		w := want{p.App, p.Digest, p.Trust}
		if len(s.ahead) < maxModules && !slices.Contains(s.ahead, w) {
			s.ahead = append(s.ahead, w)
		}
	}
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// loadAhead loads the queued modules one at a time: a compiler uses all processors,
// and running tasks need some of them.
func (h *Host) loadAhead(ctx context.Context) {
	s := h.modules
	for {
		s.mu.Lock()
		var w want
		if len(s.ahead) > 0 {
			w = s.ahead[0]
			s.ahead = s.ahead[1:]
		}
		s.now = w.digest
		s.mu.Unlock()
		if w == (want{}) {
			select {
			case <-s.kick:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := h.load(ctx, w)
		s.mu.Lock()
		dropped := s.now == ""
		s.mu.Unlock()
		if dropped { // unloaded while it was loading
			h.unload([]string{w.digest})
			continue
		}
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			h.report(&apiv1.ModuleState{Digest: w.digest, State: "failed", Error: err.Error()})
			h.cfg.Logger.Warn("a module could not be loaded ahead", "app", w.app, "digest", w.digest, "error", err)
			continue
		}
		h.reportLoaded(w.digest)
	}
}

// report sends the new state of a module to the server.
func (h *Host) report(m *apiv1.ModuleState) {
	s := h.modules
	s.mu.Lock()
	if s.states[m.Digest] == nil && len(s.states) >= maxModules {
		clear(s.states)
	}
	s.states[m.Digest] = m
	s.mu.Unlock()
	h.tell(m)
}

// reportLoaded reports that a module is ready, unless it has been reported.
func (h *Host) reportLoaded(digest string) {
	s := h.modules
	s.mu.Lock()
	known := s.states[digest].GetState() == "ready"
	s.mu.Unlock()
	if !known {
		h.report(&apiv1.ModuleState{Digest: digest, State: "ready"})
	}
}

// all returns the states of all modules, for a new stream.
func (s *moduleTable) all() []*apiv1.ModuleState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.states))
}

// errNotSigned is wrapped by every refusal of a module because of its signatures.
var errNotSigned = modules.ErrNotSigned

// load makes a module ready, from the cache or from the server. A module without
// sufficient signatures is not compiled, and not run if it is already loaded.
func (h *Host) load(ctx context.Context, w want) error {
	if w.digest == "" {
		if h.cfg.Engine.Loaded("") { // the engine executes such handlers itself; without bytes there is nothing to sign
			return nil
		}
		return errors.New("the handler names no module, but this host runs only modules")
	}
	if err := h.checkSigned(ctx, func() apiv1.WorkerClient { return h.client(w.app) }, w); err != nil {
		return err
	}
	h.uses.mark(w.digest)
	if h.cfg.Engine.Loaded(w.digest) {
		return nil
	}
	return h.fetch.do(ctx, w.digest, func(ctx context.Context) error {
		start := time.Now()
		h.report(&apiv1.ModuleState{Digest: w.digest, State: "compiling"})
		err := h.fetchAndLoad(ctx, w)
		m := &apiv1.ModuleState{Digest: w.digest, State: "ready", TookMs: time.Since(start).Milliseconds()}
		if err != nil {
			m.State, m.Error = "failed", err.Error()
		}
		h.report(m)
		return err
	})
}

func (h *Host) fetchAndLoad(ctx context.Context, w want) error {
	digest := w.digest
	code, err := h.cfg.Modules.Get(digest)
	switch {
	case err == nil:
		h.cfg.Modules.Touch(digest)
	case !errors.Is(err, modules.ErrNotFound):
		h.cfg.Logger.Warn("a module of the cache cannot be used and is fetched again", "digest", digest, "error", err)
		if err := h.cfg.Modules.Remove(digest); err != nil {
			return err
		}
		fallthrough
	default:
		if code, err = h.download(ctx, w.app, digest); err != nil {
			return err
		}
		if err := h.cache(digest, code); err != nil {
			h.cfg.Logger.Warn("a module could not be cached", "digest", digest, "error", err)
		}
	}
	err = h.cfg.Engine.Load(ctx, digest, code)
	var needs *runtime.NeedsError
	if !errors.As(err, &needs) || needs.Digest == digest {
		return err
	}
	// The module is a script. Its interpreter is a module that needs no interpreter. The
	// script contains the digest of its interpreter, so a signature of the script covers
	// the interpreter as well.
	h.uses.mark(needs.Digest)
	err = h.fetch.do(ctx, needs.Digest, func(ctx context.Context) error {
		if h.cfg.Engine.Loaded(needs.Digest) {
			return nil
		}
		return h.fetchAndLoad(ctx, want{app: w.app, digest: needs.Digest})
	})
	if err != nil {
		return fmt.Errorf("its interpreter: %w", err)
	}
	h.reportLoaded(needs.Digest)
	return h.cfg.Engine.Load(ctx, digest, code)
}

// cache puts a module into the cache and evicts the least recently used modules if the
// cache is too large.
func (h *Host) cache(digest string, code []byte) error {
	if _, err := h.cfg.Modules.Put(code); err != nil {
		return err
	}
	return h.trim(digest)
}

// checkSigned verifies the signatures of a module if its app or the operator of this
// host requires them. The host verifies them itself, so that a compromised server
// cannot make it run other bytes.
func (h *Host) checkSigned(ctx context.Context, server func() apiv1.WorkerClient, w want) error {
	if w.trust == "" && len(h.cfg.TrustedKeys) == 0 {
		return nil
	}
	s := h.modules
	s.mu.Lock()
	good := s.checked[w]
	s.mu.Unlock()
	if good {
		return nil
	}
	client := server()
	if client == nil {
		return errors.New("no server is connected to ask for its signatures")
	}
	proof, err := client.GetModuleProof(ctx, &apiv1.GetModuleProofRequest{App: w.app, Digest: w.digest})
	if err != nil {
		return fmt.Errorf("ask for its signatures: %w", err)
	}
	signatures := make([]modules.Signature, len(proof.Signatures))
	for i, x := range proof.Signatures {
		signatures[i] = modules.Signature{Key: x.GetKey(), Signature: x.GetSignature()}
	}
	if proof.Required {
		if err := modules.Trusted(w.digest, signatures, proof.Keys); err != nil {
			return fmt.Errorf("app %s: %w: sign it with `wheelwork module sign`", w.app, err)
		}
	}
	if len(h.cfg.TrustedKeys) > 0 {
		if err := modules.Trusted(w.digest, signatures, h.cfg.TrustedKeys); err != nil {
			return fmt.Errorf("this host accepts only modules that its operator's keys have signed: %w", err)
		}
	}
	if proof.Required && modules.TrustID(proof.Keys) != w.trust || !proof.Required && w.trust != "" {
		return nil // the app's keys changed after the task was sent; do not cache: the next task names the new keys
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.checked) >= maxModules {
		clear(s.checked)
	}
	s.checked[w] = true
	return nil
}

func (h *Host) download(ctx context.Context, app, digest string) ([]byte, error) {
	client := h.client(app)
	if client == nil {
		return nil, errors.New("no server is connected to fetch it from")
	}
	code, err := transfer.Fetch(ctx, client, digest)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	return code, nil
}
