package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/methods"
	"github.com/wheelworkhq/wheelwork/job"
)

// Role is the set of permissions that a token gives.
type Role struct {
	Name        string
	permissions []string
}

var (
	// Admin is the role of people and their programs. It cannot act as a host or as a
	// server.
	Admin = Role{"admin", []string{"jobs.read", "jobs.write", "jobs.operate", "runs.read", "logs.read", "modules.read", "modules.write", "cluster.read", "cluster.operate", "cluster.backup", "queues.read", "queues.operate", "kv.read", "kv.write", "secrets.read", "secrets.write", "grants.write", "apps.write", "definitions.write", "revisions.read", reflect}}
	// Host is the role of hosts: they execute the handlers of all apps, and cannot
	// act as a server.
	Host = Role{"host", []string{"work", "execute", "jobs.read", "cluster.read", reflect}}
	// Member is the role of all processes of an installation without a separate token for
	// servers, whose token is accepted on one machine only. It is also the role of a
	// process in calls to itself.
	Member = Role{"member", append(slices.Clone(Host.permissions), "serve")}
	// Server is the role of servers towards each other and towards nameservers. They may
	// read all state of the installation, and make calls for the callers whose calls they
	// pass on.
	Server = Role{"server", append(slices.Clone(Member.permissions), "state", act)}
	// Worker is the role of programs that execute runs with functions of their own. They
	// get no modules, and nothing that modules are granted.
	Worker = Role{"worker", []string{"work", reflect}}
)

// Execute is the permission of hosts that run whatever apps define: modules, with the
// secrets and values granted to them, plugins and built-in handlers. A caller with it can
// receive the tasks of every app.
const Execute = "execute"

// reflect is the permission to read the definition of the API by gRPC reflection. Every
// role has it.
const reflect = "reflection.read"

// act is the permission to make calls for a principal that another server has
// authenticated, see [ActingHeader].
const act = "act"

// ActingHeader names the role of the original caller in a call that a server passes on.
// Only a server may send it: see [Guard.acting].
const ActingHeader = "wheelwork-acting"

func (r Role) may(permission string) bool { return slices.Contains(r.permissions, permission) }

const Public = "public"

// Guard decides which caller may call which method. The default is deny: a method without
// a permission is refused for every caller. It is safe for concurrent use; a check takes no
// lock.
type Guard struct {
	known  atomic.Pointer[keys] // replaced as a whole, and never changed
	change sync.Mutex           // orders the replacements of known
	// methods maps "/package.Service/Method" to its permission.
	methods map[string]string
}

// Token is a token that a guard accepts. One without a text is ignored.
type Token struct {
	Text string
	Role Role
}

// keys are the accepted tokens by their digest.
type keys map[[sha256.Size]byte]*key

// key is an accepted token. Its context ends when the token is no longer accepted with this
// role.
type key struct {
	role     Role
	accepted context.Context
	refuse   context.CancelFunc
}

func newKey(r Role) *key {
	ctx, cancel := context.WithCancel(context.Background())
	return &key{r, ctx, cancel}
}

// errRemoved is the end of a stream whose caller has lost its token.
var errRemoved = status.Error(codes.Unauthenticated, "the token of this stream is not accepted since the server has reloaded its tokens: send the new one")

func New() *Guard {
	g := &Guard{methods: map[string]string{
		"/grpc.health.v1.Health/Check": Public,
		"/grpc.health.v1.Health/Watch": Public,

		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      reflect,
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": reflect,
	}}
	g.known.Store(&keys{})
	for name, m := range methods.All() {
		g.methods[name] = m.Permission
	}
	return g
}

// Permission returns the permission that a method needs; "": no caller may call it.
func (g *Guard) Permission(method string) string { return g.methods[method] }

// Permissions returns all methods, as "/package.Service/Method", with their permissions.
func (g *Guard) Permissions() iter.Seq2[string, string] { return maps.All(g.methods) }

// Allow accepts a token with a role, in addition to the others.
func (g *Guard) Allow(token string, r Role) {
	g.change.Lock()
	defer g.change.Unlock()
	next := maps.Clone(*g.known.Load())
	next.add(Token{token, r}, nil)
	g.swap(next)
}

// Replace accepts these tokens and no others, from the next request on. Open streams of callers
// whose token keeps its role continue. The others end, see [Guard.Bound].
func (g *Guard) Replace(tokens ...Token) {
	g.change.Lock()
	defer g.change.Unlock()
	next := keys{}
	for _, t := range tokens {
		next.add(t, *g.known.Load())
	}
	g.swap(next)
}

// add accepts a token. It takes over the key that the token has in old.
func (k keys) add(t Token, old keys) {
	if t.Text == "" {
		return
	}
	sum := sha256.Sum256([]byte(t.Text))
	if had := old[sum]; had != nil && had.role.Name == t.Role.Name {
		k[sum] = had
		return
	}
	k[sum] = newKey(t.Role)
}

// swap puts next in effect. The caller holds change.
func (g *Guard) swap(next keys) {
	for sum, old := range *g.known.Swap(&next) {
		if next[sum] != old {
			old.refuse()
		}
	}
}

// Bound returns a context for a stream: ctx, which also ends when the token in the Authorization
// headers is no longer accepted with the role that it has now. A stream without a valid token
// keeps ctx. The interceptor [Guard.Stream] tells the caller the reason.
func (g *Guard) Bound(ctx context.Context, authorization []string) context.Context {
	if len(authorization) != 1 {
		return ctx
	}
	token, _ := strings.CutPrefix(authorization[0], "Bearer ")
	k := g.keyOf(token)
	if k == nil {
		return ctx
	}
	ctx, end := context.WithCancelCause(ctx)
	stop := context.AfterFunc(k.accepted, func() { end(errRemoved) })
	context.AfterFunc(ctx, func() { stop() })
	return ctx
}

// Writes reports whether a method may change the state of an app.
func (g *Guard) Writes(method string) bool {
	need := g.methods[method]
	return need != Public && need != "work" && !strings.HasSuffix(need, ".read")
}

func (g *Guard) Check(ctx context.Context, method string) error {
	_, err := g.Caller(ctx, method)
	return err
}

// Caller returns the role of the caller of a method, or an error if it may not call the
// method.
func (g *Guard) Caller(ctx context.Context, method string) (Role, error) {
	need := g.methods[method]
	switch need {
	case "":
		return Role{}, status.Errorf(codes.PermissionDenied, "method %s is not open to anyone", method)
	case Public:
		return Role{}, nil
	}
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return Role{}, status.Error(codes.Unauthenticated, "a token is needed: "+rightToken(need))
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if !ok {
		return Role{}, status.Error(codes.Unauthenticated, "the authorization is not a bearer token")
	}
	r, ok := g.RoleOf(token)
	if !ok {
		return Role{}, status.Error(codes.Unauthenticated, "the token was refused: it is not one of this server; "+rightToken(need))
	}
	r, err := g.acting(ctx, r)
	if err != nil {
		return Role{}, err
	}
	if !r.may(need) {
		return Role{}, status.Errorf(codes.PermissionDenied, "the token's role %s lacks the permission %s: %s", r.Name, need, rightToken(need))
	}
	return r, nil
}

// rightToken tells a caller where the token for a permission is.
func rightToken(need string) string {
	switch need {
	case "work":
		return "a worker uses the one in the file host-token of the server's data directory, and a host the token of the installation's hosts (--token-file)"
	case Execute:
		return "a host uses the token of the installation's hosts (--token-file)"
	case "serve", "state", act:
		return "servers use the token of the installation's servers (--server-token-file)"
	}
	return "people and their programs use the one in the file token of the server's data directory"
}

// acting returns the role with which a call is made: the caller's own role or, if a
// server passes the call on, the role that this server found for the original caller.
func (g *Guard) acting(ctx context.Context, own Role) (Role, error) {
	values := metadata.ValueFromIncomingContext(ctx, ActingHeader)
	if len(values) == 0 {
		return own, nil
	}
	if !own.may(act) {
		return Role{}, status.Errorf(codes.PermissionDenied, "the token's role %s may not make calls for others: only servers do (%s)", own.Name, ActingHeader)
	}
	for _, r := range []Role{Admin, Host, Member, Server, Worker} {
		if len(values) == 1 && r.Name == values[0] {
			return r, nil
		}
	}
	return Role{}, status.Errorf(codes.PermissionDenied, "a server passed on a call of the role %.40q, which this version does not know: bring both servers to the same version", values[0])
}

// RoleOf returns the role of a token.
func (g *Guard) RoleOf(token string) (Role, bool) {
	if k := g.keyOf(token); k != nil {
		return k.role, true
	}
	return Role{}, false
}

// keyOf returns the key of a token; nil: it is not accepted. It compares the token with every
// accepted one in constant time.
func (g *Guard) keyOf(token string) (found *key) {
	sum := sha256.Sum256([]byte(token))
	for known, k := range *g.known.Load() {
		if subtle.ConstantTimeCompare(known[:], sum[:]) == 1 {
			found = k
		}
	}
	return found
}

func (g *Guard) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := g.Check(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (g *Guard) Stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	r, err := g.Caller(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if info.FullMethod == apiv1.Worker_Work_FullMethodName && !r.may(Execute) {
		s = nativeOnly{s, r}
	}
	err = next(srv, s)
	if errors.Is(context.Cause(s.Context()), errRemoved) {
		return errRemoved
	}
	return err
}

// nativeOnly is the stream of a worker that may execute only functions of its own. It
// refuses a worker that claims to run anything else, so the server sends it nothing else.
type nativeOnly struct {
	grpc.ServerStream
	Role Role
}

func (s nativeOnly) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	up, ok := m.(*apiv1.WorkUp)
	if !ok {
		return status.Errorf(codes.Internal, "a worker sent a %T", m)
	}
	claims := append(slices.Clone(up.GetHello().GetAbi()), up.GetAbilities().GetAbi()...)
	if up.Hello != nil && len(up.Hello.Abi) == 0 {
		claims = []string{"modules"} // a hello without an ABI claims modules
	}
	for _, abi := range claims {
		if e, err := job.ParseExecutor(abi); err != nil || e.Kind != job.Native {
			return status.Errorf(codes.PermissionDenied, "the token's role %s lacks the permission %s: it is for workers that run functions of their own (native:NAME), and this host offers %.60s; a host joins with the token that the processes of the installation share (--token-file)", s.Role.Name, Execute, abi)
		}
	}
	return nil
}

// Admit returns an error if the body of a request to the API must not be read, because the
// credential in its Authorization headers is not valid.
func (g *Guard) Admit(ctx context.Context, authorization []string) error {
	_, err := g.Caller(metadata.NewIncomingContext(ctx, metadata.MD{"authorization": authorization}), anyMethod)
	if status.Code(err) == codes.PermissionDenied {
		return nil // the credential is known; gRPC reports which permission is missing
	}
	return err
}

// anyMethod is some method that needs a credential.
const anyMethod = "/wheelwork.v1.Jobs/ListJobs"
