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

// role is what a token allows.
type role struct {
	name        string
	permissions []string
}

var (
	// admin may do what people and their programs do. It may not pose as a host
	// or as a server.
	admin = role{"admin", []string{"jobs.read", "jobs.write", "jobs.operate", "runs.read", "logs.read", "modules.read", "modules.write", "cluster.read", "cluster.operate", "cluster.backup", "queues.read", "queues.operate", "kv.read", "kv.write", "secrets.read", "secrets.write", "grants.write", "apps.write"}}
	// executor is what hosts are: they run what apps define, and cannot act as a server.
	executor = role{"host", []string{"work", "execute", "jobs.read", "cluster.read"}}
	// member is what all processes of an installation are to each other when it has no
	// token for servers alone, which is accepted on one machine only.
	member = role{"member", append(slices.Clone(executor.permissions), "serve")}
	// peer is what servers are to each other and to nameservers: they may have all that
	// is in the installation, and speak for the callers whose calls they pass on.
	peer = role{"server", append(slices.Clone(member.permissions), "state", act)}
	// worker is what programs are that execute runs themselves, with functions of
	// their own. It gets no modules, and nothing of what modules are granted.
	worker = role{"worker", []string{"work"}}
)

// execute is the permission of hosts that run whatever apps define: modules,
// with the secrets and values that these were granted, plugins and what is
// built in. Who has it can ask for the tasks of every app.
const execute = "execute"

// act is the permission to make calls for a principal that another server has
// authenticated, see [actingHeader].
const act = "act"

func (r role) may(permission string) bool { return slices.Contains(r.permissions, permission) }

const public = "public"

// guard decides who may call which method. The default is deny: a method
// without a permission is refused for everybody.
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

// allow lets a token in. It is for the time before the first call.
func (g *guard) allow(token string, r role) {
	if token != "" {
		g.tokens[sha256.Sum256([]byte(token))] = r
	}
}

// writes reports whether a method may change what an app holds.
func (g *guard) writes(method string) bool {
	need := g.methods[method]
	return need != public && need != "work" && !strings.HasSuffix(need, ".read")
}

func (g *guard) check(ctx context.Context, method string) error {
	_, err := g.caller(ctx, method)
	return err
}

// caller returns the role of who calls a method, if it may.
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

// acting returns the role that a call has: the caller's own, or the one that a
// server has found when it passes on the call of another caller.
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

// role looks a token up in constant time for each known token.
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

// nativeOnly is the stream of a worker that may run functions of its own and
// nothing else: it cannot say that it runs more, and so is sent no more.
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
		claims = []string{"modules"} // which is what saying nothing means
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
