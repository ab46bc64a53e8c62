package access

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wheelworkhq/wheelwork/access/authority"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// The kinds of principals.
const (
	KindUser    = "user"    // a person
	KindService = "service" // a program
	KindGroup   = "group"   // the people in a group of an OpenID provider; it calls nothing itself
	KindHost    = "host"    // a process that executes runs
	KindServer  = "server"  // a server, a nameserver, or a process with the token of all of them
)

// Principal is an authenticated caller. It does not change.
type Principal struct {
	Name     string
	Kind     string
	Token    string   // the id of its token; "": the token is in a file of the server
	Bindings Bindings // of people and programs
	// Process is the role of a process of the installation, which holds in all apps. The zero
	// value is that of people and programs.
	Process Role
	// Machine is what the certificate of the caller says; nil: it has none.
	Machine *authority.Machine
	// Address is that of a client whose call another server passed on; "": the client calls this
	// server.
	Address string

	called  string        // of a machine: its name for people
	session *session      // of a user that has signed in
	usedMs  *atomic.Int64 // of an issued token: when its use was noted last, in Unix ms
}

// session is the part of a session that a guard needs.
type session struct {
	ends     time.Time
	provider string      // the issuer of the provider at which the user signs in; "": with a password
	told     atomic.Bool // its use was reported since its end moved last
}

// AddressOf returns the address of the client that makes a call, without its port; "": not known. The
// HTTP API and the console call the server over a connection within the process, and name their
// client in [ClientHeader].
func (p *Principal) AddressOf(ctx context.Context) string {
	if p.Address != "" {
		return p.Address
	}
	from, ok := peer.FromContext(ctx)
	if !ok || from.Addr == nil {
		return ""
	}
	if tcp, err := netip.ParseAddrPort(from.Addr.String()); err == nil {
		return tcp.Addr().Unmap().String()
	}
	if from.Addr.Network() != "bufconn" {
		return ""
	}
	if via := metadata.ValueFromIncomingContext(ctx, ClientHeader); len(via) == 1 {
		return via[0]
	}
	return ""
}

// At returns the principal with the address of the client that makes a call, for calls that are made
// for it after that one.
func (p *Principal) At(ctx context.Context) *Principal {
	at := *p
	at.Address = p.AddressOf(ctx)
	return &at
}

// ClientHeader has the address of the client for which the HTTP API calls the server in its own
// process. On other connections it is ignored.
const ClientHeader = "wheelwork-client"

// builtIn returns the principal of a token in a file of the server.
func builtIn(r Role) *Principal {
	switch r.Name {
	case Admin.Name:
		return &Principal{Name: legacyAdmin, Kind: KindUser, Bindings: Bindings{{Role: RoleAdmin, Scope: Scope{Cluster: true}}}}
	case Host.Name, Worker.Name:
		return &Principal{Name: legacyHost, Kind: KindHost, Process: r}
	}
	return &Principal{Name: legacyServer, Kind: KindServer, Process: r}
}

// May reports whether the principal has a permission in an app now. An app of "" is what belongs
// to no app.
func (p *Principal) May(permission, app string) bool {
	return p.Process.may(permission) && p.serves(app) || p.Bindings.May(permission, app, time.Now())
}

// serves reports whether the certificate of a host lets it work for an app. An app of "" is what belongs to
// no app.
func (p *Principal) serves(app string) bool {
	return p.Machine == nil || app == "" || len(p.Machine.Apps) == 0 || slices.Contains(p.Machine.Apps, app)
}

// MayAnywhere reports whether the principal has a permission in some app now.
func (p *Principal) MayAnywhere(permission string) bool {
	return p.Process.may(permission) || p.Bindings.MayAnywhere(permission, time.Now())
}

// Role returns the name of the principal's role: that of a process, or that of the only role that a
// person or a program has, and "" if it has several.
func (p *Principal) Role() string {
	name := p.Process.Name
	for _, b := range p.Bindings {
		if name != "" && name != b.Role {
			return ""
		}
		name = b.Role
	}
	return name
}

// Author returns the name with which the principal signs changes: its own, or the role of a token
// in a file of the server.
func (p *Principal) Author() string {
	if p.Token == "" && p.Machine == nil {
		return p.Role()
	}
	return p.Name
}

// Permissions returns the permissions that the principal has in some app now, sorted.
func (p *Principal) Permissions() []string {
	all := slices.Clone(p.Process.permissions)
	for _, b := range p.Bindings {
		if b.holds(time.Now()) {
			all = append(all, roles[b.Role]...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Message returns the principal as the API shows it to itself: with the permissions of each binding,
// so that a client knows where the principal has them.
func (p *Principal) Message() *apiv1.Principal {
	all := p.bindings()
	for _, b := range all {
		of := roles[b.Role]
		if p.Process.Name != "" {
			of = p.Process.permissions
		}
		b.Permissions = slices.Sorted(slices.Values(of))
	}
	m := &apiv1.Principal{Principal: p.Name, Kind: p.Kind, Token: p.Token, Bindings: all, Permissions: p.Permissions()}
	if p.session != nil {
		m.Provider = p.session.provider
	}
	return m
}

// bindings returns the bindings that hold now, as the API shows them. A process has its role in
// the cluster.
func (p *Principal) bindings() []*apiv1.Binding {
	var all []*apiv1.Binding
	if p.Process.Name != "" {
		all = append(all, &apiv1.Binding{Role: p.Process.Name, Scope: clusterScope})
	}
	for _, b := range p.Bindings {
		if b.holds(time.Now()) {
			all = append(all, b.message())
		}
	}
	return all
}

func (b Binding) message() *apiv1.Binding {
	m := &apiv1.Binding{Role: b.Role, Scope: b.Scope.String()}
	if !b.Expires.IsZero() {
		m.ExpiresAt = timestamppb.New(b.Expires)
	}
	return m
}

type principalKey struct{}

// With returns a context whose calls are made by a principal.
func With(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// Caller returns the principal that makes the call of a context; nil: the server itself.
func Caller(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

// WhoAmI returns the caller of a context as the API shows it.
func WhoAmI(ctx context.Context) (*apiv1.Principal, error) {
	p := Caller(ctx)
	if p == nil {
		return nil, status.Error(codes.Unauthenticated, "the call has no principal")
	}
	return p.Message(), nil
}

// Roles returns the roles of people and programs as the API shows them.
func Roles() *apiv1.ListRolesResponse {
	all := &apiv1.ListRolesResponse{}
	for _, name := range roleOrder {
		all.Roles = append(all.Roles, &apiv1.Role{Name: name, Permissions: slices.Sorted(slices.Values(roles[name]))})
	}
	return all
}

// Sees returns a filter for lists: whether the caller of a context has a permission in an app. The
// server itself sees everything.
func Sees(ctx context.Context, permission string) func(app string) bool {
	p := Caller(ctx)
	return func(app string) bool { return p == nil || p.May(permission, app) }
}
