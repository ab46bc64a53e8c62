package fault

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/history"
)

// service is what handlers call. It is outside of the cluster, so it remembers
// every execution, whatever becomes of the cluster.
type service struct {
	ln net.Listener

	mu    sync.Mutex
	calls []history.Execution
	now   map[string]int // executions under way, by job
	done  map[string]int // that came to their end
	gate  chan struct{}  // "/held" answers when it is closed
}

func newService(t testing.TB) *service {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{ln: ln, now: map[string]int{}, done: map[string]int{}, gate: make(chan struct{})}
	server := &http.Server{Handler: s}
	go server.Serve(ln)                  //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() }) //nolint:errcheck // hosts may hold connections
	return s
}

func (s *service) address() string { return s.ln.Addr().String() }

// ServeHTTP works as the path says: "/quick" at once, "/slow" for seconds,
// "/flaky" fails the first attempts of some runs, "/held" until the gate opens.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run, job := r.Header.Get("Wheelwork-Run"), r.URL.Path
	number, err := strconv.Atoi(r.Header.Get("Wheelwork-Attempt"))
	if err != nil || run == "" {
		http.Error(w, "no attempt of a run", http.StatusBadRequest)
		return
	}
	io.Copy(io.Discard, r.Body) //nolint:errcheck // the server notices the caller's end only when the body was read
	s.mu.Lock()
	i := len(s.calls)
	s.calls = append(s.calls, history.Execution{Run: run, Attempt: number})
	s.now[job]++
	s.mu.Unlock()
	done := s.work(r.Context(), job, run)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[job]--
	switch {
	case !done:
		panic(http.ErrAbortHandler) // the host has gone
	case job == "/flaky" && number <= int(luck(run)%3):
		http.Error(w, "not this time", http.StatusServiceUnavailable)
	default:
		s.done[job]++
		s.calls[i].Token = fmt.Sprintf("%s/%d/%d", run, number, i)
		fmt.Fprint(w, s.calls[i].Token) //nolint:errcheck // whether the host hears it is not ours to know
	}
}

// work reports whether the work came to its end.
func (s *service) work(ctx context.Context, job, run string) bool {
	d := time.Duration(luck(run)%20) * time.Millisecond
	switch job {
	case "/slow":
		d = time.Duration(1000+luck(run)%4000) * time.Millisecond
	case "/held":
		select {
		case <-s.gate:
		case <-ctx.Done():
		}
		d = 0
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return ctx.Err() == nil
	}
}

// luck is a number that belongs to a run.
func luck(run string) uint32 {
	h := fnv.New32a()
	io.WriteString(h, run) //nolint:errcheck // it cannot fail
	return h.Sum32()
}

func (s *service) executions() []history.Execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]history.Execution(nil), s.calls...)
}

func (s *service) running(job string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now[job]
}

func (s *service) ended(job string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done[job]
}
