package console

import (
	"cmp"
	"crypto/rand"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/conditions"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// This file has the pages that change all runs or jobs of a list. Their address has the filter of the
// list under the same names, and the choices of the form. A name that is not known is refused: the
// change must not have more objects than the list.

// The fields of the API's requests by the names in the address of a list. Labels and times are apart.
var (
	runConditions = map[string]string{"job": "job", "state": "state", "host": "host", "parent": "parent", "trigger": "triggers", "input": "input", "output": "output"}
	jobConditions = map[string]string{"prefix": "prefix", "q": "contains", "owner": "owner", "module": "module", "schedule": "schedule", "paused": "paused", "failing": "failing"}
)

// bulkChoices are the names of the form's fields. The others are of the filter.
var bulkChoices = []string{"action", "note", "force", "set-owner", "set-no-owner", "set-labels", "set-remove", "set-timeout", "set-zone", "set-alert-events", "set-alert-channels", "set-no-alerts", "until", "until-zone"}

// besideFilter are the names in the address of a list that do not select.
var besideFilter = []string{"app", "sort", "page"}

// bulkView is the form that chooses a change, with a preview of it.
type bulkView struct {
	Runs    bool // the objects are runs
	Kinds   []string
	Request *apiv1.StartOperationRequest
	Filter  []bulkField
	Choices url.Values
	Back    string // the list
	Found   *apiv1.StartOperationResponse
	Key     string // of the operation that the preview starts
	Refused string
	Zone    string // of the times in the form
}

type bulkField struct{ Name, Value string }

// Kind returns the chosen kind; "": none is chosen.
func (b bulkView) Kind() string { return b.Request.Kind }

// Conditions returns the conditions of the selection, in words.
func (b bulkView) Conditions() []string { return conditions.Of(b.Request) }

// Changes returns the fields of definitions to set.
func (b bulkView) Changes() []string { return conditions.Fields(b.Request.Set) }

// Choice returns what the form has in a field.
func (b bulkView) Choice(name string) string { return b.Choices.Get(name) }

// Shown returns the number of objects that the preview shows.
func (b bulkView) Shown() int { return len(b.Found.Runs) + len(b.Found.Jobs) }

// Finds reports whether the operation finds runs and changes none.
func (b bulkView) Finds() bool { return b.Kind() == searchKind }

// Harms reports whether the change takes something away.
func (b bulkView) Harms() bool {
	return slices.Contains([]string{"jobs.delete", "runs.cancel", "runs.delete", "runs.purge"}, b.Kind())
}

// bulkPermission returns the permission that a kind needs.
func bulkPermission(kind string) string {
	switch kind {
	case "jobs.run":
		return "jobs.trigger"
	case "jobs.delete", "jobs.set", "runs.delete", "runs.purge":
		return "jobs.write"
	}
	return "jobs.operate"
}

// readBulk reads an address.
func (c *console) readBulk(v *visit, runs bool) (bulkView, error) {
	q := v.r.URL.Query()
	list, kinds := "jobs", jobKinds
	if runs {
		list, kinds = "runs", runKinds
	}
	view := bulkView{Runs: runs, Zone: cmp.Or(q.Get("until-zone"), zoneOf(v.r).String()), Choices: url.Values{}, Request: &apiv1.StartOperationRequest{App: v.app, Kind: q.Get("action"), Note: strings.TrimSpace(q.Get("note"))}}
	back := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case slices.Contains(besideFilter, name):
		case slices.Contains(bulkChoices, name):
			view.Choices[name] = q[name]
		default:
			for _, value := range q[name] {
				if value != "" {
					view.Filter = append(view.Filter, bulkField{name, value})
					back.Add(name, value)
				}
			}
		}
	}
	view.Back = href("apps", v.app, list)
	if len(back) > 0 {
		view.Back += "?" + back.Encode()
	}
	visitor := c.visitor(v)
	for _, kind := range kinds {
		if visitor.May(bulkPermission(kind), v.app) && (!runs || fitsState(kind, q.Get("state"))) {
			view.Kinds = append(view.Kinds, kind)
		}
	}
	if view.Kind() != "" && !slices.Contains(kinds, view.Kind()) {
		return view, status.Errorf(codes.InvalidArgument, "there is no change %.40q of %s", view.Kind(), list)
	}
	var err error
	if runs {
		view.Request.Runs = &apiv1.ListRunsRequest{}
		err = view.selectBy(view.Request.Runs, runConditions)
	} else {
		view.Request.Jobs = &apiv1.ListJobsRequest{}
		err = view.selectBy(view.Request.Jobs, jobConditions)
		view.Request.Force = view.Kind() == "jobs.delete" && q.Get("force") != ""
	}
	if err == nil && view.Kind() == "jobs.pause" {
		view.Request.Until, err = pauseEnd(v, q)
	}
	if err == nil && view.Kind() == "jobs.set" {
		view.Request.Set, err = readChanges(q)
	}
	view.Request.All = len(view.Filter) == 0 || len(view.Filter) == 1 && view.Filter[0].Name == "state"
	return view, err
}

// pauseEnd reads the end of a pause; nil: it has none.
func pauseEnd(v *visit, q url.Values) (*timestamppb.Timestamp, error) {
	zone, err := cron.LoadZone(cmp.Or(q.Get("until-zone"), zoneOf(v.r).String()))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return optionalTime(q.Get("until"), zone)
}

// fitsState reports whether a kind changes runs with a state.
func fitsState(kind, state string) bool {
	if kind == searchKind {
		return true
	}
	switch state {
	case "":
		return true
	case "live":
		return kind == "runs.cancel"
	case "ended", "unsuccessful":
		return kind != "runs.cancel"
	}
	return (kind == "runs.cancel") != job.State(state).Terminal()
}

// selectBy sets the conditions of a request from the filter.
func (b *bulkView) selectBy(req proto.Message, conditions map[string]string) error {
	for _, f := range b.Filter {
		switch {
		case f.Name == "label":
			labels, err := readLabels(strings.FieldsFunc(f.Value, func(r rune) bool { return r == ',' || !b.Runs && r == ' ' }))
			if err != nil {
				return err
			}
			field := req.ProtoReflect().Descriptor().Fields().ByName("labels")
			for name, value := range labels {
				req.ProtoReflect().Mutable(field).Map().Set(protoreflect.ValueOfString(name).MapKey(), protoreflect.ValueOfString(value))
			}
		case b.Runs && f.Name == "invalue":
			b.Request.Runs.InputValues = valueOf(f.Value)
		case b.Runs && f.Name == "outvalue":
			b.Request.Runs.OutputValues = valueOf(f.Value)
		case b.Runs && f.Name == "module":
			b.Request.Module = f.Value
		case b.Runs && f.Name == "error":
			b.Request.Error = f.Value
		case b.Runs && (f.Name == "from" || f.Name == "to"):
			at, err := time.Parse(time.RFC3339, f.Value)
			if err != nil {
				return status.Errorf(codes.InvalidArgument, "%s: %.40q is not a time as 2026-03-08T12:00:00Z", f.Name, f.Value)
			}
			if f.Name == "from" {
				b.Request.Runs.Since = timestamppb.New(at)
			} else {
				b.Request.Runs.Until = timestamppb.New(at)
			}
		default:
			if err := setCondition(req.ProtoReflect(), conditions[f.Name], f.Value); err != nil {
				return status.Errorf(codes.InvalidArgument, "%.40s=%.80s: %v", f.Name, f.Value, err)
			}
		}
	}
	return nil
}

// setCondition sets the field of a request for a list.
func setCondition(req protoreflect.Message, field, value string) error {
	f := req.Descriptor().Fields().ByName(protoreflect.Name(field))
	switch {
	case f == nil:
		return errNoCondition
	case f.IsList():
		req.Mutable(f).List().Append(protoreflect.ValueOfString(value))
	case f.Kind() == protoreflect.BoolKind && value != "yes" && value != "no":
		return errNoCondition
	case f.Kind() == protoreflect.BoolKind:
		req.Set(f, protoreflect.ValueOfBool(value == "yes"))
	default:
		req.Set(f, protoreflect.ValueOfString(value))
	}
	return nil
}

var errNoCondition = errors.New("a change of all objects cannot select by this")

// readLabels reads labels as "team=billing".
func readLabels(pairs []string) (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range pairs {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, status.Errorf(codes.InvalidArgument, "%.80q is not a label: write it as name=value", pair)
		}
		labels[name] = value
	}
	return labels, nil
}

// readChanges reads the new values of fields. An empty text leaves its field as it is.
func readChanges(q url.Values) (*apiv1.JobChanges, error) {
	text := func(name string) *string {
		if s := strings.TrimSpace(q.Get(name)); s != "" {
			return &s
		}
		return nil
	}
	set := &apiv1.JobChanges{Owner: text("set-owner"), Timeout: text("set-timeout"), Zone: text("set-zone")}
	if q.Get("set-no-owner") != "" {
		set.Owner = proto.String("")
	}
	list := func(name string) (all []string) {
		for x := range strings.SplitSeq(q.Get(name), ",") {
			if x = strings.TrimSpace(x); x != "" {
				all = append(all, x)
			}
		}
		return all
	}
	set.RemoveLabels = list("set-remove")
	set.RemoveAlerts = q.Get("set-no-alerts") != ""
	if alert := (&apiv1.JobAlert{Events: list("set-alert-events"), Channels: list("set-alert-channels")}); proto.Size(alert) > 0 {
		set.Alerts = []*apiv1.JobAlert{alert}
	}
	var err error
	set.Labels, err = readLabels(strings.Split(q.Get("set-labels"), ","))
	return set, err
}

// bulkPage shows the form, and the preview of a change that was chosen.
func (c *console) bulkPage(runs bool) func(*visit) error {
	return func(v *visit) error {
		view, err := c.readBulk(v, runs)
		if err == nil && view.Kind() != "" && c.visitor(v).May(bulkPermission(view.Kind()), v.app) {
			preview := proto.CloneOf(view.Request)
			preview.DryRun = true
			view.Found, err = c.operations.StartOperation(v.ctx, preview)
		}
		if err != nil {
			return c.refuseBulk(v, view, err)
		}
		view.Key = rand.Text()
		return c.show(v, "bulk", view.section(), view)
	}
}

func (b bulkView) section() string {
	if b.Runs {
		return "runs"
	}
	return "jobs"
}

// refuseBulk shows the form with the reason for which the change was refused.
func (c *console) refuseBulk(v *visit, view bulkView, err error) error {
	if code := status.Code(err); code != codes.InvalidArgument && code != codes.ResourceExhausted {
		return err
	}
	view.Refused, view.Found = status.Convert(err).Message(), nil
	return c.showStatus(v, httpStatus(status.Convert(err)), "bulk", view.section(), view)
}

// startBulk starts the operation of a preview. The form has the key of that preview, so that it starts
// one operation however often it is sent.
func (c *console) startBulk(runs bool) func(*visit) error {
	return func(v *visit) error {
		if err := v.parseForm(); err != nil {
			return err
		}
		view, err := c.readBulk(v, runs)
		if err != nil {
			return c.refuseBulk(v, view, err)
		}
		view.Request.IdempotencyKey = v.r.PostForm.Get("key")
		answer, err := c.operations.StartOperation(v.ctx, view.Request)
		if err != nil {
			return c.refuseBulk(v, view, err)
		}
		v.redirect(href("apps", v.app, "operations", answer.Operation.Id))
		return nil
	}
}
