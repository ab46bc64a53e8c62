package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/node/local"
)

func (c *cli) clusterUp() *cobra.Command {
	var conf local.Config
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run a cluster on this machine, to try things out: servers and hosts as processes",
		Long: `Run a nameserver, servers with etcd in them and hosts as processes of this machine,
reachable from it only. It prints a link that signs you in to the console once, and
where the token is. A process that ends, because you killed it, is started again after a second.
Ctrl-C ends all of them, and so does the end of this process, whatever its cause.
A second start on the same directory goes on with what is in it.`,
		Example: `  wheelwork cluster up --servers 3 --hosts 4 --data ~/wheelwork-cluster`,
		Args:    arguments(),
	}
	flags := cmd.Flags()
	flags.StringVar(&conf.Data, "data", "wheelwork-cluster", "`directory` that keeps everything")
	flags.IntVar(&conf.Servers, "servers", 3, "servers: 1, 3 or 5")
	flags.IntVar(&conf.Hosts, "hosts", 4, "hosts")
	flags.IntVar(&conf.Slots, "slots", 0, "tasks that a host runs at once (default the processors, at least 4)")
	splitRate := addSplitRate(cmd)
	maxHosts := addMaxHosts(cmd)
	flags.IntVar(&conf.Port, "port", 7700, "`port` of the first server; the others get the next ones that are free, and keep them")
	log := c.addLogFlags(cmd, "info")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		switch {
		case conf.Servers != 1 && conf.Servers != 3 && conf.Servers != 5:
			return usage(cmd, "--servers %d: want 1, 3 or 5", conf.Servers)
		case conf.Hosts < 0 || conf.Hosts > 100:
			return usage(cmd, "--hosts %d: want 0 to 100", conf.Hosts)
		case conf.Slots < 0:
			return usage(cmd, "--slots %d: want a positive number", conf.Slots)
		case conf.Port < 1024 || conf.Port > 60_000:
			return usage(cmd, "--port %d: want 1024 to 60000", conf.Port)
		}
		if conf.SplitRate, err = splitRate(cmd); err != nil {
			return err
		}
		if conf.MaxHosts, err = maxHosts(cmd); err != nil {
			return err
		}
		if conf.Logger, err = log(cmd); err != nil {
			return err
		}
		if conf.Program, err = os.Executable(); err != nil {
			return err
		}
		conf.Output = c.err
		conf.Ready = c.sayCluster
		return local.Run(cmd.Context(), conf)
	}
	return cmd
}

func (c *cli) sayCluster(r local.Ready) {
	if c.format != formatTable {
		_ = c.printOne(nil, object(r, nil)) // if the reader is gone, the cluster continues without it
		return
	}
	fmt.Fprintf(c.out, `The cluster is ready. Ctrl-C ends it.

  console     %s (signs you in once, within 10 minutes)
  data        %s
  token file  %s
  nameserver  %s
  etcd        %s

The command line, in another terminal:

  export WHEELWORK_URL=%s
  export WHEELWORK_TOKEN=$(cat %s)
  wheelwork host list
`, c.paint(c.out, cyan, cmp.Or(r.LoginURL, r.URLs[0])), r.Data, r.TokenFile, r.Nameserver, strings.Join(r.EtcdEndpoints, ","), r.URL, shellWord(r.TokenFile))
}
