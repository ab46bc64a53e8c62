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

func TestPick(t *testing.T) {
	for _, c := range []struct {
		name  string
		loads []Load
		want  string
	}{
		{"nobody", nil, ""},
		{"the least busy", []Load{{"a", 5, 1}, {"b", 2, 9}, {"c", 3, 0}}, "b"},
		{"an idle newcomer", []Load{{"a", 0.1, 3}, {"new", 0, 0}}, "new"},
		{"fewest apps among equals", []Load{{"a", 0, 2}, {"b", 0, 1}}, "b"},
		{"by name at last", []Load{{"b", 1, 1}, {"a", 1, 1}}, "a"},
	} {
		got, ok := Pick(c.loads)
		if got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v", c.name, got, ok)
		}
	}
}

// inBubble gives f a client of a nameserver in fake time.
func inBubble(t *testing.T, f func(t *testing.T, c apiv1.NameserverClient)) {
	inBubbleWith(t, Config{Lease: 3 * time.Second}, f)
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
		time.Sleep(time.Minute) // leases that are still open run out
	})
}

// join opens a server's session; leave ends it.
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
		w, err := c.Watch(ctx, &apiv1.WatchRequest{Host: "h"})
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
		leave()
		join(t, c, &apiv1.ServerReport{Server: "s2", Address: "two:2"})()
		// The app's state is on the disk of s1: s2, which came and went, does not get it.
		if got := next(); got != "" {
			t.Fatalf("after the lease of the server: %q", got)
		}
		join(t, c, &apiv1.ServerReport{Server: "s1", Address: "one:9", Apps: []string{"default"}})
		if got := next(); got != "one:9" {
			t.Fatalf("after the server came back elsewhere: %q", got)
		}
		list, err := c.ListServers(ctx, &apiv1.ListServersRequest{})
		if err != nil || len(list.Servers) != 2 || list.Servers[0].State != "up" || list.Servers[1].State != "lost" {
			t.Fatalf("servers: %v, %v", list, err)
		}
	})
}

func TestNewAppGoesToTheLeastBusyServer(t *testing.T) {
	inBubble(t, func(t *testing.T, c apiv1.NameserverClient) {
		join(t, c, &apiv1.ServerReport{Server: "busy", Address: "busy:1", ScheduleRate: 10, Apps: []string{"old"}})
		join(t, c, &apiv1.ServerReport{Server: "idle", Address: "idle:1"})
		for app, want := range map[string]string{"old": "busy", "new": "idle"} {
			for range 2 { // and it stays there
				if a, err := c.Route(context.Background(), &apiv1.RouteRequest{App: app}); err != nil || a.Server != want {
					t.Fatalf("%s: %v, %v", app, a, err)
				}
			}
		}
	})
}

// TestNewNameserverWaitsForTheServers: an app may be on the disk of a server
// that has not come back yet. Nobody else gets it.
func TestNewNameserverWaitsForTheServers(t *testing.T) {
	inBubbleWith(t, Config{Settle: 3 * time.Second}, func(t *testing.T, c apiv1.NameserverClient) {
		ctx := context.Background()
		w, err := c.Watch(ctx, &apiv1.WatchRequest{Host: "h", Apps: []string{"new"}})
		if err != nil {
			t.Fatal(err)
		}
		if a, err := w.Recv(); err != nil || a.Server != "" {
			t.Fatalf("at once: %v, %v", a, err)
		}
		join(t, c, &apiv1.ServerReport{Server: "a", Address: "a:1", Apps: []string{"known"}})
		if a, err := c.Route(ctx, &apiv1.RouteRequest{App: "known"}); err != nil || a.Server != "a" {
			t.Fatalf("what a server has: %v, %v", a, err)
		}
		if a, err := c.Route(ctx, &apiv1.RouteRequest{App: "pay"}); status.Code(err) != codes.Unavailable {
			t.Fatalf("what nobody has yet: %v, %v", a, err)
		}
		time.Sleep(2 * time.Second)
		join(t, c, &apiv1.ServerReport{Server: "b", Address: "b:1", Apps: []string{"pay"}, ScheduleRate: 100})
		if a, err := c.Route(ctx, &apiv1.RouteRequest{App: "pay"}); err != nil || a.Server != "b" {
			t.Fatalf("when its server is back: %v, %v", a, err)
		}
		start := time.Now()
		if a, err := w.Recv(); err != nil || a.Server != "a" || time.Since(start) > time.Second {
			t.Fatalf("after that: %v, %v, after %v", a, err, time.Since(start))
		}
	})
}

// TestAppsOfALaterReport: an app that came to be while the nameserver was away
// is the reporter's, unless it is somebody's already.
func TestAppsOfALaterReport(t *testing.T) {
	inBubble(t, func(t *testing.T, c apiv1.NameserverClient) {
		join(t, c, &apiv1.ServerReport{Server: "a", Address: "a:1", Apps: []string{"old"}})
		ctx := context.Background()
		s, err := c.Join(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, apps := range [][]string{nil, {"old", "new"}} {
			if err := s.Send(&apiv1.ServerReport{Server: "b", Address: "b:1", ScheduleRate: 100, Apps: apps}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		for app, want := range map[string]string{"old": "a", "new": "b"} {
			if a, err := c.Route(ctx, &apiv1.RouteRequest{App: app}); err != nil || a.Server != want {
				t.Errorf("%s: %v, %v", app, a, err)
			}
		}
	})
}
