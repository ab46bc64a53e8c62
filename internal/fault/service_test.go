package fault

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/history"
)

// service is the service that handlers call. It is outside the cluster, so it remembers
// every execution, whatever happens to the cluster.
type service struct {
	doors []net.Listener // a host has at most 64 concurrent calls to each

	mu    sync.Mutex
	calls []history.Execution
	now   map[string]int // current executions, by job
	done  map[string]int // finished executions, by job
	gate  chan struct{}  // "/held" answers when it is closed
	begun []time.Time    // the start of each call
	jobs  []string       // the job of each call, with its app
	last  time.Time      // when the last short call finished
	pause time.Duration  // the longest time in which no short call finished, see longest
}

func newService(t testing.TB) *service {
	t.Helper()
	s := &service{now: map[string]int{}, done: map[string]int{}, gate: make(chan struct{}), last: time.Now()}
	server := &http.Server{Handler: s}
	for range 10 { // so one host can have five hundred concurrent calls
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.doors = append(s.doors, ln)
		go server.Serve(ln) //nolint:errcheck // it ends with the test
	}
	t.Cleanup(func() { server.Close() }) //nolint:errcheck // hosts may hold connections
	return s
}

func (s *service) addresses() (all []string) {
	for _, d := range s.doors {
		all = append(all, d.Addr().String())
	}
	return all
}

// ServeHTTP takes as long as the path says: "/quick" at most 19 ms, "/brief" less than a
// second, "/slow" seconds, "/held" until the gate opens. "/flaky" fails the first
// attempts of some runs.
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
	s.calls, s.begun = append(s.calls, history.Execution{Run: run, Attempt: number}), append(s.begun, time.Now())
	s.jobs = append(s.jobs, r.URL.Query().Get("app")+job)
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
		if job != "/slow" && job != "/held" { // those do not depend on servers
			s.pause, s.last = max(s.pause, time.Since(s.last)), time.Now()
		}
		s.calls[i].Token = fmt.Sprintf("%s/%d/%d", run, number, i)
		fmt.Fprint(w, s.calls[i].Token) //nolint:errcheck // whether the host hears it is not ours to know
	}
}

// work waits for the duration of the job. It returns false when the caller has gone.
func (s *service) work(ctx context.Context, job, run string) bool {
	d := time.Duration(luck(run)%20) * time.Millisecond
	switch job {
	case "/brief":
		d = time.Duration(50+luck(run)%500) * time.Millisecond
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

// luck is a number derived from a run's id.
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

// longest returns the longest time in which no short call finished, since the previous
// call of longest.
func (s *service) longest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := max(s.pause, time.Since(s.last))
	s.pause, s.last = 0, time.Now()
	return d
}

// told describes when an attempt was executed and what it was answered.
func (s *service) told(run string, attempt int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for i, e := range s.calls {
		if e.Run == run && e.Attempt == attempt {
			all = append(all, fmt.Sprintf("at %s with the answer %q", s.begun[i].Format("04:05.000"), e.Token))
		}
	}
	return strings.Join(all, ", ")
}

// gap returns the longest time between two moments in which no call of a job, APP/JOB,
// began.
func (s *service) gap(job string, from, to time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, most := from, time.Duration(0)
	for i, at := range s.begun {
		if s.jobs[i] == job && at.After(from) && at.Before(to) {
			most, last = max(most, at.Sub(last)), at
		}
	}
	return max(most, to.Sub(last))
}

// first returns when the first call of a job, APP/JOB, began after a moment.
func (s *service) first(job string, after time.Time) (begun time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, at := range s.begun {
		if s.jobs[i] == job && at.After(after) {
			return at, true
		}
	}
	return time.Time{}, false
}
