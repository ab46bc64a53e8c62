package cluster

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"
	"github.com/wheelworkhq/wheelwork/node"
)

func (c *commands) initialize() *cobra.Command {
	var conf node.GrowConfig
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Turn a stopped server into the first server of a cluster",
		Long: `Turn a stopped server into the first server of a cluster. Its data directory keeps
jobs, runs and their history, modules and aliases, secrets, calendars, and commands
that wait in the ingress. The journal of the cluster begins where the server's own
journal ends. After an interruption, run the command again.

The journal is in etcd, which runs inside the servers (give the server the same
--cluster-listen and --cluster-peer afterwards), or beside them with
--etcd-endpoints. The other servers join with empty directories and get the state
from the first.`,
		Example: `  wheelwork cluster init --data /var/lib/wheelwork
  wheelwork server --data /var/lib/wheelwork --cluster --listen 127.0.0.1:7700 --nameserver 127.0.0.1:7600 \
      --token-file host-token --server-token-file server-token`,
		Args: command.Arguments(),
	}
	flags := cmd.Flags()
	flags.StringVar(&conf.Data, "data", "wheelwork-data", "data `directory` of the server")
	flags.StringVar(&conf.Cluster.Listen, "cluster-listen", "127.0.0.1:2379", "HOST:PORT at which servers will reach this server's member of etcd")
	flags.StringVar(&conf.Cluster.Peer, "cluster-peer", "127.0.0.1:2380", "HOST:PORT at which the other members will reach it")
	process.AddAdvertise(cmd, &conf.Cluster)
	flags.StringSliceVar(&conf.Etcd.Endpoints, "etcd-endpoints", nil, "`URLs` of an etcd beside the servers (default it is inside them)")
	flags.StringVar(&conf.Etcd.Group, "group", "main", "`name` of the cluster")
	flags.StringVar(&conf.Etcd.Cert, "etcd-cert", "", "`file` with the certificate that the server shows to etcd")
	flags.StringVar(&conf.Etcd.Key, "etcd-key", "", "`file` with its key")
	flags.StringVar(&conf.Etcd.CA, "etcd-ca", "", "`file` with the authority that signed the certificate of etcd")
	flags.StringVar(&conf.TLS, "tls", "auto", "when etcd uses certificates of the installation, if --etcd-cert names no other: auto (beyond this machine), on, off or both. Give the server the same")
	command.Complete(cmd, "tls", "auto", "on", "off", "both")
	flags.StringVar(&conf.SecretKey, "secret-key-file", "", "`file` with the key that seals secrets, if the server has one elsewhere (default secret.key in --data)")
	log := process.AddLog(cmd, "warn")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		for _, name := range process.MemberFlags {
			if len(conf.Etcd.Endpoints) > 0 && cmd.Flags().Changed(name) {
				return command.Usage(cmd, "--%s is for an etcd inside the servers, --etcd-endpoints for one beside them", name)
			}
		}
		out, err := log(cmd)
		if err != nil {
			return err
		}
		conf.Logger = out.Logger
		g, err := node.Grow(cmd.Context(), conf)
		if err != nil {
			return err
		}
		if g.Again {
			c.Note("%s belongs to a cluster already", g.Data)
		}
		columns := []string{"data", "group", "server", "records before the cluster", "waiting in the ingress", "key of the secrets", "old journal"}
		return c.PrintOne(columns, output.Object(g, func() []output.Cell {
			return []output.Cell{
				{Text: g.Data},
				{Text: g.Group},
				{Text: g.Server},
				{Text: fmt.Sprint(g.Applied)},
				{Text: fmt.Sprint(g.Waiting)},
				{Text: g.SecretKey + ": give it to all servers with --secret-key-file"},
				{Text: g.OldJournal + ": remove it when the cluster works"},
			}
		}))
	}
	return cmd
}
