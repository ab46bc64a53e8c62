package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// rogue is a server of an attacker: it records the requests that it gets.
type rogue struct {
	at string

	mu   sync.Mutex
	sent []string // tokens
	got  []string // methods
}

func newRogue(t *testing.T) *rogue {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rogue{at: l.Addr().String()}
	g := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		method, _ := grpc.MethodFromServerStream(s)
		r.got = append(r.got, method)
		r.sent = append(r.sent, metadata.ValueFromIncomingContext(s.Context(), "authorization")...)
		return status.Error(codes.NotFound, "stolen")
	}))
	go g.Serve(l) //nolint:errcheck // ends with Stop
	t.Cleanup(g.Stop)
	return r
}

// tokens returns the methods that were called, and the tokens that came with them.
func (r *rogue) tokens() (methods, tokens []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got), slices.Clone(r.sent)
}

// join announces the rogue at a nameserver as a server that has some apps.
func (r *rogue) join(t *testing.T, names *process, token string, apps ...string) error {
	t.Helper()
	conn, ctx := dial(t, names, token)
	s, err := apiv1.NewNameserverClient(conn).Join(ctx)
	if err != nil {
		return err
	}
	if err := s.Send(&apiv1.ServerReport{Server: "srv-evil", Address: r.at, Apps: apps}); err != nil {
		_, err = s.Recv()
		return err
	}
	_, err = s.Recv()
	return err
}

// TestForwardIsForServers: a host's token must not forward a job to the owner of its
// partition as if another server had accepted it.
func TestForwardIsForServers(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 1, "a")
	conn, ctx := dial(t, w.all["a"], memberToken)
	planted := greetJob()
	planted.Name = "planted"
	_, err := apiv1.NewMembershipClient(conn).Forward(ctx, &apiv1.ForwardRequest{
		Commands: []*apiv1.Command{{Kind: &apiv1.Command_Apply{Apply: planted}}}, AtMs: []int64{time.Now().UnixMilli()},
	})
	if status.Code(err) != codes.PermissionDenied {
		t.Errorf("forward with the token of hosts: %v", err)
	}
	_, err = w.client("a").Job(t.Context(), "default", "planted")
	if !errors.Is(err, sdk.ErrNotFound) {
		t.Errorf("the planted job: %v", err)
	}
}

// TestHostsAreNoServers: a host's token must not act as a server at a nameserver whose
// servers have a token of their own.
func TestHostsAreNoServers(t *testing.T) {
	t.Parallel()
	w := newLone(t)
	owner := w.server("a")
	w.until(owner.GRPC)
	evil := newRogue(t)
	if err := evil.join(t, w.names, memberToken, "shop", "default"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a host joins as a server: %v", err)
	}
	w.until(owner.GRPC)
	// Nor may it make a call for an administrator.
	conn, ctx := dial(t, owner, memberToken)
	ctx = metadata.AppendToOutgoingContext(ctx, "wheelwork-acting", "admin")
	job := greetJob()
	job.App = "shop"
	if _, err := apiv1.NewJobsClient(conn).ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: job}); status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), "only servers") {
		t.Errorf("a host applies a job as an administrator: %v", err)
	}
}

// TestTokensStayWhereTheyWereSent: the address of a server leads to a rogue one. No
// client, and no server on behalf of one, may send it the administrator's token.
func TestTokensStayWhereTheyWereSent(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2, "a")
	one, evil := w.all["a"], newRogue(t)
	data := filepath.Join(w.dir, "b")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.ServerConfig{
			Data: data, Listen: testkit.FreeAddress(t), Advertise: evil.at, TokenFile: w.token, Ready: ready,
			Etcd: node.EtcdConfig{Endpoints: []string{w.etcd.Client()}, Units: 2, Settle: time.Second}, Placement: node.Placement{Capacity: 3},
		})
	})
	w.until(w.client("a"), "both servers own a partition", func(s *sdk.Cluster) bool { n := owned(s); return n[w.at["a"]] == 1 && n[evil.at] == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := sdk.Dial(ctx, one.URL, sdk.Options{Token: adminToken, RetryFor: -1, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // nothing is under way
	conn, asAdmin := dial(t, one, adminToken)
	app := ""
	for i := range 20 { // until one of the apps is in the other server's partition
		app = fmt.Sprint("app", i)
		_, err := c.PutApp(ctx, &sdk.App{Name: app})
		a, err2 := apiv1.NewNameserverClient(conn).Route(asAdmin, &apiv1.RouteRequest{App: app})
		if err2 != nil {
			t.Fatal(err2)
		}
		if a.Address == evil.at {
			if err == nil {
				t.Error("an app was made")
			}
			break
		}
	}
	job := greetJob()
	job.App = app
	if _, err := c.Apply(ctx, job); err == nil {
		t.Error("a job was applied")
	}
	if _, err := c.Job(ctx, app, "j"); err == nil {
		t.Error("a job was shown")
	}
	for _, err := range c.Watch(ctx, app, "x") {
		if err == nil {
			t.Error("a run was watched")
		}
		break
	}
	for _, path := range []string{"/jobs", "/runs/x/log"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, one.URL+"/api/v1/apps/"+app+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+adminToken)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close() //nolint:errcheck // not read
		if resp.StatusCode == http.StatusOK {
			t.Errorf("%s was answered", path)
		}
	}
	methods, tokens := evil.tokens()
	for i, token := range tokens {
		if strings.Contains(token, adminToken) {
			t.Errorf("the rogue was sent the administrator's token with %s", methods[i])
		}
	}
	for _, method := range []string{apiv1.Producer_Produce_FullMethodName, apiv1.Jobs_GetJob_FullMethodName, apiv1.Runs_WatchRun_FullMethodName} {
		if !slices.Contains(methods, method) {
			t.Errorf("%s was not passed on: the test shows nothing. The rogue got %v", method, methods)
		}
	}
}

// TestServerTokens: when nameserver and servers need a token of their own.
func TestServerTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	shared, own := writeToken(t, dir, "shared"), writeToken(t, dir, "own")
	for name, c := range map[string]struct {
		listen, hosts, servers, want string
	}{
		"beyond loopback":       {"0.0.0.0:0", shared, "", "--server-token-file is missing"},
		"the same":              {"127.0.0.1:0", shared, shared, "hold the same token"},
		"with its own":          {"0.0.0.0:0", shared, own, "TLS is required"}, // the next check
		"no file of that name":  {"127.0.0.1:0", shared, own + "x", "read --server-token-file"},
		"servers and no hosts":  {"0.0.0.0:0", "", own, "TLS is required"},
		"neither of the tokens": {"0.0.0.0:0", "", "", "TLS is required"},
	} {
		err := node.Server(t.Context(), node.ServerConfig{Data: t.TempDir(), Listen: c.listen, TokenFile: c.hosts, ServerTokenFile: c.servers, Certificates: node.CertificatesConfig{TLS: "off"}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a server, %s: %v, want %s", name, err, c.want)
		}
		if c.hosts == "" {
			continue // a nameserver needs the token of hosts
		}
		err = node.Nameserver(t.Context(), node.NameserverConfig{Listen: c.listen, TokenFile: c.hosts, ServerTokenFile: c.servers})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a nameserver, %s: %v, want %s", name, err, c.want)
		}
	}
}
