package api

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
	"github.com/wheelworkhq/wheelwork/store"
)

// runFilter selects runs by the conditions of a list.
type runFilter struct {
	live  core.RunFilter
	ended store.RunQuery

	state    string   // as in the request; "": any
	states   []string // the ended states that state selects
	triggers []job.Trigger
	labels   map[string]string
	since    int64      // Unix ms; 0: no bound
	until    int64      // Unix ms; 0: no bound
	search   *runSearch // nil: none
}

// newRunFilter checks and reads the conditions of a list.
func newRunFilter(req *apiv1.ListRunsRequest, now time.Time) (*runFilter, error) {
	live, ended, err := statesOf(req.State)
	if err != nil {
		return nil, err
	}
	f := &runFilter{state: req.State, states: ended, labels: req.Labels}
	for _, t := range req.Triggers {
		if !slices.Contains(job.Triggers(), job.Trigger(t)) {
			return nil, status.Errorf(codes.InvalidArgument, "trigger %q does not exist: use one of %q", t, job.Triggers())
		}
		f.triggers = append(f.triggers, job.Trigger(t))
	}
	if f.since, err = boundOf("since", req.Since); err != nil {
		return nil, err
	}
	if f.until, err = boundOf("until", req.Until); err != nil {
		return nil, err
	}
	switch {
	case req.Since != nil && req.Until != nil && f.until <= f.since:
		return nil, status.Error(codes.InvalidArgument, "until must be after since")
	case req.Until != nil && f.until <= now.UnixMilli():
		live = nil // a run that is live now did not end before until
	}
	if f.search, err = newRunSearch(req, now); err != nil {
		return nil, err
	}
	if f.search.byOutput() {
		live = nil // a live run has no output
	}
	app := core.AppOf(req.App)
	f.live = core.RunFilter{App: app, Job: req.Job, Host: req.Host, States: live, Triggers: f.triggers, Labels: f.labels}
	if req.State == "ended" { // without a condition on the state, a search of the history reads fewer keys
		ended = nil
	}
	f.ended = store.RunQuery{App: app, Job: req.Job, Host: req.Host, States: ended, Since: f.since, Until: f.until}
	return f, nil
}

// boundOf returns a time in Unix milliseconds, rounded up; 0: no time is given.
func boundOf(field string, at *timestamppb.Timestamp) (int64, error) {
	if at == nil {
		return 0, nil
	}
	t := at.AsTime()
	if at.CheckValid() != nil || t.Unix() < 1 {
		return 0, status.Errorf(codes.InvalidArgument, "%s is not a time after 1970", field)
	}
	return t.Add(time.Millisecond - time.Nanosecond).UnixMilli(), nil
}

// wantsEnded reports whether ended runs can match.
func (f *runFilter) wantsEnded() bool { return f.state == "" || len(f.states) > 0 }

// readsRows reports whether the store cannot decide alone which ended runs match.
func (f *runFilter) readsRows() bool {
	return len(f.triggers) > 0 || len(f.labels) > 0 || f.since != 0 || f.until != 0 // a search has since
}

// keepsEnded reports whether an ended run that the store returned matches.
func (f *runFilter) keepsEnded(row *apiv1.RunRow) bool {
	return (len(f.triggers) == 0 || slices.Contains(f.triggers, job.Trigger(row.Trigger))) &&
		job.HasLabels(row.Labels, f.labels) &&
		(f.since == 0 || row.FinishedMs >= f.since) && (f.until == 0 || row.FinishedMs < f.until)
}

// keeps reports whether a run matches. state is the state that callers see.
func (f *runFilter) keeps(row *apiv1.RunRow, state string) bool {
	if f.live.Job != "" && row.Job != f.live.Job || f.live.Host != "" && row.Host != f.live.Host {
		return false
	}
	if s := job.State(state); !s.Terminal() {
		return slices.Contains(f.live.States, s) &&
			(len(f.triggers) == 0 || slices.Contains(f.triggers, job.Trigger(row.Trigger))) && job.HasLabels(row.Labels, f.labels)
	}
	return (f.state == "" || slices.Contains(f.states, state)) && f.keepsEnded(row)
}

// statesOf returns the live and the ended states that the filter of a list selects. For the
// filter "" it returns all live states, and no ended ones: the caller then reads all of them.
func statesOf(filter string) (live []job.State, ended []string, err error) {
	for _, s := range job.States() {
		var match bool
		switch filter {
		case "", string(s):
			match = true
		case "live":
			match = !s.Terminal()
		case "ended":
			match = s.Terminal()
		case "unsuccessful":
			match = s.Terminal() && s != job.Succeeded && s != job.Skipped
		}
		switch {
		case match && s.Terminal():
			ended = append(ended, string(s))
		case match:
			live = append(live, s)
		}
	}
	if live == nil && ended == nil {
		return nil, nil, status.Errorf(codes.InvalidArgument, "there is no state %q: want live, ended, unsuccessful, or one of %s", filter, strings.Trim(fmt.Sprint(job.States()), "[]"))
	}
	if filter == "" {
		return live, nil, nil
	}
	return live, ended, nil
}
