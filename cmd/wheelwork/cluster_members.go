package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/journal/etcd"
	"github.com/wheelworkhq/wheelwork/node"
)

// addMember adds the flags of a server with an embedded etcd member. The returned
// function checks them.
func addMember(cmd *cobra.Command, conf *node.ClusterConfig) func(*cobra.Command, *node.ServerConfig) error {
	flags := cmd.Flags()
	flags.BoolVar(&conf.On, "cluster", false, "run a member of etcd in this server: three or five such servers keep the journal together")
	flags.StringVar(&conf.Listen, "cluster-listen", "127.0.0.1:2379", "HOST:PORT at which servers reach the member; beyond this machine it needs --etcd-cert, --etcd-key and --etcd-ca")
	flags.StringVar(&conf.Peer, "cluster-peer", "127.0.0.1:2380", "HOST:PORT at which the other members reach it")
	advertiseFlags(cmd, conf)
	flags.StringSliceVar(&conf.Join, "join", nil, "the --cluster-listen of servers that run: a server whose directory is new joins them, also in the place of one whose disk is lost")
	flags.StringSliceVar(&conf.Members, "cluster-members", nil, "the --cluster-peer of all servers that begin a cluster together (default this one begins it alone)")
	return func(cmd *cobra.Command, conf *node.ServerConfig) error {
		for _, name := range append(memberFlags, "join", "cluster-members") {
			if cmd.Flags().Changed(name) && !conf.Cluster.On {
				return usage(cmd, "--%s is for --cluster", name)
			}
		}
		return nil
	}
}

// memberFlags lists the flags with addresses of an embedded etcd member.
var memberFlags = []string{"cluster-listen", "cluster-peer", "cluster-advertise", "cluster-peer-advertise"}

// advertiseFlags adds the flags for the addresses at which other members reach a member
// that listens elsewhere.
func advertiseFlags(cmd *cobra.Command, conf *node.ClusterConfig) {
	flags := cmd.Flags()
	flags.StringVar(&conf.Advertise, "cluster-advertise", "", "HOST:PORT at which servers reach the member, if that is not --cluster-listen: behind a proxy or NAT")
	flags.StringVar(&conf.PeerAdvertise, "cluster-peer-advertise", "", "HOST:PORT at which the other members reach it, if that is not --cluster-peer")
}

// etcdFlags adds the flags for access to the etcd of a cluster.
func etcdFlags(cmd *cobra.Command, conf *node.EtcdConfig) {
	flags := cmd.Flags()
	flags.StringSliceVar(&conf.Endpoints, "etcd-endpoints", []string{"http://127.0.0.1:2379"}, "`URLs` of the cluster's etcd: the --cluster-listen of its servers")
	flags.StringVar(&conf.Cert, "etcd-cert", "", "`file` with a certificate to show to etcd")
	flags.StringVar(&conf.Key, "etcd-key", "", "`file` with its key")
	flags.StringVar(&conf.CA, "etcd-ca", "", "`file` with the authority that etcd is checked by")
}

// withEtcd runs a function that uses the etcd of a cluster.
func (c *cli) withEtcd(conf *node.EtcdConfig, do func(ctx context.Context, at etcd.Access, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		at, err := node.EtcdAccess(*conf)
		if err != nil {
			return err
		}
		patience := defaultTimeout
		if c.timeout > 0 {
			patience = c.timeout
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), patience)
		defer cancel()
		if err := node.ReachEtcd(ctx, *conf); err != nil {
			return &codedError{"unavailable", err.Error() + ": name the --cluster-listen addresses of the servers, or those of the etcd beside them, with --etcd-endpoints"}
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

func (c *cli) clusterMembers() *cobra.Command {
	var conf node.EtcdConfig
	cmd := &cobra.Command{
		Use:     "members",
		Short:   "List the members of the cluster's etcd",
		Example: `  wheelwork cluster members --etcd-endpoints http://127.0.0.1:2379,http://127.0.0.1:2389`,
		Args:    arguments(),
	}
	etcdFlags(cmd, &conf)
	cmd.RunE = c.withEtcd(&conf, func(ctx context.Context, at etcd.Access, _ []string) error {
		list, err := etcd.Members(ctx, at)
		if err != nil {
			return err
		}
		return c.printAll([]string{"name", "state", "client", "peer", "bytes", "error"}, func(yield func(record, error) bool) {
			for _, m := range list {
				tinted := green
				if m.State == "absent" {
					tinted = red
				}
				row := object(etcdRow{m.Name, m.State, m.Client, m.Peer, m.Bytes, m.Error}, func() []cell {
					return []cell{{m.Name, none}, {m.State, tinted}, {m.Client, none}, {m.Peer, none}, {fmt.Sprint(m.Bytes), none}, {m.Error, none}}
				})
				if !yield(row, nil) {
					return
				}
			}
		})
	})
	return cmd
}

func (c *cli) clusterRemove() *cobra.Command {
	var conf node.EtcdConfig
	cmd := &cobra.Command{
		Use:   "remove MEMBER",
		Short: "Take a member whose server is lost for good out of the cluster's etcd",
		Long: `Take a member whose server is lost for good out of the cluster's etcd. A member
that answers is refused. A server that comes back on the same address with an
empty disk needs this not: started with --join it takes its old place.`,
		Example: `  wheelwork cluster remove 10.0.0.6-2380 --etcd-endpoints https://10.0.0.5:2379`,
		Args:    arguments("MEMBER"),
	}
	etcdFlags(cmd, &conf)
	cmd.RunE = c.withEtcd(&conf, func(ctx context.Context, at etcd.Access, args []string) error {
		start := time.Now()
		if err := etcd.RemoveMember(ctx, at, args[0]); err != nil {
			return err
		}
		c.note("%s is out of the cluster, after %v", args[0], time.Since(start).Round(time.Millisecond))
		return nil
	})
	return cmd
}
