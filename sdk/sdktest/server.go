// Package sdktest provides a Wheelwork server for tests. The server keeps jobs, runs and
// modules in memory and executes each run by calling a Go function. It serves the calls of
// [sdk.Client] over real gRPC, and can fail in the ways of a network.
//
// # Handlers
//
// A job of a native function, native:NAME, runs the function of that name in
// [Config.Handlers]. [Config.Handle] stands in for modules, plugins and built-in handlers:
// the server runs no module, sends no request and starts no program. Every run has one
// attempt, and starts at once, whatever its overlap policy, priority or routing.
//
// # Time
//
// The server fires schedules at the times at which a real server does. By default time is
// real. In a test with [testing/synctest] it is that of the bubble. With [Config.Start] the
// server has a clock of its own, which only [Server.Advance] moves.
package sdktest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

// Config adjusts a [Server]. The zero value is valid.
type Config struct {
	// Token that calls must carry. Default: calls need none.
	Token string

	// Handlers are the native functions, as a worker has them. A run of a native function
	// that is not among them fails, unless Handle is set. Default: none.
	Handlers []worker.Handler

	// Handle executes the runs of all other handlers and returns their output; an error
	// fails the run. ctx ends when the run is cancelled or the server is closed. Default:
	// the input is the output.
	Handle func(ctx context.Context, run *apiv1.Run, log func(line string)) (output string, err error)

	// Start is the first time of the server's own clock, which only [Server.Advance]
	// moves. Default: the server uses real time.
	Start time.Time

	// UnreadableBlocks is how many damaged blocks of the history each page of a list of
	// runs passes over. Default: none.
	UnreadableBlocks int

	// Before and After are called before and after the execution of one message of a
	// produce stream. An error ends the stream instead of an answer. Default: none.
	Before, After func(*apiv1.ProduceRequest) error
}

// Server is the fake server. It is safe for concurrent use.
type Server struct {
	apiv1.UnimplementedJobsServer
	apiv1.UnimplementedRunsServer
	apiv1.UnimplementedCalendarsServer
	apiv1.UnimplementedModulesServer
	apiv1.UnimplementedClusterServer
	apiv1.UnimplementedProducerServer

	conf   Config
	grpc   *grpc.Server
	ctx    context.Context // ends when the server is closed
	cancel context.CancelFunc
	work   sync.WaitGroup // one for each run that is not terminal

	mu      sync.Mutex // guards the fields below
	conns   map[net.Conn]struct{}
	time    time.Time // of the server's own clock; zero: time is real
	alarm   *time.Timer
	jobs    map[string]*apiv1.Job // by app/name
	plans   map[string]*planned   // by app/name; only jobs with a schedule
	runs    []*run                // oldest first
	made    int                   // number of runs so far
	keys    map[string]*run       // by app/job/idempotency key
	modules []*apiv1.Module
	dates   map[string]*apiv1.Calendar // by app/name
	changed chan struct{}              // closed and replaced at each change of a run
}

// run is a run with the data for its watchers.
type run struct {
	*apiv1.Run
	handler *apiv1.Handler // of the job; read only
	log     []*apiv1.LogLine
	cancel  context.CancelFunc
	ended   chan struct{}
}

// NewServer returns a server without jobs. The caller calls Close when done.
func NewServer(conf Config) *Server {
	nothing := func(*apiv1.ProduceRequest) error { return nil }
	if conf.Before == nil {
		conf.Before = nothing
	}
	if conf.After == nil {
		conf.After = nothing
	}
	s := &Server{
		conf:    conf,
		conns:   make(map[net.Conn]struct{}),
		time:    conf.Start,
		jobs:    make(map[string]*apiv1.Job),
		plans:   make(map[string]*planned),
		keys:    make(map[string]*run),
		dates:   make(map[string]*apiv1.Calendar),
		changed: make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.alarm = time.AfterFunc(time.Hour, s.fire)
	s.alarm.Stop()
	s.grpc = grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := s.authenticate(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, r)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := s.authenticate(stream.Context(), info.FullMethod); err != nil {
				return err
			}
			return next(srv, stream)
		}),
	)
	apiv1.RegisterJobsServer(s.grpc, s)
	apiv1.RegisterRunsServer(s.grpc, s)
	apiv1.RegisterCalendarsServer(s.grpc, s)
	apiv1.RegisterModulesServer(s.grpc, s)
	apiv1.RegisterClusterServer(s.grpc, s)
	apiv1.RegisterProducerServer(s.grpc, s)
	return s
}

// Serve accepts connections until the server is closed. It may be called for several
// listeners.
func (s *Server) Serve(l net.Listener) error {
	return s.grpc.Serve(&listener{Listener: l, server: s})
}

// Close ends the server and every run.
func (s *Server) Close() {
	s.mu.Lock() // a schedule that fires now starts its runs before, or not at all
	s.cancel()
	s.alarm.Stop()
	s.mu.Unlock()
	s.grpc.Stop()
	s.work.Wait()
}

// Disconnect cuts every connection without a message, like a network failure.
func (s *Server) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close() //nolint:errcheck // it is cut either way
	}
	clear(s.conns)
}

// Runs returns the number of accepted runs.
func (s *Server) Runs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}

// Jobs returns the number of jobs.
func (s *Server) Jobs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}

type listener struct {
	net.Listener
	server *Server
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.server.mu.Lock()
		l.server.conns[c] = struct{}{}
		l.server.mu.Unlock()
	}
	return c, err
}

func (s *Server) authenticate(ctx context.Context, method string) error {
	if s.conf.Token == "" || method == apiv1.Cluster_GetVersion_FullMethodName {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if !slices.Equal(md.Get("authorization"), []string{"Bearer " + s.conf.Token}) {
		return status.Error(codes.Unauthenticated, "the token is not known here")
	}
	return nil
}

// Jobs

// ApplyJob stores a job. It checks the etag, the name, the handler and the schedule only.
func (s *Server) ApplyJob(_ context.Context, r *apiv1.ApplyJobRequest) (*apiv1.ApplyJobResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.changedLocked(r.GetJob(), r.GetIfMatch()); err != nil {
		return nil, err
	}
	result, err := s.applyLocked(r.GetJob(), r.GetDryRun())
	if err != nil {
		return nil, err
	}
	return &apiv1.ApplyJobResponse{Job: r.GetJob(), Result: result}, nil
}

// changedLocked refuses a change if the job has another etag than the caller expects.
func (s *Server) changedLocked(job *apiv1.Job, ifMatch string) error {
	was := s.jobs[job.GetApp()+"/"+job.GetName()]
	if ifMatch == "" || was != nil && (ifMatch == "*" || ifMatch == was.Etag) {
		return nil
	}
	refused := status.New(codes.Aborted, fmt.Sprintf("job %s was changed meanwhile", job.GetName()))
	refused, err := refused.WithDetails(&apiv1.Refusal{Reason: "changed", Etag: was.GetEtag()})
	if err != nil {
		return err
	}
	return refused.Err()
}

func (s *Server) applyLocked(job *apiv1.Job, dryRun bool) (string, error) {
	if job.GetName() == "" {
		return "", status.Error(codes.InvalidArgument, "name is missing")
	}
	if job.GetHandler().GetModule() == "" && !isExecutor(job.GetHandler().GetName()) {
		return "", status.Errorf(codes.InvalidArgument,
			"job %q names no handler: set handler.module to NAME@VERSION, or handler.name to native:NAME, plugin:NAME/HANDLER or builtin:NAME", job.GetName())
	}
	plan, err := s.planLocked(job)
	if err != nil {
		return "", err
	}
	key := job.GetApp() + "/" + job.GetName()
	was := s.jobs[key]
	next := proto.CloneOf(job)
	now := timestamppb.New(s.nowLocked())
	next.Revision, next.CreatedAt, next.UpdatedAt = was.GetRevision()+1, now, now
	next.Etag = fmt.Sprintf("%016x", next.Revision)
	result := "created"
	if was != nil {
		bare := proto.CloneOf(was)
		bare.Revision, bare.Etag, bare.CreatedAt, bare.UpdatedAt = job.Revision, job.Etag, job.CreatedAt, job.UpdatedAt
		if proto.Equal(bare, job) {
			return "unchanged", nil
		}
		next.CreatedAt, result = was.CreatedAt, "updated"
	}
	if !dryRun {
		s.jobs[key] = next
		if was == nil || !proto.Equal(was.GetSchedule(), job.GetSchedule()) || was.GetPaused() != job.GetPaused() {
			s.scheduleLocked(key, plan)
		}
	}
	return result, nil
}

func (s *Server) jobLocked(app, name string) (*apiv1.Job, error) {
	job := s.jobs[app+"/"+name]
	if job == nil {
		return nil, status.Errorf(codes.NotFound, "job %s is not in app %s", name, app)
	}
	return job, nil
}

// isExecutor reports whether a handler runs without a module.
func isExecutor(name string) bool {
	kind, of, _ := strings.Cut(name, ":")
	return of != "" && slices.Contains([]string{"native", "plugin", "builtin"}, kind)
}

// GetJob returns a job.
func (s *Server) GetJob(_ context.Context, r *apiv1.GetJobRequest) (*apiv1.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job, err := s.jobLocked(r.GetApp(), r.GetName())
	if err != nil {
		return nil, err
	}
	return s.shownLocked(job), nil
}

// ListJobs returns the jobs of an app, sorted by name, in pages of 50 by default. It refuses another
// order.
func (s *Server) ListJobs(_ context.Context, r *apiv1.ListJobsRequest) (*apiv1.ListJobsResponse, error) {
	if r.GetOrder() != "" && r.GetOrder() != "name" {
		return nil, status.Error(codes.Unimplemented, "sdktest lists jobs by name only")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var jobs []*apiv1.Job
	for _, j := range s.jobs {
		if j.GetApp() == r.GetApp() && j.GetName() > r.GetPageToken() && listed(s.shownLocked(j), r) {
			jobs = append(jobs, j)
		}
	}
	slices.SortFunc(jobs, func(a, b *apiv1.Job) int { return strings.Compare(a.GetName(), b.GetName()) })
	answer := &apiv1.ListJobsResponse{Jobs: jobs}
	if size := int(cmp.Or(r.GetPageSize(), 50)); len(jobs) > size {
		answer.Jobs, answer.NextPageToken = jobs[:size], jobs[size-1].GetName()
	}
	if !r.GetWithInput() {
		for i, j := range answer.Jobs {
			j = proto.CloneOf(j)
			j.Input, j.InputBytes = "", nil
			answer.Jobs[i] = j
		}
	}
	return answer, nil
}

// listed reports whether a list of jobs selects a job.
func listed(j *apiv1.Job, r *apiv1.ListJobsRequest) bool {
	module, last := j.GetHandler().GetModule(), j.GetStats().GetLastState()
	name, _, _ := strings.Cut(module, "@")
	return strings.HasPrefix(j.GetName(), r.GetPrefix()) &&
		strings.Contains(strings.ToLower(j.GetName()), strings.ToLower(r.GetContains())) &&
		hasLabels(j.GetLabels(), r.GetLabels()) &&
		(r.GetOwner() == "" || j.GetOwner() == r.GetOwner()) &&
		(r.GetModule() == "" || r.GetModule() == module || r.GetModule() == name) &&
		(r.GetSchedule() == "" || r.GetSchedule() == scheduleKind(j.GetSchedule())) &&
		(r.Paused == nil || r.GetPaused() == j.GetPaused()) &&
		(!r.GetFailing() || last != "" && last != "succeeded" && last != "skipped")
}

// scheduleKind returns the kind of a schedule.
func scheduleKind(s *apiv1.Schedule) string {
	switch {
	case s.GetCron() != "":
		return "cron"
	case s.GetEvery() != "":
		return "every"
	case s.GetDelay() != "":
		return "delay"
	case s.GetAt() != "":
		return "at"
	case s.GetAfter() != "":
		return "after"
	case s.GetDaily() != nil:
		return "daily"
	}
	return "none"
}

// DeleteJob deletes a job, even if other jobs name it.
func (s *Server) DeleteJob(_ context.Context, r *apiv1.DeleteJobRequest) (*apiv1.DeleteJobResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &apiv1.DeleteJobResponse{}, s.deleteLocked(r)
}

func (s *Server) deleteLocked(r *apiv1.DeleteJobRequest) error {
	_, err := s.jobLocked(r.GetApp(), r.GetName())
	delete(s.jobs, r.GetApp()+"/"+r.GetName())
	delete(s.plans, r.GetApp()+"/"+r.GetName())
	return err
}

// PauseJob marks a job as paused: its schedule does not fire. It keeps the reason and the end,
// and does not resume the job by itself.
func (s *Server) PauseJob(_ context.Context, r *apiv1.PauseJobRequest) (*apiv1.Job, error) {
	return s.setPaused(r.GetApp(), r.GetName(), true, pauseOf(r.GetReason(), r.GetUntil()))
}

func pauseOf(reason string, until *timestamppb.Timestamp) *apiv1.JobPause {
	if reason == "" && until == nil {
		return nil
	}
	return &apiv1.JobPause{Reason: reason, Since: timestamppb.Now(), Until: until}
}

// ResumeJob removes the mark of PauseJob.
func (s *Server) ResumeJob(_ context.Context, r *apiv1.ResumeJobRequest) (*apiv1.Job, error) {
	return s.setPaused(r.GetApp(), r.GetName(), false, nil)
}

func (s *Server) setPaused(app, name string, paused bool, p *apiv1.JobPause) (*apiv1.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job, err := s.jobLocked(app, name)
	if err != nil {
		return nil, err
	}
	s.pauseLocked(job, paused, p)
	return s.shownLocked(s.jobs[app+"/"+name]), nil
}

func (s *Server) pauseLocked(job *apiv1.Job, paused bool, p *apiv1.JobPause) {
	job = proto.CloneOf(job)
	job.Paused, job.Pause = &paused, p
	key := job.GetApp() + "/" + job.GetName()
	s.jobs[key] = job
	if plan, err := s.planLocked(job); err == nil {
		s.scheduleLocked(key, plan)
	}
}

// TriggerJob starts a run at once and waits for its end as long as the request says. A
// used idempotency key returns the earlier run.
func (s *Server) TriggerJob(ctx context.Context, r *apiv1.TriggerJobRequest) (*apiv1.Run, error) {
	wait := time.Duration(0)
	if r.GetWait() != "" {
		var err error
		if wait, err = time.ParseDuration(r.GetWait()); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
	}
	s.mu.Lock()
	started, _, err := s.triggerLocked(r)
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}
	now := proto.CloneOf(started.Run)
	s.mu.Unlock()
	if wait <= 0 {
		return now, nil
	}
	patience, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err = s.watch(patience, now.GetId(), func(run *run) (bool, error) {
		now = proto.CloneOf(run.Run)
		return run.FinishedAt != nil, nil
	})
	if err != nil && (ctx.Err() != nil || patience.Err() == nil) {
		return nil, err
	}
	return now, nil
}

func (s *Server) triggerLocked(r *apiv1.TriggerJobRequest) (_ *run, result string, _ error) {
	job, err := s.jobLocked(r.GetApp(), r.GetName())
	if err != nil {
		return nil, "", err
	}
	key := strings.Join([]string{r.GetApp(), r.GetName(), r.GetIdempotencyKey()}, "/")
	if old := s.keys[key]; old != nil && r.GetIdempotencyKey() != "" {
		return old, "duplicate", nil
	}
	input := job.GetInput()
	if r.Input != nil {
		input = r.GetInput()
	}
	run := s.startLocked(job, input, "manual", s.nowLocked())
	s.keys[key] = run
	return run, "accepted", nil
}

// startLocked starts a run of a job.
func (s *Server) startLocked(job *apiv1.Job, input, trigger string, planned time.Time) *run {
	now := timestamppb.New(s.nowLocked())
	ctx, cancel := context.WithCancel(s.ctx)
	name := job.GetHandler().GetName()
	if name == "" {
		name = "main"
	}
	s.made++
	run := &run{cancel: cancel, handler: job.GetHandler(), ended: make(chan struct{}), Run: &apiv1.Run{
		Id: fmt.Sprintf("%026d", s.made), App: job.GetApp(), Job: job.GetName(), State: "running", Trigger: trigger,
		PlannedAt: timestamppb.New(planned), AcceptedAt: now, StartedAt: now, Attempt: 1, MaxAttempts: job.GetRetry().GetMax() + 1,
		Host: "sdktest", Module: job.GetHandler().GetModule(), Handler: name, Input: input, Labels: job.GetLabels(),
	}}
	s.runs = append(s.runs, run)
	s.work.Go(func() { s.handle(ctx, run) }) // handle begins by taking the lock
	return run
}

func (s *Server) handle(ctx context.Context, run *run) {
	defer run.cancel()
	s.mu.Lock()
	task := proto.CloneOf(run.Run)
	s.mu.Unlock()
	output, err := s.execute(ctx, run, task)
	s.update(func() {
		run.FinishedAt = timestamppb.New(s.nowLocked())
		switch {
		case ctx.Err() != nil:
			run.State = "stopped"
		case err != nil:
			run.State, run.Error, run.Code = "failed", err.Error(), codeOf(err)
		default:
			run.State, run.Output = "succeeded", output
		}
		s.endedLocked(run)
	})
	close(run.ended)
}

// update changes runs and wakes their watchers.
func (s *Server) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Producer

// Produce executes the commands of a stream, one message after another.
func (s *Server) Produce(stream grpc.BidiStreamingServer[apiv1.ProduceRequest, apiv1.ProduceResponse]) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.conf.Before(r); err != nil {
			return err
		}
		answer := &apiv1.ProduceResponse{Number: r.GetNumber()}
		s.mu.Lock()
		for _, c := range r.GetCommands() {
			answer.Results = append(answer.Results, s.commandLocked(c))
		}
		s.mu.Unlock()
		if err := s.conf.After(r); err != nil {
			return err
		}
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
}

func (s *Server) commandLocked(c *apiv1.Command) *apiv1.CommandResult {
	r := &apiv1.CommandResult{}
	var err error
	switch kind := c.GetKind().(type) {
	case *apiv1.Command_Apply:
		r.Result, err = s.applyLocked(kind.Apply, false)
	case *apiv1.Command_Delete:
		r.Result, err = "deleted", s.deleteLocked(kind.Delete)
	case *apiv1.Command_Trigger:
		var run *run
		if run, r.Result, err = s.triggerLocked(kind.Trigger); err == nil {
			r.RunId = run.GetId()
		}
	}
	if err != nil {
		return &apiv1.CommandResult{Code: int32(status.Code(err)), Error: status.Convert(err).Message()}
	}
	return r
}

// Runs

func (s *Server) runLocked(id string) (*run, error) {
	for _, r := range s.runs {
		if r.GetId() == id {
			return r, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "run %s is not known", id)
}

// GetRun returns a run.
func (s *Server) GetRun(_ context.Context, r *apiv1.GetRunRequest) (*apiv1.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run, err := s.runLocked(r.GetId())
	if err != nil {
		return nil, err
	}
	return proto.CloneOf(run.Run), nil
}

// DeleteRun removes a run that has ended, or its input, output and log.
func (s *Server) DeleteRun(_ context.Context, r *apiv1.DeleteRunRequest) (*apiv1.DeleteRunResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.runLocked(r.GetId())
	switch {
	case err != nil:
		return nil, err
	case found.FinishedAt == nil:
		return nil, status.Errorf(codes.FailedPrecondition, "run %s is %s: cancel it first, and delete it when it has ended", r.GetId(), found.GetState())
	case !r.GetPayloadOnly():
		s.runs = slices.DeleteFunc(s.runs, func(x *run) bool { return x == found })
	case found.PayloadDeletedAt != nil:
		return &apiv1.DeleteRunResponse{}, nil
	default:
		found.log, found.Input, found.InputBytes, found.Output, found.OutputBytes = nil, "", nil, "", nil
		found.PayloadDeletedAt = timestamppb.New(s.nowLocked())
	}
	return &apiv1.DeleteRunResponse{Runs: 1}, nil
}

// CancelRun ends the context of a run. It refuses a run that has ended.
func (s *Server) CancelRun(_ context.Context, r *apiv1.CancelRunRequest) (*apiv1.Run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	run, err := s.runLocked(r.GetId())
	if err != nil {
		return nil, err
	}
	if run.FinishedAt != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "run %s has ended: it is %s", r.GetId(), run.GetState())
	}
	run.CancelRequested = true
	run.cancel()
	return proto.CloneOf(run.Run), nil
}

// WatchRun sends a run now and at each change, until the run has ended.
func (s *Server) WatchRun(r *apiv1.WatchRunRequest, stream grpc.ServerStreamingServer[apiv1.Run]) error {
	return s.watch(stream.Context(), r.GetId(), func(run *run) (bool, error) {
		return run.FinishedAt != nil, stream.Send(proto.CloneOf(run.Run))
	})
}

// ReadLog sends the lines of a run. With follow it continues until the run has ended.
func (s *Server) ReadLog(r *apiv1.ReadLogRequest, stream grpc.ServerStreamingServer[apiv1.LogLine]) error {
	next := int(r.GetFrom())
	return s.watch(stream.Context(), r.GetId(), func(run *run) (bool, error) {
		for ; next < len(run.log); next++ {
			if err := stream.Send(run.log[next]); err != nil {
				return true, err
			}
		}
		return run.FinishedAt != nil || !r.GetFollow(), nil
	})
}

// watch calls visit with the lock held, now and after each change, until visit reports
// done.
func (s *Server) watch(ctx context.Context, id string, visit func(*run) (done bool, err error)) error {
	for {
		s.mu.Lock()
		run, err := s.runLocked(id)
		done := true
		if err == nil {
			done, err = visit(run)
		}
		changed := s.changed
		s.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Modules

// PushModule stores the digest and the manifest of a module, but not its bytes. It
// refuses bytes without the WebAssembly header, and other bytes under an existing
// version.
func (s *Server) PushModule(stream grpc.ClientStreamingServer[apiv1.PushModuleRequest, apiv1.PushModuleResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	head, hash, size := first.GetHead(), sha256.New(), int64(0)
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if size == 0 && !strings.HasPrefix(string(r.GetChunk()), "\x00asm") {
			return status.Error(codes.InvalidArgument, "this is not a WebAssembly module")
		}
		hash.Write(r.GetChunk()) //nolint:errcheck // a hash never fails
		size += int64(len(r.GetChunk()))
	}
	m := &apiv1.Module{
		App: head.GetApp(), Name: head.GetName(), Version: head.GetVersion(), Manifest: head.GetManifest(), Kind: "command",
		Digest: "sha256:" + hex.EncodeToString(hash.Sum(nil)), Size: size, Handlers: []string{"main"}, CreatedAt: timestamppb.Now(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.moduleLocked(m.App, m.Name, m.Version)
	switch {
	case old != nil && old.GetDigest() != m.GetDigest():
		return status.Errorf(codes.AlreadyExists, "%s@%s exists with other bytes: choose another version", m.Name, m.Version)
	case head.GetDryRun():
		return stream.SendAndClose(&apiv1.PushModuleResponse{Module: m, Result: "checked"})
	case old != nil:
		return stream.SendAndClose(&apiv1.PushModuleResponse{Module: old, Result: "unchanged"})
	}
	s.modules = append(s.modules, m)
	return stream.SendAndClose(&apiv1.PushModuleResponse{Module: m, Result: "created"})
}

func (s *Server) moduleLocked(app, name, version string) *apiv1.Module {
	for _, m := range s.modules {
		if m.GetApp() == app && m.GetName() == name && m.GetVersion() == version {
			return m
		}
	}
	return nil
}

// GetModule returns a version of a module.
func (s *Server) GetModule(_ context.Context, r *apiv1.GetModuleRequest) (*apiv1.Module, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.moduleLocked(r.GetApp(), r.GetName(), r.GetVersion())
	if m == nil {
		return nil, status.Errorf(codes.NotFound, "module %s@%s is not in app %s", r.GetName(), r.GetVersion(), r.GetApp())
	}
	return m, nil
}

// ListModules returns all versions of an app in one page.
func (s *Server) ListModules(_ context.Context, r *apiv1.ListModulesRequest) (*apiv1.ListModulesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &apiv1.ListModulesResponse{}
	for _, m := range s.modules {
		if m.GetApp() == r.GetApp() {
			answer.Modules = append(answer.Modules, m)
		}
	}
	return answer, nil
}

// Cluster

// GetVersion returns the version "sdktest".
func (s *Server) GetVersion(context.Context, *apiv1.GetVersionRequest) (*apiv1.Version, error) {
	return &apiv1.Version{Version: "sdktest"}, nil
}

// ListHosts returns the one host that executes all runs.
func (s *Server) ListHosts(context.Context, *apiv1.ListHostsRequest) (*apiv1.ListHostsResponse, error) {
	return &apiv1.ListHostsResponse{Hosts: []*apiv1.Host{{
		Id: "sdktest", Name: "sdktest", State: "up", Slots: 1, Version: "sdktest", Labels: map[string]string{"zone": "here"},
	}}}, nil
}

// GetOverview counts the jobs of an app and reports one host.
func (s *Server) GetOverview(_ context.Context, r *apiv1.GetOverviewRequest) (*apiv1.Overview, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &apiv1.Overview{HostsUp: 1, Writable: true, ServerTime: timestamppb.Now()}
	for _, j := range s.jobs {
		if j.GetApp() == r.GetApp() {
			o.Jobs++
		}
	}
	return o, nil
}
