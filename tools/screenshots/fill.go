package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// pricing is the code of the module in the pictures: examples/greet.
//
//go:embed testdata/greet.wasm
var pricing []byte

// app is the app of the pictures.
const app = "shop"

// fill stores what the pages show. It returns the names of objects for addresses.
func (d *dev) fill(ctx context.Context) (*strings.Replacer, error) {
	for _, step := range []func(context.Context) error{d.putApps, d.putModules, d.putJobs, d.putResources, d.putAccess} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return d.makeRuns(ctx)
}

func (d *dev) putApps(ctx context.Context) error {
	for _, name := range []string{app, "analytics", "billing", "logistics", "mail"} {
		if _, err := d.PutApp(ctx, &sdk.App{Name: name}); err != nil {
			return err
		}
	}
	_, err := d.SetAppLimits(ctx, app, &sdk.AppLimits{Jobs: 5000, QueuedRuns: 200_000, LiveRuns: 64})
	return err
}

func (d *dev) putModules(ctx context.Context) error {
	for _, v := range []struct{ version, manifest string }{
		{"1.4.0", `{"handlers": [{"name": "main", "timeout_ms": 30000}], "capabilities": {"kv": ["flags"]}}`},
		{"1.5.0", `{"handlers": [{"name": "main", "timeout_ms": 20000}], "capabilities": {"kv": ["flags"], "http": ["rates.example.com"]}}`},
	} {
		if _, _, err := d.PushModule(ctx, sdk.Upload{App: app, Name: "pricing", Version: v.version, Code: pricing, Manifest: v.manifest}); err != nil {
			return err
		}
	}
	if _, err := d.SetAlias(ctx, app, "pricing@prod", sdk.AliasChange{Version: "1.4.0"}); err != nil {
		return err
	}
	_, err := d.SetAlias(ctx, app, "pricing@prod", sdk.AliasChange{Canary: &sdk.Canary{Version: "1.5.0", Percent: 20, MinAttempts: 500}})
	return err
}

// jobs returns the definitions of the app.
func jobs() []*sdk.Job {
	native := func(name string) *sdk.Handler { return &sdk.Handler{Name: "native:" + name} }
	prices := &sdk.Handler{Module: "pricing@prod"}
	job := func(name, owner, tier string, h *sdk.Handler, s *sdk.Schedule) *sdk.Job {
		return &sdk.Job{App: app, Name: name, Owner: owner, Handler: h, Schedule: s, Labels: map[string]string{"team": owner, "tier": tier}}
	}
	all := []*sdk.Job{
		job("settle-orders", "payments", "1", native("settle"), &sdk.Schedule{Cron: "*/15 * * * *", Zone: "Europe/Berlin", Exclude: []string{"holidays"}}),
		job("charge-cards", "payments", "1", native("charge"), &sdk.Schedule{Every: "30m"}),
		job("refund-cards", "payments", "1", native("settle"), &sdk.Schedule{Daily: &sdk.Daily{From: "09:00", Until: "17:00", Every: "30m", Days: []string{"mon", "tue", "wed", "thu", "fri"}}}),
		job("close-month", "payments", "1", native("settle"), &sdk.Schedule{Cron: "0 3 1 * *", Zone: "Europe/Berlin"}),
		job("export-orders", "data", "2", native("export"), &sdk.Schedule{Cron: "0 2 * * *"}),
		job("export-events", "data", "2", native("export"), &sdk.Schedule{Every: "2h"}),
		job("export-stock", "data", "3", native("export"), &sdk.Schedule{Delay: "4h"}),
		job("rebuild-index", "search", "2", native("index"), &sdk.Schedule{Cron: "30 1 * * 0"}),
		job("update-index", "search", "1", prices, &sdk.Schedule{Every: "1h"}),
		job("resize-images", "media", "3", native("resize"), nil),
		job("clean-uploads", "media", "3", prices, &sdk.Schedule{Cron: "15 4 * * *"}),
		job("thumbnail-audit", "media", "3", prices, &sdk.Schedule{Cron: "0 6 * * 1"}),
		job("price-feed", "growth", "1", prices, &sdk.Schedule{Every: "20m"}),
		job("price-alerts", "growth", "2", prices, &sdk.Schedule{Every: "45m"}),
		job("send-digest", "growth", "2", prices, &sdk.Schedule{Cron: "0 7 * * 1-5", Zone: "America/New_York"}),
		job("send-receipts", "growth", "1", prices, &sdk.Schedule{Every: "1h"}),
		job("abandoned-carts", "growth", "2", prices, &sdk.Schedule{Daily: &sdk.Daily{From: "10:00", Until: "20:00", Every: "2h"}}),
		job("black-friday", "growth", "1", prices, &sdk.Schedule{At: time.Now().AddDate(0, 1, 0).UTC().Truncate(time.Hour).Format(time.RFC3339)}),
		job("rotate-keys", "platform", "1", prices, &sdk.Schedule{Cron: "0 5 1 */3 *"}),
		job("backup-catalogue", "platform", "1", native("export"), &sdk.Schedule{Cron: "0 1 * * *"}),
		job("check-links", "platform", "3", prices, &sdk.Schedule{Every: "6h"}),
		job("expire-sessions", "platform", "2", prices, &sdk.Schedule{Every: "1h"}),
		job("vacuum-carts", "platform", "3", prices, &sdk.Schedule{Cron: "45 3 * * *"}),
		job("sync-suppliers", "logistics", "2", native("settle"), &sdk.Schedule{Every: "3h"}),
		job("track-parcels", "logistics", "1", prices, &sdk.Schedule{Every: "30m"}),
		job("reorder-stock", "logistics", "1", native("settle"), &sdk.Schedule{Cron: "0 22 * * *", Zone: "Asia/Shanghai"}),
		job("label-parcels", "logistics", "2", prices, nil),
		job("forecast-demand", "data", "2", native("export"), &sdk.Schedule{Cron: "0 0 * * 6"}),
	}
	for _, j := range all {
		switch j.GetName() {
		case "settle-orders":
			j.Description = "Settles the open orders of the last quarter of an hour."
			j.Input = `{"currency": "EUR", "max": 5000}`
			j.Timeout, j.Deadline = "5m", "10m"
			j.Retry = &sdk.Retry{Max: 3, First: "2s", Limit: "1m"}
			j.Overlap = &sdk.Overlap{Policy: "queue", Limit: 2}
		case "resize-images":
			j.Fanout = &sdk.Fanout{Mode: "shards", Shards: 96}
		case "vacuum-carts":
			paused := true
			j.Paused = &paused
		case "export-stock":
			j.Description = "Stock of each warehouse, for the buyers."
		}
	}
	nightly := job("nightly", "data", "1", nil, &sdk.Schedule{Cron: "0 0 * * *"})
	nightly.Workflow = &sdk.Workflow{Nodes: []*sdk.Node{
		{Name: "settle", Job: "settle-orders"},
		{Name: "stock", Job: "export-stock"},
		{Name: "orders", Job: "export-orders", After: []string{"settle"}},
		{Name: "events", Job: "export-events", After: []string{"settle"}},
		{Name: "forecast", Job: "forecast-demand", After: []string{"stock", "orders"}},
		{Name: "suppliers", Job: "sync-suppliers", After: []string{"forecast"}},
		{Name: "digest", Job: "send-digest", After: []string{"forecast", "events"}},
		{Name: "repair", Job: "check-links", After: []string{"events"}, When: "failure"},
	}}
	return append(all, nightly)
}

func (d *dev) putJobs(ctx context.Context) error {
	if _, err := d.PutCalendar(ctx, &sdk.Calendar{
		App: app, Name: "holidays", Description: "Public holidays, on which banks are closed.",
		Yearly: []string{"01-01", "05-01", "12-25", "12-26"}, Dates: []string{"2027-03-26", "2027-03-29"},
	}); err != nil {
		return err
	}
	if _, err := d.PutCalendar(ctx, &sdk.Calendar{App: app, Name: "weekend", Days: []string{"sat", "sun"}}); err != nil {
		return err
	}
	for _, j := range jobs() {
		if _, err := d.Apply(ctx, j); err != nil {
			return fmt.Errorf("%s: %w", j.GetName(), err)
		}
	}
	changed := jobs()[0]
	changed.Timeout, changed.Retry.Max, changed.Priority = "10m", 5, 3
	_, err := d.Apply(sdk.WithNote(ctx, "the bank is slow at the end of the month"), changed)
	return err
}

// putResources stores secrets, values and alert rules.
func (d *dev) putResources(ctx context.Context) error {
	for _, name := range []string{"bank-api-key", "mail-password", "warehouse-dsn"} {
		if _, err := d.SetSecret(ctx, app, name, []byte("not a real secret of "+name)); err != nil {
			return err
		}
	}
	for _, v := range []struct{ bucket, key, value string }{
		{"cursors", "orders", "918273"},
		{"cursors", "events", "2026-11-27T09:00:00Z"},
		{"cursors", "suppliers/acme", "17"},
		{"cursors", "suppliers/globex", "9"},
		{"flags", "new-checkout", "true"},
		{"flags", "price-feed", `{"share": 0.2}`},
	} {
		if _, err := d.PutValue(ctx, app, v.bucket, v.key, []byte(v.value), 0); err != nil {
			return err
		}
	}
	var set sdk.ChangeSet
	set.App = app
	set.Definitions = append(set.Definitions,
		&sdk.AlertChannel{Name: "on-call", Description: "The team that is on call.", Slack: &sdk.AlertRobot{Url: "https://hooks.example.com/services/T0/B0/key"}},
		// The first notification comes after the pictures.
		&sdk.AlertRule{
			Name: "failures", Description: "A job of tier 1 fails twice in an hour.", Events: []string{"failed", "timed_out"},
			Select: &sdk.AlertSelection{Labels: map[string]string{"tier": "1"}}, Threshold: 2, Window: "1h", GroupBy: []string{"job"},
			Severity: "critical", Wait: "2h", Channels: []string{"on-call"},
		},
		&sdk.AlertRule{Name: "late", Events: []string{"late_start"}, Severity: "warning", GroupBy: []string{"app"}, Wait: "2h", Channels: []string{"on-call"}},
	)
	if _, err := d.ApplyChangeSet(ctx, set); err != nil {
		return err
	}
	_, err := d.SilenceAlerts(ctx, sdk.Silence{App: app, Rule: "late", For: 4 * time.Hour, Reason: "the new hosts move in"})
	return err
}

func (d *dev) putAccess(ctx context.Context) error {
	for _, name := range []string{"ada", "grace", "linus"} {
		if _, err := d.CreateUser(ctx, name); err != nil {
			return err
		}
	}
	for _, b := range []struct {
		who, role string
	}{{"ada", "developer"}, {"grace", "viewer"}, {"linus", "operator"}} {
		if _, err := d.AddBinding(ctx, b.who, b.role, sdk.AppScope(app), time.Time{}); err != nil {
			return err
		}
	}
	for _, name := range []string{"ci", "dashboard"} {
		if _, err := d.CreateToken(ctx, name, "viewer", sdk.AppScope(app), "720h"); err != nil {
			return err
		}
	}
	return nil
}

// makeRuns starts runs, waits for their ends, and returns the names for addresses.
func (d *dev) makeRuns(ctx context.Context) (*strings.Replacer, error) {
	if err := d.awaitWorker(ctx); err != nil {
		return nil, err
	}
	live, err := d.TriggerRun(ctx, sdk.Trigger{App: app, Job: "rebuild-index"})
	if err != nil {
		return nil, err
	}
	var pending []*sdk.Pending
	for n := range 24 {
		for i, j := range jobs() {
			name := j.GetName()
			if j.GetWorkflow() != nil || name == "rebuild-index" || name == "resize-images" || n > 24-i%20 {
				continue
			}
			pending = append(pending, d.TriggerAsync(ctx, sdk.Trigger{App: app, Job: name}))
		}
	}
	var ids []string
	for _, p := range pending {
		answer, err := p.Wait(ctx)
		if err != nil {
			return nil, err
		}
		ids = append(ids, answer.RunID)
	}
	for _, id := range ids {
		if _, err := d.Wait(ctx, app, id); err != nil && !ended(err) {
			return nil, err
		}
	}
	workflow, err := d.triggerAndWait(ctx, "nightly")
	if err != nil {
		return nil, err
	}
	parts, err := d.triggerAndWait(ctx, "resize-images")
	if err != nil {
		return nil, err
	}
	settled, err := d.last(ctx, sdk.RunQuery{App: app, Job: "settle-orders", State: sdk.Succeeded, Limit: 1})
	if err != nil {
		return nil, err
	}
	failed, err := d.last(ctx, sdk.RunQuery{App: app, Job: "charge-cards", State: "failed", Limit: 1})
	if err != nil {
		return nil, err
	}
	operation, err := d.StartOperation(ctx, &sdk.OperationRequest{App: app, Kind: "jobs.pause", Jobs: &sdk.JobSelection{Owner: "media"}, Note: "the image store moves"})
	if err != nil {
		return nil, err
	}
	if err := d.awaitAlert(ctx); err != nil {
		return nil, err
	}
	host, err := d.cordon(ctx)
	if err != nil {
		return nil, err
	}
	return strings.NewReplacer("{live}", live.GetId(), "{workflow}", workflow, "{parts}", parts, "{settled}", settled, "{failed}", failed,
		"{operation}", operation.GetId(), "{host}", host), nil
}

// ended reports whether an error is the failure of a run.
func ended(err error) bool {
	var failure *sdk.RunError
	return errors.As(err, &failure)
}

func (d *dev) triggerAndWait(ctx context.Context, job string) (id string, err error) {
	run, err := d.TriggerRun(ctx, sdk.Trigger{App: app, Job: job})
	if err != nil {
		return "", err
	}
	if _, err := d.Wait(ctx, app, run.GetId()); err != nil && !ended(err) {
		return "", err
	}
	return run.GetId(), nil
}

// last returns the id of the newest run that a query selects.
func (d *dev) last(ctx context.Context, q sdk.RunQuery) (string, error) {
	for run, err := range d.Runs(ctx, q) {
		return run.GetId(), err
	}
	return "", fmt.Errorf("no run of the job %s is %s", q.Job, q.State)
}

// awaitWorker waits for the host of this process.
func (d *dev) awaitWorker(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		hosts, err := d.Hosts(ctx)
		return len(hosts) > 1, err
	})
}

func (d *dev) awaitAlert(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		alerts, err := d.Alerts(ctx, app)
		return len(alerts) > 0, err
	})
}

// cordon cordons the host of the program, and returns its id.
func (d *dev) cordon(ctx context.Context) (string, error) {
	hosts, err := d.Hosts(ctx)
	if err != nil {
		return "", err
	}
	for _, h := range hosts {
		if h.GetName() != "worker-eu-1" {
			_, err := d.CordonHost(sdk.WithNote(ctx, "new memory on Monday"), h.GetId(), false)
			return h.GetId(), err
		}
	}
	return "", errors.New("the server lists no host of its own")
}

// poll asks until the answer is yes, for at most a minute.
func poll(ctx context.Context, ask func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
