package console

import (
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	alerts "github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/alert/rule"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// shownJobAlerts bounds the alerts and the rules on the page of a job.
const shownJobAlerts = 20

// jobAlerts are the alerts and the rules that concern a job.
type jobAlerts struct {
	Firing      []*apiv1.Alert // at most shownJobAlerts
	FiringTotal int
	Rules       []*apiv1.AlertRule // at most shownJobAlerts
	RulesTotal  int
}

// firing returns the alerts of an app, at most as many as one answer has. A server without alerts has none, and
// neither has a visitor without the permission to read them, so that pages about other things do without them.
func (c *console) firing(ctx context.Context, app string) ([]*apiv1.Alert, error) {
	answer, err := c.alerts.ListAlerts(ctx, &apiv1.ListAlertsRequest{App: app, PageSize: alertsAtOnce})
	return answer.GetAlerts(), optional(err)
}

// optional drops the error of a call that the server does not have, or that the visitor may not make.
func optional(err error) error {
	switch status.Code(err) {
	case codes.Unimplemented, codes.PermissionDenied:
		return nil
	}
	return err
}

// OwnRule reports whether a rule is of the document of a job, which has its page.
func (jobAlerts) OwnRule(r *apiv1.AlertRule) bool { return strings.HasPrefix(r.Name, "job:") }

// alertsOfJob returns the alerts and the rules that concern a job, those of its own document first.
func (c *console) alertsOfJob(ctx context.Context, app string, j *apiv1.Job) (jobAlerts, error) {
	var firing []*apiv1.Alert
	var rules []*apiv1.AlertRule
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		firing, err = c.firing(ctx, app)
		return err
	})
	g.Go(func() error {
		var err error
		rules, err = c.rules(ctx, app)
		return optional(err)
	})
	if err := g.Wait(); err != nil {
		return jobAlerts{}, err
	}
	firing = slices.DeleteFunc(firing, func(a *apiv1.Alert) bool { return !alertNames(a, j.Name) })
	own := alerts.OfJob(app, j.Name, j.Alerts)
	rules = slices.DeleteFunc(rules, func(r *apiv1.AlertRule) bool { return !ruleSelects(r, j) })
	rules = append(own, rules...)
	return jobAlerts{
		firing[:min(len(firing), shownJobAlerts)], len(firing), rules[:min(len(rules), shownJobAlerts)], len(rules),
	}, nil
}

// alertNames reports whether an alert names a job: in the labels of its group, among the jobs in trouble that the
// API lists, or in one of the latest incidents.
func alertNames(a *apiv1.Alert, job string) bool {
	return a.Labels["job"] == job || slices.Contains(a.Subjects, job) ||
		slices.ContainsFunc(a.Incidents, func(i *apiv1.AlertIncident) bool { return i.Job == job })
}

// ruleSelects reports whether a rule lists an event of jobs, and selects a job as the server does.
func ruleSelects(r *apiv1.AlertRule, j *apiv1.Job) bool {
	s := rule.Selection{Jobs: r.GetSelect().GetJobs(), Labels: r.GetSelect().GetLabels(), Owners: r.GetSelect().GetOwners()}
	return slices.ContainsFunc(r.Events, ofJobs) && s.Selects(&rule.Subject{App: j.App, Job: j.Name, Owner: j.Owner, Labels: j.Labels})
}

// ofJobs reports whether an event is about a job or its runs, and begins alerts.
func ofJobs(event string) bool {
	switch event {
	case rule.Failed, rule.FailedInRow, rule.RetryExhausted, rule.TimedOut, rule.Missed, rule.LateStart, rule.NotFinishedBy, rule.NoSuccessSince,
		rule.RunningLongerThan, rule.Succeeded, rule.SchedulePaused:
		return true
	}
	return false
}
