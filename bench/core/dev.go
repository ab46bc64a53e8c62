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

// ready is the content of the ready file.
type ready struct {
	URL       string
	Token     string
	HostToken string `json:"host_token"`
	PID       int
}

// dev is a process of `wheelwork dev`.
type dev struct {
	cmd   *exec.Cmd
	says  bytes.Buffer // standard error; complete after the process has ended
	ready ready
	took  time.Duration // from the start of the process to its ready file
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
	// The process prints the same object as soon as the ready file exists. Reading it
	// avoids polling for the file, which would take processor time from the start.
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

// stop stops the process and waits for its end.
func (d *dev) stop() error {
	// If the process has already ended, Wait reports why.
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("wheelwork dev: %w\n%s", err, d.says.Bytes())
	}
	return nil
}

// stopInto is stop for a defer: it joins its error to *err.
func (d *dev) stopInto(err *error) { *err = errors.Join(*err, d.stop()) }

func (d *dev) dial(ctx context.Context) (*sdk.Client, error) {
	return sdk.Dial(ctx, d.ready.URL, sdk.Options{Token: d.ready.Token})
}
