package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
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
		URL    string
		Token  string
		CACert string `json:"ca_cert"` // file; "": the installation has no TLS
	}
}

const patience = 30 * time.Second

// installations returns the installations in the order of their measurement.
func installations() []*installation {
	return []*installation{
		{name: "one machine", args: []string{"dev", "--listen", "127.0.0.1:0", "--sample=false"}, hosts: 1},
		up("three servers, four hosts", "17700"),
	}
}

// up returns a cluster.
func up(name, port string, more ...string) *installation {
	args := []string{"cluster", "up", "--servers", "3", "--hosts", "4", "--port", port, "--log-level", "warn"}
	return &installation{name: name, args: append(args, more...), hosts: 4}
}

// client returns a client of the installation, which has all its hosts and the module then.
func (in *installation) client(ctx context.Context) (*sdk.Client, error) {
	c, err := in.dial(ctx)
	if err != nil {
		return nil, err
	}
	err = in.await(ctx, c)
	if err == nil {
		_, _, err = c.PushModule(ctx, sdk.Upload{Name: "trivial", Version: "1", Code: trivialModule})
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (in *installation) dial(ctx context.Context) (*sdk.Client, error) {
	opts := sdk.Options{Token: in.ready.Token}
	if in.ready.CACert != "" {
		pem, err := os.ReadFile(in.ready.CACert)
		if err != nil {
			return nil, err
		}
		opts.TLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
		opts.TLS.RootCAs.AppendCertsFromPEM(pem)
	}
	return sdk.Dial(ctx, in.ready.URL, opts)
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

// servers waits until the cluster has n servers, and returns them.
func (in *installation) servers(ctx context.Context, c *sdk.Client, n int) (servers []*sdk.Member, err error) {
	err = in.until(ctx, func(ctx context.Context) (string, error) {
		all, err := c.Cluster(ctx)
		servers = all.GetServers()
		if len(servers) == n {
			return "", err
		}
		return fmt.Sprintf("%d of %d servers are up", len(servers), n), err
	})
	return servers, err
}

// place moves the partitions that have apps to a server, and returns when it owns them and all hosts are connected.
func (in *installation) place(ctx context.Context, c *sdk.Client, server string) error {
	err := in.until(ctx, func(ctx context.Context) (lacks string, err error) {
		all, err := c.Cluster(ctx)
		for _, u := range all.GetUnits() {
			if u.GetApps() == 0 || u.GetOwner() == server {
				continue
			}
			lacks = fmt.Sprintf("server %s does not own partition %s", server, u.GetName())
			if u.GetTo() != server && err == nil {
				_, err = c.MoveUnit(ctx, u.GetName(), server)
			}
		}
		return lacks, err
	})
	if err != nil {
		return err
	}
	return in.await(ctx, c)
}

// await waits until all hosts are connected.
func (in *installation) await(ctx context.Context, c *sdk.Client) error {
	return in.until(ctx, func(ctx context.Context) (string, error) {
		hosts, err := c.Hosts(ctx)
		if len(hosts) == in.hosts {
			return "", err
		}
		return fmt.Sprintf("%d of %d hosts have joined", len(hosts), in.hosts), err
	})
}

// until calls look until the installation lacks nothing, or patience has passed.
func (in *installation) until(ctx context.Context, look func(context.Context) (lacks string, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		lacks, err := look(ctx)
		if lacks == "" || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %s: %w", in.name, lacks, ctx.Err())
		}
	}
}
