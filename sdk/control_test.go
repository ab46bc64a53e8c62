package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestControl tests the calls of operators against the real server.
func TestControl(t *testing.T) {
	ready := dev(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := sdk.Dial(ctx, ready.URL, sdk.Options{Token: ready.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // every answer has come
	if _, _, err := c.PushModule(ctx, sdk.Upload{Name: "greet", Version: "1", Code: greet.Module}); err != nil {
		t.Fatal(err)
	}
	apply := func(job *sdk.Job) {
		t.Helper()
		job.Handler = &sdk.Handler{Module: "greet@1"}
		if _, err := c.Apply(ctx, job); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("calendars", func(t *testing.T) {
		kept, err := c.PutCalendar(ctx, &sdk.Calendar{Name: "all", Days: []string{"mon"}, Dates: []string{"2026-12-25", "2026-12-24"}})
		if err != nil || kept.GetApp() != sdk.DefaultApp || len(kept.GetDates()) != 1 || kept.GetDates()[0] != "2026-12-24/2026-12-25" {
			t.Fatalf("put: %v, %v", kept, err)
		}
		apply(&sdk.Job{Name: "mondays", Schedule: &sdk.Schedule{Cron: "0 12 * * *", Include: []string{"all"}}})
		if err := c.DeleteCalendar(ctx, "", "all"); !errors.Is(err, sdk.ErrPrecondition) {
			t.Errorf("delete of a calendar in use: %v", err)
		}
		list, err := c.Calendars(ctx, "")
		if err != nil || len(list) != 1 || list[0].GetName() != "all" {
			t.Errorf("list: %v, %v", list, err)
		}
		if err := c.Delete(ctx, "", "mondays"); err != nil {
			t.Fatal(err)
		}
		if err := c.DeleteCalendar(ctx, "", "all"); err != nil {
			t.Error(err)
		}
		if _, err := c.Calendar(ctx, "", "all"); !errors.Is(err, sdk.ErrNotFound) {
			t.Errorf("get after delete: %v", err)
		}
	})

	t.Run("backfill", func(t *testing.T) {
		// Paused, so that its fixed rate has planned no time yet from which later times
		// would be counted.
		apply(&sdk.Job{Name: "often", Schedule: &sdk.Schedule{Every: "1s"}, Paused: new(true)})
		from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		b := sdk.Backfill{Job: "often", From: from, Until: from.Add(1500 * time.Second), DryRun: true}
		calls := 0
		b.Progress = func(sdk.Backfilled) { calls++ }
		done, err := c.Backfill(ctx, b)
		if err != nil || done.Accepted != 1500 || len(done.Times) != 100 || !done.Times[0].Equal(from) || !done.Next.IsZero() || calls != 2 {
			t.Fatalf("dry run: %+v in %d calls, %v", done, calls, err)
		}
		b.DryRun, b.Limit = false, 1200
		done, err = c.Backfill(ctx, b)
		if err != nil || done.Accepted != 1200 || !done.Next.Equal(from.Add(1200*time.Second)) {
			t.Fatalf("the first 1200: %d accepted, next %s, %v", done.Accepted, done.Next, err)
		}
		b.Limit = 0
		if done, err = c.Backfill(ctx, b); err != nil || done.Accepted != 300 || done.Existing != 1200 {
			t.Fatalf("all of them: %d accepted, %d existing, %v", done.Accepted, done.Existing, err)
		}
		if _, err := c.SkipNext(ctx, "", "often"); !errors.Is(err, sdk.ErrPrecondition) {
			t.Errorf("skip the next run of a paused job: %v", err)
		}
	})

	t.Run("bulk", func(t *testing.T) {
		var names []string
		for i := range 3 {
			names = append(names, fmt.Sprint("bulk-", i))
			apply(&sdk.Job{Name: names[i], Schedule: &sdk.Schedule{Every: "24h"}, Labels: map[string]string{"odd": fmt.Sprint(i % 2)}})
		}
		if _, err := c.Bulk(ctx, sdk.Bulk{Action: sdk.BulkPause}); !errors.Is(err, sdk.ErrInvalid) {
			t.Errorf("bulk without a choice: %v", err)
		}
		for range 1500 { // more names than one call accepts
			names = append(names, "none")
		}
		done, err := c.Bulk(ctx, sdk.Bulk{Action: sdk.BulkPause, Names: names, Labels: map[string]string{"odd": "0"}, DryRun: true})
		if err != nil || done.Matched != 2 || done.Changed != 0 {
			t.Errorf("dry run: %+v, %v", done, err)
		}
		done, err = c.Bulk(ctx, sdk.Bulk{Action: sdk.BulkDelete, Prefix: "bulk-"})
		if err != nil || done.Changed != 3 {
			t.Errorf("delete: %+v, %v", done, err)
		}
	})

	t.Run("revisions", func(t *testing.T) {
		for _, text := range []string{"one", "two"} {
			apply(&sdk.Job{Name: "kept", Description: text})
		}
		if err := c.Delete(sdk.WithNote(ctx, "no longer needed: 100 % sure"), "", "kept"); err != nil {
			t.Fatal(err)
		}
		revs, err := c.Revisions(ctx, "", sdk.KindJob, "kept")
		if err != nil || len(revs) != 3 || !revs[0].GetDeleted() || revs[0].GetNote() != "no longer needed: 100 % sure" {
			t.Fatalf("revisions: %v, %v", revs, err)
		}
		if _, err := c.RollBack(ctx, "", sdk.KindJob, "kept", 3); !errors.Is(err, sdk.ErrPrecondition) {
			t.Errorf("a roll-back to the deletion: %v", err)
		}
		if _, err := c.RollBack(ctx, "", sdk.KindJob, "kept", 1); err != nil {
			t.Fatal(err)
		}
		if job, err := c.Job(ctx, "", "kept"); err != nil || job.GetDescription() != "one" {
			t.Errorf("after the roll-back: %v, %v", job, err)
		}
		apply(&sdk.Job{Name: "kept", Description: "three", Retry: &sdk.Retry{Max: 2}})
		if _, err := c.RollBack(sdk.WithNote(ctx, "wrong"), "", sdk.KindJob, "kept", 1); err != nil {
			t.Fatal(err)
		}
		if revs, err = c.Revisions(ctx, "", sdk.KindJob, "kept"); err != nil || len(revs) != 3 || revs[0].GetRollback() != 1 || revs[0].GetNote() != "wrong" {
			t.Errorf("revisions after the roll-back: %v, %v", revs, err)
		}
		two, err := c.Revision(ctx, "", sdk.KindJob, "kept", 2)
		if err != nil {
			t.Fatal(err)
		}
		three, err := c.Revision(ctx, "", sdk.KindJob, "kept", 3)
		if err != nil {
			t.Fatal(err)
		}
		want := []sdk.Change{{Field: "description", Old: "three", New: "one"}, {Field: "retry.max", Old: "2"}}
		if got := sdk.RevisionChanges(two, three); !slices.Equal(got, want) {
			t.Errorf("changes %v, want %v", got, want)
		}
		for kind, put := range map[string]func(string) error{
			sdk.KindCalendar: func(day string) error {
				_, err := c.PutCalendar(ctx, &sdk.Calendar{Name: "x", Days: []string{day}})
				return err
			},
			sdk.KindAlias: func(string) error {
				_, err := c.SetAlias(ctx, "", "greet@x", sdk.AliasChange{Version: "1"})
				return err
			},
			sdk.KindGrants: func(day string) error {
				_, err := c.PutGrants(ctx, &sdk.ModuleGrants{Module: "greet", Grants: &sdk.Grants{Enqueue: []string{day}}})
				return err
			},
			sdk.KindApp: func(day string) error {
				_, err := c.PutApp(ctx, &sdk.App{Name: "default", Description: day})
				return err
			},
		} {
			name := map[string]string{sdk.KindCalendar: "x", sdk.KindAlias: "greet@x", sdk.KindGrants: "greet", sdk.KindApp: "default"}[kind]
			if err := errors.Join(put("mon"), put("tue")); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if _, err := c.RollBack(ctx, "", kind, name, 1); err != nil {
				t.Errorf("roll-back of a %s: %v", kind, err)
			}
			first, err := c.Revision(ctx, "", kind, name, 1)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			revs, err := c.Revisions(ctx, "", kind, name)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			last, err := c.Revision(ctx, "", kind, name, revs[0].GetNumber())
			if err != nil || len(sdk.RevisionChanges(first, last)) > 0 || kind != sdk.KindAlias && len(revs) != 3 {
				t.Errorf("%s after its roll-back: %v, %v, %v", kind, last, revs, err)
			}
		}
		if err := c.Delete(ctx, "", "kept"); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("delete app", func(t *testing.T) {
		if _, _, err := c.PushModule(ctx, sdk.Upload{App: "trial", Name: "greet", Version: "1", Code: greet.Module}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if _, err := c.Apply(ctx, &sdk.Job{App: "trial", Name: fmt.Sprint("j", i), Handler: &sdk.Handler{Module: "greet@1"}, Routing: &sdk.Routing{Labels: []string{"gpu"}}}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.TriggerRun(ctx, sdk.Trigger{App: "trial", Job: fmt.Sprint("j", i)}); err != nil { // no host takes it
				t.Fatal(err)
			}
		}
		if err := c.DeleteApp(ctx, "trial", sdk.AppDeletion{}); !errors.Is(err, sdk.ErrPrecondition) {
			t.Errorf("an app with jobs: %v", err)
		}
		var left int64
		if err := c.DeleteApp(ctx, "trial", sdk.AppDeletion{Force: true, Progress: func(jobs, live int64) { left = max(left, jobs+live) }}); err != nil || left != 6 {
			t.Errorf("with force, of %d jobs and runs: %v", left, err)
		}
		if err := c.DeleteApp(ctx, "trial", sdk.AppDeletion{Force: true}); !errors.Is(err, sdk.ErrNotFound) {
			t.Errorf("again: %v", err)
		}
		if _, _, err := c.PushModule(ctx, sdk.Upload{App: "trial", Name: "greet", Version: "1", Code: greet.Module}); err != nil {
			t.Errorf("the first module of the next app of that name: %v", err)
		}
	})

	t.Run("runs", func(t *testing.T) {
		apply(&sdk.Job{Name: "nowhere", Routing: &sdk.Routing{Labels: []string{"gpu"}}})
		run, err := c.TriggerRun(ctx, sdk.Trigger{Job: "nowhere"})
		if err != nil {
			t.Fatal(err)
		}
		why, err := c.ExplainRun(ctx, "", run.GetId())
		if err != nil || why.GetState() != "queued" || len(why.GetHosts()) != 1 || !strings.Contains(why.GetHosts()[0].GetWhy(), "gpu") {
			t.Errorf("explain: %v, %v", why, err)
		}
		if _, err := c.RetryRun(ctx, "", run.GetId()); !errors.Is(err, sdk.ErrPrecondition) {
			t.Errorf("retry of a run that waits: %v", err)
		}
		apply(&sdk.Job{Name: "shards", Fanout: &sdk.Fanout{Mode: "shards", Shards: 3}})
		if run, err = c.TriggerRun(ctx, sdk.Trigger{Job: "shards", Input: []byte("Ada")}); err != nil {
			t.Fatal(err)
		}
		if run, err = c.Wait(ctx, "", run.GetId()); err != nil || run.GetPartsSucceeded() != 3 {
			t.Fatalf("shards: %v, %v", run, err)
		}
		again, err := c.RetryRun(ctx, "", run.GetId())
		if err != nil || again.GetCause() != run.GetId() || again.GetTrigger() != "retry" || again.GetInput() != "Ada" {
			t.Errorf("retry: %v, %v", again, err)
		}
	})
}
