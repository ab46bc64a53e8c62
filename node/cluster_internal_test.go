package node

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/cluster"
	"github.com/wheelworkhq/wheelwork/cluster/router"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/sched"
)

// viewOf returns the view of a server that hears nothing of etcd.
func viewOf(partitions ...string) *cluster.View {
	r := cluster.NewView(nil, "main", "me", "h:0", slog.New(slog.DiscardHandler))
	r.Partitions = partitions
	return r
}

func factsOf(rows ...string) (all []etcd.Fact) {
	for i := 0; i < len(rows); i += 2 {
		all = append(all, etcd.Fact{Key: rows[i], Value: rows[i+1]})
	}
	return all
}

// TestRouterWaitsForAnOwner: a call that waits for a partition ends as soon as the
// partition has an owner.
func TestRouterWaitsForAnOwner(t *testing.T) {
	r := viewOf("main")
	x := &router.Router{View: r, Partitions: map[string]router.Hosted{"main": &partition{name: "main"}}, Writes: func(string) bool { return false }}
	done := make(chan error, 1)
	go func() {
		_, err := x.Enter(t.Context(), "main", "pay")
		done <- err
	}()
	r.HearOwners(map[string]etcd.Owner{"main": {Server: "me"}}) // this server is about to serve it
	r.HearOwners(map[string]etcd.Owner{})
	r.HearOwners(map[string]etcd.Owner{"main": {Server: "you", Address: "h:1"}})
	select {
	case err := <-done:
		if router.AddressIn(err) != "h:1" {
			t.Errorf("%v", err)
		}
	case <-time.After(router.Patience + 10*time.Second):
		t.Error("it waits for ever")
	}
}

// TestTellsOfUnitsAtOnce: a nameserver gets a report as soon as this server serves a
// partition, and as soon as it no longer does. Changes of other servers' partitions cause
// no report.
func TestTellsOfUnitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := viewOf("main", "main.1")
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
		r.HearOwners(map[string]etcd.Owner{"main": {Server: "you"}})
		quiet("another server's partition")
		u.services.Store(router.NewServices(&sched.Server{}))
		r.Wake()
		if s := <-told; s != "main.1=0 " {
			t.Errorf("it owns %q", s)
		}
		r.Wake()
		quiet("nothing")
		u.services.Store(nil)
		r.HearOwners(map[string]etcd.Owner{})
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
	here, err := json.Marshal(cluster.Presence{Address: "h:1", Splits: true})
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
		"it never comes": {time.Hour, router.Patience},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := viewOf("main", "main.1", "main.2")
				r.Hear(factsOf("server/one", string(here), "server/two", string(here), "drain/two", "1", "app/hot", "main"), true)
				r.HearOwners(owned)
				arrived := time.AfterFunc(c.arrives, func() {
					now := maps.Clone(owned)
					now["main.2"] = etcd.Owner{Server: "two", Epoch: 5}
					r.HearOwners(now)
				})
				defer arrived.Stop()
				if c.arrives == 0 {
					synctest.Wait()
				}
				begin := time.Now()
				_, err := (&membership{m: &memberParts{view: r}}).SplitApp(t.Context(), &apiv1.SplitAppRequest{App: "hot", Units: 3})
				took := time.Since(begin)
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(status.Convert(err).Message(), "only 2 partitions have an owner that is not drained") || took < c.min || took > c.min+time.Millisecond {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}
