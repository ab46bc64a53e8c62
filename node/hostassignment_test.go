package node_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/nameserver/balance"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// sessions returns the number of sessions between hosts and the owners of all partitions.
func sessions(s *sdk.Cluster) (n int) {
	for _, u := range s.GetUnits() {
		n += int(u.GetHosts())
	}
	return n
}

// greets pushes the module greet and applies a job of an app.
func (w *several) greets(c *sdk.Client, def *sdk.Job) {
	w.t.Helper()
	if _, _, err := c.PushModule(w.t.Context(), sdk.Upload{App: def.App, Name: "greet", Version: "1", Code: greet.Module}); err != nil {
		w.t.Fatal(err)
	}
	def.Handler, def.Input = &sdk.Handler{Module: "greet@1"}, "you"
	if _, err := c.Apply(w.t.Context(), def); err != nil {
		w.t.Fatal(err)
	}
}

// ends triggers a run and waits until it has succeeded.
func (w *several) ends(c *sdk.Client, app, job, key string) *sdk.Run {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 60*time.Second)
	defer cancel()
	begin := time.Now()
	defer func() {
		if took := time.Since(begin); took > time.Second {
			w.t.Logf("%s/%s took %v", app, job, took.Round(time.Millisecond))
		}
	}()
	r, err := c.Trigger(ctx, sdk.Trigger{App: app, Job: job, Key: key})
	if err != nil {
		w.t.Fatal(err)
	}
	done, err := c.Wait(ctx, app, r.RunID)
	if err != nil || done.State != sdk.Succeeded {
		why, _ := c.ExplainRun(w.t.Context(), app, r.RunID)
		w.t.Fatalf("run %s of %s/%s: %v, %v; %v", r.RunID, app, job, done, err, why)
	}
	return done
}

// light starts a host that executes nothing. stop ends it.
func (w *several) light(id string, servers ...string) (stop func()) {
	w.t.Helper()
	var at []string
	for _, s := range servers {
		at = append(at, w.at[s])
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := node.LightHost(ctx, strings.Join(at, ","), memberToken, id); err != nil {
			w.t.Errorf("host %s: %v", id, err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	w.t.Cleanup(stop)
	return stop
}

// TestHostsAreDivided: of six hosts that serve all apps, two are enough for a partition,
// so each works for one of three. Still every app has its runs executed, a broadcast
// reaches all six, a run reaches a host that works for another partition, and borrowed
// hosts leave again. A host and a server go away and come back.
func TestHostsAreDivided(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 3)
	w.most = 2
	w.start("a")
	w.start("b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	apps := w.place(c, "a")
	const hosts = 6
	stop := map[string]func(){}
	for i := range hosts {
		id := fmt.Sprint("h", i)
		stop[id] = w.light(id, "a", "b")
	}
	w.until(c, "each host works for one partition", func(s *sdk.Cluster) bool {
		return s.UnitsPerHost == 1 && s.Hosts == hosts && sessions(s) == hosts
	})
	var partitions []string
	for partition, app := range apps {
		partitions = append(partitions, partition)
		w.greets(c, &sdk.Job{App: app, Name: "hello"})
		w.greets(c, &sdk.Job{App: app, Name: "everywhere", Fanout: &sdk.Fanout{Mode: "broadcast"}})
	}
	slices.Sort(partitions)
	for _, partition := range partitions {
		for i := range 5 {
			if r := w.ends(c, apps[partition], "hello", fmt.Sprint(i)); !once(r) {
				t.Errorf("run %s after the attempts %v", r.Id, r.Attempts)
			}
		}
	}
	if r := w.ends(c, apps[partitions[0]], "everywhere", "all"); r.Parts != hosts || r.PartsSucceeded != hosts {
		t.Errorf("a broadcast to %d hosts has %d parts, of which %d succeeded", hosts, r.Parts, r.PartsSucceeded)
	}
	// A run for a host that works for another partition.
	known, err := c.Hosts(t.Context())
	if err != nil || len(known) != hosts {
		t.Fatalf("%d hosts, %v", len(known), err)
	}
	at := slices.IndexFunc(known, func(h *sdk.Host) bool { return balance.Assign(h.Id, partitions, nil) != partitions[1] })
	far := known[at]
	w.greets(c, &sdk.Job{App: apps[partitions[1]], Name: "there", Routing: &sdk.Routing{Hosts: []string{far.Name}}})
	if r := w.ends(c, apps[partitions[1]], "there", "1"); r.Host != far.Id {
		t.Errorf("a run that is for host %s was executed by %s", far.Id, r.Host)
	}
	w.until(c, "hosts that were called leave again", func(s *sdk.Cluster) bool {
		return sessions(s) == hosts && !slices.ContainsFunc(s.Units, func(u *sdk.Unit) bool { return len(u.Calls) > 0 })
	})
	// A run for a host that does not exist reports why it waits: all hosts were borrowed,
	// and it is none of them.
	w.greets(c, &sdk.Job{App: apps[partitions[2]], Name: "nowhere", Routing: &sdk.Routing{Hosts: []string{"nobody"}}})
	lost, err := c.Trigger(t.Context(), sdk.Trigger{App: apps[partitions[2]], Job: "nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	w.until(c, "all hosts are called", func(s *sdk.Cluster) bool {
		return int(partitionOf(s, partitions[2]).Hosts) == hosts && slices.Contains(partitionOf(s, partitions[2]).Calls, apps[partitions[2]])
	})
	if why, err := c.ExplainRun(t.Context(), apps[partitions[2]], lost.RunID); err != nil || len(why.Hosts) != hosts {
		t.Errorf("%v, %v", why, err)
	}
	if _, err := c.Cancel(t.Context(), apps[partitions[2]], lost.RunID); err != nil {
		t.Fatal(err)
	}
	// A host goes away and comes back; a server goes away.
	stop[far.Id]()
	w.until(c, "one host is away", func(s *sdk.Cluster) bool { return s.Hosts == hosts-1 })
	w.light(far.Id, "a", "b")
	w.until(c, "it is back", func(s *sdk.Cluster) bool { return s.Hosts == hosts })
	if err := w.all["b"].stop(); err != nil {
		t.Error(err)
	}
	w.until(c, "one server owns all", func(s *sdk.Cluster) bool { return owned(s)[w.at["a"]] == 3 })
	for _, partition := range partitions {
		w.ends(c, apps[partition], "hello", "after")
	}
	if r := w.ends(c, apps[partitions[1]], "everywhere", "after"); r.Parts != hosts {
		t.Errorf("after a server went away a broadcast to %d hosts has %d parts", hosts, r.Parts)
	}
	w.until(c, "each host works for one partition again", func(s *sdk.Cluster) bool { return s.Hosts == hosts && sessions(s) == hosts })
}

// TestAppIsSplitByItsHosts: an app that five hosts serve by name, where two are enough,
// is spread over the partitions of two servers, and each of its hosts works for one of
// them. After an operator has merged the app, all its hosts work for one partition.
func TestAppIsSplitByItsHosts(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2)
	w.most = 2
	w.start("a")
	w.start("b")
	c := w.client("a", "b")
	w.until(c, "each server owns a partition", func(s *sdk.Cluster) bool { n := owned(s); return n[w.at["a"]] == 1 && n[w.at["b"]] == 1 })
	const app, hosts, jobs = "wide", 5, 16
	for i := range jobs {
		w.greets(c, &sdk.Job{App: app, Name: fmt.Sprint("job-", i)})
	}
	w.greets(c, &sdk.Job{App: app, Name: "everywhere", Fanout: &sdk.Fanout{Mode: "broadcast"}})
	for i := range hosts {
		w.hostOf(fmt.Sprint("h", i), []string{app}, "a", "b")
	}
	w.until(c, "the app is in two partitions, and each of its hosts works for one", func(s *sdk.Cluster) bool {
		x := splitOf(s, app)
		return arrived(s, app, 2) && x.GetHostsDivided() && x.GetHosts() == hosts && sessions(s) == hosts
	})
	for i := range 2 * jobs {
		if r := w.ends(c, app, fmt.Sprint("job-", i%jobs), fmt.Sprint(i)); !once(r) {
			t.Errorf("run %s after the attempts %v", r.Id, r.Attempts)
		}
	}
	if r := w.ends(c, app, "everywhere", "1"); r.Parts != hosts {
		t.Errorf("a broadcast to %d hosts has %d parts", hosts, r.Parts)
	}
	s, err := c.MergeApp(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	home := splitOf(s, app).GetHome()
	w.until(c, "the app and its hosts are in one partition", func(s *sdk.Cluster) bool {
		return arrived(s, app, 1) && int(partitionOf(s, home).Hosts) == hosts
	})
	for i := range jobs {
		w.ends(c, app, fmt.Sprint("job-", i), "merged")
	}
}

// TestSessionsOfManyHosts: with a bound on hosts there is one session for each host
// instead of one for each host and partition. WHEELWORK_HOSTS sets the number of hosts, and
// -v prints the sessions of each server.
func TestSessionsOfManyHosts(t *testing.T) {
	t.Parallel()
	hosts := 24
	if n, err := strconv.Atoi(os.Getenv("WHEELWORK_HOSTS")); err == nil {
		hosts = n
	}
	w := newSeveral(t, 6)
	w.most = hosts
	w.start("a")
	w.start("b")
	c := w.client("a", "b")
	shared := func(s *sdk.Cluster) bool { n := owned(s); return n[w.at["a"]] == 3 && n[w.at["b"]] == 3 }
	w.until(c, "each server owns three partitions", shared)
	for i := range hosts {
		w.light(fmt.Sprint("light-", i), "a", "b")
	}
	byServer := func(s *sdk.Cluster) map[string]int {
		n := map[string]int{}
		for _, u := range s.Units {
			n[u.Address] += int(u.Hosts)
		}
		return n
	}
	s := w.until(c, "every host works for every partition", func(s *sdk.Cluster) bool { return sessions(s) == 6*hosts })
	t.Logf("%d hosts, bound %d: %d sessions, by server %v", hosts, w.most, sessions(s), byServer(s))
	app := w.place(c, "a")["main"]
	w.greets(c, &sdk.Job{App: app, Name: "everywhere", Fanout: &sdk.Fanout{Mode: "broadcast"}})
	w.most = hosts / 6
	for _, name := range []string{"a", "b"} {
		if err := w.all[name].stop(); err != nil {
			t.Error(err)
		}
		w.start(name)
	}
	s = w.until(c, "every host works for one partition", func(s *sdk.Cluster) bool {
		return shared(s) && s.UnitsPerHost == 1 && int(s.Hosts) == hosts && sessions(s) == hosts
	})
	t.Logf("%d hosts, bound %d: %d sessions, by server %v", hosts, w.most, sessions(s), byServer(s))
	begin := time.Now()
	if r := w.ends(c, app, "everywhere", "1"); int(r.Parts) != hosts {
		t.Errorf("a broadcast to %d hosts has %d parts", hosts, r.Parts)
	}
	t.Logf("a broadcast to all of them took %v", time.Since(begin).Round(time.Millisecond))
}
