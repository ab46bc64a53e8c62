package host

import (
	"context"
	"maps"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// Guests lets the services of a host act for its attempts.
type Guests interface {
	// Redact removes the secrets that an attempt has received from a text. It returns
	// text itself if it contains none.
	Redact(t *runtime.Task, text []byte) []byte
	// Secret returns a secret that the task was granted.
	Secret(ctx context.Context, t *runtime.Task, name string) ([]byte, error)
	// Done is called when an attempt has ended.
	Done(t *runtime.Task)
}

// Caller returns the identity of an attempt that runs now, for calls to its server. It
// returns false for any other attempt.
func (h *Host) Caller(app string, run [16]byte, attempt int32) (*apiv1.Caller, bool) {
	return h.worker.Caller(app, run, attempt)
}

// ConnOf returns the connection to the server that an attempt came from; nil: there is
// none now.
func (h *Host) ConnOf(app string, run [16]byte, attempt int32) grpc.ClientConnInterface {
	return h.worker.ConnOf(app, run, attempt)
}

// maxGrants bounds the decoded grants that are cached.
const maxGrants = 1024

// grantCache decodes each grant once for all tasks of a module: 0.02 of the time of
// decoding it for each task (BenchmarkGrants).
type grantCache struct {
	mu    sync.Mutex
	known map[string]*runtime.Grants
}

// of returns the grants of a task. Grants that cannot be decoded allow nothing.
func (c *grantCache) of(encoded []byte) *runtime.Grants {
	if len(encoded) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if g := c.known[string(encoded)]; g != nil {
		return g
	}
	m := &apiv1.Grants{}
	if err := proto.Unmarshal(encoded, m); err != nil {
		return nil
	}
	if c.known == nil || len(c.known) >= maxGrants {
		c.known = map[string]*runtime.Grants{}
	}
	g := grantsOf(m)
	c.known[string(encoded)] = g
	return g
}

func grantsOf(m *apiv1.Grants) *runtime.Grants {
	g := &runtime.Grants{Secrets: m.Secrets, Enqueue: m.Enqueue}
	for _, h := range m.Http {
		g.HTTP = append(g.HTTP, runtime.HTTPGrant{Host: h.Host, Methods: h.Methods, Paths: h.Paths, Private: h.Private})
	}
	for _, b := range m.Kv {
		g.KV = append(g.KV, runtime.Bucket{Name: b.Name, Write: b.Write})
	}
	for _, f := range m.Files {
		g.Files = append(g.Files, runtime.FileGrant{Mount: f.Mount, Dir: f.Dir, Write: f.Write, Bytes: f.Bytes})
	}
	return g
}

// roleVariable is the environment variable with the role of a part of a fan-out, for WASI
// commands.
const roleVariable = "WHEELWORK_ROLE"

// withRole adds the role of a part to the environment of its handler. It does not change
// env.
func withRole(env map[string]string, role string) map[string]string {
	if role == "" {
		return env
	}
	env = maps.Clone(env)
	if env == nil {
		env = map[string]string{}
	}
	env[roleVariable] = role
	return env
}
