package crash

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// sleepModule sleeps for the number of seconds in its input.
//
//go:embed testdata/sleep.wasm
var sleepModule []byte

// role starts a process of the program with a ready file and does not wait for it.
func (p program) role(t *testing.T, readyFile string, args ...string) *process {
	t.Helper()
	if err := os.RemoveAll(readyFile); err != nil {
		t.Fatal(err)
	}
	r := &process{cmd: exec.Command(p.binary, append(args, "--ready-file", readyFile)...), ready: make(chan ready, 1), done: make(chan struct{})}
	r.cmd.Stderr = &r.says
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		r.err = r.cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		r.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-r.done
		if t.Failed() {
			t.Logf("%v said:\n%s", args[:2], tail(r.says.Bytes()))
		}
	})
	return r
}

// output collects what a process has printed so far.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) Bytes() []byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Clone(o.buf.Bytes())
}

func tail(b []byte) []byte {
	if len(b) > 4000 {
		b = b[len(b)-4000:]
	}
	return b
}

// serves waits until a process has written its ready file.
func (r *process) serves(t *testing.T, readyFile string) (says ready) {
	t.Helper()
	until(t, fmt.Sprint(r.cmd.Args[1:3], " to be ready"), func() bool {
		select {
		case <-r.done:
			t.Fatalf("%v ended: %v\n%s", r.cmd.Args, r.err, tail(r.says.Bytes()))
		default:
		}
		raw, err := os.ReadFile(readyFile)
		return err == nil && json.Unmarshal(raw, &says) == nil
	})
	return says
}

// until waits for a condition that another process brings about.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for begin := time.Now(); !is(); wait(20 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

// TestTakeOver kills the server that owns an app's partition while a host executes a
// hundred runs. The standby takes over. Running attempts continue and are not executed
// again, every planned time has one run, and every acknowledged trigger ends. Then the
// first server returns as the standby, and the test repeats with the roles exchanged.
func TestTakeOver(t *testing.T) {
	p := buildProgram(t, "")
	dir := t.TempDir()
	member, err := etcd.Start(t.Context(), etcd.MemberConfig{
		Name: "one", Dir: filepath.Join(dir, "etcd"), Client: "http://" + testkit.FreeAddress(t), Peer: "http://" + testkit.FreeAddress(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close() //nolint:errcheck // a test's

	const token = "ww_the-administrators-token-of-this-test"
	shared := filepath.Join(dir, "shared")
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(shared, "a-secret-that-hosts-share\n")
	own := filepath.Join(dir, "server-token")
	write(own, "a-secret-that-only-servers-share\n")
	names, namesReady := testkit.FreeAddress(t), filepath.Join(dir, "names.ready")
	p.role(t, namesReady, "nameserver", "--listen", names, "--token-file", shared, "--server-token-file", own).serves(t, namesReady)
	address := map[string]string{"a": testkit.FreeAddress(t), "b": testkit.FreeAddress(t)}
	readyOf := func(name string) string { return filepath.Join(dir, name+".ready") }
	server := func(name string) *process {
		write(filepath.Join(dir, name, "token"), token+"\n")
		return p.role(t, readyOf(name), "server", "--data", filepath.Join(dir, name), "--listen", address[name],
			"--nameserver", names, "--token-file", shared, "--server-token-file", own, "--etcd-endpoints", member.Client())
	}
	hasCode := func(name string) bool {
		s, err := modules.Open(filepath.Join(dir, name, "modules"))
		return err == nil && s.Has(modules.Digest(sleepModule))
	}

	servers := map[string]*process{"a": server("a"), "b": server("b")}
	for name, s := range servers {
		s.serves(t, readyOf(name))
	}
	p.role(t, readyOf("host"), "host", "--data", filepath.Join(dir, "host"), "--nameserver", names, "--token-file", shared, "--slots", "128").serves(t, readyOf("host"))

	c := dial(t, "http://"+address["a"]+",http://"+address["b"], sdk.Options{Token: token, RetryFor: time.Minute})
	if _, _, err := c.PushModule(t.Context(), sdk.Upload{Name: "sleep", Version: "1", Code: sleepModule}); err != nil {
		t.Fatal(err)
	}
	for _, job := range []*sdk.Job{
		{Name: "slow"},
		{Name: "every", Schedule: &sdk.Schedule{Every: "1s"}, Misfire: &sdk.Misfire{Policy: "fire_all"}, Input: "\x00"},
	} {
		job.Handler = &sdk.Handler{Module: "sleep@1"}
		if _, err := c.Apply(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "both servers to have the module", func() bool { return hasCode("a") && hasCode("b") })
	// The only app has a partition, and the partition has an owner.
	owner := func() (name string) {
		t.Helper()
		until(t, "the app's unit to have an owner", func() bool {
			s, err := c.Cluster(t.Context())
			if err != nil {
				return false
			}
			for _, u := range s.Units {
				for at, address := range address {
					if u.Apps > 0 && u.Address == address {
						name = at
					}
				}
			}
			return name != ""
		})
		return name
	}

	var runs []string
	trigger := func(n int) {
		t.Helper()
		for range n {
			r, err := c.Trigger(t.Context(), sdk.Trigger{Job: "slow", Input: []byte{6}, Key: fmt.Sprint("k", len(runs))})
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r.RunID)
		}
	}
	round := func(n int) (killed string) {
		t.Helper()
		victim := owner()
		trigger(n)
		until(t, "the runs to be on the host", func() bool {
			o, err := c.Overview(t.Context(), "")
			return err == nil && int(o.Running) >= n
		})
		at := time.Now()
		servers[victim].kill(t)
		trigger(5) // the client finds the new owner
		t.Logf("%s was killed, the other one took a command after %v", victim, time.Since(at).Round(time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, id := range runs {
			r, err := c.Wait(ctx, "", id)
			if err != nil {
				t.Fatal(err)
			}
			if r.State != "succeeded" || r.Attempt != 1 {
				t.Errorf("run %s is %s after %d attempts: %s", id, r.State, r.Attempt, r.Error)
			}
		}
		return victim
	}
	lost := round(90) // a quarter of the 128 execution slots is reserved for the other job, which is quick
	if t.Failed() {
		return
	}
	servers[lost] = server(lost)
	until(t, "the first server to stand by", func() bool { return bytes.Contains(servers[lost].says.Bytes(), []byte("is a standby")) })
	round(30)

	if _, err := c.Pause(t.Context(), "", "every"); err != nil {
		t.Fatal(err)
	}
	planned, first, last := map[int64]int{}, int64(0), int64(0)
	for r, err := range c.Runs(t.Context(), sdk.RunQuery{Job: "every"}) {
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
		t.Errorf("the schedule fired from %d to %d only", first, last)
	}
	for at := first; at <= last; at++ {
		if planned[at] != 1 {
			t.Errorf("the planned time %v has %d runs", time.Unix(at, 0), planned[at])
		}
	}
}
