package conform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	token = "a-token-of-the-conformance-test"
	slots = 2
	app   = "conform"
	epoch = 1 << 40 // even with a small number added, more than a float or 32 bits hold exactly

	// patience bounds the time of the program for any step.
	patience = 20 * time.Second
)

// server sends to one program what a test wants and records its messages.
type server struct {
	apiv1.UnimplementedWorkerServer
	t *testing.T

	mu      sync.Mutex
	changed chan struct{} // closed at each change
	said    []string      // broken rules
	streams int           // number of streams so far
	session *session      // the current one; nil: none
	hellos  []*apiv1.Hello
	sent    map[string]*apiv1.Task       // by name
	results map[string]*apiv1.TaskResult // the first of each, by name
	times   map[string]int               // number of results by name
	lines   map[string][]string
	latest  map[string]*apiv1.TaskProgress
	before  map[string]int // number of lines before the result, by name
	loads   int
	drains  bool
	hold    bool // do not acknowledge results
}

// session is the stream of one worker, with the credits that the worker has given.
type session struct {
	stream  apiv1.Worker_WorkServer
	end     chan struct{}
	sending sync.Mutex
	credits int64
	batch   uint64
}

func newServer(t *testing.T) *server {
	return &server{
		t: t, changed: make(chan struct{}),
		sent: map[string]*apiv1.Task{}, results: map[string]*apiv1.TaskResult{}, times: map[string]int{},
		lines: map[string][]string{}, latest: map[string]*apiv1.TaskProgress{}, before: map[string]int{},
	}
}

// change changes the state and wakes the waiters.
func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits for a condition. It calls holds with the lock held.
func (s *server) await(what string, holds func() bool) {
	s.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		ok, changed := holds(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			s.t.Fatalf("after %s: %s did not happen", patience, what)
		}
	}
}

// broken records a rule that the program broke; the caller holds s.mu.
func (s *server) broken(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *server) Work(stream apiv1.Worker_WorkServer) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	if got := md.Get("authorization"); !slices.Equal(got, []string{"Bearer " + token}) {
		s.change(func() { s.broken("the authorization is %q", got) })
		return status.Error(codes.Unauthenticated, "want the token of WHEELWORK_TOKEN as a bearer")
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	x := &session{stream: stream, end: make(chan struct{})}
	if err := stream.Send(&apiv1.WorkDown{Welcome: &apiv1.Welcome{Server: "conform", Epoch: epoch}}); err != nil {
		return err
	}
	s.change(func() {
		s.streams++
		s.hellos = append(s.hellos, first.GetHello())
		s.session = x
	})
	received := make(chan error, 1)
	go func() {
		for up := first; ; {
			s.hear(x, up)
			var err error
			if up, err = stream.Recv(); err != nil {
				received <- err
				return
			}
			if up.Hello != nil {
				s.change(func() { s.broken("a hello came twice on one stream") })
			}
		}
	}()
	select {
	case <-x.end:
		err = status.Error(codes.Unavailable, "the test ends the stream")
	case err = <-received:
	}
	s.change(func() {
		if s.session == x {
			s.session = nil
		}
	})
	return err
}

// nameOf returns a test's name of a run, which is part of the run's id.
func nameOf(run []byte) string { return strings.TrimRight(string(run), "\x00") }

func (s *server) hear(x *session, up *apiv1.WorkUp) {
	var acked uint64
	s.change(func() {
		x.credits += int64(up.Credits)
		if s.drains && up.Credits > 0 {
			s.broken("%d credits came after the program said that it is draining", up.Credits)
		}
		s.drains = s.drains || up.Draining
		if up.Load != nil {
			s.loads++
		}
		for _, l := range up.Logs {
			for _, line := range l.Lines {
				s.lines[nameOf(l.Run)] = append(s.lines[nameOf(l.Run)], fmt.Sprintf("%d %s", line.Level, line.Text))
				if d := time.Since(time.UnixMilli(line.TimeMs)); d < -time.Minute || d > time.Minute {
					s.broken("a log line is of %s", time.UnixMilli(line.TimeMs))
				}
			}
		}
		for _, p := range up.Progress {
			s.latest[nameOf(p.Run)] = p
		}
		if len(up.Results) > 0 {
			if up.Batch != x.batch+1 {
				s.broken("the batch after %d is %d", x.batch, up.Batch)
			}
			x.batch = up.Batch
		}
		for _, r := range up.Results {
			s.note(r)
		}
		if len(up.Results) > 0 && !s.hold {
			acked = up.Batch
		}
	})
	if acked > 0 {
		x.send(&apiv1.WorkDown{Acked: acked})
	}
}

// note records a result; the caller holds s.mu.
func (s *server) note(r *apiv1.TaskResult) {
	name := nameOf(r.Run)
	task := s.sent[name]
	switch {
	case task == nil:
		s.broken("a result is of the run %q, which was not sent", name)
		return
	case r.App != task.App || r.Attempt != task.Attempt || r.Epoch != task.Epoch:
		s.broken("the result of %s is of app %q, attempt %d, epoch %d: the task was of %q, %d, %d", name, r.App, r.Attempt, r.Epoch, task.App, task.Attempt, task.Epoch)
	case r.Outcome == apiv1.Outcome_OUTCOME_UNSPECIFIED || r.Outcome == apiv1.Outcome_OUTCOME_LOST:
		s.broken("the result of %s has the outcome %s, which no worker gives", name, r.Outcome)
	}
	s.times[name]++
	if s.results[name] == nil {
		s.results[name] = r
		s.before[name] = len(s.lines[name])
	}
}

// send is used by the test and for acknowledgements. It ignores errors, which mean that
// the stream has ended.
func (x *session) send(m *apiv1.WorkDown) {
	x.sending.Lock()
	defer x.sending.Unlock()
	_ = x.stream.Send(m)
}

// down sends a message on the current stream.
func (s *server) down(m *apiv1.WorkDown) {
	s.t.Helper()
	var x *session
	s.await("a session", func() bool { x = s.session; return x != nil })
	x.send(m)
}

// task creates a task. Its name is part of its run id, so it has at most 16 letters.
func (s *server) task(name, handler, input string) *apiv1.Task {
	run := make([]byte, 16)
	copy(run, name)
	t := &apiv1.Task{
		Run: run, App: app, Job: name, Attempt: 3, MaxAttempts: 5, Epoch: epoch + 1, PlannedMs: time.Now().UnixMilli(),
		Handler: "native:" + handler, Input: []byte(input), TimeoutMs: 60_000,
	}
	s.change(func() { s.sent[name] = t })
	return t
}

// send sends tasks as soon as the program has granted credits for them.
func (s *server) send(tasks ...*apiv1.Task) {
	s.t.Helper()
	for _, t := range tasks {
		s.await("a credit", func() bool {
			if s.session == nil || s.session.credits <= 0 {
				return false
			}
			s.session.credits--
			return true
		})
		s.down(&apiv1.WorkDown{Tasks: []*apiv1.Task{t}})
	}
}

func (s *server) cancel(t *apiv1.Task) {
	s.t.Helper()
	s.down(&apiv1.WorkDown{Cancels: []*apiv1.TaskCancel{{Run: t.Run, Attempt: t.Attempt}}})
}

// result waits for the result of a run.
func (s *server) result(name string) (r *apiv1.TaskResult) {
	s.t.Helper()
	s.await("the result of "+name, func() bool { r = s.results[name]; return r != nil })
	return r
}

// begun waits until the function of a run has reported its start.
func (s *server) begun(name string) {
	s.t.Helper()
	s.await("the begin of "+name, func() bool { return slices.Contains(s.lines[name], "1 begun") })
}

// cut ends the stream and returns the hello of the next one.
func (s *server) cut() (hello *apiv1.Hello) {
	s.t.Helper()
	var n int
	s.await("a session", func() bool { n = s.streams; return s.session != nil })
	s.change(func() {
		close(s.session.end)
		s.session = nil
	})
	s.await("another session", func() bool {
		if s.streams == n || s.session == nil {
			return false
		}
		hello = s.hellos[len(s.hellos)-1]
		return true
	})
	return hello
}

// running returns the names of the runs in a hello.
func running(h *apiv1.Hello) []string {
	var names []string
	for _, r := range h.GetRunning() {
		names = append(names, nameOf(r.Run))
	}
	slices.Sort(names)
	return names
}

// program is a worker under test.
type program struct {
	*server
	t    *testing.T
	cmd  *exec.Cmd
	out  *output
	done chan struct{}
	err  error // valid after done
}

// output keeps the end of a program's output.
type output struct {
	mu sync.Mutex
	b  []byte
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b = append(o.b, p...)
	o.b = o.b[max(len(o.b)-16<<10, 0):]
	return len(p), nil
}

// start runs a program with a server of its own until the end of the test.
func start(t *testing.T, command []string, env ...string) *program {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t)
	g := grpc.NewServer()
	apiv1.RegisterWorkerServer(g, s)
	go g.Serve(lis) //nolint:errcheck // ends with Stop
	ctx, kill := context.WithCancel(context.Background())
	p := &program{server: s, t: t, cmd: exec.CommandContext(ctx, command[0], command[1:]...), out: &output{}, done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), append(env, "WHEELWORK_URL=http://"+lis.Addr().String(), "WHEELWORK_TOKEN="+token, fmt.Sprint("WHEELWORK_SLOTS=", slots))...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start the worker: %v", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		kill()
		<-p.done
		g.Stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, rule := range s.said {
			t.Error(rule)
		}
		if t.Failed() {
			t.Logf("the worker said:\n%s", p.out.b)
		}
	})
	s.await("a session", func() bool { return s.session != nil })
	return p
}

// terminate sends SIGTERM to the program.
func (p *program) terminate() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
}

// ended waits until the program has exited by itself.
func (p *program) ended() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s after SIGTERM the worker is still there", patience)
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) || p.err != nil {
		p.t.Errorf("the worker ended with %v", p.err)
	}
}
