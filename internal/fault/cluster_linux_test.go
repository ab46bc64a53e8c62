package fault

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/sdk"
)

const (
	adminToken = "ww_the-administrators-token-of-this-test"
	lease      = 3 * time.Second  // of a server's ownership
	hostLease  = 10 * time.Second // for the runs of a host
	group      = "main"
)

// memberEnv makes this test binary run as a member of etcd, in a process of its own.
const memberEnv = "WHEELWORK_FAULT_MEMBER"

func TestMain(m *testing.M) {
	if c := os.Getenv(memberEnv); c != "" {
		if err := member(c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if binaries.dir != "" {
		os.RemoveAll(binaries.dir) //nolint:errcheck // a temporary directory
	}
	os.Exit(code)
}

func member(config string) error {
	var c etcd.MemberConfig
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return err
	}
	m, err := etcd.Start(context.Background(), c)
	if err != nil {
		return err
	}
	return <-m.Failed() // a signal ends it
}

// etcdKind is an etcd that the cluster can use.
type etcdKind struct {
	name string
	// command returns the command that starts a member.
	command func(c etcd.MemberConfig) (binary string, args, env []string, err error)
}

var embedded = etcdKind{"embedded", func(c etcd.MemberConfig) (string, []string, []string, error) {
	conf, err := json.Marshal(c)
	return os.Args[0], nil, []string{memberEnv + "=" + string(conf)}, err
}}

var debian = etcdKind{"debian", func(c etcd.MemberConfig) (string, []string, []string, error) {
	binary, err := exec.LookPath("etcd")
	var all []string
	for name, url := range c.Members {
		all = append(all, name+"="+url)
	}
	slices.Sort(all)
	return binary, []string{
		"--name", c.Name, "--data-dir", c.Dir, "--listen-client-urls", c.ListenClient, "--advertise-client-urls", c.Client,
		"--listen-peer-urls", c.ListenPeer, "--initial-advertise-peer-urls", c.Peer, "--initial-cluster", strings.Join(all, ","),
		"--initial-cluster-token", "fault", "--logger", "zap", "--log-level", "error",
	}, []string{"ETCD_UNSUPPORTED_ARCH=" + os.Getenv("ETCD_UNSUPPORTED_ARCH")}, err
}}

// cluster holds all parts of an installation and every link between two of them. The
// parts reach each other only over links.
type cluster struct {
	t       *testing.T
	dir     string
	members []*part // of etcd
	names   *part
	namesAt string // the address of the nameserver
	servers []*part
	hosts   []*part

	within     []memberWithin  // the members of etcd inside servers; empty: members are processes of their own
	peers      []*link         // to each member, from the other members
	etcdOf     [][]*link       // from a server to each member
	namesOf    map[*part]*link // from a server or a host
	front      []*link         // to each server, from hosts and other servers
	clients    []*link         // to each server, from producers
	byFront    sync.Map        // the producers' *link by the address that the server advertises
	begun      sync.Map        // the *part of each server that was started
	wire       *wire
	orders     *orders
	units      *units         // the partition of each epoch; nil: each app stays in one partition
	binary     string         // of its processes, unless the part has another one
	tokens     []string       // flags of nameserver and servers
	beside     sync.WaitGroup // faults that continue while other faults happen
	service    *service
	watch      *etcd.Cluster // reads the owners
	watchLinks []*link
	// noSmallDisk is the reason why the first server's disk cannot be filled; "": it can.
	noSmallDisk string
}

// shape describes the parts of a cluster.
type shape struct {
	etcd                    etcdKind
	members, servers, hosts int
	slots                   int // of each host
	binary                  string
	older                   bool // binary does not know all flags of this version
	units                   int  // 0: the default number of partitions
	within                  bool // each server contains a member of etcd; members is ignored
	// calls holds further addresses that handlers may call.
	calls []string
	// smallDisk gives the first server a disk that the test can fill.
	smallDisk bool
}

func newCluster(t *testing.T, s shape) *cluster {
	t.Helper()
	c := &cluster{t: t, binary: s.binary, dir: t.ArtifactDir(), namesOf: map[*part]*link{}, wire: newWire(), service: newService(t)}
	shared := filepath.Join(c.dir, "shared")
	c.write(shared, "a-secret-that-the-members-share\n")
	if s.within {
		c.planWithin(s)
	} else {
		c.startEtcd(s)
	}
	at := testkit.FreeAddress(t)
	c.namesAt = at
	c.tokens = []string{"--token-file", shared}
	if !s.older {
		own := filepath.Join(c.dir, "server-token")
		c.write(own, "a-secret-that-only-servers-share\n")
		c.tokens = append(c.tokens, "--server-token-file", own)
	}
	c.names = c.part("names", s.binary, append([]string{"nameserver", "--listen", at}, c.tokens...)...)
	c.names.start()
	for range s.servers {
		c.addServer(s, at)
	}
	if s.within {
		c.watchWithin()
	}
	until(t, "a server to work", time.Minute, c.hasOwner)
	for i := range s.hosts {
		name := fmt.Sprint("h", i)
		toNames := newLink(t, at, nil)
		dir := filepath.Join(c.dir, name)
		p := c.part(name, s.binary, "host", "--data", dir, "--name", name, "--nameserver", toNames.address(), "--token-file", shared,
			"--slots", fmt.Sprint(s.slots), "--http-allow-private", strings.Join(append(c.service.addresses(), s.calls...), ","))
		p.dir, c.namesOf[p] = dir, toNames
		c.hosts = append(c.hosts, p)
		p.start()
	}
	for _, p := range append([]*part{c.names}, c.hosts...) {
		until(t, p.name+" to be ready", time.Minute, p.isReady)
	}
	return c
}

// addServer starts one more server. names is the address of the nameserver.
func (c *cluster) addServer(s shape, names string) *part {
	t, i := c.t, len(c.servers)
	t.Helper()
	name := fmt.Sprint("s", i)
	dir := filepath.Join(c.dir, name)
	if i == 0 {
		c.noSmallDisk = "not asked for"
		if s.smallDisk {
			c.noSmallDisk = smallDisk(t, dir)
		}
	}
	c.write(filepath.Join(dir, "token"), adminToken+"\n")
	listen, toNames := testkit.FreeAddress(t), newLink(t, names, nil)
	front, client := newLinkFrom(t, listen, c.wire.tap, c.dialler()), newLink(t, listen, nil)
	c.front, c.clients = append(c.front, front), append(c.clients, client)
	c.byFront.Store(front.address(), client)
	var links []*link
	var urls []string
	for _, m := range c.members {
		l := newLink(t, strings.TrimPrefix(m.env[len(m.env)-1], "AT="), nil)
		links, urls = append(links, l), append(urls, "http://"+l.address())
	}
	c.etcdOf = append(c.etcdOf, links)
	args := append([]string{"server", "--data", dir, "--listen", listen, "--advertise", front.address(), "--nameserver", toNames.address()}, c.tokens...)
	args = append(args, "--group", group, "--units", fmt.Sprint(s.units))
	if s.within {
		args = append(args, c.memberFlags(i)...)
	} else {
		args = append(args, "--etcd-endpoints", strings.Join(urls, ","))
	}
	p := c.part(name, s.binary, args...)
	p.dir, p.keep, c.namesOf[p] = dir, []string{"token"}, toNames
	c.servers = append(c.servers, p)
	c.begun.Store(p, true)
	p.start()
	return p
}

func (c *cluster) write(path, text string) {
	c.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) part(name, binary string, args ...string) *part {
	ready := filepath.Join(c.dir, name+".ready")
	p := &part{t: c.t, name: name, binary: binary, args: append(args, "--ready-file", ready), ready: ready, own: true}
	c.tend(p)
	return p
}

// tend ends the part together with the test.
func (c *cluster) tend(p *part) {
	c.t.Cleanup(func() {
		p.mu.Lock()
		l := p.life
		p.mu.Unlock()
		p.end(syscall.SIGKILL)
		if c.t.Failed() && l != nil {
			c.t.Logf("%s said at last:\n%s", p.name, l.says.tail(3000))
		}
	})
}

func (c *cluster) startEtcd(s shape) {
	t := c.t
	all := map[string]string{}
	var configs []etcd.MemberConfig
	for i := range s.members {
		client, peer := testkit.FreeAddress(t), testkit.FreeAddress(t)
		c.peers = append(c.peers, newLink(t, peer, nil))
		m := etcd.MemberConfig{
			Name: fmt.Sprint("e", i), Dir: filepath.Join(c.dir, fmt.Sprint("e", i)),
			Client: "http://" + client, ListenClient: "http://" + client, Peer: "http://" + c.peers[i].address(), ListenPeer: "http://" + peer,
		}
		all[m.Name] = m.Peer
		configs = append(configs, m)
	}
	var urls []string
	for _, m := range configs {
		m.Members = all
		binary, args, env, err := s.etcd.command(m)
		if err != nil {
			t.Fatal(err)
		}
		at := strings.TrimPrefix(m.Client, "http://")
		p := &part{t: t, name: m.Name, binary: binary, args: args, env: append(env, "AT="+at), dir: m.Dir}
		c.tend(p)
		c.members = append(c.members, p)
		p.start()
		l := newLink(t, at, nil)
		c.watchLinks, urls = append(c.watchLinks, l), append(urls, "http://"+l.address())
	}
	c.watchEtcd(urls)
}

// watchEtcd connects the test to the members of etcd.
func (c *cluster) watchEtcd(urls []string) {
	t := c.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		w, err := etcd.Connect(ctx, etcd.Config{Endpoints: urls, Server: "watcher", Address: "watcher", Keep: time.Hour})
		if err == nil {
			c.watch = w
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		wait(100 * time.Millisecond)
	}
	t.Cleanup(func() { c.watch.Close() }) //nolint:errcheck // it only looks
}

// owner is a server that owns a partition.
type owner struct {
	server int
	epoch  uint64
}

// owners returns the owner of each partition according to etcd: of the cluster's first
// journal and of up to five more.
func (c *cluster) owners() (all []owner) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Second)
	defer cancel()
	for unit := range 6 {
		name := group
		if unit > 0 {
			name = fmt.Sprint(group, ".", unit)
		}
		o, ok, err := c.watch.Owner(ctx, name)
		if err != nil || !ok {
			continue
		}
		if i := slices.IndexFunc(c.front, func(l *link) bool { return l.address() == o.Address }); i >= 0 {
			all = append(all, owner{i, o.Epoch})
		}
	}
	return all
}

// hasOwner reports whether any partition has an owner.
func (c *cluster) hasOwner() bool { return len(c.owners()) > 0 }

// worker returns the number of a server that owns a partition, or 0 when none does.
func (c *cluster) worker(rnd *rand.Rand) int {
	luck := rnd.Uint64()
	all := c.owners()
	if len(all) == 0 {
		return 0
	}
	return all[luck%uint64(len(all))].server
}

// standby returns the number of a server that owns nothing, or of any server when all own
// something.
func (c *cluster) standby(rnd *rand.Rand) int {
	luck := rnd.IntN(len(c.servers))
	all := c.owners()
	for i := range c.servers {
		at := (luck + i) % len(c.servers)
		if !slices.ContainsFunc(all, func(o owner) bool { return o.server == at }) {
			return at
		}
	}
	return luck
}

// dial returns a client as soon as a server answers. All connections go over the
// producers' links, wherever the client got the address of the server.
func (c *cluster) dial(retry time.Duration) *sdk.Client {
	c.t.Helper()
	var urls []string
	for _, l := range c.front {
		urls = append(urls, "http://"+l.address())
	}
	o := sdk.Options{
		Token: adminToken, RetryFor: retry,
		Dialer: func(ctx context.Context, address string) (net.Conn, error) {
			l, ok := c.byFront.Load(address)
			if !ok {
				return nil, fmt.Errorf("%s is nobody's address", address)
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", l.(*link).address())
		},
	}
	for begin := time.Now(); ; wait(50 * time.Millisecond) {
		client, err := sdk.Dial(c.t.Context(), strings.Join(urls, ","), o)
		if err == nil {
			c.t.Cleanup(func() { client.Close() }) //nolint:errcheck // the cluster may be gone
			return client
		}
		if !mayFail(err) || time.Since(begin) > 90*time.Second {
			c.t.Fatal(err)
		}
	}
}

// binaries holds the programs of this checkout, each built once: the usual one, and those
// with wrong clocks by the error in seconds.
var binaries struct {
	sync.Mutex
	dir, plain string
	shifted    map[int]string
}

// makeDir returns the directory of the programs. The caller holds the lock of binaries.
func makeDir(t *testing.T) string {
	t.Helper()
	if binaries.dir == "" {
		var err error
		if binaries.dir, err = os.MkdirTemp("", "wheelwork-fault-"); err != nil {
			t.Fatal(err)
		}
	}
	return binaries.dir
}

// build builds the command. The caller holds the lock of binaries.
func build(t *testing.T, name string, flags ...string) string {
	t.Helper()
	path := filepath.Join(makeDir(t), name)
	args := append(append([]string{"build"}, flags...), "-o", path, "github.com/wheelworkhq/wheelwork/cmd/wheelwork")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return path
}

// program builds the command of this checkout.
func program(t *testing.T) string {
	t.Helper()
	binaries.Lock()
	defer binaries.Unlock()
	if binaries.plain == "" {
		binaries.plain = build(t, "wheelwork")
	}
	return binaries.plain
}
