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
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// installation is the program under measurement: one process and its child processes.
type installation struct {
	name  string
	args  []string
	hosts int // hosts that must be connected before the measurement

	cmd   *exec.Cmd
	says  bytes.Buffer // standard error; complete after the process has ended
	ready struct {     // the JSON that the process prints when it is ready
		URL   string
		Token string
	}
}

const patience = 30 * time.Second

// installations returns the installations in the order of their measurement.
func installations() []*installation {
	return []*installation{
		{name: "one machine", args: []string{"dev", "--listen", "127.0.0.1:0", "--sample=false"}, hosts: 1},
		{name: "three servers, four hosts", args: []string{"cluster", "up", "--servers", "3", "--hosts", "4", "--port", "17700", "--log-level", "warn"}, hosts: 4},
	}
}

// start starts the installation on an empty directory and returns when it is ready.
func (in *installation) start(ctx context.Context, binary, data string) error {
	in.cmd = exec.CommandContext(ctx, binary, append(in.args, "--data", filepath.Clean(data), "-o", "json")...)
	in.cmd.Stderr = &in.says
	in.cmd.Cancel = func() error { return in.cmd.Process.Signal(syscall.SIGTERM) }
	in.cmd.WaitDelay = patience
	out, err := in.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := in.cmd.Start(); err != nil {
		return err
	}
	if err := json.NewDecoder(out).Decode(&in.ready); err != nil {
		return fmt.Errorf("%s did not become ready: %w", in.name, errors.Join(err, in.stop()))
	}
	return nil
}

// stop stops the installation and waits for its end.
func (in *installation) stop() error {
	// If the process has already ended, Wait reports why.
	if err := in.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := in.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", in.name, err, in.says.Bytes())
	}
	return nil
}

// await waits until all hosts are connected.
func (in *installation) await(ctx context.Context, c *sdk.Client) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		hosts, err := c.Hosts(ctx)
		if err != nil {
			return err
		}
		if len(hosts) == in.hosts {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %d of %d hosts have joined: %w", in.name, len(hosts), in.hosts, ctx.Err())
		}
	}
}
