package console

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
	"net/http/cookiejar"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/job"
)

const (
	goodToken = "wwk_good-token"
	evil      = `<script>alert("x")</script>`
	liveRun   = "01LIVE0000000000000000000A"
	failedRun = "01FAIL0000000000000000000B"
	doneRun   = "01DONE0000000000000000000C"
)

// fakeAPI is a small API in memory, sufficient to test every page. It checks the token in
// interceptors, like the real one.
type fakeAPI struct {
	apiv1.UnimplementedBackupsServer
	apiv1.UnimplementedJobsServer
	apiv1.UnimplementedRunsServer
	apiv1.UnimplementedCalendarsServer
	apiv1.UnimplementedModulesServer
	apiv1.UnimplementedClusterServer
	apiv1.UnimplementedQueuesServer
	apiv1.UnimplementedMembershipServer
	apiv1.UnimplementedAppsServer
	apiv1.UnimplementedRevisionsServer
	fakeAccess
	fakeModules
	fakeResources
	fakeJobs
	fakeAlerts
	fakeOperations

	mu      sync.Mutex
	namers  []string // the things that name each job
	jobs    []*apiv1.Job
	runs    []*apiv1.Run // newest first
	logs    map[string][]*apiv1.LogLine
	modules []*apiv1.Module
	aliases []*apiv1.Alias
	hosts   []*apiv1.Host
	members *apiv1.ClusterStatus
	letters []*apiv1.DeadLetter

	calendars map[string]*apiv1.Calendar
	revisions map[string][]*apiv1.Revision // of each job, the newest first
	asked     []proto.Message              // every unary request, for tests of a page's calls
	changed   chan struct{}                // closed and replaced at each change
	revoked   bool                         // the good token is revoked

	followers           int      // open streams that follow a log
	skipped, backfilled int      // number of skips, number of runs
	denied              string   // a permission that the good token lacks
	strict              bool     // the good token has the permissions in may only
	scope               string   // of the good token; "": the cluster
	session             string   // the id of the session of the good token; "": it is none
	ended               []string // sessions
	noRole              bool     // the good token has no role
	provider            string   // that of the good token's user
	approved            []string // codes of command lines
	cut                 int      // parts of a run in one page of a list; 0: all
	unreadable          int32    // damaged blocks of the history that each list of runs passes over

	check func(context.Context) error // what the check of an upload does; nil: nothing
}

func newFake() *fakeAPI {
	f := &fakeAPI{fakeModules: fakeModules{code: map[string][]byte{}}, logs: map[string][]*apiv1.LogLine{}, revisions: map[string][]*apiv1.Revision{}, changed: make(chan struct{})}
	return f
}

// populate fills the fake with one object of each kind, including hostile texts.
func (f *fakeAPI) populate() *fakeAPI {
	now := time.Now()
	ts := func(ago time.Duration) *timestamppb.Timestamp { return timestamppb.New(now.Add(-ago)) }
	f.jobs = []*apiv1.Job{
		{
			App: "default", Name: "totals", Description: "Totals the orders of the day, see https://example.com/an/address/of/many/parts/without/a/space/that/is/wider/than/a/phone " + evil,
			Handler:  &apiv1.Handler{Module: "totals@1", Name: "main", Args: []string{"--fast"}},
			Schedule: &apiv1.Schedule{Cron: "0 */5 * * * *", Zone: "Asia/Shanghai"},
			Input:    "id,amount\n1,20\n", Timeout: "30s", Retry: &apiv1.Retry{Max: 3, Backoff: "exponential", First: "1s", Limit: "1m"},
			Labels: map[string]string{"team": "billing"}, Owner: "money" + evil, CreatedBy: "ada", ChangedBy: "ci", Revision: 4, Etag: "abc", NextAt: ts(-90 * time.Second), UpdatedAt: ts(time.Hour),
			Digest: "sha256:" + strings.Repeat("ab", 32),
			Stats:  &apiv1.JobStats{Live: 1, Succeeded: 12843, Failed: 7, LastState: "failed", LastRun: failedRun},
		},
		{App: "default", Name: "report", Paused: new(true), Handler: &apiv1.Handler{Module: "report@2.1"}, Schedule: &apiv1.Schedule{Cron: "30 8 * * MON-FRI"}, Stats: &apiv1.JobStats{Succeeded: 210, LastState: "succeeded", LastRun: doneRun}},
		{App: "default", Name: "sweep", Handler: &apiv1.Handler{Module: "sweep@1"}, Schedule: &apiv1.Schedule{Every: "30s"}, NextAt: ts(-12 * time.Second), Stats: &apiv1.JobStats{Succeeded: 90321}},
		{App: "default", Name: "by-hand", Handler: &apiv1.Handler{Module: "totals@1"}},
	}
	f.runs = []*apiv1.Run{
		{
			Id: liveRun, App: "default", Job: "totals", State: "running", Trigger: "manual", PlannedAt: ts(8 * time.Second), AcceptedAt: ts(8 * time.Second), StartedAt: ts(6 * time.Second),
			Attempt: 2, MaxAttempts: 4, Host: "host-a", Module: "totals@1", Handler: "main", Digest: "sha256:" + strings.Repeat("ab", 32), Input: `{"n":12345678901234567890}`,
			Progress: &apiv1.Progress{Done: 420, Total: 1000, Message: "reading orders " + evil},
			Attempts: []*apiv1.Attempt{
				{Number: 1, Host: "host-b", DispatchedAt: ts(7500 * time.Millisecond), StartedAt: ts(7300 * time.Millisecond), FinishedAt: ts(6 * time.Second), Outcome: "retryable", Error: "connection reset " + evil, Code: "exit"},
				{Number: 2, Host: "host-a", DispatchedAt: ts(4 * time.Second), StartedAt: ts(3500 * time.Millisecond)},
			},
		},
		{
			Id: failedRun, App: "default", Job: "totals", State: "failed", Trigger: "schedule", PlannedAt: ts(300 * time.Second), AcceptedAt: ts(302 * time.Second), StartedAt: ts(299 * time.Second), FinishedAt: ts(297 * time.Second),
			Attempt: 1, MaxAttempts: 1, Host: "host-a", Module: "totals@1", Handler: "main", Error: "line 17: amount is not a number " + evil, Code: "exit",
			Trace: "main.total\n\tmain.go:42 " + evil, InputBytes: []byte{0, 1, 2, 0xff},
			Attempts: []*apiv1.Attempt{{Number: 1, Host: "host-a", DispatchedAt: ts(300 * time.Second), StartedAt: ts(299 * time.Second), FinishedAt: ts(297 * time.Second), Outcome: "permanent", Error: "line 17", Code: "exit"}},
		},
		{
			Id: doneRun, App: "default", Job: "report", State: "succeeded", Trigger: "schedule", PlannedAt: ts(600 * time.Second), AcceptedAt: ts(600 * time.Second), StartedAt: ts(599 * time.Second), FinishedAt: ts(598 * time.Second),
			Attempt: 1, MaxAttempts: 1, Host: "host-b", Module: "report@2.1", Input: evil, Output: evil,
			Attempts: []*apiv1.Attempt{{Number: 1, Host: "host-b", DispatchedAt: ts(600 * time.Second), StartedAt: ts(599 * time.Second), FinishedAt: ts(598 * time.Second), Outcome: "succeeded"}},
		},
	}
	for i, s := range []string{"succeeded", "succeeded", "timed_out", "succeeded", "cancelled", "stopped", "skipped", "missed", "succeeded", "succeeded", "queued", "waiting", "armed"} {
		at := time.Duration(700+60*i) * time.Second
		f.runs = append(f.runs, &apiv1.Run{
			Id: fmt.Sprintf("01MORE00000000000000000%03d", i), App: "default", Job: "totals", State: s, Trigger: "schedule",
			PlannedAt: ts(at), AcceptedAt: ts(at), StartedAt: ts(at), FinishedAt: ts(at - 1234*time.Millisecond), Attempt: 1, MaxAttempts: 4, Host: "host-b",
		})
	}
	f.populatePolicies(ts)
	f.populateOperations()
	f.logs[liveRun] = []*apiv1.LogLine{
		{Offset: 0, Time: ts(6 * time.Second), Attempt: 2, Level: "info", Text: "reading orders"},
		{Offset: 1, Time: ts(5 * time.Second), Attempt: 2, Level: "warn", Text: evil + "\nsecond line\r\nevent: end"},
		{Offset: 2, Time: ts(4 * time.Second), Attempt: 2, Level: "error", Text: "row 17 is odd"},
	}
	f.logs[failedRun] = []*apiv1.LogLine{{Offset: 0, Time: ts(298 * time.Second), Attempt: 1, Level: "error", Text: "gave up"}}
	f.aliases = []*apiv1.Alias{{
		Module: "totals", Name: "prod", Version: "3", Jobs: 7,
		Canary: &apiv1.Canary{Version: "4-rc", Percent: 12.5, Failed: 2, Succeeded: 40},
		Events: []*apiv1.AliasEvent{{What: "rolled_back", From: "4-beta", To: "3", Why: "9 of 20 <attempts> failed"}, {What: "set", To: "older"}},
	}}
	f.modules = []*apiv1.Module{
		{App: "default", Name: "totals", Version: "1", Digest: "sha256:" + strings.Repeat("ab", 32), Size: 2 << 20, Kind: "command", Handlers: []string{"main"}, Imports: []string{"wasi_snapshot_preview1.fd_write"}, CreatedAt: ts(48 * time.Hour)},
		{App: "default", Name: "report", Version: "2.1", Digest: "sha256:" + strings.Repeat("cd", 32), Size: 40960, Kind: "reactor", Handlers: []string{"main", "daily"}, Imports: []string{"wheelwork_v1.input", "wheelwork_v1.output"}, CreatedAt: ts(time.Hour), CollectedAt: ts(time.Minute)},
	}
	f.hosts = []*apiv1.Host{
		{Id: "host-a", Name: "node-1 " + evil, State: "up", Labels: map[string]string{"zone": "eu-1"}, Version: "v0.1.0", Slots: 16, Running: 5, Credits: 1019, Cpu: 0.37, MemoryBytes: 91 << 20, LastSeenAt: ts(time.Second)},
		{Id: "host-b", Name: "node-2", State: "lost", Version: "v0.1.0", Slots: 8, LastSeenAt: ts(40 * time.Second)},
	}
	f.members = &apiv1.ClusterStatus{
		Name: "main", Server: "srv-a", Balancer: "srv-b", Trouble: "etcd has not answered <for> 1s",
		Servers: []*apiv1.Member{
			{Id: "srv-a", Address: "10.0.0.1:7700", State: "draining", Units: 1, ScheduleRate: 12.5, Version: "v0.1.0", LastSeenAt: ts(time.Second)},
			{Id: "srv-b", Address: "10.0.0.2:7700", State: "up", Version: "v0.1.0", LastSeenAt: ts(time.Second)},
		},
		Units: []*apiv1.Unit{
			{Name: "main", State: "owned", Owner: "srv-a", Address: "10.0.0.1:7700", Epoch: 7, Apps: 3, Hosts: 2, Standbys: []string{"srv-b"}},
			{Name: "main.1", State: "moving", Owner: "srv-b", Address: "10.0.0.2:7700", To: "srv-a"},
			{Name: "main.2", State: "free"},
		},
	}
	f.letters = deadLetters(ts)
	f.populateAccess(ts)
	f.populateMachines(ts)
	f.populateRevisions()
	f.populateModules(ts)
	f.populateResources(ts)
	f.populateAlerts(ts)
	return f
}

func (f *fakeAPI) authorize(ctx context.Context, method string) error {
	if strings.HasPrefix(method, "/grpc.health") || strings.HasSuffix(method, "/GetVersion") || strings.HasSuffix(method, "/SignIn") {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if got := md.Get("authorization"); len(got) != 1 || got[0] != "Bearer "+goodToken || f.revoked {
		return status.Error(codes.Unauthenticated, "the token is missing or wrong")
	}
	if f.denied != "" && permission(method) == f.denied {
		return status.Errorf(codes.PermissionDenied, "the token lacks the permission %s", f.denied)
	}
	if p := permission(method); f.strict && strings.Contains(p, ".") && !slices.Contains(f.may, p) {
		return status.Errorf(codes.PermissionDenied, "the token lacks the permission %s", p)
	}
	return nil
}

// start serves the fake in memory and returns a connection to it.
func (f *fakeAPI) start(t testing.TB) *grpc.ClientConn {
	t.Helper()
	lis := memconn.Listen(1 << 20)
	srv := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := f.authorize(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			f.mu.Lock()
			f.asked = append(f.asked, req.(proto.Message))
			f.mu.Unlock()
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(s any, ss grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := f.authorize(ss.Context(), info.FullMethod); err != nil {
				return err
			}
			return next(s, ss)
		}))
	apiv1.RegisterJobsServer(srv, f)
	apiv1.RegisterAppsServer(srv, f)
	apiv1.RegisterRevisionsServer(srv, f)
	apiv1.RegisterAccessServer(srv, f)
	apiv1.RegisterAuditServer(srv, f)
	apiv1.RegisterMachinesServer(srv, f)
	apiv1.RegisterRunsServer(srv, f)
	apiv1.RegisterCalendarsServer(srv, f)
	apiv1.RegisterModulesServer(srv, f)
	apiv1.RegisterClusterServer(srv, f)
	apiv1.RegisterQueuesServer(srv, f)
	apiv1.RegisterOperationsServer(srv, f)
	apiv1.RegisterMembershipServer(srv, f)
	apiv1.RegisterBackupsServer(srv, f)
	apiv1.RegisterModuleAccessServer(srv, f)
	apiv1.RegisterSecretsServer(srv, f)
	apiv1.RegisterValuesServer(srv, f)
	apiv1.RegisterAlertsServer(srv, f)
	apiv1.RegisterChangeSetsServer(srv, f)
	grpc_health_v1.RegisterHealthServer(srv, health.NewServer())
	go func() { _ = srv.Serve(lis) }()
	t.Cleanup(srv.Stop)
	conn, err := grpc.NewClient("passthrough:///fake",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// site is a console over a fake, served on loopback, with the cookies of one browser.
type site struct {
	*httptest.Server
	fake   *fakeAPI
	c      *console
	client *http.Client // does not follow redirects
	logged *bytes.Buffer
}

func newSite(t testing.TB, f *fakeAPI) *site {
	t.Helper()
	var logged bytes.Buffer
	c, err := newConsole(Config{Conn: f.start(t), Banner: "dev", Version: "v0.1.0-test", Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(c.handler())
	t.Cleanup(srv.Close)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &site{Server: srv, fake: f, c: c, logged: &logged, client: &http.Client{
		Jar:           jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (s *site) signIn(t testing.TB) *site {
	t.Helper()
	resp, _ := s.do(t, "GET", "/login?code="+s.c.codes.Issue(goodToken), nil)
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/" {
		t.Fatalf("sign in: %s to %q", resp.Status, resp.Header.Get("Location"))
	}
	return s
}

// do sends a request; headers are pairs.
func (s *site) do(t testing.TB, method, path string, body io.Reader, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func (s *site) post(t testing.TB, path, form string, headers ...string) (*http.Response, string) {
	t.Helper()
	return s.do(t, "POST", path, strings.NewReader(form), append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)...)
}

// change applies a change and wakes the streams.
func (f *fakeAPI) change(apply func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	apply()
	close(f.changed)
	f.changed = make(chan struct{})
}

// untilFollowed waits until n streams follow the log of a run.
func (f *fakeAPI) untilFollowed(t testing.TB, n int) {
	t.Helper()
	limit := time.After(15 * time.Second)
	for {
		f.mu.Lock()
		got, changed := f.followers, f.changed
		f.mu.Unlock()
		if got == n {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("%d streams follow a log, want %d", got, n)
		}
	}
}

// appendLog adds a line to a run's log.
func (f *fakeAPI) appendLog(run, level, text string) {
	f.change(func() {
		f.logs[run] = append(f.logs[run], &apiv1.LogLine{Offset: int64(len(f.logs[run])), Time: timestamppb.Now(), Attempt: 1, Level: level, Text: text})
	})
}

func (f *fakeAPI) finish(run, state string) {
	f.change(func() {
		r := f.run(run)
		r.State, r.FinishedAt = state, timestamppb.Now()
	})
}

func (f *fakeAPI) run(id string) *apiv1.Run {
	for _, r := range f.runs {
		if r.Id == id {
			return r
		}
	}
	return nil
}

func (f *fakeAPI) job(name string) *apiv1.Job {
	for _, j := range f.jobs {
		if j.Name == name {
			return j
		}
	}
	return nil
}

func (f *fakeAPI) GetJob(_ context.Context, r *apiv1.GetJobRequest) (*apiv1.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.job(r.Name)
	if j == nil {
		return nil, status.Errorf(codes.NotFound, "there is no job %q in app %q", r.Name, r.App)
	}
	return proto.CloneOf(j), nil
}

func (f *fakeAPI) ApplyJob(ctx context.Context, r *apiv1.ApplyJobRequest) (*apiv1.ApplyJobResponse, error) {
	if r.Job.GetHandler().GetModule() == "" && !strings.HasPrefix(r.Job.GetHandler().GetName(), "builtin:") {
		return nil, status.Error(codes.InvalidArgument, "the job has no handler: set handler.module")
	}
	f.mu.Lock()
	err := f.refuses(f.job(r.Job.Name), r.IfMatch, true)
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		result := "created"
		if f.exists(r.Job.Name) {
			result = "updated"
		}
		return &apiv1.ApplyJobResponse{Job: r.Job, Result: result}, nil
	}
	r.Job.Etag = "00000000000000ee"
	f.change(func() {
		stored := proto.CloneOf(r.Job)
		if old := f.job(r.Job.Name); old != nil {
			stored.Etag = old.Etag // so that a test can repeat a change on a condition
		}
		f.jobs = append(slices.DeleteFunc(f.jobs, func(j *apiv1.Job) bool { return j.Name == r.Job.Name }), stored)
		f.record(ctx, r.Job)
	})
	return &apiv1.ApplyJobResponse{Job: r.Job, Result: "created"}, nil
}

func (f *fakeAPI) exists(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.job(name) != nil
}

func (f *fakeAPI) CreateJob(ctx context.Context, r *apiv1.CreateJobRequest) (*apiv1.ApplyJobResponse, error) {
	if f.exists(r.Job.Name) {
		return nil, status.Errorf(codes.AlreadyExists, "job %s exists", r.Job.Name)
	}
	return f.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: r.Job})
}

// refuses returns the error for a change of a job with another etag, or for the deletion
// of a job that others name.
func (f *fakeAPI) refuses(j *apiv1.Job, ifMatch string, force bool) error {
	var s *status.Status
	var detail *apiv1.Refusal
	switch {
	case ifMatch != "" && (j == nil || ifMatch != "*" && ifMatch != j.Etag):
		s, detail = status.New(codes.Aborted, "the job was changed"), &apiv1.Refusal{Reason: "changed", Etag: j.GetEtag()}
	case !force && f.namers != nil:
		s, detail = status.New(codes.FailedPrecondition, "the job is named by job other"), &apiv1.Refusal{Reason: "referenced", Names: f.namers}
	default:
		return nil
	}
	s, err := s.WithDetails(detail)
	if err != nil {
		return err
	}
	return s.Err()
}

func (f *fakeAPI) setPaused(name string, paused bool) (*apiv1.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := f.job(name)
	if j == nil {
		return nil, status.Errorf(codes.NotFound, "there is no job %q", name)
	}
	j.Paused, j.Pause = &paused, nil
	return proto.CloneOf(j), nil
}

func (f *fakeAPI) PauseJob(_ context.Context, r *apiv1.PauseJobRequest) (*apiv1.Job, error) {
	if r.Until != nil && r.Until.AsTime().Before(time.Now()) {
		return nil, status.Error(codes.InvalidArgument, "until has passed")
	}
	j, err := f.setPaused(r.Name, true)
	if err == nil && (r.Reason != "" || r.Until != nil) {
		f.change(func() {
			f.job(r.Name).Pause = &apiv1.JobPause{Reason: r.Reason, Until: r.Until, Since: timestamppb.Now(), By: "ann"}
		})
	}
	return j, err
}

func (f *fakeAPI) ResumeJob(_ context.Context, r *apiv1.ResumeJobRequest) (*apiv1.Job, error) {
	return f.setPaused(r.Name, false)
}

func (f *fakeAPI) DeleteJob(_ context.Context, r *apiv1.DeleteJobRequest) (*apiv1.DeleteJobResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, j := range f.jobs {
		if j.Name == r.Name {
			if err := f.refuses(j, r.IfMatch, r.Force); err != nil {
				return nil, err
			}
			f.jobs = append(f.jobs[:i], f.jobs[i+1:]...)
			return &apiv1.DeleteJobResponse{}, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no job %q", r.Name)
}

func (f *fakeAPI) TriggerJob(_ context.Context, r *apiv1.TriggerJobRequest) (*apiv1.Run, error) {
	if r.IdempotencyKey == "used" {
		s, err := status.New(codes.FailedPrecondition, "it was used before").WithDetails(&apiv1.Refusal{Reason: "key_reused"})
		if err != nil {
			return nil, err
		}
		return nil, s.Err()
	}
	run := &apiv1.Run{
		App: r.App, Job: r.Name, State: "running", Trigger: "manual", Input: "input of the job", Attempt: 1, MaxAttempts: 1,
		PlannedAt: timestamppb.Now(), AcceptedAt: timestamppb.Now(), StartedAt: timestamppb.Now(),
	}
	if r.Input != nil {
		run.Input = *r.Input
	}
	f.change(func() {
		run.Id = fmt.Sprintf("01TRIG%020d", len(f.runs))
		f.runs = append([]*apiv1.Run{run}, f.runs...)
	})
	return proto.CloneOf(run), nil
}

func (f *fakeAPI) GetRun(_ context.Context, r *apiv1.GetRunRequest) (*apiv1.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if run := f.run(r.Id); run != nil {
		return proto.CloneOf(run), nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no run %q", r.Id)
}

func (f *fakeAPI) ListRuns(_ context.Context, r *apiv1.ListRunsRequest) (*apiv1.ListRunsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &apiv1.ListRunsResponse{UnreadableBlocks: f.unreadable}
	for _, run := range f.runs {
		bad := run.State != "succeeded" && run.FinishedAt != nil
		if (r.Parent == "" || r.Parent == run.Parent) && (r.Job == "" || r.Job == run.Job) && (r.State == "" || r.State == run.State || r.State == "unsuccessful" && bad || r.State == "live" && run.FinishedAt == nil || r.State == "ended" && job.State(run.State).Terminal()) && (r.Host == "" || r.Host == run.Host) && inRange(r, run) {
			out.Runs = append(out.Runs, proto.CloneOf(run))
		}
	}
	if r.Parent != "" && f.cut > 0 {
		from, _ := strconv.Atoi(r.PageToken)
		out.Runs = out.Runs[min(from, len(out.Runs)):]
		if len(out.Runs) > f.cut {
			out.Runs, out.NextPageToken = out.Runs[:f.cut], strconv.Itoa(from+f.cut)
		}
	}
	if n := int(r.PageSize); len(out.Runs) > n {
		out.Runs = out.Runs[:n]
	}
	if r.Input+r.Output != "" || len(r.InputValues)+len(r.OutputValues) > 0 {
		out.Examined, out.ExaminedNewest, out.ExaminedOldest = int32(len(f.runs)), timestamppb.Now(), timestamppb.New(time.Now().Add(-time.Hour))
	}
	switch {
	case r.Parent != "" && f.cut > 0:
	case r.PageToken != "":
		out.Runs = nil
	case r.State == "" && r.Parent == "":
		out.NextPageToken = "more&runs"
	}
	return out, nil
}

// inRange reports whether a run has the trigger, the labels and the time of end of a request.
func inRange(r *apiv1.ListRunsRequest, run *apiv1.Run) bool {
	at := run.FinishedAt
	if !strings.Contains(run.Input, r.Input) || !strings.Contains(run.Output, r.Output) {
		return false
	}
	for _, side := range []struct {
		values map[string]string
		in     string
	}{{r.InputValues, run.Input}, {r.OutputValues, run.Output}} {
		for path, value := range side.values { // of the first level, as texts
			var fields map[string]string
			if json.Unmarshal([]byte(side.in), &fields) != nil || fields[path] != value {
				return false
			}
		}
	}
	return (len(r.Triggers) == 0 || slices.Contains(r.Triggers, run.Trigger)) && job.HasLabels(run.Labels, r.Labels) &&
		(r.Since == nil || at == nil || !at.AsTime().Before(r.Since.AsTime())) && (r.Until == nil || at != nil && at.AsTime().Before(r.Until.AsTime()))
}

func (f *fakeAPI) CancelRun(_ context.Context, r *apiv1.CancelRunRequest) (*apiv1.Run, error) {
	f.finish(r.Id, "stopped")
	return f.GetRun(context.Background(), &apiv1.GetRunRequest{Id: r.Id})
}

func (f *fakeAPI) DeleteRun(_ context.Context, r *apiv1.DeleteRunRequest) (*apiv1.DeleteRunResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, run := range f.runs {
		switch {
		case run.Id != r.Id:
			continue
		case run.FinishedAt == nil:
			return nil, status.Error(codes.FailedPrecondition, "it is live: cancel it first")
		case r.PayloadOnly:
			run.PayloadDeletedAt, run.Input, run.Output = timestamppb.Now(), "", ""
		default:
			f.runs = slices.Delete(f.runs, i, i+1)
		}
		return &apiv1.DeleteRunResponse{Runs: 1}, nil
	}
	return nil, status.Error(codes.NotFound, "there is no such run")
}

func (f *fakeAPI) WatchRun(r *apiv1.WatchRunRequest, s grpc.ServerStreamingServer[apiv1.Run]) error {
	for {
		f.mu.Lock()
		run, changed := f.run(r.Id), f.changed
		run = proto.CloneOf(run)
		f.mu.Unlock()
		if run == nil {
			return status.Errorf(codes.NotFound, "there is no run %q", r.Id)
		}
		if err := s.Send(run); err != nil || run.FinishedAt != nil {
			return err
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (f *fakeAPI) ReadLog(r *apiv1.ReadLogRequest, s grpc.ServerStreamingServer[apiv1.LogLine]) error {
	if r.Follow {
		f.change(func() { f.followers++ })
		defer f.change(func() { f.followers-- })
	}
	for next := r.From; ; {
		f.mu.Lock()
		run, changed, lines := f.run(r.Id), f.changed, f.logs[r.Id]
		ended := run != nil && run.FinishedAt != nil
		f.mu.Unlock()
		if run == nil {
			return status.Errorf(codes.NotFound, "there is no run %q", r.Id)
		}
		for ; next < int64(len(lines)); next++ {
			if err := s.Send(lines[next]); err != nil {
				return err
			}
		}
		if ended || !r.Follow {
			return nil
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (f *fakeAPI) PushModule(s grpc.ClientStreamingServer[apiv1.PushModuleRequest, apiv1.PushModuleResponse]) error {
	var head *apiv1.PushModuleRequest_Head
	var body bytes.Buffer
	for {
		req, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if h := req.GetHead(); h != nil {
			head = h
		}
		if len(req.GetChunk()) > 1<<20 {
			return status.Error(codes.InvalidArgument, "a chunk is larger than 1 MiB")
		}
		body.Write(req.GetChunk())
		if body.Len() >= 4 && !bytes.HasPrefix(body.Bytes(), []byte("\x00asm")) {
			return status.Error(codes.InvalidArgument, "this is not WebAssembly: it does not begin with \\0asm "+evil)
		}
	}
	if f.check != nil {
		if err := f.check(s.Context()); err != nil {
			return err
		}
	}
	m := &apiv1.Module{App: head.App, Name: head.Name, Version: head.Version, Size: int64(body.Len()), Digest: "sha256:00", Manifest: head.Manifest, Kind: "command"}
	f.mu.Lock()
	defer f.mu.Unlock()
	code, err := f.script(m, body.Bytes())
	if err != nil {
		return err
	}
	for _, old := range f.modules {
		if old.Name == m.Name && old.Version == m.Version {
			if old.Digest != m.Digest {
				return status.Errorf(codes.AlreadyExists, "module %s@%s is there with other bytes", m.Name, m.Version)
			}
			return s.SendAndClose(&apiv1.PushModuleResponse{Module: old, Result: "unchanged"})
		}
	}
	if head.DryRun {
		return s.SendAndClose(&apiv1.PushModuleResponse{Module: m, Result: "checked"})
	}
	m.CreatedAt = timestamppb.Now()
	f.modules = append(f.modules, m)
	f.code[m.Name+"@"+m.Version] = code
	return s.SendAndClose(&apiv1.PushModuleResponse{Module: m, Result: "created"})
}

func (f *fakeAPI) ListModules(context.Context, *apiv1.ListModulesRequest) (*apiv1.ListModulesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &apiv1.ListModulesResponse{Modules: f.modules}, nil
}

func (f *fakeAPI) ListAliases(_ context.Context, r *apiv1.ListAliasesRequest) (*apiv1.ListAliasesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Module == "" {
		return &apiv1.ListAliasesResponse{Aliases: f.aliases}, nil
	}
	out := &apiv1.ListAliasesResponse{}
	for _, a := range f.aliases {
		if a.Module == r.Module {
			out.Aliases = append(out.Aliases, a)
		}
	}
	return out, nil
}

func (f *fakeAPI) ListHosts(context.Context, *apiv1.ListHostsRequest) (*apiv1.ListHostsResponse, error) {
	return &apiv1.ListHostsResponse{Hosts: f.hosts}, nil
}

func (f *fakeAPI) GetCluster(context.Context, *apiv1.GetClusterRequest) (*apiv1.ClusterStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members == nil {
		return &apiv1.ClusterStatus{Server: "srv-a", Servers: []*apiv1.Member{{Id: "srv-a", Address: "127.0.0.1:7700", State: "up"}}}, nil
	}
	return f.members, nil
}

func (f *fakeAPI) GetVersion(context.Context, *apiv1.GetVersionRequest) (*apiv1.Version, error) {
	return &apiv1.Version{Version: "v0.1.0-test"}, nil
}

func (f *fakeAPI) ApproveLogin(_ context.Context, req *apiv1.ApproveLoginRequest) (*apiv1.ApproveLoginResponse, error) {
	if req.Code == "" {
		return nil, status.Error(codes.InvalidArgument, `"" is not a code`)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.approved = append(f.approved, req.Code)
	return &apiv1.ApproveLoginResponse{}, nil
}

func (f *fakeAPI) SignIn(_ context.Context, req *apiv1.SignInRequest) (*apiv1.SignInResponse, error) {
	switch {
	case req.Name != "ada" || req.Password != "the first password" && req.Password != "a phrase of five words":
		return nil, status.Error(codes.Unauthenticated, "the name or the password is wrong")
	case req.Password == "the first password" && req.NewPassword == "":
		return nil, status.Error(codes.FailedPrecondition, "the password must be replaced")
	case req.NewPassword == "weak":
		return nil, status.Error(codes.InvalidArgument, "the password has 4 characters, the least is 15")
	}
	return &apiv1.SignInResponse{Token: goodToken, Session: &apiv1.Session{Id: "ses-1", Principal: req.Name}}, nil
}

func (f *fakeAPI) GetOverview(context.Context, *apiv1.GetOverviewRequest) (*apiv1.Overview, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := &apiv1.Overview{
		Jobs: int64(len(f.jobs)), Writable: true, ServerTime: timestamppb.Now(),
		Disk: &apiv1.Disk{TotalBytes: 100 << 30, FreeBytes: 61 << 30, JournalBytes: 192 << 20, HistoryBytes: 7 << 20},
	}
	if len(f.runs) == 0 {
		return o, nil
	}
	o.Running, o.Queued, o.Armed, o.Waiting, o.SucceededTotal, o.FailedTotal = 1, 3, 2, 1, 103374, 42
	o.HostsUp, o.HostsLost, o.LatenessP50Ms, o.LatenessP99Ms = 1, 1, 0.84, 3.2
	start := time.Now().Truncate(time.Minute).Add(-59 * time.Minute)
	for i := range 60 {
		o.Minutes = append(o.Minutes, &apiv1.Minute{
			Start:     timestamppb.New(start.Add(time.Duration(i) * time.Minute)),
			Succeeded: int64(40 + (i*37)%23 + i/2), Failed: int64((i * 7 % 11) / 8 * 4),
		})
	}
	return o, nil
}
