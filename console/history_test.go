package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

var revised = time.Date(2026, 3, 8, 6, 0, 0, 0, time.UTC)

// populateRevisions gives the job totals 23 revisions, and the history of the job former, which
// is deleted. The oldest revisions of the job sweep are no longer kept.
func (f *fakeAPI) populateRevisions() {
	f.revisions = map[string][]*apiv1.Revision{}
	for n := range 23 {
		j := job.Definition(f.job("totals"))
		j.Timeout = fmt.Sprintf("%ds", 8+n)
		r := &apiv1.Revision{Author: "admin", Cause: "cli", Job: j}
		switch n {
		case 0:
			r.Cause = "a/program"
		case 20:
			r.Note, j.Description = "for the <new> module "+evil, "Totals the orders "+strings.Repeat("of the day ", 40)
		case 21:
			r.Rollback, r.Cause = 3, "console"
		case 22:
			for i := range 15 {
				j.Labels[fmt.Sprintf("label-%02d", i)] = evil
			}
		}
		f.addRevision("totals", r)
	}
	f.addRevision("former", &apiv1.Revision{Author: "admin", Cause: "sdk", Job: &apiv1.Job{App: "default", Name: "former", Handler: &apiv1.Handler{Module: "totals@1"}}})
	f.addRevision("former", &apiv1.Revision{Author: "admin", Deleted: true})
	f.addRevision("sweep", &apiv1.Revision{Author: "server", Job: job.Definition(f.job("sweep"))})
	f.addRevision("sweep", &apiv1.Revision{Author: "server", Job: job.Definition(f.job("sweep"))})
	f.revisions["sweep"] = f.revisions["sweep"][:1]
}

// addRevision adds the next revision of a job.
func (f *fakeAPI) addRevision(name string, r *apiv1.Revision) {
	r.App, r.Kind, r.Name, r.Number = "default", job.KindJob, name, int64(len(f.revisions[name])+1)
	r.At = timestamppb.New(revised.Add(time.Duration(r.Number) * time.Hour))
	f.revisions[name] = append([]*apiv1.Revision{r}, f.revisions[name]...)
}

// record adds the revision that an accepted definition makes, with the attribution of its call.
func (f *fakeAPI) record(ctx context.Context, j *apiv1.Job) {
	md, _ := metadata.FromIncomingContext(ctx)
	header := func(name string) string {
		text, err := url.PathUnescape(strings.Join(md.Get(name), ""))
		if err != nil {
			return err.Error()
		}
		return text
	}
	r := &apiv1.Revision{Author: "admin", Cause: header("wheelwork-cause"), Note: header("wheelwork-note"), Job: proto.CloneOf(j)}
	r.Rollback, _ = strconv.ParseInt(header("wheelwork-rollback"), 10, 64)
	if old := f.revisions[j.Name]; len(old) > 0 && old[0].Deleted {
		f.revisions[j.Name] = nil
	}
	f.addRevision(j.Name, r)
}

func (f *fakeAPI) ListRevisions(_ context.Context, r *apiv1.ListRevisionsRequest) (*apiv1.ListRevisionsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.revisions[r.Name]
	if all == nil && f.job(r.Name) == nil || r.Kind != job.KindJob {
		return nil, status.Errorf(codes.NotFound, "there is no %s %s, and no revision of one", r.Kind, r.Name)
	}
	from, _ := strconv.Atoi(r.PageToken)
	until := min(len(all), from+int(r.PageSize))
	out := &apiv1.ListRevisionsResponse{}
	for _, x := range all[from:until] {
		x = proto.CloneOf(x)
		x.Job = nil
		out.Revisions = append(out.Revisions, x)
	}
	if until < len(all) {
		out.NextPageToken = strconv.Itoa(until)
	}
	return out, nil
}

func (f *fakeAPI) GetRevision(_ context.Context, r *apiv1.GetRevisionRequest) (*apiv1.Revision, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.revisions[r.Name]
	i := slices.IndexFunc(all, func(x *apiv1.Revision) bool { return x.Number == r.Number })
	if i < 0 {
		return nil, status.Errorf(codes.NotFound, "job %s has no revision %d", r.Name, r.Number)
	}
	return proto.CloneOf(all[i]), nil
}

// item returns the part of a page of the history about one revision.
func item(t *testing.T, body string, number int) string {
	t.Helper()
	_, rest, ok := strings.Cut(body, fmt.Sprintf(`id="r%d"`, number))
	if !ok {
		t.Fatalf("revision %d is not on the page", number)
	}
	text, _, _ := strings.Cut(rest, "</li>")
	return text
}

func TestHistory(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	const page = "/apps/default/jobs/totals/history"
	_, body := s.do(t, "GET", page, nil, "Cookie", "wheelwork_zone=Asia/Shanghai")
	for number, wants := range map[int][]string{
		23: {"updated", "6 more fields changed", "command line"},
		22: {"rolled back to 3", "admin · console", "<del>28s</del>", "<ins>29s</ins>", "2026-03-09 12:00:00.000 CST", page + "/22/rollback", "compare?from=22&amp;to=23", "compare?from=21&amp;to=22"},
		21: {"for the &lt;new&gt; module", ">description<", "…</ins>"},
		4:  {"<del>10s</del>", "<ins>11s</ins>"}, // the revision before is on the next page
	} {
		for _, want := range wants {
			if text := item(t, body, number); !strings.Contains(text, want) {
				t.Errorf("revision %d lacks %s:\n%s", number, want, text)
			}
		}
	}
	if strings.Contains(item(t, body, 23), "/rollback") || strings.Contains(body, `id="r3"`) {
		t.Error("the newest revision has a roll-back, or the page has more than 20")
	}
	_, body = s.do(t, "GET", page+"?page=20", nil)
	if text := item(t, body, 1); !strings.Contains(text, "created") || !strings.Contains(text, "a/program") || !strings.Contains(text, "handler.module") || !strings.Contains(text, "more fields are set") || !strings.Contains(text, `compare?from=1"`) {
		t.Errorf("the first revision: %s", text)
	}
	if _, body = s.do(t, "GET", "/apps/default/jobs/sweep/history", nil); !strings.Contains(body, "The revision before is no longer kept") {
		t.Error("the changes of the oldest revision are not unknown")
	}
	if resp, _ := s.do(t, "GET", "/apps/default/jobs/none/history", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the history of no job: %s", resp.Status)
	}
}

// TestJobPageFetchesNoRevision: the page of a job that refreshes itself does without them.
func TestJobPageFetchesNoRevision(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	_, body := s.do(t, "GET", "/apps/default/jobs/totals", nil)
	if !strings.Contains(body, `href="/apps/default/jobs/totals/history"`) {
		t.Error("the page has no link to the history")
	}
	for _, m := range s.fake.asked {
		if strings.Contains(fmt.Sprintf("%T", m), "Revision") {
			t.Errorf("it asks for %T", m)
		}
	}
}

func TestCompareRevisions(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for query, want := range map[string]string{
		"from=3&to=5":   "<del>10s</del>",
		"from=5&to=3":   "<ins>10s</ins>",
		"from=5":        "Revision 5 compared with 23",
		"from=5&to=5":   "No field differs.",
		"from=x":        "is not the number of a revision",
		"from=0&to=2":   "is not the number of a revision",
		"":              "is not the number of a revision",
		"from=3&to=400": "no revision 400",
	} {
		_, body := s.do(t, "GET", "/apps/default/jobs/totals/history/compare?"+query, nil)
		if !strings.Contains(body, want) {
			t.Errorf("%q: the page does not hold %s", query, want)
		}
		checkPage(t, body)
	}
}

// etagIn returns the etag of the form on a page.
func etagIn(t *testing.T, body string) string {
	t.Helper()
	_, rest, ok := strings.Cut(body, `name="etag" value="`)
	if !ok {
		t.Fatal("the page has no form")
	}
	etag, _, _ := strings.Cut(rest, `"`)
	return etag
}

func TestRollBack(t *testing.T) {
	const history, page = "/apps/default/jobs/totals/history", "/apps/default/jobs/totals/history/3/rollback"
	s := newSite(t, newFake().populate()).signIn(t)
	_, body := s.do(t, "GET", page, nil)
	checkPage(t, body)
	if !strings.Contains(body, "<del>30s</del>") || !strings.Contains(body, "<ins>10s</ins>") || s.fake.job("totals").Timeout != "30s" {
		t.Errorf("the question does not show what the roll-back changes, or made it:\n%s", body)
	}
	const note = "100 % of the runs\nwere late: é 任务"
	resp, _ := s.post(t, page, url.Values{"etag": {etagIn(t, body)}, "note": {strings.ReplaceAll(note, "\n", "\r\n")}}.Encode())
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != history {
		t.Fatalf("roll-back: %s to %q", resp.Status, resp.Header.Get("Location"))
	}
	if r := s.fake.revisions["totals"][0]; s.fake.job("totals").Timeout != "10s" || r.Number != 24 || r.Rollback != 3 || r.Cause != "console" || r.Note != note {
		t.Errorf("timeout %s after %v", s.fake.job("totals").Timeout, r)
	}
	if _, body = s.do(t, "GET", history, nil); !strings.Contains(body, "The job is what it was after revision 3.") {
		t.Error("the history does not say that the roll-back is done")
	}
	if _, body = s.do(t, "GET", page, nil); strings.Contains(body, `class="primary"`) || !strings.Contains(body, "nothing to roll back") {
		t.Error("a roll-back that changes nothing is offered")
	}
}

func TestRollBackIsRefused(t *testing.T) {
	const page = "/apps/default/jobs/totals/history/3/rollback"
	for name, c := range map[string]struct {
		change func(*fakeAPI)
		form   url.Values
		code   int
		want   string
		button bool
	}{
		"the job has changed":  {func(*fakeAPI) {}, url.Values{"etag": {"old"}, "note": {"why"}}, http.StatusConflict, "The job was changed meanwhile", true},
		"the job exists":       {func(*fakeAPI) {}, url.Values{"etag": {""}}, http.StatusConflict, "The job was changed meanwhile", true},
		"a long note":          {func(*fakeAPI) {}, url.Values{"etag": {"abc"}, "note": {strings.Repeat("é", 251)}}, http.StatusUnprocessableEntity, "The note has 502 bytes", true},
		"not valid any longer": {func(f *fakeAPI) { f.revisions["totals"][20].Job.Handler = nil }, url.Values{"etag": {"abc"}}, http.StatusUnprocessableEntity, "the job has no handler", false},
		"a deletion":           {func(f *fakeAPI) { r := f.revisions["totals"][20]; r.Job, r.Deleted = nil, true }, url.Values{"etag": {"abc"}}, http.StatusBadRequest, "is the deletion", false},
		"no permission":        {func(f *fakeAPI) { f.denied = permission(apiv1.Jobs_ApplyJob_FullMethodName) }, url.Values{"etag": {"abc"}}, http.StatusForbidden, "lacks the permission", false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake().populate()
			s := newSite(t, f).signIn(t)
			c.change(f)
			resp, body := s.post(t, page, c.form.Encode())
			if resp.StatusCode != c.code || !strings.Contains(body, c.want) || strings.Contains(body, `<button class="primary">Roll back`) != c.button {
				t.Errorf("%s, want %d with %q, the button: %v\n%s", resp.Status, c.code, c.want, c.button, body)
			}
			checkPage(t, body)
			if c.form.Get("note") == "why" && !strings.Contains(body, ">why</textarea>") {
				t.Error("the note is lost")
			}
			if len(f.revisions["totals"]) != 23 {
				t.Error("there is another revision")
			}
			if c.button {
				return
			}
			if _, body := s.do(t, "GET", page, nil); strings.Contains(body, `<button class="primary">`) || !strings.Contains(body, c.want) {
				t.Error("the question has the button, or no reason")
			}
		})
	}
	s := newSite(t, newFake().populate()).signIn(t)
	if resp, _ := s.post(t, page, "etag=abc", "Sec-Fetch-Site", "cross-site"); resp.StatusCode != http.StatusForbidden || len(s.fake.revisions["totals"]) != 23 {
		t.Errorf("from another site: %s", resp.Status)
	}
}

func TestRestoreDeletedJob(t *testing.T) {
	const history, page = "/apps/default/jobs/former/history", "/apps/default/jobs/former/history/1/rollback"
	s := newSite(t, newFake().populate()).signIn(t)
	resp, body := s.do(t, "GET", "/apps/default/jobs/former", nil)
	if resp.StatusCode != http.StatusNotFound || !strings.Contains(body, `href="`+history+`"`) {
		t.Errorf("the page of the deleted job: %s, without a link to its history", resp.Status)
	}
	if _, body := s.do(t, "GET", "/apps/default/jobs/none", nil); strings.Contains(body, "/history") {
		t.Error("the page of a job that never was leads to a history")
	}
	_, body = s.do(t, "GET", history, nil)
	if !strings.Contains(body, "This job is deleted.") || !strings.Contains(body, `href="`+page+`"`) || strings.Contains(body, `href="/apps/default/jobs/former"`) {
		t.Errorf("the history does not offer to restore the job:\n%s", body)
	}
	_, body = s.do(t, "GET", page, nil)
	checkPage(t, body)
	resp, _ = s.post(t, page, url.Values{"etag": {etagIn(t, body)}}.Encode())
	if r := s.fake.revisions["former"][0]; resp.StatusCode != http.StatusSeeOther || s.fake.job("former").GetHandler().GetModule() != "totals@1" || r.Rollback != 1 || r.Number != 1 {
		t.Errorf("restore: %s, the newest revision is %v", resp.Status, r)
	}
	s.post(t, "/apps/default/jobs/former/delete", "")
	if _, body := s.do(t, "GET", "/apps/default/jobs", nil); !strings.Contains(body, "The job former is deleted.") || !strings.Contains(body, `href="`+history+`"`) {
		t.Error("the list of jobs does not lead to the history of the deleted job")
	}
}
