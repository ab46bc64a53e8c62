package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// fault is something that goes wrong. It repairs the damage before it returns, or leaves
// the repair to the code that supervises the parts.
type fault struct {
	name string
	do   func(c *cluster, rnd *rand.Rand)
	// needs returns what the fault lacks on this machine; "": nothing.
	needs func(c *cluster) string
	// long reports that the fault takes too long for the short form.
	long bool
}

// awhile is longer than a lease, so that another server takes over.
func awhile(rnd *rand.Rand) time.Duration {
	return lease + 700*time.Millisecond + time.Duration(rnd.IntN(1000))*time.Millisecond
}

func moment(rnd *rand.Rand) time.Duration { return time.Duration(rnd.IntN(700)) * time.Millisecond }

func either(rnd *rand.Rand) cut { return []cut{silent, loud}[rnd.IntN(2)] }

func (c *cluster) host(rnd *rand.Rand) *part { return c.hosts[rnd.IntN(len(c.hosts))] }

func (c *cluster) busy(rnd *rand.Rand) *part { return c.servers[c.worker(rnd)] }

func kill(p *part, rnd *rand.Rand) {
	p.end(syscall.SIGKILL)
	if rnd.IntN(2) == 0 {
		wait(moment(rnd))
	} else {
		wait(awhile(rnd))
	}
	p.start()
}

func stop(p *part, d time.Duration) {
	p.signal(syscall.SIGSTOP)
	wait(d)
	p.signal(syscall.SIGCONT)
}

func lose(p *part) {
	p.end(syscall.SIGKILL)
	p.wipe()
	p.start()
}

func (l *link) during(how cut, who string, d time.Duration) {
	l.sever(how, who)
	wait(d)
	l.heal(who)
}

// all cuts several links for the same time.
func all(links []*link, how cut, who string, d time.Duration) {
	for _, l := range links {
		l.sever(how, who)
	}
	wait(d)
	for _, l := range links {
		l.heal(who)
	}
}

// burden orders runs that last for seconds. It returns them, and a host that executes
// some of them.
func (c *cluster) burden() (*part, []runName) {
	c.t.Helper()
	client := c.dial(time.Minute)
	var runs []runName
	for range 10 {
		i, app := c.orders.any("slow")
		if id, err := c.orders.ask(c.t.Context(), client, i); err == nil { // else it stays open
			runs = append(runs, runName{app, id})
		}
	}
	until(c.t, "the runs to begin", 30*time.Second, func() bool { return c.service.running("/slow") >= len(runs)/2 })
	most := c.hosts[0]
	for _, h := range c.hosts {
		if c.wire.holds(h.name) > c.wire.holds(most.name) {
			most = h
		}
	}
	return most, runs
}

var faults = []fault{
	{name: "kill the server that works", do: func(c *cluster, rnd *rand.Rand) { kill(c.busy(rnd), rnd) }},
	{name: "kill a server that stands by", do: func(c *cluster, rnd *rand.Rand) { kill(c.servers[c.standby(rnd)], rnd) }},
	{name: "stop the server that works beyond its lease", do: func(c *cluster, rnd *rand.Rand) { stop(c.busy(rnd), awhile(rnd)) }},
	{name: "stop the server that works for good", do: func(c *cluster, rnd *rand.Rand) {
		p := c.busy(rnd)
		p.signal(syscall.SIGSTOP)
		c.works(c.orders, "a server that answers nobody")
		p.end(syscall.SIGKILL)
		p.start()
	}},
	{name: "stop the server that works for a moment", do: func(c *cluster, rnd *rand.Rand) { stop(c.busy(rnd), moment(rnd)+time.Second) }},
	{name: "kill a host", do: func(c *cluster, rnd *rand.Rand) { kill(c.host(rnd), rnd) }},
	{name: "stop a host", do: func(c *cluster, rnd *rand.Rand) { stop(c.host(rnd), awhile(rnd)) }},
	{name: "cut a host off for longer than its runs are kept for it", do: func(c *cluster, rnd *rand.Rand) {
		// The cut lasts so long that other faults happen in the meantime. When the host
		// returns, its results are late: other hosts have its runs.
		p, _ := c.burden()
		c.beside.Go(func() { all(c.front, loud, p.name, hostLease+2*time.Second) })
		wait(moment(rnd))
	}},
	{name: "stop a host for good", long: true, do: func(c *cluster, _ *rand.Rand) {
		p, runs := c.burden()
		p.signal(syscall.SIGSTOP)
		client := c.dial(time.Minute)
		took := until(c.t, "its runs to end elsewhere", 90*time.Second, func() bool {
			for len(runs) > 0 {
				r, err := client.Run(c.t.Context(), runs[0].app, runs[0].id)
				if err != nil || r.GetFinishedAt() == nil {
					return false
				}
				runs = runs[1:]
			}
			return true
		})
		c.t.Logf("what a host had that answers nobody has ended elsewhere after %v", took.Round(time.Millisecond))
		p.end(syscall.SIGKILL)
		p.start()
	}},
	{name: "cut the server that works from etcd", do: func(c *cluster, rnd *rand.Rand) { all(c.etcdOf[c.worker(rnd)], either(rnd), "", awhile(rnd)) }},
	{name: "cut a server that stands by from etcd", do: func(c *cluster, rnd *rand.Rand) { all(c.etcdOf[c.standby(rnd)], either(rnd), "", awhile(rnd)) }},
	{name: "cut the server that works from the nameserver", do: func(c *cluster, rnd *rand.Rand) { c.namesOf[c.busy(rnd)].during(either(rnd), "", awhile(rnd)) }},
	{name: "cut a host from the server", do: func(c *cluster, rnd *rand.Rand) { all(c.front, either(rnd), c.host(rnd).name, awhile(rnd)) }},
	{name: "cut a host from the nameserver", do: func(c *cluster, rnd *rand.Rand) { c.namesOf[c.host(rnd)].during(either(rnd), "", awhile(rnd)) }},
	{name: "cut all from the server that works", do: func(c *cluster, rnd *rand.Rand) {
		i := c.worker(rnd)
		all([]*link{c.front[i], c.clients[i]}, either(rnd), "", awhile(rnd))
	}},
	{name: "cut producers from the server that works", do: func(c *cluster, rnd *rand.Rand) { c.clients[c.worker(rnd)].during(either(rnd), "", awhile(rnd)) }},
	{name: "kill a member of etcd", do: func(c *cluster, rnd *rand.Rand) { kill(c.members[rnd.IntN(len(c.members))], rnd) }},
	{name: "stop a member of etcd", do: func(c *cluster, rnd *rand.Rand) { stop(c.members[rnd.IntN(len(c.members))], awhile(rnd)) }},
	{name: "cut a member of etcd from the others", do: func(c *cluster, rnd *rand.Rand) {
		// The peers reach this member over one link; the member reaches them over theirs.
		// So its messages arrive, and no answer returns.
		c.peers[rnd.IntN(len(c.peers))].during(either(rnd), "", awhile(rnd))
	}},
	{name: "kill every member of etcd", do: func(c *cluster, rnd *rand.Rand) {
		for _, m := range c.members {
			m.end(syscall.SIGKILL)
		}
		wait(moment(rnd))
		for _, m := range c.members {
			m.start()
		}
	}},
	{name: "kill the nameserver", do: func(c *cluster, rnd *rand.Rand) {
		c.names.end(syscall.SIGKILL)
		wait(awhile(rnd))
		c.names.start()
	}},
	{name: "kill the nameserver and the server that works", do: func(c *cluster, rnd *rand.Rand) {
		p := c.busy(rnd)
		c.names.end(syscall.SIGKILL)
		p.end(syscall.SIGKILL)
		wait(moment(rnd))
		c.names.start()
		p.start()
	}},
	{name: "lose the disk of a server that stands by", do: func(c *cluster, rnd *rand.Rand) { lose(c.servers[c.standby(rnd)]) }},
	{name: "lose the disk of the server that works", do: func(c *cluster, rnd *rand.Rand) { lose(c.busy(rnd)) }},
	{name: "lose the disk of a host", do: func(c *cluster, rnd *rand.Rand) { lose(c.host(rnd)) }},
	{name: "slow disks", needs: needStrace, do: func(c *cluster, rnd *rand.Rand) {
		slow(c, awhile(rnd), c.busy(rnd), c.members[rnd.IntN(len(c.members))])
	}},
	{name: "fill the disk of a server that works", needs: func(c *cluster) string { return c.noSmallDisk }, do: fillDisk},
	{name: "a wrong clock", do: setClock},
	{name: "restart everything in turn", do: func(c *cluster, _ *rand.Rand) {
		for _, p := range slices.Concat(c.hosts, c.servers, []*part{c.names}, c.members) {
			p.end(syscall.SIGTERM)
			p.start()
			if p.ready != "" && !slices.Contains(c.servers, p) {
				until(c.t, p.name+" to be back", 30*time.Second, p.isReady)
			}
			until(c.t, "a server to work", 30*time.Second, c.hasOwner)
		}
	}},
}

func needStrace(*cluster) string {
	if _, err := exec.LookPath("strace"); err != nil {
		return "strace (Debian package strace) is not installed: nothing else slows a disk down"
	}
	return ""
}

// slow makes every sync of some processes take a tenth of a second longer. It uses
// strace, which also slows their other system calls a little.
func slow(c *cluster, d time.Duration, parts ...*part) {
	var watching sync.WaitGroup
	for _, p := range parts {
		cmd := exec.Command("strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync,fdatasync,msync", "-e", "inject=fsync,fdatasync,msync:delay_enter=100000",
			"-e", "signal=none", "-p", strconv.Itoa(p.pid()))
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			c.t.Errorf("strace: %v", err)
			return
		}
		watching.Go(func() {
			timer := time.AfterFunc(d, func() { cmd.Process.Signal(syscall.SIGINT) }) //nolint:errcheck // it may have ended
			cmd.Wait()                                                                //nolint:errcheck // a signal ends it
			timer.Stop()
			if strings.Contains(said.String(), "attach") {
				c.t.Errorf("strace of %s: %s", p.name, said.String())
			}
		})
	}
	watching.Wait()
}

// envFaults names the environment variable with the form of the suite.
const envFaults = "WHEELWORK_FAULTS"

func formOf(t *testing.T) (long bool) {
	t.Helper()
	switch form := os.Getenv(envFaults); form {
	case "short":
		return false
	case "long":
		return true
	case "":
		t.Skipf("takes a minute and the whole machine: %s=short go test ./internal/fault does it, or long", envFaults)
	default:
		t.Fatalf("%s=%s: want short or long", envFaults, form)
	}
	return false
}

// TestFaults causes one fault after another while producers send orders and schedules
// fire, and then checks that every promise was kept.
func TestFaults(t *testing.T) {
	long := formOf(t)
	seed := testkit.Seed(t)
	kinds := []etcdKind{embedded}
	if _, err := exec.LookPath("etcd"); err == nil {
		kinds = append(kinds, debian)
	} else {
		missing := "an external etcd (Debian package etcd-server) is not installed: all faults go to the embedded one"
		if testkit.Required() {
			t.Error(missing)
		}
		t.Log(missing)
	}
	binary := program(t)
	plan := planOf(t, rand.New(rand.NewPCG(seed, 0)), len(kinds), long)
	for i, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			play(t, kind, binary, plan[i], seed+uint64(i))
		})
	}
}

// planOf returns the faults for each of n clusters, in their order.
func planOf(t *testing.T, rnd *rand.Rand, n int, long bool) [][]fault {
	t.Helper()
	some := faults
	if only := os.Getenv("WHEELWORK_ONLY"); only != "" {
		some = slices.DeleteFunc(slices.Clone(faults), func(f fault) bool { return !strings.Contains(f.name, only) })
		if len(some) == 0 {
			t.Fatalf("WHEELWORK_ONLY=%s is in the name of no fault", only)
		}
	}
	shuffled := func() []fault {
		list := slices.Clone(some)
		rnd.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		return list
	}
	plan := make([][]fault, n)
	if !long {
		some = slices.DeleteFunc(slices.Clone(some), func(f fault) bool { return f.long })
		for i, f := range shuffled() {
			plan[i%n] = append(plan[i%n], f)
		}
		return plan
	}
	for range testkit.Rounds(t, 5) {
		for i := range plan {
			plan[i] = append(plan[i], shuffled()...)
		}
	}
	return plan
}

// play runs one cluster from its start to the final check.
func play(t *testing.T, kind etcdKind, binary string, plan []fault, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	c := newCluster(t, shape{etcd: kind, members: 3, servers: 3, hosts: 3, slots: 32, binary: binary, smallDisk: true})
	client := c.dial(time.Minute)
	defineJobs(t, client, c.service)
	o := newOrders(seed)
	c.orders = o
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	for range 3 {
		p := c.dial(10 * time.Second)
		busy.Go(func() { o.produce(ctx, t, p, 30*time.Millisecond) })
	}
	busy.Go(func() { o.look(ctx, client) })
	c.works(o, "at first")
	for _, f := range plan {
		if f.needs != nil {
			if missing := f.needs(c); missing != "" {
				if testkit.Required() {
					t.Errorf("%s: %s", f.name, missing)
				}
				t.Logf("left out: %s: %s", f.name, missing)
				continue
			}
		}
		begin := time.Now()
		c.service.longest()
		f.do(c, rnd)
		took, again := time.Since(begin), c.works(o, f.name)
		t.Logf("%s %s: %v, works again %v later, longest pause %v", begin.Format("04:05.000"), f.name,
			took.Round(time.Millisecond), again.Round(time.Millisecond), c.service.longest().Round(time.Millisecond))
		if t.Failed() {
			break
		}
	}
	c.beside.Wait()
	until(t, "the schedules to fire", 30*time.Second, func() bool { return c.service.ended("/tick") > 20 && c.service.ended("/tock") > 20 })
	cancel()
	busy.Wait()
	runs := o.settle(t, c.dial(time.Minute))
	o.judge(t, c, runs)
	for _, p := range slices.Concat(c.servers, c.hosts, []*part{c.names}, c.members) {
		if p.again > 0 {
			t.Logf("%s ended by itself and was started again %d times: %s", p.name, p.again, strings.Join(slices.Compact(p.why), "; "))
		}
	}
}

// works waits until an order of a new client succeeds. It returns how long that took.
func (c *cluster) works(o *orders, after string) time.Duration {
	c.t.Helper()
	begin := time.Now()
	client := c.dial(90 * time.Second)
	defer client.Close() //nolint:errcheck // it has served
	ctx, cancel := context.WithTimeout(c.t.Context(), 90*time.Second)
	defer cancel()
	i, app := o.any("quick")
	run, err := "", error(nil)
	for run == "" && ctx.Err() == nil {
		if run, err = o.ask(ctx, client, i); err != nil {
			wait(50 * time.Millisecond)
		}
	}
	for err == nil {
		r, e := client.Run(ctx, app, run)
		if e == nil && r.GetState() == "succeeded" {
			return time.Since(begin)
		}
		if ctx.Err() != nil {
			err = fmt.Errorf("run %s is %s: %v", run, r.GetState(), e)
		}
		wait(20 * time.Millisecond)
	}
	c.t.Errorf("after %q: nothing works within 90 s: %v", after, err)
	return time.Since(begin)
}
