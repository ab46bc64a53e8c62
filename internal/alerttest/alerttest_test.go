package alerttest

import (
	"bytes"
	"net"
	"net/netip"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/internal/outbound"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

// patience bounds each wait for another program.
const patience = 20 * time.Second

// loopback is the guard of a server with --egress-allow 127.0.0.0/8.
var loopback = outbound.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}

// freeAddress returns an address of this machine that no program listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts a program of a Debian package, waits until it listens, and ends it with the test.
func start(t *testing.T, address, debian, program string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		testkit.Lacks(t, "needs %s (Debian package %s), which is not installed", program, debian)
	}
	var said log
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("%s said:\n%s", program, said.text())
		}
	})
	eventually(t, program+" listens on "+address, func() bool {
		select {
		case <-ended:
			t.Fatalf("%s has ended", program)
		default:
		}
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// log is what a program writes.
type log struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.Write(p)
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// eventually waits for a condition that another program makes true.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after %v it does not hold that %s", patience, what)
		}
	}
}

func renderer(t *testing.T) *notification.Renderer {
	t.Helper()
	r, err := notification.NewRenderer(nil, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// deliver sends a message, which the receiver takes at the first attempt.
func deliver(t *testing.T, c channel.Channel, m notification.Message) channel.Result {
	t.Helper()
	r := c.Send(t.Context(), time.Now(), m)
	if r.Verdict != channel.Delivered {
		t.Fatalf("message %s: %+v, want it delivered", m.ID, r)
	}
	return r
}
