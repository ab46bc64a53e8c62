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
	"sync/atomic"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/wait"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// Config configures [Run].
type Config struct {
	Program string // path of this program
	Data    string // default "wheelwork-cluster"
	Servers int    // default 3
	Hosts   int
	Slots   int // of each host; default: that of [HostConfig]
	// SplitRate and MaxHosts are as in [EtcdConfig].
	SplitRate float64
	MaxHosts  int
	Port      int       // of the first server; default 7700. A port that is taken is replaced by a free one
	Output    io.Writer // gets what the processes log, each line with the name of its process
	Logger    *slog.Logger
	Ready     func(Ready)
}

// Ready describes how to reach a cluster on this machine. Programs rely on the JSON
// names.
type Ready struct {
	URL           string   `json:"url"` // of all servers, with commas: a client goes on with the next one
	URLs          []string `json:"urls"`
	Token         string   `json:"token"`     // of the administrator
	LoginURL      string   `json:"login_url"` // signs a browser in as the administrator, once, within 10 minutes
	TokenFile     string   `json:"token_file"`
	Nameserver    string   `json:"nameserver"`
	MemberToken   string   `json:"member_token_file"` // for hosts that join
	ServerToken   string   `json:"server_token_file"` // for servers that join
	EtcdEndpoints []string `json:"etcd_endpoints"`
	Data          string   `json:"data"`
	PID           int      `json:"pid"`
}

// localPlan is what a cluster stores of itself, so that its processes have the same
// addresses at every start.
type localPlan struct {
	Nameserver string        `json:"nameserver"`
	Servers    []localServer `json:"servers"`
	// Begun reports that all servers were up once. From then on a server whose directory
	// is empty has lost it, and joins the others.
	Begun bool `json:"begun"`
}

type localServer struct {
	Listen string `json:"listen"`
	Client string `json:"cluster_listen"`
	Peer   string `json:"cluster_peer"`
}

// Run runs a nameserver, servers with a member of etcd in each, and hosts as
// processes of this machine, until ctx ends. A process that ends by itself is started
// again. No process outlives this one, in whatever way this one ends.
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

type localCluster struct {
	cfg    Config
	dir    *datadir.Dir
	log    *slog.Logger
	plan   localPlan
	admin  string // token of the administrator; worker is that of workers
	worker string
	keeper *process.Keeper

	begunBefore atomic.Bool // plan.Begun, for the goroutines that start processes

	lines   sync.Mutex // guards cfg.Output
	copies  sync.WaitGroup
	members []*localProcess
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

func serverName(i int) string { return fmt.Sprintf("server-%d", i+1) }
func hostName(i int) string   { return fmt.Sprintf("host-%d", i+1) }

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
	c.plan.Nameserver = at(c.cfg.Port - 100)
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

// localProcess is one of the cluster's processes. It may be started several times.
type localProcess struct {
	name  string
	args  []string
	ready string // the ready file that it writes
	// begins are further arguments of a server while the cluster has never been complete,
	// joins those after that.
	begins, joins []string

	mu    sync.Mutex
	child *process.Child
}

func (c *localCluster) add(name string, args ...string) *localProcess {
	p := &localProcess{name: name, ready: c.dir.Join(name + ".ready")}
	p.args = append(args, "--ready-file", p.ready)
	c.members = append(c.members, p)
	return p
}

// arrange sets the command lines of the processes.
func (c *localCluster) arrange() (servers, hosts []*localProcess) {
	hostToken := c.dir.Join(hostsToken)
	serving := []string{"--token-file", hostToken, "--server-token-file", c.dir.Join(serversToken)}
	c.add("nameserver", append([]string{"nameserver", "--listen", c.plan.Nameserver}, serving...)...)
	var clients, peers []string
	for _, s := range c.plan.Servers {
		clients, peers = append(clients, s.Client), append(peers, s.Peer)
	}
	for i, s := range c.plan.Servers {
		args := []string{
			"server", "--data", c.dir.Join(serverName(i)), "--listen", s.Listen, "--nameserver", c.plan.Nameserver,
			"--secret-key-file", c.dir.Join(datadir.SecretKeyFile), "--cluster", "--cluster-listen", s.Client, "--cluster-peer", s.Peer,
		}
		args = append(args, serving...)
		if c.cfg.SplitRate != 0 {
			args = append(args, "--split-rate", fmt.Sprint(c.cfg.SplitRate))
		}
		if c.cfg.MaxHosts != 0 {
			args = append(args, "--max-hosts-per-sub-app", fmt.Sprint(max(c.cfg.MaxHosts, 0)))
		}
		p := c.add(serverName(i), args...)
		p.begins = []string{"--cluster-members", strings.Join(peers, ",")}
		p.joins = []string{"--join", strings.Join(clients, ",")}
		servers = append(servers, p)
	}
	for i := range c.cfg.Hosts {
		args := []string{"host", "--data", c.dir.Join(hostName(i)), "--name", hostName(i), "--nameserver", c.plan.Nameserver, "--token-file", hostToken}
		if c.cfg.Slots > 0 {
			args = append(args, "--slots", fmt.Sprint(c.cfg.Slots))
		}
		hosts = append(hosts, c.add(hostName(i), args...))
	}
	return servers, hosts
}

func (c *localCluster) run(ctx context.Context) error {
	c.keeper = process.New(c.cfg.Program, node.GuardWord)
	c.begunBefore.Store(c.plan.Begun)
	servers, hosts := c.arrange()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var lives sync.WaitGroup
	ending := make(chan struct{})
	for _, p := range c.members {
		os.Remove(p.ready) //nolint:errcheck // left by a process that was killed
		lives.Go(func() { c.live(p, ending, fail) })
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
	close(ending)
	c.end(hosts)
	c.end(servers)
	c.end(c.members[:1])
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
		LoginURL: loginURL(servers),
		Token:    c.admin, TokenFile: c.dir.Join("token"), Nameserver: c.plan.Nameserver, MemberToken: c.dir.Join(hostsToken), ServerToken: c.dir.Join(serversToken),
		Data: c.dir.Path, PID: os.Getpid(),
	}
	for _, s := range c.plan.Servers {
		r.URLs = append(r.URLs, "http://"+s.Listen)
		r.EtcdEndpoints = append(r.EtcdEndpoints, "http://"+s.Client)
	}
	r.URL = strings.Join(r.URLs, ",")
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

// untilReady waits until one server is ready, the member of etcd in every server accepts
// connections, and all hosts are ready.
func (c *localCluster) untilReady(ctx context.Context, servers, hosts []*localProcess) error {
	is := func(p *localProcess) bool {
		_, err := os.Stat(p.ready)
		return err == nil
	}
	for {
		works := false
		for _, s := range servers {
			works = works || is(s)
		}
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
func (c *localCluster) live(p *localProcess, ending <-chan struct{}, fail context.CancelCauseFunc) {
	for short := 0; ; {
		begin := time.Now()
		child, err := c.start(p)
		if err != nil {
			if !errors.Is(err, process.ErrClosed) {
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

func (c *localCluster) start(p *localProcess) (*process.Child, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close() //nolint:errcheck // the process has its own
	if p.args[0] == "server" {
		if err := c.equip(p.name); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	args := slices.Concat(p.args, p.begins)
	if c.begunBefore.Load() {
		args = slices.Concat(p.args, p.joins)
	}
	cmd := exec.Command(c.cfg.Program, args...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdout, cmd.Stderr = w, w
	// Settings for commands that use another installation must not reach these processes.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "WHEELWORK_") })
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
