package core

import (
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// maxJobAlerts bounds the jobs of an app that have alerts: a change of one reads those of all.
const maxJobAlerts = 2_000

// jobAlerts are the jobs of an app that have alerts in their documents, by name.
type jobAlerts map[string][]*apiv1.JobAlert

// find reads the jobs of an app.
func (x jobAlerts) find(a *app) {
	clear(x)
	for _, s := range a.slots {
		for j := range s.Jobs.All() {
			if len(j.Alerts()) > 0 {
				x[j.Name()] = j.Alerts()
			}
		}
	}
}

// follow notes that a job was changed or deleted. It reports whether its alerts are others now.
func (x jobAlerts) follow(e *job.Effect) bool {
	name, now := e.Job.Name(), e.Job.Alerts()
	if e.Change == job.JobDeleted {
		now = nil
	}
	same := slices.EqualFunc(x[name], now, func(a, b *apiv1.JobAlert) bool { return proto.Equal(a, b) })
	if x[name] = now; len(now) == 0 {
		delete(x, name)
	}
	return !same
}

// rules returns the alerts as rules.
func (x jobAlerts) rules(al *Alerts, app string) (all []*definition.Rule) {
	for _, name := range slices.Sorted(maps.Keys(x)) {
		rules, err := definition.ReadJobAlerts(app, name, x[name])
		if err != nil { // a newer version of the program has accepted them
			al.l.cfg.Logger.Error("the alerts of a job are not followed", "app", app, "job", name, "error", err)
		}
		all = append(all, rules...)
	}
	return all
}

// first returns the name of the first job with alerts; "": there is none.
func (x jobAlerts) first() string {
	if len(x) == 0 {
		return ""
	}
	return slices.Min(slices.Collect(maps.Keys(x)))
}

// checkJob fails if the alerts of a job are wrong, or name a channel that does not exist.
func (al *Alerts) checkJob(def *apiv1.Job, with *Together) error {
	if len(def.Alerts) == 0 {
		return nil
	}
	if _, err := definition.ReadJobAlerts(def.App, def.Name, def.Alerts); err != nil {
		return status.Errorf(codes.InvalidArgument, "job %s: %v", def.Name, err)
	}
	a := al.l.State.apps[def.App]
	if a != nil && a.split() {
		return status.Errorf(codes.FailedPrecondition, "job %s: it has alerts, and app %s is split over several partitions of the cluster: bring it together with `wheelwork cluster merge %s` first", def.Name, def.App, def.App)
	}
	for _, x := range def.Alerts {
		for _, name := range slices.Concat(x.Channels, x.GetEscalate().GetChannels()) {
			exists, changes := with.channelChange(name)
			if !changes {
				exists = a != nil && a.slots[job.ModuleSlot].Definition(job.KindAlertChannel, name) != nil
			}
			if !exists {
				return status.Errorf(codes.FailedPrecondition, "job %s: its alerts name the channel %q, which does not exist: apply a document of kind AlertChannel with it, or before", def.Name, name)
			}
		}
	}
	n := with.alerting()
	if a != nil && a.alerts != nil {
		for name := range a.alerts.own {
			if name != def.Name && !with.changesJob(name) {
				n++
			}
		}
	}
	if n > maxJobAlerts {
		return status.Errorf(codes.ResourceExhausted, "job %s: app %s would have %d jobs with alerts of their own, and the limit is %d: select the jobs with an alert rule", def.Name, def.App, n, maxJobAlerts)
	}
	return nil
}

// jobsTelling returns the jobs whose alerts name a channel, as texts "job NAME".
func (al *Alerts) jobsTelling(a *app, with *Together, channel string) (names []string) {
	if a.alerts == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(a.alerts.own)) {
		if with.changesJob(name) {
			continue // its change was checked
		}
		if slices.ContainsFunc(a.alerts.own[name], func(x *apiv1.JobAlert) bool {
			return slices.Contains(slices.Concat(x.Channels, x.GetEscalate().GetChannels()), channel)
		}) {
			names = append(names, "job "+name)
		}
	}
	return names
}
