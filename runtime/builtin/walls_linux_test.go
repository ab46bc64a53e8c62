package builtin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/process"
	"github.com/wheelworkhq/wheelwork/runtime/sandbox"
)

// Exit codes of an attempt.
const (
	reached = 40
	denied  = 41
	broken  = 42
)

func init() { tries = attempt }

// attempt is the body of a command that tries to reach what it was not given.
func attempt(what, target string) int {
	var err error
	switch what {
	case "read":
		_, err = os.ReadFile(target)
	case "first": // byte of a file that has holes
		var f *os.File
		if f, err = os.Open(target); err == nil {
			if _, err = f.Read(make([]byte, 1)); errors.Is(err, syscall.EIO) { // nothing is mapped there, and it may look
				err = nil
			}
		}
	case "list":
		_, err = os.ReadDir(target)
	case "write":
		err = os.WriteFile(target, []byte("x"), 0o600)
	case "dial":
		var c net.Conn
		if c, err = net.Dial("tcp", target); err == nil {
			c.Close()
		}
	case "datagram":
		var c net.Conn
		if c, err = net.Dial("udp", target); err == nil {
			_, err = c.Write([]byte("x"))
		}
	case "unix":
		var c net.Conn
		if c, err = net.Dial("unix", target); err == nil {
			c.Close()
		}
	case "listen":
		var l net.Listener
		if l, err = net.Listen("tcp", target); err == nil {
			l.Close()
		}
	case "multipath": // TCP in a protocol whose ports Landlock does not know
		_, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
	case "trace":
		pid, _ := strconv.Atoi(target)
		err = syscall.PtraceAttach(pid)
	case "signal":
		pid, _ := strconv.Atoi(target)
		err = syscall.Kill(pid, 0)
	case "namespace":
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		err = cmd.Run()
	case "keys":
		_, err = unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true)
	default:
		return broken
	}
	switch {
	case err == nil:
		return reached
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.EPROTONOSUPPORT):
		return denied
	}
	fmt.Fprintln(os.Stderr, err)
	return broken
}

// walls skips a test if this system lacks them.
func walls(t *testing.T) sandbox.Walls {
	t.Helper()
	w := sandbox.Probe()
	if err := w.Missing(); err != nil {
		testkit.Lacks(t, "%v", err)
	}
	return w
}

// enclosed returns an executor with one command, whose program is this test, and its data
// directory.
func enclosed(t *testing.T, mode sandbox.Mode, change ...func(*Command)) (*Exec, string) {
	t.Helper()
	data := t.TempDir()
	k := process.NewKeeper(process.Policy{Mode: mode, Data: data, Temp: "wheelwork-test-" + strings.ReplaceAll(t.Name(), "/", "-")})
	t.Cleanup(func() { k.Close() })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := Command{Name: "c", Path: exe, JobArgs: true, Env: map[string]string{role: "attempt"}}
	for _, f := range change {
		f(&c)
	}
	e, err := NewExec([]Command{c}, k, filepath.Join(data, "commands"))
	if err != nil {
		t.Fatal(err)
	}
	return e, data
}

func run(t *testing.T, e *Exec, args ...string) runtime.Result {
	t.Helper()
	return e.Run(t.Context(), runtime.Task{App: "shop", Command: "c", Args: args}, &heard{})
}

// TestWalls tries what a command of a job must not reach. Each attempt succeeds without the
// walls, so a wall that is missing fails the test.
func TestWalls(t *testing.T) {
	w := walls(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	sockets := t.TempDir()
	local, err := net.Listen("unix", filepath.Join(sockets, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	other := exec.Command("/bin/sleep", "1000") // a process of the same user outside of the box
	other.Env = []string{"TOKEN=hush"}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { other.Process.Kill(); other.Wait() }()
	pid := strconv.Itoa(other.Process.Pid)
	me := strconv.Itoa(os.Getpid())

	// A run of another app that is under way, with a file in its private folder.
	neighbour, _ := enclosed(t, sandbox.Require, func(c *Command) { c.Env[role] = "neighbour" })
	h := &heard{first: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		neighbour.Run(ctx, runtime.Task{App: "pay", Command: "c"}, h)
	}()
	defer func() { cancel(); <-ended }()
	<-h.first
	private := strings.TrimPrefix(h.lines[0], "1 ")
	if text, err := os.ReadFile(private); string(text) != "mine" {
		t.Fatalf("the neighbour's file: %q, %v", text, err)
	}

	for _, tt := range []struct{ name, what, target string }{
		{"the administrator's token", "read", "DATA/token"},
		{"the key of secrets", "read", "DATA/secret.key"},
		{"the data directory", "list", "DATA"},
		{"write in the data directory", "write", "DATA/new"},
		{"the environment of the host", "read", "/proc/" + me + "/environ"},
		{"the memory of the host", "first", "/proc/" + me + "/mem"},
		{"the files of the host", "list", "/proc/" + me + "/fd"},
		{"the environment of another process", "read", "/proc/" + pid + "/environ"},
		{"the arguments of another process", "read", "/proc/" + pid + "/cmdline"},
		{"a file of another run", "read", private},
		{"the folder of another run", "list", filepath.Dir(private)},
		{"passwords of the machine", "read", "/etc/shadow"},
		{"files of users", "list", "/home"},
		{"the folder for temporary files", "list", os.TempDir()},
		{"trace another process", "trace", pid},
		{"signal another process", "signal", pid},
		{"a port of this machine", "dial", ln.Addr().String()},
		{"a datagram", "datagram", udp.LocalAddr().String()},
		{"a Unix socket", "unix", local.Addr().String()},
		{"a port of its own", "listen", "127.0.0.1:0"},
		{"a namespace", "namespace", ""},
		{"the keys of the user", "keys", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.what == "signal" && w.Landlock < 6 {
				testkit.Lacks(t, "Landlock %d of this system does not scope signals", w.Landlock)
			}
			for mode, want := range map[sandbox.Mode]int{sandbox.Off: reached, sandbox.Require: denied} {
				e, data := enclosed(t, mode)
				for _, name := range []string{"token", "secret.key"} {
					if err := os.WriteFile(filepath.Join(data, name), []byte("hush"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				target := strings.Replace(tt.target, "DATA", data, 1)
				if r := run(t, e, tt.what, target); r.ExitCode != want {
					if mode == sandbox.Off { // this machine refuses it anyway
						t.Logf("without walls: %+v", r)
						continue
					}
					t.Errorf("%s: got %+v, want exit code %d", mode, r, want)
				}
			}
		})
	}
}

func TestGivenNetwork(t *testing.T) {
	w := walls(t)
	one, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	two, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	try := func(e *Exec, what, target string, want int) {
		t.Helper()
		if r := run(t, e, what, target); r.ExitCode != want {
			t.Errorf("%s %s: got %+v, want exit code %d", what, target, r, want)
		}
	}
	all, _ := enclosed(t, sandbox.Require, func(c *Command) { c.Network = true })
	try(all, "dial", one.Addr().String(), reached)
	try(all, "dial", two.Addr().String(), reached)
	try(all, "listen", "127.0.0.1:0", reached)
	try(all, "multipath", "", denied)
	if !w.Ports() {
		testkit.Lacks(t, "Landlock %d of this system does not limit ports", w.Landlock)
	}
	some, _ := enclosed(t, sandbox.Require, func(c *Command) {
		c.Network, c.Ports = true, []uint16{uint16(one.Addr().(*net.TCPAddr).Port)}
	})
	try(some, "dial", one.Addr().String(), reached)
	try(some, "dial", two.Addr().String(), denied)
	try(some, "listen", "127.0.0.1:0", denied)
}

func TestGivenFiles(t *testing.T) {
	walls(t)
	readable, writable := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(readable, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	e, _ := enclosed(t, sandbox.Require, func(c *Command) { c.Read, c.Dir = []string{readable}, writable })
	for _, tt := range []struct {
		what, target string
		want         int
	}{
		{"read", readable + "/f", reached},
		{"list", readable, reached},
		{"write", readable + "/f", denied},
		{"write", readable + "/g", denied},
		{"write", writable + "/g", reached},
		{"read", writable + "/g", reached},
		{"write", "g", reached},
	} {
		if r := run(t, e, tt.what, tt.target); r.ExitCode != tt.want {
			t.Errorf("%s %s: got %+v, want exit code %d", tt.what, tt.target, r, tt.want)
		}
	}
}

// TestOrdinaryCommands runs what commands of operators do.
func TestOrdinaryCommands(t *testing.T) {
	walls(t)
	work := t.TempDir()
	for _, tt := range []struct{ name, path, script, want string }{
		{"a shell", "/bin/sh", `
set -e
cd "$WORK"; echo hello > made; cat made; ls /usr > /dev/null
temp=$(mktemp); echo private > "$temp"; cat "$temp"
test "$TMPDIR" = "$(dirname "$temp")"
(echo child; echo of a pipe) | sort | tr a-z A-Z
id -u > /dev/null
TZ=Asia/Tokyo date -d @0 +%H 2>/dev/null || echo 09
cat <<END
here
END
`, "hello\nprivate\nCHILD\nOF A PIPE\n09\nhere\n"},
		{"perl", "/usr/bin/perl", `
use File::Temp; use Socket;
my ($f, $n) = File::Temp::tempfile(DIR => $ENV{TMPDIR}); print $f "x"; close $f;
print -s $n, "\n"; print ` + "`echo child`" + `;
socketpair(my $a, my $b, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die $!; print "pair\n";
`, "1\nchild\npair\n"},
		{"python", "/usr/bin/python3", `
import tempfile, subprocess, os, threading, datetime
with tempfile.NamedTemporaryFile() as f: f.write(b"x")
print(subprocess.run(["/bin/echo", "child"], capture_output=True, text=True).stdout, end="")
t = threading.Thread(target=print, args=("thread",)); t.start(); t.join()
import zoneinfo; print(datetime.datetime.fromtimestamp(0, zoneinfo.ZoneInfo("Asia/Tokyo")).hour)
`, "child\nthread\n9\n"},
		{"node", "/usr/bin/node", `
const cp = require("child_process"), fs = require("fs"), os = require("os");
fs.mkdtempSync(os.tmpdir() + "/x"); process.stdout.write(cp.execSync("echo child"));
new (require("worker_threads").Worker)("require('worker_threads').parentPort.postMessage('thread')", {eval: true}).on("message", m => console.log(m));
`, "child\nthread\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := os.Stat(tt.path); err != nil {
				testkit.Lacks(t, "%s is not installed", tt.path)
			}
			e, _ := enclosed(t, sandbox.Require, func(c *Command) {
				c.Path, c.Dir, c.Env = tt.path, work, map[string]string{"WORK": work}
			})
			flag := map[string]string{"/bin/sh": "-c", "/usr/bin/python3": "-c"}[tt.path]
			if flag == "" {
				flag = "-e"
			}
			h := &heard{}
			r := e.Run(t.Context(), runtime.Task{App: "shop", Command: "c", Args: []string{flag, tt.script}}, h)
			if r.Outcome != runtime.Succeeded || string(r.Output) != tt.want {
				t.Errorf("got %q, %+v\n%q", r.Output, r, h.lines)
			}
		})
	}
}

// The private folder of a run ends with it, and that of a killed host with the next start.
func TestPrivateFolderEnds(t *testing.T) {
	walls(t)
	e, _ := enclosed(t, sandbox.Require, func(c *Command) { c.Path, c.Env = "/bin/sh", nil })
	r := run(t, e, "-c", `mkdir -p "$TMPDIR/a/b"; touch "$TMPDIR/a/f"; chmod 0 "$TMPDIR/a/f"; echo -n "$TMPDIR"`)
	if _, err := os.Stat(string(r.Output)); r.Outcome != runtime.Succeeded || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, %+v", err, r)
	}
	t.Setenv("TMPDIR", t.TempDir())
	left, err := os.MkdirTemp("", "wheelwork-host-7-")
	if err != nil {
		t.Fatal(err)
	}
	process.NewKeeper(process.Policy{Temp: "wheelwork-host-7-"}).Close()
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is left: %v", left, err)
	}
}

func TestCommandMemory(t *testing.T) {
	script := `my $x = "x" x (300 << 20); print length $x`
	for limit, want := range map[int64]runtime.Outcome{0: runtime.Succeeded, 100 << 20: runtime.Retryable} {
		if _, err := os.Stat("/usr/bin/perl"); err != nil {
			testkit.Lacks(t, "perl is not installed")
		}
		e, _ := enclosed(t, sandbox.Off, func(c *Command) { c.Path, c.Env, c.Memory = "/usr/bin/perl", nil, limit })
		if r := run(t, e, "-e", script); r.Outcome != want {
			t.Errorf("limit %d: %+v", limit, r)
		}
	}
}

func TestCommandUser(t *testing.T) {
	if os.Getuid() != 0 {
		e := func() error {
			k := process.New()
			defer k.Close()
			_, err := newExec(k, "cat", func(c *Command) { c.User = "1:1" })
			return err
		}()
		if e == nil || !strings.Contains(e.Error(), "CAP_SETUID") {
			t.Errorf("without the capability: %v", e)
		}
		testkit.Lacks(t, "needs root to run a command as another user")
	}
	program, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	script := filepath.Join(t.TempDir(), "script.sh") // in a folder that the user cannot reach
	if err := os.WriteFile(script, []byte("#!/bin/sh\nid -u; id -g; id -G; touch \"$TMPDIR/f\" && echo made; cat /etc/shadow 2>/dev/null\nexit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(script)
	sumOfScript := sha256.Sum256(text)
	if err := os.Chmod(filepath.Dir(script), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []sandbox.Mode{sandbox.Off, sandbox.Auto} {
		e, _ := enclosed(t, mode, func(c *Command) {
			c.Path, c.Env, c.User, c.SHA256 = script, nil, "65534:65533", []string{hex.EncodeToString(sumOfScript[:])}
		})
		want := "65534\n65533\n65533\nmade\n"
		if mode == sandbox.Off {
			want = strings.Replace(want, "made\n", "", 1) // it has no private folder
		}
		h := &heard{}
		if r := e.Run(t.Context(), runtime.Task{Command: "c"}, h); string(r.Output) != want {
			t.Errorf("%s: %q, %+v, %q", mode, r.Output, r, h.lines)
		}
		e, _ = enclosed(t, mode, func(c *Command) {
			c.Path, c.Env, c.User, c.SHA256 = "/bin/sh", nil, "65534:65533", []string{hex.EncodeToString(sum[:])}
		})
		if r := run(t, e, "-c", "id -u"); string(r.Output) != "65534\n" {
			t.Errorf("%s, a program: %q, %+v", mode, r.Output, r)
		}
	}
}

// A command with a digest runs the bytes that were checked, whatever becomes of its file.
func TestCommandDigest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tool.sh")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	good := "#!/bin/sh\necho good\n"
	write(good)
	sum := sha256.Sum256([]byte(good))
	pin := func(c *Command) {
		c.Path, c.Env, c.SHA256 = path, nil, []string{"sha256:" + hex.EncodeToString(sum[:])}
	}
	e, data := enclosed(t, sandbox.Auto, pin)
	write("#!/bin/sh\necho swapped\n")
	if r := run(t, e); string(r.Output) != "good\n" {
		t.Errorf("after the swap: %q, %+v", r.Output, r)
	}
	k := process.New()
	defer k.Close()
	_, err := newExec(k, "", pin)
	if err == nil {
		t.Fatal("a program with another digest was taken")
	}
	_, err = NewExec([]Command{{Name: "c", Path: path, SHA256: []string{hex.EncodeToString(sum[:])}}}, k, filepath.Join(data, "again"))
	if err == nil || !strings.Contains(err.Error(), "is not allowed: its sha256 is") {
		t.Errorf("another digest: %v", err)
	}
	if left, _ := os.ReadDir(filepath.Join(data, "again")); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	if _, err := NewExec([]Command{{Name: "c", Path: path, SHA256: []string{"12"}}}, k, data); err == nil || !strings.Contains(err.Error(), "64 hex digits") {
		t.Errorf("malformed: %v", err)
	}
}

func TestCommandApps(t *testing.T) {
	e, _ := enclosed(t, sandbox.Off, func(c *Command) { c.Env[role], c.Apps = "cat", []string{"shop", "pay"} })
	for app, want := range map[string]runtime.Outcome{"shop": runtime.Succeeded, "pay": runtime.Succeeded, "other": runtime.HostError, "": runtime.HostError} {
		r := e.Run(t.Context(), runtime.Task{App: app, Command: "c"}, &heard{})
		if r.Outcome != want || want == runtime.HostError && (r.Code != codeNoCommand || !strings.Contains(r.Error, "does not offer")) {
			t.Errorf("app %q: %+v", app, r)
		}
	}
	if got := e.Apps("exec/c"); len(got) != 2 || e.Apps("exec") != nil {
		t.Errorf("apps: %v", got)
	}
}

func TestRightsAreRefused(t *testing.T) {
	data := t.TempDir()
	inside := filepath.Join(data, "sub")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	k := process.NewKeeper(process.Policy{Mode: sandbox.Auto, Data: data})
	defer k.Close()
	for want, r := range map[string]process.Rights{
		"would show the data directory":             {Read: []string{inside}},
		"would show the data directory ":            {Write: []string{link}},
		"would show the data directory of the host": {Read: []string{"/"}},

		"not absolute":           {Read: []string{"x"}},
		"no such file":           {Read: []string{"/nowhere/at/all"}},
		"no such user":           {User: "no-such-user-here"},
		"malformed":              {User: "a:b"},
		"negative":               {Memory: -1},
		"with network: true":     {Ports: []uint16{1}},
		"port 0":                 {Network: true, Ports: []uint16{0}},
		"apps has an empty name": {Apps: []string{""}},
	} {
		if _, err := k.Rules(r); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := k.Rules(process.Rights{Read: []string{"/usr"}, Write: []string{t.TempDir()}}); err != nil {
		t.Error(err)
	}
}

// BenchmarkExec measures one run of /bin/true without and with the walls.
func BenchmarkExec(b *testing.B) {
	for _, mode := range []sandbox.Mode{sandbox.Off, sandbox.Auto} {
		b.Run(string(mode), func(b *testing.B) {
			k := process.NewKeeper(process.Policy{Mode: mode, Temp: "wheelwork-bench-"})
			defer k.Close()
			e, err := NewExec([]Command{{Name: "c", Path: "/bin/true"}}, k, "")
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if r := e.Run(b.Context(), runtime.Task{Command: "c"}, &heard{}); r.Outcome != runtime.Succeeded {
					b.Fatal(r)
				}
			}
		})
	}
}
