package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/internal/transport"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// Ready describes how to reach a process that serves.
type Ready struct {
	URL   string `json:"url"`   // of the console and of HTTP/JSON
	GRPC  string `json:"grpc"`  // host:port
	Token string `json:"token"` // of the administrator; "" when the process has none
	// HostToken admits workers, and nothing else; "" when the process has none.
	HostToken string `json:"host_token,omitempty"`
	// LoginURL signs in a browser as the administrator, once, within 10 minutes.
	LoginURL string `json:"login_url,omitempty"`
	PID      int    `json:"pid"`
}

// quitPatience is how long open calls may continue when a process ends.
const quitPatience = 2 * time.Second

func logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

func tellReady(file string, f func(Ready), r Ready) error {
	if file != "" {
		b, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if err := datadir.WriteFile(file, append(b, '\n'), 0o600); err != nil {
			return fmt.Errorf("write --ready-file: %w", err)
		}
	}
	if f != nil {
		f(r)
	}
	return nil
}

func removeReady(file string) {
	if file != "" {
		os.Remove(file) //nolint:errcheck // the reader may have removed it
	}
}

// roles are the long-lived goroutines of a process. They are stopped in the reverse order
// of their start, each after the one before has ended: a host delivers its results while
// its server still listens.
type roles struct {
	ctx   context.Context // ends when any role fails or the process is asked to end
	fail  context.CancelCauseFunc
	group errgroup.Group
	stops []func()
}

func newRoles(ctx context.Context) *roles {
	r := &roles{}
	r.ctx, r.fail = context.WithCancelCause(ctx)
	return r
}

// run starts a role. It is stopped by the end of its context.
func (r *roles) run(name string, f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.ctx))
	done := make(chan struct{})
	r.group.Go(func() error {
		defer close(done)
		err := f(ctx)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		r.fail(err) // the end of a role ends the process
		return err
	})
	r.stops = append(r.stops, func() { cancel(); <-done })
}

// serve starts the listener. It is closed after all roles that were started later have
// ended, and before the packages behind it are closed.
func (r *roles) serve(d *transport.Server, ln *transport.Port, h http.Handler) {
	done := make(chan struct{})
	r.group.Go(func() error {
		defer close(done)
		err := d.Serve(ln, h)
		if err != nil {
			err = fmt.Errorf("serve: %w", err)
		}
		r.fail(err)
		return err
	})
	r.stops = append(r.stops, func() { d.Close(quitPatience); <-done })
}

// until announces that the process is ready, blocks until the process is asked to end or
// a role fails, and stops all roles.
func (r *roles) until(readyFile string, f func(Ready), ready Ready) error {
	err := r.wait(readyFile, f, ready)
	defer removeReady(readyFile)
	return errors.Join(err, r.stop())
}

// wait announces that the process is ready, and blocks until the process is asked to end
// or a role fails. Its error means that it could not announce it.
func (r *roles) wait(readyFile string, f func(Ready), ready Ready) error {
	if err := tellReady(readyFile, f, ready); err != nil {
		return err
	}
	<-r.ctx.Done()
	return nil
}

// cause returns why the roles end: the failure of one of them, or the request that the
// process ends.
func (r *roles) cause() error { return context.Cause(r.ctx) }

func (r *roles) stop() error {
	for i := len(r.stops) - 1; i >= 0; i-- {
		r.stops[i]()
	}
	return r.group.Wait()
}

// HideMemory hides the tokens, keys and secrets in the memory of this process from other
// processes, where the system can do that. It is for processes that serve.
func HideMemory() error { return process.HideMemory() }
