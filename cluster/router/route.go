package router

import (
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// slotOf returns the slot that a request is about, according to its routing. An invalid
// name or id is left to the service, which refuses it.
func slotOf(by apiv1.Route, req any) (slot uint8, ok bool) {
	switch by {
	case apiv1.Route_ROUTE_JOB:
		name := ""
		switch q := req.(type) {
		case interface{ GetJob() *apiv1.Job }:
			name = q.GetJob().GetName()
		case interface{ GetName() string }:
			name = q.GetName()
		}
		return job.SlotOf(name), name != ""
	case apiv1.Route_ROUTE_DEFINITION:
		if q, is := req.(interface{ GetKind() string }); is && q.GetKind() == job.KindJob {
			name := req.(interface{ GetName() string }).GetName()
			return job.SlotOf(name), name != ""
		}
	case apiv1.Route_ROUTE_RUN:
		if q, is := req.(interface{ GetId() string }); is {
			id, err := job.ParseRunID(q.GetId())
			return id.Slot(), err == nil
		}
	case apiv1.Route_ROUTE_CALLER:
		if q, is := req.(interface{ GetCaller() *apiv1.Caller }); is {
			run := q.GetCaller().GetRun()
			if len(run) == len(job.RunID{}) {
				return job.RunID(run).Slot(), true
			}
		}
	}
	return 0, false
}

// slotOfCommand returns the slot of a command's job.
func slotOfCommand(c *apiv1.Command) uint8 {
	switch k := c.GetKind().(type) {
	case *apiv1.Command_Apply:
		return job.SlotOf(k.Apply.GetName())
	case *apiv1.Command_Delete:
		return job.SlotOf(k.Delete.GetName())
	case *apiv1.Command_Trigger:
		return job.SlotOf(k.Trigger.GetName())
	}
	return job.ModuleSlot
}

// pathOf splits the full name of a method into its service and its own name.
func pathOf(method string) (service, name string) {
	service, name, _ = strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return service, name
}
