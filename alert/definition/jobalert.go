package definition

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/wheelworkhq/wheelwork/alert/rule"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// ofJob are the events about a job or its runs, and recovered.
var ofJob = []string{
	rule.Failed, rule.FailedInRow, rule.RetryExhausted, rule.TimedOut, rule.Missed, rule.LateStart, rule.NotFinishedBy, rule.NoSuccessSince, rule.RunningLongerThan,
	rule.SchedulePaused, rule.Succeeded, rule.Recovered,
}

// OfJob returns the alerts of a job as rules, in the order of its document. The name of a rule is that of
// no document, because of its colons.
func OfJob(app, name string, list []*apiv1.JobAlert) []*apiv1.AlertRule {
	all := make([]*apiv1.AlertRule, len(list))
	for i, a := range list {
		all[i] = &apiv1.AlertRule{
			App: app, Name: "job:" + name + ":" + strconv.Itoa(i), Events: a.Events, Select: &apiv1.AlertSelection{Jobs: []string{name}}, GroupBy: []string{"job"},
			Severity: a.Severity, Threshold: a.Threshold, Window: a.Window, Wait: a.Wait, Repeat: a.Repeat, Silence: a.Silence, Escalate: a.Escalate,
			Channels: a.Channels, Mute: a.Mute, Zone: a.Zone, Language: a.Language,
		}
		if w := a.When; w != nil {
			all[i].When = &apiv1.AlertTimes{LateStart: w.LateStart, NoSuccessSince: w.NoSuccessSince, RunningLongerThan: w.RunningLongerThan, NotFinishedBy: w.NotFinishedBy}
		}
	}
	return all
}

// ReadJobAlerts checks the alerts of a job. An error names the field that is wrong.
func ReadJobAlerts(app, name string, list []*apiv1.JobAlert) ([]*Rule, error) {
	var all []*Rule
	for i, m := range OfJob(app, name, list) {
		r, err := read(m)
		if err != nil {
			return nil, fmt.Errorf("alerts[%d]: %w", i, err)
		}
		for _, e := range m.Events {
			if !slices.Contains(ofJob, e) {
				return nil, fmt.Errorf("alerts[%d]: events has %q, which is about no job: it takes an alert rule without select", i, e)
			}
		}
		r.Job = name
		all = append(all, r)
	}
	return all, nil
}
