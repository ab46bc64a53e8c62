package fault

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// memberWithin is a member of etcd inside a server, and the links to it.
type memberWithin struct {
	listen, listenPeer string
	client, peer       *link // from servers, and from the other members
}

// planWithin plans a member of etcd for each server.
func (c *cluster) planWithin(s shape) {
	for range s.servers {
		m := memberWithin{listen: testkit.FreeAddress(c.t), listenPeer: testkit.FreeAddress(c.t)}
		m.client, m.peer = newLinkFrom(c.t, m.listen, nil, c.diallerOf), newLinkFrom(c.t, m.listenPeer, nil, c.diallerOf)
		c.within = append(c.within, m)
	}
}

// memberFlags returns the flags of server number i for its member. Other servers learn
// only the addresses of the links.
func (c *cluster) memberFlags(i int) []string {
	var peers []string
	for _, m := range c.within {
		peers = append(peers, m.peer.address())
	}
	m := c.within[i]
	return []string{
		"--cluster", "--cluster-listen", m.listen, "--cluster-peer", m.listenPeer,
		"--cluster-advertise", m.client.address(), "--cluster-peer-advertise", m.peer.address(), "--cluster-members", strings.Join(peers, ","),
	}
}

// watchWithin connects the test to the members in the servers, over links of its own.
func (c *cluster) watchWithin() {
	var urls []string
	for _, m := range c.within {
		l := newLink(c.t, m.listen, nil)
		c.watchLinks, urls = append(c.watchLinks, l), append(urls, "http://"+l.address())
	}
	c.watchEtcd(urls)
}

// dialler returns diallerOf when links must know the server that dials; nil otherwise.
func (c *cluster) dialler() func(net.Conn) string {
	if len(c.within) == 0 {
		return nil
	}
	return c.diallerOf
}

// diallerOf names the server whose process dialled a connection; "": another process. It
// asks the kernel: /proc/net/tcp has the socket of each port, and /proc/PID/fd has the
// sockets of a process.
func (c *cluster) diallerOf(in net.Conn) string {
	socket, err := socketOf(in.RemoteAddr().(*net.TCPAddr).Port, in.LocalAddr().(*net.TCPAddr).Port)
	if err != nil || socket == "" {
		return "" // it has closed the connection already
	}
	for _, p := range c.processes() {
		open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.pid()))
		if err != nil {
			continue
		}
		for _, fd := range open {
			if is, err := os.Readlink(fd); err == nil && is == "socket:["+socket+"]" {
				return p.name
			}
		}
	}
	return ""
}

// socketOf returns the inode of the socket of a loopback connection.
func socketOf(from, to int) (string, error) {
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // only read
	local, remote := fmt.Sprintf("0100007F:%04X", from), fmt.Sprintf("0100007F:%04X", to)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 9 && fields[1] == local && fields[2] == remote {
			return fields[9], nil
		}
	}
	return "", nil
}

// processes returns the servers that were started so far.
func (c *cluster) processes() (all []*part) {
	c.begun.Range(func(p, _ any) bool {
		all = append(all, p.(*part))
		return true
	})
	return all
}

// way is a link as used by one part; "": by all parts.
type way struct {
	l   *link
	who string
}

// ways are links that are cut and healed together.
type ways []way

func (w *ways) add(who string, links ...*link) {
	for _, l := range links {
		*w = append(*w, way{l, who})
	}
}

func (w ways) cut(how cut) {
	for _, x := range w {
		x.l.sever(how, x.who)
	}
}

func (w ways) heal() {
	for _, x := range w {
		x.l.heal(x.who)
	}
}

// between returns the links between a server and the other servers: from it if out, to it
// if in.
func (c *cluster) between(i int, links func(j int) []*link, out, in bool) (w ways) {
	for j := range c.servers {
		if j == i {
			continue
		}
		if out {
			w.add(c.servers[i].name, links(j)...)
		}
		if in {
			w.add(c.servers[j].name, links(i)...)
		}
	}
	return w
}

// aroundServer returns all links between a server with its member and the other servers.
func (c *cluster) aroundServer(i int) ways {
	return c.between(i, func(j int) []*link { return []*link{c.within[j].client, c.within[j].peer, c.front[j]} }, true, true)
}

// aroundMember returns the links between a member of etcd and the other members. The
// server that contains it still reaches the other members and is reached.
func (c *cluster) aroundMember(i int, out, in bool) ways {
	return c.between(i, func(j int) []*link { return []*link{c.within[j].peer} }, out, in)
}

// leading returns the number of the server whose member leads etcd.
func (c *cluster) leading() (leader int) {
	c.t.Helper()
	var at etcd.Access
	for _, l := range c.watchLinks {
		at.Endpoints = append(at.Endpoints, "http://"+l.address())
	}
	until(c.t, "etcd to have a leader", time.Minute, func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		defer cancel()
		all, err := etcd.Members(ctx, at)
		if err != nil {
			return false
		}
		i := slices.IndexFunc(all, func(m etcd.MemberState) bool { return m.State == "leader" })
		if i < 0 {
			return false
		}
		leader = slices.IndexFunc(c.within, func(m memberWithin) bool { return "http://"+m.peer.address() == all[i].Peer })
		return leader >= 0
	})
	return leader
}

// partition is a network partition that the test makes.
type partition struct {
	name string
	how  cut
	// ways returns the links to cut. i is the affected server.
	ways func(c *cluster, i int) ways
	// of returns the affected server.
	of func(c *cluster, rnd *rand.Rand) int
	// replaced requires that other servers take over what the affected server owned.
	replaced bool
	// elects requires that another server's member becomes the leader of etcd.
	elects bool
	// stands means that the cluster accepts nothing new in the meantime.
	stands bool
	// hosts means that hosts cannot reach a server either. Such a host may execute an
	// attempt that another host executes as well; one of the results counts.
	hosts bool
}

func serverOff(c *cluster, i int) ways { return c.aroundServer(i) }

func memberOff(out, in bool) func(*cluster, int) ways {
	return func(c *cluster, i int) ways { return c.aroundMember(i, out, in) }
}

func allOff(c *cluster, i int) ways {
	w := c.aroundServer(i)
	w.add("", c.front[i], c.clients[i], c.namesOf[c.servers[i]])
	return w
}

func eachAlone(c *cluster, _ int) (w ways) {
	for i := range c.servers {
		w = append(w, c.aroundServer(i)...)
	}
	return w
}

func working(c *cluster, rnd *rand.Rand) int { return c.worker(rnd) }
func leads(c *cluster, _ *rand.Rand) int     { return c.leading() }
func follows(c *cluster, rnd *rand.Rand) int { return (c.leading() + 1 + rnd.IntN(2)) % len(c.servers) }

var shortPartitions = []partition{
	{name: "a server that works is cut off from the others", how: silent, of: working, ways: serverOff, replaced: true},
	{name: "the member that leads etcd is cut off from the others", how: loud, of: leads, ways: memberOff(true, true), elects: true},
}

var longPartitions = []partition{
	{name: "a server that works is cut off from the others, which is told", how: loud, of: working, ways: serverOff, replaced: true},
	{name: "the member that leads etcd is cut off from the others, and nobody is told", how: silent, of: leads, ways: memberOff(true, true), elects: true},
	{name: "the member that leads etcd is heard, and hears nobody", how: silent, of: leads, ways: memberOff(false, true), elects: true},
	{name: "the member that leads etcd hears the others, and is not heard", how: silent, of: leads, ways: memberOff(true, false), elects: true},
	{name: "a member that follows is cut off from the others", how: silent, of: follows, ways: memberOff(true, true)},
	{name: "a server whose member leads etcd is cut off from the others", how: silent, of: leads, ways: serverOff, replaced: true, elects: true},
	{name: "a server that works is cut off from all", how: loud, of: working, ways: allOff, replaced: true, hosts: true},
	{name: "every server is alone", how: silent, of: working, ways: eachAlone, stands: true},
}

// goesOnWithin bounds the time from the end of a partition until everything works again.
// It allows for other work on the machine.
const goesOnWithin = 30 * time.Second

// TestPartitions cuts servers, and the members of etcd in them, off from each other for
// longer than a lease, while producers order with and without keys and schedules fire.
// Nothing acknowledged is lost, no trigger has two runs, and no attempt is executed twice
// while hosts reach all servers.
func TestPartitions(t *testing.T) {
	plan := shortPartitions
	if formOf(t) {
		plan = slices.Repeat(slices.Concat(shortPartitions, longPartitions), testkit.Rounds(t, 5))
	}
	only := os.Getenv("WHEELWORK_ONLY")
	if plan = slices.DeleteFunc(slices.Clone(plan), func(p partition) bool { return !strings.Contains(p.name, only) }); len(plan) == 0 {
		t.Skipf("WHEELWORK_ONLY=%s is in the name of no partition of this form", only)
	}
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 3))
	seen := newLedger(t)
	c := newCluster(t, shape{within: true, servers: 3, hosts: 2, slots: 32, binary: program(t), calls: []string{seen.address}})
	client := c.dial(time.Minute)
	defineJobs(t, client, c.service)
	defineNotes(t, client, seen)
	o := newOrders(seed)
	c.orders = o
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	for range 2 {
		p := c.dial(10 * time.Second)
		busy.Go(func() { o.produce(ctx, t, p, 30*time.Millisecond) })
	}
	busy.Go(func() { o.look(ctx, client) })
	acknowledged := c.triggerNotes(4, 20*time.Millisecond)
	c.works(o, "at first")
	until(t, "all servers to be seen", time.Minute, func() bool { return c.seen(client) == len(c.servers) })
	for _, p := range plan {
		if c.undergo(p, rnd, client); t.Failed() {
			break
		}
	}
	notes := acknowledged()
	cancel()
	busy.Wait()
	if n := seen.settle(t, notes); n < 20*len(plan) {
		t.Errorf("%d triggers were acknowledged: too few to say anything", n)
	}
	var once []string
	if !slices.ContainsFunc(plan, func(p partition) bool { return p.hosts }) {
		for _, app := range apps {
			once = append(once, app+"/quick", app+"/slow", app+"/tick", app+"/tock")
		}
		if again := seen.repeated(); len(again) > 0 {
			t.Errorf("%d attempts were executed more than once: %s", len(again), strings.Join(again, "; "))
		}
	}
	o.judge(t, c, o.settle(t, c.dial(time.Minute)), once...)
	t.Logf("%d acknowledged triggers without a key", len(notes))
	for _, p := range slices.Concat(c.servers, c.hosts) {
		if p.again > 0 {
			t.Errorf("%s ended by itself and was started again %d times: %s", p.name, p.again, strings.Join(slices.Compact(p.why), "; "))
		}
	}
}

// undergo makes a partition that lasts for longer than a lease. It checks that the
// cluster works in the meantime, and that all of it works soon after the end.
func (c *cluster) undergo(p partition, rnd *rand.Rand, client *sdk.Client) {
	c.t.Helper()
	i := p.of(c, rnd)
	w := p.ways(c, i)
	c.service.longest()
	begin := time.Now()
	w.cut(p.how)
	wait(awhile(rnd))
	if p.replaced {
		until(c.t, fmt.Sprint("the others to own what ", c.servers[i].name, " had"), goesOnWithin, func() bool {
			all := c.owners()
			return len(all) > 0 && !slices.ContainsFunc(all, func(o owner) bool { return o.server == i })
		})
	}
	if p.elects {
		until(c.t, fmt.Sprint("another member than that of ", c.servers[i].name, " to lead"), goesOnWithin, func() bool { return c.leading() != i })
	}
	if !p.stands {
		c.works(c.orders, p.name)
	}
	pause := c.service.longest()
	w.heal()
	healed := time.Now()
	c.works(c.orders, "the end of: "+p.name)
	until(c.t, "all servers to be seen", goesOnWithin, func() bool { return c.seen(client) == len(c.servers) })
	for _, s := range c.orders.schedules {
		until(c.t, s.Job+" to fire", goesOnWithin, func() bool {
			_, ok := c.service.first(s.Job, healed)
			return ok
		})
	}
	again := time.Since(healed)
	if again > goesOnWithin {
		c.t.Errorf("%s: all went on %v after its end, want at most %v", p.name, again, goesOnWithin)
	}
	c.t.Logf("%s %s (%s): %v, longest pause %v, then %v; all went on %v after its end", begin.Format("04:05.000"), p.name, c.servers[i].name,
		healed.Sub(begin).Round(time.Millisecond), pause.Round(time.Millisecond), c.service.longest().Round(time.Millisecond), again.Round(time.Millisecond))
}

// seen returns how many servers the cluster reports as up; 0 when the call fails.
func (c *cluster) seen(client *sdk.Client) (n int) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
	defer cancel()
	st, err := client.Cluster(ctx)
	if err != nil {
		return 0
	}
	for _, s := range st.GetServers() {
		if s.GetState() == "up" {
			n++
		}
	}
	return n
}
