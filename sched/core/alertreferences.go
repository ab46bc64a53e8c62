package core

import (
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// This file checks which definitions name an alert channel, and where alerts may be.

// missingChannels returns the refusal of a rule that names a channel which does not exist.
func missingChannels(s *job.Slot, with *Together, r *apiv1.AlertRule) error {
	for _, name := range slices.Concat(r.Channels, r.GetEscalate().GetChannels()) {
		exists, changes := with.channelChange(name)
		if !changes {
			exists = s.Definition(job.KindAlertChannel, name) != nil
		}
		if !exists {
			return status.Errorf(codes.FailedPrecondition, "alert rule %s names the channel %q, which does not exist: apply a document of kind AlertChannel with it, or before", r.Name, name)
		}
	}
	return nil
}

// rulesTelling returns the rules that name a channel which is deleted, as texts "alert rule NAME".
func rulesTelling(s *job.Slot, with *Together, d *apiv1.Deletion) (names []string) {
	if d.Kind != job.KindAlertChannel {
		return nil
	}
	for _, x := range s.DefinitionsOf(job.KindAlertRule) {
		r := x.(*apiv1.AlertRule)
		if _, changes := with.rules[r.Name]; changes {
			continue // its change was checked
		}
		if slices.Contains(slices.Concat(r.Channels, r.GetEscalate().GetChannels()), d.Name) {
			names = append(names, "alert rule "+r.Name)
		}
	}
	return names
}

// errIfSplitForAlerts returns an error for an app that is split: the rules of its first partition would not see the runs of
// the others.
func (a *app) errIfSplitForAlerts() error {
	if !a.split() {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "app %s is split over several partitions of the cluster, and an alert rule sees the jobs of one: bring it together with `wheelwork cluster merge %s` first", a.name, a.name)
}

// jobsTelling returns the jobs whose alerts name a channel, as texts "job NAME".
func jobsTelling(a *app, with *Together, channel string) (names []string) {
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
