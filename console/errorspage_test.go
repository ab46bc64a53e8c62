package console

import (
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// totalsError is the kind of the error of failedRun.
var totalsError = fingerprint(newFake().populate().run(failedRun))

func errorPages() map[string][]string {
	return map[string][]string{
		"/apps/default/errors":               {"line ‹n›: amount is not a number", "range=day", "exit", failedRun, "bulk/runs?", "That is the whole selection."},
		"/apps/default/errors?job=report":    {"No failed run in this part"},
		"/apps/default/errors?error=nowhere": {"No failed run in this part", `value="nowhere"`},
		"/apps/default/errors?show=ignored":  {"No ignored kind of error", "Other marks", "fedcba9876543210", "the partner repairs it"},

		"/apps/default/errors/fedcba9876543210/mark?range=week":                            {"Mark a kind of error", "report", "Clear the mark", `checked=""> Ignored`, "/apps/default/errors?range=week"},
		"/apps/default/errors/" + totalsError + "/mark?run=" + failedRun + "&show=ignored": {"line ‹n›: amount is not a number", "totals", failedRun, `checked=""> Acknowledged`},
	}
}

// failures adds failed runs, the newest first and one second apart, whose messages differ in numbers.
func (f *fakeAPI) failures(n int, job, code, message string, ago time.Duration) {
	for i := range n {
		at := timestamppb.New(time.Now().Add(-ago - time.Duration(i)*time.Second))
		f.runs = append(f.runs, &apiv1.Run{
			Id: fmt.Sprintf("01%s%012d", strings.ToUpper(job), i), App: "default", Job: job, State: "failed", Trigger: "schedule", Code: code,
			Error: fmt.Sprintf(message, i), PlannedAt: at, AcceptedAt: at, StartedAt: at, FinishedAt: at,
		})
	}
}

func TestErrorsAreGrouped(t *testing.T) {
	f := newFake()
	f.failures(30, "charge", "exit", `invoice "INV-%d" is unknown`, time.Minute)
	f.failures(3, "charge", "trap", `invoice "INV-%d" is unknown`, time.Minute)
	f.failures(5, "close", "exit", `period %d is locked `+evil, 2*time.Hour)
	f.failures(9, "old", "exit", `too old: %d`, 30*time.Hour)
	f.runs = append(f.runs, &apiv1.Run{Id: "01CANCELLED", App: "default", Job: "charge", State: "cancelled", Error: "ended by request", FinishedAt: timestamppb.Now()})
	s := newSite(t, f).signIn(t)
	rows := func(path string) []string {
		_, body := s.do(t, "GET", path, nil)
		checkPage(t, body)
		var found []string
		for _, m := range regexp.MustCompile(`(?s)<tr role="row" id="error-.*?<a class="long"[^>]*>([^<]*)</a>.*?jobs/([^"]*)".*?<b>(\d+)</b>`).FindAllStringSubmatch(body, -1) {
			found = append(found, m[3]+" "+m[2]+" "+m[1])
		}
		return found
	}
	for path, want := range map[string][]string{
		"/apps/default/errors":                 {"30 charge invoice ‹text› is unknown", "5 close period ‹n› is locked", "3 charge invoice ‹text› is unknown"},
		"/apps/default/errors?range=hour":      {"30 charge", "3 charge"},
		"/apps/default/errors?range=week":      {"30 charge", "9 old too old: ‹n›", "5 close", "3 charge"},
		"/apps/default/errors?job=close":       {"5 close"},
		"/apps/default/errors?error=locked":    {"5 close"},
		"/apps/default/errors?error=INV-29%22": {"1 charge"},
	} {
		got := rows(path)
		if len(got) != len(want) {
			t.Errorf("%s: %q, want %q", path, got, want)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%s: row %d is %q, want %q", path, i, got[i], want[i])
			}
		}
	}
	_, body := s.do(t, "GET", "/apps/default/errors?range=hour", nil)
	for _, want := range []string{
		"/apps/default/runs?job=charge&amp;kind=", "range=hour&amp;state=failed",
		"Failed runs: 33, kinds of error: 2.", "/apps/default/bulk/runs?from=20", "&amp;job=charge&amp;state=failed\"",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
}

// TestErrorsContinue: a page has a bounded number of groups, and the next one has the others.
func TestErrorsContinue(t *testing.T) {
	f := newFake()
	for i := range maxKinds + 20 {
		f.failures(1, fmt.Sprintf("job%03d", i), "exit", "broken %d", time.Duration(i)*time.Second)
	}
	s := newSite(t, f).signIn(t)
	_, body := s.do(t, "GET", "/apps/default/errors", nil)
	if n := strings.Count(body, `id="error-`); n != maxKinds || !strings.Contains(body, "Older runs of the selection have not been read.") || strings.Contains(body, `id="fresh" hx-get`) {
		t.Errorf("%d groups, want %d", n, maxKinds)
	}
	next := regexp.MustCompile(`href="([^"]*page=[^"]*)"`).FindStringSubmatch(body)
	if next == nil {
		t.Fatal("the page has no way on")
	}
	_, body = s.do(t, "GET", html.UnescapeString(next[1]), nil)
	if n := strings.Count(body, `id="error-`); n != 20 || !strings.Contains(body, "That is the rest") || !strings.Contains(body, "First page") {
		t.Errorf("%d groups on the second page, want 20", n)
	}
	checkPage(t, body)
}

// TestErrorCountsContinue: each page adds its slice to those before, and a page that is fetched again has
// the same counts.
func TestErrorCountsContinue(t *testing.T) {
	var kept errorCounts
	h := newHistory(10, 4)
	for i, page := range []string{"", "4", "4", "8"} {
		counted := kept.get(page)
		if (counted == nil) != (page == "") {
			t.Fatalf("page %q has the counts %+v", page, counted)
		}
		if counted == nil {
			counted = newErrorCount()
		}
		done, err := runScan{list: h.list, end: time.Now()}.each(t.Context(), &apiv1.ListRunsRequest{}, page, counted.add)
		if err != nil {
			t.Fatal(err)
		}
		counted.after(done)
		want := []int{4, 8, 8, 10}[i]
		g := counted.sorted()[0]
		if counted.total != want || counted.Read != want || g.Count != want || g.Example != "run0" || counted.Newest.Seconds != 1e9 ||
			counted.Oldest.Seconds != 1e9-int64(want)+1 || g.First.Seconds != counted.Oldest.Seconds || g.Last.Seconds != 1e9 {
			t.Errorf("after page %q: %+v of %+v, want %d", page, g, counted.scanned, want)
		}
		kept.put(done.Next, counted)
	}
	for i := range maxErrorCounts {
		kept.put(fmt.Sprint("other", i), newErrorCount())
	}
	if len(kept.all) != maxErrorCounts || kept.get("4") != nil {
		t.Errorf("%d counts are held, want %d", len(kept.all), maxErrorCounts)
	}
}

func TestErrorsRefused(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path, want := range map[string]string{
		"/apps/default/errors?range=year":                            "there is no time range",
		"/apps/default/errors?from=monday":                           "is not a time",
		"/apps/default/errors?label=team":                            "is not a label",
		"/apps/default/errors?show=all":                              "want ignored",
		"/apps/default/errors?from=2026-01-01T00:00&zone=Nowhere/At": "Nowhere/At",
	} {
		resp, body := s.do(t, "GET", path, nil)
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %s without %q", path, resp.Status, want)
		}
		checkPage(t, body)
	}
}

// TestErrorIsMarked: a visitor acknowledges a kind of error, ignores it until a time, and undoes that. The list names
// the visitor, and folds ignored kinds away.
func TestErrorIsMarked(t *testing.T) {
	f := newFake()
	f.failures(3, "charge", "exit", `period %d is locked`, time.Minute)
	f.failures(1, "close", "exit", `no space`, time.Minute)
	s := newSite(t, f).signIn(t)
	id := fingerprint(f.runs[0])
	page := "/apps/default/errors/" + id + "/mark?run=" + f.runs[0].Id
	post := func(want int, fields ...string) string {
		t.Helper()
		form := url.Values{}
		for i := 0; i < len(fields); i += 2 {
			form.Set(fields[i], fields[i+1])
		}
		resp, body := s.post(t, page, form.Encode())
		if resp.StatusCode != want {
			t.Fatalf("%v: status %d, want %d: %s", form, resp.StatusCode, want, body)
		}
		return body
	}
	list := func(address string, holds, lacks []string) {
		t.Helper()
		_, body := s.do(t, "GET", address, nil)
		checkPage(t, body)
		for _, text := range holds {
			if !strings.Contains(body, text) {
				t.Errorf("%s lacks %q", address, text)
			}
		}
		for _, text := range lacks {
			if strings.Contains(body, text) {
				t.Errorf("%s holds %q", address, text)
			}
		}
	}
	list("/apps/default/errors", []string{"errors/" + id + "/mark", "Ignored (0)"}, []string{"Again since"})
	post(http.StatusSeeOther, "state", "acknowledged", "note", "ann asks the bank")
	list("/apps/default/errors", []string{"The error of charge is acknowledged.", "ada", "ann asks the bank"}, []string{"Again since"})
	f.failures(1, "charge", "exit", `period %d is locked`, -time.Minute)
	list("/apps/default/errors", []string{"Again since"}, nil)

	body := post(http.StatusUnprocessableEntity, "state", "ignored", "note", "kept text", "until", "2020-01-01T00:00")
	checkPage(t, body)
	if !strings.Contains(body, "kept text") || !strings.Contains(body, "until has passed") {
		t.Errorf("the refused form: %s", body)
	}
	post(http.StatusSeeOther, "state", "ignored", "until", time.Now().Add(48*time.Hour).Format("2006-01-02T15:04"))
	list("/apps/default/errors", []string{"The error of charge is ignored.", "Ignored (1)", "no space", "Failed runs: 5, kinds of error: 2."}, []string{"is locked"})
	list("/apps/default/errors?show=ignored", []string{"is locked", "until"}, []string{"no space", "Other marks"})
	list("/apps/default/errors?show=ignored&job=close", []string{"No ignored kind of error"}, []string{"is locked"})
	post(http.StatusSeeOther, "do", "clear")
	post(http.StatusSeeOther, "do", "clear") // another visitor was faster
	list("/apps/default/errors", []string{"is locked", "Ignored (0)"}, nil)
	if resp, _ := s.do(t, "GET", "/apps/default/errors/xyz/mark", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the page of no fingerprint: %d", resp.StatusCode)
	}
}
