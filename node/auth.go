package node

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// role is the set of permissions that a token gives.
type role struct {
	name        string
	permissions []string
}

var (
	// admin is the role of people and their programs. It cannot act as a host or as a
	// server.
	admin = role{"admin", []string{"jobs.read", "jobs.write", "jobs.operate", "runs.read", "logs.read", "modules.read", "modules.write", "cluster.read", "cluster.operate", "cluster.backup", "queues.read", "queues.operate", "kv.read", "kv.write", "secrets.read", "secrets.write", "grants.write", "apps.write"}}
	// executor is the role of hosts: they execute the handlers of all apps, and cannot
	// act as a server.
	executor = role{"host", []string{"work", "execute", "jobs.read", "cluster.read"}}
	// member is the role of all processes of an installation without a separate token for
	// servers, whose token is accepted on one machine only. It is also the role of a
	// process in calls to itself.
	member = role{"member", append(slices.Clone(executor.permissions), "serve")}
	// peer is the role of servers towards each other and towards nameservers. They may
	// read all state of the installation, and make calls for the callers whose calls they
	// pass on.
	peer = role{"server", append(slices.Clone(member.permissions), "state", act)}
	// worker is the role of programs that execute runs with functions of their own. They
	// get no modules, and nothing that modules are granted.
	worker = role{"worker", []string{"work"}}
)

// execute is the permission of hosts that run whatever apps define: modules, with the
// secrets and values granted to them, plugins and built-in handlers. A caller with it can
// receive the tasks of every app.
const execute = "execute"

// act is the permission to make calls for a principal that another server has
// authenticated, see [actingHeader].
const act = "act"

func (r role) may(permission string) bool { return slices.Contains(r.permissions, permission) }

const public = "public"

// guard decides which caller may call which method. The default is deny: a method without
// a permission is refused for every caller.
type guard struct {
	tokens map[[sha256.Size]byte]role
	// methods maps "/package.Service/Method" to its permission.
	methods map[string]string
}

func newGuard() *guard {
	g := &guard{tokens: map[[sha256.Size]byte]role{}, methods: map[string]string{
		"/grpc.health.v1.Health/Check": public,
		"/grpc.health.v1.Health/Watch": public,
	}}
	protoregistry.GlobalFiles.RangeFilesByPackage("wheelwork.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for k := range s.Methods().Len() {
				m := s.Methods().Get(k)
				opts, _ := m.Options().(*descriptorpb.MethodOptions)
				p, _ := proto.GetExtension(opts, apiv1.E_Permission).(string)
				g.methods[fmt.Sprintf("/%s/%s", s.FullName(), m.Name())] = p
			}
		}
		return true
	})
	return g
}

// allow registers a token with its role; "" is ignored. It may be called only before the
// first call is served.
func (g *guard) allow(token string, r role) {
	if token != "" {
		g.tokens[sha256.Sum256([]byte(token))] = r
	}
}

// writes reports whether a method may change the state of an app.
func (g *guard) writes(method string) bool {
	need := g.methods[method]
	return need != public && need != "work" && !strings.HasSuffix(need, ".read")
}

func (g *guard) check(ctx context.Context, method string) error {
	_, err := g.caller(ctx, method)
	return err
}

// caller returns the role of the caller of a method, or an error if it may not call the
// method.
func (g *guard) caller(ctx context.Context, method string) (role, error) {
	need := g.methods[method]
	switch need {
	case "":
		return role{}, status.Errorf(codes.PermissionDenied, "method %s is not open to anyone", method)
	case public:
		return role{}, nil
	}
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return role{}, status.Error(codes.Unauthenticated, "a token is needed: pass --token or set WHEELWORK_TOKEN")
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if !ok {
		return role{}, status.Error(codes.Unauthenticated, "the authorization is not a bearer token")
	}
	r, ok := g.role(token)
	if !ok {
		return role{}, status.Error(codes.Unauthenticated, "the token was refused: it is not one of this server; the right one is in the file token of the server's data directory")
	}
	r, err := g.acting(ctx, r)
	if err != nil {
		return role{}, err
	}
	if !r.may(need) {
		return role{}, status.Errorf(codes.PermissionDenied, "the token's role %s lacks the permission %s", r.name, need)
	}
	return r, nil
}

// acting returns the role with which a call is made: the caller's own role or, if a
// server passes the call on, the role that this server found for the original caller.
func (g *guard) acting(ctx context.Context, own role) (role, error) {
	values := metadata.ValueFromIncomingContext(ctx, actingHeader)
	if len(values) == 0 {
		return own, nil
	}
	if !own.may(act) {
		return role{}, status.Errorf(codes.PermissionDenied, "the token's role %s may not make calls for others: only servers do (%s)", own.name, actingHeader)
	}
	for _, r := range []role{admin, executor, member, peer, worker} {
		if len(values) == 1 && r.name == values[0] {
			return r, nil
		}
	}
	return role{}, status.Errorf(codes.PermissionDenied, "a server passed on a call of the role %.40q, which this version does not know: bring both servers to the same version", values[0])
}

// role returns the role of a token. It compares the token with every known one in
// constant time.
func (g *guard) role(token string) (found role, ok bool) {
	sum := sha256.Sum256([]byte(token))
	for known, r := range g.tokens {
		if subtle.ConstantTimeCompare(known[:], sum[:]) == 1 {
			found, ok = r, true
		}
	}
	return found, ok
}

func (g *guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := g.check(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (g *guard) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	r, err := g.caller(s.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	if info.FullMethod == apiv1.Worker_Work_FullMethodName && !r.may(execute) {
		s = nativeOnly{s, r}
	}
	return next(srv, s)
}

// nativeOnly is the stream of a worker that may execute only functions of its own. It
// refuses a worker that claims to run anything else, so the server sends it nothing else.
type nativeOnly struct {
	grpc.ServerStream
	role role
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
			return status.Errorf(codes.PermissionDenied, "the token's role %s lacks the permission %s: it lets in workers that run functions of their own (native:NAME), and this one says that it runs %.60s; a host joins with the token that the processes of the installation share (--token-file)", s.role.name, execute, abi)
		}
	}
	return nil
}

// bearer sends a token with each call.
type bearer struct {
	token  string
	secure bool // refuse to send it without TLS
}

var _ credentials.PerRPCCredentials = bearer{}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

func (b bearer) RequireTransportSecurity() bool { return b.secure }

func newToken(prefix string) string { return prefix + strings.ToLower(rand.Text()) }

// writeFile replaces a file as a whole: a reader sees the old or the new one.
func writeFile(path string, b []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // gone when the rename worked
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
