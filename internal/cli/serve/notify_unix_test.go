//go:build unix

package serve

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"
)

// TestSupervisor receives what a service manager receives of a process with a watchdog.
func TestSupervisor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // a test's socket
	receive := func() string {
		t.Helper()
		if err := conn.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 256)
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "2000")
	s := supervisor{slog.New(slog.DiscardHandler)}
	s.ready()
	if got := receive(); got != "READY=1" {
		t.Errorf("a process that serves says %q", got)
	}
	s.reloading()
	if got := receive(); !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=[0-9]+\n$`).MatchString(got) && (runtime.GOOS == "linux" || got != "RELOADING=1\n") {
		t.Errorf("a process that reloads says %q", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	end := s.attend(ctx)
	if got := receive(); got != "WATCHDOG=1" {
		t.Errorf("a process that works says %q", got)
	}
	cancel()
	for got := receive(); got != "STOPPING=1"; got = receive() {
		if got != "WATCHDOG=1" {
			t.Fatalf("a process that ends says %q", got)
		}
	}
	end()
}
