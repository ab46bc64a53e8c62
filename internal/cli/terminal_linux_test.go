package cli

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
	"github.com/wheelworkhq/wheelwork/sdk/sdktest"
)

// TestTerminal runs commands on a pseudo-terminal and checks the output that only people
// see.
func TestTerminal(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := sdktest.NewServer(sdktest.Config{Handle: func(_ context.Context, _ *apiv1.Run, log func(string)) (string, error) {
		log("evil \x1b]0;title\x07")
		return "done \x1b[2J", nil
	}})
	t.Cleanup(server.Close)
	go server.Serve(l) //nolint:errcheck // ends with the server
	address := "http://" + l.Addr().String()
	module := t.TempDir() + "/m.wasm"
	if err := os.WriteFile(module, append([]byte("\x00asm\x01\x00\x00\x00"), make([]byte, 3<<20)...), 0o600); err != nil {
		t.Fatal(err)
	}
	const job = "name: a\nhandler: {module: m@1}\n---\nname: b\nhandler: {module: m@1}\n"

	env := map[string]string{"WHEELWORK_URL": address, "TERM": "xterm"}
	colours, bar, line := "\x1b[32msucceeded\x1b[0m", "% |█", "\r\x1b[K00000000000000000000000001 "
	for _, step := range []struct {
		args   string
		env    [2]string
		want   []string
		absent []string
	}{
		{args: "module push m@1 " + module, want: []string{"upload", bar, "m@1: created"}},
		{args: "job apply -f -", want: []string{"jobs", bar, "created"}},
		{args: "job trigger a --wait", want: []string{colours, line, `done \x1b[2J`}, absent: []string{"\x1b[2J"}},
		{args: "run logs 00000000000000000000000001", want: []string{`evil \x1b]0;title\a`}, absent: []string{"\x1b]0"}},
		{args: "run list", want: []string{colours}},
		{args: "run list", env: [2]string{"NO_COLOR", "1"}, absent: []string{"\x1b"}, want: []string{"succeeded"}},
		{args: "run list", env: [2]string{"TERM", "dumb"}, absent: []string{"\x1b"}, want: []string{"succeeded"}},
		{args: "run list --color never", absent: []string{"\x1b"}, want: []string{"succeeded"}},
		{args: "run list -o json", absent: []string{"\x1b"}, want: []string{`"state": "succeeded"`}},
	} {
		getenv := func(name string) string {
			if name == step.env[0] {
				return step.env[1]
			}
			return env[name]
		}
		shown := onTerminal(t, func(tty *os.File) {
			if code := execute(t.Context(), strings.Fields(step.args), strings.NewReader(job), tty, tty, getenv); code != exitOK {
				t.Errorf("%s: exit code %d", step.args, code)
			}
		})
		for _, want := range step.want {
			if !strings.Contains(shown, want) {
				t.Errorf("%s %v: the terminal shows %q, want %q in it", step.args, step.env, shown, want)
			}
		}
		for _, absent := range step.absent {
			if strings.Contains(shown, absent) {
				t.Errorf("%s %v: the terminal shows %q, want no %q in it", step.args, step.env, shown, absent)
			}
		}
	}
}

// onTerminal returns what do writes to a pseudo-terminal.
func onTerminal(t *testing.T, do func(tty *os.File)) string {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		testkit.Lacks(t, "a pseudo-terminal is missing: %v", err)
	}
	defer control.Close() //nolint:errcheck // nothing is written to it
	raw, err := control.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	number, setup := 0, error(nil)
	err = raw.Control(func(fd uintptr) {
		if setup = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); setup == nil {
			number, setup = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err != nil || setup != nil {
		testkit.Lacks(t, "a pseudo-terminal is missing: %v %v", err, setup)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		testkit.Lacks(t, "a pseudo-terminal is missing: %v", err)
	}
	var shown bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(&shown, control) //nolint:errcheck // it ends with an error when the terminal is closed
	}()
	do(tty)
	tty.Close() //nolint:errcheck // everything was written
	<-read
	return shown.String()
}
