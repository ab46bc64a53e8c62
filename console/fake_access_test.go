package console

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	oncePassword = "the-password-that-is-shown-once"
	onceToken    = "wwk_the-token-that-is-shown-once"
	onceJoin     = "wwj_the-join-token-that-is-shown-once"
)

// fakeAccess is the part of the fake with principals and the audit log. fakeAPI.mu guards it.
type fakeAccess struct {
	apiv1.UnimplementedAccessServer
	apiv1.UnimplementedAuditServer
	apiv1.UnimplementedMachinesServer

	may        []string // the permissions of the good token in its scope; nil: the API does not tell them
	principals []*apiv1.Principal
	bindings   []*apiv1.Binding
	tokens     []*apiv1.Token
	sessions   []*apiv1.Session
	events     []*apiv1.AuditEvent
	auditAsked *apiv1.ListAuditEventsRequest // the last one
	limits     *apiv1.AppLimits
	pause      *apiv1.AppPause
	machines   []*apiv1.Certificate
	joins      []*apiv1.JoinToken
	plain      bool // the server serves without TLS
}

func (f *fakeAPI) populateAccess(ts func(time.Duration) *timestamppb.Timestamp) {
	f.bindings = []*apiv1.Binding{
		{Id: "bnd-1", Principal: "ada", Role: "developer", Scope: "app:shop", CreatedAt: ts(time.Hour), CreatedBy: "root"},
		{Id: "bnd-2", Principal: "ci", Role: "viewer", Scope: "app-prefix:shop-", ExpiresAt: ts(-73 * time.Hour), CreatedAt: ts(time.Hour), CreatedBy: evil},
	}
	f.principals = []*apiv1.Principal{
		{Principal: "legacy-admin", Kind: "user", BuiltIn: true},
		{Principal: "eve", Kind: "user", Provider: "https://id.example"},
		{Principal: "ada", Kind: "user", Bindings: f.bindings[:1], CreatedAt: ts(time.Hour), CreatedBy: "root"},
		{Principal: "bob" + evil, Kind: "user", Disabled: true, CreatedAt: ts(2 * time.Hour)},
		{Principal: "ci", Kind: "service", Bindings: f.bindings[1:], CreatedAt: ts(time.Hour)},
	}
	f.tokens = []*apiv1.Token{
		{Id: "tok-1", Principal: "ci", Role: "deployer", Scope: "app:shop", ExpiresAt: ts(-90 * 24 * time.Hour), UsedAt: ts(time.Hour), FormerUntil: ts(-2 * time.Hour)},
		{Id: "tok-2", Principal: "old" + evil, Role: "admin", Scope: "cluster", ExpiresAt: ts(time.Hour)},
		{Id: "tok-3", Principal: "prometheus", Role: "scraper", Scope: "cluster"},
	}
	f.sessions = []*apiv1.Session{
		{Id: "ses-1", Principal: "ada", Address: "10.0.3.7", Program: "console", CreatedAt: ts(time.Hour), ExpiresAt: ts(-11 * time.Hour)},
		{Id: "ses-2", Principal: "bob" + evil, Address: "10.0.3.9", Program: "cli" + evil, CreatedAt: ts(time.Minute), ExpiresAt: ts(-12 * time.Hour)},
	}
	f.events = []*apiv1.AuditEvent{
		{Time: ts(time.Minute), Code: "job.changed", Actor: "ada", Kind: "user", App: "shop", Object: "hello", Outcome: "ok", Before: "revision 2", After: "revision 3", Count: 1, Partition: "main", Sequence: 9, Message: "a note " + evil, Address: "10.0.3.7"},
		{Time: ts(2 * time.Minute), Code: "call.denied", Actor: "mallory" + evil, Token: "tok-9", Object: "DeleteJob", Outcome: "denied", Count: 1234, Partition: "main", Sequence: 8, Address: "192.0.2.1"},
		{Time: ts(3 * time.Minute), Code: "session.failed", Actor: "bob", Outcome: "failed", Count: 5, Partition: "main", Sequence: 7},
	}
}

// asked1 returns the last request of a type.
func asked1[T proto.Message](t interface{ Fatalf(string, ...any) }, f *fakeAPI) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range slices.Backward(f.asked) {
		if found, ok := m.(T); ok {
			return found
		}
	}
	var none T
	t.Fatalf("the API got no %T", none)
	return none
}

func (f *fakeAPI) WhoAmI(context.Context, *apiv1.WhoAmIRequest) (*apiv1.Principal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := &apiv1.Principal{Principal: "ada", Kind: "user", Token: f.session, Bindings: []*apiv1.Binding{{Role: "operator", Scope: cmp.Or(f.scope, "cluster"), Permissions: f.may}}}
	switch {
	case f.noRole:
		p.Bindings = nil
	case f.denied == "jobs.read":
		p.Permissions = []string{"metrics.read"}
	default:
		p.Permissions = []string{"jobs.read"}
	}
	p.Provider = f.provider
	return p, nil
}

func (f *fakeAPI) ListRoles(context.Context, *apiv1.ListRolesRequest) (*apiv1.ListRolesResponse, error) {
	return &apiv1.ListRolesResponse{Roles: []*apiv1.Role{
		{Name: "viewer", Permissions: []string{"jobs.read", "runs.read"}},
		{Name: "operator"},
		{Name: "developer"},
		{Name: "maintainer"},
		{Name: "admin"},
		{Name: "auditor"},
		{Name: "deployer"},
		{Name: "producer"},
		{Name: "scraper", Permissions: []string{"metrics.read"}},
	}}, nil
}

func (f *fakeAPI) ListPrincipals(context.Context, *apiv1.ListPrincipalsRequest) (*apiv1.ListPrincipalsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &apiv1.ListPrincipalsResponse{Principals: slices.Clone(f.principals)}, nil
}

func (f *fakeAPI) CreateUser(_ context.Context, r *apiv1.CreateUserRequest) (*apiv1.UserPassword, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Name == "ada" {
		return nil, status.Error(codes.AlreadyExists, "there is a user with the name ada: choose another one")
	}
	f.principals = append(f.principals, &apiv1.Principal{Principal: r.Name, Kind: "user", CreatedAt: timestamppb.Now()})
	return &apiv1.UserPassword{Name: r.Name, Password: oncePassword}, nil
}

func (f *fakeAPI) ResetPassword(_ context.Context, r *apiv1.ResetPasswordRequest) (*apiv1.UserPassword, error) {
	return &apiv1.UserPassword{Name: r.Name, Password: oncePassword}, nil
}

func (f *fakeAPI) DisableUser(_ context.Context, r *apiv1.DisableUserRequest) (*apiv1.Principal, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, p := range f.principals {
		if p.Principal == r.Name {
			f.principals[i] = proto.CloneOf(p)
			f.principals[i].Disabled = r.Disabled
			return f.principals[i], nil
		}
	}
	return nil, status.Error(codes.NotFound, "there is no user of that name")
}

func (f *fakeAPI) ListBindings(context.Context, *apiv1.ListBindingsRequest) (*apiv1.ListBindingsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &apiv1.ListBindingsResponse{Bindings: slices.Clone(f.bindings)}, nil
}

func (f *fakeAPI) AddBinding(_ context.Context, r *apiv1.AddBindingRequest) (*apiv1.Binding, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Role == "admin" {
		return nil, status.Error(codes.PermissionDenied, "ada may not give the role admin in "+r.Scope)
	}
	b := &apiv1.Binding{Id: "bnd-9", Principal: r.Principal, Role: r.Role, Scope: r.Scope, ExpiresAt: r.ExpiresAt}
	f.bindings = append(f.bindings, b)
	return b, nil
}

func (f *fakeAPI) RemoveBinding(_ context.Context, r *apiv1.RemoveBindingRequest) (*apiv1.RemoveBindingResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bindings = slices.DeleteFunc(slices.Clone(f.bindings), func(b *apiv1.Binding) bool { return b.Id == r.Id })
	return &apiv1.RemoveBindingResponse{}, nil
}

func (f *fakeAPI) ListTokens(context.Context, *apiv1.ListTokensRequest) (*apiv1.ListTokensResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &apiv1.ListTokensResponse{Tokens: slices.Clone(f.tokens)}, nil
}

func (f *fakeAPI) CreateToken(_ context.Context, r *apiv1.CreateTokenRequest) (*apiv1.Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Ttl == "soon" {
		return nil, status.Error(codes.InvalidArgument, "the ttl is no duration: write 90d or 12h")
	}
	t := &apiv1.Token{Id: "tok-new", Principal: r.Name, Role: r.Role, Scope: r.Scope}
	f.tokens = append(f.tokens, t)
	t = proto.CloneOf(t)
	t.Token = onceToken
	return t, nil
}

func (f *fakeAPI) RotateToken(_ context.Context, r *apiv1.RotateTokenRequest) (*apiv1.Token, error) {
	if r.Keep == "40d" {
		return nil, status.Error(codes.InvalidArgument, "the former text stays valid for 30d at most")
	}
	return &apiv1.Token{Id: r.Id, Principal: "ci", Role: "deployer", Scope: "app:shop", Token: onceToken, FormerUntil: timestamppb.New(time.Now().Add(time.Hour))}, nil
}

func (f *fakeAPI) RevokeToken(_ context.Context, r *apiv1.RevokeTokenRequest) (*apiv1.RevokeTokenResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens = slices.DeleteFunc(slices.Clone(f.tokens), func(t *apiv1.Token) bool { return t.Id == r.Id })
	return &apiv1.RevokeTokenResponse{}, nil
}

func (f *fakeAPI) ListSessions(context.Context, *apiv1.ListSessionsRequest) (*apiv1.ListSessionsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &apiv1.ListSessionsResponse{Sessions: slices.Clone(f.fakeAccess.sessions)}, nil
}

func (f *fakeAPI) EndSession(_ context.Context, req *apiv1.EndSessionRequest) (*apiv1.EndSessionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = append(f.ended, req.Id)
	return &apiv1.EndSessionResponse{}, nil
}

func (f *fakeAPI) ListAuditEvents(_ context.Context, r *apiv1.ListAuditEventsRequest) (*apiv1.ListAuditEventsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.auditAsked = r
	answer := &apiv1.ListAuditEventsResponse{NextPageToken: "after&7"}
	for _, e := range f.events {
		if (r.Actor == "" || r.Actor == e.Actor) && r.PageToken == "" {
			answer.Events = append(answer.Events, e)
		}
	}
	return answer, nil
}

func (f *fakeAPI) VerifyAudit(context.Context, *apiv1.VerifyAuditRequest) (*apiv1.VerifyAuditResponse, error) {
	return &apiv1.VerifyAuditResponse{Chains: []*apiv1.AuditChain{
		{Partition: "main", Ok: true, Events: 9123, First: 1, Last: 9123, Head: "abcdef0123456789"},
		{Partition: "main.1", Events: 4, First: 1, Last: 7, BrokenAt: 5, Problem: "event 5 was changed " + evil},
	}}, nil
}

func (f *fakeAPI) GetApp(_ context.Context, r *apiv1.GetAppRequest) (*apiv1.App, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.limits
	if l == nil {
		l = &apiv1.AppLimits{Jobs: 2000000, QueuedRuns: 5000000, Bytes: 16 << 30, ModuleBytes: 4 << 30}
	}
	if r.Name == "billing" { // it has no limit in use and no pause
		return &apiv1.App{Name: r.Name, UpdatedAt: timestamppb.Now(), Limits: l}, nil
	}
	return &apiv1.App{Name: r.Name, Jobs: 1900000, Live: 12, AtHosts: 3, Bytes: 5 << 20, ModuleBytes: 1 << 30, Limits: l, Pause: f.pause}, nil
}

func (f *fakeAPI) PauseApp(_ context.Context, r *apiv1.PauseAppRequest) (*apiv1.App, error) {
	if r.Until != nil && r.Until.AsTime().Before(time.Now()) {
		return nil, status.Error(codes.InvalidArgument, "until has passed")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pause = &apiv1.AppPause{Reason: r.Reason, Until: r.Until, Since: timestamppb.Now(), By: "user:ann"}
	return &apiv1.App{Name: r.Name, Pause: f.pause}, nil
}

func (f *fakeAPI) ResumeApp(_ context.Context, r *apiv1.ResumeAppRequest) (*apiv1.App, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pause = nil
	return &apiv1.App{Name: r.Name}, nil
}

func (f *fakeAPI) SetAppLimits(_ context.Context, r *apiv1.SetAppLimitsRequest) (*apiv1.App, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits = r.Limits
	return &apiv1.App{Name: r.Name, Limits: r.Limits}, nil
}
