// Package bridge has the commands that let workers of other schedulers execute runs.
package bridge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/bridge/xxljob"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"
	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/sdk"
	"github.com/wheelworkhq/wheelwork/sdk/worker"
)

type commands struct {
	*output.Printer
	*connect.Server
}

// Command returns the command "bridge".
func Command(printer *output.Printer, server *connect.Server) *cobra.Command {
	c := &commands{printer, server}
	return command.Group("bridge", "Let workers of another scheduler execute runs", c.xxljob())
}

// defaultToken is the access token in the configuration that XXL-JOB is shipped with.
const defaultToken = "default_token"

func (c *commands) xxljob() *cobra.Command {
	var listen, tokenFile, data, name, zone, cert, key string
	var allow []string
	cmd := &cobra.Command{
		Use:   "xxl-job --listen ADDRESS --xxl-token-file FILE",
		Short: "Be the admin of XXL-JOB executors: they execute the runs of an app",
		Long: `Be the admin of XXL-JOB executors, until the process is ended. Executors that have this
address as their admin register here, and execute the runs of the jobs of --app whose
handler is native:xxl-job.APPNAME. Scripts that create, start and trigger jobs with the admin API
of XXL-JOB find it here too.

The process connects to the server as a worker: --token is that of host-token in the data
directory of the server. One bridge serves a set of executors; another one in its --data
continues where it has ended.`,
		Example: `  wheelwork bridge xxl-job --listen 10.0.0.5:8080 --xxl-token-file xxl-token --url http://127.0.0.1:7700 --token-file host-token`,
		Args:    command.Arguments(),
	}
	flags := cmd.Flags()
	flags.StringVar(&listen, "listen", "", "`ADDRESS` for executors and scripts, as 10.0.0.5:8080")
	flags.StringVar(&tokenFile, "xxl-token-file", "", "`file` with the access token of the executors, their xxl.job.accessToken")
	flags.StringVar(&data, "data", "wheelwork-bridge", "`directory` for the runs that executors work on")
	flags.StringVar(&name, "name", "", "name of the workers for people (default the groups of executors)")
	flags.StringVar(&zone, "zone", "UTC", "time zone of the cron expressions that scripts send, that of the XXL-JOB admin before")
	flags.StringSliceVar(&allow, "executor-allow", nil, "`network` of executors, as 10.1.0.0/16; may be repeated (default this machine and private networks)")
	flags.StringVar(&cert, "tls-cert", "", "PEM `file` with the certificate of this process")
	flags.StringVar(&key, "tls-key", "", "PEM `file` with its key")
	log := process.AddLog(cmd, "info")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case listen == "":
			return command.Usage(cmd, "--listen is missing: give the address at which executors reach this process")
		case tokenFile == "":
			return command.Usage(cmd, "--xxl-token-file is missing: give the file with the access token of the executors")
		case (cert == "") != (key == ""):
			return command.Usage(cmd, "give --tls-cert and --tls-key, or neither")
		}
		if _, err := time.LoadLocation(zone); err != nil {
			return command.Usage(cmd, "--zone %q: want a name such as Asia/Shanghai", zone)
		}
		conf := xxljob.Config{App: c.App, Dir: data, Zone: zone}
		for _, text := range allow {
			network, err := netip.ParsePrefix(text)
			if err != nil {
				return command.Usage(cmd, "--executor-allow %q: want a network such as 10.1.0.0/16", text)
			}
			conf.Allow = append(conf.Allow, network.Masked())
		}
		b, err := os.ReadFile(tokenFile)
		if err != nil {
			return fmt.Errorf("--xxl-token-file: %w", err)
		}
		if conf.Token = strings.TrimSpace(string(b)); conf.Token == "" || conf.Token == defaultToken {
			return fmt.Errorf("--xxl-token-file %s: the access token is empty or the public default %q: give the executors and this file a secret, such as that of `openssl rand -hex 20`", tokenFile, defaultToken)
		}
		out, err := log(cmd)
		if err != nil {
			return err
		}
		trust, err := c.TLS()
		if err != nil {
			return err
		}
		token, err := c.Server.Token()
		if err != nil {
			return err
		}
		if err := c.Ready(); err != nil {
			return err
		}
		conf.Worker = worker.Options{Address: c.URL, Token: token, TLS: trust, Name: name, Logger: out.Logger}
		conf.API = func(ctx context.Context, token string) (*sdk.Client, error) {
			return sdk.Dial(ctx, c.URL, sdk.Options{Token: token, TLS: trust, Program: "xxl-job"})
		}
		ctx, cancel := c.Deadline(cmd.Context(), 0)
		defer cancel()
		return c.serve(ctx, conf, listen, cert, key)
	}
	return cmd
}

// serve runs a bridge until ctx ends.
func (c *commands) serve(ctx context.Context, conf xxljob.Config, listen, cert, key string) (err error) {
	dir, err := datadir.Open(conf.Dir, datadir.HostForm)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	b, err := xxljob.New(conf)
	if err != nil {
		return err
	}
	var certificates []tls.Certificate
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return fmt.Errorf("--tls-cert and --tls-key: %w", err)
		}
		certificates = append(certificates, pair)
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	if certificates != nil {
		ln = tls.NewListener(ln, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certificates})
	}
	server := &http.Server{
		Handler: b.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- server.Serve(ln)
	}()
	c.Note("bridge ready: executors use http%s://%s as xxl.job.admin.addresses", strings.Repeat("s", len(certificates)), ln.Addr())
	// The listener serves until the workers have ended, so that callbacks still come.
	err = b.Run(ctx)
	err = errors.Join(err, server.Close())
	if failed := <-served; !errors.Is(failed, http.ErrServerClosed) {
		err = errors.Join(err, failed)
	}
	return err
}
