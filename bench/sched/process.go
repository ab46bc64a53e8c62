package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/bench/internal/server"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// trivialModule does nothing and succeeds. The host gives each run a clean instance.
//
//go:embed testdata/trivial.wasm
var trivialModule []byte

// trivial is the module reference in each app that uses it.
const trivial = "trivial@1"

// build builds the binary like a release, once.
func (b *bench) build(ctx context.Context) error {
	if b.binary != "" {
		return nil
	}
	b.note("build the binary")
	binary, err := server.Build(ctx, b.dir)
	if err != nil {
		return err
	}
	b.binary = binary
	return nil
}

// dev is a process of `wheelwork dev` (nameserver, server and one host), with a client.
type dev struct {
	*sdk.Client
	cmd       *exec.Cmd
	says      bytes.Buffer // standard error; complete after the process has ended
	url       string
	pprof     string // HOST:PORT
	token     string // administrator token
	hostToken string
	took      time.Duration // from the start of the process until it is ready
	ended     bool
	unwatch   func() // stops its profile, if one is taken
}

// start starts a dev on the data directory of that name, with additional flags.
func (b *bench) start(ctx context.Context, data string, flags ...string) (*dev, error) {
	if err := b.build(ctx); err != nil {
		return nil, err
	}
	profiles, err := freeAddress()
	if err != nil {
		return nil, err
	}
	d := &dev{pprof: profiles, cmd: exec.CommandContext(ctx, b.binary, append([]string{
		"dev", "--data", filepath.Join(b.dir, data),
		"--listen", "127.0.0.1:0", "--pprof", profiles, "--sample=false", "-o", "json",
	}, flags...)...), unwatch: func() {}}
	d.cmd.Stderr = &d.says
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGTERM) }
	d.cmd.WaitDelay = time.Minute
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	var ready struct {
		URL, Token string
		HostToken  string `json:"host_token"`
	}
	err = json.NewDecoder(out).Decode(&ready)
	d.took, d.url, d.token, d.hostToken = time.Since(begin), ready.URL, ready.Token, ready.HostToken
	if err == nil {
		d.Client, err = sdk.Dial(ctx, ready.URL, sdk.Options{Token: ready.Token})
	}
	if err != nil {
		return nil, fmt.Errorf("wheelwork dev did not become ready: %w", errors.Join(err, d.end(syscall.SIGTERM)))
	}
	if b.profile != "" {
		d.unwatch = b.watch(ctx, d)
	}
	return d, nil
}

// freeAddress returns a local address without a listener.
func freeAddress() (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// end sends the signal to the process and waits for its end. An end by SIGKILL is not an
// error.
func (d *dev) end(how syscall.Signal) error {
	if d.ended {
		return nil
	}
	d.ended = true
	d.unwatch()
	if d.Client != nil {
		_ = d.Close() // every answer has arrived or is no longer needed
	}
	// If the process has already ended, Wait reports why.
	if err := d.cmd.Process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := d.cmd.Wait(); err != nil && how != syscall.SIGKILL {
		return fmt.Errorf("wheelwork dev: %w\n%s", err, d.says.Bytes())
	}
	return nil
}

// stop stops the process with SIGTERM. It is for a defer: it joins its error to *err.
func (d *dev) stop(err *error) { *err = errors.Join(*err, d.end(syscall.SIGTERM)) }

// resident returns the resident memory of the process in bytes.
func (d *dev) resident() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	return report.Kilobytes(status, "VmRSS"), nil
}

// cpu returns the processor time of the process, with a resolution of 10 ms.
func (d *dev) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name of the program is in parentheses and may contain any character.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/PID/stat: %q", stat)
	}
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/PID/stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

// push uploads a module to an app; "" is the default app.
func (d *dev) push(ctx context.Context, app, name string, code []byte) error {
	_, _, err := d.PushModule(ctx, sdk.Upload{App: app, Name: name, Version: "1", Code: code})
	return err
}

// patience is the longest time without progress before a part gives up.
const patience = time.Minute

// awaitEnds returns when want runs of an app have ended since its data was created.
func (d *dev) awaitEnds(ctx context.Context, app string, want int64) error {
	var last int64
	moved := time.Now()
	return poll(ctx, 2*time.Millisecond, func() (bool, error) {
		o, err := d.Overview(ctx, app)
		if err != nil {
			return false, err
		}
		ended := o.GetSucceededTotal() + o.GetFailedTotal()
		if ended != last {
			last, moved = ended, time.Now()
		}
		if ended < want && time.Since(moved) > patience {
			return false, fmt.Errorf("%d runs do not end: %d queued, %d running", want-ended, o.GetQueued(), o.GetRunning())
		}
		return ended >= want, nil
	})
}

// poll calls ask until it returns true or an error.
func poll(ctx context.Context, every time.Duration, ask func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if yes, err := ask(); yes || err != nil {
			return err
		}
		if err := await(ctx, tick.C); err != nil {
			return err
		}
	}
}

func await(ctx context.Context, c <-chan time.Time) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// progress prints the number of completed items every 5 s until stop is called.
func (b *bench) progress(what string, of int, done *atomic.Int64) (stop func()) {
	b.note("%s: %d", what, of)
	quit := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				b.note("%s: %d of %d", what, done.Load(), of)
			case <-quit:
				return
			}
		}
	})
	return func() { close(quit); told.Wait() }
}
