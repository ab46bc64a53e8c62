package console

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// runFilter is the filter of a list of runs, as the address contains it.
type runFilter struct {
	Job, State, Host string
	Parent           string // only the runs under this one
	Trigger          string
	Label            string // labels as name=value, separated by commas
	Module           string // name, or name@version
	Error            string // a part of the message, in any case
	Input, Output    string // a text in them, byte for byte
	InputValue       string // a value of JSON, as path=value
	OutputValue      string
	Kind             string // fingerprint of the error
	Range            string // a preset; "": From and To
	From, To         string // as a form sends times in Zone, or in RFC 3339
	Zone             string // "": the visitor's

	since, until time.Time // of Range, From and To; zero: no bound
	zone         *time.Location
	labels       map[string]string
}

// The presets of a time range.
const (
	lastHour  = "hour"
	lastNight = "night"
	lastDay   = "day"
	lastWeek  = "week"
)

// readRunFilter reads the filter of an address. preset is the range of an address without one.
func readRunFilter(v *visit, preset string, now time.Time) (runFilter, error) {
	q := v.r.URL.Query()
	f := runFilter{
		Job: q.Get("job"), State: q.Get("state"), Host: q.Get("host"), Parent: q.Get("parent"),
		Trigger: q.Get("trigger"), Label: strings.Join(q["label"], ","), Module: q.Get("module"),
		Input: q.Get("input"), Output: q.Get("output"), InputValue: q.Get("invalue"), OutputValue: q.Get("outvalue"),
		Error: q.Get("error"), Kind: q.Get("kind"), Range: q.Get("range"), From: q.Get("from"), To: q.Get("to"),
		zone: zoneOf(v.r).Location,
	}
	if f.Range == "" && f.From == "" && f.To == "" {
		f.Range = preset
		if (f.Error != "" || f.searches()) && preset == "" {
			f.Range = lastDay // a search of all texts would have no bound
		}
	}
	if err := f.readRange(q.Get("zone"), now); err != nil {
		return f, err
	}
	if err := f.readLabels(); err != nil {
		return f, err
	}
	if f.Error != "" && f.since.IsZero() {
		return f, status.Error(codes.InvalidArgument, "a search for the text of an error needs the start of a time range: set from")
	}
	if f.searches() && f.since.IsZero() {
		return f, status.Error(codes.InvalidArgument, "a search by input or output needs the start of a time range: set from")
	}
	for _, text := range []string{f.InputValue, f.OutputValue} {
		if path, _, ok := strings.Cut(text, "="); text != "" && (!ok || path == "") {
			return f, status.Errorf(codes.InvalidArgument, "%.80q is not a value of JSON: write it as path=value, such as data.country=DE", text)
		}
	}
	return f, nil
}

// readRange sets the bounds. Times of a form are in the zone that the form names, so that an
// address has the same meaning for each reader.
func (f *runFilter) readRange(zone string, now time.Time) (err error) {
	if f.From != "" || f.To != "" {
		f.Range = "" // a form sends it too
	}
	if f.Range != "" {
		f.since, f.until, err = presetRange(f.Range, now.In(f.zone))
		return err
	}
	loc := f.zone
	if zone != "" {
		if loc, err = cron.LoadZone(zone); err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
	}
	for _, bound := range []struct {
		text string
		to   *time.Time
	}{{f.From, &f.since}, {f.To, &f.until}} {
		if bound.text == "" {
			continue
		}
		if *bound.to, err = time.Parse(time.RFC3339, bound.text); err == nil {
			continue
		}
		if *bound.to, err = readInputTime(bound.text, loc); err != nil {
			return err
		}
	}
	return nil
}

// presetRange returns the bounds of a preset, of which an open end is zero. A night lasts from 20:00 to
// 08:00 of today.
func presetRange(preset string, now time.Time) (since, until time.Time, err error) {
	switch preset {
	case lastHour:
		return now.Add(-time.Hour), time.Time{}, nil
	case lastDay:
		return now.Add(-24 * time.Hour), time.Time{}, nil
	case lastWeek:
		return now.AddDate(0, 0, -7), time.Time{}, nil
	case lastNight:
		y, m, d := now.Date()
		return time.Date(y, m, d-1, 20, 0, 0, 0, now.Location()), time.Date(y, m, d, 8, 0, 0, 0, now.Location()), nil
	}
	return since, until, status.Errorf(codes.InvalidArgument, "there is no time range %.40q: want hour, night, day or week", preset)
}

func (f *runFilter) readLabels() error {
	for text := range strings.SplitSeq(f.Label, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return status.Errorf(codes.InvalidArgument, "%.80q is not a label: write it as name=value", text)
		}
		if f.labels == nil {
			f.labels = map[string]string{}
		}
		f.labels[name] = value
	}
	return nil
}

// Set reports whether the list may hide runs.
func (f runFilter) Set() bool {
	return f.Job != "" || f.State != "" || f.Host != "" || f.Parent != "" || f.Trigger != "" || f.Label != "" || f.reads() || f.searches() || f.Timed()
}

// Bulk reports whether a change of all runs of the filter can be offered: it does not select runs by
// the kind of an error, and would change others.
func (f runFilter) Bulk() bool { return f.Set() && f.Kind == "" }

// Timed reports whether the filter has a time range.
func (f runFilter) Timed() bool { return !f.since.IsZero() || !f.until.IsZero() }

// More reports whether a field is set that the page folds away.
func (f runFilter) More() bool {
	return f.Trigger != "" || f.Label != "" || f.Module != "" || f.Error != "" || f.searches() || f.From != "" || f.To != ""
}

// searches reports whether the API reads inputs or outputs to decide which runs match.
func (f runFilter) searches() bool {
	return f.Input != "" || f.Output != "" || f.InputValue != "" || f.OutputValue != ""
}

// reads reports whether the API cannot decide alone which runs match.
func (f runFilter) reads() bool { return f.Module != "" || f.Error != "" || f.Kind != "" }

// keeps reports whether a run that the API returned matches.
func (f runFilter) keeps(r *apiv1.Run) bool {
	name, _, _ := strings.Cut(r.Module, "@")
	return (f.Module == "" || f.Module == r.Module || f.Module == name) &&
		(f.Error == "" || holds(r.Error, f.Error)) &&
		(f.Kind == "" || f.Kind == fingerprint(r))
}

// request returns the call for the runs among which the matching ones are.
func (f runFilter) request(app string) *apiv1.ListRunsRequest {
	req := &apiv1.ListRunsRequest{App: app, Job: f.Job, State: f.State, Host: f.Host, Parent: f.Parent, Labels: f.labels, Input: f.Input, Output: f.Output}
	req.InputValues, req.OutputValues = valueOf(f.InputValue), valueOf(f.OutputValue)
	if f.Trigger != "" {
		req.Triggers = []string{f.Trigger}
	}
	if !f.since.IsZero() {
		req.Since = timestamppb.New(f.since)
	}
	if !f.until.IsZero() {
		req.Until = timestamppb.New(f.until)
	}
	return req
}

// valueOf returns the condition of a text as path=value; "": none.
func valueOf(text string) map[string]string {
	if text == "" {
		return nil
	}
	path, value, _ := strings.Cut(text, "=")
	return map[string]string{path: value}
}

// Link returns an address with the filter, and with pairs of further parameters, which replace those
// of the filter. A time range stays a preset.
func (f runFilter) Link(address string, pairs ...string) string {
	from, to := f.From, f.To
	if f.Range == "" {
		from, to = absolute(f.since), absolute(f.until)
	}
	return withQuery(address, append([]string{
		"state", f.State, "job", f.Job, "host", f.Host, "parent", f.Parent, "trigger", f.Trigger, "label", f.Label,
		"module", f.Module, "input", f.Input, "invalue", f.InputValue, "output", f.Output, "outvalue", f.OutputValue, "error", f.Error, "kind", f.Kind, "range", f.Range, "from", from, "to", to,
	}, pairs...)...)
}

// Fixed returns an address with the filter and the times of a preset, so that a change has the runs
// that the page shows.
func (f runFilter) Fixed(address string, pairs ...string) string {
	f.Range = ""
	return f.Link(address, pairs...)
}

// During returns an address with another time range.
func (f runFilter) During(address, preset string) string { return f.during(preset).Link(address) }

func (f runFilter) during(preset string) runFilter {
	f.Range, f.From, f.To, f.since, f.until = preset, "", "", time.Time{}, time.Time{}
	return f
}

// InputFrom and InputTo return the bounds for a form in the visitor's zone.
func (f runFilter) InputFrom() string { return f.input(f.since) }
func (f runFilter) InputTo() string   { return f.input(f.until) }

func (f runFilter) input(t time.Time) string {
	if f.Range != "" || t.IsZero() {
		return ""
	}
	return t.In(f.zone).Format("2006-01-02T15:04:05")
}

func absolute(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// Ranges returns the presets.
func (runFilter) Ranges() []string { return []string{lastHour, lastNight, lastDay, lastWeek} }

// States returns the choices of the filter.
func (runFilter) States() []string {
	choices := []string{"live", "ended", "unsuccessful"}
	for _, s := range job.States() {
		choices = append(choices, string(s))
	}
	return choices
}

// Triggers returns the choices of the filter.
func (runFilter) Triggers() []string {
	choices := []string{}
	for _, t := range job.Triggers() {
		choices = append(choices, string(t))
	}
	slices.Sort(choices)
	return choices
}
