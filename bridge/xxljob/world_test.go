package xxljob_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/bridge/xxljob"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/journal/local"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/sched/api"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
	"github.com/wheelworkhq/wheelwork/store"
)

const accessToken = "open-sesame"

// world is a real server, a bridge and executors in a bubble of fake time.
type world struct {
	t    *testing.T
	dir  string
	lis  *memconn.Listener
	stop []func()
	jobs apiv1.JobsClient
	runs apiv1.RunsClient

	mu        sync.Mutex
	bridge    http.Handler
	executors map[string]http.Handler // by host:port
	endBridge func()
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: t.TempDir(), executors: map[string]http.Handler{}}
		w.serve()
		w.startBridge()
		defer func() {
			w.endBridge()
			for _, stop := range w.stop {
				stop()
			}
		}()
		f(t, w)
	})
}

func (w *world) serve() {
	log, err := mq.Open(mq.Config{Dir: filepath.Join(w.dir, "journal"), SegmentBytes: 16 << 20, ReserveBytes: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	j := local.New(log)
	st, err := store.Open(store.Config{Dir: filepath.Join(w.dir, "store"), SegmentBytes: 1 << 20})
	if err != nil {
		w.t.Fatal(err)
	}
	mods, err := modules.Open(filepath.Join(w.dir, "modules"))
	if err != nil {
		w.t.Fatal(err)
	}
	srv, err := sched.New(sched.Config{
		ID: "srv", Journal: j, Store: st, Modules: mods,
		Inspect: func(context.Context, *modules.Upload, string) (api.ModuleInfo, error) {
			return api.ModuleInfo{}, errors.New("there are no modules here")
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	g := grpc.NewServer()
	srv.Register(g)
	w.lis = memconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := srv.Run(ctx); err != nil {
			w.t.Errorf("the server failed: %v", err)
		}
	})
	wg.Go(func() { g.Serve(w.lis) }) //nolint:errcheck // ends with Stop
	conn, err := grpc.NewClient("passthrough:srv", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(w.dial))
	if err != nil {
		w.t.Fatal(err)
	}
	w.jobs, w.runs = apiv1.NewJobsClient(conn), apiv1.NewRunsClient(conn)
	w.stop = append(w.stop, func() {
		conn.Close() //nolint:errcheck // a test's connection
		cancel()
		g.Stop()
		wg.Wait()
		if err := errors.Join(st.Close(), j.Close()); err != nil {
			w.t.Error(err)
		}
	})
}

func (w *world) dial(ctx context.Context, _ string) (net.Conn, error) { return w.lis.DialContext(ctx) }

// RoundTrip delivers a request of the bridge to an executor.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	e := w.executors[r.URL.Host]
	w.mu.Unlock()
	if e == nil {
		return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	}
	if r.Header.Get(xxljob.TokenHeader) != accessToken {
		return nil, errors.New("the bridge sends a wrong token")
	}
	rec := httptest.NewRecorder()
	e.ServeHTTP(rec, r)
	return rec.Result(), nil
}

// startBridge starts a bridge in the directory of the one before it.
func (w *world) startBridge() {
	w.t.Helper()
	b, err := xxljob.New(xxljob.Config{
		Worker: worker.Options{
			Address: "http://127.0.0.1:1", Dialer: w.dial, Logger: slog.New(slog.DiscardHandler), Concurrency: 4, DrainTimeout: time.Second,
		},
		App: "default", Dir: filepath.Join(w.dir, "bridge"), Token: accessToken, Transport: w,
		API: func(ctx context.Context, token string) (*sdk.Client, error) {
			if token != "scripts" {
				return nil, errors.New("unauthenticated")
			}
			return sdk.Dial(ctx, "http://127.0.0.1:1", sdk.Options{Dialer: w.dial})
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.Run(ctx); err != nil {
			w.t.Errorf("the bridge failed: %v", err)
		}
	}()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bridge = b.Handler()
	w.endBridge = func() { cancel(); <-done }
}

// post sends a request to the bridge, as an executor does.
func (w *world) post(path, token string, body any) (code int, msg string) {
	w.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(b))
	r.Header.Set(xxljob.TokenHeader, token)
	return w.answer(r)
}

func (w *world) answer(r *http.Request) (code int, msg string) {
	w.t.Helper()
	w.mu.Lock()
	bridge := w.bridge
	w.mu.Unlock()
	rec := httptest.NewRecorder()
	bridge.ServeHTTP(rec, r)
	var a struct {
		Code    int             `json:"code"`
		Msg     string          `json:"msg"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &a); err != nil {
		w.t.Fatalf("%s: %s: %v", r.URL, rec.Body, err)
	}
	return a.Code, a.Msg + string(a.Content)
}

func (w *world) apply(name, group, input string, change ...func(*apiv1.Job)) {
	w.t.Helper()
	j := &apiv1.Job{Name: name, Handler: &apiv1.Handler{Name: "native:xxl-job." + group}, Input: input}
	for _, f := range change {
		f(j)
	}
	if _, err := w.jobs.ApplyJob(w.t.Context(), &apiv1.ApplyJobRequest{Job: j}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) trigger(name string) string {
	w.t.Helper()
	r, err := w.jobs.TriggerJob(w.t.Context(), &apiv1.TriggerJobRequest{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	return r.Id
}

// wait waits until a run has ended.
func (w *world) wait(id string) *apiv1.Run {
	w.t.Helper()
	s, err := w.runs.WatchRun(w.t.Context(), &apiv1.WatchRunRequest{Id: id})
	if err != nil {
		w.t.Fatal(err)
	}
	var last *apiv1.Run
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return last
		}
		if err != nil {
			w.t.Fatal(err)
		}
		last = r
	}
}

func (w *world) log(id string) string {
	w.t.Helper()
	s, err := w.runs.ReadLog(w.t.Context(), &apiv1.ReadLogRequest{Id: id})
	if err != nil {
		w.t.Fatal(err)
	}
	var lines []string
	for {
		l, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return strings.Join(lines, "\n")
		}
		if err != nil {
			w.t.Fatal(err)
		}
		lines = append(lines, l.Text)
	}
}

// request is what a fake executor gets.
type request struct {
	JobID          int32  `json:"jobId"`
	Handler        string `json:"executorHandler"`
	Params         string `json:"executorParams"`
	Block          string `json:"executorBlockStrategy"`
	Timeout        int    `json:"executorTimeout"`
	LogID          int64  `json:"logId"`
	LogDateTime    int64  `json:"logDateTime"`
	From           int    `json:"fromLineNum"`
	GlueType       string `json:"glueType"`
	BroadcastIndex int    `json:"broadcastIndex"`
	BroadcastTotal int    `json:"broadcastTotal"`
}

// executor speaks the protocol of executors.
type executor struct {
	w       *world
	address string

	mu    sync.Mutex
	calls []string
	lines []string
	busy  map[int32]bool
	ran   chan request
	on    func(path string, r request) (code int, msg string, handled bool) // nil: the default
}

// executor starts a fake executor of a group and registers it.
func (w *world) executor(group, host string) *executor {
	w.t.Helper()
	e := &executor{w: w, address: "http://" + host, busy: map[int32]bool{}, ran: make(chan request, 64)}
	w.mu.Lock()
	w.executors[host] = e
	w.mu.Unlock()
	e.register(group)
	return e
}

func (e *executor) register(group string) {
	e.w.t.Helper()
	if code, msg := e.w.post("/api/registry", accessToken, map[string]string{"registryGroup": "EXECUTOR", "registryKey": group, "registryValue": e.address}); code != 200 {
		e.w.t.Fatalf("register: %d %s", code, msg)
	}
}

func (e *executor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		e.w.t.Errorf("%s: %v", r.URL, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, r.URL.Path)
	code, msg, content := 200, "", any(nil)
	handled := false
	if e.on != nil {
		code, msg, handled = e.on(r.URL.Path, in)
	}
	if !handled {
		code, msg = 200, ""
		switch r.URL.Path {
		case "/run":
			e.busy[in.JobID] = true
			e.ran <- in
		case "/idleBeat":
			if e.busy[in.JobID] {
				code, msg = 500, "busy"
			}
		case "/kill":
			e.busy[in.JobID] = false
		case "/log":
			from := min(in.From-1, len(e.lines))
			content = map[string]any{"fromLineNum": in.From, "toLineNum": len(e.lines), "logContent": strings.Join(e.lines[from:], "\n"), "isEnd": false}
		case "/beat":
		default:
			e.w.t.Errorf("the bridge calls %s", r.URL)
		}
	}
	json.NewEncoder(w).Encode(map[string]any{"code": code, "msg": msg, "content": content}) //nolint:errcheck // in memory
}

func (e *executor) say(lines ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lines = append(e.lines, lines...)
}

func (e *executor) count(path string) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.calls {
		if c == path {
			n++
		}
	}
	return n
}

// done sends the callback of a run.
func (e *executor) done(r request, code int, msg string) {
	e.w.t.Helper()
	e.mu.Lock()
	e.busy[r.JobID] = false
	e.mu.Unlock()
	if got, text := e.w.post("/api/callback", accessToken, []any{map[string]any{"logId": r.LogID, "logDateTim": r.LogDateTime, "handleCode": code, "handleMsg": msg}}); got != 200 {
		e.w.t.Errorf("callback: %d %s", got, text)
	}
}

func input(handler, params, route string) string {
	return fmt.Sprintf(`{"executorHandler":%q,"executorParams":%q,"executorRouteStrategy":%q,"executorBlockStrategy":"SERIAL_EXECUTION","executorTimeout":0,"glueType":"BEAN"}`, handler, params, route)
}
