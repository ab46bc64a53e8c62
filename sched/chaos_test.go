package sched_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestChaos runs simulations in which a seed chooses the jobs, the operations on them,
// and the failures: servers stop and lose their power, disks fill up, hosts crash, lose
// their network and return. At the end it compares all events with the guarantees of the
// policies, see sim_check_test.go. WHEELWORK_SEED runs one seed, WHEELWORK_LONG many. A
// seed fixes the operations and their times. IDs are random, so two runs of a seed are
// similar but not identical.
func TestChaos(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4}
	if testkit.Long() {
		for n := range uint64(100) {
			seeds = append(seeds, 100+n)
		}
	}
	for _, seed := range testkit.Seeds(t, seeds...) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			t.Parallel() // a simulation mostly waits for the disk
			synctest.Test(t, func(t *testing.T) { newSim(t, seed).run() })
		})
	}
}

// sim is one simulation.
type sim struct {
	t *testing.T
	r *rand.Rand
	w *world
	c *client

	disk     *disk
	replay   time.Duration // the time that a replay of the journal takes
	machines []*machine
	ledger   *ledger

	jobs     []*simJob
	calendar *apiv1.Calendar
	acked    map[string]string // run ID -> its idempotency key
	ended    map[string]*apiv1.Run
	restarts []restart
}

// restart is an interval in which no server was up. Dispatches shortly before a power
// failure may be lost.
type restart struct {
	from, to time.Time
	power    bool
}

// simJob is a job with the history of its schedule.
type simJob struct {
	def    *apiv1.Job
	fixed  bool // it has dependents or dependencies, so it is never deleted
	there  bool
	paused bool
	remade bool
	lives  int
	spans  []span
}

// span is an interval in which a schedule did not change. It planned the times from first
// to end.
type span struct {
	plan       schedule.Plan
	life       int
	set        time.Time
	first, end time.Time // first is zero if nothing was planned; end is zero while the span is open
}

func newSim(t *testing.T, seed uint64) *sim {
	s := &sim{
		t: t, r: rand.New(rand.NewPCG(seed, 0)), w: newWorld(t), ledger: &ledger{},
		acked: map[string]string{}, ended: map[string]*apiv1.Run{},
		calendar: &apiv1.Calendar{App: naming.DefaultApp, Name: "holidays", Dates: []string{"1999-12-24"}},
	}
	s.ledger.do = behave(seed)
	s.w.random = rand.NewChaCha8([32]byte(binary.LittleEndian.AppendUint64(make([]byte, 24), seed)))
	if seed%2 == 1 { // then a crash leaves most counters to be recounted from the history
		s.w.statsBatch = 1
	}
	if seed%3 > 0 { // a low limit, so that live runs go to packed rows as under load
		s.w.bundleRuns = int(seed % 7)
	}
	if seed%4 < 2 { // a long interval, so that a standby has many records to replay
		s.w.standsBy, s.w.checkpointEvery = true, 20*time.Second
	}
	s.w.wrap = func(inner journal.Journal) journal.Journal {
		s.disk = &disk{Journal: inner, note: s.w.note(), slow: s.replay}
		return s.disk
	}
	return s
}

// behave returns the handler of all jobs. Its behavior depends only on the run, the
// attempt and the seed.
func behave(seed uint64) handler {
	return func(ctx context.Context, t runtime.Task, _ runtime.Sink) runtime.Result {
		h := fnv.New64a()
		h.Write(binary.LittleEndian.AppendUint64([]byte(t.RunID), seed+uint64(t.Attempt))) //nolint:errcheck // a hash never fails
		r := rand.New(rand.NewPCG(h.Sum64(), seed))
		longest := []time.Duration{50 * time.Millisecond, 50 * time.Millisecond, 2 * time.Second, 7 * time.Second}[r.IntN(4)]
		res := sleeping(1+time.Duration(r.Int64N(int64(longest))))(ctx, t, nil)
		if res.Outcome == runtime.Succeeded {
			switch r.IntN(10) {
			case 0, 1:
				res = runtime.Result{Outcome: runtime.Retryable, Error: "not yet"}
			case 2:
				res = runtime.Result{Outcome: runtime.Permanent, Error: "never"}
			default:
				res.Output = []byte(t.RunID)
			}
		}
		return res
	}
}

func (s *sim) run() {
	s.w.start()
	s.c = s.w.client()
	s.c.push()
	for i, zone := range []string{"a", "a", "b", "b"} {
		m := &machine{w: s.w, id: fmt.Sprint("h", i+1), slots: 1 + s.r.IntN(3), labels: map[string]string{"zone": zone}, ledger: s.ledger}
		s.machines = append(s.machines, m)
		m.start()
	}
	s.putCalendar()
	s.makeJobs()
	for range 70 {
		s.operate()
		s.look()
		if s.t.Failed() {
			break
		}
	}
	s.settle()
	s.check()
	for _, m := range s.machines {
		m.stop()
	}
	s.c.close()
	s.stopServer(false)
}

func (s *sim) chance(n int) bool { return s.r.IntN(n) == 0 }
func (s *sim) upTo(d time.Duration) time.Duration {
	return time.Duration(s.r.Int64N(int64(d/time.Millisecond))+1) * time.Millisecond
}

func (s *sim) sleep(d time.Duration) { time.Sleep(s.upTo(d)) }

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// ok reports whether a call succeeded. It fails the test for an unexpected error.
// ResourceExhausted is expected while the disk is full.
func (s *sim) ok(what string, err error, expected ...codes.Code) bool {
	s.t.Helper()
	code := status.Code(err)
	switch {
	case err == nil:
		return true
	case slices.Contains(expected, code):
	case code == codes.ResourceExhausted && s.disk.full:
	default:
		s.t.Errorf("%s: %v", what, err)
	}
	return false
}

func (s *sim) makeJobs() {
	for i := range 12 {
		j := &simJob{def: s.definition(fmt.Sprint("job", i)), fixed: i < 6}
		s.jobs = append(s.jobs, j)
		s.apply(j)
	}
	for _, d := range []*apiv1.Job{
		{Name: "all", Dependency: &apiv1.Dependency{Jobs: []string{"job0", "job1", "job2"}}},
		{Name: "any", Dependency: &apiv1.Dependency{Jobs: []string{"job1", "job3"}, Need: "any", On: "end", PassOutput: true}},
		{Name: "alarm", Dependency: &apiv1.Dependency{Jobs: []string{"job0", "job4"}, Need: "any", On: "failure"}},
		{Name: "after", Dependency: &apiv1.Dependency{Jobs: []string{"any", "job5"}, On: "end"}},
	} {
		j := &simJob{def: d, fixed: true}
		s.jobs = append(s.jobs, j)
		s.apply(j)
	}
}

// definition generates a random job.
func (s *sim) definition(name string) *apiv1.Job {
	r := s.r
	d := &apiv1.Job{
		Name: name, Input: "first", Timeout: "5s", Priority: int32(r.IntN(21) - 10), Schedule: s.schedule(),
		Retry: &apiv1.Retry{Max: int32(r.IntN(4)), First: "300ms", Jitter: pick(r, 0, 0.5), Backoff: pick(r, "", "fixed")},
		Overlap: pick(
			r, nil, &apiv1.Overlap{Policy: "parallel", Limit: 2}, &apiv1.Overlap{Policy: "queue"},
			&apiv1.Overlap{Policy: "queue", Limit: 2}, &apiv1.Overlap{Policy: "discard"}, &apiv1.Overlap{Policy: "cover"},
		),
	}
	if d.Schedule != nil {
		d.Misfire = pick(
			r, nil, nil, &apiv1.Misfire{Policy: "skip", Threshold: "2s"}, &apiv1.Misfire{Policy: "fire_all"},
			&apiv1.Misfire{Policy: "fire_all", Max: 3, Threshold: "1s", Window: "20s"},
		)
	}
	if s.chance(4) {
		d.Deadline = pick(r, "2s", "20s")
	}
	if s.chance(4) {
		d.Rate = pick(r, &apiv1.Rate{Max: 2, Per: "3s"}, &apiv1.Rate{Max: 1, Per: "1s"})
	}
	if s.chance(2) {
		d.Routing = &apiv1.Routing{Strategy: pick(r, "", "first", "last", "round_robin", "random", "hash", "lfu", "lru", "failover", "busy_transfer")}
		switch r.IntN(4) {
		case 0:
			d.Routing.Labels = []string{"zone=" + pick(r, "a", "b")}
		case 1:
			d.Routing.Hosts = []string{"h1", "h3"}
		case 2:
			d.Routing.MaxHosts = 1
		}
	}
	if s.chance(5) {
		d.Fanout = pick(r, &apiv1.Fanout{Mode: "broadcast"}, &apiv1.Fanout{Mode: "shards", Shards: 3})
	}
	return d
}

func (s *sim) schedule() *apiv1.Schedule {
	r, now := s.r, time.Now().UTC()
	stamp := func(d time.Duration) string { return now.Add(d).Format(time.RFC3339Nano) }
	sc := pick(
		r, nil,
		&apiv1.Schedule{Every: pick(r, "2s", "3500ms", "11s")},
		&apiv1.Schedule{Every: pick(r, "2s", "3500ms", "11s")},
		&apiv1.Schedule{Cron: pick(r, "*/2 * * * * *", "*/7 * * * * *", "0,1,2,30 * * * * *")},
		&apiv1.Schedule{Cron: "*/5 * * * * *", Exclude: []string{"holidays"}},
		&apiv1.Schedule{Every: "4s", Exclude: []string{"holidays"}},
		&apiv1.Schedule{Delay: pick(r, "1s", "4s")},
		&apiv1.Schedule{At: stamp(s.upTo(2 * time.Minute))},
		&apiv1.Schedule{After: "47s"},
		&apiv1.Schedule{Daily: &apiv1.Daily{From: "00:00", Until: "00:30", Every: "6s"}},
	)
	if sc == nil || sc.At != "" || sc.After != "" {
		return sc
	}
	switch r.IntN(6) {
	case 0:
		sc.MaxRuns = int64(3 + r.IntN(15))
	case 1:
		sc.From = stamp(s.upTo(20 * time.Second))
	case 2:
		sc.Until = stamp(20*time.Second + s.upTo(2*time.Minute))
	case 3:
		sc.Jitter = "900ms"
	}
	return sc
}

func (s *sim) apply(j *simJob) {
	d := proto.CloneOf(j.def)
	d.Handler = &apiv1.Handler{Module: "m@1"}
	_, err := s.c.jobs.ApplyJob(s.t.Context(), &apiv1.ApplyJobRequest{Job: d})
	if !s.ok("apply "+j.def.Name, err, codes.InvalidArgument) { // its schedule may have no future time
		return
	}
	if !j.there {
		j.there, j.paused = true, false
		j.lives++
		s.begin(j)
	}
}

// begin opens a span after a change of the schedule.
func (s *sim) begin(j *simJob) {
	if j.def.Schedule == nil {
		return
	}
	got, err := s.c.jobs.GetJob(s.t.Context(), &apiv1.GetJobRequest{Name: j.def.Name})
	if err != nil {
		s.t.Fatal(err)
	}
	plan, err := schedule.NewPlan(job.Definition(got), func(string) *schedule.Calendar {
		c, err := schedule.CompileCalendar(proto.CloneOf(s.calendar))
		if err != nil {
			s.t.Fatal(err)
		}
		return c
	})
	if err != nil {
		s.t.Fatal(err)
	}
	sp := span{plan: plan, life: j.lives, set: time.Now()}
	if got.NextAt != nil {
		sp.first = got.NextAt.AsTime()
	}
	j.spans = append(j.spans, sp)
}

// finish closes the open span after a change of the schedule.
func (s *sim) finish(j *simJob) {
	if n := len(j.spans); n > 0 && j.spans[n-1].end.IsZero() {
		j.spans[n-1].end = time.Now()
	}
}

// scheduled picks an existing job with a schedule, or nil.
func (s *sim) scheduled() *simJob {
	for range 20 {
		if j := pick(s.r, s.jobs...); j.there && j.def.Schedule != nil {
			return j
		}
	}
	return nil
}

func (s *sim) operate() {
	switch s.r.IntN(22) {
	case 0:
		s.stopServer(false)
		s.startServer()
	case 1, 2:
		s.loseServer()
	case 3:
		s.fillDisk()
	case 4, 5, 6:
		s.troubleHost()
	case 7:
		s.cancel()
	case 8, 9:
		s.pauseOrResume()
	case 10:
		s.skipNext()
	case 11:
		s.backfill()
	case 12:
		s.retry()
	case 13:
		s.changeInput()
	case 14:
		s.deleteOrMake()
	case 15:
		s.changeCalendar()
	default:
		s.trigger()
		s.sleep(4 * time.Second)
	}
}

// trigger starts a few runs, some of them twice with one key.
func (s *sim) trigger() {
	for range 1 + s.r.IntN(4) {
		j := pick(s.r, s.jobs...)
		req := &apiv1.TriggerJobRequest{Name: j.def.Name, Input: proto.String("by hand")}
		if s.chance(2) {
			req.IdempotencyKey = fmt.Sprint("key", s.r.Uint64())
		}
		run, err := s.c.jobs.TriggerJob(s.t.Context(), req)
		switch {
		case s.disk.isDead() && err != nil:
			continue
		case !j.there:
			if status.Code(err) != codes.NotFound {
				s.t.Errorf("trigger of a job that is not there: %v, %v", run, err)
			}
			continue
		case !s.ok("trigger", err):
			continue
		}
		s.acked[run.Id] = req.IdempotencyKey
		if req.IdempotencyKey == "" || s.chance(2) {
			continue
		}
		if again, err := s.c.jobs.TriggerJob(s.t.Context(), req); !s.disk.isDead() && s.ok("trigger again", err) && again.Id != run.Id {
			s.t.Errorf("the key of run %s gave run %s", run.Id, again.Id)
		}
	}
}

func (s *sim) stopServer(power bool) {
	s.restarts = append(s.restarts, restart{from: time.Now(), power: power})
	s.w.stopServer()
	if err := s.w.failed; power != (err != nil) || power && !strings.Contains(err.Error(), errPower.Error()) {
		s.t.Errorf("the server ended with %v", err)
	}
}

func (s *sim) startServer() {
	time.Sleep(pick(s.r, time.Millisecond, 2*time.Second, 13*time.Second, 40*time.Second))
	s.w.start()
	s.restarts[len(s.restarts)-1].to = time.Now()
	s.c.reconnect(s.w)
	time.Sleep(20 * time.Millisecond) // until the server has applied the misfire policies
}

// loseServer makes the power fail while the server works.
func (s *sim) loseServer() {
	s.disk.cutPower(1+s.r.IntN(30), s.chance(2))
	from := time.Now().Add(-flushAfter)
	for n := 0; !s.disk.isDead(); n++ {
		if s.trigger(); s.chance(3) {
			s.sleep(500 * time.Millisecond)
		}
		if n == 100 {
			s.t.Fatal("the server journals nothing")
		}
	}
	synctest.Wait()
	s.stopServer(true)
	s.restarts[len(s.restarts)-1].from = from
	s.startServer()
}

// fillDisk leaves no room at all, or only room for the ends of runs.
func (s *sim) fillDisk() {
	s.disk.fill(pick[int64](s.r, 0, 6<<20))
	for range 3 {
		s.trigger()
		s.cancel()
		s.sleep(4 * time.Second)
	}
	s.disk.free()
	time.Sleep(1100 * time.Millisecond) // until the loop and the hosts have tried again
}

// troubleHost stops, crashes or disconnects a machine, or brings it back.
func (s *sim) troubleHost() {
	m := pick(s.r, s.machines...)
	switch {
	case m.stop == nil:
		m.start()
	case m.cut:
		m.heal()
	case s.chance(3):
		m.stop()
	case s.chance(2):
		m.crash()
	default:
		m.sever()
	}
	s.sleep(time.Second)
}

// list returns the newest runs in a state.
func (s *sim) list(state string, size int32) []*apiv1.Run {
	resp, err := s.c.runs.ListRuns(s.t.Context(), &apiv1.ListRunsRequest{State: state, PageSize: size})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.Runs
}

func (s *sim) cancel() {
	if live := s.list("live", 100); len(live) > 0 {
		run := pick(s.r, live...)
		_, err := s.c.runs.CancelRun(s.t.Context(), &apiv1.CancelRunRequest{Id: run.Id})
		s.ok("cancel", err, codes.FailedPrecondition, codes.NotFound) // it may have ended or been revoked
	}
}

func (s *sim) pauseOrResume() {
	j := s.scheduled()
	switch {
	case j == nil:
	case j.paused:
		_, err := s.c.jobs.ResumeJob(s.t.Context(), &apiv1.ResumeJobRequest{Name: j.def.Name})
		if s.ok("resume", err) {
			j.paused = false
			s.begin(j)
		}
	default:
		s.approach(j)
		s.pause(j)
	}
}

func (s *sim) pause(j *simJob) {
	time.Sleep(time.Millisecond) // so that earlier operations have an earlier millisecond
	_, err := s.c.jobs.PauseJob(s.t.Context(), &apiv1.PauseJobRequest{Name: j.def.Name})
	if s.ok("pause", err) {
		j.paused = true
		s.finish(j)
	}
}

// approach waits until shortly before, at or shortly after the next planned time of a
// job, if that is less than 20 s ahead.
func (s *sim) approach(j *simJob) {
	got, err := s.c.jobs.GetJob(s.t.Context(), &apiv1.GetJobRequest{Name: j.def.Name})
	if err != nil {
		s.t.Fatal(err)
	}
	if wait := time.Until(got.NextAt.AsTime()); got.NextAt != nil && wait < 20*time.Second {
		time.Sleep(wait + pick(s.r, -2*time.Second, -700*time.Millisecond, -time.Millisecond, 0, time.Millisecond, 300*time.Millisecond))
	}
}

func (s *sim) skipNext() {
	if j := s.scheduled(); j != nil {
		s.approach(j)
		_, err := s.c.jobs.SkipNext(s.t.Context(), &apiv1.SkipNextRequest{Name: j.def.Name})
		s.ok("skip next", err, codes.FailedPrecondition) // there may be no next time
	}
}

func (s *sim) backfill() {
	if j := s.scheduled(); j != nil {
		now := time.Now()
		req := &apiv1.BackfillJobRequest{
			Name: j.def.Name, Limit: int32(1 + s.r.IntN(10)),
			From: timestamppb.New(now.Add(-s.upTo(time.Minute))), Until: timestamppb.New(now.Add(s.upTo(20 * time.Second))),
		}
		first, err := s.c.jobs.BackfillJob(s.t.Context(), req)
		if !s.ok("backfill", err) {
			return
		}
		again, err := s.c.jobs.BackfillJob(s.t.Context(), req)
		if s.ok("backfill again", err) && (again.Accepted != 0 || again.Existing != first.Accepted+first.Existing) {
			s.t.Errorf("a backfill gave %v, then %v", first, again)
		}
	}
}

func (s *sim) retry() {
	for _, run := range s.list("unsuccessful", 20) {
		if j := s.job(run.Job); job.State(run.State).Terminal() && run.Parent == "" && j.there {
			again, err := s.c.runs.RetryRun(s.t.Context(), &apiv1.RetryRunRequest{Id: run.Id})
			if s.ok("retry", err) {
				s.acked[again.Id] = ""
			}
			return
		}
	}
}

func (s *sim) job(name string) *simJob {
	return s.jobs[slices.IndexFunc(s.jobs, func(j *simJob) bool { return j.def.Name == name })]
}

// changeInput changes the parameters of a job close to its planned time. A run has the
// parameters that were valid at its planned time.
func (s *sim) changeInput() {
	if j := s.scheduled(); j != nil {
		s.approach(j)
		j.def.Input = fmt.Sprint("of ", time.Now().UnixMilli())
		j.def.Priority = int32(s.r.IntN(21) - 10)
		s.apply(j)
	}
}

func (s *sim) deleteOrMake() {
	j := pick(s.r, s.jobs...)
	switch {
	case j.fixed:
	case j.there:
		s.approach(j)
		time.Sleep(time.Millisecond) // as in pause
		_, err := s.c.jobs.DeleteJob(s.t.Context(), &apiv1.DeleteJobRequest{Name: j.def.Name, Force: true})
		if s.ok("delete", err) {
			j.there, j.remade = false, true
			s.finish(j)
		}
	default:
		overlap := j.def.Overlap
		j.def = s.definition(j.def.Name)
		j.def.Overlap = overlap // runs of the deleted job may still be live
		s.apply(j)
	}
}

func (s *sim) changeCalendar() {
	s.calendar.Dates = pick(s.r, []string{"1999-12-24"}, []string{"2000-01-01"})
	s.putCalendar()
}

func (s *sim) putCalendar() {
	time.Sleep(time.Millisecond) // so that earlier operations have an earlier millisecond
	_, err := apiv1.NewCalendarsClient(s.c.conn).PutCalendar(s.t.Context(), &apiv1.PutCalendarRequest{Calendar: s.calendar})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, j := range s.jobs {
		if len(j.def.Schedule.GetExclude()) > 0 && j.there && !j.paused {
			s.finish(j)
			s.begin(j)
		}
	}
}

// look records the ends of runs. An end never changes.
func (s *sim) look() {
	for _, run := range s.list("", 200) {
		if job.State(run.State).Terminal() && s.ended[run.Id] == nil {
			s.ended[run.Id] = run
		}
	}
}

// settle lets all runs end.
func (s *sim) settle() {
	for _, m := range s.machines {
		if m.heal(); m.stop == nil {
			m.start()
		}
	}
	for _, j := range s.jobs {
		if j.there && j.def.Schedule != nil && !j.paused {
			s.goesOn(j)
			s.pause(j)
		}
	}
	time.Sleep(30 * time.Minute)
}

// goesOn checks that a delay schedule that is not over has a next time or a live run.
func (s *sim) goesOn(j *simJob) {
	if j.def.Schedule.Delay == "" || j.def.Schedule.MaxRuns > 0 || j.def.Schedule.Until != "" {
		return
	}
	got, err := s.c.jobs.GetJob(s.t.Context(), &apiv1.GetJobRequest{Name: j.def.Name})
	if err != nil {
		s.t.Fatal(err)
	}
	if got.NextAt == nil && got.Stats.Live == 0 {
		s.t.Errorf("the delay schedule of %s has come to a stop", j.def.Name)
	}
}
