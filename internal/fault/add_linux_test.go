package fault

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestAddServer adds a third, idle server to two servers under a steady load and checks
// that the third one soon owns its share. Then the test moves partitions by hand and
// drains the third server. Nothing is lost or executed twice. The test logs how soon the
// server owned its share (the goal is 30 s) and for how long an app paused (the goal is 1
// s). It does not fail when these times are longer, because other work on the machine
// makes them longer.
func TestAddServer(t *testing.T) {
	formOf(t)
	t.Parallel() // with TestUpgrade: both wait most of the time
	s := shape{etcd: embedded, members: 3, servers: 2, hosts: 3, slots: 32, binary: program(t)}
	c := newCluster(t, s)
	client := c.dial(time.Minute)
	defineJobs(t, client, c.service)
	o := newOrders(testkit.Seed(t))
	c.orders = o
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	for _, app := range apps { // a steady load on each app: about fifty triggers a second
		p := c.dial(10 * time.Second)
		for range 2 {
			busy.Go(func() {
				pace := time.NewTicker(40 * time.Millisecond)
				defer pace.Stop()
				for ctx.Err() == nil {
					if _, err := o.ask(ctx, p, o.add(app+"/quick")); err != nil && ctx.Err() == nil && !mayFail(err) {
						t.Errorf("a producer: %v", err)
					}
					<-pace.C
				}
			})
		}
	}
	busy.Go(func() { o.look(ctx, client) })
	c.works(o, "at first")
	status := func() *sdk.Cluster {
		s, err := client.Cluster(t.Context())
		if err != nil {
			return nil
		}
		return s
	}
	// owns returns how many partitions each server owns, and how many of those have apps.
	// It returns nil while a partition has no owner.
	owns := func() (all, used map[string]int) {
		all, used = map[string]int{}, map[string]int{}
		for _, u := range status().GetUnits() {
			if u.GetState() != "owned" {
				return nil, nil
			}
			all[u.GetAddress()]++
			if u.GetApps() > 0 {
				used[u.GetAddress()]++
			}
		}
		return all, used
	}
	said := func() string { return fmt.Sprint(status()) }
	until(t, "two servers to share the apps", time.Minute, func() bool {
		_, used := owns()
		return len(used) == 2
	}, said)

	// pause logs the longest time for which each app stood still since a moment.
	pause := func(what string, since time.Time) {
		t.Helper()
		now, most, tick := time.Now(), map[string]time.Duration{}, map[string]time.Duration{}
		for _, app := range apps {
			most[app] = c.service.gap(app+"/quick", since, now).Round(time.Millisecond)
			tick[app] = max(0, c.service.gap(app+"/tick", since, now)-time.Second).Round(time.Millisecond)
		}
		t.Logf("%s: the longest time without the start of a run of an app: %v; a schedule fired late by at most %v", what, most, tick)
	}
	begin := time.Now()
	wait(5 * time.Second)
	pause("at rest", begin)

	begin = time.Now()
	third := c.addServer(s, c.namesAt)
	at := c.front[2].address()
	took := until(t, "the third server to own its share", 90*time.Second, func() bool {
		_, used := owns() // the balancer spreads the schedules, and four partitions have some
		return len(used) == 3 && used[at] >= 1
	}, said)
	wait(time.Second)
	pause("a server was added", begin)
	t.Logf("the third server owned its share %v after its start", took.Round(time.Millisecond))

	moved := 0
	for _, u := range status().GetUnits() {
		if u.GetApps() == 0 || u.GetState() != "owned" {
			continue
		}
		to := c.front[(slices.IndexFunc(c.front, func(l *link) bool { return l.address() == u.GetAddress() })+1)%3].address()
		begin = time.Now()
		if _, err := client.MoveUnit(t.Context(), u.GetName(), to); err != nil {
			t.Fatal(err)
		}
		var now *sdk.Unit // the balancer may have moved it again by then
		took := until(t, u.GetName()+" to be owned again", 90*time.Second, func() bool {
			units := status().GetUnits()
			i := slices.IndexFunc(units, func(is *sdk.Unit) bool { return is.GetName() == u.GetName() && is.GetState() == "owned" })
			if i >= 0 {
				now = units[i]
			}
			return i >= 0
		}, said)
		wait(time.Second)
		pause(fmt.Sprintf("%s was moved in %v", u.GetName(), took.Round(time.Millisecond)), begin)
		if now.GetEpoch() > u.GetEpoch() {
			moved++
		}
	}
	if moved == 0 {
		t.Error("no partition was moved: the test shows nothing")
	}

	begin = time.Now()
	if _, err := client.Drain(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	until(t, "the third server to own nothing", 90*time.Second, func() bool { all, _ := owns(); return len(all) > 0 && all[at] == 0 }, said)
	third.end(syscall.SIGTERM)
	wait(time.Second)
	pause("the third server left", begin)

	cancel()
	busy.Wait()
	runs := o.settle(t, c.dial(time.Minute))
	var once []string
	for _, app := range apps {
		once = append(once, app+"/quick", app+"/tick", app+"/tock")
	}
	o.judge(t, c, runs, once...)
	for _, p := range slices.Concat(c.servers, c.hosts) {
		if p.again > 0 {
			t.Errorf("%s ended by itself and was started again %d times: %s", p.name, p.again, strings.Join(slices.Compact(p.why), "; "))
		}
	}
}
