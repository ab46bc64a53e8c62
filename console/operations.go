package console

import (
	"slices"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/conditions"
)

// searchKind is the kind of operations that finds runs.
const searchKind = "runs.search"

// The kinds of operations that the console offers.
var (
	runKinds = []string{"runs.cancel", "runs.retry", "runs.purge", "runs.delete", searchKind}
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

// Finds reports whether the operation searches runs and changes none.
func (o operationView) Finds() bool { return o.Kind == searchKind }

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
func (o operationView) Conditions() []string { return conditions.Of(o.Request) }

// Changes returns the fields of definitions that the operation sets.
func (o operationView) Changes() []string { return conditions.Fields(o.Request.GetSet()) }

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
