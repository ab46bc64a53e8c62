package cluster

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/wheelworkhq/wheelwork/node/local"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"
)

func (c *commands) up() *cobra.Command {
	var conf local.Config
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a cluster on this machine, to try things out: servers and hosts as processes",
		Long: `Run a nameserver, servers with etcd in them, and hosts as processes of this machine,
reachable from this machine only. The command prints a link that signs you in to the
console once, and the path of the token. A second after a process has ended, the
command starts it again. Ctrl-C ends all of them, and so does any other end of this
process. A second start with the same directory continues with its data.

With --tls the first server makes an authority, the other processes join with a token
each, and the servers are the nameserver.`,
		Example: `  wheelwork cluster up --servers 3 --hosts 4 --data ~/wheelwork-cluster
  wheelwork cluster up --tls --data ~/wheelwork-cluster-tls`,
		Args: command.Arguments(),
	}
	flags := cmd.Flags()
	flags.StringVar(&conf.Data, "data", "wheelwork-cluster", "`directory` for all data")
	flags.IntVar(&conf.Servers, "servers", 3, "servers: 1, 3 or 5")
	flags.IntVar(&conf.Hosts, "hosts", 4, "hosts")
	flags.IntVar(&conf.Slots, "slots", 0, "tasks that a host runs at once (default the processors, at least 4)")
	flags.BoolVar(&conf.TLS, "tls", false, "let all processes know each other by certificates of an authority of the cluster, and serve with TLS")
	splitRate := process.AddSplitRate(cmd)
	maxHosts := process.AddMaxHosts(cmd)
	flags.IntVar(&conf.Port, "port", 7700, "`port` of the first server; each other server gets the next free one and keeps it, and the nameserver one from 100 below")
	log := process.AddLog(cmd, "info")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		switch {
		case conf.Servers != 1 && conf.Servers != 3 && conf.Servers != 5:
			return command.Usage(cmd, "--servers %d: want 1, 3 or 5", conf.Servers)
		case conf.Hosts < 0 || conf.Hosts > 100:
			return command.Usage(cmd, "--hosts %d: want 0 to 100", conf.Hosts)
		case conf.Slots < 0:
			return command.Usage(cmd, "--slots %d: want a positive number", conf.Slots)
		case conf.Port < 1024 || conf.Port > 60_000:
			return command.Usage(cmd, "--port %d: want 1024 to 60000", conf.Port)
		}
		if conf.SplitRate, err = splitRate(cmd); err != nil {
			return err
		}
		if conf.MaxHosts, err = maxHosts(cmd); err != nil {
			return err
		}
		out, err := log(cmd)
		if err != nil {
			return err
		}
		conf.Logger = out.Logger
		if conf.Program, err = os.Executable(); err != nil {
			return err
		}
		conf.Output = c.Err
		conf.Ready = c.printReady
		return local.Run(cmd.Context(), conf)
	}
	return cmd
}

func (c *commands) printReady(r local.Ready) {
	if c.Format != output.Table {
		_ = c.PrintOne(nil, output.Object(r, nil)) // if the reader is gone, the cluster continues without it
		return
	}
	trust := ""
	if r.CACert != "" {
		trust = fmt.Sprintf("  export WHEELWORK_CA_CERT=%s\n", process.ShellWord(r.CACert))
	}
	fmt.Fprintf(c.Out, `The cluster is ready. Ctrl-C ends it.

  console     %s (signs you in once, within 10 minutes)
  data        %s
  token file  %s
  nameserver  %s
  etcd        %s

The command line, in another terminal:

  export WHEELWORK_URL=%s
  export WHEELWORK_TOKEN=$(cat %s)
%s  wheelwork host list
`, c.Paint(c.Out, output.Cyan, cmp.Or(r.LoginURL, r.URLs[0])), r.Data, r.TokenFile, r.Nameserver, strings.Join(r.EtcdEndpoints, ","), r.URL, process.ShellWord(r.TokenFile), trust)
}
