package membership

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
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

// viewOf returns the view of a server that receives nothing from etcd.
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

// replica is a partition of a server. It is served while services is set.
type replica struct {
	name     string
	services atomic.Pointer[router.Services]
}

func (r *replica) Name() string                      { return r.name }
func (r *replica) Serving() *router.Services         { return r.services.Load() }
func (r *replica) Report() *cluster.PartitionReport  { return nil }
func (r *replica) Progress() (f cluster.FollowState) { return f }

// TestTellsOfUnitsAtOnce: a nameserver gets a report as soon as this server serves a
// partition, and as soon as it no longer does. Changes of other servers' partitions cause
// no report.
func TestTellsOfUnitsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := viewOf("main", "main.1")
		u := &replica{name: "main.1"}
		m := &Member{View: r, Keys: func() []string { return nil }, Partitions: []Partition{&replica{name: "main"}, u}}
		told := make(chan string)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(told)
			for owned := m.Owns(); m.UntilOther(ctx, owned, nil); {
				owned = m.Owns()
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
		r.ReceiveOwners(map[string]etcd.Owner{"main": {Server: "you"}})
		quiet("another server's partition")
		u.services.Store(router.NewServices(&sched.Server{}))
		r.Wake()
		if s := <-told; s != "main.1=0 " {
			t.Errorf("it owns %q", s)
		}
		r.Wake()
		quiet("nothing")
		u.services.Store(nil)
		r.ReceiveOwners(map[string]etcd.Owner{})
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
				r.Receive(factsOf("server/one", string(here), "server/two", string(here), "drain/two", "1", "app/hot", "main"), true)
				r.ReceiveOwners(owned)
				arrived := time.AfterFunc(c.arrives, func() {
					now := maps.Clone(owned)
					now["main.2"] = etcd.Owner{Server: "two", Epoch: 5}
					r.ReceiveOwners(now)
				})
				defer arrived.Stop()
				if c.arrives == 0 {
					synctest.Wait()
				}
				begin := time.Now()
				_, err := (&Member{View: r}).Service().SplitApp(t.Context(), &apiv1.SplitAppRequest{App: "hot", Units: 3})
				took := time.Since(begin)
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(status.Convert(err).Message(), "only 2 partitions have an owner that is not drained") || took < c.min || took > c.min+time.Millisecond {
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

func TestTrips(t *testing.T) {
	var trips trips
	for i := range tripsEnough {
		if d := trips.least(); d != 0 {
			t.Errorf("after %d: %v", i, d)
		}
		trips.add(time.Second)
	}
	trips.add(time.Millisecond)
	if d := trips.least(); d != time.Millisecond {
		t.Errorf("%v", d)
	}
	for range len(trips.last) {
		trips.add(2 * time.Millisecond)
	}
	if d := trips.least(); d != 2*time.Millisecond {
		t.Errorf("what was long ago counts: %v", d)
	}
}
