package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// jobTabPages returns the addresses of the tabs of jobs, with texts that each must contain.
func jobTabPages() map[string][]string {
	return map[string][]string{
		"/apps/default/jobs/totals?tab=definition":        {"handler:", "module: totals@1", `?tab=definition" aria-current="page"`, "Run now"},
		"/apps/default/jobs/totals?tab=nothing":           {"Recent runs"},
		"/apps/default/jobs/totals?tab=schedule":          {"Show the next 50 planned times, in Asia/Shanghai", "CST", "Past planned times", "Fired", "Skipped", "Missed", "/runs/" + failedRun, "Since "},
		"/apps/default/jobs/totals?tab=schedule&only=odd": {"Skipped", "Missed"},
		"/apps/default/jobs/by-hand?tab=schedule":         {"Only when triggered", "Nothing to show."},
		"/apps/default/jobs/report?tab=schedule":          {"If it were resumed now"},
		"/apps/default/jobs/totals?tab=calendar":          {"The last 12 months by day", "Runs: 10, not successful: 5", `class="h-bad h-`, "Days with failures"},
		"/apps/default/jobs/by-hand?tab=calendar":         {"Runs: 0, not successful: 0"},
		"/apps/default/jobs/totals?tab=duration":          {"How long it takes", "1.23s", "p99", "Last 300"},
		"/apps/default/jobs/totals?tab=duration&runs=300": {`runs=300" aria-current="true"`},
		"/apps/default/jobs/totals?tab=access":            {"Who may do what", "/access/bindings", "see inputs and outputs", "change and delete"},
		"/apps/default/jobs/by-hand?tab=duration":         {"No run of this job has succeeded."},
	}
}

// TestJobTabsKeepTheControls: each tab has the controls of the job.
func TestJobTabsKeepTheControls(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, tab := range (jobView{}).Tabs() {
		_, body := s.do(t, "GET", "/apps/default/jobs/totals?tab="+tab, nil)
		for _, want := range []string{"/run", "/skip"} {
			if !strings.Contains(body, `action="/apps/default/jobs/totals`+want+`"`) {
				t.Errorf("%s: no form for %s", tab, want)
			}
		}
		for _, want := range []string{"/pause", "/backfill", "/history", "/edit", "/delete"} {
			if !strings.Contains(body, `href="/apps/default/jobs/totals`+want+`"`) {
				t.Errorf("%s: no link to %s", tab, want)
			}
		}
		if n := strings.Count(body, `aria-current="page"`); n != 2 { // and the section
			t.Errorf("%s: %d current links", tab, n)
		}
	}
}

func TestClockChangesAreMarked(t *testing.T) {
	j := &apiv1.Job{App: "default", Name: "j", Schedule: &apiv1.Schedule{Cron: "0 30 2 * * *", Zone: "Europe/Berlin"}}
	now := time.Date(2026, 10, 23, 10, 0, 0, 0, time.UTC)
	p, err := schedule.NewPlan(j, nil)
	if err != nil {
		t.Fatal(err)
	}
	times, _ := p.Between(now, now.AddDate(0, 0, 5), 10)
	var marks []string
	for _, c := range markChanges(times, now) {
		if c.From != "" {
			marks = append(marks, c.At.Format("01-02 15:04")+" "+c.From+" "+c.To)
		}
	}
	if want := []string{"10-26 02:30 +02:00 +01:00"}; !slices.Equal(marks, want) {
		t.Errorf("marks %q, want %q", marks, want)
	}
	if first := markChanges(times[3:], now); first[0].From != "+02:00" {
		t.Error("a change between now and the first time is not marked")
	}
}

// TestTicks tells fired, delayed, skipped, missed and waiting planned times apart, and finds those that
// have no run.
func TestTicks(t *testing.T) {
	now := time.Date(2026, 5, 2, 12, 0, 30, 0, time.UTC)
	at := func(h, m int, late time.Duration) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 5, 2, h, m, 0, 0, time.UTC).Add(late))
	}
	run := func(h int, state string, accepted, started time.Duration) *apiv1.Run {
		return &apiv1.Run{Id: fmt.Sprint(h), State: state, PlannedAt: at(h, 0, 0), AcceptedAt: at(h, 0, accepted), StartedAt: at(h, 0, started), FinishedAt: at(h, 1, started)}
	}
	skipped, missed, waiting, cancelled, quick := run(3, "skipped", 0, 0), run(4, "missed", time.Hour, 0), run(12, "queued", 0, 0), run(8, "cancelled", 0, 0), run(9, "succeeded", 0, 0)
	missed.Covers = 1 // and that of 05:00
	for _, r := range []*apiv1.Run{skipped, missed, waiting, cancelled, quick} {
		r.StartedAt = nil
	}
	waiting.FinishedAt = nil
	quick.Attempts = []*apiv1.Attempt{{DispatchedAt: at(9, 0, time.Second)}}
	runs := []*apiv1.Run{waiting, quick, cancelled, run(6, "failed", 40*time.Second, time.Minute), missed, skipped, run(2, "succeeded", 0, 4*time.Second)}
	plan, err := schedule.NewPlan(&apiv1.Job{App: "a", Name: "j", Schedule: &apiv1.Schedule{Cron: "0 0 * * * *"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	told := func(changed time.Time) string {
		var b []string
		for _, x := range ticksOf(runs, plan, changed, time.Date(2026, 5, 2, 0, 30, 0, 0, time.UTC), now) {
			b = append(b, fmt.Sprint(x.At.Format("15 "), x.Kind, " ", x.Count, " ", x.Late, " ", x.Before))
		}
		return strings.Join(b, "\n")
	}
	const want = `12 waiting 0 30s 0s
09 norun 2 0s 0s
09 fired 0 1s 0s
08 cancelled 0 0s 0s
06 norun 1 0s 0s
06 delayed 0 1m0s 40s
04 missed 0 0s 0s
03 skipped 0 0s 0s
02 fired 0 4s 0s
00 norun 1 0s 0s`
	if got := told(time.Time{}); got != want {
		t.Errorf("told:\n%s\nwant:\n%s", got, want)
	}
	// Before the change of the definition, nothing is said about times without a run.
	if got := told(time.Date(2026, 5, 2, 9, 30, 0, 0, time.UTC)); strings.Count(got, "norun") != 1 || !strings.Contains(got, "09 norun 2") {
		t.Errorf("told:\n%s", got)
	}
}

func TestPercentiles(t *testing.T) {
	begin := time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC)
	var runs []*apiv1.Run // the newest first
	for i := 100; i >= 1; i-- {
		from := begin.Add(time.Duration(i) * time.Minute)
		runs = append(runs, &apiv1.Run{PlannedAt: timestamppb.New(from), StartedAt: timestamppb.New(from), FinishedAt: timestamppb.New(from.Add(time.Duration(i) * time.Second))})
	}
	runs = append(runs, &apiv1.Run{PlannedAt: timestamppb.New(begin)}) // its start is not known
	v := newDurationView(runs, 300)
	if a := v.All; a.Runs != 100 || a.P50 != 50*time.Second || a.P95 != 95*time.Second || a.P99 != 99*time.Second || a.Max != 100*time.Second || !a.From.Before(a.To) {
		t.Errorf("%+v", a)
	}
	if g := v.Groups; len(g) != durationGroups || g[0].Runs != 5 || g[0].P50 != 3*time.Second || g[19].Max != 100*time.Second || !strings.HasPrefix(v.P50, "M0 ") || !strings.Contains(v.P99, "L1000 2") {
		t.Errorf("%+v\n%s", g, v.P99)
	}
	if v := newDurationView(runs[:1], 100); len(v.Groups) != 1 || !strings.HasSuffix(v.P95, "h1000") {
		t.Errorf("one run: %q", v.P95)
	}
	if v := newDurationView(nil, 100); len(v.Groups) != 0 {
		t.Error("groups without runs")
	}
}

// oneRunEach answers ListRuns with n runs, one each hour before a time.
type oneRunEach struct {
	apiv1.RunsClient
	n     int
	now   time.Time
	calls int
}

func (o *oneRunEach) ListRuns(_ context.Context, r *apiv1.ListRunsRequest, _ ...grpc.CallOption) (*apiv1.ListRunsResponse, error) {
	o.calls++
	from := 0
	if r.PageToken != "" {
		if _, err := fmt.Sscan(r.PageToken, &from); err != nil {
			return nil, err
		}
	}
	resp := &apiv1.ListRunsResponse{}
	for i := from; i < min(o.n, from+int(r.PageSize)); i++ {
		state := "succeeded"
		switch i % 24 {
		case 3:
			state = "failed"
		case 4:
			state = "skipped"
		}
		resp.Runs = append(resp.Runs, &apiv1.Run{State: state, PlannedAt: timestamppb.New(o.now.Add(-time.Duration(i) * time.Hour))})
	}
	if from+int(r.PageSize) < o.n {
		resp.NextPageToken = fmt.Sprint(from + int(r.PageSize))
	}
	return resp, nil
}

// TestHeatMap counts runs by day, no further back than its first day and no more than its bound.
func TestHeatMap(t *testing.T) {
	now := time.Date(2026, 5, 2, 23, 30, 0, 0, time.UTC)
	sum := func(n int) (*heatView, *oneRunEach) {
		runs := &oneRunEach{n: n, now: now}
		h := newHeat(&console{runs: runs}, "default", "j", now)
		for {
			done, err := h.step(t.Context(), time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if done {
				return h.view(true), runs
			}
		}
	}
	v, runs := sum(heatDays*24 + 500)
	if v.Runs != heatDays*23 || v.Failures != heatDays || v.Cut || runs.calls > heatDays*24/pageSize+1 || len(v.Months) != 13 {
		t.Errorf("%d runs, %d failures, %d months, %d calls", v.Runs, v.Failures, len(v.Months), runs.calls)
	}
	if m := v.Months[0]; m.Month.Format("2006-01") != "2026-05" || m.Runs != 46 || m.Skipped != 2 || len(m.Bad) != 2 || m.Bad[0].Failures != 1 || m.Bad[0].Runs != 23 {
		t.Errorf("%+v", m)
	}
	if n := strings.Count(v.Bad[0], "M"); n != heatDays || v.Empty != "" || len(v.Labels) != 12 {
		t.Errorf("%d days with failures", n)
	}
	if v, _ = sum(0); strings.Count(v.Empty, "M") != heatDays || len(v.Months) != 0 {
		t.Error("a map without runs")
	}
}

func TestHeatMapIsBounded(t *testing.T) {
	runs := &oneRunEach{n: 10 * heatRuns, now: time.Now()}
	h := newHeat(&console{runs: runs}, "default", "j", time.Now())
	h.looked = heatRuns - pageSize
	if done, err := h.step(t.Context(), time.Now()); !done || err != nil || !h.cut || !h.view(true).Cut {
		t.Errorf("it goes on after %d runs: %v", h.looked, err)
	}
}

func TestHeatMapAsksEachTime(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	const path = "/apps/default/jobs/totals?tab=calendar"
	s.do(t, "GET", path, nil)
	s.fake.mu.Lock()
	s.fake.denied = "runs.read"
	s.fake.mu.Unlock()
	if resp, _ := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusForbidden {
		t.Errorf("without the permission: %s", resp.Status)
	}
}
