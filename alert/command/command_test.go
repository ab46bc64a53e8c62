//go:build unix

package command_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/command"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// The test binary also acts as the programs of these tests, which get no arguments: the name
// of the link by which it was started selects one.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "cat":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "env":
		_, _ = io.WriteString(os.Stdout, strings.Join(os.Environ(), "\n"))
	case "exit65":
		_, _ = io.WriteString(os.Stderr, "no such group\n")
		os.Exit(65)
	case "exit75":
		os.Exit(75)
	case "flood":
		for range 1000 {
			_, _ = os.Stdout.Write(make([]byte, 64<<10))
		}
	case "deaf": // reports that it runs, and does not end when it is asked to
		signal.Ignore(syscall.SIGTERM)
		_, _ = io.WriteString(os.Stdout, "here\n")
		<-time.After(time.Hour)
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		<-time.After(time.Hour)
	default:
		os.Exit(m.Run())
	}
}

func programs(t *testing.T) *command.Programs {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var list []command.Program
	for _, name := range []string{"cat", "env", "exit65", "exit75", "flood", "deaf", "killed"} {
		path := filepath.Join(dir, name)
		if err := os.Symlink(self, path); err != nil {
			t.Fatal(err)
		}
		p, err := command.Parse(name + "=" + path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	k := process.New()
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	p, err := command.New(list, k)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestRun checks the input of a program and the output that comes back.
func TestRun(t *testing.T) {
	t.Setenv("WHEELWORK_TOKEN", "secret")
	p := programs(t)
	big := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		name, input string
		code        int
		output      string
	}{
		{"cat", "hello", 0, "hello"},
		{"cat", big, 0, big[:4096]},
		{"exit65", big, 65, "no such group\n"},
		{"exit75", "", 75, ""},
		{"flood", "", 0, strings.Repeat("\x00", 4096)},
	} {
		code, output, err := p.Run(context.Background(), "shop", tt.name, []byte(tt.input))
		if err != nil || code != tt.code || string(output) != tt.output {
			t.Errorf("%s: %d, %.40q (%d bytes), %v", tt.name, code, output, len(output), err)
		}
	}
	if _, output, err := p.Run(context.Background(), "shop", "env", nil); err != nil || strings.Contains(string(output), "secret") || !strings.Contains(string(output), "PATH=") {
		t.Errorf("environment %s, %v", output, err)
	}
	if _, _, err := p.Run(context.Background(), "shop", "killed", nil); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("a killed program: %v", err)
	}
	if _, _, err := p.Run(context.Background(), "shop", "rm", nil); !errors.Is(err, channel.ErrNoCommand) {
		t.Errorf("an unknown name: %v", err)
	}
	if got := strings.Join(p.Names(), " "); got != "cat deaf env exit65 exit75 flood killed" {
		t.Errorf("names %s", got)
	}
}

// TestEnds checks that a program that does not end is killed.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, output, err := programs(t).Run(ctx, "shop", "deaf", nil)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 20*time.Second {
		t.Errorf("%q, %v after %s", output, err, time.Since(start))
	}
}

// TestChannel checks a channel over real programs: the payload arrives, and exit codes are
// verdicts.
func TestChannel(t *testing.T) {
	p := programs(t)
	r, err := notification.NewRenderer(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]channel.Result{
		"cat":    {Verdict: channel.Delivered, Reason: `{"type":"alert.firing.v1","timestamp":"2026-03-02T02:30:00Z","data":{"id":"sample-1","title":"[告警] nightly：运行失败（3 次）",`},
		"exit65": {Verdict: channel.Refused, Status: 65, Reason: "no such group"},
		"exit75": {Verdict: channel.Retry, Status: 75},
		"killed": {Verdict: channel.Retry, Status: -1, Reason: "command killed: it was ended by signal: killed"},
		"rm":     {Verdict: channel.Refused, Reason: "command rm: the operator of the server has declared no such command"},
	} {
		c, err := channel.NewCommand(channel.Command{Name: name}, p, r)
		if err != nil {
			t.Fatal(err)
		}
		got := c.Send(context.Background(), time.Date(2026, 3, 2, 2, 30, 0, 0, time.UTC), notification.Samples(notification.Chinese)[0])
		if got.Verdict != want.Verdict || got.Status != want.Status || !strings.HasPrefix(got.Reason, want.Reason) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	if _, err := channel.NewCommand(channel.Command{Name: "../rm"}, p, r); err == nil {
		t.Error("a path is taken for a name")
	}
}

// TestDeclarations checks that a wrong declaration is refused when the server starts.
func TestDeclarations(t *testing.T) {
	dir := t.TempDir()
	for _, s := range []string{"page", "=/bin/sh", "a b=/bin/sh", "page=bin/page", "page=" + filepath.Join(dir, "none"), "page=" + dir} {
		if p, err := command.Parse(s); err == nil {
			t.Errorf("%q is taken: %+v", s, p)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	k := process.New()
	defer k.Close()
	twice := command.Program{Name: "page", Path: self, Rights: process.Rights{Apps: []string{"shop"}}}
	if _, err := command.New([]command.Program{twice, twice}, k); err == nil {
		t.Error("a name is taken twice")
	}
	p, err := command.New([]command.Program{twice}, k)
	if err != nil {
		t.Fatal(err)
	}
	for _, app := range []string{"bank", ""} {
		if _, _, err := p.Run(context.Background(), app, "page", nil); !errors.Is(err, channel.ErrNoCommand) {
			t.Errorf("a program for the app shop runs for %q: %v", app, err)
		}
	}
}
