package serve

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/config"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"
	"github.com/wheelworkhq/wheelwork/node"
)

// commands are the commands about processes.
type commands struct {
	*output.Printer
	*connect.Server
	env config.Environment
	// settings returns the settings of the process that is executed.
	settings func() []config.Setting
	// hand receives what the sources of a process say, in place of its start. nil: it starts.
	hand func(resolved)
}

// Commands returns the commands that run processes, and "plugin".
func Commands(printer *output.Printer, server *connect.Server, env config.Environment) []*cobra.Command {
	c := &commands{Printer: printer, Server: server, env: env}
	return append(c.processes(),
		command.Group("plugin", "Prepare programs that hosts run as plugins", c.signPlugin()),
		verifierCommand(),
	)
}

// processes returns the commands that run processes.
func (c *commands) processes() []*cobra.Command {
	return c.configured(onlyHere(c.dev(), c.server(), c.nameserver(), c.host())...)
}

func (c *commands) server() *cobra.Command {
	var conf node.ServerConfig
	cmd := command.Group("server", "Run a server: it schedules jobs and dispatches their runs to hosts; or revoke one", c.revokeServer())
	cmd.Example = `  wheelwork server --data /var/lib/wheelwork --listen 10.0.0.5:7700
  wheelwork server --cluster --listen 10.0.0.6:7700 --cluster-listen 10.0.0.6:2379 --cluster-peer 10.0.0.6:2380 \
      --join-server 10.0.0.5:7700 --join-token @token
  wheelwork server --data /var/lib/wheelwork --listen 10.0.0.5:7700 --tls-cert cert.pem --tls-key key.pem \
      --nameserver ns.example:7600 --token-file /etc/wheelwork/token --server-token-file /etc/wheelwork/server-token`
	flags := cmd.Flags()
	flags.StringVar(&conf.Data, "data", "wheelwork-data", "`directory` for all data")
	flags.StringVar(&conf.Listen, "listen", "127.0.0.1:7700", "`address` of console and API; beyond this machine it needs TLS")
	flags.StringVar(&conf.Advertise, "advertise", "", "HOST:PORT at which others reach this server (default the one it listens on)")
	flags.StringVar(&conf.Nameserver, "nameserver", "", "HOST:PORT of the nameserver, several with commas for servers of a cluster (default the server is its own)")
	addTokenFile(cmd, &conf.TokenFile)
	addServerTokenFile(cmd, &conf.ServerTokenFile)
	addTLS(cmd, &conf.Certificates.Cert, &conf.Certificates.Key)
	flags.StringVar(&conf.Certificates.TLS, "tls", "auto", "when to serve with TLS without --tls-cert, with a certificate of the installation's own authority: auto (beyond this machine), on, off, or both with TLS and without on this machine, to move an installation")
	command.Complete(cmd, "tls", "auto", "on", "off", "both")
	flags.StringVar(&conf.Certificates.JoinToken, "join-token", "", "`token` of \"wheelwork join-token create --kind server\", or @FILE with it: the server joins a cluster with it once")
	flags.StringVar(&conf.Certificates.JoinServer, "join-server", "", "HOST:PORT of a server of the cluster to join with --join-token, several with commas")
	flags.DurationVar(&conf.Certificates.Life, "certificate-life", 24*time.Hour, "how long the certificates of hosts and servers are valid; they are renewed when a third of it is left")
	flags.StringVar(&conf.SecretKey, "secret-key-file", "", "`file` with the key that seals secrets; servers that share a journal share it (default secret.key in --data, created if missing)")
	addNewKey(cmd, &conf.NewSecretKey)
	flags.StringSliceVar(&conf.BackupRecipients, "backup-recipient", nil, "`public keys` of age, for which the server encrypts backups whose callers name none; the same on all servers of a cluster")
	flags.StringSliceVar(&conf.Etcd.Endpoints, "etcd-endpoints", nil, "`URLs` of an etcd that keeps the journal (default the journal is in the data directory)")
	flags.StringVar(&conf.Etcd.Group, "group", "main", "`name` of the cluster, whose servers share their journals in etcd")
	flags.IntVar(&conf.Etcd.Units, "units", 0, "number of partitions of a new cluster, each owned by one server; it cannot change later (default 6, which two or three servers share evenly; with 1, one server works and the others are standbys)")
	splitRate := process.AddSplitRate(cmd)
	maxHosts := process.AddMaxHosts(cmd)
	flags.StringVar(&conf.Etcd.Cert, "etcd-cert", "", "`file` with the certificate that the server shows to etcd")
	flags.StringVar(&conf.Etcd.Key, "etcd-key", "", "`file` with its key")
	flags.StringVar(&conf.Etcd.CA, "etcd-ca", "", "`file` with the authority that signed the certificate of etcd")
	flags.StringVar(&conf.Zone, "zone", "", "`name` of the zone of the server: partitions go to servers in the zone of their hosts (--label zone=NAME), if it costs little")
	flags.Float64Var(&conf.Capacity, "capacity", 0, "`number` by which the cluster's servers share the load (default the processors that the process may use)")
	flags.StringVar(&conf.ReadyFile, "ready-file", "", "`file` that appears when ready")
	people := addPeople(cmd, &conf.People, &conf.Limits)
	member := addMember(cmd, &conf.Cluster)
	disk := addDisk(cmd, &conf.Writer, &conf.Sync)
	retention := addRetention(cmd, &conf.Retain)
	limits := addLimits(cmd, &conf.Limits)
	shares := addShares(cmd, &conf.MaxApps, &conf.Streams.PerApp, &conf.Streams.PerCaller)
	uploads := addUploads(cmd, &conf.Verifier.Limits)
	alerts := addAlerts(cmd, &conf.Alerts)
	backups := addBackups(cmd, &conf.Backups)
	sandbox := addSandbox(cmd)
	log := process.AddLog(cmd, "info")
	addProfile(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return command.Unknown(cmd, args[0])
		case conf.Certificates.JoinToken != "" && conf.Certificates.JoinServer == "":
			return command.Usage(cmd, "--join-token needs --join-server HOST:PORT, the address of a server of the cluster")
		}
		out, err := log(cmd)
		if err != nil {
			return err
		}
		if err := errors.Join(disk(cmd), member(cmd, &conf), retention(cmd), limits(cmd), shares(cmd), uploads(cmd), people(cmd), alerts(cmd), backups(cmd)); err != nil {
			return err
		}
		if conf.Etcd.SplitRate, err = splitRate(cmd); err != nil {
			return err
		}
		if conf.Etcd.MaxHosts, err = maxHosts(cmd); err != nil {
			return err
		}
		mode, err := sandbox(cmd)
		if err != nil {
			return err
		}
		conf.Alerts.Sandbox = mode
		conf.CACert, conf.Verifier, conf.Logger = c.CACert, verifierConfig(conf.Verifier.Limits, mode), out.Logger
		return launch(c, cmd, service[node.ServerConfig]{
			conf: conf, log: out, kept: keptIn(conf.Data),
			readers: func(node.ServerConfig) (string, string) { return "", tokensIn(conf.Data)[0] },
			run: func(ctx context.Context, conf node.ServerConfig, ready func(), reloads <-chan node.Reload[node.ServerConfig]) error {
				conf.Reload, conf.Ready = reloads, func(r node.Ready) { ready(); c.Note("server ready at %s", r.URL) }
				conf.People.Setup = func(link string) { c.Note("no user is an administrator yet: make the first one at %s", link) }
				if err := node.HideMemory(); err != nil {
					return err
				}
				return node.Server(ctx, conf)
			},
		})
	}
	return cmd
}

func (c *commands) nameserver() *cobra.Command {
	var conf node.NameserverConfig
	cmd := &cobra.Command{
		Use:   "nameserver",
		Short: "Run a nameserver: it knows the servers and sends hosts to them",
		Example: `  wheelwork nameserver --listen 10.0.0.4:7600 --tls-cert cert.pem --tls-key key.pem --token-file /etc/wheelwork/token \
      --server-token-file /etc/wheelwork/server-token`,
		Args: command.Arguments(),
	}
	cmd.Flags().StringVar(&conf.Listen, "listen", "127.0.0.1:7600", "`address`; beyond this machine it needs TLS")
	addTokenFile(cmd, &conf.TokenFile)
	addServerTokenFile(cmd, &conf.ServerTokenFile)
	addTLS(cmd, &conf.TLSCert, &conf.TLSKey)
	cmd.Flags().StringVar(&conf.ReadyFile, "ready-file", "", "`file` that appears when ready")
	limits := addLimits(cmd, &conf.Limits)
	log := process.AddLog(cmd, "info")
	addProfile(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if conf.TokenFile == "" {
			return command.Usage(cmd, "--token-file is missing")
		}
		if err := limits(cmd); err != nil {
			return err
		}
		out, err := log(cmd)
		if err != nil {
			return err
		}
		conf.Logger = out.Logger
		return launch(c, cmd, service[node.NameserverConfig]{
			conf: conf, log: out,
			readers: func(conf node.NameserverConfig) (string, string) {
				return "", cmp.Or(conf.ServerTokenFile, conf.TokenFile)
			},
			run: func(ctx context.Context, conf node.NameserverConfig, ready func(), reloads <-chan node.Reload[node.NameserverConfig]) error {
				conf.Reload, conf.Ready = reloads, func(r node.Ready) { ready(); c.Note("nameserver ready at %s", r.GRPC) }
				if err := node.HideMemory(); err != nil {
					return err
				}
				return node.Nameserver(ctx, conf)
			},
		})
	}
	return cmd
}

// keptIn returns the files that a server keeps in its data directory, and reads again at a reload.
func keptIn(data string) []string {
	return append(tokensIn(data), filepath.Join(data, "secret.key"))
}

// tokensIn returns the files with the tokens that a server keeps in its data directory: that of
// the administrator, and that of workers.
func tokensIn(data string) []string {
	return []string{filepath.Join(data, "token"), filepath.Join(data, "host-token")}
}
