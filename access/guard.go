package access

import (
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/access/audit"
	"github.com/wheelworkhq/wheelwork/access/authority"
	"github.com/wheelworkhq/wheelwork/internal/methods"
)

// Role is the set of permissions of a token in a file of the server.
type Role struct {
	Name        string
	permissions []string
}

var (
	// Admin is the role of people and their programs. It cannot act as a host or as a
	// server.
	Admin = Role{RoleAdmin, roles[RoleAdmin]}
	// Host is the role of hosts: they execute the handlers of all apps, and cannot
	// act as a server.
	Host = Role{"host", []string{"work", Execute, "jobs.read", "cluster.read", "metrics.read"}}
	// Member is the role of all processes of an installation without a separate token for
	// servers, whose token is accepted on one machine only. It is also the role of a
	// process in calls to itself.
	Member = Role{"member", append(slices.Clone(Host.permissions), "serve", "sessions.use", "audit.anchor", "machines.enroll")}
	// Server is the role of servers towards each other and towards nameservers. They may
	// read all state of the installation, and make calls for the callers whose calls they
	// pass on.
	Server = Role{"server", append(slices.Clone(Member.permissions), "state", act)}
	// Setup is the role of a server that makes the first administrator for a visitor with its code.
	Setup = Role{"setup", []string{"setup"}}
	// Federation is the role of a server that signs in a person for the OpenID provider.
	Federation = Role{"federation", []string{"federate"}}
	// Acting is the role of a server in calls to itself for the callers of operations.
	Acting = Role{"acting", []string{act}}
	// Worker is the role of programs that execute runs with functions of their own. They
	// get no modules, and nothing that modules are granted.
	Worker = Role{"worker", []string{"work"}}
)

// Execute is the permission of hosts that run whatever apps define: modules, with the
// secrets and values granted to them, plugins and built-in handlers. A caller with it can
// receive the tasks of every app.
const Execute = "execute"

// Self is the permission that every principal has: to read its own name and roles, and the
// definition of the API by gRPC reflection.
const Self = "self"

// act is the permission to make calls for a principal that another server has
// authenticated, see [ActingHeader].
const act = "act"

func (r Role) may(permission string) bool { return slices.Contains(r.permissions, permission) }

// Public is the permission of methods that need no token.
const Public = "public"

// Guard decides which principal may call which method for which app. The default is deny: a
// method without a permission is refused for every caller. It is safe for concurrent use; a
// check takes no lock.
//
// It knows two kinds of tokens: those of files, which [Guard.Replace] and [Guard.Allow] set, and
// those that the server has issued, which [Guard.Issue] sets.
type Guard struct {
	// Refusals has the refused calls, for the audit log. Its owner takes them from time to time.
	Refusals audit.Refusals
	// Used is called with the id of a session or a token that was used, about once an hour. It must
	// not block. nil: it is not called. It is set before the first call.
	Used func(id string)

	streams streams
	known   atomic.Pointer[keys]            // replaced as a whole, and never changed
	servers atomic.Pointer[map[string]bool] // whether the server with an id was revoked; like known
	waiting atomic.Bool                     // the issued tokens are not known yet
	change  sync.Mutex                      // orders the replacements of known; guards the fields below
	swapped chan struct{}                   // closed by the next replacement; nil: nothing waits for it
	files   []Token
	issued  []Credential
	// recovery is the token of [Guard.Recover]; nil: none.
	recovery *Credential
	// methods has the methods of the API, and others of gRPC, by "/package.Service/Method".
	methods map[string]methods.Method
}

// Token is a token in a file of the server. One without a text is ignored.
type Token struct {
	Text string
	Role Role
}

// Credential is a token that the server has issued, and whose caller it proves.
type Credential struct {
	Digest  [sha256.Size]byte // of the token's text
	Until   time.Time         // when it ends; zero: never
	Of      *Principal
	Invalid string // why the token is refused; "": it is accepted
}

// keys are the known tokens by their digest. The text of a token is random, so the time of a look-up
// tells nothing about the digests of others.
type keys map[[sha256.Size]byte]*key

// key is a known token. Its context ends when the token is no longer accepted with these
// permissions.
type key struct {
	Credential
	accepted context.Context
	refuse   context.CancelFunc
}

func newKey(c Credential) *key {
	ctx, cancel := context.WithCancel(context.Background())
	return &key{c, ctx, cancel}
}

// same reports whether two credentials give the same permissions for the same time.
func (c *Credential) same(other *Credential) bool {
	a, b := c.Of, other.Of
	return c.Until.Equal(other.Until) && c.Invalid == other.Invalid && a.called == b.called && sameMachine(a.Machine, b.Machine) && a.Name == b.Name && a.Kind == b.Kind && a.Token == b.Token && a.Process.Name == b.Process.Name &&
		slices.EqualFunc(a.Bindings, b.Bindings, func(x, y Binding) bool {
			return x.Role == y.Role && x.Scope == y.Scope && x.Expires.Equal(y.Expires)
		})
}

// sameMachine reports whether two certificates say the same.
func sameMachine(a, b *authority.Machine) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Kind == b.Kind && a.ID == b.ID && slices.Equal(a.Apps, b.Apps) && maps.Equal(a.Labels, b.Labels) && slices.Equal(a.Executors, b.Executors)
}

// prolonged reports whether another credential differs in a later end alone.
func (c *Credential) prolonged(other *Credential) bool {
	earlier := *other
	earlier.Until = c.Until
	return c.same(&earlier) && !c.Until.IsZero() && (other.Until.IsZero() || other.Until.After(c.Until))
}

// ends returns the time of the first change of what the credential gives; zero: there is none.
func (c *Credential) ends(now time.Time) time.Time {
	first := c.Until
	for _, b := range c.Of.Bindings {
		if b.Expires.After(now) && (first.IsZero() || b.Expires.Before(first)) {
			first = b.Expires
		}
	}
	return first
}

// The ends of a stream whose caller has lost its token, or permissions.
var (
	errRemoved = status.Error(codes.Unauthenticated, "the token of this stream is no longer accepted, or its permissions have changed: connect again, if necessary with a new token")
	errExpired = status.Error(codes.Unauthenticated, "the token of this stream, or one of its permissions, has expired: connect again, if necessary with a new token")
)

// New returns a guard that accepts no token.
func New() *Guard {
	g := &Guard{methods: map[string]methods.Method{
		"/grpc.health.v1.Health/Check": {Permission: Public, Apps: methods.None},
		"/grpc.health.v1.Health/Watch": {Permission: Public, Apps: methods.None},

		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      {Permission: Self, Apps: methods.None},
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": {Permission: Self, Apps: methods.None},
	}}
	g.known.Store(&keys{})
	g.servers.Store(&map[string]bool{})
	maps.Insert(g.methods, methods.All())
	return g
}

// Permission returns the permission that a method needs; "": no caller may call it.
func (g *Guard) Permission(method string) string { return g.methods[method].Permission }

// Permissions returns all methods, as "/package.Service/Method", with their permissions.
func (g *Guard) Permissions() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, m := range g.methods {
			if !yield(name, m.Permission) {
				return
			}
		}
	}
}

// Writes reports whether a method may change the state of an app.
func (g *Guard) Writes(method string) bool {
	need := g.Permission(method)
	return need != Public && need != Self && need != "work" && !strings.HasSuffix(need, ".read")
}

// Allow accepts the token of a file, in addition to the others.
func (g *Guard) Allow(token string, r Role) {
	g.change.Lock()
	defer g.change.Unlock()
	g.files = append(slices.Clone(g.files), Token{token, r})
	g.swap()
}

// Replace accepts these tokens of files and no others, from the next request on. Open streams of
// callers whose token keeps its role continue. The others end, see [Guard.Bound].
func (g *Guard) Replace(tokens ...Token) {
	g.change.Lock()
	defer g.change.Unlock()
	g.files = slices.Clone(tokens)
	g.swap()
}

// Await makes the guard answer callers with an unknown token that the server has just started,
// until it learns of the issued tokens.
func (g *Guard) Await() { g.waiting.Store(true) }

// Issue accepts these issued tokens and no others, like [Guard.Replace] those of files.
func (g *Guard) Issue(all []Credential) {
	servers := map[string]bool{}
	for _, c := range all {
		if m := c.Of.Machine; m != nil && m.Kind == authority.Server {
			servers[m.ID] = c.Invalid != ""
		}
	}
	g.change.Lock()
	defer g.change.Unlock()
	g.issued = all
	g.servers.Store(&servers)
	g.swap()
	g.waiting.Store(false)
}

// Revoked reports whether the server with an id was revoked.
func (g *Guard) Revoked(id string) bool { return (*g.servers.Load())[id] }

// Recovery is the id of the token that [Guard.Recover] accepts, and the name of its principal.
const Recovery = "access:recovery"

// Recover also accepts a token of an administrator until a time. Its principal has a name that no
// other one can have. Its binding has no end, so that it can make a lasting administrator.
func (g *Guard) Recover(digest [sha256.Size]byte, until time.Time) {
	g.change.Lock()
	defer g.change.Unlock()
	g.recovery = &Credential{Digest: digest, Until: until, Of: &Principal{
		Name: Recovery, Kind: KindUser, Token: Recovery, Bindings: Bindings{{Role: RoleAdmin, Scope: Scope{Cluster: true}}}, usedMs: &atomic.Int64{},
	}}
	g.swap()
}

// swap puts the tokens in effect. The caller holds change.
func (g *Guard) swap() {
	old, next := *g.known.Load(), keys{}
	add := func(c Credential) {
		switch had := old[c.Digest]; {
		case had == nil:
			next[c.Digest] = newKey(c)
		case had.same(&c):
			next[c.Digest] = had
		case had.prolonged(&c): // its streams go on
			next[c.Digest] = &key{c, had.accepted, had.refuse}
		default:
			next[c.Digest] = newKey(c)
		}
	}
	for _, c := range g.issued {
		add(c)
	}
	if g.recovery != nil {
		add(*g.recovery)
	}
	for _, t := range g.files {
		if t.Text != "" {
			add(Credential{Digest: Digest(t.Text), Of: builtIn(t.Role)})
		}
	}
	g.known.Store(&next)
	if g.swapped != nil {
		close(g.swapped)
		g.swapped = nil
	}
	for digest, k := range old {
		if now := next[digest]; now == nil || now.accepted != k.accepted {
			k.refuse()
		}
	}
}

// learnTime bounds how long a server takes to know a token that another server of its cluster has issued.
const learnTime = 5 * time.Second

// learn waits until the guard knows a token that was issued a moment ago, so that the caller that gets it
// can use it here. Another server of a cluster may have issued it. The wait ends with ctx and after
// learnTime.
func (g *Guard) learn(ctx context.Context, token string) {
	ctx, cancel := context.WithTimeout(ctx, learnTime)
	defer cancel()
	for {
		g.change.Lock()
		if g.swapped == nil {
			g.swapped = make(chan struct{})
		}
		next := g.swapped
		g.change.Unlock()
		if _, err := g.Identify(token); err == nil {
			return
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// Bound returns a context for a stream: ctx, which also ends when the token in the Authorization
// headers, or the certificate of the client, is no longer accepted with the permissions that it has now. A
// stream without a valid credential keeps ctx. The interceptor [Guard.Stream] tells the caller the reason.
func (g *Guard) Bound(ctx context.Context, authorization []string) context.Context {
	k := g.keyOf(ctx, authorization)
	if k == nil {
		return ctx
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(k.accepted, func() { end(errRemoved) })
	context.AfterFunc(ctx, func() { stop() })
	g.expire(ctx, k, end)
	return ctx
}

// expire ends a stream when its credential ends. A credential that was prolonged meanwhile ends later.
func (g *Guard) expire(ctx context.Context, k *key, end context.CancelCauseFunc) {
	at := k.ends(time.Now())
	if at.IsZero() {
		return
	}
	timer := time.AfterFunc(time.Until(at), func() {
		now := (*g.known.Load())[k.Digest]
		if now != nil && now.accepted == k.accepted && at.Equal(k.Until) && now.Until.After(at) {
			g.expire(ctx, now, end)
			return
		}
		end(errExpired)
	})
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// Identify returns the principal of a token, or an error that says why the token is refused.
func (g *Guard) Identify(token string) (*Principal, error) {
	k := (*g.known.Load())[Digest(token)]
	switch {
	case k == nil && strings.HasPrefix(token, tokenPrefix):
		if err := CheckToken(token); err != nil {
			return nil, status.Errorf(codes.Unauthenticated, "the token was refused: %v", err)
		}
		if g.waiting.Load() {
			return nil, status.Error(codes.Unavailable, "this server has just started, and does not know the tokens yet: try again in a moment")
		}
		return nil, status.Error(codes.Unauthenticated, "the token was refused: it is not one of this installation, or it was revoked")
	case k == nil:
		return nil, status.Error(codes.Unauthenticated, "the token was refused: it is not one of this server")
	}
	if why := k.refusal(); why != "" {
		return nil, status.Errorf(codes.Unauthenticated, "the token was refused: %s", why)
	}
	return k.Of, nil
}

// Current returns a principal with the permissions that its token gives now, or an error if the token
// is no longer accepted. A principal whose token is in a file of a server, which may be another one,
// stays as it is.
func (g *Guard) Current(p *Principal) (*Principal, error) {
	if p.Token == "" {
		return p, nil
	}
	for _, k := range *g.known.Load() {
		if k.Of.Token != p.Token {
			continue
		}
		if why := k.refusal(); why != "" {
			return nil, status.Errorf(codes.Unauthenticated, "%s is no longer accepted: %s", p.title(), why)
		}
		now := *k.Of
		now.Address = p.Address
		return &now, nil
	}
	return nil, status.Errorf(codes.Unauthenticated, "%s is no longer accepted: its token was revoked", p.title())
}

// refusal returns why a known credential is refused now; "": it is accepted.
func (c *Credential) refusal() string {
	switch {
	case c.Invalid != "":
		return c.Invalid
	case c.Until.IsZero() || time.Now().Before(c.Until):
		return ""
	case c.Of.Machine != nil:
		return fmt.Sprintf("it has expired at %s; it is renewed by itself while a server can be reached", c.Until.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("it has expired at %s; rotate it, or make another one (wheelwork token)", c.Until.UTC().Format(time.RFC3339))
}

// Caller returns the principal that calls a method, by the token in the metadata of the call. It
// is nil for a method that needs no token. What the caller may do is not checked.
func (g *Guard) Caller(ctx context.Context, method string) (*Principal, error) {
	need := g.Permission(method)
	switch need {
	case "":
		return nil, status.Errorf(codes.PermissionDenied, "method %s is not open to anyone", method)
	case Public:
		return nil, nil
	}
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) == 0 {
		if cert := certificateOf(ctx); cert != nil {
			p, err := g.certified(cert)
			if err != nil {
				return nil, err
			}
			return acting(ctx, p)
		}
	}
	if len(values) != 1 {
		return nil, status.Error(codes.Unauthenticated, "a token is needed: "+rightToken(need))
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if !ok {
		return nil, status.Error(codes.Unauthenticated, "the authorization is not a bearer token")
	}
	p, err := g.Identify(token)
	if err != nil {
		if status.Code(err) == codes.Unauthenticated && !strings.HasPrefix(token, tokenPrefix) {
			return nil, status.Errorf(codes.Unauthenticated, "%s; %s", status.Convert(err).Message(), rightToken(need))
		}
		return nil, err
	}
	return acting(ctx, p)
}

// Check returns an error if the caller of a method may not call it for any app. The tap of the
// server calls it before a message is read.
func (g *Guard) Check(ctx context.Context, method string) error {
	p, err := g.admit(ctx, method)
	if err != nil {
		return g.refused(ctx, p, method, "", err)
	}
	return nil
}

// admit returns the principal that calls a method, and an error if it may not call it for any app.
func (g *Guard) admit(ctx context.Context, method string) (*Principal, error) {
	p, err := g.Caller(ctx, method)
	if p == nil || err != nil {
		return nil, err
	}
	return p, mayBegin(p, method, g.methods[method])
}

// Admit returns an error if the body of a request to the API must not be read, because the
// credential in its Authorization headers is not valid.
func (g *Guard) Admit(ctx context.Context, authorization []string) error {
	_, err := g.Caller(metadata.NewIncomingContext(ctx, metadata.MD{"authorization": authorization}), anyMethod)
	return err
}

// anyMethod is some method that needs a credential.
const anyMethod = "/wheelwork.v1.Jobs/ListJobs"

// Allows returns an error if the caller with these Authorization headers lacks a permission for
// what belongs to no app.
func (g *Guard) Allows(ctx context.Context, authorization []string, permission string) error {
	p, err := g.Caller(metadata.NewIncomingContext(ctx, metadata.MD{"authorization": authorization}), anyMethod)
	if err != nil || p.May(permission, "") {
		return err
	}
	return lacks(p, permission, "")
}
