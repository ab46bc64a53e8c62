package console

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// operationPages returns the addresses of the pages of operations, with texts that each must contain.
func operationPages() map[string][]string {
	return map[string][]string{
		"/operations": {
			`href="/apps/default/operations/op_live"`, "Edit jobs", `<progress max="100" value="25"`, "5\u202f000 of 20\u202f000", `action="/apps/shop/operations/op_start/cancel"`, "50 examined",
			"Retry runs", "jobs.of_a_newer_version", "Cancelled",
		},
		"/apps/default/operations/op_live":   {"prefix=t&lt;script&gt;", "label team=billing", "owner=team-b", "remove_label=old", "4\u202f000", "the etag differs", "The first 2 of 100.", "new team", "Stop", `hx-get="/apps/default/operations/op_live"`},
		"/apps/default/operations/op_done":   {"state=failed", "trigger=manual", "since=2026-11-01T08:00:00Z", "module=totals@1", "33 of 33", `href="/apps/default/runs"`, "12s"},
		"/apps/default/operations/op_failed": {"is no longer accepted", "all jobs of the app"},
		"/apps/default/operations/op_new":    {"bob"},
		"/apps/default/operations/op_search": {"Search runs", "error=no such table", `id="found-` + failedRun, "The newest 1 of 700.", "Do not match", "1\u202f300"},

		"/apps/default/bulk/jobs":                                                                                {"all jobs of the app", `value="jobs.pause"`, `value="jobs.delete"`, "Preview"},
		"/apps/default/bulk/jobs?prefix=totals&owner=ada&page=3":                                                 {"prefix=totals", "owner=ada", `<input type="hidden" name="prefix" value="totals">`, `href="/apps/default/jobs?owner=ada&amp;prefix=totals"`},
		"/apps/default/bulk/jobs?label=team=billing+tier=1":                                                      {"label team=billing", "label tier=1"},
		"/apps/default/bulk/jobs?action=jobs.pause":                                                              {"Jobs: ", "by-hand", "Pause jobs (", "Their schedules stop.", `name="key"`},
		"/apps/default/bulk/jobs?prefix=totals&action=jobs.delete":                                               {"Jobs: 1", `<button class="danger">Delete jobs (1)`},
		"/apps/default/bulk/jobs?prefix=none&action=jobs.run":                                                    {"Nothing matches"},
		"/apps/default/bulk/jobs?action=jobs.set&set-owner=b&note=n%22":                                          {"owner=b", `value="n&#34;"`, "Each definition gets a new revision."},
		"/apps/default/bulk/runs?state=failed&job=totals&from=2026-11-01T08:00:00Z&trigger=manual&module=totals": {"state=failed", "job=totals", "since=2026-11-01T08:00:00Z", "trigger=manual", "module=totals", `value="runs.retry"`},
		"/apps/default/bulk/runs?state=live&action=runs.cancel":                                                  {"Runs: ", "The first 2 are shown.", liveRun, `<button class="danger">Cancel runs (`},
		"/apps/default/bulk/runs?error=no+such&action=runs.search":                                               {"error=no such", `<button class="primary">Search runs</button>`, "Nothing changes."},
		"/apps/default/bulk/runs?job=totals&label=team=money+and+more,tier=1&to=2026-11-01T08:00:00%2B01:00":     {"label team=money and more", "label tier=1", "until=2026-11-01T07:00:00Z"},
	}
}

// TestBulkChoices: the form offers what the state of the runs and the permissions of the visitor allow.
func TestBulkChoices(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path, want := range map[string]string{
		"/apps/default/bulk/runs":                    "runs.cancel runs.retry runs.purge runs.delete runs.search",
		"/apps/default/bulk/runs?state=live":         "runs.cancel runs.search",
		"/apps/default/bulk/runs?state=running":      "runs.cancel runs.search",
		"/apps/default/bulk/runs?state=unsuccessful": "runs.retry runs.purge runs.delete runs.search",
		"/apps/default/bulk/runs?state=failed":       "runs.retry runs.purge runs.delete runs.search",
	} {
		_, body := s.do(t, "GET", path, nil)
		if got := kindsIn(body); got != want {
			t.Errorf("%s offers %s, want %s", path, got, want)
		}
	}
	s.fake.may = []string{"jobs.read", "runs.read", "jobs.trigger"}
	s2 := newSite(t, s.fake).signIn(t)
	if _, body := s2.do(t, "GET", "/apps/default/bulk/jobs", nil); kindsIn(body) != "jobs.run" {
		t.Errorf("with jobs.trigger alone: %s", kindsIn(body))
	}
	if _, body := s2.do(t, "GET", "/apps/default/bulk/runs", nil); kindsIn(body) != "" || !strings.Contains(body, "You may not change these") {
		t.Errorf("without jobs.operate: %s", kindsIn(body))
	}
	if _, body := s2.do(t, "GET", "/operations", nil); strings.Contains(body, "/cancel\"") {
		t.Error("a visitor without jobs.operate is offered to stop operations")
	}
}

func kindsIn(body string) string {
	var kinds []string
	for _, m := range regexp.MustCompile(`name="action" value="([^"]+)"`).FindAllStringSubmatch(body, -1) {
		kinds = append(kinds, m[1])
	}
	return strings.Join(kinds, " ")
}

// TestBulk previews and starts an operation, sends the form twice, and stops the operation.
func TestBulk(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	const address = "/apps/default/bulk/jobs?action=jobs.set&prefix=totals&label=team%3Dbilling&set-owner=team-b&set-labels=a%3D1%2Cb%3D2&set-remove=old%2C+older&set-timeout=5m&set-zone=Asia%2FTokyo&set-alert-events=failed,+recovered&set-alert-channels=ops&set-no-alerts=yes&note=why"
	_, body := s.do(t, "GET", address, nil)
	key := regexp.MustCompile(`name="key" value="([^"]+)"`).FindStringSubmatch(body)
	action := regexp.MustCompile(`method="post" action="(/apps/default/bulk[^"]+)"`).FindStringSubmatch(body)
	if key == nil || action == nil {
		t.Fatalf("no form that starts the operation:\n%s", body)
	}
	if !strings.Contains(body, "alert=event=failed event=recovered channel=ops") {
		t.Errorf("the preview does not show the alert:\n%s", body)
	}
	resp, _ := s.post(t, html.UnescapeString(action[1]), url.Values{"key": {key[1]}}.Encode())
	to := resp.Header.Get("Location")
	if resp.StatusCode != http.StatusSeeOther || !strings.HasPrefix(to, "/apps/default/operations/op_") {
		t.Fatalf("%s to %q", resp.Status, to)
	}
	var started []*apiv1.StartOperationRequest
	for _, m := range s.fake.asked {
		if q, ok := m.(*apiv1.StartOperationRequest); ok {
			started = append(started, q)
		}
	}
	want := &apiv1.StartOperationRequest{
		App: "default", Kind: "jobs.set", Note: "why", IdempotencyKey: key[1],
		Jobs: &apiv1.ListJobsRequest{Prefix: "totals", Labels: map[string]string{"team": "billing"}},
		Set: &apiv1.JobChanges{
			Owner: proto.String("team-b"), Labels: map[string]string{"a": "1", "b": "2"}, RemoveLabels: []string{"old", "older"},
			Timeout: proto.String("5m"), Zone: proto.String("Asia/Tokyo"),
			Alerts: []*apiv1.JobAlert{{Events: []string{"failed", "recovered"}, Channels: []string{"ops"}}}, RemoveAlerts: true,
		},
	}
	if len(started) != 2 || !proto.Equal(started[1], want) {
		t.Errorf("the console called %v\nwant %v", started, want)
	}
	if want.IdempotencyKey, want.DryRun = "", true; !proto.Equal(started[0], want) {
		t.Errorf("the preview was %v\nwant %v", started[0], want)
	}
	if _, body := s.do(t, "GET", to, nil); !strings.Contains(body, "Edit jobs") || !strings.Contains(body, to+"/cancel") {
		t.Error("the page of the operation does not show it")
	}
	if resp, _ := s.post(t, to+"/cancel", ""); resp.Header.Get("Location") != to {
		t.Errorf("after the stop: %s", resp.Status)
	}
	if _, body := s.do(t, "GET", to, nil); !strings.Contains(body, "Stopped by") || strings.Contains(body, "/cancel\"") || strings.Contains(body, "hx-get") {
		t.Error("a stopped operation is shown as if it went on")
	}
}

// TestBulkRefused: an address that this page does not understand changes nothing, because it could select
// fewer objects than the page knows.
func TestBulkRefused(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for path, want := range map[string]string{
		"/apps/default/bulk/runs?kind=amount&action=runs.retry":    "cannot select by this",
		"/apps/default/bulk/runs?kind=ab&action=runs.retry":        "cannot select by this",
		"/apps/default/bulk/runs?range=day&action=runs.retry":      "cannot select by this",
		"/apps/default/bulk/runs?from=yesterday&action=runs.retry": "is not a time",
		"/apps/default/bulk/jobs?state=odd&action=jobs.pause":      "cannot select by this",
		"/apps/default/bulk/jobs?label=team&action=jobs.pause":     "write it as name=value",
		"/apps/default/bulk/jobs?action=runs.cancel":               "there is no change",
		"/apps/default/bulk/jobs?action=jobs.set":                  "set is empty",
		"/apps/default/bulk/jobs?action=jobs.set&set-labels=x":     "write it as name=value",
	} {
		for _, method := range []string{"GET", "POST"} {
			before := len(s.fake.operations)
			resp, body := s.do(t, method, path, nil)
			if method == "POST" {
				resp, body = s.post(t, path, "key=k")
			}
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, want) || len(s.fake.operations) != before {
				t.Errorf("%s %s: %s, %d operations more", method, path, resp.Status, len(s.fake.operations)-before)
			}
		}
	}
	for range 4 {
		s.post(t, "/apps/default/bulk/jobs?action=jobs.pause", "key=k")
	}
	if resp, body := s.post(t, "/apps/default/bulk/jobs?action=jobs.pause", "key=k"); resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(body, "which is the limit") {
		t.Errorf("beyond the limit: %s", resp.Status)
	}
	if resp, _ := s.post(t, "/apps/default/bulk/jobs?action=jobs.pause", "key=k", "Sec-Fetch-Site", "cross-site"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("a form of another site: %s", resp.Status)
	}
}
