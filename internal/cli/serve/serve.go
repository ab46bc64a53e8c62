package serve

import (
	"cmp"
	"errors"
	"path/filepath"

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
}

// Commands returns the commands that run processes, and "plugin".
func Commands(printer *output.Printer, server *connect.Server, env config.Environment) []*cobra.Command {
	c := &commands{printer, server}
	return append(c.configured(env, onlyHere(c.dev(), c.server(), c.nameserver(), c.host())...),
		command.Group("plugin", "Prepare programs that hosts run as plugins", c.signPlugin()),
		verifierCommand(),
	)
}

func (c *commands) server() *cobra.Command {
	var conf node.ServerConfig
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a server: it schedules jobs and dispatches their runs to hosts",
		Example: `  wheelwork server --data /var/lib/wheelwork --listen 10.0.0.5:7700 --tls-cert cert.pem --tls-key key.pem \
      --nameserver ns.example:7600 --token-file /etc/wheelwork/token --server-token-file /etc/wheelwork/server-token`,
		Args: command.Arguments(),
	}
	flags := cmd.Flags()
	flags.StringVar(&conf.Data, "data", "wheelwork-data", "`directory` for all data")
	flags.StringVar(&conf.Listen, "listen", "127.0.0.1:7700", "`address` of console and API; beyond this machine it needs TLS")
	flags.StringVar(&conf.Advertise, "advertise", "", "HOST:PORT at which others reach this server (default the one it listens on)")
	flags.StringVar(&conf.Nameserver, "nameserver", "", "HOST:PORT of the nameserver, several with commas for servers of a cluster (default the server is its own)")
	addTokenFile(cmd, &conf.TokenFile)
	addServerTokenFile(cmd, &conf.ServerTokenFile)
	addTLS(cmd, &conf.TLSCert, &conf.TLSKey)
	flags.StringVar(&conf.SecretKey, "secret-key-file", "", "`file` with the key that seals secrets; servers that share a journal share it (default secret.key in --data, created if missing)")
	addNewKey(cmd, &conf.NewSecretKey)
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
	member := addMember(cmd, &conf.Cluster)
	disk := addDisk(cmd, &conf.Writer, &conf.Sync)
	retention := addRetention(cmd, &conf.Retain)
	limits := addLimits(cmd, &conf.Limits)
	uploads := addUploads(cmd, &conf.Verifier.Limits)
	log := process.AddLog(cmd, "info")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if conf.Logger, err = log(cmd); err != nil {
			return err
		}
		if err := errors.Join(disk(cmd), member(cmd, &conf), retention(cmd), limits(cmd), uploads(cmd)); err != nil {
			return err
		}
		if conf.Etcd.SplitRate, err = splitRate(cmd); err != nil {
			return err
		}
		if conf.Etcd.MaxHosts, err = maxHosts(cmd); err != nil {
			return err
		}
		conf.CACert, conf.Verifier = c.CACert, verifierConfig(conf.Verifier.Limits)
		manager := supervisor{conf.Logger}
		conf.Reload = manager.reloads(cmd.Context())
		conf.Ready = func(r node.Ready) { manager.ready(); c.Note("server ready at %s", r.URL) }
		if err := node.HideMemory(); err != nil {
			return err
		}
		defer manager.attend(cmd.Context())()
		return node.Server(cmd.Context(), conf)
	}
	addProfile(cmd, func() node.ProfileConfig { return node.ProfileConfig{TokenFile: filepath.Join(conf.Data, "token")} })
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
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if conf.TokenFile == "" {
			return command.Usage(cmd, "--token-file is missing")
		}
		if err := limits(cmd); err != nil {
			return err
		}
		var err error
		if conf.Logger, err = log(cmd); err != nil {
			return err
		}
		manager := supervisor{conf.Logger}
		conf.Reload = manager.reloads(cmd.Context())
		conf.Ready = func(r node.Ready) { manager.ready(); c.Note("nameserver ready at %s", r.GRPC) }
		if err := node.HideMemory(); err != nil {
			return err
		}
		defer manager.attend(cmd.Context())()
		return node.Nameserver(cmd.Context(), conf)
	}
	addProfile(cmd, func() node.ProfileConfig {
		return node.ProfileConfig{TokenFile: cmp.Or(conf.ServerTokenFile, conf.TokenFile)}
	})
	return cmd
}
