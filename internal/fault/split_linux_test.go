package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/history"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/sdk"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// hot is the app that is split.
const hot = "hot"

// defineHot defines jobs in all slots of the app, some of them with a schedule. It
// returns the jobs to order and the schedules.
func defineHot(t *testing.T, c *sdk.Client, s *service) (ordered []string, fire []history.Schedule) {
	t.Helper()
	apply := func(name, path string, schedule *sdk.Schedule) {
		j := &sdk.Job{
			App: hot, Name: name, Retry: &sdk.Retry{Max: 5, First: "50ms"}, Schedule: schedule,
			Handler: &sdk.Handler{Name: "builtin:http", Http: &apiv1.HTTPCall{Method: "POST", Url: "http://" + s.addresses()[0] + "/" + path + "?app=" + hot, Timeout: "5m"}},
		}
		if schedule != nil {
			j.Misfire = &sdk.Misfire{Policy: "fire_all", Max: 1000}
			fire = append(fire, history.Schedule{Job: hot + "/" + name, Every: time.Second})
		} else {
			ordered = append(ordered, hot+"/"+name)
		}
		if _, err := c.Apply(t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	apply("quick", "quick", nil)
	for i := range 24 {
		apply(fmt.Sprint("quick-", i), "quick", nil)
	}
	for i := range 6 {
		apply(fmt.Sprint("flaky-", i), "flaky", nil)
		apply(fmt.Sprint("brief-", i), "brief", nil)
		apply(fmt.Sprint("tick-", i), "tick", &sdk.Schedule{Every: "1s"})
		apply(fmt.Sprint("tock-", i), "tock", &sdk.Schedule{Cron: "* * * * * *"})
	}
	return ordered, fire
}

// units maps each epoch to its partition. An epoch is the revision of etcd at which an
// ownership began, so no two ownerships have the same one.
type units struct {
	mu sync.Mutex
	of map[uint64]string
}

func (u *units) hear(owners map[string]etcd.Owner) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for unit, o := range owners {
		u.of[o.Epoch] = unit
	}
}

// group sets the partition of each task to the one whose owner sent it, because a slot
// that moves gets the epochs of its new partition. It returns the number of tasks whose
// epoch no watcher has seen.
func (u *units) group(all []history.Dispatch) (unseen int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i, d := range all {
		unit, ok := u.of[d.Epoch]
		if !ok {
			unseen++
			unit = fmt.Sprint("epoch ", d.Epoch)
		}
		all[i].Group = d.Group + " in " + unit
	}
	return unseen
}

// harm is a fault of a server while slots move.
type harm struct {
	name string
	from bool // to the server that they leave, otherwise to the one that they move to
	do   func(p *part, rnd *rand.Rand)
}

var harms = []harm{
	{"kill the server that slots move from", true, kill},
	{"kill the server that slots move to", false, kill},
	{"stop the server that slots move from beyond its lease", true, func(p *part, rnd *rand.Rand) { stop(p, awhile(rnd)) }},
	{"stop the server that slots move to beyond its lease", false, func(p *part, rnd *rand.Rand) { stop(p, awhile(rnd)) }},
}

// travel is the progress of an app towards its desired placement.
type travel struct {
	there    int // slots that have arrived, of 16
	from, to string
}

// travelOf returns the progress of an app, and the servers that its moving slots leave
// and enter.
func travelOf(s *sdk.Cluster, app string) (at travel) {
	owner := map[string]string{}
	for _, u := range s.GetUnits() {
		owner[u.GetName()] = u.GetAddress()
	}
	at.there = 16
	i := slices.IndexFunc(s.GetSplit(), func(x *sdk.SplitApp) bool { return x.GetApp() == app })
	if i < 0 {
		return at
	}
	for _, sh := range s.Split[i].Shares {
		switch more := int(sh.Wanted - sh.Slots); {
		case more > 0:
			at.there -= more
			if at.to == "" {
				at.to = owner[sh.Unit]
			}
		case more < 0 && at.from == "":
			at.from = owner[sh.Unit]
		}
	}
	return at
}

// TestSplitUnderFaults repeatedly splits an app over three servers and merges it again.
// At random moments it kills or stops the server that slots move from or to, while
// producers send orders and schedules fire. Nothing is lost and nothing is executed
// twice, because no host is harmed.
func TestSplitUnderFaults(t *testing.T) {
	long := formOf(t)
	t.Parallel() // it waits most of the time
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 4))
	c := newCluster(t, shape{etcd: embedded, members: 1, servers: 3, hosts: 3, slots: 32, binary: program(t), units: 3})
	c.units = &units{of: map[uint64]string{}}
	client := c.dial(time.Minute)
	o := newOrders(seed)
	o.apps = []string{hot}
	var ordered []string
	ordered, o.schedules = defineHot(t, client, c.service)
	c.orders = o
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	busy.Go(func() { c.watch.Owners(ctx, c.units.hear) }) //nolint:errcheck // it ends with ctx
	o.jobs = ordered
	for range 3 {
		p := c.dial(10 * time.Second)
		busy.Go(func() { o.produce(ctx, t, p, 20*time.Millisecond) })
	}
	busy.Go(func() { o.look(ctx, client) })
	c.works(o, "at first")

	said := func() string { s, err := client.Cluster(t.Context()); return fmt.Sprint(s, err) }
	// now returns the progress of the app, as soon as a server can report it.
	now := func() (at travel) {
		until(t, "the cluster to say where the app is", time.Minute, func() bool {
			short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			s, err := client.Cluster(short)
			at = travelOf(s, hot)
			return err == nil
		})
		return at
	}
	set := func(spread bool) {
		until(t, "the command to be taken", time.Minute, func() bool {
			short, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			var err error
			if spread {
				_, err = client.SplitApp(short, hot, 3)
			} else {
				_, err = client.MergeApp(short, hot)
			}
			if err != nil && !mayFail(err) && !strings.Contains(err.Error(), "have an owner") {
				t.Fatal(err)
			}
			return err == nil
		}, said)
	}
	until(t, "three servers to share the partitions", time.Minute, func() bool {
		at := map[int]bool{}
		for _, o := range c.owners() {
			at[o.server] = true
		}
		return len(at) == 3
	}, said)

	rounds, each, hit := 1, len(harms)-1, 0 // the short form takes any three, to save time
	if long {
		rounds, each = 5, len(harms)
	}
	spread := false
	for range rounds {
		for _, i := range rnd.Perm(len(harms))[:each] {
			h := harms[i]
			spread = !spread
			begin, after, late := time.Now(), rnd.IntN(12), time.Duration(rnd.IntN(30))*time.Millisecond
			set(spread)
			var at travel
			for at = now(); at.there < after; at = now() {
				wait(time.Millisecond)
			}
			wait(late)
			at = now()
			victim := slices.IndexFunc(c.front, func(l *link) bool { return h.from && l.address() == at.from || !h.from && l.address() == at.to })
			if victim < 0 { // the move was quicker
				victim = rnd.IntN(len(c.servers))
			} else {
				hit++
			}
			h.do(c.servers[victim], rnd)
			took := until(t, "the app to be where it is wanted", time.Minute, func() bool { return now().there == 16 }, said)
			again := c.works(o, h.name)
			t.Logf("spread: %v; %s (s%d), when %d slots had moved: they all had %v later, and it works %v after that; the longest time without the start of a run: %v",
				spread, h.name, victim, at.there, took.Round(time.Millisecond), again.Round(time.Millisecond), c.service.gap(hot+"/quick", begin, time.Now()).Round(time.Millisecond))
			if t.Failed() {
				break
			}
		}
	}
	if hit == 0 {
		t.Error("no slot was moving when something happened: the test shows nothing")
	}
	until(t, "the schedules to fire", 30*time.Second, func() bool { return c.service.ended("/tick") > 60 && c.service.ended("/tock") > 60 })
	cancel()
	busy.Wait()
	runs := o.settle(t, c.dial(time.Minute))
	once := slices.Clone(ordered)
	for _, s := range o.schedules {
		once = append(once, s.Job)
	}
	o.judge(t, c, runs, once...)
	for _, p := range c.hosts {
		if p.again > 0 {
			t.Errorf("%s ended by itself and was started again %d times: %s", p.name, p.again, strings.Join(slices.Compact(p.why), "; "))
		}
	}
	for _, p := range c.servers {
		p.end(syscall.SIGTERM)
	}
}
