package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

// fleet is a server in memory that a test can make unreachable.
type fleet struct {
	*sdktest.Server
	listener *memconn.Listener
	refuse   atomic.Bool // refuse new connections
}

func start(t *testing.T, conf sdktest.Config) *fleet {
	t.Helper()
	f := &fleet{Server: sdktest.NewServer(conf), listener: memconn.Listen(1 << 20)}
	go f.Serve(f.listener) //nolint:errcheck // ends with the server
	t.Cleanup(f.Close)
	return f
}

func (f *fleet) dial(t *testing.T, opt sdk.Options) *sdk.Client {
	t.Helper()
	opt.Dialer = func(ctx context.Context, _ string) (net.Conn, error) {
		if f.refuse.Load() {
			return nil, errors.New("connection refused")
		}
		return f.listener.DialContext(ctx)
	}
	c, err := sdk.Dial(t.Context(), "http://127.0.0.1:1", opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() }) //nolint:errcheck // a second close in some tests
	return c
}

func job(name string) *sdk.Job {
	return &sdk.Job{Name: name, Handler: &sdk.Handler{Module: "m@1"}}
}

func TestCommands(t *testing.T) {
	f := start(t, sdktest.Config{Token: "secret"})
	c := f.dial(t, sdk.Options{Token: "secret"})
	ctx := t.Context()

	for _, want := range []sdk.Result{sdk.Created, sdk.Unchanged} {
		if got, err := c.Apply(ctx, job("a")); err != nil || got.Result != want {
			t.Errorf("apply: %v, %v; want %s", got, err, want)
		}
	}
	changed := job("a")
	changed.Description = "other"
	if got, err := c.DryRun(ctx, changed); err != nil || got != sdk.Updated {
		t.Errorf("dry run: %v, %v", got, err)
	}
	if got, err := c.Apply(ctx, changed); err != nil || got.Result != sdk.Updated {
		t.Errorf("apply after the dry run: %v, %v; want updated", got, err)
	}
	if changed.GetApp() != "" {
		t.Errorf("the caller's job was changed: %v", changed)
	}
	if _, err := c.Apply(ctx, &sdk.Job{Name: "bad"}); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("apply without a module: %v", err)
	}

	first, err := c.Trigger(ctx, sdk.Trigger{Job: "a", Input: []byte("hello"), Key: "k"})
	if err != nil || first.Result != sdk.Accepted {
		t.Fatalf("trigger: %v, %v", first, err)
	}
	again, err := c.Trigger(ctx, sdk.Trigger{Job: "a", Key: "k"})
	if err != nil || again.Result != sdk.Duplicate || again.RunID != first.RunID {
		t.Errorf("trigger with the same key: %v, %v; want a duplicate of %s", again, err, first.RunID)
	}
	run, err := c.Wait(ctx, "", first.RunID)
	if err != nil || run.GetState() != sdk.Succeeded || run.GetOutput() != "hello" {
		t.Errorf("wait: %v, %v", run, err)
	}

	if job, err := c.Pause(ctx, "", "a"); err != nil || !job.GetPaused() {
		t.Errorf("pause: %v, %v", job, err)
	}
	if job, err := c.Resume(ctx, "", "a"); err != nil || job.GetPaused() {
		t.Errorf("resume: %v, %v", job, err)
	}
	if err := c.Delete(ctx, "", "a"); err != nil {
		t.Error(err)
	}
	if err := c.Delete(ctx, "", "a"); !errors.Is(err, sdk.ErrNotFound) {
		t.Errorf("delete twice: %v", err)
	}
	if _, err := c.Job(ctx, "", "a"); !errors.Is(err, sdk.ErrNotFound) || errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("get what was deleted: %v", err)
	}
}

func TestLists(t *testing.T) {
	f := start(t, sdktest.Config{})
	c := f.dial(t, sdk.Options{})
	var pending []*sdk.Pending
	for i := range 2100 { // more than two pages
		pending = append(pending, c.ApplyAsync(t.Context(), job(fmt.Sprintf("j%04d", i))))
	}
	for i := range 3 {
		pending = append(pending, c.TriggerAsync(t.Context(), sdk.Trigger{Job: fmt.Sprintf("j%04d", i)}))
	}
	for _, p := range pending {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	count := func(q sdk.JobQuery) (n int) {
		var last string
		for job, err := range c.Jobs(t.Context(), q) {
			if err != nil {
				t.Fatal(err)
			}
			if job.GetName() <= last {
				t.Fatalf("%s follows %s", job.GetName(), last)
			}
			last = job.GetName()
			n++
		}
		return n
	}
	for _, test := range []struct {
		query sdk.JobQuery
		want  int
	}{{sdk.JobQuery{}, 2100}, {sdk.JobQuery{Limit: 1001}, 1001}, {sdk.JobQuery{Prefix: "j000"}, 10}, {sdk.JobQuery{App: "other"}, 0}} {
		if got := count(test.query); got != test.want {
			t.Errorf("%+v: %d jobs, want %d", test.query, got, test.want)
		}
	}
	var jobs []string
	for run, err := range c.Runs(t.Context(), sdk.RunQuery{Limit: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		jobs = append(jobs, run.GetJob())
	}
	if want := []string{"j0002", "j0001"}; !slices.Equal(jobs, want) {
		t.Errorf("runs of %v, want %v", jobs, want)
	}
	for _, err := range f.dial(t, sdk.Options{}).Jobs(canceled(t), sdk.JobQuery{}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("jobs with a context that has ended: %v", err)
		}
	}
}

func canceled(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestCoalescing delays the first message while many goroutines call, and counts the
// messages in which their commands travel.
func TestCoalescing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const callers = 2000
		hold := make(chan struct{})
		var sizes []int // written only by the goroutine of the stream
		f := start(t, sdktest.Config{Before: func(r *apiv1.ProduceRequest) error {
			<-hold
			sizes = append(sizes, len(r.GetCommands()))
			return nil
		}})
		c := f.dial(t, sdk.Options{})
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				if _, err := c.Apply(t.Context(), job(fmt.Sprint("j", i))); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		close(hold)
		all.Wait()
		if f.Jobs() != callers {
			t.Errorf("%d jobs, want %d", f.Jobs(), callers)
		}
		if len(sizes) > 20 || slices.Max(sizes) > 256 {
			t.Errorf("%d commands came in messages of %v, want at most 20 messages of at most 256", callers, sizes)
		}
		c.Close() //nolint:errcheck // again in Cleanup
		f.Close()
	})
}

func TestLargeCommands(t *testing.T) {
	var largest atomic.Int64
	f := start(t, sdktest.Config{Before: func(r *apiv1.ProduceRequest) error {
		largest.Store(max(largest.Load(), int64(len(r.GetCommands()))))
		return nil
	}})
	c := f.dial(t, sdk.Options{})
	var pending []*sdk.Pending
	for i := range 200 { // 12.5 MiB: a gRPC server would refuse them in one message
		j := job(fmt.Sprint("j", i))
		j.Input = strings.Repeat("x", 64<<10)
		pending = append(pending, c.ApplyAsync(t.Context(), j))
	}
	for _, p := range pending {
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if largest.Load() > 16 {
		t.Errorf("a message held %d commands of 64 KiB, want at most 1 MiB", largest.Load())
	}
	huge := job("huge")
	huge.Input = strings.Repeat("x", 2<<20)
	if _, err := c.Apply(t.Context(), huge); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("a command of 2 MiB: %v", err)
	}
	if n := len(slices.Collect(first(c.Jobs(t.Context(), sdk.JobQuery{})))); n != 200 {
		t.Errorf("list of 200 large jobs: %d", n)
	}
}

func first(jobs func(func(*sdk.Job, error) bool)) func(func(*sdk.Job) bool) {
	return func(yield func(*sdk.Job) bool) {
		jobs(func(j *sdk.Job, err error) bool { return err == nil && yield(j) })
	}
}

// TestReconnect loses every third answer after the server has executed the message. No
// command may be lost or executed twice.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const triggers = 3000
		messages := 0
		f := start(t, sdktest.Config{After: func(*apiv1.ProduceRequest) error {
			if messages++; messages%3 == 0 {
				return status.Error(codes.Unavailable, "the network ate the answer")
			}
			return nil
		}})
		c := f.dial(t, sdk.Options{MaxPending: 500})
		if _, err := c.Apply(t.Context(), job("a")); err != nil {
			t.Fatal(err)
		}
		ids := make(map[string]bool)
		pending := make(chan *sdk.Pending, triggers)
		go func() {
			defer close(pending)
			for range triggers {
				pending <- c.TriggerAsync(t.Context(), sdk.Trigger{Job: "a"})
			}
		}()
		for p := range pending {
			answer, err := p.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ids[answer.RunID] = true
		}
		if len(ids) != triggers || f.Runs() != triggers {
			t.Errorf("%d different runs answered and %d accepted, want %d", len(ids), f.Runs(), triggers)
		}
		if messages < 6 {
			t.Errorf("%d messages: no answer was lost twice, the test tests nothing", messages)
		}
		c.Close() //nolint:errcheck // again in Cleanup
		f.Close()
	})
}

// TestDeleteResent deletes a job and loses the first answer. The repeated command finds
// no job, which counts as success.
func TestDeleteResent(t *testing.T) {
	lost := false
	f := start(t, sdktest.Config{After: func(r *apiv1.ProduceRequest) error {
		if r.GetCommands()[0].GetDelete() != nil && !lost {
			lost = true
			return status.Error(codes.Unavailable, "the network ate the answer")
		}
		return nil
	}})
	c := f.dial(t, sdk.Options{})
	if _, err := c.Apply(t.Context(), job("a")); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), "", "a"); err != nil || !lost {
		t.Errorf("delete: %v, answer lost: %v", err, lost)
	}
}

// TestOutage cuts the server off for ten seconds of fake time, then forever.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, sdktest.Config{})
		c := f.dial(t, sdk.Options{})
		began := time.Now()
		f.refuse.Store(true)
		f.Disconnect()
		time.AfterFunc(10*time.Second, func() { f.refuse.Store(false) })
		if _, err := c.Apply(t.Context(), job("a")); err != nil {
			t.Errorf("apply across an outage of 10 s: %v", err)
		}
		if took := time.Since(began); took < 10*time.Second || took > 15*time.Second {
			t.Errorf("apply across an outage of 10 s took %v", took)
		}

		began = time.Now()
		f.refuse.Store(true)
		f.Disconnect()
		_, err := c.Apply(t.Context(), job("b"))
		if !errors.Is(err, sdk.ErrUnavailable) || !strings.Contains(err.Error(), "cannot reach http://127.0.0.1:1: ") {
			t.Errorf("apply while nobody answers: %v", err)
		}
		if took := time.Since(began); took < 30*time.Second || took > 35*time.Second {
			t.Errorf("apply gave up after %v, want 30 s", took)
		}

		// The client itself keeps trying.
		f.refuse.Store(false)
		if _, err := c.Apply(t.Context(), job("c")); err != nil {
			t.Errorf("apply after the outage: %v", err)
		}
		c.Close() //nolint:errcheck // again in Cleanup
		f.Close()
	})
}

// TestBackPressure fills the client's room while the server does not answer.
func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := start(t, sdktest.Config{Before: func(*apiv1.ProduceRequest) error { <-hold; return nil }})
		c := f.dial(t, sdk.Options{MaxPending: 10})
		for i := range 10 {
			c.ApplyAsync(t.Context(), job(fmt.Sprint("j", i)))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.ApplyAsync(ctx, job("one more")).Wait(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("an eleventh command: %v, want the end of its context", err)
		}
		close(hold)
		if _, err := c.Apply(t.Context(), job("later")); err != nil {
			t.Error(err)
		}
		c.Close() //nolint:errcheck // again in Cleanup
		f.Close()
	})
}

// TestWithdraw ends the contexts of callers whose commands cannot be sent. None of the
// commands may arrive later, and their room must be free again.
func TestWithdraw(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, sdktest.Config{})
		c := f.dial(t, sdk.Options{MaxPending: 10})
		f.refuse.Store(true)
		f.Disconnect()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				if _, err := c.Apply(ctx, job(fmt.Sprint("j", i))); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("apply: %v, want the end of its context", err)
				}
			})
		}
		all.Wait()
		f.refuse.Store(false)
		if _, err := c.Apply(t.Context(), job("later")); err != nil || f.Jobs() != 1 {
			t.Errorf("apply after the outage: %v; %d jobs, want 1", err, f.Jobs())
		}
		c.Close() //nolint:errcheck // again in Cleanup
		f.Close()
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		f := start(t, sdktest.Config{Before: func(*apiv1.ProduceRequest) error { <-hold; return nil }})
		c := f.dial(t, sdk.Options{MaxPending: 2})
		sent := c.ApplyAsync(t.Context(), job("a"))
		c.ApplyAsync(t.Context(), job("b"))
		synctest.Wait()
		var blocked error
		var wait sync.WaitGroup
		wait.Go(func() { _, blocked = c.Apply(t.Context(), job("c")) })
		synctest.Wait()
		c.Close() //nolint:errcheck // again in Cleanup
		wait.Wait()
		if _, err := sent.Wait(t.Context()); !errors.Is(err, sdk.ErrClosed) {
			t.Errorf("a command under way: %v", err)
		}
		if !errors.Is(blocked, sdk.ErrClosed) {
			t.Errorf("a command that waits for room: %v", blocked)
		}
		if _, err := c.Apply(t.Context(), job("d")); !errors.Is(err, sdk.ErrClosed) {
			t.Errorf("a command after the end: %v", err)
		}
		close(hold)
		f.Close()
	})
}

// TestRefusedStream checks that the refusal of a stream reaches each caller at once and
// that the client is usable afterwards.
func TestRefusedStream(t *testing.T) {
	refuse := true
	f := start(t, sdktest.Config{Before: func(*apiv1.ProduceRequest) error {
		if refuse {
			refuse = false
			return status.Error(codes.PermissionDenied, "viewers may not write")
		}
		return nil
	}})
	c := f.dial(t, sdk.Options{})
	if _, err := c.Apply(t.Context(), job("a")); !errors.Is(err, sdk.ErrDenied) || err.Error() != "apply job a: viewers may not write" {
		t.Errorf("apply: %v", err)
	}
	if _, err := c.Apply(t.Context(), job("a")); err != nil {
		t.Errorf("apply again: %v", err)
	}
}

func TestToken(t *testing.T) {
	f := start(t, sdktest.Config{Token: "secret"})
	c := f.dial(t, sdk.Options{Token: "wrong"})
	_, unary := c.Job(t.Context(), "", "a")
	_, stream := c.Apply(t.Context(), job("a"))
	_, _, push := c.PushModule(t.Context(), sdk.Upload{Name: "m", Version: "1", Code: make([]byte, 4<<20)})
	for _, err := range []error{unary, stream, push} {
		if !errors.Is(err, sdk.ErrUnauthenticated) {
			t.Errorf("a wrong token: %v", err)
		}
	}
}

// TestWatch cuts the connection while the client watches a run and follows its log.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, sdktest.Config{Handle: func(ctx context.Context, _ *apiv1.Run, log func(string)) (string, error) {
			for i := range 10 {
				log(fmt.Sprint("line ", i))
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return "", ctx.Err()
				}
			}
			return "", errors.New("no luck")
		}})
		c := f.dial(t, sdk.Options{})
		if _, err := c.Apply(t.Context(), job("a")); err != nil {
			t.Fatal(err)
		}
		run, err := c.TriggerRun(t.Context(), sdk.Trigger{Job: "a"})
		if err != nil {
			t.Fatal(err)
		}
		for _, after := range []time.Duration{2500 * time.Millisecond, 6 * time.Second} {
			time.AfterFunc(after, f.Disconnect)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if last, err := c.Wait(short, "", run.GetId()); !errors.Is(err, context.DeadlineExceeded) || last.GetState() != "running" {
			t.Errorf("wait for 1 s: %v, %v", last, err)
		}
		var lines []string
		for line, err := range c.Logs(t.Context(), sdk.LogQuery{Run: run.GetId(), Follow: true}) {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line.GetText())
		}
		if len(lines) != 10 || lines[0] != "line 0" || lines[9] != "line 9" {
			t.Errorf("followed %q", lines)
		}
		if last, err := c.Wait(t.Context(), "", run.GetId()); err != nil || last.GetState() != "failed" || last.GetError() != "no luck" {
			t.Errorf("wait: %v, %v", last, err)
		}

		run, err = c.TriggerRun(t.Context(), sdk.Trigger{Job: "a"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Cancel(t.Context(), "", run.GetId()); err != nil {
			t.Error(err)
		}
		if last, err := c.Wait(t.Context(), "", run.GetId()); err != nil || last.GetState() != "stopped" {
			t.Errorf("wait for what was cancelled: %v, %v", last, err)
		}
		if _, err := c.Cancel(t.Context(), "", run.GetId()); !errors.Is(err, sdk.ErrPrecondition) {
			t.Errorf("cancel what has ended: %v", err)
		}
		if _, err := c.Wait(t.Context(), "", "none"); !errors.Is(err, sdk.ErrNotFound) {
			t.Errorf("wait for what never was: %v", err)
		}
		c.Close() //nolint:errcheck // again in Cleanup
		f.Close()
	})
}

func TestPushModule(t *testing.T) {
	f := start(t, sdktest.Config{})
	c := f.dial(t, sdk.Options{})
	code := append([]byte("\x00asm"), make([]byte, 600<<10)...)
	var told []int64
	upload := sdk.Upload{Name: "m", Version: "1", Code: code, Progress: func(sent, total int64) {
		if total != int64(len(code)) {
			t.Errorf("total %d, want %d", total, len(code))
		}
		told = append(told, sent)
	}}
	m, result, err := c.PushModule(t.Context(), upload)
	if err != nil || result != sdk.Created || m.GetSize() != int64(len(code)) {
		t.Fatalf("push: %v, %v, %v", m, result, err)
	}
	if want := []int64{256 << 10, 512 << 10, int64(len(code))}; !slices.Equal(told, want) {
		t.Errorf("progress %v, want %v", told, want)
	}
	if _, result, err = c.PushModule(t.Context(), upload); err != nil || result != sdk.Unchanged {
		t.Errorf("push again: %v, %v", result, err)
	}
	dry := sdk.Upload{Name: "m", Version: "2", Code: code, DryRun: true}
	if m, result, err = c.PushModule(t.Context(), dry); err != nil || result != sdk.Checked || m.GetVersion() != "2" {
		t.Errorf("a dry run: %v, %v, %v", m, result, err)
	}
	upload.Code, upload.Progress = []byte("\x00asm"), nil
	if _, _, err = c.PushModule(t.Context(), upload); !errors.Is(err, sdk.ErrConflict) {
		t.Errorf("push other bytes: %v", err)
	}
	upload.Code = make([]byte, 16<<20)
	if _, _, err = c.PushModule(t.Context(), upload); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("push garbage, refused while it is sent: %v", err)
	}
	if m, err := c.Module(t.Context(), "", "m@1"); err != nil || m.GetName() != "m" {
		t.Errorf("module: %v, %v", m, err)
	}
	if modules, err := c.Modules(t.Context(), ""); err != nil || len(modules) != 1 {
		t.Errorf("modules: %v, %v", modules, err)
	}
	for _, ref := range []string{"m", "@1", "m@", "m@1@2"} {
		if _, err := c.Module(t.Context(), "", ref); err == nil {
			t.Errorf("module %q: no error", ref)
		}
	}
}

func TestDial(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:8700":       "want http",
		"ftp://127.0.0.1":      "want http:// or https://",
		"http://":              "is not the address of a server",
		"http://host:1/path":   "is not the address of a server",
		"http://u:p@host:1":    "is not the address of a server",
		"http://127.0.0.1:1/":  "cannot reach http://127.0.0.1:1/: dial tcp 127.0.0.1:1: connect: connection refused",
		"https://127.0.0.1:1/": "connection refused",
	} {
		_, err := sdk.Dial(t.Context(), address, sdk.Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("dial %q: %v, want %q", address, err, want)
		}
	}
}

// TestTokenOfAFile dials with the contents of a token file, which end with a line break,
// and with a text that is not a token.
func TestTokenOfAFile(t *testing.T) {
	f := start(t, sdktest.Config{Token: "secret"})
	if _, err := f.dial(t, sdk.Options{Token: " secret\n"}).Hosts(t.Context()); err != nil {
		t.Errorf("with a line break: %v", err)
	}
	for token, want := range map[string]string{
		"two\nlines": "dial: the token has a line break in it: pass one line, the token alone",
		"caf\u00e9":  "dial: the token has a character that tokens do not have: read it from its file again",
		"two words":  "dial: the token has a character that tokens do not have: read it from its file again",
	} {
		_, err := sdk.Dial(t.Context(), "http://127.0.0.1:1", sdk.Options{Token: token})
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %q", token, err, want)
		}
	}
}

// TestDialOptions checks that an interceptor of the program sees the calls of a client.
func TestDialOptions(t *testing.T) {
	f := start(t, sdktest.Config{})
	var calls []string
	c := f.dial(t, sdk.Options{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			calls = append(calls, method)
			return next(ctx, method, req, reply, cc, opts...)
		})}})
	if _, err := c.Hosts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{apiv1.Cluster_GetVersion_FullMethodName, apiv1.Cluster_ListHosts_FullMethodName}; !slices.Equal(calls, want) {
		t.Errorf("the interceptor saw %q, want %q", calls, want)
	}
}

func TestReads(t *testing.T) {
	f := start(t, sdktest.Config{})
	c := f.dial(t, sdk.Options{})
	if hosts, err := c.Hosts(t.Context()); err != nil || len(hosts) != 1 {
		t.Errorf("hosts: %v, %v", hosts, err)
	}
	if o, err := c.Overview(t.Context(), ""); err != nil || o.GetHostsUp() != 1 {
		t.Errorf("overview: %v, %v", o, err)
	}
	if c.Version().GetVersion() != "sdktest" {
		t.Errorf("version %v", c.Version())
	}
}

func BenchmarkApply(b *testing.B) {
	f := &fleet{Server: sdktest.NewServer(sdktest.Config{}), listener: memconn.Listen(1 << 20)}
	go f.Serve(f.listener) //nolint:errcheck // ends with the server
	defer f.Close()
	c, err := sdk.Dial(b.Context(), "http://127.0.0.1:1", sdk.Options{
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return f.listener.DialContext(ctx) },
	})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the end of the benchmark
	j := job("a")
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := c.Apply(b.Context(), j); err != nil {
				b.Error(err)
			}
		}
	})
}

// TestTriggerAndWait triggers a run and waits for its end in one call, also when the call
// breaks, when its deadline passes on the way, and when the caller has no deadline.
func TestTriggerAndWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := time.Second
		f := start(t, sdktest.Config{Handle: func(ctx context.Context, run *sdk.Run, _ func(string)) (string, error) {
			select {
			case <-time.After(takes):
				return "got " + run.GetInput(), nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}})
		c := f.dial(t, sdk.Options{})
		if _, err := c.Apply(t.Context(), job("a")); err != nil {
			t.Fatal(err)
		}
		runs := func() (n int) {
			for _, err := range c.Runs(t.Context(), sdk.RunQuery{}) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			return n
		}
		for i, x := range []struct {
			name          string
			takes, breaks time.Duration
		}{{"quick", time.Second, 0}, {"longer than a call", 3 * time.Minute, 0}, {"a call that breaks", 10 * time.Second, 5 * time.Second}} {
			takes = x.takes
			if x.breaks > 0 {
				time.AfterFunc(x.breaks, f.Disconnect)
			}
			begin := time.Now()
			run, err := c.TriggerAndWait(t.Context(), sdk.Trigger{Job: "a", Input: []byte("this")})
			if err != nil || run.GetState() != sdk.Succeeded || run.GetOutput() != "got this" || runs() != i+1 {
				t.Errorf("%s: %v, %v, %d runs", x.name, run, err, runs())
			}
			if took := time.Since(begin); took < x.takes || took > x.takes+10*time.Second {
				t.Errorf("%s: after %v", x.name, took)
			}
		}
		takes = time.Minute
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.TriggerAndWait(short, sdk.Trigger{Job: "a", Key: "k"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller without time: %v", err)
		}
		if run, err := c.TriggerAndWait(t.Context(), sdk.Trigger{Job: "a", Key: "k"}); err != nil || run.GetState() != sdk.Succeeded || runs() != 4 {
			t.Errorf("the same key: %v, %v, %d runs", run, err, runs())
		}
		if _, err := c.TriggerAndWait(t.Context(), sdk.Trigger{Job: "none"}); !errors.Is(err, sdk.ErrNotFound) {
			t.Errorf("a job that is not there: %v", err)
		}
	})
}
