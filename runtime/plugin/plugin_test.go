//go:build unix

package plugin

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	pluginv1 "github.com/wheelworkhq/wheelwork/api/plugin/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/process"
	sdk "github.com/wheelworkhq/wheelwork/sdk/plugin"
)

// The test binary also acts as the plugins of these tests. This variable selects one.
const role = "WHEELWORK_TEST_ROLE"

// forever blocks. It uses a timer because Go aborts a program in which all goroutines are
// blocked.
func forever() { <-time.After(time.Hour) }

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "guard" {
		process.Guard(os.Stdin)
		return
	}
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "sdk":
		sdk.Serve(sdk.Config{Version: "1.2", Handlers: handlers})
	case "wide":
		sdk.Serve(sdk.Config{Concurrency: 1024, Handlers: handlers})
	case "alone":
		sdk.Serve(sdk.Config{Concurrency: 1, Handlers: handlers})
	case "stock":
		stock(&scripted{})
	case "raw":
		stock(&scripted{hostile: true})
	case "mute":
		forever()
	case "exits":
		fmt.Fprintln(os.Stderr, "cannot open the database")
		os.Exit(3)
	case "garbage":
		fmt.Println("hello, I am no plugin")
		forever()
	case "endless":
		for {
			os.Stdout.WriteString(strings.Repeat("x", 1<<10))
		}
	case "nocert":
		fmt.Println("1|1|tcp|127.0.0.1:1|grpc|")
		forever()
	case "elsewhere":
		fmt.Println("1|1|tcp|192.0.2.1:80|grpc|" + someCertificate())
		forever()
	case "socket":
		fmt.Println("1|1|unix|/tmp/somebody-elses.sock|grpc|" + someCertificate())
		forever()
	case "child": // a child of a plugin, with its standard output
		os.Stdout.WriteString("here\n")
		forever()
	case "host": // a host with one plugin that has a child; it ends only when it is killed
		host()
	}
}

func someCertificate() string {
	cert, _, err := clientCertificate()
	if err != nil {
		panic(err)
	}
	return base64.RawStdEncoding.EncodeToString(cert.Certificate[0])
}

func FuzzHandshake(f *testing.F) {
	f.Add("1|1|unix|/tmp/x|grpc|" + someCertificate() + "\n")
	f.Add("1|1|unix|/tmp/x|grpc\n")
	f.Add("|||||MIIB|")
	f.Fuzz(func(t *testing.T, line string) {
		if err := checkHandshake(line); err == nil && strings.Count(line, "|") < 5 {
			t.Errorf("%q is taken", line)
		}
	})
}

// handlers are the handlers of the plugins that use the SDK.
var handlers = map[string]sdk.Func{
	"main": func(_ context.Context, t *sdk.Task) ([]byte, error) { return append([]byte("main "), t.Input...), nil },
	"echo": func(_ context.Context, t *sdk.Task) ([]byte, error) { return t.Input, nil },
	"tell": func(ctx context.Context, t *sdk.Task) ([]byte, error) {
		deadline, ok := ctx.Deadline()
		return fmt.Appendf(nil, "%s %s %s %d/%d %d covers=%d part=%d/%d %s %q %v %s limit=%d deadline=%v near=%v", t.Run, t.App, t.Job, t.Attempt, t.MaxAttempts,
			t.PlannedAt.UnixMilli(), t.Covers, t.Part, t.Parts, t.Handler, t.Args, t.Env, t.TraceParent, t.OutputLimit, ok, time.Until(deadline) < time.Hour), nil
	},
	"fail": func(_ context.Context, t *sdk.Task) ([]byte, error) {
		switch err := errors.New("no such order"); string(t.Input) {
		case "permanent":
			return nil, sdk.Permanent(sdk.Coded(err, "order"))
		case "later":
			return nil, fmt.Errorf("pay: %w", sdk.RetryAfter(err, 3*time.Second))
		case "empty":
			return nil, errors.New("")
		default:
			return nil, fmt.Errorf("%w\nand a second line", err)
		}
	},
	"panic": func(context.Context, *sdk.Task) ([]byte, error) { panic("boom") },
	"log": func(_ context.Context, t *sdk.Task) ([]byte, error) {
		t.Log().With("order", 7).WithGroup("by").Warn("slow", "who", "a b")
		t.Printf("one\ntwo %d", 2)
		t.Progress(1, 2, "half")
		return nil, nil
	},
	"flood": func(_ context.Context, t *sdk.Task) ([]byte, error) {
		for range 100_000 {
			t.Printf("%s", strings.Repeat("x", 100))
		}
		return []byte("flooded"), nil
	},
	"print": func(_ context.Context, t *sdk.Task) ([]byte, error) {
		fmt.Printf("out %s", t.Input)
		fmt.Fprintf(os.Stderr, "err %s\n", t.Input)
		return nil, nil
	},
	"gush": func(context.Context, *sdk.Task) ([]byte, error) {
		for range 200 {
			os.Stdout.Write(bytes.Repeat([]byte("y"), 64<<10))
		}
		return []byte("gushed"), nil
	},
	"env": func(context.Context, *sdk.Task) ([]byte, error) {
		return []byte(strings.Join(os.Environ(), "\n")), nil
	},
	"large": func(context.Context, *sdk.Task) ([]byte, error) { return make([]byte, 2<<20), nil },
	"wait": func(ctx context.Context, t *sdk.Task) ([]byte, error) {
		t.Printf("waiting")
		<-ctx.Done()
		return nil, ctx.Err()
	},
	"finish": func(ctx context.Context, t *sdk.Task) ([]byte, error) { // completes its work although it was asked to stop
		t.Printf("waiting")
		<-ctx.Done()
		return []byte("done"), nil
	},
	"deaf": func(_ context.Context, t *sdk.Task) ([]byte, error) {
		t.Printf("waiting")
		forever()
		return nil, nil
	},
	"exit": func(_ context.Context, t *sdk.Task) ([]byte, error) {
		fmt.Fprintln(os.Stderr, "panic: out of cheese")
		fmt.Fprintln(os.Stderr, "goroutine 1 [running]:")
		os.Exit(7)
		return nil, nil
	},
	"freeze": func(context.Context, *sdk.Task) ([]byte, error) {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		forever() // the signal may take a moment
		return nil, nil
	},
	"pid": func(context.Context, *sdk.Task) ([]byte, error) { return fmt.Append(nil, os.Getpid()), nil },
	"spawn": func(context.Context, *sdk.Task) ([]byte, error) {
		f, err := os.OpenFile(os.Getenv("PIPE"), os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stdout = []string{role + "=child"}, f
		return nil, cmd.Start()
	},
}

// stock serves with the server of go-plugin, like plugins that do not use the SDK.
func stock(s *scripted) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig: goplugin.HandshakeConfig{ProtocolVersion: protocolVersion, MagicCookieKey: cookieKey, MagicCookieValue: cookieValue},
		Plugins:         goplugin.PluginSet{"wheelwork": served{s: s}},
		GRPCServer:      goplugin.DefaultGRPCServer,
	})
}

type served struct {
	goplugin.NetRPCUnsupportedPlugin
	s *scripted
}

func (p served) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	pluginv1.RegisterPluginServer(s, p.s)
	return nil
}

func (p served) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("it is the host")
}

// scripted is a plugin in which the input of a task selects the answer.
type scripted struct {
	pluginv1.UnimplementedPluginServer
	hostile bool
}

func (s *scripted) Describe(context.Context, *pluginv1.DescribeRequest) (*pluginv1.DescribeResponse, error) {
	if s.hostile {
		return &pluginv1.DescribeResponse{Concurrency: 1 << 31}, nil
	}
	return &pluginv1.DescribeResponse{Handlers: []string{"main"}}, nil
}

func (s *scripted) Work(stream grpc.BidiStreamingServer[pluginv1.ToPlugin, pluginv1.FromPlugin]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil
		}
		for _, t := range m.Tasks {
			r := &pluginv1.Result{Id: t.Id, Outcome: pluginv1.Outcome_OUTCOME_SUCCEEDED, Output: t.Input}
			up := &pluginv1.FromPlugin{Results: []*pluginv1.Result{r}}
			switch string(t.Input) {
			case "strangers": // sends results for unknown tasks, and two for a known one
				up.Results = []*pluginv1.Result{{Id: 0}, {Id: t.Id + 1, Error: "stolen"}, {Id: 1 << 63}, r, {Id: t.Id, Error: "again"}}
				up.Logs = []*pluginv1.Log{{Id: t.Id + 1, Text: "stolen"}, {Id: t.Id, Level: -5, Text: "a\nb\r\n\nc"}, {Id: t.Id, Level: 99, Text: "d"}}
				up.Progress = []*pluginv1.Progress{{Id: 77}, {Id: t.Id, Done: -1, Message: "x\ny"}}
			case "numbers":
				*r = pluginv1.Result{Id: t.Id, Outcome: 99, RetryAfterMs: 1 << 62, DurationUs: -1 << 63, Error: "e\nf", Code: strings.Repeat("c", 5000), Trace: strings.Repeat("t", 10_000)}
			case "huge":
				r.Output = make([]byte, maxMessage+1)
			case "hang up":
				return nil
			case "silence":
				continue
			}
			if stream.Send(up) != nil {
				return nil
			}
		}
	}
}

// host runs a host that the test kills.
func host() {
	s, err := self("sdk")
	if err != nil {
		panic(err)
	}
	exe, _ := os.Executable()
	s.Env["PIPE"] = os.Getenv("PIPE")
	dir, err := os.MkdirTemp(os.Getenv("DIR"), "")
	if err != nil {
		panic(err)
	}
	e, err := Open(Config{Plugins: []Spec{s}, Dir: dir, Keeper: process.New(exe, "guard")})
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stderr, e.Run(context.Background(), runtime.Task{Module: "self", Handler: "spawn"}, &heard{}))
	forever()
}

var ownDigest = sync.OnceValues(func() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(exe)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
})

// self returns the Spec of this test binary in a role.
func self(as string) (Spec, error) {
	exe, err := os.Executable()
	if err != nil {
		return Spec{}, err
	}
	digest, err := ownDigest()
	return Spec{Name: "self", Path: exe, SHA256: []string{digest}, Env: map[string]string{role: as}}, err
}

// hostLog collects the log of a host.
type hostLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (h *hostLog) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *hostLog) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// open opens an executor with one plugin.
func open(t testing.TB, as string, change ...func(*Spec)) (*Executor, *hostLog) {
	t.Helper()
	s, err := self(as)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range change {
		f(&s)
	}
	log := &hostLog{}
	k := process.New()
	e, err := Open(Config{Plugins: []Spec{s}, Dir: filepath.Join(t.TempDir(), "plugins"), Keeper: k, Version: "test", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), k.Close()); err != nil {
			t.Error(err)
		}
	})
	return e, log
}

// heard is a sink that records all calls, and signals the first line.
type heard struct {
	mu    sync.Mutex
	lines []string
	steps []string
	first chan struct{}
}

func (h *heard) Log(level runtime.Level, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("%d %s", level, text))
	if h.first != nil && len(h.lines) == 1 {
		close(h.first)
	}
}

func (h *heard) Progress(done, total int64, message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, fmt.Sprintf("%d/%d %s", done, total, message))
}

func task(handler, input string) runtime.Task {
	return runtime.Task{RunID: "r1", App: "a", Job: "j", Attempt: 1, MaxAttempt: 3, Module: "self", Handler: handler, Input: []byte(input)}
}

func run(t *testing.T, e *Executor, handler, input string) (runtime.Result, *heard) {
	t.Helper()
	h := &heard{}
	return e.Run(t.Context(), task(handler, input), h), h
}

func TestHandlers(t *testing.T) {
	e, log := open(t, "sdk")
	for _, tt := range []struct {
		handler, input string
		want           runtime.Result
	}{
		{"", "x", runtime.Result{Outcome: runtime.Succeeded, Output: []byte("main x")}},
		{"echo", "hello", runtime.Result{Outcome: runtime.Succeeded, Output: []byte("hello")}},
		{"fail", "", runtime.Result{Outcome: runtime.Retryable, Code: "status", Error: "no such order and a second line"}},
		{"fail", "empty", runtime.Result{Outcome: runtime.Retryable, Code: "status", Error: "an error of type *errors.errorString without a text"}},
		{"fail", "permanent", runtime.Result{Outcome: runtime.Permanent, Code: "order", Error: "no such order"}},
		{"fail", "later", runtime.Result{Outcome: runtime.Retryable, Code: "status", Error: "pay: no such order", RetryAfter: 3 * time.Second}},
		{"nope", "", runtime.Result{Outcome: runtime.Permanent, Code: codeNoHandler, Error: `plugin self has no handler "nope"; it has: deaf, echo, `}},
		{"large", "", runtime.Result{Outcome: runtime.Permanent, Code: codeOutputLimit, Error: "the output has 2097152 bytes, its limit is 1048576: return less or raise the limit"}},
		{"panic", "", runtime.Result{Outcome: runtime.Retryable, Code: "panic", Error: "panic: boom"}},
	} {
		got, _ := run(t, e, tt.handler, tt.input)
		if got.Outcome != tt.want.Outcome || !bytes.Equal(got.Output, tt.want.Output) || got.Code != tt.want.Code ||
			!strings.HasPrefix(got.Error, tt.want.Error) || tt.want.Error == "" && got.Error != "" || got.RetryAfter != tt.want.RetryAfter {
			t.Errorf("%s(%s): got %+v", tt.handler, tt.input, got)
		}
		if (got.Trace != "") != (tt.want.Code == "panic") {
			t.Errorf("%s(%s): trace %q", tt.handler, tt.input, got.Trace)
		}
		if got.Duration <= 0 && tt.handler != "nope" {
			t.Errorf("%s: took %s", tt.handler, got.Duration)
		}
	}
	if n := strings.Count(log.String(), "plugin ready"); n != 1 {
		t.Errorf("it was started %d times:\n%s", n, log)
	}
}

func TestTaskIsToldWhole(t *testing.T) {
	e, _ := open(t, "sdk")
	got := e.Run(t.Context(), runtime.Task{
		RunID: "r9", App: "shop", Job: "settle", Attempt: 2, MaxAttempt: 5, PlannedAt: time.UnixMilli(1234), Covers: 3, Part: 1, Parts: 4,
		Module: "self", Handler: "tell", Args: []string{"a", "b"}, Env: map[string]string{"K": "v"}, TraceParent: "00-1-2-3",
		Limits: runtime.Limits{OutputBytes: 1000}, Deadline: time.Now().Add(time.Minute),
	}, &heard{})
	const want = `r9 shop settle 2/5 1234 covers=3 part=1/4 tell ["a" "b"] map[K:v] 00-1-2-3 limit=1000 deadline=true near=true`
	if string(got.Output) != want {
		t.Errorf("got %s, %s", got.Output, got.Error)
	}
}

func TestLogAndProgress(t *testing.T) {
	e, _ := open(t, "sdk")
	r, h := run(t, e, "log", "")
	if want := []string{`2 slow order=7 by.who="a b"`, "1 one", "1 two 2"}; r.Outcome != runtime.Succeeded || !slices.Equal(h.lines, want) {
		t.Errorf("log: %+v %q", r, h.lines)
	}
	if want := []string{"1/2 half"}; !slices.Equal(h.steps, want) {
		t.Errorf("progress: %q", h.steps)
	}
	r, h = run(t, e, "flood", "")
	if string(r.Output) != "flooded" || len(h.lines) > 1<<20/100 || !strings.Contains(h.lines[len(h.lines)-1], "log limit of 1048576 bytes reached") {
		t.Errorf("flood: %+v, %d lines, the last %q", r, len(h.lines), h.lines[len(h.lines)-1])
	}
}

// The output of a program is the log of a run if the program runs one task at a time.
func TestOutputOfAPluginThatRunsOneTaskAtATime(t *testing.T) {
	e, log := open(t, "alone")
	var wg sync.WaitGroup
	for n := range 20 {
		wg.Go(func() {
			h := &heard{}
			r := e.Run(t.Context(), task("print", fmt.Sprint(n)), h)
			slices.Sort(h.lines)
			if want := []string{fmt.Sprintf("1 err %d", n), fmt.Sprintf("1 out %d", n)}; r.Outcome != runtime.Succeeded || !slices.Equal(h.lines, want) {
				t.Errorf("got %+v, %q", r, h.lines)
			}
		})
	}
	wg.Wait()
	if r, h := run(t, e, "gush", ""); string(r.Output) != "gushed" || len(h.lines) > 1+1<<20/process.MaxLine {
		t.Errorf("gush: %+v, %d lines", r, len(h.lines))
	}
	if strings.Contains(log.String(), "out ") {
		t.Errorf("a run's line is in the host's log:\n%.2000s", log)
	}
}

func TestOutputOfAPluginThatRunsMany(t *testing.T) {
	e, log := open(t, "sdk")
	if _, h := run(t, e, "print", "secret"); len(h.lines) > 0 {
		t.Errorf("the log of the run: %q", h.lines)
	}
	if r, _ := run(t, e, "gush", ""); string(r.Output) != "gushed" {
		t.Errorf("gush: %+v", r)
	}
	e.Close() // after Close, all output has been read
	if s := log.String(); !strings.Contains(s, "err secret") || !strings.Contains(s, "out secret") {
		t.Errorf("not in the host's log: %.1000s", s)
	}
	if n := strings.Count(log.String(), "yyy\""); n > throttleBurst {
		t.Errorf("%d lines in the host's log", n)
	}
}

func TestEnvironmentOfTheHostStaysThere(t *testing.T) {
	t.Setenv("WHEELWORK_TOKEN", "hush")
	e, _ := open(t, "sdk", func(s *Spec) { s.Env["OWN"] = "yes" })
	r, _ := run(t, e, "env", "")
	if env := "\n" + string(r.Output); strings.Contains(env, "hush") || !strings.Contains(env, "\nOWN=yes") || !strings.Contains(env, "\nPATH=") {
		t.Errorf("its environment:%s", env)
	}
}

// whileItRuns starts a task, and calls f while its handler runs.
func whileItRuns(t *testing.T, e *Executor, ctx context.Context, task runtime.Task, f func()) (runtime.Result, *heard) {
	t.Helper()
	h := &heard{first: make(chan struct{})}
	done := make(chan runtime.Result, 1)
	go func() { done <- e.Run(ctx, task, h) }()
	select {
	case <-h.first:
		f()
		return <-done, h
	case r := <-done:
		t.Fatalf("it ended before it ran: %+v", r)
		return r, h
	}
}

func TestCancel(t *testing.T) {
	e, _ := open(t, "sdk")
	ctx, cancel := context.WithCancel(t.Context())
	if r, _ := whileItRuns(t, e, ctx, task("wait", ""), cancel); r.Outcome != runtime.Stopped || r.Code != codeStopped {
		t.Errorf("wait: %+v", r)
	}
	ctx, cancel = context.WithCancel(t.Context())
	if r, _ := whileItRuns(t, e, ctx, task("finish", ""), cancel); r.Outcome != runtime.Succeeded || string(r.Output) != "done" {
		t.Errorf("finish: %+v", r)
	}
	if r := e.Run(ctx, task("echo", ""), &heard{}); r.Outcome != runtime.Stopped {
		t.Errorf("cancelled before it started: %+v", r)
	}
}

func TestDeadline(t *testing.T) {
	e, _ := open(t, "sdk")
	if r, _ := run(t, e, "echo", "warm"); r.Outcome != runtime.Succeeded {
		t.Fatal(r)
	}
	late := task("wait", "")
	late.Deadline = time.Now().Add(50 * time.Millisecond)
	if r := e.Run(t.Context(), late, &heard{}); r.Outcome != runtime.TimedOut || r.Code != codeDeadline {
		t.Errorf("got %+v", r)
	}
	late.Deadline = time.Now().Add(-time.Second)
	if r := e.Run(t.Context(), late, &heard{}); r.Outcome != runtime.TimedOut {
		t.Errorf("passed before: %+v", r)
	}
}

// A handler that does not end on request ends with its program. The other tasks of the
// program can be retried.
func TestDeafHandlerIsKilled(t *testing.T) {
	e, _ := open(t, "sdk", func(s *Spec) { s.Grace = 50 * time.Millisecond })
	beside := make(chan runtime.Result, 1)
	there := &heard{first: make(chan struct{})}
	go func() { beside <- e.Run(context.Background(), task("wait", ""), there) }()
	<-there.first
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := whileItRuns(t, e, ctx, task("deaf", ""), cancel)
	if r.Outcome != runtime.Stopped || r.Code != codeKilled {
		t.Errorf("deaf: %+v", r)
	}
	if r := <-beside; r.Outcome != runtime.Retryable || r.Code != codeCrash || !strings.Contains(r.Error, "run r1 of job j did not end within 50ms") {
		t.Errorf("beside it: %+v", r)
	}
	if r, _ := run(t, e, "echo", "again"); string(r.Output) != "again" {
		t.Fatalf("it was not started again: %+v", r)
	}
	late := task("deaf", "")
	late.Deadline = time.Now().Add(200 * time.Millisecond)
	if r := e.Run(t.Context(), late, &heard{}); r.Outcome != runtime.TimedOut || r.Code != codeKilled {
		t.Errorf("deadline: %+v", r)
	}
}

func TestCrashIsOfItsOwnTasks(t *testing.T) {
	crashing, _ := open(t, "alone")
	other, _ := open(t, "sdk")
	there := &heard{first: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	beside := make(chan runtime.Result, 1)
	go func() { beside <- other.Run(ctx, task("finish", ""), there) }()
	<-there.first
	r, h := run(t, crashing, "exit", "")
	if r.Outcome != runtime.Retryable || r.Code != codeCrash || !strings.Contains(r.Error, "exit status 7: panic: out of cheese") {
		t.Errorf("crash: %+v", r)
	}
	if want := []string{"1 panic: out of cheese", "1 goroutine 1 [running]:"}; !slices.Equal(h.lines, want) {
		t.Errorf("its log: %q", h.lines)
	}
	if r, _ := run(t, crashing, "echo", "again"); string(r.Output) != "again" {
		t.Errorf("it was not started again: %+v", r)
	}
	cancel()
	if r := <-beside; string(r.Output) != "done" {
		t.Errorf("another plugin's task: %+v", r)
	}
}

func TestFrozenPluginIsKilled(t *testing.T) {
	e, _ := open(t, "sdk", func(s *Spec) { s.HealthEvery = 150 * time.Millisecond })
	r, _ := run(t, e, "freeze", "")
	if r.Outcome != runtime.Retryable || r.Code != codeCrash || !strings.Contains(r.Error, "did not pass 3 health checks") {
		t.Errorf("got %+v", r)
	}
	if r, _ := run(t, e, "echo", "again"); string(r.Output) != "again" {
		t.Errorf("it was not started again: %+v", r)
	}
}

func TestSeveralProcesses(t *testing.T) {
	e, _ := open(t, "alone", func(s *Spec) { s.Processes = 2 })
	ctx, cancel := context.WithCancel(t.Context())
	// Two tasks at once need two processes, because each process runs one task.
	var wg sync.WaitGroup
	for range 2 {
		h := &heard{first: make(chan struct{})}
		wg.Go(func() {
			if r := e.Run(ctx, task("finish", ""), h); r.Outcome != runtime.Succeeded {
				t.Errorf("got %+v", r)
			}
		})
		<-h.first
	}
	cancel()
	wg.Wait()
}

func TestNotStarting(t *testing.T) {
	for as, want := range map[string]string{
		"mute":      "it was not ready after",
		"exits":     "it ended, or closed its standard output, before the handshake: cannot open the database",
		"garbage":   `not a handshake: it must be 1|1|NETWORK|ADDRESS|grpc|CERTIFICATE, and it is "hello, I am no plugin\n"`,
		"endless":   "the first line of its standard output is not a handshake",
		"nocert":    "the sixth part of its handshake is not a certificate",
		"elsewhere": "192.0.2.1:80 is not of the loopback interface",
		"socket":    "is not in the directory that PLUGIN_UNIX_SOCKET_DIR names",
	} {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			e, _ := open(t, as, func(s *Spec) {
				if as == "mute" {
					s.StartTimeout = 100 * time.Millisecond
				}
			})
			late := task("echo", "")
			if r := e.Run(t.Context(), late, &heard{}); r.Outcome != runtime.HostError || r.Code != codeDown || !strings.Contains(r.Error, want) {
				t.Errorf("got %+v", r)
			}
			if e.Up("self") {
				t.Error("a plugin that never ran is up")
			}
		})
	}
}

// TestUp checks that a plugin is up while it runs and during a short break, but not while
// it waits long for its next start. Every change must call the function of Watch.
func TestUp(t *testing.T) {
	e, _ := open(t, "sdk")
	changes := make(chan bool, 100)
	watch := func() { changes <- e.Up("self") }
	e.Watch(watch)
	watch() // the plugin may have come up before Watch
	await := func(up bool) {
		t.Helper()
		for late := time.After(20 * time.Second); ; {
			select {
			case got := <-changes:
				if got == up {
					return
				}
			case <-late:
				t.Fatalf("the plugin was not told to be up: %v", up)
			}
		}
	}
	await(true)
	if e.Up("other") {
		t.Error("a plugin that is not there is up")
	}
	for _, wait := range []time.Duration{100, 200, 400} {
		if r, _ := run(t, e, "exit", ""); r.Code != codeCrash {
			t.Fatalf("got %+v", r)
		}
		if !e.Up("self") {
			t.Errorf("it is down in a break of %d ms", wait)
		}
	}
	if r, _ := run(t, e, "exit", ""); r.Code != codeCrash { // the next break is 800 ms
		t.Fatalf("got %+v", r)
	}
	await(false)
	await(true)
	if r, _ := run(t, e, "echo", "back"); string(r.Output) != "back" {
		t.Errorf("got %+v", r)
	}
}

func TestStockGoPlugin(t *testing.T) {
	e, _ := open(t, "stock")
	if r, _ := run(t, e, "main", "hello"); string(r.Output) != "hello" {
		t.Errorf("got %+v", r)
	}
}

func TestHostilePlugin(t *testing.T) {
	e, _ := open(t, "raw")
	r, h := run(t, e, "any", "strangers")
	if string(r.Output) != "strangers" || !slices.Equal(h.lines, []string{"0 a", "0 b", "0 c", "3 d"}) || !slices.Equal(h.steps, []string{"-1/0 x y"}) {
		t.Errorf("strangers: %+v %q %q", r, h.lines, h.steps)
	}
	if r, _ := run(t, e, "any", "numbers"); r.Outcome != runtime.Retryable || r.RetryAfter != 30*24*time.Hour || r.Duration < 0 || r.Error != "e f" || len(r.Code) > 1<<10 || len(r.Trace) != maxTrace {
		t.Errorf("numbers: %v %v %v %q %d %d", r.Outcome, r.RetryAfter, r.Duration, r.Error, len(r.Code), len(r.Trace))
	}
	for _, input := range []string{"huge", "hang up"} {
		if r, _ := run(t, e, "any", input); r.Outcome != runtime.Retryable || r.Code != codeCrash || !strings.Contains(r.Error, "it ended its stream") {
			t.Errorf("%s: %+v", input, r)
		}
	}
	if r, _ := run(t, e, "any", "again"); string(r.Output) != "again" {
		t.Errorf("it was not started again: %+v", r)
	}
}

func TestManyAtOnce(t *testing.T) {
	e, _ := open(t, "sdk")
	var wg sync.WaitGroup
	for n := range 500 {
		wg.Go(func() {
			input := fmt.Sprint("task ", n)
			if r := e.Run(t.Context(), task("echo", input), &heard{}); string(r.Output) != input {
				t.Errorf("%s: %+v", input, r)
			}
		})
	}
	wg.Wait()
	p := e.plugins["self"]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ready[0].tasks != 0 || p.waiting != 0 || p.ready[0].limit != defaultConcurrency {
		t.Errorf("%d tasks, %d waiting, limit %d", p.ready[0].tasks, p.waiting, p.ready[0].limit)
	}
}

// When a host is killed, its plugins end, and so do the processes that they have started.
func TestKilledHost(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	host := exec.Command(exe)
	host.Env = append(os.Environ(), role+"=host", "PIPE="+pipe, "DIR="+dir)
	host.Stderr = os.Stderr
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	defer host.Process.Kill()
	f, err := os.Open(pipe) // blocks until the plugin opens it for writing
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	if line, err := r.ReadString('\n'); line != "here\n" {
		t.Fatalf("read %q, %v", line, err)
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	host.Wait()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 { // EOF comes when no process holds the pipe
		t.Fatalf("read %q, %v", rest, err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	e, _ := open(t, "sdk")
	r, _ := run(t, e, "pid", "")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	var pid int
	fmt.Sscan(string(r.Output), &pid)
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the plugin %d is still there: %v", pid, err)
	}
	if r := e.Run(t.Context(), task("echo", ""), &heard{}); r.Outcome != runtime.HostError {
		t.Errorf("run after close: %+v", r)
	}
	leftNothing(t, temp)
}

func TestProgramThatIsNone(t *testing.T) {
	temp, dir := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", temp)
	const text = "no program"
	file := filepath.Join(dir, "text")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(text))
	e, _ := open(t, "", func(s *Spec) { s.Path, s.SHA256 = file, []string{hex.EncodeToString(sum[:])} })
	if r, _ := run(t, e, "echo", ""); r.Outcome != runtime.HostError || !strings.Contains(r.Error, syscall.ENOEXEC.Error()) {
		t.Errorf("got %+v", r)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	leftNothing(t, temp)
}

func leftNothing(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestAllow(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("program", "the program")
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	stranger, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(text string, key ed25519.PrivateKey) string {
		t.Helper()
		s, err := Sign(strings.NewReader(text), key)
		if err != nil {
			t.Fatal(err)
		}
		return string(s)
	}
	write("good.sig", sign("the program", private))
	write("other.sig", sign("the program", other))
	write("older.sig", sign("an older program", private))
	write("raw.sig", hex.EncodeToString(ed25519.Sign(private, []byte("the program"))))
	write("short.sig", "AAAA")
	sum := sha256.Sum256([]byte("the program"))
	digest := hex.EncodeToString(sum[:])
	for _, tt := range []struct {
		name string
		spec Spec
		want string
	}{
		{"digest", Spec{SHA256: []string{digest}}, ""},
		{"digest in capitals with its algorithm", Spec{SHA256: []string{strings.Repeat("0", 64), "sha256:" + strings.ToUpper(digest)}}, ""},
		{"another digest", Spec{SHA256: []string{strings.Repeat("0", 64)}}, "its sha256 is " + digest},
		{"signed", Spec{Keys: []ed25519.PublicKey{stranger, public}, Signature: "good.sig"}, ""},
		{"another digest, but signed", Spec{SHA256: []string{strings.Repeat("0", 64)}, Keys: []ed25519.PublicKey{public}, Signature: "good.sig"}, ""},
		{"by a stranger", Spec{Keys: []ed25519.PublicKey{public}, Signature: "other.sig"}, "none of the plugin's keys"},
		{"of an older program", Spec{Keys: []ed25519.PublicKey{public}, Signature: "older.sig"}, "none of the plugin's keys"},
		{"no base64", Spec{Keys: []ed25519.PublicKey{public}, Signature: "raw.sig"}, "is not a signature"},
		{"too short", Spec{Keys: []ed25519.PublicKey{public}, Signature: "short.sig"}, "is not a signature"},
		{"no file", Spec{Keys: []ed25519.PublicKey{public}}, "program.sig"},
	} {
		s := tt.spec
		s.Name, s.Path = "p", program
		if s.Signature != "" {
			s.Signature = filepath.Join(dir, s.Signature)
		}
		private := filepath.Join(t.TempDir())
		path, got, err := prepare(&s, private)
		if tt.want != "" {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v", tt.name, err)
			}
			if left, _ := os.ReadDir(private); len(left) > 0 {
				t.Errorf("%s: %v is left", tt.name, left)
			}
			continue
		}
		if err != nil || got != digest {
			t.Errorf("%s: %s, %v", tt.name, got, err)
			continue
		}
		if text, err := os.ReadFile(path); string(text) != "the program" {
			t.Errorf("%s: the copy is %q, %v", tt.name, text, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	ok, err := self("sdk")
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Spec){
		"the name is malformed":   func(s *Spec) { s.Name = "../x" },
		"is not absolute":         func(s *Spec) { s.Path = "plugin" },
		"give sha256":             func(s *Spec) { s.SHA256 = nil },
		"is not 64 hex digits":    func(s *Spec) { s.SHA256 = []string{"abc"} },
		"processes is -1":         func(s *Spec) { s.Processes = -1 },
		"a time is negative":      func(s *Spec) { s.Grace = -1 },
		"an ed25519 key has 32":   func(s *Spec) { s.Keys = []ed25519.PublicKey{{1}} },
		"plugin self is listed t": func(s *Spec) {},
	} {
		s := ok
		change(&s)
		k := process.New()
		e, err := Open(Config{Plugins: []Spec{ok, s}, Dir: t.TempDir(), Keeper: k})
		if err == nil {
			e.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
		k.Close()
	}
}

func TestBackoff(t *testing.T) {
	var waits []time.Duration
	var last time.Duration
	for range 11 {
		last = backoff(last, time.Second)
		waits = append(waits, last)
	}
	ms := time.Millisecond
	want := []time.Duration{100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms, 25600 * ms, 30 * time.Second, 30 * time.Second}
	if !slices.Equal(waits, want) {
		t.Errorf("got %v", waits)
	}
	if got := backoff(last, minLifetime); got != firstBackoff {
		t.Errorf("after a minute of life: %s", got)
	}
}

func TestThrottle(t *testing.T) {
	var th throttle
	now := time.Unix(1, 0)
	passed := 0
	for range 3 * throttleBurst {
		if ok, _ := th.pass(now); ok {
			passed++
		}
	}
	if passed != throttleBurst {
		t.Errorf("%d of a burst passed", passed)
	}
	if ok, dropped := th.pass(now.Add(time.Second)); !ok || dropped != 2*throttleBurst {
		t.Errorf("a second later: %v, %d dropped", ok, dropped)
	}
}
