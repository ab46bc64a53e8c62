package etcd

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal"
)

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// proxy forwards connections to an address. While it is cut, it passes nothing in either
// direction and closes new connections.
type proxy struct {
	ln  net.Listener
	to  string
	mu  sync.Mutex
	on  bool // cut
	all []net.Conn
}

func newProxy(t testing.TB, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, to: to}
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			go p.serve(in)
		}
	}()
	t.Cleanup(func() { ln.Close(); p.set(true) })
	return p
}

func (p *proxy) url() string { return "http://" + p.ln.Addr().String() }

// set cuts the proxy, or opens it. In both cases it closes the open connections, so that
// lost packets do not arrive later.
func (p *proxy) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on = cut
	for _, c := range p.all {
		c.Close()
	}
	p.all = nil
}

func (p *proxy) serve(in net.Conn) {
	p.mu.Lock()
	if p.on {
		p.mu.Unlock()
		in.Close()
		return
	}
	p.all = append(p.all, in)
	p.mu.Unlock()
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		in.Close()
		return
	}
	p.mu.Lock()
	if p.on {
		out.Close()
	}
	p.all = append(p.all, out)
	p.mu.Unlock()
	go func() { io.Copy(out, in); out.Close() }()
	io.Copy(in, out)
	in.Close()
}

// ensemble is an etcd cluster whose members run in this process.
type ensemble struct {
	configs []MemberConfig
	members []*Member
	// client and peer are the proxies of the members' addresses.
	client, peer []*proxy
}

// begin starts an ensemble of n members.
func begin(t testing.TB, n int, change func(*MemberConfig)) *ensemble {
	t.Helper()
	e := &ensemble{members: make([]*Member, n)}
	all := map[string]string{}
	for i := range n {
		c := MemberConfig{Name: fmt.Sprintf("m%d", i), Dir: t.TempDir(), NoSync: true, Heartbeat: 20 * time.Millisecond, Election: 200 * time.Millisecond}
		client, peer := testkit.FreeAddress(t), testkit.FreeAddress(t)
		e.client, e.peer = append(e.client, newProxy(t, client)), append(e.peer, newProxy(t, peer))
		c.Client, c.Peer = e.client[i].url(), e.peer[i].url()
		c.ListenClient, c.ListenPeer = "http://"+client, "http://"+peer
		all[c.Name] = c.Peer
		if change != nil {
			change(&c)
		}
		e.configs = append(e.configs, c)
	}
	var wg sync.WaitGroup
	for i := range e.configs {
		e.configs[i].Members = all
		wg.Go(func() { e.start(t, i) })
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() {
		for i := range e.members {
			e.stop(i)
		}
	})
	return e
}

func (e *ensemble) start(t testing.TB, i int) {
	t.Helper()
	e.client[i].set(false)
	e.peer[i].set(false)
	m, err := Start(within(t, 30*time.Second), e.configs[i])
	if err != nil {
		t.Error(err)
		return
	}
	e.members[i] = m
}

// stop ends a member after its proxies are cut: the others get no notice, and the member
// does not wait for its streams, which end with the connections.
func (e *ensemble) stop(i int) {
	if m := e.members[i]; m != nil {
		e.client[i].set(true)
		e.peer[i].set(true)
		m.Close()
		e.members[i] = nil
	}
}

func (e *ensemble) urls() []string {
	var list []string
	for i := range e.client {
		list = append(list, e.client[i].url())
	}
	return list
}

// one is the etcd with one member that most tests share. Each test has its own prefix in
// it.
var one = struct {
	sync.Once
	member *Member
	n      atomic.Int64
}{}

func shared(t testing.TB) (endpoint, prefix string) {
	t.Helper()
	one.Do(func() {
		at := testkit.FreeAddress(t)
		m, err := Start(context.Background(), MemberConfig{
			Name: "one", Dir: dir, Client: "http://" + at, Peer: "http://" + testkit.FreeAddress(t), NoSync: true,
			Heartbeat: 20 * time.Millisecond, Election: 200 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		one.member = m
	})
	if one.member == nil {
		t.Fatal("the etcd that tests share did not start")
	}
	return one.member.Client(), fmt.Sprintf("test%d/", one.n.Add(1))
}

// connect returns a server's access, which is closed at the end of the test.
func connect(t testing.TB, server, prefix string, endpoints ...string) *Cluster {
	t.Helper()
	return connectFor(t, 3*time.Second, server, prefix, endpoints...)
}

func connectFor(t testing.TB, lease time.Duration, server, prefix string, endpoints ...string) *Cluster {
	t.Helper()
	return connectAs(t, Config{
		Endpoints: endpoints, Prefix: prefix, Server: server, Address: server + ".test:1", Lease: lease, Keep: time.Hour,
	})
}

func connectAs(t testing.TB, cfg Config) *Cluster {
	t.Helper()
	c, err := Connect(within(t, 20*time.Second), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// eachWay runs a test once with a server that runs beside the etcd members, and once with
// a server whose process has the first member.
func eachWay(t *testing.T, test func(t *testing.T, connect func(*ensemble, Config) *Cluster)) {
	for name, within := range map[string]bool{"beside": false, "within": true} {
		t.Run(name, func(t *testing.T) {
			test(t, func(e *ensemble, cfg Config) *Cluster {
				if cfg.Endpoints, cfg.Server = e.urls(), "a"; within {
					cfg.Member = e.members[0]
				}
				return connectAs(t, cfg)
			})
		})
	}
}

func own(t testing.TB, c *Cluster, name string) *Journal {
	t.Helper()
	j, err := c.Own(within(t, 20*time.Second), name)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func rec(body string) journal.Record {
	return journal.Record{Slot: journal.Slot{App: "app", Index: 3}, Body: []byte(body)}
}

// put appends records and returns their error.
func put(t testing.TB, j *Journal, bodies ...string) error {
	t.Helper()
	var recs []journal.Record
	for _, b := range bodies {
		recs = append(recs, rec(b))
	}
	done := make(chan error, 1)
	if _, err := j.Append(recs, func(err error) { done <- err }); err != nil {
		return err
	}
	return <-done
}

func mustPut(t testing.TB, j *Journal, bodies ...string) {
	t.Helper()
	if err := put(t, j, bodies...); err != nil {
		t.Fatal(err)
	}
}

func bodies(t testing.TB, c *Cluster, name string, from uint64) string {
	t.Helper()
	var got []string
	err := c.Read(within(t, 20*time.Second), name, from, func(_ uint64, _ journal.Slot, b []byte) error {
		got = append(got, string(b))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(got, " ")
}
