package sched_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
)

// TestDeleteApp checks that an app with jobs or live runs is refused, that a deletion leaves
// nothing of the app, before and after a restart, and that another app of that name starts
// empty.
func TestDeleteApp(t *testing.T) {
	simulate(t, func(t *testing.T, w *world, c *client) {
		ctx := t.Context()
		apps := func() apiv1.AppsClient { return apiv1.NewAppsClient(c.conn) }
		del := func() error {
			_, err := apps().DeleteApp(ctx, &apiv1.DeleteAppRequest{Name: "default"})
			return err
		}
		c.pushVersions("1", "2")
		if _, err := c.tryPush(&apiv1.PushModuleRequest_Head{App: "shop", Name: "n", Version: "1"}, codeOf("2")); err != nil {
			t.Fatal(err)
		}
		c.alias(&apiv1.SetAliasRequest{Version: "1"})
		if _, err := apiv1.NewCalendarsClient(c.conn).PutCalendar(ctx, &apiv1.PutCalendarRequest{Calendar: &apiv1.Calendar{Name: "holidays", Dates: []string{"2026-12-24"}}}); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b", "c"} {
			if _, err := apiv1.NewValuesClient(c.conn).PutValue(ctx, &apiv1.PutValueRequest{Bucket: "b", Key: key, Value: "v"}); err != nil {
				t.Fatal(err)
			}
		}
		c.grant(&apiv1.Grants{Enqueue: []string{"j"}})
		if _, err := apps().PutApp(ctx, &apiv1.PutAppRequest{App: &apiv1.App{Name: "default", Description: "old", RetainRuns: "720h"}}); err != nil {
			t.Fatal(err)
		}
		if err := c.applyTo("n@1", &apiv1.Job{Name: "j", Timeout: "24h"}); err != nil {
			t.Fatal(err)
		}
		first := c.trigger("j", "")
		c.wait(first)
		w.executed("long", sleeping(24*time.Hour))
		if err := c.applyTo("n@1", &apiv1.Job{Name: "long", Timeout: "24h"}); err != nil {
			t.Fatal(err)
		}
		live := c.trigger("long", "")
		if err := del(); status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("with jobs: %v", err)
		}
		if _, err := c.jobs.BulkJobs(ctx, &apiv1.BulkJobsRequest{Action: "delete", All: true, Force: true}); err != nil {
			t.Fatal(err)
		}
		if err := del(); status.Code(err) != codes.FailedPrecondition {
			t.Fatalf("with a live run: %v", err)
		}
		if _, err := c.runs.CancelRun(ctx, &apiv1.CancelRunRequest{Id: live}); err != nil {
			t.Fatal(err)
		}
		c.wait(live)
		if err := del(); err != nil {
			t.Fatal(err)
		}
		empty := func() {
			t.Helper()
			if _, err := apps().GetApp(ctx, &apiv1.GetAppRequest{Name: "default"}); status.Code(err) != codes.NotFound {
				t.Errorf("the app is still there: %v", err)
			}
			if err := del(); status.Code(err) != codes.NotFound {
				t.Errorf("a second deletion: %v", err)
			}
			all, err := apps().ListApps(ctx, &apiv1.ListAppsRequest{})
			if err != nil || len(all.Apps) != 1 || all.Apps[0].Name != "shop" {
				t.Errorf("apps %v, %v", all, err)
			}
			if runs, _ := c.under(&apiv1.ListRunsRequest{}); len(runs) != 0 {
				t.Errorf("%d runs are shown", len(runs))
			}
			if _, err := c.runs.GetRun(ctx, &apiv1.GetRunRequest{Id: first}); status.Code(err) != codes.NotFound {
				t.Errorf("the run is still there: %v", err)
			}
			if modules, err := c.modules.ListModules(ctx, &apiv1.ListModulesRequest{}); err != nil || len(modules.Modules) != 0 {
				t.Errorf("modules %v, %v", modules, err)
			}
			if buckets, err := apiv1.NewValuesClient(c.conn).ListBuckets(ctx, &apiv1.ListBucketsRequest{}); err != nil || len(buckets.Buckets) != 0 || buckets.Bytes != 0 {
				t.Errorf("buckets %v, %v", buckets, err)
			}
		}
		empty()
		for v, want := range map[string]bool{"1": false, "2": true} { // the app shop has the code of 2
			d := strings.TrimPrefix(modules.Digest(codeOf(v)), "sha256:")
			if _, err := os.Stat(filepath.Join(w.dir, "modules", "sha256", d[:2], d)); (err == nil) != want {
				t.Errorf("the code of n@%s is there: %v, want %v", v, err == nil, want)
			}
		}
		for _, prefix := range []string{"kv/", "grants/", "alias/", "calendar/"} {
			if n := w.countRows(prefix); n != 0 { // restarts the server
				t.Errorf("the store has %d rows of %s", n, prefix)
			}
		}
		c.reconnect(w)
		empty()

		c.pushVersions("1")
		if err := c.applyTo("n@1", &apiv1.Job{Name: "j"}); err != nil {
			t.Fatal(err)
		}
		c.wait(c.trigger("j", ""))
		app, err := apps().GetApp(ctx, &apiv1.GetAppRequest{Name: "default"})
		if err != nil || app.Jobs != 1 || app.Description != "" || app.RetainRuns != "" {
			t.Errorf("the new app: %v, %v", app, err)
		}
		if runs, _ := c.under(&apiv1.ListRunsRequest{}); len(runs) != 1 {
			t.Errorf("the new app has %d runs, want its own one", len(runs))
		}
		if o := c.overview(); o.SucceededTotal != 1 {
			t.Errorf("the overview counts %d runs, want that of the new app alone", o.SucceededTotal)
		}
	})
}
