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
)

// role is what a token allows.
type role struct {
	name        string
	permissions []string
}

var (
	// admin may do what people and their programs do. It may not pose as a host
	// or as a server.
	admin = role{"admin", []string{"jobs.read", "jobs.write", "jobs.operate", "runs.read", "logs.read", "modules.read", "modules.write", "cluster.read", "cluster.operate", "queues.read", "queues.operate", "kv.read", "kv.write", "secrets.read", "secrets.write", "grants.write"}}
	// member is what the processes of one installation are to each other.
	member = role{"member", []string{"work", "serve", "jobs.read", "cluster.read"}}
	// worker is what programs are that execute runs themselves.
	worker = role{"worker", []string{"work"}}
)

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
	need := g.methods[method]
	switch need {
	case "":
		return status.Errorf(codes.PermissionDenied, "method %s is not open to anyone", method)
	case public:
		return nil
	}
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return status.Error(codes.Unauthenticated, "a token is needed: pass --token or set WHEELWORK_TOKEN")
	}
	token, ok := strings.CutPrefix(values[0], "Bearer ")
	if !ok {
		return status.Error(codes.Unauthenticated, "the authorization is not a bearer token")
	}
	r, ok := g.role(token)
	if !ok {
		return status.Error(codes.Unauthenticated, "the token was refused: it is not one of this server; `wheelwork dev` prints the right one, and it stands in the file token of the data directory")
	}
	if !slices.Contains(r.permissions, need) {
		return status.Errorf(codes.PermissionDenied, "the token's role %s lacks the permission %s", r.name, need)
	}
	return nil
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
	if err := g.check(s.Context(), info.FullMethod); err != nil {
		return err
	}
	return next(srv, s)
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

// keptToken returns the token in a file, made when missing.
func keptToken(path, prefix string) (string, error) {
	b, err := os.ReadFile(path)
	if err == nil {
		if t := strings.TrimSpace(string(b)); t != "" {
			return t, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the token: %w", err)
	}
	t := newToken(prefix)
	if err := writeFile(path, []byte(t+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write the token: %w", err)
	}
	return t, nil
}

// fileToken reads the token that the processes of one installation share.
func fileToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read --token-file: %w", err)
	}
	t := strings.TrimSpace(string(b))
	if len(t) < 16 {
		return "", fmt.Errorf("the token in %s has %d characters: use at least 16 random ones, as `openssl rand -hex 24` prints", path, len(t))
	}
	return t, nil
}

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
