//go:build unix

package builtin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// The test binary also acts as the commands of these tests. This variable selects one.
const role = "WHEELWORK_TEST_ROLE"

// tries is the body of the role attempt, where there is one.
var tries func(what, target string) int

// forever blocks. It uses a timer because Go aborts a program in which all goroutines are
// blocked.
func forever() { <-time.After(time.Hour) }

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "guard" {
		process.Guard(os.Stdin)
		return
	}
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "cat":
		io.Copy(os.Stdout, os.Stdin)
	case "code": // exits with the code in its input, after a line on standard error
		var code int
		fmt.Scan(&code)
		os.Stdout.WriteString("so far")
		fmt.Fprintln(os.Stderr, "first\nlast word")
		os.Exit(code)
	case "args":
		fmt.Printf("%q", os.Args[1:])
	case "env":
		fmt.Print(strings.Join(os.Environ(), "\n"))
	case "flood":
		for {
			if _, err := os.Stdout.Write(make([]byte, 64<<10)); err != nil {
				os.Exit(1)
			}
		}
	case "chatter":
		for range 100_000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("x", 100))
		}
	case "polite": // ends when it is asked to
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGTERM)
		fmt.Fprintln(os.Stderr, "here")
		<-ch
		os.Exit(0)
	case "gone": // ends by the default action of the signal
		fmt.Fprintln(os.Stderr, "here")
		forever()
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		fmt.Fprintln(os.Stderr, "here")
		forever()
	case "suicide":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		forever()
	case "blind": // neither reads nor writes
	case "family": // leaves a child behind that has its output
		child("leftover", os.Stdout)
		os.Stdout.WriteString("done")
	case "daemon": // leaves a child in another session behind that holds its output
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stdout, cmd.Stderr = []string{role + "=leftover"}, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			os.Exit(1)
		}
		fmt.Printf("%d\n", cmd.Process.Pid)
	case "leftover":
		signal.Ignore(syscall.SIGTERM)
		forever()
	case "here": // writes a line to the file named in its environment
		f, err := os.OpenFile(os.Getenv("PIPE"), os.O_WRONLY, 0)
		if err != nil {
			os.Exit(1)
		}
		f.WriteString("here\n")
		child("leftover", f)
		forever()
	case "attempt":
		if len(os.Args) == 3 {
			os.Exit(tries(os.Args[1], os.Args[2]))
		}
	case "neighbour": // writes a file to its private folder, and reports its path
		path := filepath.Join(os.TempDir(), "private")
		if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
			path = err.Error()
		}
		fmt.Fprintln(os.Stderr, path)
		forever()
	case "host":
		e, err := newExec(process.New(os.Args[0], "guard"), "here", func(c *Command) { c.Env["PIPE"] = os.Getenv("PIPE") })
		if err != nil {
			panic(err)
		}
		e.Run(context.Background(), runtime.Task{Command: "c"}, &heard{})
	}
	os.Exit(0)
}

func child(as string, out *os.File) {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stdout = []string{role + "=" + as}, out
	if err := cmd.Start(); err != nil {
		os.Exit(1)
	}
}

// heard is a sink that records lines and signals the first one.
type heard struct {
	mu    sync.Mutex
	lines []string
	first chan struct{}
}

func (h *heard) Log(level runtime.Level, text []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("%d %s", level, text))
	if h.first != nil && len(h.lines) == 1 {
		close(h.first)
	}
}
func (h *heard) Progress(int64, int64, string) {}

func newExec(k *process.Keeper, as string, change ...func(*Command)) (*Exec, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := Command{Name: "c", Path: exe, Env: map[string]string{role: as}}
	for _, f := range change {
		f(&c)
	}
	return NewExec([]Command{c}, k, "")
}

func command(t *testing.T, as string, change ...func(*Command)) *Exec {
	t.Helper()
	k := process.New()
	t.Cleanup(func() { k.Close() })
	e, err := newExec(k, as, change...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestExec(t *testing.T) {
	for _, tt := range []struct {
		as, input string
		want      runtime.Result
	}{
		{"cat", strings.Repeat("0123456789", 20_000), runtime.Result{Outcome: runtime.Succeeded, Output: bytes.Repeat([]byte("0123456789"), 20_000)}},
		{"blind", strings.Repeat("x", 1<<20), runtime.Result{Outcome: runtime.Succeeded}},
		{"code", "0", runtime.Result{Outcome: runtime.Succeeded, Output: []byte("so far")}},
		{"code", "1", runtime.Result{Outcome: runtime.Retryable, Code: "exit", ExitCode: 1, Error: "exit code 1: last word", Output: []byte("so far")}},
		{"code", "75", runtime.Result{Outcome: runtime.Retryable, Code: "exit", ExitCode: 75, Error: "exit code 75: last word", Output: []byte("so far")}},
		{"code", "64", runtime.Result{Outcome: runtime.Permanent, Code: "exit", ExitCode: 64, Error: "exit code 64: last word", Output: []byte("so far")}},
		{"code", "71", runtime.Result{Outcome: runtime.Retryable, Code: "exit", ExitCode: 71, Error: "exit code 71: last word", Output: []byte("so far")}},
		{"code", "78", runtime.Result{Outcome: runtime.Permanent, Code: "exit", ExitCode: 78, Error: "exit code 78: last word", Output: []byte("so far")}},
		{"suicide", "", runtime.Result{Outcome: runtime.Retryable, Code: "signal", ExitCode: -1, Error: "command c was ended by signal killed"}},
		{"flood", "", runtime.Result{Outcome: runtime.Permanent, Code: "output_limit", Error: "command c: the output exceeds its limit of 1048576 bytes: write less or raise the limit"}},
		{"family", "", runtime.Result{Outcome: runtime.Succeeded, Output: []byte("done")}},
	} {
		e := command(t, tt.as)
		got := e.Run(t.Context(), runtime.Task{Command: "c", Input: []byte(tt.input)}, &heard{})
		if got.Duration <= 0 {
			t.Errorf("%s: took %s", tt.as, got.Duration)
		}
		if got.Outcome != tt.want.Outcome || got.Code != tt.want.Code || got.ExitCode != tt.want.ExitCode || !bytes.Equal(got.Output, tt.want.Output) ||
			got.Error != tt.want.Error {
			got.Output = got.Output[:min(len(got.Output), 20)]
			t.Errorf("%s(%.10s): got %+v", tt.as, tt.input, got)
		}
	}
}

func TestExecLog(t *testing.T) {
	h := &heard{}
	command(t, "code").Run(t.Context(), runtime.Task{Command: "c", Input: []byte("1")}, h)
	if want := []string{"1 first", "1 last word"}; !slices.Equal(h.lines, want) {
		t.Errorf("got %q", h.lines)
	}
	h = &heard{}
	r := command(t, "chatter").Run(t.Context(), runtime.Task{Command: "c", Limits: runtime.Limits{LogBytes: 1000}}, h)
	if r.Outcome != runtime.Succeeded || len(h.lines) != 10 || h.lines[9] != "2 log limit of 1000 bytes reached: the rest is dropped" {
		t.Errorf("chatter: %+v, %d lines", r, len(h.lines))
	}
}

func TestExecGivesWhatIsAllowed(t *testing.T) {
	t.Setenv("WHEELWORK_TOKEN", "hush")
	task := runtime.Task{Command: "c", RunID: "r1", App: "a", Job: "j", Attempt: 2, Args: []string{"-x", "two words; $(rm)"}, Env: map[string]string{"LEVEL": "3"}}
	e := command(t, "args", func(c *Command) { c.Args, c.JobArgs, c.JobEnv = []string{"--fixed"}, true, []string{"LEVEL"} })
	if r := e.Run(t.Context(), task, &heard{}); string(r.Output) != `["--fixed" "-x" "two words; $(rm)"]` {
		t.Errorf("arguments: %+v", r)
	}
	e = command(t, "env", func(c *Command) {
		c.JobArgs, c.JobEnv = true, []string{"LEVEL", "OWN"}
		c.Env["OWN"] = "operator"
	})
	task.Env["OWN"] = "job"
	r := e.Run(t.Context(), task, &heard{})
	env := "\n" + string(r.Output) + "\n"
	for _, want := range []string{"\nLEVEL=3\n", "\nOWN=operator\n", "\nWHEELWORK_RUN_ID=r1\n", "\nWHEELWORK_ATTEMPT=2\n", "\nPATH="} {
		if !strings.Contains(env, want) {
			t.Errorf("%q is not in its environment:%s", want, env)
		}
	}
	if strings.Contains(env, "hush") {
		t.Error("the host's token is in its environment")
	}
	for want, change := range map[string]func(*runtime.Task){
		"it takes no arguments of jobs": func(t *runtime.Task) { t.Args = []string{"-rf"} },
		`may not set "LD_PRELOAD"`:      func(t *runtime.Task) { t.Env = map[string]string{"LD_PRELOAD": "x"} },
	} {
		task := runtime.Task{Command: "c"}
		change(&task)
		if r := command(t, "cat").Run(t.Context(), task, &heard{}); r.Outcome != runtime.Permanent || r.Code != codeBadTask || !strings.Contains(r.Error, want) {
			t.Errorf("%s: %+v", want, r)
		}
	}
	e = command(t, "cat", func(c *Command) { c.JobArgs, c.JobEnv = true, []string{"A"} })
	for _, task := range []runtime.Task{{Command: "c", Args: []string{"a\x00b"}}, {Command: "c", Env: map[string]string{"A": "a\x00b"}}} {
		if r := e.Run(t.Context(), task, &heard{}); r.Outcome != runtime.Permanent || !strings.Contains(r.Error, "zero byte") {
			t.Errorf("zero byte: %+v", r)
		}
	}
	if r := e.Run(t.Context(), runtime.Task{Command: "other"}, &heard{}); r.Outcome != runtime.HostError || r.Code != codeNoCommand {
		t.Errorf("no such command: %+v", r)
	}
}

func TestExecEnds(t *testing.T) {
	for _, tt := range []struct {
		as   string
		want runtime.Outcome // after a cancellation
	}{
		{"polite", runtime.Succeeded}, {"gone", runtime.Stopped}, {"deaf", runtime.Stopped},
	} {
		e := command(t, tt.as, func(c *Command) {
			c.Grace = time.Minute // more than a slow machine needs for an orderly end
			if tt.as == "deaf" {
				c.Grace = 100 * time.Millisecond
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		h := &heard{first: make(chan struct{})}
		go func() { <-h.first; cancel() }()
		if r := e.Run(ctx, runtime.Task{Command: "c"}, h); r.Outcome != tt.want {
			t.Errorf("%s cancelled: %+v", tt.as, r)
		}
		if tt.as == "polite" {
			continue
		}
		r := e.Run(t.Context(), runtime.Task{Command: "c", Deadline: time.Now().Add(100 * time.Millisecond)}, &heard{})
		if r.Outcome != runtime.TimedOut || r.Code != codeDeadline {
			t.Errorf("%s late: %+v", tt.as, r)
		}
		if r := e.Run(ctx, runtime.Task{Command: "c"}, &heard{}); r.Outcome != runtime.Stopped {
			t.Errorf("cancelled before: %+v", r)
		}
		if r := e.Run(t.Context(), runtime.Task{Command: "c", Deadline: time.Now().Add(-1)}, &heard{}); r.Outcome != runtime.TimedOut {
			t.Errorf("late before: %+v", r)
		}
	}
}

// A child that has left the process group holds the output open. The run ends
// nevertheless.
func TestExecIsNotHeldByADaemon(t *testing.T) {
	r := command(t, "daemon").Run(t.Context(), runtime.Task{Command: "c"}, &heard{})
	var pid int
	if _, err := fmt.Sscan(string(r.Output), &pid); err != nil || r.Outcome != runtime.Succeeded {
		t.Fatalf("got %+v, %v", r, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Errorf("it was gone: then this shows nothing: %v", err)
	}
}

func TestExecEndsWithAKilledHost(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	host := exec.Command(os.Args[0])
	host.Env = append(os.Environ(), role+"=host", "PIPE="+pipe)
	host.Stderr = os.Stderr
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	defer host.Process.Kill()
	f, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	if line, err := r.ReadString('\n'); line != "here\n" {
		t.Fatalf("read %q, %v", line, err)
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	host.Wait()
	if rest, err := io.ReadAll(r); err != nil || len(rest) > 0 { // EOF comes when no process holds the pipe
		t.Fatalf("read %q, %v", rest, err)
	}
}

func TestNewExecRefuses(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	k := process.New()
	for want, list := range map[string][]Command{
		"the name is malformed": {{Name: "rm -rf", Path: exe}},
		"twice":                 {{Name: "a", Path: exe}, {Name: "a", Path: exe}},
		"not absolute":          {{Name: "a", Path: "ls"}},
		"is no program":         {{Name: "a", Path: t.TempDir()}},
		"no such file":          {{Name: "a", Path: "/nowhere/at/all"}},
		"negative":              {{Name: "a", Path: exe, Grace: -1}},
	} {
		if _, err := NewExec(list, k, t.TempDir()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	k.Close()
	e, err := newExec(k, "cat")
	if err != nil || !slices.Equal(e.Names(), []string{"c"}) {
		t.Fatal(e, err)
	}
	if r := e.Run(t.Context(), runtime.Task{Command: "c"}, &heard{}); r.Outcome != runtime.HostError || !strings.Contains(r.Error, process.ErrClosed.Error()) {
		t.Errorf("after close: %+v", r)
	}
	if errors.Is(err, process.ErrClosed) {
		t.Error(err)
	}
}
