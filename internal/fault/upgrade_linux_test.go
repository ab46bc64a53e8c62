package fault

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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
)

// before is the commit that the test upgrades a cluster from. In that version servers
// cannot transfer single partitions of a backup, a new cluster has one partition by
// default, and data directories have format version 1. So a server cannot go back to it;
// hosts and nameservers can.
const before = "866ece2f42df2067878a13183340db9cb6035e72"

// git runs git in this checkout, which may belong to another user.
func git(args ...string) *exec.Cmd {
	return exec.Command("git", append([]string{"-c", "safe.directory=*"}, args...)...)
}

// olderProgram builds the command of an earlier commit. Its reported version is "before".
func olderProgram(t *testing.T, commit string) string {
	t.Helper()
	if err := git("cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		// The history may be shallow or rewritten.
		t.Skip("the history of this checkout does not have " + commit[:12] + ", from which a cluster would be upgraded: `git fetch --unshallow` may bring it")
	}
	root, err := git("rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive := git("-C", strings.TrimSpace(string(root)), "archive", "--format=tar", commit)
	var said bytes.Buffer
	archive.Stderr = &said
	out, err := archive.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	begin := time.Now()
	if err := archive.Start(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unpack(out, dir), archive.Wait()); err != nil {
		t.Fatalf("take the sources of %s from git: %v\n%s", commit[:12], err, said.Bytes())
	}
	path := filepath.Join(dir, "wheelwork-before")
	build := exec.Command("go", "build", "-ldflags", "-X github.com/wheelworkhq/wheelwork/internal/version.release=before", "-o", path, "./cmd/wheelwork")
	build.Dir = dir
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program of %s: %v\n%s", commit[:12], err, said)
	}
	t.Logf("the program of %s was built in %v", commit[:12], time.Since(begin).Round(time.Second))
	return path
}

// unpack writes the regular files of an archive.
func unpack(r io.Reader, dir string) error {
	in := tar.NewReader(r)
	for {
		h, err := in.Next()
		if err == io.EOF {
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			continue
		}
		to := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, in)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}

// TestUpgrade upgrades a cluster from an older program, one process after another in
// random order, while producers send orders and schedules fire. Nothing is lost and
// nothing is executed twice. Half way, programs of both versions work together, and a
// host or the nameserver is downgraded and upgraded again. A server must not be
// downgraded: the older program refuses to start and says why.
func TestUpgrade(t *testing.T) {
	formOf(t)
	t.Parallel() // with TestAddServer: both wait most of the time
	seed := testkit.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 3))
	old, current := olderProgram(t, before), program(t)
	c := newCluster(t, shape{etcd: embedded, members: 3, servers: 3, hosts: 3, slots: 32, binary: old, older: true, units: 3})
	client := c.dial(time.Minute)
	defineJobs(t, client, c.service)
	o := newOrders(seed)
	c.orders = o
	c.units = &units{of: map[uint64]string{}} // the test splits an app at the end
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer cancel()
	for range 3 {
		p := c.dial(10 * time.Second)
		busy.Go(func() { o.produce(ctx, t, p, 20*time.Millisecond) })
	}
	busy.Go(func() { o.look(ctx, client) })
	busy.Go(func() { c.watch.Owners(ctx, c.units.hear) }) //nolint:errcheck // it ends with ctx
	c.works(o, "with the program of before")
	versions := func() map[string]int {
		n := map[string]int{}
		if s, err := client.Cluster(t.Context()); err == nil {
			for _, m := range s.GetServers() {
				if m.GetState() == "up" {
					n[m.GetVersion()]++
				}
			}
		}
		return n
	}
	until(t, "three servers of before", 30*time.Second, func() bool { return versions()["before"] == 3 }, func() string { return fmt.Sprint(versions()) })

	with := func(p *part, binary string) {
		begin := time.Now()
		c.service.longest()
		p.end(syscall.SIGTERM)
		p.mu.Lock()
		p.binary = binary
		p.mu.Unlock()
		p.start()
		until(t, p.name+" to be back", 30*time.Second, p.isReady)
		took := time.Since(begin)
		again := c.works(o, p.name+" with "+filepath.Base(binary))
		t.Logf("%s with %s: %v, works again %v later, longest pause %v", p.name, filepath.Base(binary),
			took.Round(time.Millisecond), again.Round(time.Millisecond), c.service.longest().Round(time.Millisecond))
	}
	all := slices.Concat(c.servers, c.hosts, []*part{c.names})
	rnd.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	mixed := false
	thought := false
	for i, p := range all {
		with(p, current)
		if !thought && i >= len(all)/2 && !slices.Contains(c.servers, p) { // an operator who changes the plan
			thought = true
			with(p, old)
			with(p, current)
		}
		v := versions()
		mixed = mixed || v["before"] > 0 && v["dev"] > 0
		if t.Failed() {
			break
		}
	}
	if !mixed {
		t.Error("servers of both versions never worked together: the test shows nothing")
	}
	until(t, "three servers of this version", 30*time.Second, func() bool { return versions()["dev"] == 3 }, func() string { return fmt.Sprint(versions()) })
	// A downgraded server refuses to start and says why.
	late := c.servers[rnd.IntN(len(c.servers))]
	restart := func(binary string) {
		late.mu.Lock()
		late.binary, late.again, late.why = binary, 0, nil
		late.mu.Unlock()
		late.start()
	}
	late.end(syscall.SIGTERM)
	restart(old)
	refused := ""
	until(t, "the server of before to be kept out", 30*time.Second, func() bool {
		late.mu.Lock()
		defer late.mu.Unlock()
		if len(late.why) > 0 {
			refused = late.why[0]
		}
		return refused != ""
	})
	t.Logf("the server of before: %s", refused)
	if !strings.Contains(refused, "understands up to form 1") || !strings.Contains(refused, "start the version that wrote it") {
		t.Errorf("the server of before ended with %s", refused)
	}
	late.end(syscall.SIGKILL)
	restart(current)
	until(t, late.name+" to be back", 30*time.Second, late.isReady)
	c.works(o, "a server did not go back")
	for begin := time.Now(); ; wait(100 * time.Millisecond) {
		_, err := client.SplitApp(t.Context(), "mail", 2)
		if err == nil {
			break
		}
		if !mayFail(err) && !strings.Contains(err.Error(), "bring it up to date") && !strings.Contains(err.Error(), "have an owner") || time.Since(begin) > time.Minute {
			t.Fatal(err)
		}
	}
	c.works(o, "an app was split")
	until(t, "the schedules to fire", 30*time.Second, func() bool { return c.service.ended("/tick") > 20 && c.service.ended("/tock") > 20 })
	cancel()
	busy.Wait()
	runs := o.settle(t, c.dial(time.Minute))
	var once []string
	for _, app := range apps {
		for _, job := range []string{"/quick", "/slow", "/flaky", "/tick", "/tock"} {
			once = append(once, app+job)
		}
	}
	o.judge(t, c, runs, once...)
	for _, p := range slices.Concat(c.servers, c.hosts, []*part{c.names}) {
		if p.again > 0 {
			t.Errorf("%s ended by itself and was started again %d times: %s", p.name, p.again, strings.Join(slices.Compact(p.why), "; "))
		}
	}
}
