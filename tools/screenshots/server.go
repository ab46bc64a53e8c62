package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// dev is a process of `wheelwork dev`, with a client.
type dev struct {
	*sdk.Client
	URL       string
	LoginURL  string // signs a browser in, once
	HostToken string

	cmd  *exec.Cmd
	says bytes.Buffer // standard error; complete after the process has ended
}

func start(ctx context.Context, program, data string) (*dev, error) {
	d := &dev{cmd: exec.CommandContext(ctx, program, "dev", "--data", data, "--listen", "127.0.0.1:0", "--sample=false", "-o", "json")}
	d.cmd.Stderr = &d.says
	d.cmd.Cancel = func() error { return d.cmd.Process.Signal(syscall.SIGTERM) }
	d.cmd.WaitDelay = time.Minute
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	var ready struct {
		URL, Token string
		LoginURL   string `json:"login_url"`
		HostToken  string `json:"host_token"`
	}
	err = json.NewDecoder(out).Decode(&ready)
	d.URL, d.LoginURL, d.HostToken = ready.URL, ready.LoginURL, ready.HostToken
	if err == nil {
		d.Client, err = sdk.Dial(ctx, ready.URL, sdk.Options{Token: ready.Token})
	}
	if err != nil {
		return nil, fmt.Errorf("wheelwork dev did not become ready: %w", errors.Join(err, d.end()))
	}
	return d, nil
}

// end stops the process and waits for its end.
func (d *dev) end() error {
	if d.Client != nil {
		_ = d.Close() // every answer has arrived
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("wheelwork dev: %w\n%s", err, d.says.Bytes())
	}
	return nil
}
