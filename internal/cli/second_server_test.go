package cli

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startRole starts a separate process and returns the address from its ready message. The
// clean-up of the test stops it with a signal.
func startRole(t *testing.T, args ...string) (address string) {
	t.Helper()
	cmd := exec.Command("wheelwork", args...)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for address == "" && lines.Scan() {
		if _, at, ok := strings.Cut(lines.Text(), " ready at "); ok {
			address = strings.TrimPrefix(at, "http://")
		}
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() {
		}
	}()
	t.Cleanup(func() {
		err := cmd.Process.Signal(syscall.SIGTERM)
		<-drained
		if err := errors.Join(err, cmd.Wait()); err != nil {
			t.Errorf("wheelwork %s after SIGTERM: %v", args[0], err)
		}
	})
	if address == "" {
		t.Fatalf("wheelwork %s did not become ready", args[0])
	}
	return address
}

// TestSecondServerExits starts a second server without a cluster. It exits with code 1,
// and its last line gives the reason and the remedy. The first server continues.
func TestSecondServerExits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	hosts, servers := filepath.Join(dir, "hosts"), filepath.Join(dir, "servers")
	for _, file := range []string{hosts, servers} {
		if text, err := exec.Command("wheelwork", "token", "generate", file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	tokens := []string{"--listen", "127.0.0.1:0", "--token-file", hosts, "--server-token-file", servers}
	names := startRole(t, append([]string{"nameserver"}, tokens...)...)
	server := append([]string{"server", "--nameserver", names}, tokens...)
	one := startRole(t, append(server, "--data", filepath.Join(dir, "one"))...)

	two := exec.Command("wheelwork", append(server, "--data", filepath.Join(dir, "two"))...)
	var said bytes.Buffer
	two.Stdout, two.Stderr = &said, &said
	if err := two.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(time.Minute, func() { two.Process.Kill() }) //nolint:errcheck // it fails the test
	err := two.Wait()
	late.Stop()
	if code := two.ProcessState.ExitCode(); code != exitFail {
		t.Errorf("exit code %d, %v, want %d", code, err, exitFail)
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	last := lines[len(lines)-1]
	for _, want := range []string{"wheelwork: ", "the nameserver refuses this server", one, "`wheelwork cluster init`"} {
		if !strings.Contains(last, want) {
			t.Errorf("its last line does not say %q: %s", want, last)
		}
	}
	status := exec.Command("wheelwork", "cluster", "status", "-o", "json", "--url", "http://"+one)
	token, err := os.ReadFile(filepath.Join(dir, "one", "token"))
	if err != nil {
		t.Fatal(err)
	}
	status.Env = append(os.Environ(), "WHEELWORK_TOKEN="+strings.TrimSpace(string(token)))
	if text, err := status.CombinedOutput(); err != nil || strings.Count(string(text), `"address"`) != 1 {
		t.Errorf("the first server: %v: %s", err, text)
	}
}
