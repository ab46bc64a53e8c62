package verifier

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/runtime/sandbox"
)

func init() { outlooks = outlook }

// outlook is what a child that was taken over tries. It prints a line for each attempt.
func outlook(secret, address, pid string) {
	say := func(what string, err error) {
		switch {
		case err == nil:
			fmt.Println(what, "reached")
		case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), strings.Contains(err.Error(), "no such process"):
			fmt.Println(what, "refused")
		default:
			fmt.Println(what, err)
		}
	}
	_, err := os.ReadFile(secret)
	say("file", err)
	_, err = os.ReadFile("/proc/" + pid + "/environ")
	say("environment", err)
	say("write", os.WriteFile(secret+".new", nil, 0o600))
	c, err := net.Dial("tcp", address)
	if err == nil {
		c.Close()
	}
	say("port", err)
	say("signal", exec.Command("/bin/kill", "-0", pid).Run())
}

func TestChildIsEnclosed(t *testing.T) {
	if err := sandbox.Probe().Missing(); err != nil {
		testkit.Lacks(t, "%v", err)
	}
	secret := filepath.Join(t.TempDir(), "secret.key")
	if err := os.WriteFile(secret, []byte("hush"), 0o600); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	look := func(mode sandbox.Mode) (said map[string]string, v *Verifier) {
		v = New(Config{Command: childCommand(t), Sandbox: mode})
		if err := v.Probe(); err != nil {
			t.Logf("%s: %v", mode, err)
		}
		cmd := exec.CommandContext(t.Context(), exe, "outlook", secret, ln.Addr().String(), fmt.Sprint(os.Getpid()))
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		group(cmd)
		if err := v.start(cmd, work{}); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		said = map[string]string{}
		for line := range strings.Lines(out.String()) {
			what, result, _ := strings.Cut(strings.TrimSpace(line), " ")
			said[what] = result
		}
		return said, v
	}
	open, _ := look(sandbox.Off)
	closed, v := look(sandbox.Auto)
	for _, what := range []string{"file", "environment", "write", "port"} {
		if open[what] != "reached" || closed[what] != "refused" {
			t.Errorf("%s: %s without walls, %s with them", what, open[what], closed[what])
		}
	}
	if !v.separate {
		testkit.Lacks(t, "this system refuses namespaces to a process without privileges")
	}
	if closed["signal"] == "reached" {
		t.Error("it signals the process of the server")
	}
}

// TestNamespaces compares the namespaces of a child with those of this process.
func TestNamespaces(t *testing.T) {
	v := New(Config{Command: childCommand(t)})
	if err := v.Probe(); err != nil {
		testkit.Lacks(t, "%v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cmd := exec.CommandContext(t.Context(), "/bin/cat")
	cmd.Stdin = r
	group(cmd)
	if err := v.start(cmd, work{}); err != nil {
		t.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); cmd.Wait() }()
	for _, name := range []string{"user", "net", "mnt", "pid", "ipc", "uts"} {
		mine, err1 := os.Readlink("/proc/self/ns/" + name)
		its, err2 := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", cmd.Process.Pid, name))
		if err1 != nil || err2 != nil || mine == its {
			t.Errorf("%s: the child is in %q, this process in %q, %v, %v", name, its, mine, err1, err2)
		}
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil || !strings.Contains(string(status), "CapEff:\t0000000000000000") || !strings.Contains(string(status), "Seccomp:\t2") {
		t.Errorf("the child: %v\n%s", err, status)
	}
}

// TestProbe starts a child that a system without namespaces refuses.
func TestProbe(t *testing.T) {
	if err := New(Config{Command: []string{"/nowhere/at/all"}, Sandbox: sandbox.Require}).Probe(); err == nil || !strings.Contains(err.Error(), "namespaces") {
		t.Errorf("a child that does not start: %v", err)
	}
	for _, c := range []Config{{Command: []string{"/nowhere/at/all"}, Sandbox: sandbox.Off}, {}} {
		if err := New(c).Probe(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestVerifyInNamespaces verifies an upload with all walls.
func TestVerifyInNamespaces(t *testing.T) {
	v := New(Config{Command: childCommand(t), CodeDir: t.TempDir()})
	if err := v.Probe(); err != nil {
		testkit.Lacks(t, "%v", err)
	}
	if _, err := v.Inspect(context.Background(), uploadOf(t, greet.Module), ""); err != nil {
		t.Error(err)
	}
	folder := v.code.stage()
	code := uploadOf(t, greet.Module)
	if a, err := v.ask(t.Context(), work{code: code.Reader(), folder: folder, write: true}); err != nil || !a.Cached {
		t.Errorf("a child that may write its folder: %+v, %v", a, err)
	}
	if a, err := v.ask(t.Context(), work{code: code.Reader(), folder: folder}); err != nil || !a.Cached {
		t.Errorf("a child that may read it: %+v, %v", a, err)
	}
	ended := New(Config{Command: childCommand(t), Memory: 1 << 20})
	if err := ended.Probe(); err != nil {
		t.Fatal(err)
	}
	if _, err := ended.Inspect(context.Background(), uploadOf(t, greet.Module), ""); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("with 1 MiB: %v", err)
	}
}
