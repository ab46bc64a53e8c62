package serve

import (
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/backup/planned"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/node"
)

// addMember adds the flags of a server with an embedded etcd member. The returned
// function checks them.
func addMember(cmd *cobra.Command, conf *node.ClusterConfig) func(*cobra.Command, *node.ServerConfig) error {
	flags := cmd.Flags()
	flags.BoolVar(&conf.On, "cluster", false, "run a member of etcd in this server: three or five such servers keep the journal together")
	flags.StringVar(&conf.Listen, "cluster-listen", "127.0.0.1:2379", "HOST:PORT at which servers reach the member; beyond this machine it needs --etcd-cert, --etcd-key and --etcd-ca")
	flags.StringVar(&conf.Peer, "cluster-peer", "127.0.0.1:2380", "HOST:PORT at which the other members reach it")
	process.AddAdvertise(cmd, conf)
	flags.StringSliceVar(&conf.Join, "join", nil, "the --cluster-listen of running servers: a server with a new directory joins them, also to replace one whose disk is lost")
	flags.StringSliceVar(&conf.Members, "cluster-members", nil, "the --cluster-peer of all servers that start a cluster together (default this one starts it alone)")
	return func(cmd *cobra.Command, conf *node.ServerConfig) error {
		for _, name := range append(process.MemberFlags, "join", "cluster-members") {
			if cmd.Flags().Changed(name) && !conf.Cluster.On {
				return command.Usage(cmd, "--%s is for --cluster", name)
			}
		}
		return nil
	}
}

// addMaxSleeping adds the flag that bounds the sleeping tasks of a host.
func addMaxSleeping(cmd *cobra.Command, n *int) {
	cmd.Flags().IntVar(n, "max-sleeping", 0, "tasks that may sleep without a slot; further ones keep theirs (default 16 for each slot; -1: none)")
}

// addDisk adds the flags for how a server writes its logs. The returned function checks
// them.
func addDisk(cmd *cobra.Command, writer *string, policy *mq.SyncPolicy) func(*cobra.Command) error {
	var sync string
	cmd.Flags().StringVar(writer, "log-writer", "auto", "method that writes the logs: auto (the quickest here), pwrite, direct, mmap")
	cmd.Flags().StringVar(&sync, "sync", mq.Always.String(),
		"guarantee of an acknowledgement: always (synced to the device), interval (a power cut loses up to 100 ms), os")
	command.Complete(cmd, "log-writer", "auto", "pwrite", "direct", "mmap")
	command.Complete(cmd, "sync", "always", "interval", "os")
	return func(cmd *cobra.Command) error {
		if !slices.Contains([]string{"auto", "pwrite", "direct", "mmap"}, *writer) {
			return command.Usage(cmd, "--log-writer %q: want auto, pwrite, direct or mmap", *writer)
		}
		for _, p := range []mq.SyncPolicy{mq.Always, mq.Interval, mq.OS} {
			if p.String() == sync {
				*policy = p
				return nil
			}
		}
		return command.Usage(cmd, "--sync %q: want always, interval or os", sync)
	}
}

// addAlerts adds the flags for what messages of alerts may reach. The returned function checks
// them.
func addAlerts(cmd *cobra.Command, conf *node.AlertsConfig) func(*cobra.Command) error {
	var networks []string
	cmd.Flags().StringArrayVar(&conf.Commands, "alert-command", nil, "program that alert channels may name, as NAME=`PATH`; may be repeated")
	cmd.Flags().StringSliceVar(&networks, "egress-allow", nil, "`networks` such as 10.1.0.0/16 in which receivers of alerts may be, beyond public addresses")
	return func(cmd *cobra.Command) error {
		conf.Egress, conf.Guard = nil, node.GuardCommand()
		for _, text := range networks {
			p, err := netip.ParsePrefix(text)
			if err != nil {
				if a, wrong := netip.ParseAddr(text); wrong == nil {
					p, err = netip.PrefixFrom(a, a.BitLen()), nil
				}
			}
			if err != nil {
				return command.Usage(cmd, "--egress-allow %q: want a network such as 10.1.0.0/16 or an address", text)
			}
			conf.Egress = append(conf.Egress, p.Masked())
		}
		return nil
	}
}

// addBackups adds the flags for the backups that a server makes by itself.
func addBackups(cmd *cobra.Command, conf *node.BackupsConfig) func(*cobra.Command) error {
	var at string
	flags := cmd.Flags()
	flags.StringVar(&conf.Dir, "backup-dir", "", "`directory` to which the server writes backups of everything, and tries each; of the servers of a cluster with such a directory one does it")
	flags.StringVar(&at, "backup-at", "", "`schedule` of these backups: a cron expression in UTC, or \"every 6h\" (default only when \"wheelwork backup now\" is called)")
	flags.IntVar(&conf.Keep, "backup-keep", planned.DefaultKeep, "backups that stay in --backup-dir; older ones are removed after a newer one was verified")
	return func(cmd *cobra.Command) (err error) {
		switch {
		case conf.Dir == "" && (at != "" || cmd.Flags().Changed("backup-keep")):
			return command.Usage(cmd, "--backup-at and --backup-keep are for the backups in --backup-dir: give the directory too")
		case conf.Keep < 1:
			return command.Usage(cmd, "--backup-keep %d: keep at least one backup", conf.Keep)
		}
		if conf.At, err = planned.ParseSchedule(at); err != nil {
			return command.Usage(cmd, "--backup-at %v", err)
		}
		return nil
	}
}

func addNewKey(cmd *cobra.Command, accepted *bool) {
	cmd.Flags().BoolVar(accepted, "new-secret-key", false, "start although secrets were sealed with another key: each of them has to be set again")
}

func addTokenFile(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "token-file", "", "`file` with the token of the installation's hosts, made by \"wheelwork token generate\"")
}

func addServerTokenFile(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "server-token-file", "", "`file` with the token of nameserver and servers, which hosts do not get (default they use --token-file, on this machine only)")
}

func addTLS(cmd *cobra.Command, cert, key *string) {
	cmd.Flags().StringVar(cert, "tls-cert", "", "PEM `file` with the certificate of this process")
	cmd.Flags().StringVar(key, "tls-key", "", "PEM `file` with its key")
}

// addProfile adds the flag with the address of profiles, which [launch] serves.
func addProfile(cmd *cobra.Command) {
	cmd.Flags().String("pprof", "", "loopback `address` that serves profiles of the process to callers with its token, for example 127.0.0.1:6060")
}

// addRetention adds the flags for the retention of a server. The returned
// function checks them.
func addRetention(cmd *cobra.Command, keep *node.Retention) func(*cobra.Command) error {
	flags := cmd.Flags()
	flags.DurationVar(&keep.Runs, "retain-runs", node.DefaultRetention, "`time` for which ended runs stay; an app may set its own")
	flags.DurationVar(&keep.Logs, "retain-logs", node.DefaultRetention, "`time` for which lines of runs stay; an app may set its own")
	flags.DurationVar(&keep.DeadLetters, "retain-dead-letters", 0, "`time` after which dead letters are removed (default they stay)")
	return func(cmd *cobra.Command) error {
		for flag, d := range map[string]time.Duration{"retain-runs": keep.Runs, "retain-logs": keep.Logs, "retain-dead-letters": keep.DeadLetters} {
			if d < node.MinRetention && cmd.Flags().Changed(flag) || d < 0 {
				return command.Usage(cmd, "--%s %s: want at least %s, for example 720h", flag, d, node.MinRetention)
			}
		}
		return nil
	}
}
