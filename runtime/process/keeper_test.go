//go:build unix

package process

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The test binary also acts as the programs of these tests. This variable selects one.
const role = "WHEELWORK_TEST_ROLE"

// forever blocks. It uses a timer because Go aborts a program in which all goroutines are
// blocked.
func forever() { <-time.After(time.Hour) }

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "guard" {
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		Guard(os.Stdin)
		return
	}
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "hang": // reports that it runs, and blocks
		os.Stdout.WriteString("here\n")
		forever()
	case "tree": // starts a child in its group that has its standard output, and blocks
		startHanging()
		forever()
	case "leave": // as tree, and ends when its input ends
		startHanging()
		io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	case "flee": // starts a child in a session of its own that has its standard output, and blocks
		cmd := program("hang")
		cmd.Stdout = os.Stdout
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		must(cmd.Start())
		forever()
	case "host": // starts a tree that writes to file 3, and blocks
		syscall.CloseOnExec(3)
		var guard []string
		if os.Getenv("GUARDED") != "" {
			guard = guardCommand()
		}
		k := New(guard...)
		cmd := program(os.Getenv("CHILD"))
		cmd.Stdout = os.NewFile(3, "out")
		_, err := k.Start(cmd, nil)
		must(err)
		if os.Getenv("GUARDED") == "twice" { // kills its guard; the next guard must learn of all groups
			must(k.guard.cmd.Process.Kill())
			k.guard.cmd.Wait()
			another := program("hang")
			another.Stdout = cmd.Stdout
			_, err := k.Start(another, nil)
			must(err)
		}
		forever()
	}
}

func must(err error) {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}

func guardCommand() []string {
	exe, err := os.Executable()
	must(err)
	return []string{exe, "guard"}
}

func program(as string, env ...string) *exec.Cmd {
	exe, err := os.Executable()
	must(err)
	cmd := exec.Command(exe)
	cmd.Env = append(env, role+"="+as)
	return cmd
}

func shell(script string) *exec.Cmd { return exec.Command("/bin/sh", "-c", script) }

func startHanging() {
	cmd := program("hang")
	cmd.Stdout = os.Stdout
	must(cmd.Start())
}

// output returns a pipe for the standard output of a program and all processes that it
// starts. The pipe ends when the last of them has ended.
func output(t *testing.T) (*bufio.Reader, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return bufio.NewReader(r), w
}

// awaitHere reads until the innermost program reports that it runs.
func awaitHere(t *testing.T, r *bufio.Reader) {
	t.Helper()
	if line, err := r.ReadString('\n'); err != nil || line != "here\n" {
		t.Fatalf("read %q, %v", line, err)
	}
}

func awaitEOF(t *testing.T, r *bufio.Reader) {
	t.Helper()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 {
		t.Fatalf("read %q, %v", rest, err)
	}
}

func started(t *testing.T, k *Keeper, as string, stdin ...*os.File) (*Child, *bufio.Reader) {
	t.Helper()
	r, w := output(t)
	cmd := program(as)
	cmd.Stdout = w
	for _, f := range stdin {
		cmd.Stdin = f
	}
	c, err := k.Start(cmd, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	awaitHere(t, r)
	return c, r
}

func TestKillEndsTheGroup(t *testing.T) {
	k := New()
	defer k.Close()
	c, out := started(t, k, "tree")
	if c.State() != nil {
		t.Error("it has a state while it runs")
	}
	c.Kill()
	<-c.Done()
	awaitEOF(t, out)
	if s := c.State().Sys().(syscall.WaitStatus); !s.Signaled() || s.Signal() != syscall.SIGKILL {
		t.Errorf("state: %v", c.State())
	}
	c.Kill() // must not kill the process that may have the PID now
}

func TestTerminateAsksTheGroup(t *testing.T) {
	k := New()
	defer k.Close()
	c, out := started(t, k, "tree")
	c.Terminate()
	<-c.Done()
	awaitEOF(t, out)
	if s := c.State().Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGTERM {
		t.Errorf("state: %v", c.State())
	}
}

func TestNothingStaysBehindALeader(t *testing.T) {
	k := New()
	defer k.Close()
	in, leave, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c, out := started(t, k, "leave", in)
	in.Close()
	leave.Close()
	<-c.Done()
	awaitEOF(t, out)
	if c.State().ExitCode() != 3 {
		t.Errorf("state: %v", c.State())
	}
}

func TestCloseEndsAll(t *testing.T) {
	k := New(guardCommand()...)
	a, outA := started(t, k, "tree")
	b, outB := started(t, k, "hang")
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	awaitEOF(t, outA)
	awaitEOF(t, outB)
	if a.State() == nil || b.State() == nil {
		t.Error("Close did not wait")
	}
	if _, err := k.Start(program("hang"), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("start after close: %v", err)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

func TestStartSaysWhyNot(t *testing.T) {
	k := New()
	defer k.Close()
	if _, err := k.Start(exec.Command("/nowhere/at/all"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
	unguarded := New("/nowhere/at/all")
	defer unguarded.Close()
	if _, err := unguarded.Start(program("hang"), nil); err == nil || !strings.Contains(err.Error(), "guard") {
		t.Errorf("no guard: %v", err)
	}
}

// A host that is killed with SIGKILL cannot clean up.
func TestKilledHost(t *testing.T) {
	for _, tt := range []struct{ name, guard, child string }{
		{"guarded", "yes", "tree"},
		{"the guard was killed before", "twice", "tree"},
		{"without a guard the kernel ends the program itself", "", "hang"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.guard == "" && !parentDeathSignal {
				t.Skip("this system has no signal for the death of a parent")
			}
			r, w := output(t)
			host := program("host", "GUARDED="+tt.guard, "CHILD="+tt.child)
			host.ExtraFiles = []*os.File{w}
			host.Stderr = os.Stderr
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			awaitHere(t, r)
			if tt.guard == "twice" {
				awaitHere(t, r)
			}
			if err := host.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			host.Wait()
			awaitEOF(t, r)
		})
	}
}

func TestReadGroups(t *testing.T) {
	hostile := "+12\n\n+\nx\n-13\n+14\n-12\n+0\n+1\n+-5\n+99999999999999999999\n+15 16\n+17"
	got := readGroups(strings.NewReader(hostile))
	if len(got) != 2 || !got[14] || !got[17] {
		t.Errorf("left: %v", got)
	}
}

func FuzzReadGroups(f *testing.F) {
	f.Add("+1\n+2\n-2\n")
	f.Add("+0\n+-1\n")
	f.Fuzz(func(t *testing.T, s string) {
		for pid := range readGroups(strings.NewReader(s)) {
			if pid <= 1 || !strings.Contains(s, strconv.Itoa(pid)[:1]) {
				t.Errorf("%q would kill %d", s, pid)
			}
		}
	})
}
