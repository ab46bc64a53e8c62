package nameserver

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
)

const lease = 3 * time.Second

// inBubble gives f a client of a nameserver, in fake time.
func inBubble(t *testing.T, f func(t *testing.T, c apiv1.NameserverClient)) {
	inBubbleWith(t, Config{Lease: lease}, f)
}

func inBubbleWith(t *testing.T, cfg Config, f func(t *testing.T, c apiv1.NameserverClient)) {
	synctest.Test(t, func(t *testing.T) {
		g := grpc.NewServer()
		New(cfg).Register(g)
		lis := memconn.Listen(1 << 16)
		go g.Serve(lis) //nolint:errcheck // ends with Stop
		conn, err := grpc.NewClient("passthrough:names", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		f(t, apiv1.NewNameserverClient(conn))
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		g.Stop()
		time.Sleep(time.Minute) // open leases end
	})
}

// join opens a server's session; the returned leave closes it.
func join(t *testing.T, c apiv1.NameserverClient, r *apiv1.ServerReport) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := c.Join(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(r); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	return func() { cancel(); synctest.Wait() }
}

func TestHostFollowsItsServer(t *testing.T) {
	inBubble(t, func(t *testing.T, c apiv1.NameserverClient) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w, err := c.Watch(ctx, &apiv1.WatchRequest{Host: "h", Apps: []string{"any"}})
		if err != nil {
			t.Fatal(err)
		}
		next := func() string {
			t.Helper()
			a, err := w.Recv()
			if err != nil {
				t.Fatal(err)
			}
			return a.Address
		}
		if got := next(); got != "" {
			t.Fatalf("without a server: %q", got)
		}
		if _, err := c.Route(ctx, &apiv1.RouteRequest{App: "x"}); status.Code(err) != codes.Unavailable {
			t.Fatalf("route without a server: %v", err)
		}
		leave := join(t, c, &apiv1.ServerReport{Server: "s1", Address: "one:1"})
		if got := next(); got != "one:1" {
			t.Fatalf("after the server joined: %q", got)
		}
		left := time.Now()
		leave()
		if got := next(); got != "" || time.Since(left) < lease {
			t.Fatalf("%q, %v after the server left", got, time.Since(left))
		}
		leave = join(t, c, &apiv1.ServerReport{Server: "s1", Address: "one:9", Apps: []string{"default"}})
		if got := next(); got != "one:9" {
			t.Fatalf("after the server came back elsewhere: %q", got)
		}
		leave()
		time.Sleep(lease)
		join(t, c, &apiv1.ServerReport{Server: "s2", Address: "two:2"})
		for got := next(); got != "two:2"; got = next() {
			if got != "" {
				t.Fatalf("after another server took its place: %q", got)
			}
		}
		for _, app := range []string{"default", "any"} {
			if a, err := c.Route(ctx, &apiv1.RouteRequest{App: app}); err != nil || a.Server != "s2" {
				t.Fatalf("route of the app %s: %v, %v", app, a, err)
			}
		}
		list, err := c.ListServers(ctx, &apiv1.ListServersRequest{})
		if err != nil || len(list.Servers) != 2 || list.Servers[0].State != "lost" || list.Servers[1].State != "up" {
			t.Fatalf("servers: %v, %v", list, err)
		}
	})
}
