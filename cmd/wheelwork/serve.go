package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/node"
)

func (c *cli) devCommand() *cobra.Command {
	var conf node.DevConfig
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything in one process on this machine, to try things out",
		Long: `Run nameserver, server, console and one host in one process, reachable from
this machine only. It prints a link that signs you in to the console once, and
where the token is, and has a sample job running. Jobs and runs are kept in the data directory.`,
		Example: `  wheelwork dev --data ~/wheelwork --listen 127.0.0.1:7700`,
		Args:    arguments(),
	}
	flags := cmd.Flags()
	flags.StringVar(&conf.Data, "data", "wheelwork-data", "`directory` that keeps everything")
	flags.StringVar(&conf.Listen, "listen", "127.0.0.1:7700", "loopback `address` of console and API; port 0 picks a free one")
	flags.StringVar(&conf.ReadyFile, "ready-file", "", "`file` that appears when ready: {\"url\",\"grpc\",\"token\",\"pid\"}")
	addDirs(cmd, &conf.Dirs)
	addNewKey(cmd, &conf.NewSecretKey)
	flags.IntVar(&conf.Slots, "slots", 0, "tasks that the host runs at once (default the processors, at least 4)")
	addMaxSleeping(cmd, &conf.MaxSleeping)
	flags.BoolVar(&conf.Sample, "sample", true, "begin with a sample job where there is none")
	disk := addDisk(cmd, &conf.Writer, &conf.Sync)
	executors := addExecutors(cmd, &conf.Executors)
	caches := addCaches(cmd, &conf.ModuleBytes, &conf.CompiledBytes, &conf.GuestBytes)
	limits := addLimits(cmd, &conf.Limits)
	log := c.addLogFlags(cmd, "warn")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if conf.Slots < 0 {
			return usage(cmd, "--slots %d: want a positive number", conf.Slots)
		}
		var err error
		if conf.Logger, err = log(cmd); err != nil {
			return err
		}
		if err := executors(cmd); err != nil {
			return err
		}
		if err := caches(cmd); err != nil {
			return err
		}
		if err := disk(cmd); err != nil {
			return err
		}
		if err := limits(cmd); err != nil {
			return err
		}
		conf.Verifier, conf.Ready = verifierConfig(), c.sayReady(conf.Data)
		if err := node.HideMemory(); err != nil {
			return err
		}
		return node.Dev(cmd.Context(), conf)
	}
	addProfile(cmd, func() node.ProfileConfig { return node.ProfileConfig{TokenFile: filepath.Join(conf.Data, "token")} })
	return cmd
}

// sayReady prints the next steps for a person, or the ready object for a program.
func (c *cli) sayReady(data string) func(node.Ready) {
	if whole, err := filepath.Abs(data); err == nil {
		data = whole // the reader may have another working directory
	}
	return func(r node.Ready) {
		if c.format != formatTable {
			// If the reader is gone, the process continues to serve.
			_ = c.printOne(nil, object(r, nil))
			return
		}
		fmt.Fprintf(c.out, `Wheelwork is ready. Ctrl-C ends it.

  console  %s (signs you in once, within 10 minutes)
  data     %s

The command line, in another terminal:

  export WHEELWORK_URL=%s
  export WHEELWORK_TOKEN=$(cat %s)
  wheelwork job list
`, c.paint(c.out, cyan, r.LoginURL), data, r.URL, shellWord(filepath.Join(data, "token")))
	}
}

// shellWord quotes a path for a shell where necessary.
func shellWord(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+:@%", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

func (c *cli) serverCommand() *cobra.Command {
	var conf node.ServerConfig
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a server: it schedules jobs and hands them to hosts",
		Example: `  wheelwork server --data /var/lib/wheelwork --listen 10.0.0.5:7700 --tls-cert cert.pem --tls-key key.pem \
      --nameserver ns.example:7600 --token-file /etc/wheelwork/token --server-token-file /etc/wheelwork/server-token`,
		Args: arguments(),
	}
	flags := cmd.Flags()
	flags.StringVar(&conf.Data, "data", "wheelwork-data", "`directory` that keeps everything")
	flags.StringVar(&conf.Listen, "listen", "127.0.0.1:7700", "`address` of console and API; beyond this machine it needs TLS")
	flags.StringVar(&conf.Advertise, "advertise", "", "HOST:PORT at which others reach this server (default the one it listens on)")
	flags.StringVar(&conf.Nameserver, "nameserver", "", "HOST:PORT of the nameserver, several with commas for servers of a cluster (default the server is its own)")
	addTokenFile(cmd, &conf.TokenFile)
	addServerTokenFile(cmd, &conf.ServerTokenFile)
	addTLS(cmd, &conf.TLSCert, &conf.TLSKey)
	flags.StringVar(&conf.SecretKey, "secret-key-file", "", "`file` with the key that seals secrets; servers that share a journal share it (default secret.key in --data, made when missing)")
	addNewKey(cmd, &conf.NewSecretKey)
	flags.StringSliceVar(&conf.Etcd.Endpoints, "etcd-endpoints", nil, "`URLs` of an etcd that keeps the journal (default the journal is in the data directory)")
	flags.StringVar(&conf.Etcd.Group, "group", "main", "`name` of the cluster: of the servers that share their journals in etcd")
	flags.IntVar(&conf.Etcd.Units, "units", 0, "in how many partitions a new cluster holds its apps, each owned by one server; afterwards it stays (default 6, which two servers or three share evenly; with 1 one server works and the others stand by)")
	splitRate := addSplitRate(cmd)
	maxHosts := addMaxHosts(cmd)
	flags.StringVar(&conf.Etcd.Cert, "etcd-cert", "", "`file` with the certificate that the server shows to etcd")
	flags.StringVar(&conf.Etcd.Key, "etcd-key", "", "`file` with its key")
	flags.StringVar(&conf.Etcd.CA, "etcd-ca", "", "`file` with the authority that etcd is checked by")
	flags.StringVar(&conf.Zone, "zone", "", "`name` of where the server is: partitions go to servers in the zone of their hosts (--label zone=NAME), if it costs little")
	flags.Float64Var(&conf.Capacity, "capacity", 0, "`number` by which the cluster's servers share the load (default the processors that the process may use)")
	flags.StringVar(&conf.ReadyFile, "ready-file", "", "`file` that appears when ready")
	member := addMember(cmd, &conf.Cluster)
	disk := addDisk(cmd, &conf.Writer, &conf.Sync)
	limits := addLimits(cmd, &conf.Limits)
	log := c.addLogFlags(cmd, "info")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if conf.Logger, err = log(cmd); err != nil {
			return err
		}
		if err := errors.Join(disk(cmd), member(cmd, &conf), limits(cmd)); err != nil {
			return err
		}
		if conf.Etcd.SplitRate, err = splitRate(cmd); err != nil {
			return err
		}
		if conf.Etcd.MaxHosts, err = maxHosts(cmd); err != nil {
			return err
		}
		conf.CACert, conf.Verifier = c.ca, verifierConfig()
		conf.Ready = func(r node.Ready) { c.note("server ready at %s", r.URL) }
		if err := node.HideMemory(); err != nil {
			return err
		}
		return node.Server(cmd.Context(), conf)
	}
	addProfile(cmd, func() node.ProfileConfig { return node.ProfileConfig{TokenFile: filepath.Join(conf.Data, "token")} })
	return cmd
}

// addSplitRate adds the flag for the rate at which an app is split. The returned function
// reads it.
func addSplitRate(cmd *cobra.Command) func(*cobra.Command) (float64, error) {
	rate := cmd.Flags().Float64("split-rate", 0, "schedules a `second` from which an app may be spread over several partitions (default 500; negative: none is, but by hand)")
	return func(cmd *cobra.Command) (float64, error) {
		if math.IsNaN(*rate) {
			return 0, usage(cmd, "--split-rate %v: want a number, a negative one for never", *rate)
		}
		return *rate, nil
	}
}

// addMaxHosts adds the flag for the number of hosts up to which each host serves every
// partition. The returned function reads it.
func addMaxHosts(cmd *cobra.Command) func(*cobra.Command) (int, error) {
	n := cmd.Flags().Int("max-hosts-per-sub-app", 100, "`number` of hosts up to which each works for every partition of a cluster, and an app that they serve by name stays in one; more are divided (0: never)")
	return func(cmd *cobra.Command) (int, error) {
		switch {
		case *n < 0:
			return 0, usage(cmd, "--max-hosts-per-sub-app %d: want a positive number, or 0 for never", *n)
		case *n == 0:
			return -1, nil
		}
		return *n, nil
	}
}

func (c *cli) nameserverCommand() *cobra.Command {
	var conf node.NameserverConfig
	cmd := &cobra.Command{
		Use:   "nameserver",
		Short: "Run a nameserver: it knows the servers and sends hosts to them",
		Example: `  wheelwork nameserver --listen 10.0.0.4:7600 --tls-cert cert.pem --tls-key key.pem --token-file /etc/wheelwork/token \
      --server-token-file /etc/wheelwork/server-token`,
		Args: arguments(),
	}
	cmd.Flags().StringVar(&conf.Listen, "listen", "127.0.0.1:7600", "`address`; beyond this machine it needs TLS")
	addTokenFile(cmd, &conf.TokenFile)
	addServerTokenFile(cmd, &conf.ServerTokenFile)
	addTLS(cmd, &conf.TLSCert, &conf.TLSKey)
	cmd.Flags().StringVar(&conf.ReadyFile, "ready-file", "", "`file` that appears when ready")
	limits := addLimits(cmd, &conf.Limits)
	log := c.addLogFlags(cmd, "info")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if conf.TokenFile == "" {
			return usage(cmd, "--token-file is missing")
		}
		if err := limits(cmd); err != nil {
			return err
		}
		var err error
		if conf.Logger, err = log(cmd); err != nil {
			return err
		}
		conf.Ready = func(r node.Ready) { c.note("nameserver ready at %s", r.GRPC) }
		if err := node.HideMemory(); err != nil {
			return err
		}
		return node.Nameserver(cmd.Context(), conf)
	}
	addProfile(cmd, func() node.ProfileConfig {
		return node.ProfileConfig{TokenFile: cmp.Or(conf.ServerTokenFile, conf.TokenFile)}
	})
	return cmd
}

// hostCommand runs a host, and contains the commands about hosts.
func (c *cli) hostCommand() *cobra.Command {
	var conf node.HostConfig
	cmd := group("host", "Run a host: it executes jobs; or look at the hosts there are", c.hostList())
	cmd.Example = `  wheelwork host --nameserver ns.example:7600 --ca-cert ca.pem --token-file /etc/wheelwork/token --label zone=a --slots 8
  wheelwork host list`
	flags := cmd.Flags()
	flags.StringVar(&conf.Data, "data", "wheelwork-host", "`directory` for modules, and for results that no server has taken yet")
	flags.StringVar(&conf.Nameserver, "nameserver", "", "HOST:PORT of the nameserver that names the host's server, or several with commas; each server of a cluster is one")
	flags.StringVar(&conf.Server, "server", "", "HOST:PORT of a server, without a nameserver")
	addTokenFile(cmd, &conf.TokenFile)
	flags.StringVar(&conf.Name, "name", "", "name for people (default the machine's)")
	flags.StringToStringVar(&conf.Labels, "label", nil, "`NAME=VALUE` that jobs can select hosts by; may be repeated")
	flags.StringSliceVar(&conf.Apps, "apps", nil, "apps to serve (default all)")
	addDirs(cmd, &conf.Dirs)
	flags.StringSliceVar(&conf.TrustedKeys, "trusted-key", nil, "public `key`: run only modules that it has signed; may be repeated (default what the apps ask for)")
	flags.IntVar(&conf.Slots, "slots", 0, "tasks to run at once (default the processors, at least 4)")
	addMaxSleeping(cmd, &conf.MaxSleeping)
	flags.StringVar(&conf.ReadyFile, "ready-file", "", "`file` that appears when ready")
	executors := addExecutors(cmd, &conf.Executors)
	caches := addCaches(cmd, &conf.ModuleBytes, &conf.CompiledBytes, &conf.GuestBytes)
	log := c.addLogFlags(cmd, "info")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return unknownCommand(cmd, args[0])
		case (conf.Nameserver == "") == (conf.Server == ""):
			return usage(cmd, "give --nameserver or --server, one of them")
		case conf.TokenFile == "" && c.token == "":
			return usage(cmd, "--token-file is missing")
		case conf.Slots < 0:
			return usage(cmd, "--slots %d: want a positive number", conf.Slots)
		}
		var err error
		if conf.Logger, err = log(cmd); err != nil {
			return err
		}
		if err := executors(cmd); err != nil {
			return err
		}
		if err := caches(cmd); err != nil {
			return err
		}
		if conf.TokenFile == "" {
			conf.Token = c.token
		}
		conf.CACert = c.ca
		conf.Ready = func(node.Ready) { c.note("host ready") }
		return node.Host(cmd.Context(), conf)
	}
	addProfile(cmd, func() node.ProfileConfig {
		if conf.TokenFile != "" {
			return node.ProfileConfig{TokenFile: conf.TokenFile}
		}
		return node.ProfileConfig{Token: c.token}
	})
	return cmd
}

// addMaxSleeping adds the flag that bounds the sleeping tasks of a host.
func addMaxSleeping(cmd *cobra.Command, n *int) {
	cmd.Flags().IntVar(n, "max-sleeping", 0, "tasks that may sleep without a slot; further ones keep theirs (default 16 for each slot; -1: none)")
}

// addDisk adds the flags for how a server writes its logs. The returned function checks
// them.
func addDisk(cmd *cobra.Command, writer *string, policy *mq.SyncPolicy) func(*cobra.Command) error {
	var sync string
	cmd.Flags().StringVar(writer, "log-writer", "auto", "how the logs reach the disk: auto (what is quickest here), pwrite, direct, mmap")
	cmd.Flags().StringVar(&sync, "sync", mq.Always.String(),
		"what an acknowledgement means: always (synced to the device), interval (a power cut takes up to 100 ms), os")
	complete(cmd, "log-writer", "auto", "pwrite", "direct", "mmap")
	complete(cmd, "sync", "always", "interval", "os")
	return func(cmd *cobra.Command) error {
		if !slices.Contains([]string{"auto", "pwrite", "direct", "mmap"}, *writer) {
			return usage(cmd, "--log-writer %q: want auto, pwrite, direct or mmap", *writer)
		}
		for _, p := range []mq.SyncPolicy{mq.Always, mq.Interval, mq.OS} {
			if p.String() == sync {
				*policy = p
				return nil
			}
		}
		return usage(cmd, "--sync %q: want always, interval or os", sync)
	}
}

func addNewKey(cmd *cobra.Command, accepted *bool) {
	cmd.Flags().BoolVar(accepted, "new-secret-key", false, "start although secrets were sealed with another key: each of them has to be set again")
}

func addTokenFile(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "token-file", "", "`file` with the token of the installation's hosts, as \"wheelwork token generate\" makes one")
}

func addServerTokenFile(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "server-token-file", "", "`file` with the token of nameserver and servers, which hosts do not get (default they use --token-file, on this machine only)")
}

func addTLS(cmd *cobra.Command, cert, key *string) {
	cmd.Flags().StringVar(cert, "tls-cert", "", "PEM `file` with the certificate to show")
	cmd.Flags().StringVar(key, "tls-key", "", "PEM `file` with its key")
}

// addLogFlags adds the flags for the log of a process. The returned function creates the
// logger after the flags are parsed.
func (c *cli) addLogFlags(cmd *cobra.Command, level string) func(*cobra.Command) (*slog.Logger, error) {
	var format string
	cmd.Flags().StringVar(&level, "log-level", level, "least severe level to log: debug, info, warn, error")
	cmd.Flags().StringVar(&format, "log-format", "text", "form of the log on standard error: text, json")
	complete(cmd, "log-level", "debug", "info", "warn", "error")
	complete(cmd, "log-format", "text", "json")
	return func(cmd *cobra.Command) (*slog.Logger, error) {
		var least slog.Level
		if err := least.UnmarshalText([]byte(strings.ToUpper(level))); err != nil {
			return nil, usage(cmd, "--log-level %q: want debug, info, warn or error", level)
		}
		options := &slog.HandlerOptions{Level: least}
		switch format {
		case "text":
			return slog.New(slog.NewTextHandler(c.err, options)), nil
		case "json":
			return slog.New(slog.NewJSONHandler(c.err, options)), nil
		}
		return nil, usage(cmd, "--log-format %q: want text or json", format)
	}
}

// addProfile adds the flag --pprof to a serving command. config returns the tokens of
// permitted readers; it is called after the flags are parsed.
func addProfile(cmd *cobra.Command, config func() node.ProfileConfig) {
	address := cmd.Flags().String("pprof", "", "loopback `address` that shows profiles of the process to those who have its token, for example 127.0.0.1:6060")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if *address != "" {
			cfg := config()
			cfg.Address = *address
			stop, err := node.Profile(cfg)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, stop()) }()
		}
		return run(cmd, args)
	}
}
