package serve

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// supervisor is the service manager that started the process, if it wants to be notified: it
// sets NOTIFY_SOCKET, and WATCHDOG_USEC if the process must report that it works.
type supervisor struct{ log *slog.Logger }

// ready says that the process serves, or that a reload has ended.
func (s supervisor) ready() { s.send(daemon.SdNotifyReady) }

// reloading says that a reload begins. It ends with ready.
func (s supervisor) reloading() {
	s.send(daemon.SdNotifyReloading + "\n" + daemon.SdNotifyMonotonicUsec())
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
