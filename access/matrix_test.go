package access_test

import (
	"context"
	"crypto/rand"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/methods"
)

// The tests of this file compare the guard with tables that are written by hand, and not derived
// from the options of the methods or the permissions of the roles.

// The roles that may do something, by groups of the tables.
var (
	readers   = roles("viewer operator developer maintainer admin auditor deployer producer")
	watchers  = roles("viewer operator developer maintainer admin auditor deployer")
	operators = roles("operator developer maintainer admin")
	starters  = roles("operator developer maintainer admin producer")
	writers   = roles("developer maintainer admin deployer producer")
	definers  = roles("developer maintainer admin deployer")
	coders    = roles("developer maintainer admin")
	keepers   = roles("maintainer admin")
	auditors  = roles("maintainer admin auditor")
	admins    = roles("admin")
	everyone  = roles("viewer operator developer maintainer admin auditor deployer producer scraper")
	none      = roles("")
)

func roles(names string) []string { return strings.Fields(names) }

// allowed has the roles that may call each method of the API, and those of no role for the methods of
// hosts and servers.
var allowed = map[string][]string{
	"Jobs/GetJob": readers, "Jobs/ListJobs": readers, "Calendars/GetCalendar": readers, "Calendars/ListCalendars": readers,
	"Apps/ListApps": readers, "Apps/GetApp": readers, "Cluster/GetOverview": readers, "Nameserver/Route": readers,
	"Runs/GetRun": readers, "Runs/ListRuns": readers, "Runs/ExplainRun": readers, "Runs/WatchRun": readers,
	"Revisions/ListRevisions": watchers, "Revisions/GetRevision": watchers,
	"Modules/GetModule": watchers, "Modules/ListModules": watchers, "Modules/DownloadModule": watchers, "Modules/GetAlias": watchers,
	"Modules/ListAliases": watchers, "Modules/GetRollout": watchers, "ModuleAccess/GetGrants": watchers, "ModuleAccess/ListGrants": watchers,
	"Secrets/ListSecrets": watchers,
	"Cluster/ListHosts":   watchers, "Nameserver/ListServers": watchers, "Membership/GetCluster": watchers, "Backups/GetBackups": watchers,
	"Queues/GetQueues": watchers, "Queues/PeekMessages": watchers, "Queues/TailMessages": watchers, "Queues/VerifyLog": watchers,
	"Queues/ListDeadLetters": watchers, "Queues/GetDeadLetter": watchers,

	"Runs/ReadLog": operators, "Values/GetValue": operators, "Values/ListValues": operators, "Values/ListBuckets": operators,
	"Jobs/PauseJob": operators, "Jobs/ResumeJob": operators, "Jobs/SkipNext": operators, "Jobs/BackfillJob": operators, "Jobs/BulkJobs": operators,
	"Runs/CancelRun": operators, "Runs/TerminateRun": operators, "Runs/RetryRun": operators, "Runs/DeleteRun": writers, "Runs/BulkRuns": operators,
	"Queues/DropDeadLetters": operators, "Jobs/TriggerJob": starters,
	"Queues/EditDeadLetter": coders, "Queues/ReplayDeadLetters": coders,

	"Operations/ListOperations": readers, "Operations/ListAllOperations": readers, "Operations/GetOperation": readers,
	"Operations/StartOperation": operators, "Operations/CancelOperation": operators,

	"Jobs/ApplyJob": writers, "Jobs/CreateJob": writers, "Jobs/DeleteJob": writers,
	"Calendars/PutCalendar": definers, "Calendars/DeleteCalendar": definers, "ChangeSets/ApplyChangeSet": definers,
	"Modules/PushModule": definers, "Modules/SignModule": definers, "Modules/DeleteModule": definers, "Modules/CollectModules": definers,
	"Modules/TryScript": coders, "Values/PutValue": coders, "Values/DeleteValue": coders,

	"Alerts/ListAlerts": watchers, "Alerts/ListSilences": watchers, "Alerts/ListAlertRules": watchers, "Alerts/ListAlertDeliveries": watchers,
	"Alerts/ListAlertChannels": definers, "Alerts/PreviewAlert": definers, "Alerts/AcknowledgeAlert": operators, "Alerts/CreateSilence": operators, "Alerts/EndSilence": operators,
	"Alerts/TestAlertChannel": operators, "Apps/PauseApp": operators, "Apps/ResumeApp": operators, "Alerts/RetryAlertDelivery": operators,
	"Alerts/MarkError": operators, "Alerts/ListErrorMarks": watchers, "Alerts/ClearErrorMark": operators, "Events/ListEventSources": readers,

	"Modules/SetAlias": keepers, "Modules/DeleteAlias": keepers, "ModuleAccess/PutGrants": keepers, "Secrets/SetSecret": keepers,
	"Secrets/DeleteSecret": keepers, "Apps/PutApp": keepers, "Apps/DeleteApp": keepers,
	"Access/CreateToken": keepers, "Access/RotateToken": keepers, "Access/RevokeToken": keepers, "Access/AddBinding": keepers, "Access/RemoveBinding": keepers,
	"Access/ListTokens": auditors, "Access/ListBindings": auditors, "Access/ListPrincipals": auditors,
	"Audit/ListAuditEvents": auditors, "Audit/VerifyAudit": auditors, "Audit/ListAuditAnchors": auditors, "Audit/RemoveAuditAnchor": admins, "Audit/AnchorAudit": none,

	"Cluster/CordonHost": admins, "Cluster/UncordonHost": admins, "Membership/DrainServer": admins, "Membership/UndrainServer": admins,
	"Apps/SetAppLimits": admins, "Secrets/ResealSecrets": admins,
	"Membership/MoveUnit": admins, "Membership/SplitApp": admins, "Membership/MergeApp": admins, "Backups/Backup": admins, "Backups/RunBackup": admins,

	"Machines/CreateJoinToken": admins, "Machines/RevokeJoinToken": admins, "Machines/RevokeCertificate": admins, "Machines/RenameMachine": admins, "Machines/EnrollServer": none,
	"Machines/ListJoinTokens": auditors, "Machines/ListCertificates": auditors,

	"Access/CreateUser": keepers, "Access/DisableUser": keepers, "Access/ResetPassword": keepers,
	"Access/WhoAmI": everyone, "Access/ListSessions": everyone, "Access/EndSession": everyone, "Access/UseSession": none, "Access/Setup": none,
	"Access/Federate": none, "Access/ListRoles": everyone, "Access/ApproveLogin": everyone,

	"Backups/FetchState": none, "Membership/Forward": none, "Membership/TakeSlot": none, "Membership/CopyApp": none, "Membership/CopyOut": none,
	"Membership/Ask": none, "Nameserver/Join": none, "Nameserver/Watch": none, "Worker/Work": none, "Worker/FetchModule": none, "Worker/GetModuleProof": none,
	"Guest/GetCheckpoint": none, "Guest/SetCheckpoint": none, "Guest/GetEntry": none, "Guest/PutEntry": none, "Guest/DeleteEntry": none,
	"Guest/Enqueue": none, "Guest/Map": none, "Guest/GetSecret": none,
}

// ofCluster has the methods that are about no app: a role in an app does not suffice.
var ofCluster = map[string]bool{
	"Queues/GetQueues": true, "Queues/PeekMessages": true, "Queues/TailMessages": true, "Queues/VerifyLog": true, "Queues/ListDeadLetters": true,
	"Queues/GetDeadLetter": true, "Queues/DropDeadLetters": true, "Queues/EditDeadLetter": true, "Queues/ReplayDeadLetters": true,
	"Cluster/CordonHost": true, "Cluster/UncordonHost": true, "Membership/DrainServer": true, "Membership/UndrainServer": true,
	"Apps/SetAppLimits": true, "Membership/MoveUnit": true, "Backups/Backup": true, "Backups/RunBackup": true, "Backups/GetBackups": true, "Nameserver/ListServers": true, "Membership/GetCluster": true, "Audit/VerifyAudit": true, "Audit/ListAuditAnchors": true, "Audit/RemoveAuditAnchor": true, "Machines/CreateJoinToken": true, "Machines/RevokeJoinToken": true, "Machines/RevokeCertificate": true, "Machines/RenameMachine": true,
	"Machines/ListJoinTokens": true, "Machines/ListCertificates": true, "Access/CreateUser": true, "Access/DisableUser": true, "Access/ResetPassword": true,
}

// ofMany has the methods that a role in any app suffices for: their answers and changes are limited
// to what the caller may see and give.
var ofMany = map[string]bool{
	"Apps/ListApps": true, "Cluster/ListHosts": true, "Operations/ListAllOperations": true, "Access/WhoAmI": true,
	"Access/CreateToken": true, "Access/RotateToken": true, "Access/RevokeToken": true, "Access/AddBinding": true, "Access/RemoveBinding": true,
	"Access/ListTokens": true, "Access/ListBindings": true, "Access/ListPrincipals": true, "Audit/ListAuditEvents": true, "Access/ListSessions": true, "Access/EndSession": true,
	"Access/ApproveLogin": true, "Access/ListRoles": true,
}

// issuer makes tokens with a guard that accepts them.
type issuer struct {
	t     *testing.T
	state *access.State
	guard *access.Guard
	admin *access.Principal
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{t: t, state: access.NewState(), guard: access.New()}
	i.guard.Replace(access.Token{Text: "of a file", Role: access.Admin})
	var err error
	if i.admin, err = i.guard.Identify("of a file"); err != nil {
		t.Fatal(err)
	}
	return i
}

// token returns the text of a new token.
func (i *issuer) token(role, scope string) string {
	i.t.Helper()
	text, err := i.tryToken(i.admin, role, scope, "")
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

func (i *issuer) tryToken(by *access.Principal, role, scope, ttl string) (string, error) {
	changes, made, err := i.state.CreateToken(access.By{Principal: by, Now: time.Now(), Random: rand.Reader}, &apiv1.CreateTokenRequest{Name: "p-" + role, Role: role, Scope: scope, Ttl: ttl})
	if err != nil {
		return "", err
	}
	i.apply(changes)
	return made.Token, nil
}

func (i *issuer) apply(changes []access.Change) {
	for _, c := range changes {
		i.state.Apply(c)
	}
	i.guard.Issue(i.state.Credentials())
}

func (i *issuer) principal(token string) *access.Principal {
	i.t.Helper()
	p, err := i.guard.Identify(token)
	if err != nil {
		i.t.Fatal(err)
	}
	return p
}

// call calls a method with a request as a client with a token does, and returns the error of the guard.
func (i *issuer) call(token, method string, req proto.Message) error {
	i.t.Helper()
	ctx := metadata.NewIncomingContext(i.t.Context(), metadata.Pairs("authorization", "Bearer "+token))
	if err := i.guard.Check(ctx, method); err != nil {
		return err
	}
	d := methodOf(i.t, method)
	if !d.IsStreamingClient() && !d.IsStreamingServer() {
		_, err := i.guard.Unary(ctx, req, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return nil, nil })
		return err
	}
	s := &fakeStream{ctx: ctx, messages: []proto.Message{req}}
	return i.guard.Stream(nil, s, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, s grpc.ServerStream) error {
		m := dynamic(i.t, d.Input()).New().Interface()
		return s.RecvMsg(m)
	})
}

// fakeStream delivers messages, and stores the messages that are sent.
type fakeStream struct {
	grpc.ServerStream
	ctx      context.Context
	messages []proto.Message
	sent     []proto.Message
}

func (s *fakeStream) Context() context.Context { return s.ctx }

func (s *fakeStream) RecvMsg(m any) error {
	if len(s.messages) == 0 {
		return io.EOF
	}
	proto.Merge(m.(proto.Message), s.messages[0])
	s.messages = s.messages[1:]
	return nil
}

func (s *fakeStream) SendMsg(m any) error {
	s.sent = append(s.sent, m.(proto.Message))
	return nil
}

func methodOf(t *testing.T, method string) protoreflect.MethodDescriptor {
	t.Helper()
	name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(method, "/"), "/", "."))
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return d.(protoreflect.MethodDescriptor)
}

func dynamic(t *testing.T, d protoreflect.MessageDescriptor) protoreflect.MessageType {
	t.Helper()
	m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// about returns a request of a method about an app. It finds the field by the names that fields of
// apps have, and not by the option of the method.
func about(t *testing.T, method, app string) proto.Message {
	t.Helper()
	m := dynamic(t, methodOf(t, method).Input()).New()
	set := func(m protoreflect.Message, field string) bool {
		f := m.Descriptor().Fields().ByName(protoreflect.Name(field))
		if f == nil || f.Kind() != protoreflect.StringKind {
			return false
		}
		m.Set(f, protoreflect.ValueOfString(app))
		return true
	}
	if set(m, "app") {
		return m.Interface()
	}
	for _, holder := range []string{"job", "calendar", "app", "head", "grants", "caller"} {
		f := m.Descriptor().Fields().ByName(protoreflect.Name(holder))
		if f != nil && f.Message() != nil {
			if inner := m.Mutable(f).Message(); set(inner, "app") || set(inner, "name") {
				return m.Interface()
			}
		}
	}
	if strings.HasPrefix(method, "/wheelwork.v1.Apps/") {
		set(m, "name")
	}
	return m.Interface()
}

// TestMatrix calls each method with each role in each scope, for the caller's own app and for
// others.
func TestMatrix(t *testing.T) {
	i := newIssuer(t)
	scopes := map[string]func(app string) bool{
		"cluster":         func(string) bool { return true },
		"app:shop-1":      func(app string) bool { return app == "shop-1" },
		"app-prefix:shop": func(app string) bool { return strings.HasPrefix(app, "shop") },
	}
	seen := map[string]bool{}
	for method := range methods.All() {
		short := strings.TrimPrefix(method, "/wheelwork.v1.")
		switch short {
		case "Cluster/GetVersion", "Access/SignIn", "Events/PublishEvent", "Access/ClaimLogin", "Machines/Join", "Machines/RenewCertificate", "Producer/Produce": // public; see TestNested
			continue
		}
		seen[short] = true
		if allowed[short] == nil {
			t.Errorf("%s is in no table: who may call it?", short)
		}
		for _, role := range everyone {
			for scope, covers := range scopes {
				token := i.token(role, scope)
				for _, app := range []string{"shop-1", "shop-2", "bank", "default"} {
					want := slices.Contains(allowed[short], role) && (covers(app) && !ofCluster[short] || scope == "cluster" || ofMany[short])
					err := i.call(token, method, about(t, method, app))
					if got := err == nil; got != want || err != nil && status.Code(err) != codes.PermissionDenied {
						t.Errorf("%s as %s in %s about %s: %v, want allowed %t", short, role, scope, app, err, want)
					}
				}
				i.revokeAll()
			}
		}
		if err := i.call("wwk_nonsense", method, about(t, method, "shop-1")); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%s with an unknown token: %v", short, err)
		}
	}
	for short := range allowed {
		if !seen[short] {
			t.Errorf("the table has %s, which is no method", short)
		}
	}
}

// revokeAll removes all tokens.
func (i *issuer) revokeAll() {
	for _, x := range i.state.Tokens(i.admin, "", time.Now()) {
		changes, err := i.state.RevokeToken(access.By{Principal: i.admin, Now: time.Now()}, x.Id)
		if err != nil {
			i.t.Fatal(err)
		}
		i.apply(changes)
	}
}

// TestNested checks the requests that carry other operations: each needs the permission that it
// would need alone.
func TestNested(t *testing.T) {
	i := newIssuer(t)
	change := func(c *apiv1.Change) proto.Message {
		return &apiv1.ApplyChangeSetRequest{App: "shop", Changes: []*apiv1.Change{{Kind: &apiv1.Change_Job{Job: &apiv1.Job{}}}, c}}
	}
	remove := func(kind string) proto.Message {
		return change(&apiv1.Change{Kind: &apiv1.Change_Delete{Delete: &apiv1.Deletion{Kind: kind}}})
	}
	bulk := func(action string) proto.Message { return &apiv1.BulkJobsRequest{App: "shop", Action: action} }
	operation := func(kind string) proto.Message { return &apiv1.StartOperationRequest{App: "shop", Kind: kind} }
	for _, tt := range []struct {
		what, method string
		req          proto.Message
		want         []string
	}{
		{"an operation that cancels", apiv1.Operations_StartOperation_FullMethodName, operation("runs.cancel"), operators},
		{"an operation that retries", apiv1.Operations_StartOperation_FullMethodName, operation("runs.retry"), operators},
		{"an operation that pauses", apiv1.Operations_StartOperation_FullMethodName, operation("jobs.pause"), operators},
		{"an operation that triggers", apiv1.Operations_StartOperation_FullMethodName, operation("jobs.run"), starters},
		{"an operation that deletes runs", apiv1.Operations_StartOperation_FullMethodName, operation("runs.delete"), writers},
		{"an operation that deletes payloads", apiv1.Operations_StartOperation_FullMethodName, operation("runs.purge"), writers},
		{"an operation that deletes", apiv1.Operations_StartOperation_FullMethodName, operation("jobs.delete"), writers},
		{"an operation that sets fields", apiv1.Operations_StartOperation_FullMethodName, operation("jobs.set"), writers},
		{"an operation that selects by the input", apiv1.Operations_StartOperation_FullMethodName, &apiv1.StartOperationRequest{App: "shop", Kind: "runs.retry", Runs: &apiv1.ListRunsRequest{App: "bank", Input: "x"}}, operators},
		{"an operation that deletes by the output", apiv1.Operations_StartOperation_FullMethodName, &apiv1.StartOperationRequest{App: "shop", Kind: "runs.purge", Runs: &apiv1.ListRunsRequest{Output: "x"}}, coders},
		{"a list", apiv1.Runs_ListRuns_FullMethodName, &apiv1.ListRunsRequest{App: "shop", Job: "x"}, readers},
		{"a search by the input", apiv1.Runs_ListRuns_FullMethodName, &apiv1.ListRunsRequest{App: "shop", Input: "x"}, operators},
		{"a search by the output", apiv1.Runs_ListRuns_FullMethodName, &apiv1.ListRunsRequest{App: "shop", Output: "x"}, operators},
		{"a search by a value of the input", apiv1.Runs_ListRuns_FullMethodName, &apiv1.ListRunsRequest{App: "shop", InputValues: map[string]string{"a": "1"}}, operators},
		{"a search by a value of the output", apiv1.Runs_ListRuns_FullMethodName, &apiv1.ListRunsRequest{App: "shop", OutputValues: map[string]string{"a": ""}}, operators},
		{"an unknown operation", apiv1.Operations_StartOperation_FullMethodName, operation("of a newer version"), operators},
		{"a retry", apiv1.Runs_RetryRun_FullMethodName, &apiv1.RetryRunRequest{App: "shop", FromNode: "a", Host: "h"}, operators},
		{"a retry with another module", apiv1.Runs_RetryRun_FullMethodName, &apiv1.RetryRunRequest{App: "shop", Module: "m@2"}, roles("developer maintainer admin")},
		{"pause many", apiv1.Jobs_BulkJobs_FullMethodName, bulk("pause"), operators},
		{"resume many", apiv1.Jobs_BulkJobs_FullMethodName, bulk("resume"), operators},
		{"trigger many", apiv1.Jobs_BulkJobs_FullMethodName, bulk("trigger"), starters},
		{"delete many", apiv1.Jobs_BulkJobs_FullMethodName, bulk("delete"), writers},
		{"an unknown action", apiv1.Jobs_BulkJobs_FullMethodName, bulk("of a newer version"), operators},
		{"a job in a set", apiv1.ChangeSets_ApplyChangeSet_FullMethodName, change(&apiv1.Change{Kind: &apiv1.Change_Job{Job: &apiv1.Job{}}}), definers},
		{"a calendar in a set", apiv1.ChangeSets_ApplyChangeSet_FullMethodName, change(&apiv1.Change{Kind: &apiv1.Change_Calendar{Calendar: &apiv1.Calendar{}}}), definers},
		{"an alias in a set", apiv1.ChangeSets_ApplyChangeSet_FullMethodName, change(&apiv1.Change{Kind: &apiv1.Change_Alias{Alias: &apiv1.Alias{}}}), keepers},
		{"grants in a set", apiv1.ChangeSets_ApplyChangeSet_FullMethodName, change(&apiv1.Change{Kind: &apiv1.Change_Grants{Grants: &apiv1.ModuleGrants{}}}), keepers},
		{"settings in a set", apiv1.ChangeSets_ApplyChangeSet_FullMethodName, change(&apiv1.Change{Kind: &apiv1.Change_Settings{Settings: &apiv1.App{}}}), keepers},
		{"a deleted job in a set", apiv1.ChangeSets_ApplyChangeSet_FullMethodName, remove("job"), definers},
		{"a deleted alias in a set", apiv1.ChangeSets_ApplyChangeSet_FullMethodName, remove("alias"), keepers},
		{"deleted grants in a set", apiv1.ChangeSets_ApplyChangeSet_FullMethodName, remove("grants"), keepers},
		{"a checked set", apiv1.ChangeSets_ApplyChangeSet_FullMethodName, &apiv1.ApplyChangeSetRequest{App: "shop", DryRun: true, Changes: []*apiv1.Change{{Kind: &apiv1.Change_Grants{}}}}, keepers},
	} {
		for _, role := range everyone {
			for scope, covered := range map[string]bool{"app:shop": true, "app:bank": false, "app-prefix:sh": true, "cluster": true} {
				want := covered && slices.Contains(tt.want, role)
				if err := i.call(i.token(role, scope), tt.method, tt.req); (err == nil) != want {
					t.Errorf("%s as %s in %s: %v, want allowed %t", tt.what, role, scope, err, want)
				}
			}
			i.revokeAll()
		}
	}
}

// TestProduce sends commands of all kinds on one stream, for two apps. A refused one gets its own
// result, never reaches the server, and harms no other.
func TestProduce(t *testing.T) {
	i := newIssuer(t)
	for _, role := range everyone {
		token := i.token(role, "app:shop")
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token))
		may := map[string]bool{"apply": slices.Contains(writers, role), "delete": slices.Contains(writers, role), "trigger": slices.Contains(starters, role)}
		var messages []proto.Message
		var want [][]bool
		for n := range 3 {
			q := &apiv1.ProduceRequest{Number: uint64(n + 1)}
			var ok []bool
			for _, app := range []string{"shop", "bank", "", "shop"} {
				q.Commands = append(
					q.Commands, &apiv1.Command{Kind: &apiv1.Command_Apply{Apply: &apiv1.Job{App: app}}},
					&apiv1.Command{Kind: &apiv1.Command_Delete{Delete: &apiv1.DeleteJobRequest{App: app}}},
					&apiv1.Command{Kind: &apiv1.Command_Trigger{Trigger: &apiv1.TriggerJobRequest{App: app}}},
				)
				ok = append(ok, app == "shop" && may["apply"], app == "shop" && may["delete"], app == "shop" && may["trigger"])
			}
			if n == 1 { // between two messages with refusals
				q.Commands, ok = q.Commands[:3], ok[:3]
			}
			messages, want = append(messages, q), append(want, ok)
		}
		s := &fakeStream{ctx: ctx, messages: messages}
		var executed []*apiv1.Command
		err := i.guard.Stream(nil, s, &grpc.StreamServerInfo{FullMethod: apiv1.Producer_Produce_FullMethodName}, func(_ any, s grpc.ServerStream) error {
			var answers []*apiv1.ProduceResponse
			for {
				q := &apiv1.ProduceRequest{}
				if err := s.RecvMsg(q); err != nil {
					break
				}
				resp := &apiv1.ProduceResponse{Number: q.Number}
				for _, c := range q.Commands {
					r := &apiv1.CommandResult{Result: "done"}
					if c.Kind == nil {
						r = &apiv1.CommandResult{Code: int32(codes.InvalidArgument)}
					} else {
						executed = append(executed, c)
					}
					resp.Results = append(resp.Results, r)
				}
				answers = append(answers, resp)
			}
			for _, a := range answers {
				if err := s.SendMsg(a); err != nil {
					return err
				}
			}
			return nil
		})
		if begins := may["apply"] || may["trigger"]; !begins {
			if status.Code(err) != codes.PermissionDenied {
				t.Errorf("a stream of %s: %v", role, err)
			}
			continue
		}
		if err != nil || len(s.sent) != 3 {
			t.Fatalf("a stream of %s: %v, %d answers", role, err, len(s.sent))
		}
		n := 0
		for k, a := range s.sent {
			for j, r := range a.(*apiv1.ProduceResponse).Results {
				code := codes.PermissionDenied
				if want[k][j] {
					code = codes.OK
					n++
				}
				if codes.Code(r.Code) != code {
					t.Errorf("%s: message %d, command %d: %v", role, k+1, j, r)
				}
			}
		}
		if len(executed) != n {
			t.Errorf("%s: %d commands reached the server, want %d", role, len(executed), n)
		}
	}
}
