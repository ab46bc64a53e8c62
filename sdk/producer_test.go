package sdk_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// installation is the state that several servers share: the runs, by key.
type installation struct {
	mu      sync.Mutex
	runs    map[string]string // run id by key
	order   []string          // keys in the order of their first arrival
	repeats int               // number of repeated keys
}

func (in *installation) carryOut(c *apiv1.Command) *apiv1.CommandResult {
	in.mu.Lock()
	defer in.mu.Unlock()
	key := c.GetTrigger().GetIdempotencyKey()
	if id, ok := in.runs[key]; ok {
		in.repeats++
		return &apiv1.CommandResult{Result: "duplicate", RunId: id}
	}
	if in.runs == nil {
		in.runs = map[string]string{}
	}
	in.runs[key] = fmt.Sprint("run", len(in.order))
	in.order = append(in.order, key)
	return &apiv1.CommandResult{Result: "accepted", RunId: in.runs[key]}
}

func (in *installation) run(key string) string {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.runs[key]
}

func (in *installation) seen() int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.order)
}

// member is one server of an installation. Its script decides what it does with a
// message.
type member struct {
	apiv1.UnimplementedClusterServer
	apiv1.UnimplementedProducerServer

	in       *installation
	listener *memconn.Listener
	script   func(*apiv1.ProduceRequest) verdict // nil: answer

	mu     sync.Mutex
	refuse bool // refuse new connections
	mute   bool // accept new connections without a reply
	conns  []net.Conn
	saw    int // number of commands
}

type verdict string

const (
	answer       verdict = ""
	dropBefore   verdict = "drops the stream before it looks"
	dropAfter    verdict = "drops the stream before it answers"
	hangBefore   verdict = "hangs before it looks"
	hangAfter    verdict = "hangs before it answers"
	deafFromHere verdict = "does not read any more"
	sayLater     verdict = "is unavailable for each command"
)

func (m *member) GetVersion(context.Context, *apiv1.GetVersionRequest) (*apiv1.Version, error) {
	return &apiv1.Version{}, nil
}

func (m *member) Produce(stream grpc.BidiStreamingServer[apiv1.ProduceRequest, apiv1.ProduceResponse]) error {
	v := answer
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if m.script != nil && v != sayLater { // a log that has failed does not recover
			v = m.script(r)
		}
		lost := status.Error(codes.Unavailable, "gone")
		switch v {
		case dropBefore:
			return lost
		case hangBefore, deafFromHere:
			<-stream.Context().Done()
			return lost
		}
		m.mu.Lock()
		m.saw += len(r.GetCommands())
		m.mu.Unlock()
		response := &apiv1.ProduceResponse{Number: r.GetNumber()}
		for _, c := range r.GetCommands() {
			if v == sayLater {
				response.Results = append(response.Results, &apiv1.CommandResult{Code: int32(codes.Unavailable), Error: "the log has failed"})
			} else {
				response.Results = append(response.Results, m.in.carryOut(c))
			}
		}
		switch v {
		case dropAfter:
			return lost
		case hangAfter:
			<-stream.Context().Done()
			return lost
		}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

// setRefuse changes whether the server can be reached; cutting it off breaks open
// connections.
func (m *member) setRefuse(refuse bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = refuse
	if refuse {
		for _, c := range m.conns {
			c.Close() //nolint:errcheck // it is cut either way
		}
		m.conns = nil
	}
}

// world is a network of servers, by address.
type world map[string]*member

// serve adds a server. register may add further services to it.
func (w world) serve(in *installation, address string, register ...func(*grpc.Server)) (m *member, stop func()) {
	m = &member{in: in, listener: memconn.Listen(64 << 10)}
	w[address] = m
	g := grpc.NewServer()
	apiv1.RegisterClusterServer(g, m)
	apiv1.RegisterProducerServer(g, m)
	for _, r := range register {
		r(g)
	}
	go g.Serve(m.listener) //nolint:errcheck // ends with the server
	return m, g.Stop
}

func (w world) dial(t *testing.T, addresses string, opt sdk.Options) *sdk.Client {
	t.Helper()
	opt.Dialer = func(ctx context.Context, address string) (net.Conn, error) {
		m := w[address]
		if m == nil {
			return nil, errors.New("no route to host")
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.refuse {
			return nil, errors.New("connection refused")
		}
		if m.mute {
			c, _ := net.Pipe()
			return c, nil
		}
		c, err := m.listener.DialContext(ctx)
		m.conns = append(m.conns, c)
		return c, err
	}
	c, err := sdk.Dial(t.Context(), addresses, opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	addressA, addressB, addressC = "127.0.0.1:1", "127.0.0.2:2", "127.0.0.3:3"
	bothServers                  = "http://" + addressA + ", http://" + addressB
)

// TestFailover makes the first server fail at its third message in each possible way.
// Every trigger must end in one run, in the order of the calls, and only a little later
// than the timeout of one attempt.
func TestFailover(t *testing.T) {
	for _, test := range []struct {
		verdict
		repeats bool          // the first server executed the commands that it did not answer
		within  time.Duration // of fake time
	}{
		{dropBefore, false, time.Second},
		{dropAfter, true, time.Second},
		{sayLater, false, time.Second},
		{hangBefore, false, 6 * time.Second},
		{hangAfter, true, 6 * time.Second},
		{deafFromHere, false, 6 * time.Second},
	} {
		t.Run(string(test.verdict), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const triggers = 3000
				in, w := &installation{}, world{}
				a, stopA := w.serve(in, addressA)
				b, stopB := w.serve(in, addressB)
				n := 0
				a.script = func(*apiv1.ProduceRequest) verdict {
					if n++; n >= 3 {
						return test.verdict
					}
					return answer
				}
				c := w.dial(t, bothServers, sdk.Options{})
				input := make([]byte, 1<<10) // more than the windows of a stream hold
				begin := time.Now()
				var pending []*sdk.Pending
				var want []string
				for i := range triggers {
					want = append(want, fmt.Sprint(i))
					pending = append(pending, c.TriggerAsync(t.Context(), sdk.Trigger{Job: "a", Key: want[i], Input: input}))
				}
				for i, p := range pending {
					if answer, err := p.Wait(t.Context()); err != nil || answer.RunID != in.run(want[i]) {
						t.Fatalf("trigger %d: %v, %v; want %s", i, answer, err, in.run(want[i]))
					}
				}
				if !slices.Equal(in.order, want) {
					t.Errorf("%d triggers were carried out, not in the order of the calls", len(in.order))
				}
				if took := time.Since(begin); took > test.within {
					t.Errorf("it took %v, want at most %v", took, test.within)
				}
				if in.repeats > 0 != test.repeats || b.saw == 0 {
					t.Errorf("%d keys came again, the second server saw %d commands: the test tests nothing", in.repeats, b.saw)
				}
				c.Close() //nolint:errcheck // every answer has come
				stopA()
				stopB()
			})
		})
	}
}

// TestFlapping uses two servers that lose every stream after a few messages and
// alternately refuse connections.
func TestFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, w := &installation{}, world{}
		ctx, cancel := context.WithCancel(t.Context())
		var flapping sync.WaitGroup
		for i, address := range []string{addressA, addressB} {
			m, stop := w.serve(in, address)
			n := 0 // number of messages; two streams of one client do not overlap
			m.script = func(*apiv1.ProduceRequest) verdict {
				n++
				return []verdict{answer, answer, dropAfter, answer, dropBefore}[n%5]
			}
			flapping.Go(func() {
				defer stop()
				for down := i == 0; ctx.Err() == nil; down = !down {
					m.setRefuse(down)
					select {
					case <-time.After(700 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			})
		}
		c := w.dial(t, bothServers, sdk.Options{})
		var want []string
		for i := range 400 { // sequential calls, so many messages
			key := fmt.Sprint(i)
			want = append(want, key)
			if _, err := c.Trigger(t.Context(), sdk.Trigger{Job: "a", Key: key}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // of fake time: the servers flap meanwhile
		}
		if !slices.Equal(in.order, want) || in.repeats == 0 {
			t.Errorf("%d triggers were carried out, %d keys came again; want %d in order", len(in.order), in.repeats, len(want))
		}
		c.Close() //nolint:errcheck // every answer has come
		cancel()
		flapping.Wait()
	})
}

// TestUnaryFailover reads from the second server while the first is unreachable.
func TestUnaryFailover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, w := &installation{}, world{}
		jobs := func(g *grpc.Server) { apiv1.RegisterJobsServer(g, oneJob{}) }
		a, stopA := w.serve(in, addressA, jobs)
		_, stopB := w.serve(in, addressB, jobs)
		c := w.dial(t, bothServers, sdk.Options{})
		for _, refuse := range []bool{false, true} {
			a.setRefuse(refuse)
			if job, err := c.Job(t.Context(), "", "a"); err != nil || job.GetName() != "a" {
				t.Errorf("first server away %v: %v, %v", refuse, job, err)
			}
		}
		c.Close() //nolint:errcheck // every answer has come
		// Dial itself falls back to the second server.
		w.dial(t, bothServers, sdk.Options{}).Close() //nolint:errcheck // nothing is under way
		stopA()
		stopB()
	})
}

// TestMute uses a first server that accepts connections and never replies, when the
// client is created and when its stream is opened.
func TestMute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, w := &installation{}, world{}
		a, stopA := w.serve(in, addressA)
		b, stopB := w.serve(in, addressB)
		c := w.dial(t, bothServers, sdk.Options{})
		for _, mute := range []*member{a, b} {
			mute.setRefuse(true) // cut the open connections
			mute.setRefuse(false)
			mute.mute = true
			begin := time.Now()
			if _, err := c.Trigger(t.Context(), sdk.Trigger{Job: "a"}); err != nil || time.Since(begin) > 11*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
			if mute == a {
				w.dial(t, bothServers, sdk.Options{}).Close() //nolint:errcheck // nothing is under way
			}
			mute.mute = false
		}
		c.Close() //nolint:errcheck // every answer has come
		stopA()
		stopB()
	})
}

type oneJob struct{ apiv1.UnimplementedJobsServer }

func (oneJob) GetJob(_ context.Context, r *apiv1.GetJobRequest) (*sdk.Job, error) {
	return &sdk.Job{Name: r.GetName()}, nil
}

// names is a nameserver with scripted answers.
type names struct {
	apiv1.UnimplementedNameserverServer
	mu     sync.Mutex
	owners map[string]string
	all    []string
}

func (n *names) register(g *grpc.Server) { apiv1.RegisterNameserverServer(g, n) }

func (n *names) Route(_ context.Context, r *apiv1.RouteRequest) (*apiv1.Assignment, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.owners[r.GetApp()] == "" {
		return nil, status.Error(codes.NotFound, "nobody")
	}
	return &apiv1.Assignment{Server: "s", Address: n.owners[r.GetApp()]}, nil
}

func (n *names) ListServers(context.Context, *apiv1.ListServersRequest) (*apiv1.ListServersResponse, error) {
	r := &apiv1.ListServersResponse{}
	for _, address := range n.all {
		r.Servers = append(r.Servers, &apiv1.Server{Id: address, Address: address})
	}
	return r, nil
}

// TestRouting gives a client two of three servers. The client sends each app's commands
// to the owner, if it is one of the two, and otherwise to either of them. When the owner
// is lost, the commands follow the nameserver.
func TestRouting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, w := &installation{}, world{}
		n := &names{owners: map[string]string{"x": addressB, "y": addressC}, all: []string{addressA, addressB, addressC}}
		a, stopA := w.serve(in, addressA, n.register)
		b, stopB := w.serve(in, addressB, n.register)
		third, stopC := w.serve(in, addressC, n.register)
		c := w.dial(t, bothServers, sdk.Options{Token: "secret"})
		trigger := func(app, key string) {
			t.Helper()
			if _, err := c.Trigger(t.Context(), sdk.Trigger{App: app, Job: "a", Key: key}); err != nil {
				t.Error(err)
			}
		}
		saw := func(wantA, wantB int) {
			t.Helper()
			if a.saw != wantA || b.saw != wantB || third.saw != 0 {
				t.Errorf("the servers saw %d, %d and %d commands, want %d, %d and none", a.saw, b.saw, third.saw, wantA, wantB)
			}
		}
		trigger("x", "1")
		saw(0, 1)
		trigger("unowned", "2") // continues with the server that answered last
		saw(0, 2)
		trigger("y", "3") // Dial was not given its owner: another server forwards
		saw(0, 3)

		b.setRefuse(true)
		trigger("x", "4") // the owner is unreachable: another server forwards or refuses
		saw(1, 3)
		n.mu.Lock()
		n.owners["x"] = addressA
		n.mu.Unlock()
		trigger("x", "5")
		saw(2, 3)

		a.setRefuse(true)
		if _, err := c.Trigger(t.Context(), sdk.Trigger{App: "y", Job: "a", Key: "6"}); !errors.Is(err, sdk.ErrUnavailable) {
			t.Errorf("without a server that the client was given: %v", err)
		}
		saw(2, 3)
		if len(third.conns) > 0 {
			t.Error("the client has connected to a server that it was not given")
		}
		c.Close() //nolint:errcheck // every answer has come
		stopA()
		stopB()
		stopC()
	})
}

// TestFate ends commands in each way of the client itself, on the wire and before, and
// checks that the error distinguishes the two.
func TestFate(t *testing.T) {
	for _, test := range []struct {
		name string
		opt  sdk.Options
		end  func(c *sdk.Client, m *member, cancel func())
		want error
	}{
		{"timeout of the client", sdk.Options{Timeout: time.Second}, nil, context.DeadlineExceeded},
		{"deadline of the call", sdk.Options{}, nil, context.DeadlineExceeded},
		{"cancelled call", sdk.Options{}, func(_ *sdk.Client, _ *member, cancel func()) { cancel() }, context.Canceled},
		{"closed client", sdk.Options{}, func(c *sdk.Client, _ *member, _ func()) { c.Close() }, sdk.ErrClosed}, //nolint:errcheck // closed again below
		{"no server", sdk.Options{RetryFor: -1}, func(_ *sdk.Client, m *member, _ func()) { m.setRefuse(true) }, sdk.ErrUnavailable},
	} {
		for _, sent := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/sent=%v", test.name, sent), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					in, w := &installation{}, world{}
					m, stop := w.serve(in, addressA)
					m.script = func(*apiv1.ProduceRequest) verdict { return hangBefore }
					test.opt.AttemptTimeout = time.Minute
					c := w.dial(t, "http://"+addressA, test.opt)
					if !sent { // fill the messages that go out at once, so that the next command stays queued
						for range 4 {
							c.TriggerAsync(t.Context(), sdk.Trigger{Job: "a"})
							synctest.Wait()
						}
					}
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					var err error
					var call sync.WaitGroup
					call.Go(func() { _, err = c.Trigger(ctx, sdk.Trigger{Job: "a"}) })
					synctest.Wait()
					if test.end != nil {
						test.end(c, m, cancel)
					}
					call.Wait()
					if !errors.Is(err, test.want) || errors.Is(err, sdk.ErrUnknown) != sent || !strings.HasPrefix(err.Error(), "trigger job a: ") {
						t.Errorf("%v; want one of %v, unknown %v", err, test.want, sent)
					}
					c.Close() //nolint:errcheck // nothing is left
					stop()
				})
			})
		}
	}
}

// TestWindow loses an answer and then the server, for longer than the server remembers
// keys. The client must not repeat a command that was sent; it may send one that was not.
func TestWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, w := &installation{}, world{}
		m, stop := w.serve(in, addressA)
		m.script = func(*apiv1.ProduceRequest) verdict { return dropAfter }
		c := w.dial(t, "http://"+addressA, sdk.Options{Timeout: time.Hour, RetryFor: time.Hour})
		begin := time.Now()
		sent := c.TriggerAsync(t.Context(), sdk.Trigger{Job: "a", Key: "sent"})
		for in.seen() == 0 {
			synctest.Wait()
		}
		m.setRefuse(true)
		fresh := c.TriggerAsync(t.Context(), sdk.Trigger{Job: "a", Key: "fresh"})
		if _, err := sent.Wait(t.Context()); !errors.Is(err, sdk.ErrUnknown) || time.Since(begin) != 9*time.Minute {
			t.Errorf("after %v: %v; want that its fate is unknown after 9m", time.Since(begin), err)
		}
		in.mu.Lock()
		in.repeats, in.runs = 0, nil // the server has forgotten the key
		in.mu.Unlock()
		time.Sleep(2 * time.Minute)
		m.script = nil
		m.setRefuse(false)
		if _, err := fresh.Wait(t.Context()); err != nil {
			t.Errorf("what was never sent: %v", err)
		}
		if want := []string{"sent", "fresh"}; !slices.Equal(in.order, want) {
			t.Errorf("carried out: %v, want %v", in.order, want)
		}
		c.Close() //nolint:errcheck // every answer has come
		stop()
	})
}

// TestRoom fills the client by number and by bytes. The Try forms refuse, and the others
// wait in their order: a small command does not overtake a large one forever.
func TestRoom(t *testing.T) {
	large := make([]byte, 512<<10)
	for _, test := range []struct {
		name  string
		opt   sdk.Options
		input []byte
		fits  int
	}{
		{"number", sdk.Options{MaxPending: 3}, nil, 3},
		{"bytes", sdk.Options{MaxPendingBytes: 2 << 20}, large, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				in, w := &installation{}, world{}
				m, stop := w.serve(in, addressA)
				hold := make(chan struct{})
				m.script = func(*apiv1.ProduceRequest) verdict { <-hold; return answer }
				c := w.dial(t, "http://"+addressA, test.opt)
				trigger := func(key string) sdk.Trigger { return sdk.Trigger{Job: "a", Key: key, Input: test.input} }
				for i := range test.fits {
					if _, err := c.TryTrigger(t.Context(), trigger(fmt.Sprint("0", i))); err != nil {
						t.Fatal(err)
					}
				}
				if p, err := c.TryTrigger(t.Context(), trigger("refused")); p != nil || !errors.Is(err, sdk.ErrFull) {
					t.Errorf("one more: %v", err)
				}
				short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				if _, err := c.Trigger(short, trigger("late")); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sdk.ErrUnknown) {
					t.Errorf("one that waits for room: %v", err)
				}
				var waiting sync.WaitGroup
				for i := range 5 {
					waiting.Go(func() {
						if _, err := c.Trigger(t.Context(), trigger(fmt.Sprint("1", i))); err != nil {
							t.Error(err)
						}
					})
					synctest.Wait() // it waits for room
				}
				if _, err := c.TryTrigger(t.Context(), sdk.Trigger{Job: "a", Key: "small"}); !errors.Is(err, sdk.ErrFull) {
					t.Errorf("a small one past those that wait: %v", err)
				}
				close(hold)
				waiting.Wait()
				if len(in.order) != test.fits+5 || !slices.IsSorted(in.order) {
					t.Errorf("carried out: %v", in.order)
				}
				if _, err := c.TryTrigger(t.Context(), trigger("2")); err != nil {
					t.Errorf("when there is room again: %v", err)
				}
				c.Close() //nolint:errcheck // nothing of interest is left
				stop()
			})
		})
	}
}

// TestMemory keeps a producer busy for a long time with a server that answers rarely. The
// client's memory stays within its bounds.
func TestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, w := &installation{}, world{}
		m, stop := w.serve(in, addressA)
		m.script = func(*apiv1.ProduceRequest) verdict { return hangBefore }
		c := w.dial(t, "http://"+addressA, sdk.Options{MaxPending: 100, Timeout: time.Second, AttemptTimeout: time.Minute})
		input := make([]byte, 32<<10)
		heap := func() uint64 {
			var s runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&s)
			return s.HeapAlloc
		}
		var before uint64
		for i := range 4000 { // 125 MiB in all; each 100 time out together
			if _, err := c.TriggerAsync(t.Context(), sdk.Trigger{Job: "a", Input: input}).Wait(canceled(t)); i == 500 {
				before = heap()
			} else if err == nil {
				t.Fatal("answered by a server that hangs")
			}
		}
		if after := heap(); after > before+16<<20 {
			t.Errorf("the heap grew from %d to %d MiB", before>>20, after>>20)
		}
		c.Close() //nolint:errcheck // nothing of interest is left
		stop()
	})
}

// TestThenAndFlush passes the answers to functions: in order, once each, without a
// goroutine for each command.
func TestThenAndFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const triggers = 5000
		in, w := &installation{}, world{}
		m, stop := w.serve(in, addressA)
		hold := make(chan struct{})
		m.script = func(*apiv1.ProduceRequest) verdict { <-hold; return answer }
		c := w.dial(t, "http://"+addressA, sdk.Options{})
		if _, err := c.TryTrigger(t.Context(), sdk.Trigger{Job: "first"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := runtime.NumGoroutine()
		var got, want []string
		var last *sdk.Pending
		for i := range triggers {
			want = append(want, fmt.Sprint("run", i+1))
			last = c.TriggerAsync(t.Context(), sdk.Trigger{Job: "a", Key: fmt.Sprint(i)})
			last.Then(func(a sdk.Answer, err error) {
				if err != nil {
					t.Error(err)
				}
				got = append(got, a.RunID)
				// A function may use the client.
				if _, err := c.TryTrigger(t.Context(), sdk.Trigger{Job: "b"}); err != nil && !errors.Is(err, sdk.ErrFull) {
					t.Error(err)
				}
			})
		}
		if n := runtime.NumGoroutine(); n > before+8 {
			t.Errorf("%d goroutines for %d commands", n-before, triggers)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Flush(short); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "5001") {
			t.Errorf("flush while nothing is answered: %v", err)
		}
		close(hold)
		if err := c.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d functions were called, not in the order of the commands", len(got))
		}
		late := 0
		last.Then(func(sdk.Answer, error) { late++ })
		if <-last.Done(); late != 1 {
			t.Error("a function that came late was not called at once")
		}
		c.Close() //nolint:errcheck // again nothing of interest
		if err := c.Flush(t.Context()); err != nil {
			t.Errorf("flush of a closed client: %v", err)
		}
		stop()
	})
}

// TestCloseSettles closes a client under load. Every command has an outcome when Close
// returns, and none has two.
func TestCloseSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in, w := &installation{}, world{}
		_, stop := w.serve(in, addressA)
		c := w.dial(t, "http://"+addressA, sdk.Options{MaxPending: 64})
		var callers sync.WaitGroup
		for range 50 {
			callers.Go(func() {
				for {
					settled := 0
					p := c.TriggerAsync(t.Context(), sdk.Trigger{Job: "a"})
					p.Then(func(sdk.Answer, error) { settled++ })
					_, err := p.Wait(t.Context())
					if errors.Is(err, sdk.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		for in.seen() < 2000 {
			runtime.Gosched()
		}
		c.Close() //nolint:errcheck // this is the test
		callers.Wait()
		stop()
	})
}

func TestOptions(t *testing.T) {
	for _, opt := range []sdk.Options{
		{MaxPending: -1}, {MaxPending: 1<<16 + 1}, {MaxPendingBytes: 1000}, {Timeout: -1}, {AttemptTimeout: -1}, {AttemptTimeout: time.Hour},
	} {
		if _, err := sdk.Dial(t.Context(), "http://127.0.0.1:1", opt); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}

// TestProducerChaos runs many callers against three servers that fail at random. Each key
// is executed once, the keys of each caller in its order, and each answer matches the
// servers' answer. WHEELWORK_SEED runs one seed, WHEELWORK_LONG many.
func TestProducerChaos(t *testing.T) {
	seeds := []uint64{1, 2, 3, rand.Uint64()}
	if testkit.Long() {
		for range 200 {
			seeds = append(seeds, rand.Uint64())
		}
	}
	for _, seed := range testkit.Seeds(t, seeds...) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { producerChaos(t, seed) })
		})
	}
}

func producerChaos(t *testing.T, seed uint64) {
	const callers, each = 20, 60
	var mu sync.Mutex // guards the random numbers, which are shared
	random := rand.New(rand.NewPCG(seed, 0))
	draw := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }

	in, w := &installation{}, world{}
	var stops []func()
	for _, address := range []string{addressA, addressB, addressC} {
		m, stop := w.serve(in, address)
		stops = append(stops, stop)
		m.script = func(*apiv1.ProduceRequest) verdict {
			switch draw(40) {
			case 0, 1:
				return dropBefore
			case 2, 3:
				return dropAfter
			case 4:
				return sayLater
			case 5:
				return hangBefore
			case 6:
				return hangAfter
			}
			return answer
		}
		stops = append(stops, flap(m, func() time.Duration { return time.Duration(1+draw(3000)) * time.Millisecond }))
	}
	addresses := strings.Join([]string{"http://" + addressA, "http://" + addressB, "http://" + addressC}, ",")
	c := w.dial(t, addresses, sdk.Options{MaxPending: 100, Timeout: 5 * time.Minute, RetryFor: 5 * time.Minute, AttemptTimeout: time.Second})

	var all sync.WaitGroup
	var answers [callers][each]sdk.Answer
	for i := range callers {
		all.Go(func() {
			var pending []*sdk.Pending
			for k := range each {
				pending = append(pending, c.TriggerAsync(t.Context(), sdk.Trigger{Job: "a", Key: fmt.Sprintf("%02d/%02d", i, k)}))
				if draw(4) == 0 {
					time.Sleep(time.Duration(draw(400)) * time.Millisecond)
				}
			}
			for k, p := range pending {
				var err error
				if answers[i][k], err = p.Wait(t.Context()); err != nil {
					t.Errorf("caller %d, command %d: %v", i, k, err)
				}
			}
		})
	}
	all.Wait()
	c.Close() //nolint:errcheck // every answer has come
	for _, stop := range stops {
		stop()
	}
	var last [callers]int
	for _, key := range in.order {
		var i, k int
		if _, err := fmt.Sscanf(key, "%02d/%02d", &i, &k); err != nil {
			t.Fatalf("a key that nobody sent: %s", key)
		}
		if last[i]++; k != last[i]-1 {
			t.Errorf("caller %d: command %d was carried out as number %d", i, k, last[i]-1)
		}
		if answers[i][k].RunID != in.runs[key] {
			t.Errorf("caller %d, command %d: answered %s, it is %s", i, k, answers[i][k].RunID, in.runs[key])
		}
	}
	if len(in.order) != callers*each || len(in.runs) != callers*each {
		t.Errorf("%d keys were carried out, %d different ones, want %d", len(in.order), len(in.runs), callers*each)
	}
	t.Logf("%d sendings were repeated", in.repeats)
}

// flap makes a server unreachable from time to time until stop is called.
func flap(m *member, pause func() time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for down := false; ctx.Err() == nil; down = !down {
			m.setRefuse(down)
			select {
			case <-time.After(cmp.Or(pause(), time.Millisecond)):
			case <-ctx.Done():
			}
		}
	})
	return func() { cancel(); done.Wait() }
}
