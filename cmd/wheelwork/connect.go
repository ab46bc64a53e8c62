package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/sdk"
)

const (
	defaultURL     = "http://127.0.0.1:7700"
	defaultTimeout = 30 * time.Second // of a call; commands that wait have no timeout
)

// client connects to the server that the flags name.
func (c *cli) client(ctx context.Context) (*sdk.Client, error) {
	options := sdk.Options{Token: c.token}
	if c.ca != "" {
		pool, err := readAuthority(c.ca)
		if err != nil {
			return nil, err
		}
		options.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	}
	return sdk.Dial(ctx, c.url, options)
}

func readAuthority(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read --ca-cert: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read --ca-cert: %s holds no certificate in PEM form", file)
	}
	return pool, nil
}

// action is the body of a command that calls a server.
type action func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, args []string) error

// call runs an action of one or a few calls, with the timeout.
func (c *cli) call(do action) func(*cobra.Command, []string) error {
	return c.connected(defaultTimeout, do)
}

// wait runs an action without a timeout.
func (c *cli) wait(do action) func(*cobra.Command, []string) error {
	return c.connected(0, do)
}

func (c *cli) connected(timeout time.Duration, do action) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if c.timeout > 0 {
			timeout = c.timeout
		}
		ctx := cmd.Context()
		if timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		client, err := c.client(ctx)
		if err != nil {
			return err
		}
		defer client.Close() //nolint:errcheck // every answer has come
		return do(ctx, client, cmd, args)
	}
}

// completeJobs completes the names of jobs in the shell.
func (c *cli) completeJobs(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	if c.token == "" {
		c.token = c.getenv("WHEELWORK_TOKEN")
	}
	client, err := c.client(ctx)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer client.Close() //nolint:errcheck // only read
	var names []string
	for job, err := range client.Jobs(ctx, sdk.JobQuery{App: c.app, Prefix: prefix, Limit: 100, NoInput: true}) {
		if err != nil {
			break
		}
		names = append(names, job.GetName())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
