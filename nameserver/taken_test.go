package nameserver

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestOneServerWithoutACluster: a nameserver accepts one standalone server, and another
// one when the lease of the first is over.
func TestOneServerWithoutACluster(t *testing.T) {
	alone := func(id string) *apiv1.ServerReport { return &apiv1.ServerReport{Server: id, Address: id + ":1"} }
	of := func(id string) *apiv1.ServerReport {
		return &apiv1.ServerReport{Server: id, Address: id + ":1", AllUnits: []string{"main", "main.1"}}
	}
	moved := alone("a")
	moved.Address = "a:2"
	const never, atOnce, inLease, over = -1, 0, lease - time.Millisecond, lease
	for name, c := range map[string]struct {
		only       string // see [Config]
		first      *apiv1.ServerReport
		leaves     time.Duration // time since the first one left; never: it is still there
		next       *apiv1.ServerReport
		code       codes.Code
		text, then string // the text of the refusal, and the server that hosts are sent to afterwards
	}{
		"another server":                         {first: alone("a"), leaves: never, next: alone("b"), code: codes.FailedPrecondition, text: "wheelwork cluster init", then: "a:1"},
		"another one within the lease":           {first: alone("a"), leaves: inLease, next: alone("b"), code: codes.FailedPrecondition, text: "wheelwork cluster init", then: "a:1"},
		"another one after the lease":            {first: alone("a"), leaves: over, next: alone("b"), then: "b:1"},
		"the same one, whose stream still lives": {first: alone("a"), leaves: never, next: alone("a"), then: "a:1"},
		"the same one":                           {first: alone("a"), leaves: atOnce, next: alone("a"), then: "a:1"},
		"the same one at another address":        {first: alone("a"), leaves: atOnce, next: moved, then: "a:2"},
		"beside a cluster":                       {first: of("a"), leaves: never, next: alone("b"), code: codes.FailedPrecondition, text: "is of a cluster", then: ""},
		"beside a cluster, within the lease":     {first: of("a"), leaves: inLease, next: alone("b"), code: codes.FailedPrecondition, text: "wheelwork cluster init", then: ""},
		"after a cluster":                        {first: of("a"), leaves: over, next: alone("b"), then: "b:1"},
		"its cluster":                            {first: alone("a"), leaves: atOnce, next: of("a"), then: ""},
		"two of a cluster":                       {first: of("a"), leaves: never, next: of("b"), then: ""},
		"a cluster beside it":                    {first: alone("a"), leaves: never, next: of("b"), code: codes.FailedPrecondition, text: "wheelwork cluster init", then: "a:1"},
		"its own nameserver":                     {only: "a", first: alone("a"), leaves: over, next: alone("a"), then: "a:1"},
		"another one at its nameserver":          {only: "a", first: alone("a"), leaves: never, next: alone("b"), code: codes.FailedPrecondition, text: "a:1", then: "a:1"},
		"another one that comes before it":       {only: "a", first: alone("a"), leaves: over, next: alone("b"), code: codes.Unavailable, text: "the server a", then: ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubbleWith(t, Config{Lease: lease, Only: c.only}, func(t *testing.T, client apiv1.NameserverClient) {
				leave := join(t, client, c.first)
				if c.leaves != never {
					leave()
					time.Sleep(c.leaves)
				}
				s, err := client.Join(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Send(c.next); err != nil {
					t.Fatal(err)
				}
				_, err = s.Recv()
				if text := status.Convert(err).Message(); status.Code(err) != c.code || !strings.Contains(text, c.text) {
					t.Errorf("the next one: %v", err)
				}
				if c.code == codes.FailedPrecondition && len(c.next.AllUnits) == 0 && !names(err, c.first) {
					t.Errorf("programs are not told of the first one: %v", status.Convert(err).Details())
				}
				a, err := client.Route(t.Context(), &apiv1.RouteRequest{App: "any"})
				if a.GetAddress() != c.then {
					t.Errorf("hosts go to %q, %v, want %q", a.GetAddress(), err, c.then)
				}
			})
		})
	}
}

// names reports whether the detail of a refusal names the server of a report.
func names(err error, r *apiv1.ServerReport) bool {
	for _, d := range status.Convert(err).Details() {
		if a, ok := d.(*apiv1.Assignment); ok && a.Server == r.Server && a.Address == r.Address {
			return true
		}
	}
	return false
}

// TestANewNameserverKnowsNoLease: a new nameserver has no state. It sends no host
// anywhere until its server has joined again.
func TestANewNameserverKnowsNoLease(t *testing.T) {
	inBubble(t, func(t *testing.T, c apiv1.NameserverClient) {
		if a, err := c.Route(t.Context(), &apiv1.RouteRequest{App: "shop"}); status.Code(err) != codes.Unavailable {
			t.Errorf("before its server is back: %v, %v", a, err)
		}
		join(t, c, &apiv1.ServerReport{Server: "a", Address: "a:1", Apps: []string{"shop"}})
		if a, err := c.Route(t.Context(), &apiv1.RouteRequest{App: "shop"}); err != nil || a.Address != "a:1" {
			t.Errorf("when it is back: %v, %v", a, err)
		}
	})
}

// TestHostsOfALostCluster: a host that follows a partition never gets the address of a
// standalone server.
func TestHostsOfALostCluster(t *testing.T) {
	inBubble(t, func(t *testing.T, c apiv1.NameserverClient) {
		w, err := c.Watch(t.Context(), &apiv1.WatchRequest{Host: "h", HostId: "h", Unit: "main.1"})
		if err != nil {
			t.Fatal(err)
		}
		if a, err := w.Recv(); err != nil || a.Address != "" {
			t.Fatalf("without a server: %v, %v", a, err)
		}
		join(t, c, &apiv1.ServerReport{Server: "a", Address: "a:1"})()
		time.Sleep(lease)
		join(t, c, &apiv1.ServerReport{Server: "b", Address: "b:1", AllUnits: []string{"main", "main.1"}, Units: []*apiv1.UnitReport{{Unit: "main.1", Epoch: 7}}})
		for {
			a, err := w.Recv()
			if err != nil || a.Address == "a:1" {
				t.Fatalf("%v, %v", a, err)
			}
			if a.Address == "b:1" {
				return
			}
		}
	})
}
