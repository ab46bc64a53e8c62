package console

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestPauseOfAJob pauses a job with a reason and an end, in the zone of the form, and changes the pause.
func TestPauseOfAJob(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	const job = "/apps/default/jobs/totals"
	until := time.Now().Add(48 * time.Hour).UTC().Truncate(time.Minute)
	resp, _ := s.post(t, job+"/pause", "zone=UTC&reason=the+database+moves&until="+until.Format("2006-01-02T15:04"))
	p := s.fake.job("totals").Pause
	if resp.StatusCode != http.StatusSeeOther || p.GetReason() != "the database moves" || !p.GetUntil().AsTime().Equal(until) {
		t.Fatalf("%s: %v", resp.Status, p)
	}
	_, body := s.do(t, "GET", job, nil)
	checkPage(t, body)
	for _, want := range []string{"The job is paused.", "the database moves", "Change the pause…", job + `/resume"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
	if _, body := s.do(t, "GET", job+"/pause", nil); !strings.Contains(body, `value="the database moves"`) || !strings.Contains(body, until.Format("2006-01-02T15:04")) {
		t.Error("the form does not hold the pause")
	}
	resp, body = s.post(t, job+"/pause", "zone=UTC&reason=kept&until=2001-01-01T00:00")
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "until has passed") || !strings.Contains(body, `value="kept"`) {
		t.Errorf("an end that has passed: %s", resp.Status)
	}
}

// TestBulkPauseWithEnd: the change of many jobs has the end of the pause.
func TestBulkPauseWithEnd(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	_, body := s.do(t, "GET", "/apps/default/bulk/jobs?action=jobs.pause&until-zone=UTC&until=2099-12-24T18:00&note=moves", nil)
	checkPage(t, body)
	if !strings.Contains(body, `value="2099-12-24T18:00"`) || !strings.Contains(body, "2099") || !strings.Contains(body, "It ends") {
		t.Error("the preview does not show the end")
	}
	if resp, _ := s.do(t, "GET", "/apps/default/bulk/jobs?action=jobs.pause&until=odd", nil); resp.StatusCode == http.StatusOK {
		t.Errorf("an end that is no time: %s", resp.Status)
	}
}
