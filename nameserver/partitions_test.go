package nameserver

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func TestUnitsAreHeard(t *testing.T) {
	all := []string{"main", "main.1"}
	report := func(server string, partitions ...*apiv1.UnitReport) *apiv1.ServerReport {
		return &apiv1.ServerReport{Server: server, AllUnits: all, Units: partitions}
	}
	partition := func(name string, epoch uint64, apps ...string) *apiv1.UnitReport {
		return &apiv1.UnitReport{Unit: name, Epoch: epoch, Apps: apps}
	}
	u := newPartitions()
	for i, c := range []struct {
		report  *apiv1.ServerReport
		changed bool
		want    string // owners of the units
	}{
		{report("a", partition("main", 5, "x"), partition("main.1", 6)), true, "{a 5} {a 6}"},
		{report("a", partition("main", 5, "x"), partition("main.1", 6)), false, "{a 5} {a 6}"},
		{report("b", partition("main", 4)), false, "{a 5} {a 6}"}, // its report is older
		{report("b", partition("main", 9, "x")), true, "{b 9} {a 6}"},
		{report("a", partition("main", 5, "x"), partition("main.1", 6)), false, "{b 9} {a 6}"},
		{report("a", partition("main.1", 6, "y")), true, "{b 9} {a 6}"}, // an app was created
		{report("b"), true, "{ 9} {a 6}"},                               // it released the partition
		{report("a", partition("main", 8), partition("main.1", 6, "y")), false, "{ 9} {a 6}"},
		{report("a", partition("main", 10), partition("main.1", 6, "y")), true, "{a 10} {a 6}"},
	} {
		if changed := u.receive(c.report); changed != c.changed {
			t.Errorf("report %d: changed %v", i, changed)
		}
		if got := fmt.Sprint(u.owner["main"], " ", u.owner["main.1"]); got != c.want {
			t.Errorf("report %d: %s, want %s", i, got, c.want)
		}
	}
	for app, want := range map[string]string{"x": "main", "y": "main.1", "new": "main"} {
		if got := u.of(app); got != want {
			t.Errorf("%s is in %s, want %s", app, got, want)
		}
	}
}

// TestHostsFollowAUnit: a host learns of every change of the owner of its partition, and
// of none of other partitions.
func TestHostsFollowAUnit(t *testing.T) {
	inBubble(t, func(t *testing.T, c apiv1.NameserverClient) {
		ctx := t.Context()
		all := []string{"main", "main.1"}
		join := func(id string) apiv1.Nameserver_JoinClient {
			s, err := c.Join(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		say := func(s apiv1.Nameserver_JoinClient, id string, partitions ...*apiv1.UnitReport) {
			t.Helper()
			if err := s.Send(&apiv1.ServerReport{Server: id, Address: id + ":1", AllUnits: all, Units: partitions}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // in fake time: the report has arrived
		}
		a, b := join("a"), join("b")
		say(a, "a", &apiv1.UnitReport{Unit: "main", Epoch: 1, Apps: []string{"x"}}, &apiv1.UnitReport{Unit: "main.1", Epoch: 2, Apps: []string{"y"}})
		say(b, "b")
		w, err := c.Watch(ctx, &apiv1.WatchRequest{Host: "h", Unit: "main.1"})
		if err != nil {
			t.Fatal(err)
		}
		next := func(server string, epoch uint64) {
			t.Helper()
			m, err := w.Recv()
			if err != nil || m.Server != server || m.Epoch != epoch || m.Unit != "main.1" || len(m.Units) != 2 {
				t.Fatalf("%v, %v, want %s with %d", m, err, server, epoch)
			}
		}
		next("a", 2)
		say(a, "a", &apiv1.UnitReport{Unit: "main.1", Epoch: 2, Apps: []string{"y"}}) // the other partition moves
		say(b, "b", &apiv1.UnitReport{Unit: "main", Epoch: 7, Apps: []string{"x"}})
		say(a, "a")
		next("", 0)
		say(b, "b", &apiv1.UnitReport{Unit: "main", Epoch: 7, Apps: []string{"x"}}, &apiv1.UnitReport{Unit: "main.1", Epoch: 8, Apps: []string{"y"}})
		next("b", 8)
		for app, want := range map[string]string{"x": "b", "y": "b", "new": "b"} {
			if m, err := c.Route(ctx, &apiv1.RouteRequest{App: app}); err != nil || m.Server != want {
				t.Errorf("route of %s: %v, %v", app, m, err)
			}
		}
		if err := b.CloseSend(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second) // its lease is over
		next("", 0)
		if _, err := c.Route(ctx, &apiv1.RouteRequest{App: "x"}); status.Code(err) != codes.Unavailable {
			t.Errorf("route to a server that is lost: %v", err)
		}
	})
}
