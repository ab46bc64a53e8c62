package sdktest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

// TestRunFiltersAndBulkRuns selects runs by label, trigger and time, and retries and cancels
// them.
func TestRunFiltersAndBulkRuns(t *testing.T) {
	var whole atomic.Bool
	_, client := serve(t, sdktest.Config{Handle: func(ctx context.Context, run *apiv1.Run, _ func(string)) (string, error) {
		if run.GetJob() == "waits" {
			<-ctx.Done()
			return "", ctx.Err()
		}
		if !whole.Load() {
			return "", errors.New("broken")
		}
		return "done", nil
	}})
	ctx := t.Context()
	for name, team := range map[string]string{"fails": "money", "waits": "mail"} {
		job := &sdk.Job{Name: name, Labels: map[string]string{"team": team}, Handler: &sdk.Handler{Module: "m@1"}}
		if _, err := client.Apply(ctx, job); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		if _, err := client.TriggerAndWait(ctx, sdk.Trigger{Job: "fails"}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.TriggerRun(ctx, sdk.Trigger{Job: "waits"}); err != nil {
			t.Fatal(err)
		}
	}
	count := func(q sdk.RunQuery) (n int) {
		t.Helper()
		for _, err := range client.Runs(ctx, q) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	now := time.Now()
	for name, tc := range map[string]struct {
		q    sdk.RunQuery
		want int
	}{
		"label":         {sdk.RunQuery{Labels: map[string]string{"team": "money"}}, 3},
		"trigger":       {sdk.RunQuery{Triggers: []string{"schedule", "manual"}}, 6},
		"other trigger": {sdk.RunQuery{Triggers: []string{"schedule"}}, 0},
		"since":         {sdk.RunQuery{Since: now.Add(-time.Hour)}, 6},
		"until":         {sdk.RunQuery{Until: now.Add(-time.Hour)}, 0},
		"later":         {sdk.RunQuery{Since: now.Add(time.Hour), State: "ended"}, 0},
	} {
		if n := count(tc.q); n != tc.want {
			t.Errorf("%s: %d runs, want %d", name, n, tc.want)
		}
	}
	calls := 0
	bulk := func(b sdk.RunBulk, matched, changed int64) {
		t.Helper()
		b.Progress = func(sdk.Bulked) { calls++ }
		done, err := client.BulkRuns(ctx, b)
		if err != nil || done.Matched != matched || done.Changed != changed || len(done.Failures) > 0 {
			t.Errorf("%+v: %+v, %v; want %d and %d", b, done, err, matched, changed)
		}
	}
	whole.Store(true)
	bulk(sdk.RunBulk{Action: sdk.BulkRetry, All: true, DryRun: true}, 3, 0)
	bulk(sdk.RunBulk{Action: sdk.BulkRetry, Labels: map[string]string{"team": "money"}}, 3, 3)
	bulk(sdk.RunBulk{Action: sdk.BulkCancel, Job: "waits"}, 3, 3)
	if calls != 3 {
		t.Errorf("Progress was called %d times, want 3", calls)
	}
	if _, err := client.BulkRuns(ctx, sdk.RunBulk{Action: sdk.BulkCancel}); !errors.Is(err, sdk.ErrInvalid) {
		t.Errorf("without a selection: %v", err)
	}
}
