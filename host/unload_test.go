package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// forgetful is an engine that can unload modules and has scripts.
type forgetful struct {
	mu     sync.Mutex
	have   map[string]bool
	script map[string]string // by digest: the interpreter of a script
	loads  []string
	gone   []string
	hold   chan struct{} // loads wait for it; nil: they do not wait
	runs   func(e *forgetful, t runtime.Task) runtime.Result
}

func (e *forgetful) Load(_ context.Context, digest string, _ []byte) error {
	if e.hold != nil {
		<-e.hold
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.have == nil {
		e.have = map[string]bool{}
	}
	if e.script[digest] != "" && !e.have[e.script[digest]] {
		return &runtime.NeedsError{Digest: e.script[digest]}
	}
	e.loads, e.have[digest] = append(e.loads, digest), true
	return nil
}

func (e *forgetful) Loaded(digest string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.have[digest]
}

func (e *forgetful) Unload(_ context.Context, digest string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.have[digest] {
		e.gone = append(e.gone, digest)
	}
	delete(e.have, digest)
	return nil
}

func (e *forgetful) InterpreterOf(digest string) string { return e.script[digest] }

func (e *forgetful) Run(_ context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
	return e.runs(e, t)
}

// TestUnload checks that the host removes a module at the server's request: its compiled
// form, its bytes, and its state in the report on a new stream.
func TestUnload(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		e := &forgetful{}
		stop := b.start(func(c *Config) { c.Engine = e })
		<-b.server.hello
		digest := modules.Digest(b.server.code)
		b.server.down <- &apiv1.WorkDown{Prefetch: []*apiv1.Prefetch{{App: "a", Digest: digest}}}
		b.server.heard("ready")
		b.server.down <- &apiv1.WorkDown{Unload: []string{digest, "sha256:none", "../../etc", modules.Digest([]byte("never here"))}}
		synctest.Wait()
		if e.Loaded(digest) {
			t.Error("the compiled form is still there")
		}
		if _, err := os.Stat(filepath.Join(b.dir, "modules", "sha256", digest[7:9], digest[7:])); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the bytes are still there: %v", err)
		}
		b.server.end <- struct{}{}
		<-b.server.hello
		if m := <-b.server.up; len(m.Modules) != 0 {
			t.Errorf("a new stream is told of %v", m.Modules)
		}
		b.server.down <- &apiv1.WorkDown{Unload: []string{digest}, Prefetch: []*apiv1.Prefetch{{App: "a", Digest: digest}}}
		b.server.heard("ready") // it can be loaded again, even by the message that unloads it
		if !e.Loaded(digest) {
			t.Error("a module that came back is not loaded")
		}
		stop()
	})
}

// TestUnloadWhileItLoads: the server unloads a module that the host is loading.
func TestUnloadWhileItLoads(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		hold := make(chan struct{})
		e := &forgetful{hold: hold}
		stop := b.start(func(c *Config) { c.Engine = e })
		<-b.server.hello
		digest := modules.Digest(b.server.code)
		b.server.down <- &apiv1.WorkDown{Prefetch: []*apiv1.Prefetch{{App: "a", Digest: digest}}}
		synctest.Wait() // it compiles
		b.server.down <- &apiv1.WorkDown{Unload: []string{digest}}
		synctest.Wait()
		close(hold)
		synctest.Wait()
		if len(e.loads) != 1 || e.Loaded(digest) {
			t.Errorf("loaded %v; the module is there: %v", e.loads, e.Loaded(digest))
		}
		stop()
	})
}

// TestWhatLeavesTheCacheIsUnloaded checks that the least recently used module is evicted
// with its compiled form, and that an interpreter stays as long as its scripts do.
func TestWhatLeavesTheCacheIsUnloaded(t *testing.T) {
	store, err := modules.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	code := func(n byte) []byte { return bytes.Repeat([]byte{n}, 1000) }
	digest := func(n byte) string { return modules.Digest(code(n)) }
	e := &forgetful{script: map[string]string{digest(2): digest(1)}}
	h := &Host{cfg: Config{Modules: store, Engine: e, ModuleBytes: 4500}, modules: newModuleTable(), tell: func(*apiv1.ModuleState) {}}
	use := func(n byte) {
		t.Helper()
		if !store.Has(digest(n)) { // as if a server sent it
			if err := h.cache(digest(n), code(n)); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.load(t.Context(), want{digest: digest(n)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Put(code(1)); err != nil { // the interpreter
		t.Fatal(err)
	}
	for _, n := range []byte{2, 3, 4} {
		use(n)
	}
	// The cache is full with these four. The script is used all the time, the third
	// module is not.
	use(2)
	use(4)
	use(5)
	if got := []bool{e.Loaded(digest(1)), e.Loaded(digest(2)), e.Loaded(digest(3)), e.Loaded(digest(4)), e.Loaded(digest(5))}; !slices.Equal(got, []bool{true, true, false, true, true}) {
		t.Errorf("loaded are %v, want all but the third", got)
	}
	if store.Has(digest(3)) || h.modules.states[digest(3)] != nil {
		t.Error("the third module is still in the cache, or said to be ready")
	}
	use(3) // it is loaded again when it is needed
	if !e.Loaded(digest(3)) {
		t.Error("the third module cannot come back")
	}
}

// TestTaskWhoseModuleIsUnloadedMeanwhile checks that such a task loads its module again
// without an attempt being lost.
func TestTaskWhoseModuleIsUnloadedMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		digest := modules.Digest(b.server.code)
		missing := runtime.Result{Outcome: runtime.HostError, Code: codeNotLoaded, Error: "not loaded"}
		times := 2
		e := &forgetful{runs: func(e *forgetful, task runtime.Task) runtime.Result {
			if times--; times >= 0 {
				if err := e.Unload(t.Context(), task.Digest); err != nil {
					t.Error(err)
				}
				return missing
			}
			return runtime.Result{Outcome: runtime.Succeeded, Output: task.Input}
		}}
		stop := b.start(func(c *Config) { c.Engine, c.Slots = e, 1 })
		<-b.server.hello
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{aTask(1)}}
		if r := b.server.results().Results[0]; r.Outcome != apiv1.Outcome_OUTCOME_SUCCEEDED {
			t.Errorf("the task ended with %v", r)
		}
		if !slices.Equal(e.loads, []string{digest, digest, digest}) {
			t.Errorf("loaded %v, want three times", e.loads)
		}
		times = 1000 // the retries are bounded if the engine never has the module
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{aTask(2)}}
		if r := b.server.results().Results[0]; r.Code != codeNotLoaded {
			t.Errorf("the task ended with %v", r)
		}
		stop()
	})
}
