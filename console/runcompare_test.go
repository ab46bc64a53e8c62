package console

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func runPages() map[string][]string {
	return map[string][]string{
		"/apps/default/runs/" + failedRun + "/compare":                 {"totals: this run and the last success before it", "01MORE00000000000000000000", "Differs", "error gave up"},
		"/apps/default/runs/" + failedRun + "/compare?with=" + doneRun: {"this run and another one", "report", "Input of this run", "00 01 02 ff"},
		"/apps/default/runs/" + doneRun + "/compare":                   {"No run of this job has succeeded before"},
		"/apps/default/runs/" + doneRun + "/retry":                     {"Retry a run of report with changes", "Any that fits"},
		"/apps/default/runs/" + doneRun + "/rerun":                     {"Run report with another input", "<textarea", "&lt;script&gt;"},
		"/apps/default/runs/" + failedRun + "/rerun":                   {"The input is not text"},
	}
}

func TestLastSuccessComesBefore(t *testing.T) {
	f := newFake()
	at := func(ago time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(-ago)) }
	f.runs = []*apiv1.Run{
		{Id: "01NEWER", Job: "totals", State: "succeeded", FinishedAt: at(time.Minute), Input: "b"},
		{Id: failedRun, Job: "totals", State: "failed", FinishedAt: at(2 * time.Minute), Input: "a", JobRevision: 4, Module: "totals@2", Host: "h"},
		{Id: "01OTHERJOB", Job: "report", State: "succeeded", FinishedAt: at(3 * time.Minute)},
		{Id: "01BEFORE", Job: "totals", State: "succeeded", FinishedAt: at(4 * time.Minute), Input: "a", JobRevision: 3, Module: "totals@1", Host: "h"},
		{Id: liveRun, Job: "totals", State: "running", Input: "a"},
	}
	s := newSite(t, f).signIn(t)
	_, body := s.do(t, "GET", "/apps/default/runs/"+failedRun+"/compare", nil)
	checkPage(t, body)
	for _, want := range []string{"/runs/01BEFORE", "jobs/totals/history/compare?from=3&amp;to=4", "Both had this input", "This run wrote no lines."} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
	if n := strings.Count(body, `class="differs"`); n != 3 { // state, revision, module
		t.Errorf("%d facts differ, want 3", n)
	}
	if _, body := s.do(t, "GET", "/apps/default/runs/"+liveRun+"/compare", nil); !strings.Contains(body, "/runs/01NEWER") || !strings.Contains(body, "Input of the other run") {
		t.Error("a live run is not compared with the newest success")
	}
	if resp, _ := s.do(t, "GET", "/apps/default/runs/"+failedRun+"/compare?with=none", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("compared with a run that is not there: %s", resp.Status)
	}
}

// TestLogTail: the end of a log is found in few calls, however long it is.
func TestLogTail(t *testing.T) {
	for _, n := range []int{0, 1, 19, 20, 21, 180, 2500} {
		f := newFake().populate()
		f.logs[failedRun] = nil
		for i := range n {
			f.logs[failedRun] = append(f.logs[failedRun], &apiv1.LogLine{Offset: int64(i), Level: "info", Text: fmt.Sprintf("\x1b[1;31mline %d\x1b[0m", i)})
		}
		s := newSite(t, f)
		v := &visit{ctx: s.c.withToken(mustRequest(t), goodToken)}
		tail, err := s.c.logTail(v.ctx, "default", failedRun)
		lines := strings.Split(strings.TrimSuffix(tail, "\n"), "\n")
		if n == 0 && tail == "" && err == nil {
			continue
		}
		first, last := fmt.Sprintf("info line %d", max(0, n-tailLines)), fmt.Sprintf("info line %d", n-1)
		if err != nil || len(lines) != min(n, tailLines) || lines[0] != first || lines[len(lines)-1] != last {
			t.Errorf("of %d lines: %q: %v", n, lines, err)
		}
	}
}

func mustRequest(t *testing.T) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCommands: a shell splits the commands into the words that were meant.
func TestCommands(t *testing.T) {
	for _, input := range []string{"", `{"a": "it's <b> & $HOME \"x\""}`, "two\nlines", "-x", "é 数"} {
		got := commands(&apiv1.Run{App: "shop", Job: "totals", Input: input}, "https://w.example", true)
		for line, want := range map[string][]string{
			got.CLI:  {"wheelwork", "job", "trigger", "totals", "--app", "shop", "--input", input, "--wait"},
			got.Curl: {"curl", "--fail-with-body", "-X", "POST", "https://w.example/api/v1/apps/shop/jobs/totals:trigger", "-H", "Content-Type: application/json", "-d", jsonText(input), "-H", "Authorization: Bearer tok"},
		} {
			out, err := exec.CommandContext(t.Context(), "/bin/sh", "-c", "WHEELWORK_TOKEN=tok; for w in "+line+"; do printf '%s\\0' \"$w\"; done").Output()
			if words := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); err != nil || strings.Join(words, "|") != strings.Join(want, "|") {
				t.Errorf("%s\nbecomes %q, want %q: %v", line, words, want, err)
			}
		}
	}
	for _, r := range []*apiv1.Run{{InputBytes: []byte{1}}, {Input: "@file"}, {Input: strings.Repeat("x", maxCopied+1)}, {Input: "a\x00"}} {
		if got := commands(r, "", true); !got.NoInput || strings.Contains(got.CLI, "--input") || !strings.Contains(got.Curl, "{}") {
			t.Errorf("%.40v: %+v", r, got)
		}
	}
	if got := commands(&apiv1.Run{Input: "secret"}, "", false); !got.NoInput || strings.Contains(got.CLI+got.Curl, "secret") {
		t.Errorf("without the permission: %+v", got)
	}
}

// jsonText returns the body of a call for a text without characters that need \u.
func jsonText(input string) string {
	return `{"input":"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(input) + `"}`
}

func TestRunWithEditedInput(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	resp, _ := s.post(t, "/apps/default/runs/"+doneRun+"/rerun", "input=%7B%22n%22%3A2%7D%0D%0Aend")
	run := s.fake.runs[0]
	if resp.StatusCode != http.StatusSeeOther || run.Job != "report" || run.Input != "{\"n\":2}\nend" || resp.Header.Get("Location") != "/apps/default/runs/"+run.Id {
		t.Errorf("%s: %v", resp.Status, run)
	}
	if resp, _ := s.post(t, "/apps/default/runs/none/rerun", "input=x"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("of no run: %s", resp.Status)
	}
	_, body := s.do(t, "GET", "/apps/default/runs/"+doneRun, nil)
	if !strings.Contains(body, doneRun+"/rerun") || !strings.Contains(body, "wheelwork job trigger report --input") || !strings.Contains(body, s.URL+"/api/v1/apps/default/jobs/report:trigger") {
		t.Error("the page of the run does not offer the form and the commands")
	}
	s.fake.mu.Lock()
	s.fake.runs[0].Input = "\nbegins with a line"
	s.fake.mu.Unlock()
	if _, body := s.do(t, "GET", "/apps/default/runs/"+run.Id+"/rerun", nil); !strings.Contains(body, "spellcheck=\"false\">\n\nbegins") { // browsers drop the first line break
		t.Error("the form loses the first line")
	}
}
