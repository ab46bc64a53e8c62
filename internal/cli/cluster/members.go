package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/node"
)

// withEtcd runs a function that uses the etcd of a cluster.
func (c *commands) withEtcd(conf *node.EtcdConfig, do func(ctx context.Context, at etcd.Access, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		at, err := node.EtcdAccess(*conf)
		if err != nil {
			return err
		}
		ctx, cancel := c.Deadline(cmd.Context(), connect.DefaultTimeout)
		defer cancel()
		if err := node.ReachEtcd(ctx, *conf); err != nil {
			return command.Fail("unavailable", "%v: name the --cluster-listen addresses of the servers, or those of the etcd beside them, with --etcd-endpoints", err)
		}
		return do(ctx, at, args)
	}
}

// etcdRow is the output about an etcd member. Other tools rely on the field names.
type etcdRow struct {
	Name   string `json:"name"`
	State  string `json:"state"` // leader, follower, learner or absent
	Client string `json:"client"`
	Peer   string `json:"peer"`
	Bytes  int64  `json:"bytes"`
	Error  string `json:"error,omitempty"`
}

func memberRecord(m etcd.MemberState) output.Record {
	return output.Object(etcdRow{m.Name, m.State, m.Client, m.Peer, m.Bytes, m.Error}, func() []output.Cell {
		tint := output.Green
		if m.State == "absent" {
			tint = output.Red
		}
		return []output.Cell{{Text: m.Name}, {Text: m.State, Tint: tint}, {Text: m.Client}, {Text: m.Peer}, {Text: fmt.Sprint(m.Bytes)}, {Text: m.Error}}
	})
}

func (c *commands) members() *cobra.Command {
	var conf node.EtcdConfig
	cmd := &cobra.Command{
		Use:     "members",
		Short:   "List the members of the cluster's etcd",
		Example: `  wheelwork cluster members --etcd-endpoints http://127.0.0.1:2379,http://127.0.0.1:2389`,
		Args:    command.Arguments(),
	}
	addEtcd(cmd, &conf)
	cmd.RunE = c.withEtcd(&conf, func(ctx context.Context, at etcd.Access, _ []string) error {
		list, err := etcd.Members(ctx, at)
		if err != nil {
			return err
		}
		return c.PrintAll([]string{"name", "state", "client", "peer", "bytes", "error"}, output.Each(list, memberRecord))
	})
	return cmd
}

func (c *commands) remove() *cobra.Command {
	var conf node.EtcdConfig
	cmd := &cobra.Command{
		Use:   "remove MEMBER",
		Short: "Remove a member whose server is lost for good from the cluster's etcd",
		Long: `Remove a member whose server is lost for good from the cluster's etcd. The command
refuses a member that answers. A server that returns on the same address with an
empty disk does not need this command: with --join it takes its old place.`,
		Example: `  wheelwork cluster remove 10.0.0.6-2380 --etcd-endpoints https://10.0.0.5:2379`,
		Args:    command.Arguments("MEMBER"),
	}
	addEtcd(cmd, &conf)
	cmd.RunE = c.withEtcd(&conf, func(ctx context.Context, at etcd.Access, args []string) error {
		start := time.Now()
		if err := etcd.RemoveMember(ctx, at, args[0]); err != nil {
			return err
		}
		c.Note("%s is out of the cluster, after %v", args[0], time.Since(start).Round(time.Millisecond))
		return nil
	})
	return cmd
}

// addEtcd adds the flags for access to the etcd of a cluster.
func addEtcd(cmd *cobra.Command, conf *node.EtcdConfig) {
	flags := cmd.Flags()
	flags.StringSliceVar(&conf.Endpoints, "etcd-endpoints", []string{"http://127.0.0.1:2379"}, "`URLs` of the cluster's etcd: the --cluster-listen of its servers")
	flags.StringVar(&conf.Cert, "etcd-cert", "", "`file` with a certificate to show to etcd")
	flags.StringVar(&conf.Key, "etcd-key", "", "`file` with its key")
	flags.StringVar(&conf.CA, "etcd-ca", "", "`file` with the authority that signed the certificate of etcd")
}
