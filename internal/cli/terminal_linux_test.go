package cli

import (
	"bytes"
	"context"
	"encoding/json"
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

// TestSecretOnTerminal types a value, and interrupts the question with Ctrl-C.
func TestSecretOnTerminal(t *testing.T) {
	address := serveAnswers(t, map[string]json.RawMessage{"Secrets.SetSecret": json.RawMessage(`{"name": "token", "version": 7}`)})
	env := map[string]string{"WHEELWORK_URL": address, "TERM": "xterm"}
	for typed, want := range map[string]struct {
		code  int
		shown string
	}{
		"hunter2\r":   {exitOK, "version     7"},
		"hunter2\x03": {exitFail, "wheelwork: interrupted"},
	} {
		control, tty := openTerminal(t)
		var code int
		asked := writerFunc(func(p []byte) (int, error) {
			if strings.HasPrefix(string(p), "value of token: ") {
				if _, err := control.WriteString(typed); err != nil {
					t.Error(err)
				}
			}
			return tty.Write(p)
		})
		shown := shownOn(control, tty, func() {
			code = execute(t.Context(), strings.Fields("secret set token --color never"), tty, tty, asked, func(name string) string { return env[name] })
		})
		if code != want.code || !strings.Contains(shown, "value of token: ") || !strings.Contains(shown, want.shown) {
			t.Errorf("%q: exit code %d, the terminal shows %q, want %d and %q", typed, code, shown, want.code, want.shown)
		}
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// onTerminal returns what do writes to a pseudo-terminal.
func onTerminal(t *testing.T, do func(tty *os.File)) string {
	t.Helper()
	control, tty := openTerminal(t)
	return shownOn(control, tty, func() { do(tty) })
}

// shownOn returns what do writes to a pseudo-terminal, and closes the terminal.
func shownOn(control, tty *os.File, do func()) string {
	defer control.Close() //nolint:errcheck // everything was read
	var shown bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		io.Copy(&shown, control) //nolint:errcheck // it ends with an error when the terminal is closed
	}()
	do()
	tty.Close() //nolint:errcheck // everything was written
	<-read
	return shown.String()
}

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T) (control, tty *os.File) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		testkit.Lacks(t, "a pseudo-terminal is missing: %v", err)
	}
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
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		testkit.Lacks(t, "a pseudo-terminal is missing: %v", err)
	}
	return control, tty
}
