package local

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// Run runs a nameserver, servers with a member of etcd in each, and hosts as
// processes of this machine, until ctx ends. With TLS the servers are the nameserver. A
// process that ends by itself is started again. No process outlives this one, in whatever
// way this one ends.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg.Data = cmp.Or(cfg.Data, "wheelwork-cluster")
	cfg.Servers, cfg.Port = cmp.Or(cfg.Servers, 3), cmp.Or(cfg.Port, 7700)
	if cfg.Servers != 1 && cfg.Servers != 3 && cfg.Servers != 5 {
		return fmt.Errorf("--servers %d: a cluster has 1, 3 or 5 of them: with an even number no more can be lost than with one less", cfg.Servers)
	}
	d, err := datadir.Open(cfg.Data, datadir.ServerForm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	c := &localCluster{cfg: cfg, dir: d, log: cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))}
	if err := c.prepare(); err != nil {
		return err
	}
	return c.run(ctx)
}

// The files with the tokens of processes, in the cluster's directory.
const (
	hostsToken   = "member-token"
	serversToken = "server-token"
)

func (c *localCluster) planFile() string { return c.dir.Join("cluster.json") }

func (c *localCluster) prepare() error {
	text, err := os.ReadFile(c.planFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := c.makePlan(); err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(text, &c.plan); err != nil || len(c.plan.Servers) == 0 {
			return fmt.Errorf("%s does not hold the plan of a cluster: bring back the file that it was", c.planFile())
		}
	}
	if n := len(c.plan.Servers); n != c.cfg.Servers {
		return fmt.Errorf("the cluster in %s has %d servers: start it with --servers %d, or another one in another directory", c.dir.Path, n, n)
	}
	if c.plan.TLS != c.cfg.TLS {
		return fmt.Errorf("the cluster in %s was begun with --tls=%t, which cannot change: start it with --tls=%[2]t, or another one in another directory", c.dir.Path, c.plan.TLS)
	}
	for file, prefix := range map[string]string{hostsToken: "wm_", serversToken: "ws_"} {
		if _, err := credential.KeepToken(c.dir.Join(file), prefix); err != nil {
			return err
		}
	}
	if _, err := credential.SecretKeys(c.dir.Join(datadir.SecretKeyFile), true); err != nil {
		return err
	}
	if c.admin, err = credential.KeepToken(c.dir.Join("token"), "ww_"); err != nil {
		return err
	}
	c.worker, err = credential.KeepToken(c.dir.Join("host-token"), "wh_")
	return err
}

// equip writes the tokens that all servers share into a server's directory, which may
// have been lost, so that every server accepts them.
func (c *localCluster) equip(name string) error {
	own := c.dir.Join(name)
	if err := os.MkdirAll(own, 0o700); err != nil {
		return err
	}
	return errors.Join(
		datadir.WriteFile(filepath.Join(own, "token"), []byte(c.admin+"\n"), 0o600),
		datadir.WriteFile(filepath.Join(own, "host-token"), []byte(c.worker+"\n"), 0o600),
	)
}

func (c *localCluster) makePlan() (err error) {
	given := map[string]bool{}
	at := func(want int) string {
		if err != nil {
			return ""
		}
		var address string
		address, err = freePort(want, given)
		return address
	}
	if c.plan.TLS = c.cfg.TLS; !c.cfg.TLS {
		c.plan.Nameserver = at(c.cfg.Port - 100)
	}
	for i := range c.cfg.Servers {
		c.plan.Servers = append(c.plan.Servers, localServer{Listen: at(c.cfg.Port + i), Client: at(c.cfg.Port + 10 + i), Peer: at(c.cfg.Port + 20 + i)})
	}
	if err != nil {
		return err
	}
	return c.writePlan()
}

func (c *localCluster) writePlan() error {
	text, err := json.MarshalIndent(c.plan, "", "  ")
	if err != nil {
		return err
	}
	return datadir.WriteFile(c.planFile(), append(text, '\n'), 0o600)
}

// freePort returns a loopback address with a free port: the wanted one or, if that is
// taken, one below those that the kernel gives to outgoing connections, so that it is
// free at the next start too. given holds the addresses that were returned before.
func freePort(want int, given map[string]bool) (string, error) {
	for try := range 200 {
		if try > 0 {
			want = 20_000 + rand.IntN(10_000)
		}
		address := fmt.Sprintf("127.0.0.1:%d", want)
		if given[address] {
			continue
		}
		if ln, err := net.Listen("tcp", address); err == nil {
			given[address] = true
			return address, ln.Close()
		}
	}
	return "", errors.New("there is no free port between 20000 and 30000")
}

func (c *localCluster) add(name, kind string, args ...string) *localProcess {
	p := &localProcess{name: name, kind: kind, data: c.dir.Join(name), ready: c.dir.Join(name + ".ready")}
	p.args = slices.Concat([]string{kind, "--ready-file", p.ready}, args)
	c.members = append(c.members, p)
	return p
}

// arrange sets the command lines of the processes.
func (c *localCluster) arrange() (nameservers, servers, hosts []*localProcess) {
	var clients, peers, listens []string
	for _, s := range c.plan.Servers {
		clients, peers, listens = append(clients, s.Client), append(peers, s.Peer), append(listens, s.Listen)
	}
	c.nameserver = strings.Join(listens, ",")
	serving := []string{"--tls", "on"}
	var hosting []string
	if !c.plan.TLS {
		c.nameserver = c.plan.Nameserver
		serving = []string{"--token-file", c.dir.Join(hostsToken), "--server-token-file", c.dir.Join(serversToken)}
		nameservers = append(nameservers, c.add("nameserver", "nameserver", slices.Concat([]string{"--listen", c.nameserver}, serving)...))
		serving = append(serving, "--nameserver", c.nameserver)
		hosting = []string{"--token-file", c.dir.Join(hostsToken)}
	}
	for i, s := range c.plan.Servers {
		p := c.add(serverName(i), "server", slices.Concat([]string{
			"--data", c.dir.Join(serverName(i)), "--listen", s.Listen,
			"--secret-key-file", c.dir.Join(datadir.SecretKeyFile), "--cluster", "--cluster-listen", s.Client, "--cluster-peer", s.Peer,
		}, serving)...)
		if c.cfg.SplitRate != 0 {
			p.args = append(p.args, "--split-rate", fmt.Sprint(c.cfg.SplitRate))
		}
		if c.cfg.MaxHosts != 0 {
			p.args = append(p.args, "--max-hosts-per-sub-app", fmt.Sprint(max(c.cfg.MaxHosts, 0)))
		}
		p.joins = []string{"--join", strings.Join(clients, ",")}
		if !c.plan.TLS {
			p.begins = []string{"--cluster-members", strings.Join(peers, ",")}
		}
		if p.first = c.plan.TLS && i == 0; c.plan.TLS && i > 1 {
			p.after = servers[i-1]
		}
		servers = append(servers, p)
	}
	for i := range c.cfg.Hosts {
		p := c.add(hostName(i), "host", slices.Concat([]string{"--data", c.dir.Join(hostName(i)), "--name", hostName(i), "--nameserver", c.nameserver}, hosting)...)
		if c.cfg.Slots > 0 {
			p.args = append(p.args, "--slots", fmt.Sprint(c.cfg.Slots))
		}
		hosts = append(hosts, p)
	}
	return nameservers, servers, hosts
}

func (c *localCluster) run(ctx context.Context) error {
	c.keeper = process.New(c.cfg.Program, node.GuardWord)
	c.begunBefore.Store(c.plan.Begun)
	nameservers, servers, hosts := c.arrange()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var lives sync.WaitGroup
	ending := make(chan struct{})
	for _, p := range c.members {
		os.Remove(p.ready) //nolint:errcheck // left by a process that was killed
		lives.Go(func() { c.live(ctx, p, ending, fail) })
	}
	err := c.untilReady(ctx, servers, hosts)
	if err == nil {
		err = c.begun()
	}
	if err == nil {
		if c.cfg.Ready != nil {
			c.cfg.Ready(c.ready(servers))
		}
		<-ctx.Done()
	}
	fail(nil)
	close(ending)
	c.end(hosts)
	c.end(servers)
	c.end(nameservers)
	lives.Wait()
	err = errors.Join(err, c.keeper.Close())
	c.copies.Wait()
	if cause := context.Cause(ctx); errors.As(cause, new(*notStarting)) {
		return cause
	}
	if errors.Is(err, context.Canceled) {
		return nil // ctx ended before the cluster was ready
	}
	return err
}

// begun records that all servers have been up.
func (c *localCluster) begun() error {
	if c.plan.Begun {
		return nil
	}
	c.plan.Begun = true
	c.begunBefore.Store(true)
	return c.writePlan()
}

func (c *localCluster) ready(servers []*localProcess) Ready {
	r := Ready{
		LoginURL: loginURL(servers), URLs: c.urls(), URL: strings.Join(c.urls(), ","),
		Token: c.admin, TokenFile: c.dir.Join("token"), Nameserver: c.nameserver,
		Data: c.dir.Path, PID: os.Getpid(),
	}
	if c.plan.TLS {
		r.CACert = c.dir.Join(datadir.AuthorityFile)
	} else {
		r.MemberToken, r.ServerToken = c.dir.Join(hostsToken), c.dir.Join(serversToken)
	}
	for _, s := range c.plan.Servers {
		r.EtcdEndpoints = append(r.EtcdEndpoints, c.scheme()+s.Client)
	}
	return r
}

// loginURL returns the link of the first server whose ready file has one; a server that
// just ended has none.
func loginURL(servers []*localProcess) string {
	for _, p := range servers {
		var r node.Ready
		if text, err := os.ReadFile(p.ready); err == nil && json.Unmarshal(text, &r) == nil && r.LoginURL != "" {
			return r.LoginURL
		}
	}
	return ""
}

// untilReady waits until one server is ready, with TLS all have joined, the member of etcd
// in every server accepts connections, and all hosts are ready.
func (c *localCluster) untilReady(ctx context.Context, servers, hosts []*localProcess) error {
	is := func(p *localProcess) bool {
		_, err := os.Stat(p.ready)
		return err == nil
	}
	for {
		works := false
		joined := true
		for _, s := range servers {
			works = works || is(s)
			joined = joined && (!c.plan.TLS || s.hasJoined())
		}
		works = works && joined
		for _, h := range hosts {
			works = works && is(h)
		}
		for _, s := range c.plan.Servers {
			works = works && answers(s.Client)
		}
		if works {
			return nil
		}
		if !wait.For(ctx, 20*time.Millisecond) {
			return ctx.Err()
		}
	}
}

func answers(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// notStarting is the error of a cluster in which a process ends again and again.
type notStarting struct {
	name string
	how  string
}

func (e *notStarting) Error() string {
	return fmt.Sprintf("%s does not start: it ended with %s; its log says why", e.name, e.how)
}

const (
	restartAfter = time.Second
	shortLife    = 5 * time.Second // a process that lives for less did not start
	shortLives   = 3               // so many in a row end the cluster
	endPatience  = 15 * time.Second
)

// live starts a process, and again whenever it has ended, until the cluster ends.
func (c *localCluster) live(ctx context.Context, p *localProcess, ending <-chan struct{}, fail context.CancelCauseFunc) {
	for short := 0; ; {
		begin := time.Now()
		child, err := c.start(ctx, p)
		if err != nil {
			if !errors.Is(err, process.ErrClosed) && ctx.Err() == nil {
				fail(&notStarting{p.name, err.Error()})
			}
			return
		}
		select {
		case <-child.Done():
		case <-ending:
			<-child.Done()
			return
		}
		how := child.State().String()
		if short++; time.Since(begin) > shortLife {
			short = 0
		}
		if short == shortLives {
			fail(&notStarting{p.name, how})
			return
		}
		c.log.Warn("a process of the cluster has ended; it is started again", "process", p.name, "with", how)
		select {
		case <-time.After(restartAfter):
		case <-ending:
			return
		}
	}
}

func (c *localCluster) start(ctx context.Context, p *localProcess) (*process.Child, error) {
	if p.kind == "server" {
		if err := c.equip(p.name); err != nil {
			return nil, err
		}
	}
	args := slices.Concat(p.args, p.begins)
	if c.begunBefore.Load() {
		args = slices.Concat(p.args, p.joins)
	}
	token, err := c.joinToken(ctx, p)
	if err != nil {
		return nil, err
	}
	if token != "" && p.kind == "server" {
		args = append(args, "--join-server", c.nameserver)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close() //nolint:errcheck // the process has its own
	cmd := exec.Command(c.cfg.Program, args...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = w, w
	// Settings for commands that use another installation must not reach these processes.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WHEELWORK_") })
	if token != "" {
		cmd.Env = append(cmd.Env, "WHEELWORK_JOIN_TOKEN="+token)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	child, err := c.keeper.Start(cmd, nil)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	p.child = child
	c.copies.Go(func() {
		defer r.Close() //nolint:errcheck // only read
		c.prefix(p.name, r)
	})
	return child, nil
}

// prefix copies the output of a process to cfg.Output, line by line, each with the
// process's name before it.
func (c *localCluster) prefix(name string, r io.Reader) {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadSlice('\n') // a longer line comes in pieces
		if len(line) > 0 && c.cfg.Output != nil {
			c.lines.Lock()
			fmt.Fprintf(c.cfg.Output, "%-10s | %s\n", name, strings.TrimRight(string(line), "\r\n")) //nolint:errcheck // there is no other output
			c.lines.Unlock()
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// end asks processes to end in order, and kills those that have not ended after
// endPatience.
func (c *localCluster) end(all []*localProcess) {
	var waits sync.WaitGroup
	for _, p := range all {
		p.mu.Lock()
		child := p.child
		p.mu.Unlock()
		if child == nil {
			continue
		}
		child.Terminate()
		waits.Go(func() {
			select {
			case <-child.Done():
			case <-time.After(endPatience):
				child.Kill()
			}
		})
	}
	waits.Wait()
}
