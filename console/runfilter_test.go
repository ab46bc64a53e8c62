package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func filterPages() map[string][]string {
	return map[string][]string{
		"/apps/default/runs?trigger=manual":                               {liveRun, `value="manual" selected`, `<details class="fold" open="">`, "bulk/runs?trigger=manual"},
		"/apps/default/runs?module=report&state=succeeded":                {doneRun, "That is the whole selection."},
		"/apps/default/runs?error=AMOUNT":                                 {failedRun, `aria-current="true">24 hours`, `name="range" value="day"`},
		"/apps/default/runs?from=2026-03-08T12:00&to=2026-03-08T13:00:01": {"No run matches", `value="2026-03-08T12:00:00"`, `value="2026-03-08T13:00:01"`, "from=2026-03-08T12%3A00%3A00Z&amp;to=2026-03-08T13%3A00%3A01Z"},
	}
}

// filterOf reads the filter of an address for a visitor in a zone.
func filterOf(t *testing.T, query, zone, preset string, now time.Time) (runFilter, error) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/apps/default/runs?"+query, nil)
	r.AddCookie(&http.Cookie{Name: zoneCookie, Value: zone})
	return readRunFilter(&visit{r: r}, preset, now)
}

func TestTimeRanges(t *testing.T) {
	now := time.Date(2026, 3, 8, 12, 30, 0, 0, time.UTC) // 20:30 in Shanghai
	for _, tt := range []struct{ query, zone, preset, since, until string }{
		{"", "UTC", "", "", ""},
		{"", "UTC", lastDay, "2026-03-07T12:30:00Z", ""},
		{"range=hour", "Asia/Shanghai", lastDay, "2026-03-08T11:30:00Z", ""},
		{"range=week", "UTC", "", "2026-03-01T12:30:00Z", ""},
		{"range=night", "UTC", "", "2026-03-07T20:00:00Z", "2026-03-08T08:00:00Z"},
		{"range=night", "Asia/Shanghai", "", "2026-03-07T12:00:00Z", "2026-03-08T00:00:00Z"},
		{"from=2026-03-08T12:00", "Asia/Shanghai", lastDay, "2026-03-08T04:00:00Z", ""},
		{"from=2026-03-08T12:00&zone=America/New_York", "Asia/Shanghai", "", "2026-03-08T16:00:00Z", ""},
		{"from=2026-03-08T12:00:00%2B01:00&zone=America/New_York", "UTC", "", "2026-03-08T11:00:00Z", ""},
		{"range=hour&to=2026-03-01T00:00", "UTC", "", "", "2026-03-01T00:00:00Z"},
		{"error=x", "UTC", "", "2026-03-07T12:30:00Z", ""},
		{"outvalue=x%3Dy", "UTC", "", "2026-03-07T12:30:00Z", ""},
	} {
		f, err := filterOf(t, tt.query, tt.zone, tt.preset, now)
		if err != nil || absolute(f.since) != tt.since || absolute(f.until) != tt.until {
			t.Errorf("%q in %s is from %s to %s, want %s to %s: %v", tt.query, tt.zone, absolute(f.since), absolute(f.until), tt.since, tt.until, err)
		}
	}
	for _, query := range []string{"error=x&to=2026-03-01T00:00", "input=x&to=2026-03-01T00:00", "invalue=x", "outvalue=%3Dx", "range=year", "from=noon", "from=2026-03-08T12:00&zone=Nowhere", "label=%3Dx"} {
		if _, err := filterOf(t, query, "UTC", "", now); err == nil {
			t.Errorf("%q is no filter, but was taken", query)
		}
	}
}

// TestFilterLinks: an address that a filter makes reads as the same filter, and a fixed one keeps its
// times.
func TestFilterLinks(t *testing.T) {
	now := time.Date(2026, 3, 8, 12, 30, 0, 0, time.UTC)
	query := "state=failed&job=a+b&host=h&parent=p&trigger=manual&label=team%3Dbilling&label=tier%3D1&module=m%401&input=a%26b&invalue=x%3Dy%3Dz&output=%3C&outvalue=n%3D&error=50%25&kind=k&"
	for _, times := range []string{"range=day", "from=2026-03-08T10:00&to=2026-03-08T11:00&zone=Asia/Tokyo"} {
		f, err := filterOf(t, query+times, "Asia/Shanghai", "", now)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range []string{f.Link("/x"), f.Fixed("/x"), f.Link("/x", "page", "p~q")} {
			u, err := url.Parse(link)
			if err != nil {
				t.Fatal(err)
			}
			again, err := filterOf(t, u.RawQuery, "UTC", "", now)
			if err != nil || !proto.Equal(again.request("a"), f.request("a")) || again.Module != f.Module || again.Error != f.Error || again.Kind != f.Kind {
				t.Errorf("%s: %+v, want %+v: %v", link, again, f, err)
			}
		}
		if strings.Contains(f.Fixed("/x"), "range=") {
			t.Errorf("the times of %s change", f.Fixed("/x"))
		}
	}
}

func TestRunsAreFiltered(t *testing.T) {
	f := newFake().populate()
	f.run(doneRun).Labels = map[string]string{"team": "billing", "tier": "1"}
	f.run(doneRun).Input = `{"country":"DE"}`
	s := newSite(t, f).signIn(t)
	ids := regexp.MustCompile(`id="run-([^"]*)"`)
	for query, want := range map[string]string{
		"label=team%3Dbilling":                  doneRun,
		"label=team%3Dbilling,tier%3D2":         "",
		"module=report":                         doneRun,
		"module=report%402.1":                   doneRun,
		"module=report%402":                     "",
		"module=rep":                            "",
		"error=Not+a+NUMBER":                    failedRun,
		"trigger=manual&state=live":             liveRun,
		"input=12345678901234567890":            liveRun,
		"input=12345678901234567890&module=x":   "",
		"output=no+run+has+this":                "",
		"invalue=country%3DDE":                  doneRun,
		"invalue=country%3DD":                   "",
		"kind=" + fingerprint(f.run(failedRun)): failedRun,
	} {
		_, body := s.do(t, "GET", "/apps/default/runs?"+query, nil)
		var got []string
		for _, m := range ids.FindAllStringSubmatch(body, -1) {
			got = append(got, m[1])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
		whole := !strings.HasPrefix(query, "kind=") // a change would have other runs
		if strings.Contains(body, "Change all of these…") != whole || strings.Contains(body, "/apps/default/bulk/runs?") != whole {
			t.Errorf("%s: leads to a change of all runs: %v, want %v", query, !whole, whole)
		}
	}
	if _, body := s.do(t, "GET", "/apps/default/runs", nil); strings.Contains(body, "bulk/runs") {
		t.Error("without a filter the list leads to a change of all runs")
	}
	resp, body := s.do(t, "GET", "/apps/default/runs?label=team", nil)
	if resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "is not a label") {
		t.Errorf("a wrong label: %s", resp.Status)
	}
	checkPage(t, body)
}

// TestEmptyPageOfRunsContinues: a page of the history may have no run that matches and still not be
// the last one.
func TestEmptyPageOfRunsContinues(t *testing.T) {
	f := newFake()
	f.failures(1, "charge", "exit", "broken %d", time.Minute)
	s := newSite(t, f).signIn(t)
	_, body := s.do(t, "GET", "/apps/default/runs?job=other", nil)
	if !strings.Contains(body, "No run matches") || !strings.Contains(body, "page=more") {
		t.Error("the page has no way on")
	}
}

// TestSearchOfPayloads: a page of a search says how far it has come, leads on to the rest, and offers a change of
// the same runs. Visitors without payload.read have no fields for it.
func TestSearchOfPayloads(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f).signIn(t)
	_, body := s.do(t, "GET", "/apps/default/runs?input=1234567&invalue=a%3Db&state=failed", nil)
	for _, want := range []string{`name="input" type="search" value="1234567"`, `name="invalue" type="search" value="a=b"`, "Read: ", `aria-current="true">24 hours`, "bulk/runs?from=", "input=1234567"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	checkPage(t, body)
	resp, _ := s.post(t, "/apps/default/bulk/runs?input=1234567&outvalue=c%3Dd&invalue=a%3Db&from=2026-03-08T12:00:00Z&action=runs.retry", url.Values{"key": {"k"}}.Encode())
	f.mu.Lock()
	q := f.operations[0].Request.Runs
	f.mu.Unlock()
	if resp.StatusCode != http.StatusSeeOther || q.GetInput() != "1234567" || q.GetInputValues()["a"] != "b" || q.GetOutputValues()["c"] != "d" || q.GetSince() == nil {
		t.Errorf("%s: a change of %v", resp.Status, q)
	}
	f.may = []string{"jobs.read", "runs.read"}
	if _, body = newSite(t, f).signIn(t).do(t, "GET", "/apps/default/runs", nil); strings.Contains(body, `name="input"`) || strings.Contains(body, `name="outvalue"`) || !strings.Contains(body, `name="error"`) {
		t.Error("a visitor who may not read payloads has fields for them")
	}
}

// TestSearchIsCounted: of a search the page says what the API has read, and asks for no more runs than it shows.
func TestSearchIsCounted(t *testing.T) {
	h := newHistory(100, 3)
	at := h.runs[2].FinishedAt
	list := func(ctx context.Context, req *apiv1.ListRunsRequest, _ ...grpc.CallOption) (*apiv1.ListRunsResponse, error) {
		if req.PageSize != 7 {
			t.Errorf("a page has %d runs", req.PageSize)
		}
		page, err := h.list(ctx, req)
		page.Examined, page.ExaminedNewest, page.ExaminedOldest = 500, h.runs[0].FinishedAt, at
		return page, err
	}
	done, err := runScan{list: list, page: 7, end: time.Now()}.each(t.Context(), &apiv1.ListRunsRequest{Input: "x"}, "", func(*apiv1.Run) bool { return true })
	if err != nil || done.Read != 500 || done.Newest != h.runs[0].FinishedAt || done.Oldest != at || done.Next != "3" {
		t.Errorf("%+v: %v", done, err)
	}
}
