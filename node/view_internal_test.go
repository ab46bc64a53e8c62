package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/sched"
)

func quietView(partitions ...string) *clusterView {
	r := newClusterView(nil, "main", "me", "h:0", slog.New(slog.DiscardHandler))
	r.partitions = partitions
	return r
}

func facts(rows ...string) (all []etcd.Fact) {
	for i := 0; i < len(rows); i += 2 {
		all = append(all, etcd.Fact{Key: rows[i], Value: rows[i+1]})
	}
	return all
}

// TestAssignmentToWhoWasHereBefore: a server whose disk was lost comes back with another
// id. For the rest of the lease etcd names the old id, at the same address.
func TestAssignmentToWhoWasHereBefore(t *testing.T) {
	r := quietView("main")
	for _, c := range []struct {
		owner etcd.Owner
		want  string
	}{
		{etcd.Owner{Server: "before", Address: "h:0", Epoch: 3}, ""},
		{etcd.Owner{Server: "you", Address: "h:1", Epoch: 4}, "you"},
		{etcd.Owner{Server: "me", Address: "h:0", Epoch: 5}, "me"},
	} {
		r.hearOwners(map[string]etcd.Owner{"main": c.owner})
		if a := r.assignment("main"); a.Server != c.want || (a.Address == "") != (c.want == "") || a.Epoch != c.owner.Epoch {
			t.Errorf("%+v: %v", c.owner, a)
		}
	}
}

func TestViewHears(t *testing.T) {
	r := quietView("main", "main.1")
	here, err := json.Marshal(presence{Address: "h:1", Owns: map[string]partitionReport{"main": {Rate: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	before := r.change()
	r.hear(facts("server/you", string(here), "want/main.1", "you", "want/main", "gone", "ready/main.1/you", "7", "app/a%2Fb", "main.1", "drain/me", "1", "known/main", "1"), true)
	select {
	case <-before:
	default:
		t.Error("nobody is told of the change")
	}
	r.hearOwners(map[string]etcd.Owner{"main": {Server: "you", Epoch: 3}, "main.1": {Server: "me", Epoch: 7}})
	if partition, ok := r.partitionOf("a/b"); partition != "main.1" || !ok {
		t.Errorf("the app is in %q", partition)
	}
	if s := r.standing("main.1"); s.want != "you" || !s.ready || s.owner.Server != "me" {
		t.Errorf("%+v", s)
	}
	if s := r.standing("main"); s.want != "" {
		t.Errorf("a server that is not there is wanted: %+v", s)
	}
	// Ready for an ownership that has ended does not mean ready for this one.
	r.hearOwners(map[string]etcd.Owner{"main.1": {Server: "me", Epoch: 8}})
	if s := r.standing("main.1"); s.ready {
		t.Errorf("%+v", s)
	}
	r.hear([]etcd.Fact{{Key: "server/you", Deleted: true}, {Key: "drain/me", Deleted: true}}, false)
	if v := r.look(); len(v.servers) != 0 || len(v.draining) != 0 || v.apps != 1 {
		t.Errorf("%+v", v)
	}
	r.hear(nil, true)
	if v := r.look(); v.apps != 0 || len(v.wants) != 0 || len(v.known) != 0 {
		t.Errorf("a whole table says all: %+v", v)
	}
}

func TestViewPlaces(t *testing.T) {
	r := quietView("main", "main.1", "main.2")
	r.hear(facts("known/main", "1", "known/main.1", "1"), true)
	if partition, err := r.emptiest(); err == nil {
		t.Errorf("placed in %s while nobody knows what main.2 holds", partition)
	}
	busy := `{"owns":{"main":{"rate":50},"main.1":{"rate":0.1}}}`
	r.hear(facts("known/main.2", "1", "server/x", busy), false)
	for i, want := range []string{"main.2", "main.1", "main.2", "main.1", "main.2"} {
		partition, err := r.emptiest()
		if partition != want || err != nil {
			t.Errorf("app %d goes to %s, %v, want %s", i, partition, err, want)
		}
		r.hear(facts(fmt.Sprint("app/", i), partition), false)
	}
}

func TestFindsServers(t *testing.T) {
	v := view{servers: map[string]presence{"srv-a": {Address: "h:1"}, "srv-b": {Address: "h:2"}}}
	for name, want := range map[string]string{"srv-a": "srv-a", "h:2": "srv-b"} {
		if got, err := v.find(name); got != want || err != nil {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if _, err := v.find("h:3"); err == nil {
		t.Error("found one that is not there")
	}
}

func TestClusterStatus(t *testing.T) {
	v := view{
		partitions: []string{"main", "main.1", "main.2", "main.3"},
		servers: map[string]presence{
			"a": {Address: "h:1", Owns: map[string]partitionReport{"main": {Rate: 2, Hosts: 3, Apps: 4}}, Follows: map[string]followState{"main.1": {}}},
			"b": {Address: "h:2", Owns: map[string]partitionReport{"main.1": {Rate: 5}}, Follows: map[string]followState{"main": {}}},
		},
		wants:    map[string]string{"main": "b", "main.1": "b"},
		draining: map[string]bool{"b": true, "c": true},
		owners:   map[string]etcd.Owner{"main": {Server: "a", Address: "h:1", Epoch: 9}, "main.1": {Server: "b", Address: "h:2"}, "main.3": {Server: "d", Address: "h:4"}},
	}
	st := clusterStatus(v, "main", "a", "b", nil)
	var got []string
	for _, m := range st.Servers {
		got = append(got, fmt.Sprintf("%s %s %d %.0f", m.Id, m.State, m.Units, m.ScheduleRate))
	}
	for _, u := range st.Units {
		got = append(got, fmt.Sprintf("%s %s %s>%s %d %d %v", u.Name, u.State, u.Owner, u.To, u.Apps, u.Hosts, u.Standbys))
	}
	want := []string{
		"a up 1 2", "b draining 1 5", "c lost 0 0", "d lost 1 0",
		"main moving a>b 4 3 [b]", "main.1 owned b> 0 0 [a]", "main.2 free > 0 0 []", "main.3 owned d> 0 0 []",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%q\nwant %q", got, want)
	}
	v.owners["main.1"] = etcd.Owner{Server: "a"}
	if st := clusterStatus(v, "main", "a", "b", nil); st.Servers[1].State != "drained" {
		t.Errorf("%v", st.Servers[1])
	}
}

// TestRouterWaitsForAnOwner: a call that waits for a partition ends as soon as the
// partition has an owner.
func TestRouterWaitsForAnOwner(t *testing.T) {
	r := quietView("main")
	x := &router{view: r, partitions: map[string]*partition{"main": {name: "main"}}, writes: func(string) bool { return false }}
	done := make(chan error, 1)
	go func() {
		_, err := x.enter(t.Context(), "main", "pay")
		done <- err
	}()
	r.hearOwners(map[string]etcd.Owner{"main": {Server: "me"}}) // this server is about to serve it
	r.hearOwners(map[string]etcd.Owner{})
	r.hearOwners(map[string]etcd.Owner{"main": {Server: "you", Address: "h:1"}})
	select {
	case err := <-done:
		if named(err) != "h:1" {
			t.Errorf("%v", err)
		}
	case <-time.After(routePatience + 10*time.Second):
		t.Error("it waits for ever")
	}
}

// FuzzRoster: rows in etcd may come from another version, or be garbage.
func FuzzRoster(f *testing.F) {
	for _, seed := range [][2]string{
		{"app/a", "main"},
		{"app/%zz", "main"},
		{"server/x", "{}"},
		{"server/x", `{"owns":null}`},
		{"server/x", "null"},
		{"server/", "["},
		{"want/main", ""},
		{"want/", "x"},
		{"ready/main/x", "-1"},
		{"ready/main", "18446744073709551616"},
		{"drain/", ""},
		{"", ""},
		{"/", "/"},
		{"units", "[]"},
	} {
		f.Add(seed[0], seed[1], false)
		f.Add(seed[0], seed[1], true)
	}
	f.Fuzz(func(t *testing.T, key, value string, deleted bool) {
		r := quietView("main")
		r.hear([]etcd.Fact{{Key: key, Value: value, Deleted: deleted}}, true)
		v := r.look()
		clusterStatus(v, "main", "me", "", nil)
		newBalancer(r, time.Second, r.log).decide(v, time.Unix(0, 0))
		r.standing("main")
		if _, err := r.emptiest(); err == nil && !v.known["main"] {
			t.Error("placed where nobody knows what there is")
		}
	})
}

// TestTellsOfUnitsAtOnce: a nameserver gets a report as soon as this server serves a
// partition, and as soon as it no longer does. Changes of other servers' partitions cause
// no report.
func TestTellsOfUnitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := quietView("main", "main.1")
		u := &partition{name: "main.1"}
		p := &serverParts{member: &memberParts{view: r, partitions: []*partition{{name: "main"}, u}}}
		told := make(chan string)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(told)
			for owned := p.owns(); p.untilOther(ctx, owned, nil); {
				owned = p.owns()
				told <- owned
			}
		}()
		quiet := func(after string) {
			t.Helper()
			synctest.Wait()
			select {
			case s := <-told:
				t.Errorf("%s: it tells of %q", after, s)
			default:
			}
		}
		r.hearOwners(map[string]etcd.Owner{"main": {Server: "you"}})
		quiet("another server's unit")
		u.services.Store(newPartitionServices(&sched.Server{}))
		r.wake()
		if s := <-told; s != "main.1=0 " {
			t.Errorf("it owns %q", s)
		}
		r.wake()
		quiet("nothing")
		u.services.Store(nil)
		r.hearOwners(map[string]etcd.Owner{})
		if s := <-told; s != "" {
			t.Errorf("it owns %q", s)
		}
		cancel()
		if _, more := <-told; more {
			t.Error("it goes on")
		}
	})
}

// TestSplitWaitsForAUnitOnItsWay: a partition has no owner while it moves from one server
// to another. A request to split an app waits for that partition, and does not wait
// because servers are drained.
func TestSplitWaitsForAUnitOnItsWay(t *testing.T) {
	here, err := json.Marshal(presence{Address: "h:1", Splits: true})
	if err != nil {
		t.Fatal(err)
	}
	owned := map[string]etcd.Owner{"main": {Server: "one", Epoch: 3}, "main.1": {Server: "one", Epoch: 4}}
	for name, c := range map[string]struct {
		arrives time.Duration // when the partition gets an owner, which is drained
		min     time.Duration
	}{
		"it arrives":     {time.Second, time.Second},
		"it is there":    {0, 0},
		"it never comes": {time.Hour, routePatience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := quietView("main", "main.1", "main.2")
				r.hear(facts("server/one", string(here), "server/two", string(here), "drain/two", "1", "app/hot", "main"), true)
				r.hearOwners(owned)
				arrived := time.AfterFunc(c.arrives, func() {
					now := maps.Clone(owned)
					now["main.2"] = etcd.Owner{Server: "two", Epoch: 5}
					r.hearOwners(now)
				})
				defer arrived.Stop()
				if c.arrives == 0 {
					synctest.Wait()
				}
				begin := time.Now()
				_, err := (&membership{m: &memberParts{view: r}}).SplitApp(t.Context(), &apiv1.SplitAppRequest{App: "hot", Units: 3})
				took := time.Since(begin)
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(status.Convert(err).Message(), "only 2 units have an owner that is not drained") || took < c.min || took > c.min+time.Millisecond {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}
