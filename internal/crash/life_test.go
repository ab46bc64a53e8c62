package crash

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/node/local"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// upCluster is `wheelwork cluster up`.
type upCluster struct {
	local.Ready
	cmd  *exec.Cmd
	says output
	done chan struct{}
	err  error
}

func (p program) up(t *testing.T, args ...string) *upCluster {
	t.Helper()
	u := &upCluster{done: make(chan struct{})}
	u.cmd = exec.Command(p.binary, append([]string{"cluster", "up", "-o", "json"}, args...)...)
	u.cmd.Stderr = &u.says
	out, err := u.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := u.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	told := make(chan bool, 1)
	go func() {
		told <- json.NewDecoder(out).Decode(&u.Ready) == nil
		u.err = u.cmd.Wait()
		close(u.done)
	}()
	t.Cleanup(func() {
		u.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-u.done
		if t.Failed() {
			t.Logf("the cluster said:\n%s", tail(u.says.Bytes()))
		}
	})
	select {
	case ok := <-told:
		if !ok {
			<-u.done
			t.Fatalf("the cluster ended: %v\n%s", u.err, tail(u.says.Bytes()))
		}
	case <-time.After(time.Minute):
		t.Fatal("the cluster was not ready within a minute")
	}
	return u
}

// pidIn returns the id of the process that has locked a data directory, 0 for none.
func pidIn(dir string) int {
	var pid int
	raw, err := os.ReadFile(filepath.Join(dir, "lock"))
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(raw), &pid); err != nil {
		return 0
	}
	return pid
}

// lives reports whether a process exists and is not a zombie.
func lives(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return err == nil || !os.IsNotExist(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// TestClusterUp runs a cluster of processes. The cluster survives the loss of the active
// server, and the loss of a server's disk, which it restores by itself. It ends with the
// process that started it, also when that process is killed, and continues after the next
// start.
func TestClusterUp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	p := buildProgram(t, "")
	dir := filepath.Join(t.TempDir(), "c")
	port := fmt.Sprint(10_000 + rnd.IntN(10_000))
	args := []string{"--data", dir, "--servers", "3", "--hosts", "2", "--port", port, "--split-rate", "-1", "--max-hosts-per-sub-app", "50"}
	u := p.up(t, args...)
	if len(u.URLs) != 3 || len(u.EtcdEndpoints) != 3 || u.PID != u.cmd.Process.Pid || u.Token == "" {
		t.Fatalf("%+v", u.Ready)
	}
	c := dial(t, u.URL, sdk.Options{Token: u.Token, RetryFor: time.Minute})
	if _, _, err := c.PushModule(t.Context(), sdk.Upload{Name: "sleep", Version: "1", Code: sleepModule}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), &sdk.Job{Name: "j", Handler: &sdk.Handler{Module: "sleep@1"}}); err != nil {
		t.Fatal(err)
	}
	var runs []string
	run := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := c.Trigger(ctx, sdk.Trigger{Job: "j", Input: []byte{0}, Key: fmt.Sprint("k", len(runs))})
		if err != nil {
			t.Fatal(err)
		}
		runs = append(runs, r.RunID)
		if end, err := c.Wait(ctx, "", r.RunID); err != nil || end.State != "succeeded" {
			t.Fatalf("%v, %v", end, err)
		}
	}
	run()
	server := func(i int) string { return filepath.Join(dir, fmt.Sprint("server-", i+1)) }
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pidIn(server(0))))
	for _, want := range []string{"--split-rate\x00-1\x00", "--max-hosts-per-sub-app\x0050\x00"} {
		if err != nil || !strings.Contains(string(line)+"\x00", want) {
			t.Errorf("a server was started as %q, %v", line, err)
		}
	}
	hasCode := func(i int) bool {
		s, err := modules.Open(filepath.Join(server(i), "modules"))
		return err == nil && s.Has(modules.Digest(sleepModule))
	}
	until(t, "every server to have the module", func() bool { return hasCode(0) && hasCode(1) && hasCode(2) })
	works := func() int {
		for i := range 3 {
			if _, err := os.Stat(server(i) + ".ready"); err == nil {
				return i
			}
		}
		return -1
	}
	kill := func(i int) {
		t.Helper()
		if err := syscall.Kill(pidIn(server(i)), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	// A standby server loses its disk.
	lost := (works() + 1) % 3
	kill(lost)
	if err := os.RemoveAll(server(lost)); err != nil {
		t.Fatal(err)
	}
	run()
	at := etcd.Access{Endpoints: u.EtcdEndpoints}
	until(t, "the lost server to be back", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		list, err := etcd.Members(ctx, at)
		voters := 0
		for _, m := range list {
			if m.State == "leader" || m.State == "follower" {
				voters++
			}
		}
		return err == nil && voters == 3 && hasCode(lost)
	})
	// The active server dies. One of the two remaining servers had lost its disk.
	first := works()
	kill(first)
	run()
	if _, err := c.Job(t.Context(), "", "j"); err != nil {
		t.Fatal(err)
	}

	// The parent process is killed; none of its children may survive.
	var pids []int
	for _, name := range []string{"server-1", "server-2", "server-3", "host-1", "host-2"} {
		if pid := pidIn(filepath.Join(dir, name)); pid > 0 && lives(pid) {
			pids = append(pids, pid)
		}
	}
	if len(pids) < 4 { // the killed server may not be back yet
		t.Fatalf("only the processes %v live", pids)
	}
	if err := u.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-u.done
	until(t, "every process to end with the cluster", func() bool {
		for _, pid := range pids {
			if lives(pid) {
				return false
			}
		}
		conn, err := net.Dial("tcp", u.Nameserver)
		if err == nil {
			conn.Close() //nolint:errcheck // a test's
		}
		return err != nil
	})

	u2 := p.up(t, args...)
	if u2.URL != u.URL || u2.Token != u.Token {
		t.Errorf("it goes on as %+v, and was %+v", u2.Ready, u.Ready)
	}
	for _, id := range runs {
		if r, err := c.Wait(t.Context(), "", id); err != nil || r.State != "succeeded" {
			t.Errorf("%v, %v", r, err)
		}
	}
	run()
	if err := u2.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	<-u2.done
	t.Logf("it ended %v after it was asked to", time.Since(begin).Round(time.Millisecond))
	if u2.err != nil {
		t.Errorf("it ended with %v", u2.err)
	}
	if bytes.Contains(u2.says.Bytes(), []byte("level=ERROR")) {
		t.Errorf("it said: %s", u2.says.Bytes())
	}
	other := exec.Command(p.binary, "cluster", "up", "--data", dir, "--servers", "5")
	if out, err := other.CombinedOutput(); err == nil || !strings.Contains(string(out), "--servers 3") {
		t.Errorf("with another number of servers: %v, %s", err, out)
	}
}

// TestClusterUpWithTLS: a cluster whose processes have certificates runs a job, and a server and a host that lose their
// directories join it again.
// hasFile reports whether a directory has the code of a module, by its digest.
func hasFile(dir string, digest [32]byte) (found bool) {
	name := hex.EncodeToString(digest[:])
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		found = found || err == nil && !d.IsDir() && strings.HasPrefix(d.Name(), name)
		return nil
	})
	return found && err == nil
}

func TestClusterUpWithTLS(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	p := buildProgram(t, "")
	dir := filepath.Join(t.TempDir(), "c")
	args := []string{"--tls", "--data", dir, "--servers", "3", "--hosts", "1", "--port", fmt.Sprint(10_000 + rnd.IntN(10_000))}
	u := p.up(t, args...)
	root, err := os.ReadFile(u.CACert)
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(root)
	c := dial(t, u.URL, sdk.Options{Token: u.Token, RetryFor: time.Minute, TLS: &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS13}})
	if _, _, err := c.PushModule(t.Context(), sdk.Upload{Name: "sleep", Version: "1", Code: sleepModule}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), &sdk.Job{Name: "j", Handler: &sdk.Handler{Module: "sleep@1"}}); err != nil {
		t.Fatal(err)
	}
	run := func() {
		t.Helper()
		a, err := c.Trigger(t.Context(), sdk.Trigger{Job: "j", Input: []byte{0}})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.Wait(t.Context(), "", a.RunID); err != nil || r.State != "succeeded" {
			t.Fatalf("%v, %v", r, err)
		}
	}
	// servers reports whether the cluster has three servers, and none with an id.
	servers := func(without string) bool {
		all, err := c.Cluster(t.Context())
		return err == nil && len(all.GetServers()) == 3 && !slices.ContainsFunc(all.GetServers(), func(m *sdk.Member) bool { return m.GetId() == without })
	}
	until(t, "three servers", func() bool { return servers("") })
	run()
	until(t, "a copy of the module on each server", func() bool { // others fetch it from the owner of the app
		for i := range 3 {
			if !hasFile(filepath.Join(dir, fmt.Sprint("server-", i+1)), sha256.Sum256(sleepModule)) {
				return false
			}
		}
		return true
	})
	lost, err := os.ReadFile(filepath.Join(dir, "server-2", "server-id"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server-2", "host-1"} {
		pid := pidIn(filepath.Join(dir, name))
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the server to join again as another one", func() bool { return servers(strings.TrimSpace(string(lost))) })
	run()
	if err := u.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if <-u.done; u.err != nil {
		t.Errorf("it ended with %v", u.err)
	}
	other := exec.Command(p.binary, "cluster", "up", "--data", dir, "--servers", "3", "--hosts", "1")
	if out, err := other.CombinedOutput(); err == nil || !strings.Contains(string(out), "--tls=true") {
		t.Errorf("without TLS: %v, %s", err, out)
	}
}

// padded returns a module with n further bytes that have no effect.
func padded(code []byte, n int, rnd *rand.Rand) []byte {
	section := append([]byte{1, 'x'}, make([]byte, n)...)
	for i := 2; i < len(section); i++ {
		section[i] = byte(rnd.Uint32())
	}
	b := append(bytes.Clone(code), 0)
	b = binary.AppendUvarint(b, uint64(len(section)))
	return append(b, section...)
}

// TestKilledBackup kills backups and restores at random moments. A file that has the name
// of a backup must be a complete one. No server starts on half a restore, and the next
// restore resumes it.
func TestKilledBackup(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testkit.Seed(t), 0))
	p := buildProgram(t, testkit.FreeAddress(t))
	s := p.start(t)
	says := s.await(t, p)
	c := dial(t, says.URL, sdk.Options{Token: says.Token})
	for i := range 16 {
		if _, _, err := c.PushModule(t.Context(), sdk.Upload{Name: "sleep", Version: fmt.Sprint(i), Code: padded(sleepModule, 1<<20, rnd)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Apply(t.Context(), &sdk.Job{Name: "j", Handler: &sdk.Handler{Module: "sleep@7"}}); err != nil {
		t.Fatal(err)
	}
	var runs []string
	trigger := func() {
		t.Helper()
		for range 20 {
			a, err := c.Trigger(t.Context(), sdk.Trigger{Job: "j", Input: []byte{0}, Key: fmt.Sprint("k", len(runs))})
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, a.RunID)
		}
	}
	trigger()
	dir := t.TempDir()
	command := func(args ...string) *exec.Cmd {
		cmd := exec.Command(p.binary, args...)
		cmd.Env = append(os.Environ(), "WHEELWORK_URL="+says.URL, "WHEELWORK_TOKEN="+says.Token, "XDG_CONFIG_HOME="+t.TempDir())
		return cmd
	}
	// Measures how long an undisturbed backup takes.
	file := filepath.Join(dir, "whole.wwb")
	begin := time.Now()
	if out, err := command("backup", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	backupTakes := time.Since(begin)
	t.Logf("a backup takes %v", backupTakes.Round(time.Millisecond))
	// killed starts a command and kills it. It reports whether the command had already
	// finished.
	killed := func(cmd *exec.Cmd, takes time.Duration) bool {
		t.Helper()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wait(time.Duration(rnd.Int64N(int64(takes))))
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		return cmd.Wait() == nil
	}
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := encryption.ParseIdentities(strings.NewReader(identity.String()))
	if err != nil {
		t.Fatal(err)
	}
	// A kill may come too early or too late to break anything off, so there are more tries than
	// needed.
	const enough, tries = 4, 60
	broken := 0
	for i := 0; i < tries && broken < enough; i++ {
		file := filepath.Join(dir, fmt.Sprint(i, ".wwb"))
		trigger()
		args := []string{"backup", file}
		if i%2 == 1 {
			args = append(args, "--recipient", identity.Recipient().String())
		}
		ended := killed(command(args...), backupTakes)
		f, err := os.Open(file)
		switch {
		case err != nil && ended:
			t.Errorf("backup %d ended and is not there: %v", i, err)
		case err != nil:
			broken++
		default:
			in, encrypted, err := encryption.Open(f, ids)
			if err == nil {
				_, err = archive.Check(t.Context(), in, nil)
			}
			if err != nil || encrypted != (i%2 == 1) {
				t.Errorf("backup %d bears its name and is none: %v", i, err)
			}
			f.Close() //nolint:errcheck // only read
		}
	}
	file = filepath.Join(dir, "last.wwb")
	if out, err := command("backup", file, "--recipient", identity.Recipient().String()).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	private := filepath.Join(dir, "identity")
	if err := os.WriteFile(private, []byte(identity.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, "to")
	marked := func() bool {
		_, err := os.Stat(filepath.Join(to, "restoring"))
		return err == nil
	}
	// Most of a restore is the start of its process and the check of the file, so a kill counts
	// from the moment at which the directory is marked. The longest delay is halved when the
	// restore ended before the kill, because the speed of the disk is not known.
	half, longest := 0, 20*time.Millisecond
	for i := 0; i < tries && half < enough; i++ {
		cmd := command("restore", file, "--data", to, "--identity", private)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		again := marked() // the restore before left its mark, so the moment is not seen
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for !marked() && len(ended) == 0 {
			wait(100 * time.Microsecond)
		}
		if again {
			wait(time.Duration(rnd.Int64N(int64(backupTakes))))
		}
		wait(time.Duration(rnd.Int64N(int64(longest))))
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		if <-ended == nil {
			longest = max(longest/2, time.Microsecond)
			if err := os.RemoveAll(to); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !marked() {
			continue // killed at the very end
		}
		half++
		out, err := command("server", "--data", to, "--listen", "127.0.0.1:0").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "restore") {
			t.Errorf("a server on half a restore, %d: %v, %s", i, err, out)
		}
	}
	t.Logf("%d backups and %d restores were broken off", broken, half)
	if broken < enough || half < enough {
		t.Errorf("fewer than %d were broken off: the test shows nothing", enough)
	}
	if _, err := os.Stat(filepath.Join(to, "restoring")); os.IsNotExist(err) {
		if err := os.RemoveAll(to); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := command("restore", file, "--data", to, "--identity", private).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.kill(t)
	p.data = to
	again := p.start(t)
	says = again.await(t, p)
	defer again.kill(t)
	c = dial(t, says.URL, sdk.Options{Token: says.Token})
	for _, id := range runs {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if r, err := c.Wait(ctx, "", id); err != nil || r.State != "succeeded" {
			t.Errorf("run %s, which was acknowledged before the backup: %v, %v", id, r, err)
		}
		cancel()
	}
}
