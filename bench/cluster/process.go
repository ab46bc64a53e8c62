package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// installation is the processes that one set of figures is measured of.
type installation struct {
	bench      *bench
	url, token string
	hosts      int // that have to be there before it is measured
	parts      []*part
}

// part is one process.
type part struct {
	name string
	cmd  *exec.Cmd
	says bytes.Buffer // its standard error; complete after done
	done chan struct{}
	err  error
}

const patience = 30 * time.Second

func (in *installation) start(name, binary string, env []string, args ...string) (*part, error) {
	p := &part{name: name, cmd: exec.Command(binary, args...), done: make(chan struct{})}
	p.cmd.Stderr, p.cmd.Env = &p.says, append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	in.parts = append(in.parts, p)
	return p, nil
}

// role starts a process of the program; ready waits for its ready file.
func (in *installation) role(ctx context.Context, name string, ready bool, args ...string) error {
	file := filepath.Join(in.bench.dir, name+".ready")
	p, err := in.start(name, in.bench.binary, nil, append(args, "--ready-file", file)...)
	if err != nil || !ready {
		return err
	}
	return p.until(ctx, "ready", func() bool {
		_, err := os.Stat(file)
		return err == nil
	})
}

// until asks again and again, as long as the process lives.
func (p *part) until(ctx context.Context, what string, is func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %w\n%s", p.name, p.err, p.says.Bytes())
		case <-ctx.Done():
			return fmt.Errorf("%s is not %s: %w", p.name, what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// stop ends the processes, the last one first.
func (in *installation) stop() error {
	var errs []error
	for _, p := range slices.Backward(in.parts) {
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
		timer := time.AfterFunc(patience, func() { p.cmd.Process.Kill() }) //nolint:errcheck // it may have ended
		<-p.done
		timer.Stop()
		if p.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w\n%s", p.name, p.err, p.says.Bytes()))
		}
	}
	return errors.Join(errs...)
}

// startOne starts one `wheelwork dev`.
func (b *bench) startOne(ctx context.Context, in *installation) error {
	listen, err := freeAddress()
	if err != nil {
		return err
	}
	in.hosts, in.url = 1, "http://"+listen
	if in.token, err = b.giveToken("one"); err != nil {
		return err
	}
	return in.role(ctx, "one", true, "dev", "--data", filepath.Join(b.dir, "one"), "--listen", listen, "--sample=false")
}

// startCluster starts three members of etcd, a nameserver, three servers, of
// which one works and two stand by, and four hosts.
func (b *bench) startCluster(ctx context.Context, in *installation) error {
	endpoints, err := b.startMembers(ctx, in)
	if err != nil {
		return err
	}
	shared := filepath.Join(b.dir, "shared")
	if err := os.WriteFile(shared, []byte("a-secret-that-the-members-share\n"), 0o600); err != nil {
		return err
	}
	names, err := freeAddress()
	if err != nil {
		return err
	}
	if err := in.role(ctx, "names", true, "nameserver", "--listen", names, "--token-file", shared); err != nil {
		return err
	}
	var urls []string
	for i := range 3 {
		listen, err := freeAddress()
		if err != nil {
			return err
		}
		name := "server-" + strconv.Itoa(i)
		if in.token, err = b.giveToken(name); err != nil {
			return err
		}
		urls = append(urls, "http://"+listen)
		// The first one works; the others have no door until they do.
		if err := in.role(ctx, name, i == 0, "server", "--data", filepath.Join(b.dir, name), "--listen", listen, "--nameserver", names,
			"--token-file", shared, "--etcd-endpoints", endpoints); err != nil {
			return err
		}
	}
	for i := range 4 {
		name := "host-" + strconv.Itoa(i)
		if err := in.role(ctx, name, true, "host", "--data", filepath.Join(b.dir, name), "--name", name, "--nameserver", names, "--token-file", shared); err != nil {
			return err
		}
	}
	in.hosts, in.url = 4, strings.Join(urls, ",")
	return nil
}

// giveToken puts the administrator's token into a data directory.
func (b *bench) giveToken(name string) (string, error) {
	const token = "ww_the-administrators-token-of-this-benchmark"
	dir := filepath.Join(b.dir, name)
	return token, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600))
}

// await waits until the hosts are there.
func (in *installation) await(ctx context.Context, c *sdk.Client) error {
	var err error
	late := in.parts[0].until(ctx, "joined by the hosts", func() bool {
		hosts, e := c.Hosts(ctx)
		err = e
		return e == nil && len(hosts) == in.hosts
	})
	return errors.Join(late, err)
}

// freeAddress returns a loopback address that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// memberEnv makes this program a member of etcd, as a process of its own.
const memberEnv = "WHEELWORK_BENCH_MEMBER"

// memberConfig says what a member is told.
type memberConfig struct{ Name, Dir, Client, Peer, Members string }

func (b *bench) startMembers(ctx context.Context, in *installation) (endpoints string, err error) {
	var all []memberConfig
	var members, clients []string
	for i := range 3 {
		client, err := freeAddress()
		if err != nil {
			return "", err
		}
		peer, err := freeAddress()
		if err != nil {
			return "", err
		}
		m := memberConfig{Name: "member-" + strconv.Itoa(i), Client: "http://" + client, Peer: "http://" + peer}
		m.Dir = filepath.Join(b.dir, m.Name)
		members, clients, all = append(members, m.Name+"="+m.Peer), append(clients, m.Client), append(all, m)
	}
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	var last *part
	for _, m := range all {
		m.Members = strings.Join(members, ",")
		conf, err := json.Marshal(m)
		if err != nil {
			return "", err
		}
		if last, err = in.start(m.Name, own, []string{memberEnv + "=" + string(conf)}); err != nil {
			return "", err
		}
	}
	return strings.Join(clients, ","), last.until(ctx, "up", func() bool {
		_, err := os.Stat(all[len(all)-1].Dir + ".up")
		return err == nil
	})
}

// member runs a member of etcd with its defaults, synced, until ctx ends.
func member(ctx context.Context, conf string) error {
	var m memberConfig
	if err := json.Unmarshal([]byte(conf), &m); err != nil {
		return err
	}
	client, err := url.Parse(m.Client)
	if err != nil {
		return err
	}
	peer, err := url.Parse(m.Peer)
	if err != nil {
		return err
	}
	e := embed.NewConfig()
	e.Name, e.Dir, e.InitialCluster, e.LogLevel = m.Name, m.Dir, m.Members, "error"
	e.ListenClientUrls, e.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	e.ListenPeerUrls, e.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	started, err := embed.StartEtcd(e)
	if err != nil {
		return err
	}
	select {
	case <-started.Server.ReadyNotify():
	case err := <-started.Err():
		return err
	case <-ctx.Done():
		return nil
	}
	if err := os.WriteFile(m.Dir+".up", nil, 0o600); err != nil {
		return err
	}
	select {
	case err := <-started.Err():
		return err
	case <-ctx.Done():
		return nil // the end of the process is the end of the member
	}
}
