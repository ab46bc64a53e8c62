package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// three is a cluster of three servers, which keep their journals in an etcd of the test.
type three struct {
	program   program
	dir       string
	hosts     string              // the file with the token of hosts
	addresses []string            // of the servers a, b and c
	servers   map[string]*process // by address
	start     func(t *testing.T, address string) *process
}

const tokenOfThree = "ww_the-administrators-token-of-this-test"

func startThree(t *testing.T, units int) *three {
	t.Helper()
	c := &three{program: buildProgram(t, ""), dir: t.TempDir(), servers: map[string]*process{}}
	member, err := etcd.Start(t.Context(), etcd.MemberConfig{
		Name: "one", Dir: filepath.Join(c.dir, "etcd"), Client: "http://" + testkit.FreeAddress(t), Peer: "http://" + testkit.FreeAddress(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { member.Close() }) //nolint:errcheck // a test's
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.hosts = filepath.Join(c.dir, "shared")
	write(c.hosts, "a-secret-that-hosts-share\n")
	own := filepath.Join(c.dir, "server-token")
	write(own, "a-secret-that-only-servers-share\n")
	names := map[string]string{} // by address
	ready := func(address string) string { return filepath.Join(c.dir, names[address]+".ready") }
	c.start = func(t *testing.T, address string) *process {
		return c.program.role(t, ready(address), "server", "--data", filepath.Join(c.dir, names[address]), "--listen", address, "--token-file", c.hosts, "--server-token-file", own,
			"--etcd-endpoints", member.Client(), "--units", fmt.Sprint(units))
	}
	for _, name := range []string{"a", "b", "c"} {
		at := testkit.FreeAddress(t)
		names[at] = name
		write(filepath.Join(c.dir, name, "token"), tokenOfThree+"\n")
		c.addresses = append(c.addresses, at)
		c.servers[at] = c.start(t, at)
	}
	for _, at := range c.addresses {
		c.servers[at].serves(t, ready(at))
	}
	return c
}

func (c *three) dial(t *testing.T) *sdk.Client {
	t.Helper()
	return dial(t, "http://"+strings.Join(c.addresses, ",http://"), sdk.Options{Token: tokenOfThree, RetryFor: time.Minute})
}

// TestUnitsOutliveTheirOwner kills one of three servers, which own six partitions between
// them, while jobs of all partitions run and are triggered. The lost partitions go to
// both other servers. Running attempts continue and are not executed again, every
// acknowledged trigger has one run, and no planned time is left out. The hosts and the
// client use no nameserver: the servers play that role.
func TestUnitsOutliveTheirOwner(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	const units = 6
	three := startThree(t, units)
	p, dir, all, servers := three.program, three.dir, three.addresses, three.servers
	ready := filepath.Join(dir, "host.ready")
	p.role(t, ready, "host", "--data", filepath.Join(dir, "host"), "--nameserver", strings.Join(all, ","), "--token-file", three.hosts, "--slots", "256").serves(t, ready)

	c := three.dial(t)
	owned := func() map[string]int {
		n := map[string]int{}
		if s, err := c.Cluster(t.Context()); err == nil {
			for _, u := range s.Units {
				if u.State == "owned" && servers[u.Address] != nil {
					n[u.Address]++
				}
			}
		}
		return n
	}
	until(t, "every server to own two units", func() bool {
		n := owned()
		return n[all[0]] == 2 && n[all[1]] == 2 && n[all[2]] == 2
	})
	var apps []string
	for i := range units {
		app := fmt.Sprint("app", i) // one app for each partition: a new app goes to the emptiest partition
		apps = append(apps, app)
		if _, _, err := c.PushModule(t.Context(), sdk.Upload{App: app, Name: "sleep", Version: "1", Code: sleepModule}); err != nil {
			t.Fatal(err)
		}
		for _, job := range []*sdk.Job{
			{Name: "slow"},
			{Name: "every", Schedule: &sdk.Schedule{Every: "1s"}, Misfire: &sdk.Misfire{Policy: "fire_all"}, Input: "\x00"},
		} {
			job.App, job.Handler = app, &sdk.Handler{Module: "sleep@1"}
			if _, err := c.Apply(t.Context(), job); err != nil {
				t.Fatal(err)
			}
		}
	}
	runs := map[string]string{} // app by run
	trigger := func(round string) {
		t.Helper()
		for i, app := range apps {
			for k := range 5 {
				r, err := c.Trigger(t.Context(), sdk.Trigger{App: app, Job: "slow", Input: []byte{5}, Key: fmt.Sprint(round, i, ".", k)})
				if err != nil {
					t.Fatal(err)
				}
				if runs[r.RunID] != "" {
					t.Errorf("the run %s was acknowledged twice", r.RunID)
				}
				runs[r.RunID] = app
			}
		}
	}
	trigger("before")
	until(t, "the runs to be on the host", func() bool {
		n := int64(0)
		for _, app := range apps {
			if o, err := c.Overview(t.Context(), app); err == nil {
				n += o.Running
			}
		}
		return n >= 5*units
	})
	victim := all[rnd.IntN(len(all))]
	killed := time.Now()
	servers[victim].kill(t)
	delete(servers, victim)
	trigger("after")
	t.Logf("every app took commands %v after a server was killed", time.Since(killed).Round(time.Millisecond))
	until(t, "its units to have owners", func() bool {
		n, sum := owned(), 0
		for _, k := range n {
			sum += k
		}
		return sum == units
	})
	t.Logf("every unit had an owner after %v", time.Since(killed).Round(time.Millisecond))
	for at, n := range owned() {
		if n != units/2 {
			t.Errorf("%s owns %d of %d units: those of the lost one are not spread", at, n, units)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for id, app := range runs {
		r, err := c.Wait(ctx, app, id)
		if err != nil {
			t.Fatal(err)
		}
		if r.State != "succeeded" || r.Attempt != 1 {
			t.Errorf("run %s of %s is %s after %d attempts: %s", id, app, r.State, r.Attempt, r.Error)
		}
	}
	for _, app := range apps {
		if _, err := c.Pause(t.Context(), app, "every"); err != nil {
			t.Fatal(err)
		}
		planned, first, last := map[int64]int{}, int64(0), int64(0)
		for r, err := range c.Runs(t.Context(), sdk.RunQuery{App: app, Job: "every"}) {
			if err != nil {
				t.Fatal(err)
			}
			at := r.PlannedAt.AsTime().UnixMilli() / 1000
			planned[at]++
			if first == 0 || at < first {
				first = at
			}
			last = max(last, at)
		}
		if last-first < 5 {
			t.Errorf("the schedule of %s fired from %d to %d only", app, first, last)
		}
		for at := first; at <= last; at++ {
			if planned[at] != 1 {
				t.Errorf("%s: the planned time %v has %d runs", app, time.Unix(at, 0), planned[at])
			}
		}
	}
}
