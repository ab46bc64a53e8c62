package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// ledger records outside the cluster which runs came with which input. Handlers call it.
type ledger struct {
	address string
	mu      sync.Mutex
	runs    map[string]map[string]bool // run ids by input
	calls   map[string]int             // number of executions by run and attempt
}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &ledger{address: ln.Addr().String(), runs: map[string]map[string]bool{}, calls: map[string]int{}}
	server := &http.Server{Handler: l}
	go server.Serve(ln)                  //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() }) //nolint:errcheck // hosts may hold connections
	return l
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the host has gone
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[string(body)] == nil {
		l.runs[string(body)] = map[string]bool{}
	}
	run := r.Header.Get("Wheelwork-Run")
	l.runs[string(body)][run] = true
	l.calls[run+"/"+r.Header.Get("Wheelwork-Attempt")]++
}

// repeated returns the attempts that were executed more than once.
func (l *ledger) repeated() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for attempt, n := range l.calls {
		if n > 1 {
			all = append(all, fmt.Sprint(attempt, ": ", n, " times"))
		}
	}
	return all
}

func (l *ledger) has(input string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.runs[input]) > 0
}

// doubled returns the inputs that came with several runs.
func (l *ledger) doubled() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for input, runs := range l.runs {
		if len(runs) > 1 {
			all = append(all, fmt.Sprint(input, " of ", runs))
		}
	}
	return all
}

// TestOrderlyStops ends servers with SIGTERM, one after another and under load, while
// clients send triggers without a key, each once, over HTTP. Each acknowledged trigger
// has one run, and no trigger has two.
func TestOrderlyStops(t *testing.T) {
	stops := 8
	if formOf(t) {
		stops = 200
	}
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	seen := newLedger(t)
	c := newCluster(t, shape{etcd: embedded, members: 1, servers: 3, hosts: 2, slots: 16, binary: program(t), calls: []string{seen.address}})
	defineNotes(t, c.dial(time.Minute), seen)
	acknowledged := c.triggerNotes(12, 0)
	for range stops {
		all := c.owners()
		if len(all) == 0 {
			t.Error("no server owns anything")
			break
		}
		s := c.servers[all[rnd.IntN(len(all))].server]
		s.end(syscall.SIGTERM)
		wait(time.Duration(rnd.IntN(200)) * time.Millisecond)
		s.start()
		until(t, s.name+" to be ready again", time.Minute, s.isReady)
		until(t, "a server to work", time.Minute, c.hasOwner)
	}
	total := seen.settle(t, acknowledged())
	if total < 50*stops {
		t.Errorf("%d triggers were acknowledged in %d stops: too few to say anything", total, stops)
	}
	t.Logf("%d stops, %d acknowledged triggers", stops, total)
}

// noteApps are the apps whose runs call a ledger. They contain nothing else.
var noteApps = []string{"note-a", "note-b", "note-c", "note-d"}

// defineNotes defines in each of these apps a job that calls a ledger.
func defineNotes(t *testing.T, client *sdk.Client, seen *ledger) {
	t.Helper()
	for _, app := range noteApps {
		_, err := client.Apply(t.Context(), &sdk.Job{App: app, Name: "note", Retry: &sdk.Retry{Max: 10, First: "100ms"}, Handler: &sdk.Handler{
			Name: "builtin:http", Http: &apiv1.HTTPCall{Method: "POST", Url: "http://" + seen.address},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// triggerNotes starts producers that trigger these jobs without a key, each trigger once,
// and pause after each trigger. The returned function stops them and returns the inputs
// of the acknowledged triggers.
func (c *cluster) triggerNotes(producers int, pause time.Duration) (acknowledged func() []string) {
	ctx, stop := context.WithCancel(c.t.Context())
	var producing sync.WaitGroup
	acked := make([][]string, producers)
	for n := range acked {
		producing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				input, app, at := fmt.Sprint(n, "-", i), noteApps[i%len(noteApps)], c.clients[(n+i)%len(c.clients)].address()
				if c.triggerOnce(at, app, input) {
					acked[n] = append(acked[n], input)
				}
				if pause > 0 {
					wait(pause)
				}
			}
		})
	}
	c.t.Cleanup(stop)
	return func() []string {
		stop()
		producing.Wait()
		return slices.Concat(acked...)
	}
}

// settle waits for the runs of all acknowledged triggers and returns their number. It
// fails the test when an input came with two runs.
func (l *ledger) settle(t *testing.T, acknowledged []string) int {
	t.Helper()
	for _, input := range acknowledged {
		until(t, "the run of an acknowledged trigger, "+input, time.Minute, func() bool { return l.has(input) })
	}
	if twice := l.doubled(); len(twice) > 0 {
		t.Errorf("%d inputs came with several runs: %s", len(twice), strings.Join(twice, "; "))
	}
	return len(acknowledged)
}

// triggerOnce sends one request and reports whether it was acknowledged.
func (c *cluster) triggerOnce(address, app, input string) bool {
	body, err := json.Marshal(map[string]string{"input": input})
	if err != nil {
		c.t.Error(err)
		return false
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+address+"/api/v1/apps/"+app+"/jobs/note:trigger", strings.NewReader(string(body)))
	if err != nil {
		c.t.Error(err)
		return false
	}
	req.GetBody = nil // the transport must not send it again by itself
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		wait(10 * time.Millisecond) // the server is away
		return false
	}
	defer resp.Body.Close()        //nolint:errcheck // it was read
	io.Copy(io.Discard, resp.Body) //nolint:errcheck // what it says is not looked at
	switch {
	case resp.StatusCode == http.StatusOK:
		return true
	case resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests:
		c.t.Errorf("a trigger was answered %s", resp.Status)
	}
	return false
}
