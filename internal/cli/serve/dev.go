package serve

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"
	"github.com/wheelworkhq/wheelwork/node"
)

func (c *commands) dev() *cobra.Command {
	var conf node.DevConfig
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process on this machine, to try things out",
		Long: `Run nameserver, server, console and one host in one process, reachable from
this machine only. The command prints a link that signs you in to the console once,
and the path of the token, and runs a sample job. Jobs and runs are in the data
directory.`,
		Example: `  wheelwork dev --data ~/wheelwork --listen 127.0.0.1:7700`,
		Args:    command.Arguments(),
	}
	flags := cmd.Flags()
	flags.StringVar(&conf.Data, "data", "wheelwork-data", "`directory` for all data")
	flags.StringVar(&conf.Listen, "listen", "127.0.0.1:7700", "loopback `address` of console and API; port 0 picks a free one")
	flags.StringVar(&conf.ReadyFile, "ready-file", "", "`file` that appears when ready: {\"url\",\"grpc\",\"token\",\"pid\"}")
	dirs := addDirs(cmd, &conf.Dirs, &conf.DirApps)
	addNewKey(cmd, &conf.NewSecretKey)
	flags.IntVar(&conf.Slots, "slots", 0, "tasks that the host runs at once (default the processors, at least 4)")
	addMaxSleeping(cmd, &conf.MaxSleeping)
	flags.BoolVar(&conf.Sample, "sample", true, "create a sample job if there is none")
	disk := addDisk(cmd, &conf.Writer, &conf.Sync)
	executors := addExecutors(cmd, &conf.Executors)
	caches := addCaches(cmd, &conf.ModuleBytes, &conf.CompiledBytes, &conf.GuestBytes)
	retention := addRetention(cmd, &conf.Retain)
	limits := addLimits(cmd, &conf.Limits)
	shares := addShares(cmd, &conf.MaxApps, &conf.Streams.PerApp, &conf.Streams.PerCaller)
	uploads := addUploads(cmd, &conf.Verifier.Limits)
	alerts := addAlerts(cmd, &conf.Alerts)
	backups := addBackups(cmd, &conf.Backups)
	log := process.AddLog(cmd, "warn")
	addProfile(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if conf.Slots < 0 {
			return command.Usage(cmd, "--slots %d: want a positive number", conf.Slots)
		}
		out, err := log(cmd)
		if err != nil {
			return err
		}
		if err := executors(cmd); err != nil {
			return err
		}
		dirs()
		if err := caches(cmd); err != nil {
			return err
		}
		if err := disk(cmd); err != nil {
			return err
		}
		if err := errors.Join(retention(cmd), limits(cmd), shares(cmd), alerts(cmd), backups(cmd)); err != nil {
			return err
		}
		if err := uploads(cmd); err != nil {
			return err
		}
		conf.Alerts.Sandbox = conf.Executors.Sandbox
		conf.Verifier, conf.Logger = verifierConfig(conf.Verifier.Limits, conf.Executors.Sandbox), out.Logger
		return launch(c, cmd, service[node.DevConfig]{
			conf: conf, log: out, kept: keptIn(conf.Data),
			readers: func(node.DevConfig) (string, string) { return "", tokensIn(conf.Data)[0] },
			run: func(ctx context.Context, conf node.DevConfig, ready func(), reloads <-chan node.Reload[node.DevConfig]) error {
				tell := c.printReady(conf.Data)
				conf.Reload, conf.Ready = reloads, func(r node.Ready) { ready(); tell(r) }
				if err := node.HideMemory(); err != nil {
					return err
				}
				return node.Dev(ctx, conf)
			},
		})
	}
	return cmd
}

// printReady prints the next steps for a person, or the ready object for a program.
func (c *commands) printReady(data string) func(node.Ready) {
	if whole, err := filepath.Abs(data); err == nil {
		data = whole // the reader may have another working directory
	}
	return func(r node.Ready) {
		if c.Format != output.Table {
			// If the reader is gone, the process continues to serve.
			_ = c.PrintOne(nil, output.Object(r, nil))
			return
		}
		fmt.Fprintf(c.Out, `Wheelwork is ready. Ctrl-C ends it.

  console  %s (signs you in once, within 10 minutes)
  data     %s

The command line, in another terminal:

  export WHEELWORK_URL=%s
  export WHEELWORK_TOKEN=$(cat %s)
  wheelwork job list
`, c.Paint(c.Out, output.Cyan, r.LoginURL), data, r.URL, process.ShellWord(filepath.Join(data, "token")))
	}
}
