package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/sdk"
)

const (
	alertsRow  = "alerts/batch100"
	alertRules = 1000
	alertPairs = 5
)

// alerts measures what 1 000 alert rules cost the runs of their app: loads with and without them, in turn on one server.
// One rule selects all jobs, the others one each.
func (b *bench) alerts(ctx context.Context) (err error) {
	d, err := b.start(ctx, "alerts")
	if err != nil {
		return err
	}
	defer d.stop(&err)
	if err := d.push(ctx, "", "trivial", trivialModule); err != nil {
		return err
	}
	if _, err := b.store(ctx, d, b.size.stored, time.Now().Add(calm).UTC(), ""); err != nil {
		return err
	}
	var on, off sdk.ChangeSet
	on.Definitions = append(on.Definitions, &sdk.AlertChannel{Name: "none", Slack: &sdk.AlertRobot{Url: "https://example.com"}})
	for i := range alertRules {
		r := &sdk.AlertRule{Name: fmt.Sprint("rule-", i), Events: []string{"failed", "recovered"}, Channels: []string{"none"}}
		if i > 0 {
			r.Select = &sdk.AlertSelection{Jobs: []string{stored(i)}}
		}
		on.Definitions = append(on.Definitions, r)
		off.Deletions = append(off.Deletions, sdk.Object{Kind: sdk.KindAlertRule, Name: r.Name})
	}
	l := load{row: alertsRow, runs: b.size.runs / warmShare, producers: 64, batch: 100}
	var ratios []float64
	for pair := -1; pair < alertPairs; pair++ { // the first one warms up
		var took [2]time.Duration
		for turn := range 2 {
			with := (pair+turn)%2 == 0
			set := off
			if with {
				set = on
			}
			if _, err := d.ApplyChangeSet(ctx, set); err != nil {
				return err
			}
			did, err := b.run(ctx, d, l)
			if err != nil {
				return err
			}
			if with {
				took[1] = did.took
			} else {
				took[0] = did.took
			}
		}
		if pair >= 0 {
			ratios = append(ratios, took[0].Seconds()/took[1].Seconds())
		}
	}
	slices.Sort(ratios)
	b.report.Add(alertsRow, ratios[len(ratios)/2], "×", report.AtLeast(0.97))
	b.report.Note(fmt.Sprintf("runs a second with %d rules to those without, %d pairs from %.2f to %.2f", alertRules, alertPairs, ratios[0], ratios[len(ratios)-1]))
	return nil
}
