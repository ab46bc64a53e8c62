package nameserver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/nameserver/balance"
)

// TestWorks checks which partitions a host works for.
func TestWorks(t *testing.T) {
	all := []string{"u0", "u1", "u2", "u3"}
	homes := map[string]string{"one": "u1", "two": "u2", "wide": "u0", "hot": "u3"}
	c := Cluster{Units: all, Home: func(app string) (string, bool) { u, ok := homes[app]; return u, ok }}
	works := func(host string, apps ...string) (partitions []string) {
		for _, u := range all {
			if c.Works(host, apps, u) {
				partitions = append(partitions, u)
			}
		}
		return partitions
	}
	if got := works("h", "one"); len(got) != 4 {
		t.Errorf("without a host assignment: %v", got)
	}
	c.HostAssignment = &apiv1.HostAssignment{UnitsPerHost: 2, Apps: []*apiv1.DividedApp{
		{App: "wide", Units: []string{"u0", "u2"}, Weights: []float64{8, 8}, Divided: true},
		{App: "hot", Units: []string{"u3", "u0"}, Weights: []float64{8, 8}},
		{App: "odd", Units: []string{"u3", "u0"}, Weights: []float64{1}, Divided: true}, // invalid: treated as missing
	}}
	if got := works(""); len(got) != 4 {
		t.Errorf("one without an id: %v", got)
	}
	seen := map[string]int{}
	for i := range 200 {
		host := fmt.Sprint("h", i)
		got := works(host)
		want := balance.AssignSeveral(host, all, 2)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%s, which serves all apps, works for %v, want %v", host, got, want)
		}
		wide := works(host, "wide")
		if len(wide) != 1 || wide[0] != "u0" && wide[0] != "u2" {
			t.Fatalf("%s works for the partitions %v of an app whose hosts are divided", host, wide)
		}
		seen[wide[0]]++
		for _, apps := range [][]string{nil, {"wide"}, {"one"}, {"hot", "one"}, {"nowhere"}, {"nowhere", "one"}, {"odd"}} {
			if at := c.Anchor(host, apps); !slices.Contains(works(host, apps...), at) {
				t.Fatalf("%s with %v counts in %s, and works for %v", host, apps, at, works(host, apps...))
			}
		}
	}
	if seen["u0"] < 60 || seen["u2"] < 60 {
		t.Errorf("the hosts of an app are divided so: %v", seen)
	}
	for _, tc := range []struct{ apps, want []string }{
		{[]string{"one"}, []string{"u1"}},
		{[]string{"one", "two"}, []string{"u1", "u2"}},
		{[]string{"hot"}, []string{"u0", "u3"}},
		{[]string{"hot", "one"}, []string{"u0", "u1", "u3"}},
		{[]string{"nowhere"}, []string{balance.Assign("h", all, nil)}},
	} {
		if got := works("h", tc.apps...); !slices.Equal(got, tc.want) {
			t.Errorf("%v: it works for %v, want %v", tc.apps, got, tc.want)
		}
	}
	c.HostAssignment.Calls = []*apiv1.HostCall{{Unit: "u2", App: "one"}}
	if got := works("h", "one"); !slices.Equal(got, []string{"u1", "u2"}) {
		t.Errorf("called to u2: %v", got)
	}
	if got := works("h", "hot"); !slices.Equal(got, []string{"u0", "u3"}) {
		t.Errorf("it is called for an app that it does not serve: %v", got)
	}
	for i := range 20 {
		if host := fmt.Sprint("h", i); !slices.Contains(works(host), "u2") {
			t.Errorf("%s serves all apps and is not called", host)
		}
	}
	// Borrowing does not change where hosts count.
	c.HostAssignment.UnitsPerHost = 0
	if got := works("h", "one"); len(got) != 4 {
		t.Errorf("it is over: %v", got)
	}
}

// TestHostsAreToldToLeave: a nameserver passes on the newest host assignment that servers
// report. Of several with the same number it passes on the last.
func TestHostsAreToldToLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, c apiv1.NameserverClient) {
		all := []string{"main", "main.1"}
		s, err := c.Join(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		say := func(d *apiv1.HostAssignment) {
			t.Helper()
			if err := s.Send(&apiv1.ServerReport{
				Server: "a", Address: "a:1", AllUnits: all, HostAssignment: d,
				Units: []*apiv1.UnitReport{{Unit: "main", Epoch: 1, Apps: []string{"x"}}, {Unit: "main.1", Epoch: 2}},
			}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond) // in fake time: the report has arrived
		}
		say(nil)
		watch := func(req *apiv1.WatchRequest) func(leave bool) {
			w, err := c.Watch(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			return func(leave bool) {
				t.Helper()
				m, err := w.Recv()
				if err != nil || m.Leave != leave || m.Address != "a:1" {
					t.Fatalf("%v is told %v, %v, want leave=%v", req, m, err, leave)
				}
			}
		}
		other := watch(&apiv1.WatchRequest{HostId: "h", Apps: []string{"x"}, Unit: "main.1"})
		other(false)
		say(&apiv1.HostAssignment{Number: 3, UnitsPerHost: 1})
		other(true)
		old := watch(&apiv1.WatchRequest{Host: "h", Apps: []string{"x"}, Unit: "main.1"})
		old(false)
		mine := watch(&apiv1.WatchRequest{HostId: "h", Apps: []string{"x"}, Unit: "main"})
		mine(false)
		watch(&apiv1.WatchRequest{HostId: "h"})(false) // the host follows no partition: it is never told to leave
		say(&apiv1.HostAssignment{Number: 2})          // older than the assignment that is known
		watch(&apiv1.WatchRequest{HostId: "h", Apps: []string{"x"}, Unit: "main.1"})(true)
		say(&apiv1.HostAssignment{Number: 3, UnitsPerHost: 1, Calls: []*apiv1.HostCall{{Unit: "main.1", App: "x"}}})
		other(false)
		say(&apiv1.HostAssignment{Number: 4, UnitsPerHost: 1})
		other(true)
		say(&apiv1.HostAssignment{Number: 5})
		other(false)
	})
}
