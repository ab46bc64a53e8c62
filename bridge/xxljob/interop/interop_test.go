package interop_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	xxl "github.com/xxl-job/xxl-job-executor-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/bridge/xxljob"
	"github.com/wheelworkhq/wheelwork/journal/local"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/sched"
	"github.com/wheelworkhq/wheelwork/sched/api"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
	"github.com/wheelworkhq/wheelwork/store"
)

const token = "a-secret-of-executors"

// world is a server and a bridge on loopback addresses.
type world struct {
	t      *testing.T
	bridge string // its URL
	jobs   apiv1.JobsClient
	runs   apiv1.RunsClient
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	log, err := mq.Open(mq.Config{Dir: filepath.Join(dir, "journal"), SegmentBytes: 16 << 20, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	j := local.New(log)
	st, err := store.Open(store.Config{Dir: filepath.Join(dir, "store"), SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	mods, err := modules.Open(filepath.Join(dir, "modules"))
	if err != nil {
		t.Fatal(err)
	}
	srv, err := sched.New(sched.Config{
		ID: "srv", Journal: j, Store: st, Modules: mods,
		Inspect: func(context.Context, *modules.Upload, string) (api.ModuleInfo, error) {
			return api.ModuleInfo{}, errors.New("there are no modules here")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	srv.Register(g)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var server, bridge sync.WaitGroup
	server.Go(func() {
		if err := srv.Run(ctx); err != nil {
			t.Errorf("the server failed: %v", err)
		}
	})
	server.Go(func() { g.Serve(ln) }) //nolint:errcheck // ends with Stop
	conn, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	b, err := xxljob.New(xxljob.Config{
		Worker: worker.Options{Address: "http://" + ln.Addr().String(), Logger: slog.New(slog.DiscardHandler), DrainTimeout: time.Second},
		App:    "default", Dir: filepath.Join(dir, "bridge"), Token: token,
	})
	if err != nil {
		t.Fatal(err)
	}
	stop, end := context.WithCancel(context.Background())
	bridge.Go(func() {
		if err := b.Run(stop); err != nil {
			t.Errorf("the bridge failed: %v", err)
		}
	})
	admin := httptest.NewServer(b.Handler())
	t.Cleanup(func() {
		end()
		bridge.Wait()
		admin.Close()
		conn.Close() //nolint:errcheck // a test's connection
		cancel()
		g.Stop()
		server.Wait()
		if err := errors.Join(st.Close(), j.Close()); err != nil {
			t.Error(err)
		}
	})
	return &world{t: t, bridge: admin.URL, jobs: apiv1.NewJobsClient(conn), runs: apiv1.NewRunsClient(conn)}
}

type quiet struct{}

func (quiet) Info(string, ...any)  {}
func (quiet) Error(string, ...any) {}

// executor starts an executor of the group "shop" with tasks.
func (w *world) executor(tasks map[string]xxl.TaskFunc, logs xxl.LogHandler) {
	w.t.Helper()
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	w.t.Cleanup(s.Close)
	at, err := url.Parse(s.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	e := xxl.NewExecutor(
		xxl.ServerAddr(w.bridge), xxl.AccessToken(token), xxl.ExecutorIp(at.Hostname()), xxl.ExecutorPort(at.Port()),
		xxl.RegistryKey("shop"), xxl.SetLogger(quiet{}),
	)
	mux.HandleFunc("/run", e.RunTask)
	mux.HandleFunc("/kill", e.KillTask)
	mux.HandleFunc("/log", e.TaskLog)
	mux.HandleFunc("/beat", e.Beat)
	mux.HandleFunc("/idleBeat", e.IdleBeat)
	e.Init()
	e.LogHandler(logs)
	for name, task := range tasks {
		e.RegTask(name, task)
	}
}

func (w *world) run(route, handler string) string {
	w.t.Helper()
	_, err := w.jobs.ApplyJob(w.t.Context(), &apiv1.ApplyJobRequest{Job: &apiv1.Job{
		Name: "job", Handler: &apiv1.Handler{Name: "native:xxl-job.shop"},
		Input: `{"executorHandler":"` + handler + `","executorParams":"p","executorRouteStrategy":"` + route + `"}`,
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := w.jobs.TriggerJob(w.t.Context(), &apiv1.TriggerJobRequest{Name: "job"})
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
	text := ""
	for {
		l, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return text
		}
		if err != nil {
			w.t.Fatal(err)
		}
		text += l.Text + "\n"
	}
}

func oneLine(r *xxl.LogReq) *xxl.LogRes {
	to := max(r.FromLineNum-1, 1)
	text := ""
	if r.FromLineNum == 1 {
		text = "a line of the executor"
	}
	return &xxl.LogRes{Code: 200, Content: xxl.LogResContent{FromLineNum: r.FromLineNum, ToLineNum: to, LogContent: text}}
}

func TestRunAndLog(t *testing.T) {
	w := newWorld(t)
	w.executor(map[string]xxl.TaskFunc{
		"echo":  func(_ context.Context, r *xxl.RunReq) string { return "got " + r.ExecutorParams },
		"panic": func(context.Context, *xxl.RunReq) string { panic("no stock") },
	}, oneLine)
	id := w.run("FAILOVER", "echo")
	if run := w.wait(id); run.GetState() != "succeeded" || run.GetOutput() != "got p" {
		t.Errorf("%s %q %s", run.GetState(), run.GetOutput(), run.GetError())
	}
	if log := w.log(id); strings.Count(log, "a line of the executor") != 1 {
		t.Errorf("the log is %q", log)
	}
	if run := w.wait(w.run("BUSYOVER", "panic")); run.GetState() != "failed" || !strings.Contains(run.GetError(), "no stock") {
		t.Errorf("%s %s", run.GetState(), run.GetError())
	}
	if run := w.wait(w.run("FIRST", "unknown")); run.GetState() != "failed" || !strings.Contains(run.GetError(), "Task not registered") {
		t.Errorf("%s %s", run.GetState(), run.GetError())
	}
}

func TestKill(t *testing.T) {
	w := newWorld(t)
	started, killed := make(chan struct{}), make(chan struct{})
	w.executor(map[string]xxl.TaskFunc{"slow": func(ctx context.Context, _ *xxl.RunReq) string {
		close(started)
		<-ctx.Done()
		close(killed)
		return "killed"
	}}, oneLine)
	id := w.run("ROUND", "slow")
	<-started
	if _, err := w.runs.CancelRun(t.Context(), &apiv1.CancelRunRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	<-killed
	if run := w.wait(id); run.GetState() != "stopped" {
		t.Errorf("%s %s", run.GetState(), run.GetError())
	}
}

func TestBroadcast(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	seen := map[int64]int64{}
	task := map[string]xxl.TaskFunc{"shard": func(_ context.Context, r *xxl.RunReq) string {
		mu.Lock()
		defer mu.Unlock()
		seen[r.BroadcastIndex] = r.BroadcastTotal
		return "done"
	}}
	w.executor(task, oneLine)
	w.executor(task, oneLine)
	// The second executor may register after the first run has begun.
	for {
		if run := w.wait(w.run("SHARDING_BROADCAST", "shard")); run.GetState() != "succeeded" {
			t.Fatalf("%s %s", run.GetState(), run.GetError())
		}
		mu.Lock()
		both := len(seen) == 2 && seen[1] == 2
		mu.Unlock()
		if both || t.Context().Err() != nil {
			return
		}
	}
}
