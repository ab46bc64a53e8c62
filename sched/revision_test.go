package sched_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestRevisions checks that each change of a definition is one revision, in every way to change
// one, that a revision shows the definition as it was, and that a change of parameters fires no
// job: before and after restarts.
func TestRevisions(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		revs := func() apiv1.RevisionsClient { return apiv1.NewRevisionsClient(c.conn) }
		list := func(kind, name string) []*apiv1.Revision {
			t.Helper()
			r, err := revs().ListRevisions(ctx, &apiv1.ListRevisionsRequest{Kind: kind, Name: name})
			if err != nil {
				t.Fatal(err)
			}
			return r.Revisions
		}
		get := func(kind, name string, n int64) *apiv1.Revision {
			t.Helper()
			r, err := revs().GetRevision(ctx, &apiv1.GetRevisionRequest{Kind: kind, Name: name, Number: n})
			if err != nil {
				t.Fatalf("revision %d: %v", n, err)
			}
			return r
		}
		restart := func() {
			w.stopServer()
			w.start()
			c.reconnect(w)
		}
		c.pushVersions("1", "2")
		inputs := []string{"a", "b", "", "a longer input than the others"}
		for i, input := range inputs {
			if err := c.applyTo(fmt.Sprintf("n@%d", 1+i%2), &apiv1.Job{Name: "j", Input: input, Schedule: &apiv1.Schedule{Cron: "0 0 1 1 *"}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if i == 1 {
				restart()
			}
		}
		if err := c.applyTo("n@2", &apiv1.Job{Name: "j", Input: inputs[3], Schedule: &apiv1.Schedule{Cron: "0 0 1 1 *"}}); err != nil { // changes nothing
			t.Fatal(err)
		}
		if _, err := c.jobs.PauseJob(ctx, &apiv1.PauseJobRequest{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			all := list("job", "j")
			if len(all) != 5 {
				t.Fatalf("%d revisions, want 5: %v", len(all), all)
			}
			for i, r := range all {
				if r.Number != int64(5-i) || r.Deleted || r.At == nil || r.Author == "" {
					t.Errorf("revision %d of the list: %v", i, r)
				}
			}
			for i, input := range inputs {
				j := get("job", "j", int64(i+1)).Job
				if j.GetInput() != input || j.GetHandler().GetModule() != fmt.Sprintf("n@%d", 1+i%2) || j.GetPaused() || j.Revision != int64(i+1) {
					t.Errorf("revision %d: %v", i+1, j)
				}
			}
			if !get("job", "j", 5).Job.GetPaused() {
				t.Error("the pause is no revision")
			}
			restart()
		}
		if _, err := revs().GetRevision(ctx, &apiv1.GetRevisionRequest{Kind: "job", Name: "j", Number: 6}); status.Code(err) != codes.NotFound {
			t.Errorf("a revision that does not exist: %v", err)
		}
		if _, err := revs().ListRevisions(ctx, &apiv1.ListRevisionsRequest{Kind: "job", Name: "none"}); status.Code(err) != codes.NotFound {
			t.Errorf("a job that does not exist: %v", err)
		}
		if _, err := revs().ListRevisions(ctx, &apiv1.ListRevisionsRequest{Kind: "run", Name: "j"}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("another kind: %v", err)
		}
		if runs := c.all("j", ""); len(runs) != 0 {
			t.Errorf("the changes fired %d runs", len(runs))
		}
		if _, err := c.jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if all := list("job", "j"); len(all) != 6 || !all[0].Deleted || all[0].Number != 6 {
				t.Errorf("after the deletion: %v", all)
			}
			if r := get("job", "j", 6); r.Job != nil || !r.Deleted {
				t.Errorf("the deletion: %v", r)
			}
			if j := get("job", "j", 2).Job; j.GetInput() != "b" {
				t.Errorf("revision 2 of the deleted job: %v", j)
			}
			restart()
		}
		if err := c.applyTo("n@1", &apiv1.Job{Name: "j", Input: "new"}); err != nil {
			t.Fatal(err)
		}
		if all := list("job", "j"); len(all) != 1 || all[0].Number != 1 {
			t.Errorf("the next job of that name has the revisions %v, want its own one", all)
		}

		// The other kinds.
		calendars, apps := apiv1.NewCalendarsClient(c.conn), apiv1.NewAppsClient(c.conn)
		for _, day := range []string{"mon", "tue", "tue"} {
			if _, err := calendars.PutCalendar(ctx, &apiv1.PutCalendarRequest{Calendar: &apiv1.Calendar{Name: "cal", Days: []string{day}}}); err != nil {
				t.Fatal(err)
			}
		}
		c.alias(&apiv1.SetAliasRequest{Version: "1"})
		c.alias(&apiv1.SetAliasRequest{Version: "2"})
		c.grant(&apiv1.Grants{Enqueue: []string{"j"}})
		c.grant(&apiv1.Grants{Enqueue: []string{"*"}})
		for _, text := range []string{"one", "two"} {
			if _, err := apps.PutApp(ctx, &apiv1.PutAppRequest{App: &apiv1.App{Name: "default", Description: text}}); err != nil {
				t.Fatal(err)
			}
		}
		alias := c.getAlias()
		for range 2 {
			for kind, name := range map[string]string{"calendar": "cal", "alias": alias.Module + "@" + alias.Name, "grants": "m", "app": "default"} {
				if all := list(kind, name); len(all) != 2 || all[0].Number != 2 {
					t.Errorf("%s %s: %v, want 2 revisions", kind, name, all)
				}
				first, second := get(kind, name, 1), get(kind, name, 2)
				if kind == "calendar" && (first.Calendar.GetDays()[0] != "mon" || second.Calendar.GetDays()[0] != "tue") ||
					kind == "alias" && (first.Alias.GetVersion() != "1" || second.Alias.GetVersion() != "2") ||
					kind == "grants" && (first.Grants.GetGrants().GetEnqueue()[0] != "j" || second.Grants.GetGrants().GetEnqueue()[0] != "*") ||
					kind == "app" && (first.Settings.GetDescription() != "one" || second.Settings.GetDescription() != "two") {
					t.Errorf("%s: %v, %v", kind, first, second)
				}
			}
			restart()
		}
		if _, err := apiv1.NewCalendarsClient(c.conn).DeleteCalendar(ctx, &apiv1.DeleteCalendarRequest{Name: "cal"}); err != nil {
			t.Fatal(err)
		}
		if all := list("calendar", "cal"); len(all) != 3 || !all[0].Deleted {
			t.Errorf("a deleted calendar: %v", all)
		}
	})
}

// TestCalendarMakesNoRevisionOfJobs checks that a changed calendar, which plans the jobs anew that name it,
// makes no revision of them: their definitions are the same.
func TestCalendarMakesNoRevisionOfJobs(t *testing.T) {
	simulate(t, func(t *testing.T, _ *world, c *client) {
		c.pushVersions("1")
		j := on("n@1", "j")
		j.Schedule = &apiv1.Schedule{Cron: "0 0 * * *", Exclude: []string{"holidays"}}
		j.Labels = map[string]string{"a": "1", "b": "2", "c": "3", "d": "4"}
		for i := range 5 {
			calendar := &apiv1.Calendar{Name: "holidays", Dates: []string{fmt.Sprintf("2000-01-%02d", i+2)}}
			if _, err := c.applySet(put(calendar), put(j)); err != nil {
				t.Fatal(err)
			}
		}
		list, err := apiv1.NewRevisionsClient(c.conn).ListRevisions(t.Context(), &apiv1.ListRevisionsRequest{Kind: "job", Name: "j"})
		if err != nil || len(list.Revisions) != 1 {
			t.Errorf("%v, %v, want one revision", list, err)
		}
		events, err := apiv1.NewAuditClient(c.conn).ListAuditEvents(t.Context(), &apiv1.ListAuditEventsRequest{Code: "job."})
		if err != nil || len(events.Events) != 1 {
			t.Errorf("%v, %v, want one event of the job", events, err)
		}
	})
}
