package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// server has the logs of partitions, as a server of a cluster shows them.
type server struct {
	mu    sync.Mutex
	logs  map[string][]*sdk.AuditEvent
	next  map[string]uint64
	since time.Time // of the last call
	err   error     // of the next call
}

// add adds an event with a text.
func (s *server) add(partition, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logs == nil {
		s.logs, s.next = map[string][]*sdk.AuditEvent{}, map[string]uint64{}
	}
	s.next[partition]++
	s.logs[partition] = append(s.logs[partition], &sdk.AuditEvent{
		Time: timestamppb.Now(), Code: "job.changed", Actor: "ada", Object: text, Outcome: "ok", Count: 1, Partition: partition, Sequence: s.next[partition],
	})
}

// trim removes all events of a partition up to a sequence.
func (s *server) trim(partition string, sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs[partition] = slices.DeleteFunc(s.logs[partition], func(e *sdk.AuditEvent) bool { return e.Sequence <= sequence })
}

// AuditEventsAfter implements [Source].
func (s *server) AuditEventsAfter(_ context.Context, q sdk.AuditQuery, after string, size int) (*sdk.AuditPage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since = q.Since; s.err != nil {
		err := s.err
		s.err = nil
		return nil, err
	}
	seen := map[string]uint64{}
	if after != "" {
		if err := json.Unmarshal([]byte(after), &seen); err != nil {
			return nil, err
		}
	}
	page := &sdk.AuditPage{}
	for _, name := range slices.Sorted(maps.Keys(s.logs)) {
		for _, e := range s.logs[name] {
			if e.Sequence <= seen[name] {
				continue
			}
			if len(page.Events) == size {
				page.More = true
				break
			}
			if e.Sequence > seen[name]+1 {
				page.Gaps = append(page.Gaps, &sdk.AuditGap{Partition: name, First: seen[name] + 1, Last: e.Sequence - 1})
			}
			page.Events, seen[name] = append(page.Events, e), e.Sequence
		}
	}
	b, err := json.Marshal(seen)
	page.After = string(b)
	return page, err
}

// target is an HTTP receiver.
type target struct {
	conns  chan net.Conn
	done   chan struct{}
	server http.Server
	answer func(w http.ResponseWriter, r *http.Request, body []byte) // nil: it takes all

	mu       sync.Mutex
	requests int
	bodies   []int
	events   []map[string]any
}

func newTarget(t *testing.T) *target {
	x := &target{conns: make(chan net.Conn), done: make(chan struct{})}
	x.server = http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		x.mu.Lock()
		x.requests++
		x.bodies = append(x.bodies, len(body))
		answer := x.answer
		x.mu.Unlock()
		if answer != nil {
			answer(w, r, body)
			return
		}
		x.take(body)
	})}
	go x.server.Serve(x)                   //nolint:errcheck // it ends with the test
	t.Cleanup(func() { x.server.Close() }) //nolint:errcheck // nothing is written
	return x
}

// Accept implements [net.Listener].
func (x *target) Accept() (net.Conn, error) {
	select {
	case c := <-x.conns:
		return c, nil
	case <-x.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (x *target) Close() error {
	close(x.done)
	return nil
}

// Addr implements [net.Listener].
func (*target) Addr() net.Addr { return &net.TCPAddr{} }

func (x *target) dial(context.Context, string, string) (net.Conn, error) {
	there, back := net.Pipe()
	x.conns <- there
	return back, nil
}

// take stores the events of a body.
func (x *target) take(body []byte) {
	var all []map[string]any
	if err := json.Unmarshal(body, &all); err != nil {
		panic(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.events = append(x.events, all...)
}

// set sets the answers from now on.
func (x *target) set(answer func(w http.ResponseWriter, r *http.Request, body []byte)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answer = answer
}

// count returns the number of requests and that of events.
func (x *target) count() (requests, events int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.requests, len(x.events)
}

func (x *target) receiver(t *testing.T, secret string) Receiver {
	t.Helper()
	r, err := NewWebhook("http://localhost/in", secret, x.dial)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// follower returns a follower with the state in a file.
func follower(t *testing.T, from Source, to Receiver, path string) *Follower {
	t.Helper()
	state, err := OpenState(path)
	if err != nil {
		t.Fatal(err)
	}
	return &Follower{From: from, To: to, State: state, Size: 7, Note: t.Logf}
}

// checkOrder checks that events of each partition come in their order without a gap, and returns how
// many came again, and in how many places. There the order begins again, at most one page back.
func checkOrder(t *testing.T, events []map[string]any, next map[string]uint64, page int) (doubles, seams int) {
	t.Helper()
	last, most := map[string]int{}, map[string]int{}
	for i, e := range events {
		name, sequence := e["partition"].(string), 0
		if _, err := fmt.Sscan(e["sequence"].(string), &sequence); err != nil {
			t.Fatal(err)
		}
		if sequence != last[name]+1 {
			if seams++; sequence > most[name] || sequence <= most[name]-page {
				t.Fatalf("at %d: %s has the event %d after %d, and the last was %d", i, name, sequence, last[name], most[name])
			}
		}
		if sequence <= most[name] {
			doubles++
		}
		last[name], most[name] = sequence, max(most[name], sequence)
	}
	for name, n := range next {
		if most[name] != int(n) {
			t.Errorf("%s has %d of %d events", name, most[name], n)
		}
	}
	return doubles, seams
}

// TestKills follows the log of three partitions while the process is killed again and again, before a
// request, after the receiver has taken it, and between; and while the receiver fails in many ways. No
// event is missing or in the wrong place, and only events of an interrupted page come again.
func TestKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		from, to := &server{}, newTarget(t)
		path := filepath.Join(t.TempDir(), "state")
		kills, lost, cut := 0, 0, 0
		var chance sync.Mutex // guards r in the handler
		to.set(func(w http.ResponseWriter, _ *http.Request, body []byte) {
			chance.Lock()
			what := r.IntN(12)
			chance.Unlock()
			switch what {
			case 0:
				w.WriteHeader(http.StatusInternalServerError)
			case 1:
				w.Header().Set("Retry-After", "90")
				w.WriteHeader(http.StatusTooManyRequests)
			case 2: // it has the events, and the answer is lost
				to.take(body)
				chance.Lock()
				lost++
				chance.Unlock()
				panic(http.ErrAbortHandler)
			default:
				to.take(body)
			}
		})
		for range 400 {
			chance.Lock()
			for range r.IntN(12) {
				from.add(fmt.Sprint("main.", r.IntN(3)), "j")
			}
			kill, killed := r.IntN(4), make(chan struct{})
			life := time.Duration(r.IntN(20_000)) * time.Millisecond
			chance.Unlock()
			ctx, cancel := context.WithCancel(t.Context())
			receiver := &mortal{Receiver: to.receiver(t, ""), kill: kill}
			f := follower(t, from, receiver, path)
			f.Note = func(string, ...any) {}
			go func() {
				defer close(killed)
				if err := f.Run(ctx); err != nil {
					t.Error(err)
				}
			}()
			time.Sleep(life)
			if receiver.busy.Load() {
				cut++
			}
			cancel()
			<-killed
			if receiver.dead {
				kills++
			}
			receiver.Close() //nolint:errcheck // a killed process closes nothing else
		}
		to.set(nil)
		f := follower(t, from, to.receiver(t, ""), path)
		f.Once = true
		if err := f.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.To.Close() //nolint:errcheck // all is delivered
		doubles, seams := checkOrder(t, to.events, from.next, f.Size)
		if kills < 50 || lost < 20 || doubles == 0 || seams > (kills+lost+cut)*3 {
			t.Errorf("%d doubles in %d places of %d events with %d kills, %d lost answers and %d cut requests", doubles, seams, len(to.events), kills, lost, cut)
		}
	})
}

// mortal ends its goroutine as a kill ends the process: 1 before a delivery, 2 after it.
type mortal struct {
	Receiver
	kill int
	dead bool
	busy atomic.Bool // in a delivery
}

func (m *mortal) Deliver(ctx context.Context, events []*sdk.AuditEvent) (int, error) {
	if m.kill == 1 {
		m.dead = true
		runtime.Goexit()
	}
	m.busy.Store(true)
	n, err := m.Receiver.Deliver(ctx, events)
	m.busy.Store(false)
	if m.kill == 2 && err == nil {
		m.dead = true
		runtime.Goexit()
	}
	return n, err
}

// TestNoDoubles delivers without an interruption: each event comes once, over orderly restarts too.
func TestNoDoubles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &server{}, newTarget(t)
		path := filepath.Join(t.TempDir(), "state")
		for n := range 50 {
			for k := range n % 9 {
				from.add(fmt.Sprint("main.", k%2), "j")
			}
			f := follower(t, from, to.receiver(t, ""), path)
			if n%2 == 0 {
				f.Once = true
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := f.Run(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
			f.To.Close() //nolint:errcheck // all is delivered
		}
		if doubles, _ := checkOrder(t, to.events, from.next, 7); doubles > 0 || len(to.events) != 190 {
			t.Errorf("%d doubles of %d events", doubles, len(to.events))
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Error(info, err)
		}
	})
}

// TestGap removes events before they are delivered: an event says which ones, before those that follow.
func TestGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &server{}, newTarget(t)
		path := filepath.Join(t.TempDir(), "state")
		run := func() (notes []string) {
			f := follower(t, from, to.receiver(t, ""), path)
			f.Once, f.Note = true, func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
			if err := f.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.To.Close() //nolint:errcheck // all is delivered
			return notes
		}
		for range 3 {
			from.add("a", "j")
			from.add("b", "j")
		}
		if notes := run(); len(notes) > 0 {
			t.Error(notes)
		}
		for range 5 {
			from.add("a", "j")
			from.add("b", "j")
		}
		from.trim("b", 6)
		if notes := run(); len(notes) != 1 || !strings.Contains(notes[0], "no longer has the events 4 to 6 of the partition b") {
			t.Error(notes)
		}
		var got []string
		for _, e := range to.events[6:] {
			got = append(got, fmt.Sprint(e["partition"], e["sequence"], " ", e["code"], " ", e["count"]))
		}
		want := "[a4 job.changed 1 a5 job.changed 1 a6 job.changed 1 a7 job.changed 1 a8 job.changed 1 b6 audit.gap 3 b7 job.changed 1 b8 job.changed 1]"
		if fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
		if notes := run(); len(notes) > 0 || len(to.events) != 14 {
			t.Errorf("the gap is told again: %v, %d events", notes, len(to.events))
		}
	})
}

// TestServerFails reads from a server that fails: it is called again, unless it refuses the call.
func TestServerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &server{}, newTarget(t)
		from.add("main", "j")
		for _, tt := range []struct {
			err   error
			final bool
		}{
			{sdk.ErrUnavailable, false},
			{sdk.ErrExhausted, false},
			{errors.New("broken"), false},
			{context.DeadlineExceeded, false},
			{sdk.ErrDenied, true},
			{sdk.ErrUnauthenticated, true},
			{sdk.ErrPrecondition, true},
			{sdk.ErrInvalid, true},
		} {
			from.err = tt.err
			f := follower(t, from, to.receiver(t, ""), filepath.Join(t.TempDir(), "state"))
			f.Once = true
			if err := f.Run(t.Context()); errors.Is(err, tt.err) != tt.final || (err == nil) == tt.final {
				t.Errorf("%v: %v", tt.err, err)
			}
			f.To.Close() //nolint:errcheck // all is delivered
		}
	})
}

// TestState checks what a state file keeps, and which ones are refused.
func TestState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := &server{}
		from.add("main", "j")
		path := filepath.Join(t.TempDir(), "state")
		run := func(q sdk.AuditQuery) error {
			f := follower(t, from, NewStream(io.Discard), path)
			f.Once, f.Query = true, q
			return f.Run(t.Context())
		}
		first := time.Now().Add(-time.Hour)
		if err := run(sdk.AuditQuery{App: "shop", Since: first}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour) // a restart after a pause that is longer than --since
		if err := run(sdk.AuditQuery{App: "shop", Since: time.Now().Add(-time.Hour)}); err != nil || !from.since.Equal(first) {
			t.Errorf("events are read since %v, want %v: %v", from.since, first, err)
		}
		for _, q := range []sdk.AuditQuery{{}, {App: "bank"}, {App: "shop", Code: "job."}, {App: "shop", Actor: "ada"}} {
			if err := run(q); err == nil || !strings.Contains(err.Error(), "another selection") {
				t.Errorf("%v: %v", q, err)
			}
		}
		for _, text := range []string{"", "{}", "garbage", `{"version":2,"after":"main=1@1"}`, `{"version":1}`} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := OpenState(path); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%q: %v", text, err)
			}
		}
		if _, err := OpenState(filepath.Join(path, "x")); err == nil || !strings.Contains(err.Error(), "cannot be written") {
			t.Errorf("in a directory that is none: %v", err)
		}
	})
}
