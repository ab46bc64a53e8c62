package console

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestNoticesAreShownOnce makes changes and visits the page afterwards: it confirms the
// change, its reload does not, and no address makes it.
func TestNoticesAreShownOnce(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	for _, c := range []struct{ path, form, want string }{
		{"/dead-letters/1/edit", url.Values{"text": {`{"command":{"trigger":{"app":"default","name":"fixed"}}}`}}.Encode(), "The body is replaced"},
		{"/dead-letters/2/replay", "", "Replayed: 1"},
		{"/apps/default/calendars/weekend/delete", "", "Deleted: weekend"},
		{"/apps/default/jobs/totals/backfill", "do=run&from=2026-03-01T00:00&until=2026-03-01T03:00", "New runs: 3."},
	} {
		resp, _ := s.post(t, c.path, c.form)
		to := resp.Header.Get("Location")
		if _, body := s.do(t, "GET", to, nil, "HX-Request", "true"); strings.Contains(body, c.want) {
			t.Errorf("a refresh takes the notice of %s", to)
		}
		if _, body := s.do(t, "GET", "/cluster", nil); strings.Contains(body, c.want) {
			t.Errorf("another page shows the notice of %s", to)
		}
		_, body := s.do(t, "GET", to, nil)
		if !strings.Contains(body, c.want) {
			t.Errorf("%s does not hold %q", to, c.want)
		}
		checkPage(t, body)
		if _, body := s.do(t, "GET", to, nil); strings.Contains(body, c.want) {
			t.Errorf("a reload of %s repeats %q", to, c.want)
		}
	}
	for _, path := range []string{"/apps/default/modules?pushed=anything&result=created", "/dead-letters?count=27&done=replayed", "/apps/default/calendars?deleted=anything"} {
		if _, body := s.do(t, "GET", path, nil); strings.Contains(body, `class="alert ok"`) {
			t.Errorf("%s makes a notice", path)
		}
	}
}

func TestNoticesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n notices
		for i := range 3 * maxNotices {
			n.put("/x", i)
		}
		if got := n.take("/x"); len(n.all) != maxNotices-1 || got != 2*maxNotices {
			t.Errorf("%d are left after %v", len(n.all), got)
		}
		time.Sleep(noticeLife + time.Second)
		if got := n.take("/x"); got != nil {
			t.Errorf("an old notice is shown: %v", got)
		}
	})
}
