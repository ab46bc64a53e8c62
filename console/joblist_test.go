package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// askedJobs returns the last request for jobs.
func askedJobs(f *fakeAPI) (last *apiv1.ListJobsRequest, calls int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.asked {
		if r, ok := m.(*apiv1.ListJobsRequest); ok {
			last, calls = r, calls+1
		}
	}
	f.asked = nil
	return last, calls
}

// TestJobFilters: the query of the page is the request of the API, and every link keeps it.
func TestJobFilters(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f).signIn(t)
	for query, want := range map[string]string{
		"q=rep":                   "report",
		"paused=yes":              "report",
		"paused=no&failing=yes":   "totals",
		"label=team%3Dbilling":    "totals",
		"module=totals&paused=no": "by-hand totals",
		"schedule=every":          "sweep",
		"owner=money":             "",
		"prefix=tot":              "totals",
	} {
		_, body := s.do(t, "GET", "/apps/default/jobs?"+query, nil)
		checkPage(t, body)
		if leads := strings.Contains(body, `href="/apps/default/bulk/jobs?`); leads != (want != "") {
			t.Errorf("%s: the list leads to a change of all its jobs: %v", query, leads)
		}
		var got []string
		for _, name := range []string{"by-hand", "report", "sweep", "totals"} {
			if strings.Contains(body, `id="job-`+name+`"`) {
				got = append(got, name)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
		if want == "" && !strings.Contains(body, "No job of this app matches.") {
			t.Errorf("%s does not say that no job matches", query)
		}
	}
	_, body := s.do(t, "GET", "/apps/default/jobs?q=o&owner=&schedule=cron&sort=next_time", nil)
	r, _ := askedJobs(f)
	if r.Contains != "o" || r.Schedule != "cron" || r.Order != "next_time" || r.Paused != nil || r.Failing {
		t.Errorf("asked %v", r)
	}
	for _, part := range []string{
		`href="/apps/default/jobs?q=o&amp;schedule=cron"`,
		`aria-sort="ascending"><a href="/apps/default/jobs?q=o&amp;schedule=cron&amp;sort=next_time"`, `value="cron" selected`,
	} {
		if !strings.Contains(body, part) {
			t.Errorf("the page does not hold %s", part)
		}
	}
	for _, lang := range []string{"en", "zh"} {
		resp, body := s.do(t, "GET", "/apps/default/jobs?label=team", nil, "Accept-Language", lang)
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "KEY=VALUE") || !strings.Contains(body, `value="team"`) {
			t.Errorf("%s: a label without a value: %s", lang, resp.Status)
		}
		checkPage(t, body)
	}
	f.unsorted = "this app has more than 100000 jobs"
	resp, body := s.do(t, "GET", "/apps/default/jobs?q=o&sort=last_run", nil)
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, f.unsorted) || !strings.Contains(body, `<a href="/apps/default/jobs?q=o">List them by name</a>`) {
		t.Errorf("a refused order: %s\n%s", resp.Status, body)
	}
}

// TestJobPages goes through the pages of a list and of a search with rare matches, which costs a
// bounded time for each page.
func TestJobPages(t *testing.T) {
	f := newFake().populate()
	f.jobs = nil
	for i := range 120 {
		f.jobs = append(f.jobs, &apiv1.Job{App: "default", Name: fmt.Sprintf("job-%03d", i), Stats: &apiv1.JobStats{Live: 1, Succeeded: 20, Failed: 3}})
	}
	s := newSite(t, f).signIn(t)
	var names []string
	path := "/apps/default/jobs?q=job"
	for range 4 {
		_, body := s.do(t, "GET", path, nil)
		for _, j := range f.jobs {
			if strings.Contains(body, `id="`+"job-"+j.Name+`"`) {
				names = append(names, j.Name)
			}
		}
		_, rest, ok := strings.Cut(body, `">Next page</a>`)
		if !ok {
			break
		}
		if strings.Contains(path, "page=") != strings.Contains(rest+body, "First page") {
			t.Errorf("%s: first page", path)
		}
		before := body[:len(body)-len(rest)-len(`">Next page</a>`)]
		path = strings.ReplaceAll(before[strings.LastIndex(before, `href="`)+len(`href="`):], "&amp;", "&")
	}
	if len(names) != 120 || !slices.IsSorted(names) {
		t.Errorf("%d jobs on the pages", len(names))
	}
	if _, body := s.do(t, "GET", "/apps/default/jobs", nil); !strings.Contains(body, "Jobs on this page: 50. Runs: 50 live, 1\u202f000 succeeded, 150 unsuccessful.") {
		t.Error("the page lacks its totals")
	}

	f.examined = 1
	_, _ = askedJobs(f)
	req := &apiv1.ListJobsRequest{App: "default", Contains: "job-119", PageSize: pageSize}
	ctx := s.c.withToken(mustRequest(t), goodToken)
	jobs, next, err := s.c.findJobs(ctx, req, time.Time{})
	if _, calls := askedJobs(f); err != nil || len(jobs) != 0 || next == "" || calls != 1 {
		t.Errorf("a search without time: %d jobs, next %q, %d calls, %v", len(jobs), next, calls, err)
	}
	jobs, next, err = s.c.findJobs(ctx, &apiv1.ListJobsRequest{App: "default", Contains: "job-119", PageSize: pageSize}, time.Now().Add(time.Minute))
	if _, calls := askedJobs(f); err != nil || len(jobs) != 1 || next != "" || calls != 120 {
		t.Errorf("a search with time: %d jobs, next %q, %d calls, %v", len(jobs), next, calls, err)
	}
	f.endless, f.examined = true, 0 // no page is full, and none is the last one
	for _, lang := range []string{"en", "zh"} {
		_, body := s.do(t, "GET", "/apps/default/jobs?q=none", nil, "Accept-Language", lang)
		if want := map[string]string{"en": ">Continue</a>", "zh": ">继续</a>"}[lang]; !strings.Contains(body, want) || strings.Contains(body, "No job of this app matches.") {
			t.Errorf("a search that goes on lacks %s", want)
		}
		checkPage(t, body)
	}
}

// TestJobColumns: a form without script chooses the columns, and runs are read only for columns that
// show them.
func TestJobColumns(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f).signIn(t)
	runs := func() (n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, m := range f.asked {
			if r, ok := m.(*apiv1.ListRunsRequest); ok {
				if n++; r.State != "ended" || r.PageSize != stripRuns {
					t.Errorf("asked %v", r)
				}
			}
		}
		f.asked = nil
		return n
	}
	_, body := s.do(t, "GET", "/apps/default/jobs", nil)
	if n := runs(); n != 2 || !strings.Contains(body, `class="mark s-timed_out" href="/apps/default/runs/01MORE00000000000000000002" title="Timed out · `) {
		t.Errorf("%d strips were read, want those of totals and report", n)
	}
	choice := url.Values{"next": {"/apps/default/jobs?q=o"}, "columns": {"", "owner", "labels", "last", "module", "evil"}}
	resp, _ := s.do(t, "POST", "/preferences", strings.NewReader(choice.Encode()), "Content-Type", "application/x-www-form-urlencoded", "Sec-Fetch-Site", "same-origin")
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/apps/default/jobs?q=o" {
		t.Fatalf("%s to %s", resp.Status, resp.Header.Get("Location"))
	}
	_, body = s.do(t, "GET", "/apps/default/jobs", nil)
	if n := runs(); n != 0 {
		t.Errorf("%d calls for runs that no column shows", n)
	}
	for _, want := range []string{"<th role=\"columnheader\">Owner</th>", "team=billing", `value="owner" checked`, "sort=last_run", `class="state s-paused"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not hold %s", want)
		}
	}
	for _, not := range []string{`class="strip"`, ">p95</th>", "evil</th>"} {
		if strings.Contains(body, not) {
			t.Errorf("the page holds %s", not)
		}
	}
	checkPage(t, body)
}

// TestStripsAreBounded: a page does not wait for a slow history, and says so.
func TestStripsAreBounded(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f).signIn(t)
	ctx := s.c.withToken(mustRequest(t), goodToken)
	strips := s.c.strips(ctx, "default", f.jobs[:4], time.Minute)
	if !strips[0].Read || len(strips[0].Runs) != 11 || !strips[3].Read || len(strips[3].Runs) != 0 || !strips[0].Runs[0].PlannedAt.AsTime().Before(strips[0].Runs[1].PlannedAt.AsTime()) {
		t.Errorf("%v", strips)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if strips := s.c.strips(over, "default", f.jobs[:4], time.Minute); strips[0].Read || !strips[3].Read {
		t.Errorf("strips without time: %v", strips)
	}
	f.denied = "runs.read"
	for lang, want := range map[string]string{"en": "not read", "zh": "未读取"} {
		if _, body := s.do(t, "GET", "/apps/default/jobs", nil, "Accept-Language", lang); !strings.Contains(body, want) {
			t.Errorf("the page does not say %q of strips that it could not read", want)
		}
	}
}

func TestStripFigures(t *testing.T) {
	begin := time.Now()
	run := func(state string, took time.Duration) *apiv1.Run {
		r := &apiv1.Run{State: state, StartedAt: timestamppb.New(begin), FinishedAt: timestamppb.New(begin.Add(took))}
		if took < 0 {
			r.StartedAt = nil
		}
		return r
	}
	var twenty []*apiv1.Run
	for i := range 20 {
		twenty = append(twenty, run("succeeded", time.Duration(20-i)*time.Second))
	}
	for name, tc := range map[string]struct {
		runs []*apiv1.Run
		rate string
		p95  time.Duration
	}{
		"none":    {nil, "–", -1},
		"skipped": {[]*apiv1.Run{run("skipped", -1)}, "–", -1},
		"one":     {[]*apiv1.Run{run("failed", 3*time.Second), run("skipped", -1)}, "0 %", 3 * time.Second},
		"missed":  {[]*apiv1.Run{run("missed", -1), run("succeeded", time.Second), run("succeeded", 2*time.Second)}, "66.6 %", 2 * time.Second},
		"twenty":  {twenty, "100 %", 19 * time.Second},
	} {
		s := strip{tc.runs, true}
		if rate := percent(s.Succeeded(), s.Counted()); rate != tc.rate || s.P95() != tc.p95 {
			t.Errorf("%s: %s, %v; want %s, %v", name, rate, s.P95(), tc.rate, tc.p95)
		}
	}
}
