package access

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/methods"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// This file says which permissions a request needs. Most need the one of their method in the app
// that they name. Those that carry others, as the commands of a producer or the changes of a
// set, need the permissions of each.

// defaultApp is the app of a request that names none.
const defaultApp = naming.DefaultApp

// mayBegin returns an error if a principal may call a method for no app at all.
func mayBegin(p *Principal, method string, m methods.Method) error {
	switch {
	case m.Permission == Self, p.MayAnywhere(m.Permission):
		return nil
	case m.Apps == methods.Each && p.MayAnywhere("jobs.trigger"):
		return nil
	case method == apiv1.Jobs_BulkJobs_FullMethodName && (p.MayAnywhere("jobs.trigger") || p.MayAnywhere("jobs.write")):
		return nil
	case method == apiv1.Operations_StartOperation_FullMethodName && (p.MayAnywhere("jobs.trigger") || p.MayAnywhere("jobs.write")):
		return nil
	case m.Apps == methods.None || m.Apps == methods.Unknown:
		return lacks(p, m.Permission, "")
	}
	return lacksEverywhere(p, m.Permission)
}

// may returns an error if a principal lacks a permission that a request needs. first is false for
// the later messages of a stream, which need not name the app again.
func may(p *Principal, method string, m methods.Method, req any, first bool) error {
	switch q := req.(type) {
	case *apiv1.BulkJobsRequest:
		return require(p, bulkPermission(q.Action), q.App)
	case *apiv1.StartOperationRequest:
		if err := maySearch(p, q.Runs, q.App); err != nil {
			return err
		}
		return require(p, operationPermission(q.Kind), q.App)
	case *apiv1.ListRunsRequest:
		if err := maySearch(p, q, q.App); err != nil {
			return err
		}
	case *apiv1.ApplyChangeSetRequest:
		return mayChange(p, q)
	case *apiv1.SetAppLimitsRequest: // an administrator of one app must not raise its limits
		if p.May(m.Permission, "") {
			return nil
		}
		return lacks(p, m.Permission, "")
	case *apiv1.ListRevisionsRequest:
		if err := mayReadKind(p, q.Kind, q.App); err != nil {
			return err
		}
	case *apiv1.GetRevisionRequest:
		if err := mayReadKind(p, q.Kind, q.App); err != nil {
			return err
		}
	case *apiv1.WatchRequest:
		if p.Machine != nil && q.HostId != "" && q.HostId != p.Machine.ID {
			return exceeds(p, "the host is %.100q", q.HostId)
		}
	case *apiv1.EditDeadLetterRequest, *apiv1.ReplayDeadLettersRequest:
		// A dead letter is a command of any kind and for any app.
		for _, permission := range []string{m.Permission, "jobs.write", "jobs.trigger"} {
			if !p.May(permission, "") {
				return lacks(p, permission, "")
			}
		}
		return nil
	case *apiv1.RetryRunRequest:
		if q.Module != "" { // it chooses code that the job does not name
			if err := require(p, "jobs.write", q.App); err != nil {
				return err
			}
		}
	case *apiv1.TryScriptRequest: // it brings code and executes it
		if err := require(p, m.Permission, q.App); err != nil {
			return err
		}
		return require(p, "jobs.trigger", q.App)
	}
	switch m.Apps {
	case methods.One:
		msg, ok := req.(proto.Message)
		if !ok {
			return status.Errorf(codes.Internal, "%s has a request of the type %T", method, req)
		}
		app := m.App(msg)
		if app == "" && !first {
			return nil
		}
		return require(p, m.Permission, app)
	case methods.None:
		if m.Permission == Self || p.May(m.Permission, "") {
			return nil
		}
		return lacks(p, m.Permission, "")
	case methods.Many: // the service leaves out what the caller may not see, and mayBegin has looked
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "method %s does not say which app it is about: it is not open to anyone", method)
}

// require returns an error if a principal lacks a permission in an app; "" is the default one.
func require(p *Principal, permission, app string) error {
	if app = cmp.Or(app, defaultApp); !p.May(permission, app) {
		return lacks(p, permission, app)
	}
	return nil
}

func bulkPermission(action string) string {
	switch action {
	case "trigger":
		return "jobs.trigger"
	case "delete":
		return "jobs.write"
	}
	return "jobs.operate"
}

// operationPermission returns the permission of the single change of an operation. The server refuses
// an unknown kind.
func operationPermission(kind string) string {
	switch kind {
	case "jobs.run":
		return "jobs.trigger"
	case "jobs.delete", "jobs.set", "runs.delete", "runs.purge":
		return "jobs.write"
	}
	return "jobs.operate"
}

// mayChange checks each change of a set: a set gives no permission that its changes would not have
// alone.
func mayChange(p *Principal, q *apiv1.ApplyChangeSetRequest) error {
	if err := require(p, "definitions.write", q.App); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, c := range q.Changes {
		kind := ""
		switch k := c.GetKind().(type) {
		case *apiv1.Change_Job:
			kind = "job"
		case *apiv1.Change_Calendar:
			kind = "calendar"
		case *apiv1.Change_Alias:
			kind = "alias"
		case *apiv1.Change_Grants:
			kind = "grants"
		case *apiv1.Change_Settings:
			kind = "app"
		case *apiv1.Change_AlertRule:
			kind = "alertrule"
		case *apiv1.Change_AlertChannel:
			kind = "alertchannel"
		case *apiv1.Change_EventSource:
			kind = "eventsource"
		case *apiv1.Change_Delete:
			kind = k.Delete.GetKind()
		}
		if seen[kind] {
			continue
		}
		seen[kind] = true
		if err := require(p, changePermission(kind), q.App); err != nil {
			return err
		}
	}
	return nil
}

// maySearch returns an error if a request selects runs by their payloads and a principal may not read payloads:
// the number of runs in the answer would disclose payloads.
func maySearch(p *Principal, q *apiv1.ListRunsRequest, app string) error {
	if q == nil || p.Process.Name != "" || !namesPayload(q.ProtoReflect()) {
		return nil
	}
	return require(p, "payload.read", app)
}

// mayReadKind returns an error if a principal lacks the permission that it needs beside revisions.read to see the
// revisions of a kind.
func mayReadKind(p *Principal, kind, app string) error {
	if kind == "alertchannel" { // its address may have a key
		return require(p, "channels.read", app)
	}
	return nil
}

// changePermission returns the permission to change a definition of a kind. The server refuses an
// unknown kind.
func changePermission(kind string) string {
	switch kind {
	case "job", "eventsource": // both decide what starts jobs
		return "jobs.write"
	case "alias":
		return "aliases.write"
	case "grants":
		return "grants.write"
	case "app":
		return "apps.write"
	case "alertrule":
		return "alerts.write"
	case "alertchannel": // it sends secrets of the app to an address of its author's choice
		return "channels.write"
	}
	return "definitions.write"
}

// lacks is the refusal of a principal that lacks a permission in an app; "" is what belongs to no
// app.
func lacks(p *Principal, permission, app string) error {
	where, scope := " in the cluster", "--cluster"
	if len(app) > naming.MaxName { // no app has this name, and the answer must not have the size of the request
		app = strings.ToValidUTF8(app[:naming.MaxName], "") + "…"
	}
	if app != "" {
		where, scope = " in the app "+app, "--app "+app
	}
	if p.Token == "" && p.Machine == nil { // its role is the same everywhere
		where = ""
	}
	return status.Errorf(codes.PermissionDenied, "%s lacks the permission %s%s: %s", p.title(), permission, where, advice(p, permission, scope))
}

// lacksEverywhere is the refusal of a principal that has a permission in no app.
func lacksEverywhere(p *Principal, permission string) error {
	return status.Errorf(codes.PermissionDenied, "%s lacks the permission %s: %s", p.title(), permission, advice(p, permission, "--app APP"))
}

// title returns the principal as errors name it.
func (p *Principal) title() string {
	if p.Machine != nil {
		return fmt.Sprintf("the %s %s", p.Machine.Kind, p.Name)
	}
	if p.Token == "" {
		return fmt.Sprintf("the token's role %s", cmp.Or(p.Role(), p.Name))
	}
	return fmt.Sprintf("%s (%s)", p.Name, p.Token)
}

// advice tells a caller how it comes by a permission.
func advice(p *Principal, permission, scope string) string {
	roles := givers(permission)
	if p.Machine != nil {
		return "its certificate does not give it; the join token decides what a machine may do"
	}
	if p.Token == "" || len(roles) == 0 {
		return rightToken(permission)
	}
	return fmt.Sprintf("the roles %s have it; a caller with access.write can add one: wheelwork binding add %s --role %s %s", strings.Join(roles, ", "), p.Name, fitting(roles), scope)
}

// fitting returns the role to propose of those that have a permission: the least one of people, or the
// least of all.
func fitting(roles []string) string {
	for _, role := range []string{RoleViewer, RoleOperator, RoleDeveloper, RoleMaintainer} {
		if slices.Contains(roles, role) {
			return role
		}
	}
	return roles[0]
}

// rightToken tells a caller where the token for a permission is.
func rightToken(need string) string {
	switch need {
	case "work":
		return "a worker uses the one in the file host-token of the server's data directory, and a host the token of the installation's hosts (--token-file)"
	case Execute:
		return "a host uses the token of the installation's hosts (--token-file)"
	case "setup":
		return "only the setup page calls it, whose address the server prints"
	case "federate":
		return "only the sign-in page of a server calls it, for the OpenID provider"
	case "serve", "state", "audit.anchor", "machines.enroll", act:
		return "servers use the token of the installation's servers (--server-token-file)"
	}
	return "people sign in with `wheelwork login`, programs use a token of `wheelwork token create`, and a server that accepts it has an administrator's in the file token of its data directory"
}
