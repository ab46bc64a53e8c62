package audit

import (
	"fmt"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// calls has the methods whose changes are in no journal of a partition, and so have their event when
// the call has succeeded: the code, and the object of a request.
var calls = map[string]struct {
	code   string
	object func(req any) string
}{
	apiv1.Membership_DrainServer_FullMethodName:   {"cluster.drained", func(q any) string { return q.(*apiv1.DrainServerRequest).GetServer() }},
	apiv1.Membership_UndrainServer_FullMethodName: {"cluster.undrained", func(q any) string { return q.(*apiv1.UndrainServerRequest).GetServer() }},
	apiv1.Membership_MoveUnit_FullMethodName: {"cluster.moved", func(q any) string {
		return q.(*apiv1.MoveUnitRequest).GetUnit() + " to " + q.(*apiv1.MoveUnitRequest).GetServer()
	}},
	apiv1.Membership_SplitApp_FullMethodName:      {"cluster.split", func(q any) string { return q.(*apiv1.SplitAppRequest).GetApp() }},
	apiv1.Membership_MergeApp_FullMethodName:      {"cluster.merged", func(q any) string { return q.(*apiv1.MergeAppRequest).GetApp() }},
	apiv1.Backups_Backup_FullMethodName:           {"cluster.backup", func(any) string { return "" }},
	apiv1.Backups_RunBackup_FullMethodName:        {"cluster.backup", func(any) string { return "" }},
	apiv1.Queues_EditDeadLetter_FullMethodName:    {"queue.edited", func(q any) string { return q.(*apiv1.EditDeadLetterRequest).GetId() }},
	apiv1.Queues_ReplayDeadLetters_FullMethodName: {"queue.replayed", func(q any) string { return letters(q.(*apiv1.ReplayDeadLettersRequest).GetIds()) }},
	apiv1.Queues_DropDeadLetters_FullMethodName:   {"queue.dropped", func(q any) string { return letters(q.(*apiv1.DropDeadLettersRequest).GetIds()) }},
}

// letters names dead letters of a request.
func letters(ids []string) string {
	switch len(ids) {
	case 0:
		return "by filter"
	case 1:
		return ids[0]
	}
	return fmt.Sprintf("%d letters", len(ids))
}

// OfCall returns the event of a call that has succeeded. ok is false for a method whose changes have
// events of their own, or that changes nothing.
func OfCall(method string, req any) (e Row, ok bool) {
	c, ok := calls[method]
	if !ok {
		return e, false
	}
	e.Code = c.code
	if req != nil {
		e.Object = c.object(req)
	}
	if q, is := req.(interface{ GetApp() string }); is {
		e.App = q.GetApp()
	}
	return e, true
}
