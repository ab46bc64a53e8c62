package wasm

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/memory"
)

// TestAllGuestsShareTheMemory checks that the memory budget bounds all guests together.
func TestAllGuestsShareTheMemory(t *testing.T) {
	e := newEngine(t, Config{MaxTotalBytes: 8 << 20, MaxPoolBytes: 64 << 20})
	grow := load(t, e, withHandlers(fixture(t, "memory"), "main", "fill"))
	small := load(t, e, withHandlers(fixture(t, "host"), hostHandlers...))
	echo := func(app string) runtime.Result {
		return e.Run(context.Background(), runtime.Task{App: app, Digest: small, Handler: "echo", Input: []byte("x"), Deadline: within(20 * time.Second)}, &recorder{})
	}
	for i := range 100 { // more than fit: the instance that has been idle longest is closed
		if r := echo(fmt.Sprint(i)); r.Outcome != runtime.Succeeded {
			t.Fatalf("app %d: %+v", i, r)
		}
	}
	if n := idle(e); n < 10 || n > 64 {
		t.Errorf("%d instances of 128 KiB wait in 8 MiB", n)
	}
	r := e.Run(context.Background(), runtime.Task{Digest: grow, Limits: runtime.Limits{MemoryBytes: 64 << 20}}, &recorder{})
	if got := u32(t, r.Output); got != 128 {
		t.Errorf("one guest got %d pages, want all 128, those that waited give way: %+v", got, r)
	}
	if n := idle(e); n != 0 {
		t.Errorf("%d instances wait still", n)
	}
	if used := e.host.Memory.Used(); used != 0 {
		t.Errorf("%d bytes are counted when nobody has any", used)
	}
	// Other instances use nearly all memory.
	const most = 8<<20 - 100<<10
	others := (&memory.Allocator{Limit: most, Budget: e.host.Memory}).Allocate(0, most)
	others.Reallocate(most)
	r = echo("late")
	if r.Outcome != runtime.HostError || r.Code != "instantiate" || !strings.Contains(r.Error, "that they share") {
		t.Errorf("without memory: %+v", r)
	}
	r = e.Run(context.Background(), runtime.Task{Digest: grow, Limits: runtime.Limits{MemoryBytes: 64 << 20}}, &recorder{})
	if got := u32(t, r.Output); got != 1 {
		t.Errorf("a guest got %d pages of 100 KiB: %+v", got, r)
	}
	others.Free()
	if r = echo("late"); r.Outcome != runtime.Succeeded {
		t.Errorf("with memory again: %+v", r)
	}
}

// TestWhatIsCountedIsThere checks that after many guests with different ends, the counted
// memory is that of the idle instances.
func TestWhatIsCountedIsThere(t *testing.T) {
	e := newEngine(t, Config{MaxTotalBytes: 4 << 20, MaxPoolBytes: 2 << 20})
	host := load(t, e, withHandlers(fixture(t, "host"), hostHandlers...))
	grow := load(t, e, withHandlers(fixture(t, "memory"), "main", "fill"))
	bad := load(t, e, fixture(t, "badstart"))
	command := load(t, e, fixture(t, "exit"))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 60 {
				task := runtime.Task{App: fmt.Sprint(n % 7), Digest: []string{host, grow, bad, command, host}[(i+n)%5], Deadline: within(20 * time.Second)}
				if task.Digest == host {
					task.Handler = []string{"echo", "trap", "grow"}[n%3]
				}
				e.Run(context.Background(), task, &recorder{})
			}
		})
	}
	wg.Wait()
	e.pool.mu.Lock()
	waiting := e.pool.bytes
	e.pool.mu.Unlock()
	if used, want := e.host.Memory.Used(), waiting-int64(idle(e))*instanceOverhead; used != want {
		t.Errorf("%d bytes are counted, %d wait", used, want)
	}
	if err := e.pool.close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if used := e.host.Memory.Used(); used != 0 {
		t.Errorf("%d bytes are counted when there are no instances", used)
	}
}
