package node

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/wheelworkhq/wheelwork/host"
	"github.com/wheelworkhq/wheelwork/internal/outbound"
	"github.com/wheelworkhq/wheelwork/internal/version"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/builtin"
)

// egress executes the tasks of builtin:http. It owns the list of the servers that jobs may call,
// which can be replaced while tasks run. Without a list the host does not offer builtin:http.
type egress struct {
	client  *outbound.Client
	current atomic.Pointer[builtin.HTTP] // has the list in effect

	mu    sync.Mutex
	watch func() // is called when the list appears or disappears; may be nil
}

var _ host.Sometimes = (*egress)(nil)

func openEgress(public, private []string) *egress {
	e := &egress{client: outbound.New(outbound.Config{UserAgent: "wheelwork/" + version.String()})}
	e.allow(public, private)
	return e
}

// Close implements [io.Closer].
func (e *egress) Close() error { return e.client.Close() }

// allow replaces the list, see [Executors]. Requests that have begun continue under the former one.
func (e *egress) allow(public, private []string) {
	x := &builtin.HTTP{Sender: sender{e.client}, Grants: &runtime.Grants{}}
	add := func(servers []string, nearby bool) {
		for _, server := range servers {
			if server == "*" && !nearby {
				x.Any = true
				continue
			}
			x.Grants.HTTP = append(x.Grants.HTTP, runtime.HTTPGrant{Host: server, Methods: builtin.Methods, Private: nearby})
		}
	}
	add(private, true) // first: the first of two grants that cover a request counts
	add(public, false)
	e.mu.Lock()
	defer e.mu.Unlock()
	was := e.Up("")
	e.current.Store(x)
	if e.watch != nil && was != e.Up("") {
		e.watch()
	}
}

// Up implements [host.Sometimes].
func (e *egress) Up(string) bool {
	x := e.current.Load()
	return x != nil && (x.Any || len(x.Grants.HTTP) > 0)
}

// Watch implements [host.Sometimes].
func (e *egress) Watch(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watch = f
}

// Run implements [runtime.Executor].
func (e *egress) Run(ctx context.Context, t runtime.Task, s runtime.Sink) runtime.Result {
	return e.current.Load().Run(ctx, t, s)
}

// sender sends the HTTP requests of jobs within their grants. Their secrets were filled
// in before, so it resolves none: no text of the input can be taken for the name of a
// secret.
type sender struct{ client *outbound.Client }

func (s sender) Send(ctx context.Context, g *runtime.Grants, r runtime.Request) (*runtime.Response, error) {
	return s.client.Send(ctx, g, nil, r)
}
