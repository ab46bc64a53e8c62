package console

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// The kinds of operations that the console offers.
var (
	runKinds = []string{"runs.cancel", "runs.retry", "runs.purge", "runs.delete"}
	jobKinds = []string{"jobs.pause", "jobs.resume", "jobs.run", "jobs.set", "jobs.delete"}
)

// operationsView is the list of operations of all apps.
type operationsView struct{ Operations []operationView }

// operationView is an operation, or a row of the list.
type operationView struct{ *apiv1.Operation }

// Known reports whether the catalogue has a text for the kind.
func (o operationView) Known() bool {
	return slices.Contains(runKinds, o.Kind) || slices.Contains(jobKinds, o.Kind)
}

// Runs reports whether the operation changes runs.
func (o operationView) Runs() bool { return strings.HasPrefix(o.Kind, "runs.") }

// Live reports whether the operation has not ended.
func (o operationView) Live() bool { return o.State == "running" }

// Mark returns the state of a run whose mark the operation has.
func (o operationView) Mark() string {
	if o.State == "done" {
		return "succeeded"
	}
	return o.State
}

// Examined returns the number of objects that were examined.
func (o operationView) Examined() int64 { return o.Done + o.Skipped + o.Failed }

// Percent returns the progress; -1: it is not known.
func (o operationView) Percent() int64 {
	switch {
	case o.State == "done":
		return 100
	case o.Total == nil && o.Live():
		return -1
	case o.GetTotal() <= 0:
		return 0
	}
	return min(100, 100*o.Examined()/o.GetTotal())
}

// Conditions returns what the operation selects.
func (o operationView) Conditions() []string { return conditionsOf(o.Request) }

// Changes returns the fields of definitions that the operation sets.
func (o operationView) Changes() []string { return fieldsOf(o.Request.GetSet()) }

// conditionsOf returns the conditions of a request, as "state=failed"; none: it selects all objects.
func conditionsOf(r *apiv1.StartOperationRequest) []string {
	all := append(fieldsOf(r.GetRuns()), fieldsOf(r.GetJobs())...)
	if r.GetModule() != "" {
		all = append(all, "module="+r.GetModule())
	}
	return all
}

// fieldsOf returns the fields of a message that are set, without those of pages, in the order of their
// numbers.
func fieldsOf(m proto.Message) (all []string) {
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name, value := strings.TrimSuffix(string(f.Name()), "s"), m.ProtoReflect().Get(f)
		if !m.ProtoReflect().Has(f) || slices.Contains([]string{"app", "page_size", "page_token", "with_input", "order"}, string(f.Name())) {
			continue
		}
		switch {
		case f.IsMap():
			var pairs []string
			value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				pairs = append(pairs, fmt.Sprintf("%s %s=%s", name, k, v))
				return true
			})
			slices.Sort(pairs)
			all = append(all, pairs...)
		case f.IsList():
			for k := range value.List().Len() {
				all = append(all, fmt.Sprintf("%s=%v", name, value.List().Get(k)))
			}
		case f.Message() != nil:
			if t, ok := value.Message().Interface().(*timestamppb.Timestamp); ok {
				all = append(all, fmt.Sprintf("%s=%s", f.Name(), t.AsTime().Format(time.RFC3339)))
			}
		default:
			all = append(all, fmt.Sprintf("%s=%v", f.Name(), value))
		}
	}
	return all
}

func (c *console) operationsPage(v *visit) error {
	answer, err := c.operations.ListAllOperations(v.ctx, &apiv1.ListAllOperationsRequest{})
	if err != nil {
		return err
	}
	var view operationsView
	for _, op := range answer.Operations[:min(len(answer.Operations), pageSize)] {
		view.Operations = append(view.Operations, operationView{op})
	}
	return c.show(v, "operations", "operations", view)
}

func (c *console) operationPage(v *visit) error {
	op, err := c.operations.GetOperation(v.ctx, &apiv1.GetOperationRequest{App: v.app, Id: v.r.PathValue("id")})
	if err != nil {
		return err
	}
	return c.show(v, "operation", "operations", operationView{op})
}

func (c *console) cancelOperation(v *visit) error {
	op, err := c.operations.CancelOperation(v.ctx, &apiv1.CancelOperationRequest{App: v.app, Id: v.r.PathValue("id")})
	if err != nil {
		return err
	}
	v.redirect(href("apps", v.app, "operations", op.Id))
	return nil
}
