package host

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// script is a server that the test controls: it records what the host sends and sends
// what the test wants.
type script struct {
	apiv1.UnimplementedWorkerServer
	hello chan *apiv1.Hello
	up    chan *apiv1.WorkUp
	down  chan *apiv1.WorkDown
	end   chan struct{} // ends the current stream
	code  []byte        // of the one module

	welcome func() // called between a hello and its answer; nil: no call
}

func newScript() *script {
	return &script{
		hello: make(chan *apiv1.Hello, 10), up: make(chan *apiv1.WorkUp, 1000),
		down: make(chan *apiv1.WorkDown, 10), end: make(chan struct{}), code: []byte("module"),
	}
}

func (s *script) Work(stream apiv1.Worker_WorkServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if s.welcome != nil {
		s.hello <- first.Hello
		s.welcome()
	}
	if err := stream.Send(&apiv1.WorkDown{Welcome: &apiv1.Welcome{Server: "script", Epoch: 1}}); err != nil {
		return err
	}
	if s.welcome == nil {
		s.hello <- first.Hello
	}
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			s.up <- m
		}
	}()
	for {
		select {
		case m := <-s.down:
			if err := stream.Send(m); err != nil {
				return err
			}
		case <-s.end:
			return status.Error(codes.Unavailable, "the script ends the stream")
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (s *script) FetchModule(_ *apiv1.FetchModuleRequest, stream apiv1.Worker_FetchModuleServer) error {
	return stream.Send(&apiv1.ModuleChunk{Data: s.code})
}

// results waits for a message with results and returns it.
func (s *script) results() *apiv1.WorkUp {
	for m := range s.up {
		if len(m.Results) > 0 {
			return m
		}
	}
	return nil
}

// fakeEngine runs handlers that the test supplies.
type fakeEngine struct {
	loaded chan string
	run    func(ctx context.Context, t runtime.Task, s runtime.Sink) runtime.Result
	have   bool
}

func (e *fakeEngine) Load(_ context.Context, digest string, _ []byte) error {
	e.loaded <- digest
	e.have = true
	return nil
}
func (e *fakeEngine) Loaded(string) bool { return e.have }
func (e *fakeEngine) Run(ctx context.Context, t runtime.Task, s runtime.Sink) runtime.Result {
	return e.run(ctx, t, s)
}

func echo(_ context.Context, t runtime.Task, s runtime.Sink) runtime.Result {
	s.Log(runtime.LevelInfo, []byte("hi"))
	return runtime.Result{Outcome: runtime.Succeeded, Output: t.Input}
}

// untilStopped runs until its context ends.
func untilStopped(ctx context.Context, _ runtime.Task, _ runtime.Sink) runtime.Result {
	<-ctx.Done()
	return runtime.Result{Outcome: runtime.Stopped}
}

type bench struct {
	t      *testing.T
	dir    string
	server *script
	engine *fakeEngine
	lis    *memconn.Listener
	g      *grpc.Server
}

// inBubble runs f with a scripted server in fake time.
func inBubble(t *testing.T, f func(t *testing.T, b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, dir: t.TempDir(), server: newScript(), engine: &fakeEngine{loaded: make(chan string, 10), run: echo}, lis: memconn.Listen(1 << 20), g: grpc.NewServer()}
		apiv1.RegisterWorkerServer(b.g, b.server)
		go b.g.Serve(b.lis) //nolint:errcheck // ends with Stop
		defer b.g.Stop()
		f(t, b)
	})
}

// start runs a host on the bench's directory; stop ends it.
func (b *bench) start(change func(*Config)) (stop func()) {
	b.t.Helper()
	spool, err := mq.Open(mq.Config{Dir: filepath.Join(b.dir, "spool"), SegmentBytes: 1 << 20, ReserveBytes: -1})
	if err != nil {
		b.t.Fatal(err)
	}
	mods, err := modules.Open(filepath.Join(b.dir, "modules"))
	if err != nil {
		b.t.Fatal(err)
	}
	cfg := Config{
		ID: "h", Slots: 2, Credits: 8, Engine: b.engine, Modules: mods, Spool: spool, DrainTimeout: time.Second,
		Connect: func(context.Context) (grpc.ClientConnInterface, io.Closer, error) {
			conn, err := grpc.NewClient("passthrough:script", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return b.lis.DialContext(ctx) }))
			return conn, conn, err
		},
	}
	if change != nil {
		change(&cfg)
	}
	h, err := New(cfg)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.Run(ctx); err != nil {
			b.t.Errorf("host: %v", err)
		}
		if err := spool.Close(); err != nil {
			b.t.Error(err)
		}
	}()
	return func() { cancel(); <-done }
}

func aTask(n byte) *apiv1.Task {
	return &apiv1.Task{
		Run: append(make([]byte, 15), n), App: "app", Job: "j", Attempt: 1, MaxAttempts: 1, Epoch: 5,
		Module: "m@1", Digest: modules.Digest([]byte("module")), Handler: "main", Input: []byte{n},
	}
}

func TestTaskRunsAndIsForgottenWhenAcknowledged(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stop := b.start(nil)
		<-b.server.hello
		if m := <-b.server.up; m.Credits != 8 {
			t.Fatalf("first message: %v", m)
		}
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{aTask(7)}}
		if got := <-b.engine.loaded; got != aTask(7).Digest {
			t.Fatalf("loaded %s", got)
		}
		lines := 0
		var res *apiv1.WorkUp
		for res == nil {
			m := <-b.server.up
			for _, l := range m.Logs {
				lines += len(l.Lines)
			}
			if len(m.Results) > 0 {
				res = m
			}
		}
		if lines != 1 {
			t.Fatalf("%d log lines came before the result", lines)
		}
		r := res.Results[0]
		if r.Outcome != apiv1.Outcome_OUTCOME_SUCCEEDED || string(r.Output) != "\x07" || r.Epoch != 5 || res.Batch != 1 {
			t.Fatalf("result: %v", res)
		}
		b.server.down <- &apiv1.WorkDown{Acked: 1}
		synctest.Wait()
		b.server.end <- struct{}{}
		if hello := <-b.server.hello; len(hello.Running) != 0 {
			t.Fatalf("an acknowledged task is still held: %v", hello.Running)
		}
		stop()
	})
}

func TestResultsComeAgainUntilAcknowledged(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stop := b.start(nil)
		first := <-b.server.hello
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{aTask(1)}}
		b.server.results() // without an acknowledgement
		b.server.end <- struct{}{}
		again := <-b.server.hello
		if again.Session != first.Session || len(again.Running) != 1 {
			t.Fatalf("hello after a cut: %v", again)
		}
		if r := b.server.results().Results[0]; r.Run[15] != 1 {
			t.Fatalf("result after a cut: %v", r)
		}
		time.Sleep(time.Second) // it is written to the spool
		stop()                  // and the host ends without an acknowledgement

		stop = b.start(nil)
		hello := <-b.server.hello
		if hello.Session == first.Session || hello.Host != first.Host || len(hello.Running) != 1 {
			t.Fatalf("hello after a restart: %v", hello)
		}
		m := b.server.results()
		if r := m.Results[0]; r.Run[15] != 1 || string(r.Output) != "\x01" || r.Outcome != apiv1.Outcome_OUTCOME_SUCCEEDED {
			t.Fatalf("result after a restart: %v", m)
		}
		b.server.down <- &apiv1.WorkDown{Acked: m.Batch}
		synctest.Wait()
		stop()

		stop = b.start(nil)
		if hello := <-b.server.hello; len(hello.Running) != 0 {
			t.Fatalf("an acknowledged result is still in the spool: %v", hello.Running)
		}
		stop()
	})
}

func TestLowerEpochIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		stop := b.start(nil)
		<-b.server.hello
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{aTask(1)}}
		b.server.down <- &apiv1.WorkDown{Acked: b.server.results().Batch}
		old := aTask(2)
		old.Epoch = 4
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{old, aTask(3)}}
		if r := b.server.results().Results[0]; r.Run[15] != 3 {
			t.Fatalf("a task of epoch 4 after one of epoch 5 was run: %v", r)
		}
		stop()
	})
}

func TestCancel(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.engine.run = untilStopped
		stop := b.start(func(c *Config) { c.Slots = 1 })
		<-b.server.hello
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{aTask(1), aTask(2)}} // one runs, the other waits
		synctest.Wait()
		for _, n := range []byte{2, 1} {
			b.server.down <- &apiv1.WorkDown{Cancels: []*apiv1.TaskCancel{{Run: aTask(n).Run, Attempt: 1}}}
			r := b.server.results().Results[0]
			if r.Run[15] != n || r.Outcome != apiv1.Outcome_OUTCOME_STOPPED {
				t.Fatalf("cancel of %d: %v", n, r)
			}
		}
		stop()
	})
}

func TestDrainGivesBackWhatHasNotBegun(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.engine.run = untilStopped
		stop := b.start(func(c *Config) { c.Slots = 1 })
		<-b.server.hello
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{aTask(1), aTask(2)}}
		synctest.Wait()
		start := time.Now()
		go stop()
		got := map[byte]time.Duration{}
		for len(got) < 2 {
			for _, r := range b.server.results().Results {
				if r.Outcome != apiv1.Outcome_OUTCOME_STOPPED {
					t.Fatalf("drained: %v", r)
				}
				got[r.Run[15]] = time.Since(start)
			}
		}
		if got[2] > 100*time.Millisecond || got[1] < time.Second {
			t.Fatalf("the waiting task came back after %s, the running one after %s", got[2], got[1])
		}
		b.server.down <- &apiv1.WorkDown{Acked: 100}
		synctest.Wait()
	})
}

// A text that cannot be encoded must not break the stream: it would be sent again on each
// new stream, and break each of them.
func TestTextsThatAreNotUTF8(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.engine.run = func(_ context.Context, _ runtime.Task, s runtime.Sink) runtime.Result {
			s.Progress(1, 2, "p\xff")
			return runtime.Result{Outcome: runtime.Permanent, Error: "e\xff", Code: "c\xff", Trace: "t\xff"}
		}
		stop := b.start(nil)
		<-b.server.hello
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{aTask(1)}}
		r := b.server.results().Results[0]
		if r.Error != "e\uFFFD" || r.Code != "c\uFFFD" || r.Trace != "t\uFFFD" {
			t.Errorf("result: %v", r)
		}
		select {
		case <-b.server.hello:
			t.Error("the stream broke")
		default:
		}
		stop()
	})
}

func TestModuleWithOtherBytesIsNotRun(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		b.server.code = []byte("other")
		stop := b.start(nil)
		<-b.server.hello
		b.server.down <- &apiv1.WorkDown{Tasks: []*apiv1.Task{aTask(1)}}
		r := b.server.results().Results[0]
		if r.Outcome != apiv1.Outcome_OUTCOME_HOST_ERROR || r.Code != "module" {
			t.Fatalf("result: %v", r)
		}
		select {
		case d := <-b.engine.loaded:
			t.Fatalf("the engine was given %s", d)
		default:
		}
		stop()
	})
}

func TestSingleflight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s singleflight
		release, calls := make(chan struct{}), 0
		work := func(context.Context) error { calls++; <-release; return errors.New("done") }
		errs := make(chan error, 3)
		for range 2 {
			go func() { errs <- s.do(context.Background(), "x", work) }()
		}
		impatient, cancel := context.WithCancel(context.Background())
		go func() { errs <- s.do(impatient, "x", work) }()
		synctest.Wait()
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Fatalf("the impatient caller: %v", err)
		}
		close(release)
		for range 2 {
			if err := <-errs; err == nil || err.Error() != "done" {
				t.Fatalf("a patient caller: %v", err)
			}
		}
		if calls != 1 {
			t.Fatalf("%d calls", calls)
		}
	})
}
