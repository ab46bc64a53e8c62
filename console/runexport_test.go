package console

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func TestExportAsCSV(t *testing.T) {
	f := newFake()
	at := timestamppb.New(time.Date(2026, 3, 8, 12, 0, 0, 5e6, time.UTC))
	f.runs = []*apiv1.Run{{
		Id: failedRun, App: "default", Job: "-1+cmd|' /C calc'!A0", State: "failed", StartedAt: at, FinishedAt: timestamppb.New(at.AsTime().Add(1500 * time.Millisecond)),
		Error: "=HYPERLINK(\"x\")\nsecond, line", Host: "@host", Module: "＝1", Labels: map[string]string{"b": "2", "a": "=1"}, TriggeredBy: "\tada", Code: "exit",
	}, {Id: doneRun, App: "default", Job: "report", State: "succeeded", FinishedAt: at}}
	s := newSite(t, f).signIn(t)
	resp, body := s.do(t, "GET", "/apps/default/runs/export?format=csv", nil)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/csv; charset=utf-8" || !strings.Contains(resp.Header.Get("Content-Disposition"), "default-runs.csv") {
		t.Fatalf("%s, %v", resp.Status, resp.Header)
	}
	rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	if err != nil || len(rows) != 3 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	got := map[string]string{}
	for i, name := range rows[0] {
		got[name] = rows[1][i]
	}
	for name, want := range map[string]string{
		"id": failedRun, "job": "'-1+cmd|' /C calc'!A0", "started_at": "2026-03-08T12:00:00.005Z", "planned_at": "", "seconds": "1.500", "code": "exit",
		"error": "'=HYPERLINK(\"x\")\nsecond, line", "host": "'@host", "module": "'＝1", "labels": "a==1,b=2", "triggered_by": "'\tada", "job_revision": "0",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if _, body := s.do(t, "GET", "/apps/default/runs/export?format=csv&error=hyperlink&range=week", nil); strings.Contains(body, doneRun) {
		t.Error("the file has a run that the filter leaves out")
	}
}

func TestExportAsJSONL(t *testing.T) {
	f := newFake().populate()
	f.unreadable = 2
	s := newSite(t, f).signIn(t)
	_, body := s.do(t, "GET", "/apps/default/runs/export?format=jsonl&state=failed&job=totals", nil)
	lines := strings.Split(strings.TrimSpace(body), "\n")
	var run apiv1.Run
	if err := protojson.Unmarshal([]byte(lines[0]), &run); err != nil || run.Id != failedRun || run.Error != f.run(failedRun).Error {
		t.Fatalf("%v: %v", &run, err)
	}
	var end struct {
		Cut  bool
		Rows int
		Why  string
	}
	if err := json.Unmarshal([]byte(lines[1]), &end); err != nil || len(lines) != 2 || !end.Cut || end.Rows != 1 || !strings.Contains(end.Why, "2 damaged blocks") {
		t.Errorf("%d lines, the last is %s: %v", len(lines), lines[1], err)
	}
}

func TestExportIsRefused(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f).signIn(t)
	for query, want := range map[string]string{"format=xlsx": "there is no format", "format=csv&label=x": "is not a label"} {
		if resp, body := s.do(t, "GET", "/apps/default/runs/export?"+query, nil); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, want) {
			t.Errorf("%s: %s", query, resp.Status)
		}
	}
	f.mu.Lock()
	f.denied = "runs.read"
	f.mu.Unlock()
	if resp, _ := s.do(t, "GET", "/apps/default/runs/export?format=csv", nil); resp.StatusCode != http.StatusForbidden {
		t.Errorf("without the permission: %s", resp.Status)
	}
}

// TestExportSaysThatItWasCut: the last row of a file says why runs are missing, and has all cells.
func TestExportSaysThatItWasCut(t *testing.T) {
	for name, tt := range map[string]struct {
		runs, most int
		end        time.Time
		fails      bool
		rows       int
		why        string
	}{
		"all":      {runs: 10, most: 10, rows: 10, why: ""},
		"too many": {runs: 11, most: 10, rows: 10, why: "runs are missing after 10 rows: a file has at most"},
		"too long": {runs: 11, most: 100, rows: 4, end: time.Now(), why: "after 4 rows: reading took too long"},
		"fails":    {runs: 11, most: 100, rows: 8, fails: true, why: "after 8 rows: reading failed: broken"},
	} {
		h := newHistory(tt.runs, 4)
		h.damaged = 0
		var b bytes.Buffer
		to := bufio.NewWriter(&b)
		e := export{runScan: runScan{list: h.list, end: tt.end}, most: tt.most, keeps: func(*apiv1.Run) bool { return true }}
		if tt.fails {
			h.failAfter = 2
		}
		begun := 0
		if err := e.write(t.Context(), &apiv1.ListRunsRequest{}, &csvRuns{csv.NewWriter(to)}, to, func() { begun++ }); err != nil || begun != 1 {
			t.Errorf("%s: begun %d times: %v", name, begun, err)
		}
		rows, err := csv.NewReader(&b).ReadAll()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		last := rows[len(rows)-1]
		runs := len(rows) - 1
		if tt.why != "" {
			runs--
		}
		if runs != tt.rows || tt.why != "" && (last[0] != "(cut)" || !strings.Contains(strings.Join(last, "|"), tt.why)) {
			t.Errorf("%s: %d runs, want %d; the last row is %q", name, runs, tt.rows, last)
		}
	}
	h := newHistory(1, 1)
	h.failAfter = -1
	e := export{runScan: runScan{list: h.list}, most: 1, keeps: func(*apiv1.Run) bool { return true }}
	var b bytes.Buffer
	to := bufio.NewWriter(&b)
	if err := e.write(t.Context(), &apiv1.ListRunsRequest{}, jsonRuns{to}, to, func() { t.Error("the file has begun") }); !errors.Is(err, errBroken) {
		t.Errorf("an error before the first run: %v", err)
	}
}
