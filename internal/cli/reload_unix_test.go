//go:build unix

package cli

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// logged is a separate process whose log a test reads.
type logged struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string // closed at the end of the process
}

// startLogged starts a process. The clean-up of the test ends it by a signal.
func startLogged(t *testing.T, env []string, args ...string) *logged {
	t.Helper()
	p := &logged{t, exec.Command("wheelwork", args...), make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), env...)
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGTERM)
		for range p.lines {
		}
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("wheelwork %s after SIGTERM: %v", args[0], err)
		}
	})
	return p
}

func (p *logged) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// until reads the log up to a line with all of the texts, and returns the line.
func (p *logged) until(texts ...string) string {
	p.t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.t.Fatalf("the process ended before it said %q", texts)
			}
			found := true
			for _, text := range texts {
				found = found && strings.Contains(line, text)
			}
			if found {
				return line
			}
		case <-late:
			p.t.Fatalf("the process did not say %q", texts)
		}
	}
}

// TestReload reloads a server and a host, as a service manager does: settings of their files take
// effect or are named, the manager is notified, and a file that is wrong ends no process.
func TestReload(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: in("notify"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close() //nolint:errcheck // a test's socket
	notified := func(want string) {
		t.Helper()
		b := make([]byte, 256)
		if err := manager.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := manager.Read(b)
		if err != nil || !strings.HasPrefix(string(b[:n]), want) {
			t.Fatalf("the service manager is told %q, %v, want %q", b[:n], err, want)
		}
	}
	write("token", "the-first-token-of-hosts\n")
	settings := "listen: 127.0.0.1:0\ndata: " + in("server") + "\ntoken-file: " + in("token") + "\n"
	write("server.yaml", settings+"zone: a\n")
	server := startLogged(t, []string{"NOTIFY_SOCKET=" + in("notify")}, "server", "--config", in("server.yaml"))
	_, address, _ := strings.Cut(server.until(" ready at "), " ready at http://")
	notified("READY=1")
	write("host.yaml", "http-allow: [a.example]\n")
	host := startLogged(t, nil, "host", "--server", address, "--data", in("host"), "--token-file", in("token"), "--config", in("host.yaml"))
	host.until("host ready")

	write("server.yaml", settings+"zone: b\nmax-body: 1MiB\n")
	write("token", "the-second-token-of-hosts\n")
	server.signal(syscall.SIGHUP)
	server.until("level=INFO", `"reload: settings changed"`, `settings="max-body, token-file"`)
	server.until("level=WARN", `setting zone changed from \"a\" to \"b\"; restart to apply it`)
	notified("RELOADING=1\n")
	notified("READY=1")
	write("host.yaml", "http-allow: [b.example]\n")
	host.signal(syscall.SIGHUP)
	host.until(`settings="http-allow, token-file"`)

	write("host.yaml", "http-allowed: [c.example]\n")
	host.signal(syscall.SIGHUP)
	host.until("level=ERROR", "the reload failed and changed nothing", in("host.yaml"), "http-allowed")
	write("server.yaml", settings+"zone: a\nmax-body: 1MiB\n")
	if err := os.Remove(in("server/token")); err != nil {
		t.Fatal(err)
	}
	server.signal(syscall.SIGHUP)
	server.until("level=ERROR", "the reload failed and changed nothing", in("server/token"))
	notified("RELOADING=1")
	notified("READY=1")
	write("server/token", "another-token-of-the-administrator\n")
	server.signal(syscall.SIGHUP)
	server.until(`"reload: settings changed" settings=` + in("server/token"))
}
