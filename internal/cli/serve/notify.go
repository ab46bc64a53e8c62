package serve

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervisor is the service manager that started the process, if it wants to be notified: it
// sets NOTIFY_SOCKET, and WATCHDOG_USEC if the process must report that it works.
type supervisor struct{ log *slog.Logger }

// ready says that the process serves.
func (s supervisor) ready() { s.send(daemon.SdNotifyReady) }

// reloads returns a channel with a request for each SIGHUP, until ctx ends. The
// supervisor learns when a reload begins and when it has ended.
func (s supervisor) reloads(ctx context.Context) <-chan func() {
	hangups, requests := make(chan os.Signal, 1), make(chan func())
	signal.Notify(hangups, syscall.SIGHUP)
	go func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-hangups:
				s.send(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
			case <-ctx.Done():
				return
			}
			select {
			case requests <- s.ready:
			case <-ctx.Done():
				return
			}
		}
	}()
	return requests
}

func (s supervisor) send(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.log.Warn("the service manager could not be notified", "error", err)
	}
}

// attend reports the end of the process when ctx ends, and until then, if the supervisor asks
// for it, that the process works. The caller must call the returned function once, at the end.
func (s supervisor) attend(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		every, err := daemon.SdWatchdogEnabled(false)
		if err != nil {
			s.log.Warn("the service manager's watchdog could not be read", "error", err)
		}
		var tick <-chan time.Time
		if every > 0 {
			t := time.NewTicker(every / 2)
			defer t.Stop()
			tick = t.C
		}
		for {
			select {
			case <-tick:
				s.send(daemon.SdNotifyWatchdog)
			case <-ctx.Done():
				s.send(daemon.SdNotifyStopping)
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}
