package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// server gives the answers that a test chooses.
type server struct {
	apiv1.UnimplementedGuestServer
	mu     sync.Mutex
	errs   []error // of the next calls; later calls succeed
	puts   []*apiv1.GuestPutEntryRequest
	maps   []*apiv1.GuestMapRequest
	last   *apiv1.GuestEnqueueRequest
	caller *apiv1.Caller
	calls  int
	hang   chan struct{} // if not nil, calls wait for it
}

func (s *server) next(ctx context.Context, who *apiv1.Caller) error {
	s.mu.Lock()
	s.calls++
	s.caller = who
	hang := s.hang
	var err error
	if len(s.errs) > 0 {
		err, s.errs = s.errs[0], s.errs[1:]
	}
	s.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (s *server) fail(errs ...error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.errs, s.calls = errs, 0
}

func (s *server) GetCheckpoint(ctx context.Context, r *apiv1.GuestGetCheckpointRequest) (*apiv1.GuestGetCheckpointResponse, error) {
	return &apiv1.GuestGetCheckpointResponse{Data: []byte("left")}, s.next(ctx, r.Caller)
}

func (s *server) SetCheckpoint(ctx context.Context, r *apiv1.GuestSetCheckpointRequest) (*apiv1.GuestSetCheckpointResponse, error) {
	return &apiv1.GuestSetCheckpointResponse{}, s.next(ctx, r.Caller)
}

func (s *server) GetEntry(ctx context.Context, r *apiv1.GuestGetEntryRequest) (*apiv1.GuestGetEntryResponse, error) {
	return &apiv1.GuestGetEntryResponse{Value: []byte(r.Bucket + "/" + r.Key), Version: 7}, s.next(ctx, r.Caller)
}

func (s *server) PutEntry(ctx context.Context, r *apiv1.GuestPutEntryRequest) (*apiv1.GuestPutEntryResponse, error) {
	s.mu.Lock()
	s.puts = append(s.puts, r)
	s.mu.Unlock()
	return &apiv1.GuestPutEntryResponse{Version: 8}, s.next(ctx, r.Caller)
}

func (s *server) DeleteEntry(ctx context.Context, r *apiv1.GuestDeleteEntryRequest) (*apiv1.GuestDeleteEntryResponse, error) {
	return &apiv1.GuestDeleteEntryResponse{}, s.next(ctx, r.Caller)
}

func (s *server) Enqueue(ctx context.Context, r *apiv1.GuestEnqueueRequest) (*apiv1.GuestEnqueueResponse, error) {
	s.mu.Lock()
	s.last = r
	s.mu.Unlock()
	return &apiv1.GuestEnqueueResponse{Run: make([]byte, 16)}, s.next(ctx, r.Caller)
}

func (s *server) Map(ctx context.Context, r *apiv1.GuestMapRequest) (*apiv1.GuestMapResponse, error) {
	s.mu.Lock()
	s.maps = append(s.maps, r)
	s.mu.Unlock()
	return &apiv1.GuestMapResponse{}, s.next(ctx, r.Caller)
}

func (s *server) GetSecret(ctx context.Context, r *apiv1.GuestGetSecretRequest) (*apiv1.GuestGetSecretResponse, error) {
	return &apiv1.GuestGetSecretResponse{Value: []byte("value of " + r.Name)}, s.next(ctx, r.Caller)
}

// link is a host with one attempt.
type link struct {
	mu   sync.Mutex
	conn grpc.ClientConnInterface
	gone bool
}

func (l *link) Caller(app string, run [16]byte, attempt int32) (*apiv1.Caller, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &apiv1.Caller{App: app, Run: run[:], Attempt: attempt, Epoch: 3, Host: "h", Session: "s"}, !l.gone
}

func (l *link) ConnOf(string, [16]byte, int32) grpc.ClientConnInterface {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

var task = &runtime.Task{
	RunID: job.RunID{1, 2, 3}.String(), App: "a", Attempt: 2, Grants: &runtime.Grants{Secrets: []string{"token", "longer", "pin"}},
}

// with runs f with services that reach a server, in fake time.
func with(t *testing.T, cfg Config, f func(t *testing.T, s *Services, srv *server, l *link)) {
	synctest.Test(t, func(t *testing.T) {
		srv := &server{}
		g := grpc.NewServer()
		apiv1.RegisterGuestServer(g, srv)
		lis := memconn.Listen(1 << 20)
		go g.Serve(lis) //nolint:errcheck // ends with Stop
		conn, err := grpc.NewClient("passthrough:test", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		s, l := New(cfg), &link{conn: conn}
		s.Attach(l)
		f(t, s, srv, l)
		conn.Close() //nolint:errcheck // a test's connection
		g.Stop()
	})
}

// calls are the services that make a call.
var calls = map[string]func(ctx context.Context, s *Services) error{
	"checkpoint": func(ctx context.Context, s *Services) error {
		data, err := s.Checkpoint(ctx, task)
		return wanted(err, string(data) == "left")
	},
	"set checkpoint": func(ctx context.Context, s *Services) error { return s.SetCheckpoint(ctx, task, []byte("x")) },
	"get": func(ctx context.Context, s *Services) error {
		value, version, err := s.Get(ctx, task, "b", "k")
		return wanted(err, string(value) == "b/k" && version == 7)
	},
	"put": func(ctx context.Context, s *Services) error {
		version, err := s.Put(ctx, task, "b", "k", []byte("v"), 5)
		return wanted(err, version == 8)
	},
	"delete": func(ctx context.Context, s *Services) error { return s.Delete(ctx, task, "b", "k", runtime.AnyVersion) },
	"enqueue": func(ctx context.Context, s *Services) error {
		run, err := s.Enqueue(ctx, task, runtime.Submit{Job: "j", Sequence: 4})
		return wanted(err, run == job.RunID{}.String())
	},
	"map": func(ctx context.Context, s *Services) error { return s.Map(ctx, task, 0, [][]byte{[]byte("x")}) },
	"secret": func(ctx context.Context, s *Services) error {
		value, err := s.Secret(ctx, task, "token")
		return wanted(err, string(value) == "value of token")
	},
}

func wanted(err error, right bool) error {
	if err == nil && !right {
		return errors.New("another answer than the server's")
	}
	return err
}

func TestAnswers(t *testing.T) {
	with(t, Config{}, func(t *testing.T, s *Services, srv *server, _ *link) {
		for name, call := range calls {
			srv.fail()
			if err := call(t.Context(), s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if who := srv.caller; who.App != "a" || who.Attempt != 2 || who.Epoch != 3 || who.Session != "s" || job.RunID(who.Run).String() != task.RunID {
				t.Errorf("%s: the caller is %v", name, who)
			}
			for code, want := range map[codes.Code]error{
				codes.NotFound: runtime.ErrNoEntry, codes.Aborted: runtime.ErrConflict, codes.PermissionDenied: runtime.ErrNotGranted,
				codes.OutOfRange: runtime.ErrTooLarge, codes.ResourceExhausted: runtime.ErrTooLarge, codes.Unimplemented: runtime.ErrNoService,
				codes.FailedPrecondition: runtime.ErrUnavailable, codes.InvalidArgument: runtime.ErrInvalid,
			} {
				srv.fail(status.Error(code, "the server's words"))
				if err := call(t.Context(), s); !errors.Is(err, want) || !strings.Contains(err.Error(), "the server's words") {
					t.Errorf("%s, %s: %v", name, code, err)
				}
				if srv.calls != 1 {
					t.Errorf("%s, %s: %d calls", name, code, srv.calls)
				}
			}
			srv.fail(status.Error(codes.Internal, "broken"))
			if err := call(t.Context(), s); err == nil || !strings.Contains(err.Error(), "broken") {
				t.Errorf("%s, internal: %v", name, err)
			}
		}
	})
}

func TestCallsAreMadeAgain(t *testing.T) {
	away := status.Error(codes.Unavailable, "away")
	with(t, Config{}, func(t *testing.T, s *Services, srv *server, l *link) {
		for name, call := range calls {
			srv.fail(away, status.Error(codes.Canceled, "the server ends"), away)
			if err := call(t.Context(), s); err != nil || srv.calls != 4 {
				t.Errorf("%s: %v after %d calls", name, err, srv.calls)
			}
		}
		srv.puts = nil
		srv.fail(away)
		if err := calls["put"](t.Context(), s); err != nil || len(srv.puts) != 2 || srv.puts[0].Id == "" || srv.puts[0].Id != srv.puts[1].Id {
			t.Errorf("a put that was made again: %v, %v", err, srv.puts)
		}
		if err := calls["put"](t.Context(), s); err != nil || srv.puts[2].Id == srv.puts[0].Id {
			t.Errorf("another put has the id of the first: %v", err)
		}
		srv.fail(away, status.Error(codes.NotFound, "gone"))
		if err := calls["delete"](t.Context(), s); err != nil {
			t.Errorf("a delete whose answer was lost: %v", err)
		}
		// Patience ends.
		forever := make([]error, 1000)
		for i := range forever {
			forever[i] = away
		}
		srv.fail(forever...)
		begun := time.Now()
		if err := calls["get"](t.Context(), s); !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("nobody answers: %v", err)
		}
		if took := time.Since(begun); took < 29*time.Second || took > 31*time.Second {
			t.Errorf("it was patient for %s", took)
		}
		// The task ends.
		srv.fail(forever...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := calls["get"](ctx, s); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the task's end: %v", err)
		}
		cancel()
		// A hanging server counts as unreachable.
		srv.fail()
		srv.mu.Lock()
		srv.hang = make(chan struct{})
		srv.mu.Unlock()
		go func() {
			time.Sleep(12 * time.Second)
			close(srv.hang)
		}()
		if err := calls["get"](t.Context(), s); err != nil || srv.calls != 2 {
			t.Errorf("a server that hung: %v after %d calls", err, srv.calls)
		}
		// No server is connected, for a while.
		conn := l.conn
		l.mu.Lock()
		l.conn = nil
		l.mu.Unlock()
		go func() {
			time.Sleep(5 * time.Second)
			l.mu.Lock()
			l.conn = conn
			l.mu.Unlock()
		}()
		srv.fail(status.Error(codes.NotFound, "gone"))
		if err := calls["delete"](t.Context(), s); !errors.Is(err, runtime.ErrNoEntry) {
			t.Errorf("a delete that no server heard before: %v", err)
		}
		l.mu.Lock()
		l.gone = true
		l.mu.Unlock()
		srv.fail()
		if err := calls["get"](t.Context(), s); !errors.Is(err, runtime.ErrUnavailable) || srv.calls != 0 {
			t.Errorf("an attempt that is over: %v after %d calls", err, srv.calls)
		}
		if err := New(Config{Patience: time.Second}).SetCheckpoint(t.Context(), task, nil); !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("not attached: %v", err)
		}
		if _, err := s.Checkpoint(t.Context(), &runtime.Task{RunID: "local"}); err == nil {
			t.Error("a run without an id has a checkpoint")
		}
	})
}

func TestArguments(t *testing.T) {
	with(t, Config{}, func(t *testing.T, s *Services, srv *server, _ *link) {
		ctx := t.Context()
		large := make([]byte, job.MaxValue+1)
		for name, err := range map[string]error{
			"checkpoint": s.SetCheckpoint(ctx, task, large),
			"value":      func() error { _, err := s.Put(ctx, task, "b", "k", large, 0); return err }(),
			"input":      s.Map(ctx, task, 0, [][]byte{large}),
		} {
			if !errors.Is(err, runtime.ErrTooLarge) {
				t.Errorf("a large %s: %v", name, err)
			}
		}
		for _, bad := range []runtime.Submit{{Job: "a/b"}, {App: "a\nb", Job: "j"}} {
			if _, err := s.Enqueue(ctx, task, bad); !errors.Is(err, runtime.ErrNotGranted) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		if _, err := s.Secret(ctx, task, "other"); !errors.Is(err, runtime.ErrNotGranted) {
			t.Errorf("a secret that was not granted: %v", err)
		}
		if _, err := s.Secret(ctx, &runtime.Task{RunID: task.RunID}, "token"); !errors.Is(err, runtime.ErrNotGranted) {
			t.Errorf("a secret without grants: %v", err)
		}
		_, _, got := s.Get(ctx, task, "b", "not\xffutf8")
		_, put := s.Put(ctx, task, "b", "not\xffutf8", nil, 0)
		_, enqueued := s.Enqueue(ctx, task, runtime.Submit{Job: "j", Key: "not\xffutf8"})
		for name, err := range map[string]error{"get": got, "put": put, "enqueue": enqueued, "delete": s.Delete(ctx, task, "b", "not\xffutf8", 0)} {
			if !errors.Is(err, runtime.ErrInvalid) {
				t.Errorf("%s of a key that is no text: %v", name, err)
			}
		}
		if srv.calls != 0 {
			t.Errorf("%d calls were made", srv.calls)
		}
		if _, err := s.Enqueue(ctx, task, runtime.Submit{Job: "j", Input: []byte{}, Key: "k", Sequence: 9, DelayMs: 5}); err != nil {
			t.Fatal(err)
		}
		if r := srv.last; !r.HasInput || r.Key != "k" || r.Sequence != 9 || r.DelayMs != 5 {
			t.Errorf("enqueued %v", r)
		}
		if _, err := s.Put(ctx, task, "b", "k", nil, 0); err != nil || srv.puts[0].Expect == nil || *srv.puts[0].Expect != 0 {
			t.Errorf("put where there is none: %v, %v", srv.puts, err)
		}
		if _, err := s.Put(ctx, task, "b", "k", nil, runtime.AnyVersion); err != nil || srv.puts[1].Expect != nil {
			t.Errorf("put over any: %v, %v", srv.puts, err)
		}
	})
}

// TestMapIsCut sends lists that exceed one call.
func TestMapIsCut(t *testing.T) {
	with(t, Config{}, func(t *testing.T, s *Services, srv *server, _ *link) {
		many := make([][]byte, 25_000)
		for i := range many {
			many[i] = fmt.Append(nil, i)
		}
		big := make([][]byte, 40)
		for i := range big {
			big[i] = make([]byte, 60_000)
		}
		for name, inputs := range map[string][][]byte{"many": many, "big": big, "none": nil} {
			srv.maps = nil
			if err := s.Map(t.Context(), task, 100, inputs); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, r := range srv.maps {
				size := 0
				if r.First != int64(100+n) {
					t.Errorf("%s: a call begins at %d, want %d", name, r.First, 100+n)
				}
				for _, in := range r.Inputs {
					if !bytes.Equal(in, inputs[n]) {
						t.Fatalf("%s: input %d is another one", name, n)
					}
					size += len(in)
					n++
				}
				if len(r.Inputs) > job.MaxMapBatch || size > job.MaxMapBytes {
					t.Errorf("%s: a call with %d inputs of %d bytes", name, len(r.Inputs), size)
				}
			}
			if n != len(inputs) {
				t.Errorf("%s: %d inputs came of %d", name, n, len(inputs))
			}
		}
	})
}

func TestSecretsAreRedacted(t *testing.T) {
	with(t, Config{}, func(t *testing.T, s *Services, _ *server, _ *link) {
		line := []byte("value of token and value of longer")
		if got := s.Redact(task, line); !bytes.Equal(got, line) {
			t.Errorf("before it was told anything: %s", got)
		}
		for _, name := range []string{"token", "longer", "token"} {
			if _, err := s.Secret(t.Context(), task, name); err != nil {
				t.Fatal(err)
			}
		}
		s.remember(task, []byte("value of long")) // a part of another secret
		s.remember(task, []byte("and"))           // too short to be distinguished from words
		if got := string(s.Redact(task, line)); got != "[secret] and [secret]" {
			t.Errorf("redacted: %s", got)
		}
		other := *task
		other.Attempt++
		if got := s.Redact(&other, line); !bytes.Equal(got, line) {
			t.Errorf("of another attempt: %s", got)
		}
		s.Done(&other)
		s.Done(task)
		s.Done(task)
		if got := s.Redact(task, line); !bytes.Equal(got, line) || s.told.Load() != 0 || len(s.known) != 0 {
			t.Errorf("after its end: %s, %d attempts are known", got, len(s.known))
		}
	})
}

func TestSend(t *testing.T) {
	with(t, Config{}, func(t *testing.T, s *Services, _ *server, _ *link) {
		if _, err := s.Send(t.Context(), task, runtime.Request{}); !errors.Is(err, runtime.ErrNoService) {
			t.Errorf("without a way out: %v", err)
		}
	})
	var sent runtime.Request
	cfg := Config{Send: func(ctx context.Context, g *runtime.Grants, secrets Secrets, r runtime.Request) (*runtime.Response, error) {
		sent = r
		if _, err := secrets(ctx, "other"); !errors.Is(err, runtime.ErrNotGranted) {
			return nil, fmt.Errorf("the other secret: %v", err)
		}
		value, err := secrets(ctx, "pin")
		return &runtime.Response{Status: len(value)}, err
	}}
	with(t, cfg, func(t *testing.T, s *Services, _ *server, _ *link) {
		res, err := s.Send(t.Context(), task, runtime.Request{URL: "https://example.com"})
		if err != nil || res.Status != len("value of pin") || sent.URL != "https://example.com" {
			t.Errorf("sent %+v: %+v, %v", sent, res, err)
		}
		if got := string(s.Redact(task, []byte("value of pin"))); got != "[secret]" {
			t.Errorf("a secret of a header in the log: %s", got)
		}
	})
}

func TestMetrics(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	s := New(Config{Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")})
	ctx, task := t.Context(), &runtime.Task{App: "a", Job: "j"}
	for _, m := range []struct {
		name  string
		kind  runtime.MetricKind
		value float64
		fails error
	}{
		{"orders", runtime.Counter, 2, nil},
		{"orders", runtime.Counter, 3, nil},
		{"depth", runtime.Gauge, -4, nil},
		{"seconds", runtime.Histogram, 0.5, nil},
		{"orders", runtime.Gauge, 1, runtime.ErrInvalid},
		{"orders", runtime.Counter, -1, runtime.ErrInvalid},
		{"orders", runtime.Counter, math.NaN(), runtime.ErrInvalid},
		{"depth", runtime.Gauge, math.Inf(1), runtime.ErrInvalid},
		{"Orders", runtime.Counter, 1, runtime.ErrInvalid},
		{"", runtime.Counter, 1, runtime.ErrInvalid},
		{strings.Repeat("x", 64), runtime.Counter, 1, runtime.ErrInvalid},
		{"a\nb", runtime.Counter, 1, runtime.ErrInvalid},
		{"kind", 9, 1, runtime.ErrInvalid},
	} {
		if err := s.Metric(ctx, task, m.name, m.kind, m.value); !errors.Is(err, m.fails) {
			t.Errorf("%+v: %v", m, err)
		}
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if !strings.Contains(m.Description, strings.TrimPrefix(m.Name, "wheelwork.handler.")) {
			t.Errorf("%s is described as %q", m.Name, m.Description)
		}
		switch d := m.Data.(type) {
		case metricdata.Sum[float64]:
			got[m.Name] = d.DataPoints[0].Value
			if v, _ := d.DataPoints[0].Attributes.Value("job"); v.AsString() != "j" {
				t.Errorf("attributes %v", d.DataPoints[0].Attributes)
			}
		case metricdata.Gauge[float64]:
			got[m.Name] = d.DataPoints[0].Value
		case metricdata.Histogram[float64]:
			got[m.Name] = d.DataPoints[0].Sum
		}
	}
	for name, want := range map[string]float64{"wheelwork.handler.orders": 5, "wheelwork.handler.depth": -4, "wheelwork.handler.seconds": 0.5} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if len(got) != 3 {
		t.Errorf("metrics %v", got)
	}
	for i := range maxMetrics {
		s.Metric(ctx, task, fmt.Sprint("m", i), runtime.Counter, 1) //nolint:errcheck // the last ones are refused
	}
	if err := s.Metric(ctx, task, "one.more", runtime.Counter, 1); !errors.Is(err, runtime.ErrTooLarge) {
		t.Errorf("one more: %v", err)
	}
	if err := s.Metric(ctx, task, "orders", runtime.Counter, 1); err != nil {
		t.Errorf("one that was there: %v", err)
	}
}

// TestMetricSeries checks that jobs and apps cannot make more series than a reader stores, and
// that what they record beyond the bounds still counts.
func TestMetricSeries(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	s := New(Config{Meter: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test")})
	const apps, jobs = 10, 600
	for app := range apps {
		for job := range jobs {
			task := &runtime.Task{App: fmt.Sprint("app", app), Job: fmt.Sprint("job", job)}
			for range 2 {
				if err := s.Metric(t.Context(), task, "orders", runtime.Counter, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	points := all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[float64]).DataPoints
	of := map[string]float64{}
	var sum float64
	for _, p := range points {
		app, _ := p.Attributes.Value("app")
		job, _ := p.Attributes.Value("job")
		of[app.AsString()+"/"+job.AsString()] = p.Value
		sum += p.Value
	}
	if len(points) > maxSeries+1 || len(of) != len(points) {
		t.Errorf("%d series, want %d at most", len(points), maxSeries+1)
	}
	if sum != 2*apps*jobs {
		t.Errorf("the series count %v, want %v", sum, 2*apps*jobs)
	}
	for name, want := range map[string]float64{"app0/job0": 2, "app0/_other": 2 * (jobs - maxAppSeries), "app1/job499": 2, "app9/job0": 0} {
		if of[name] != want {
			t.Errorf("%s counts %v, want %v", name, of[name], want)
		}
	}
	if of["_other/_other"] == 0 {
		t.Error("no series stands for the apps beyond the bound")
	}
}
