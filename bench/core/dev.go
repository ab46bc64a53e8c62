package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// ready is what a process says of itself when it serves.
type ready struct {
	URL       string
	Token     string
	HostToken string `json:"host_token"`
	PID       int
}

// dev is a process of `wheelwork dev`.
type dev struct {
	cmd   *exec.Cmd
	says  bytes.Buffer // its standard error; complete when the process has ended
	ready ready
	took  time.Duration // from its execution to its ready file
}

// startDev starts a dev on an empty directory and returns when it is ready.
func startDev(ctx context.Context, binary, data string, sample bool) (*dev, error) {
	file := data + ".ready"
	d := &dev{cmd: exec.CommandContext(ctx, binary, "dev", "--data", filepath.Clean(data), "--listen", "127.0.0.1:0",
		"--ready-file", file, "--sample="+strconv.FormatBool(sample), "-o", "json")}
	d.cmd.Stderr = &d.says
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGTERM) }
	d.cmd.WaitDelay = 10 * time.Second
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	// It prints the same object as soon as the file is there, which saves asking
	// for the file again and again on the processors that it needs to start.
	err = json.NewDecoder(out).Decode(&d.ready)
	d.took = time.Since(begin)
	if err == nil {
		_, err = os.Stat(file)
	}
	if err != nil {
		return nil, fmt.Errorf("wheelwork dev did not become ready: %w", errors.Join(err, d.stop()))
	}
	return d, nil
}

// stop ends the process in order.
func (d *dev) stop() error {
	// A process that has ended already has its reason told by Wait.
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("wheelwork dev: %w\n%s", err, d.says.Bytes())
	}
	return nil
}

// stopInto is stop for a defer: it adds its error to the function's.
func (d *dev) stopInto(err *error) { *err = errors.Join(*err, d.stop()) }

func (d *dev) dial(ctx context.Context) (*sdk.Client, error) {
	return sdk.Dial(ctx, d.ready.URL, sdk.Options{Token: d.ready.Token})
}
