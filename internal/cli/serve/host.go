package serve

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// host runs a host, and contains the commands about hosts.
func (c *commands) host() *cobra.Command {
	var conf node.HostConfig
	cmd := command.Group("host", "Run a host: it executes jobs; or list and drain the hosts", c.listHosts(), c.cordonHost(), c.drainHost(), c.uncordonHost(), c.revokeHost())
	cmd.Example = `  wheelwork host --server server.example:7700 --join-token @token
  wheelwork host --nameserver ns.example:7600 --ca-cert ca.pem --token-file /etc/wheelwork/token --label zone=a --slots 8
  wheelwork host list`
	flags := cmd.Flags()
	flags.StringVar(&conf.Data, "data", "wheelwork-host", "`directory` for modules, and for results that no server has acknowledged yet")
	flags.StringVar(&conf.Nameserver, "nameserver", "", "HOST:PORT of the nameserver that names the host's server, or several with commas; each server of a cluster is one")
	flags.StringVar(&conf.Server, "server", "", "HOST:PORT of a server, without a nameserver")
	addTokenFile(cmd, &conf.TokenFile)
	flags.StringVar(&conf.JoinToken, "join-token", "", "`token` of \"wheelwork join-token create\", or @FILE with it: the host joins with it once, and then has a certificate of its own")
	flags.StringVar(&conf.Name, "name", "", "name for people (default the machine's)")
	flags.StringToStringVar(&conf.Labels, "label", nil, "`NAME=VALUE` that jobs can select hosts by; may be repeated")
	flags.StringSliceVar(&conf.Apps, "apps", nil, "apps to serve (default all)")
	dirs := addDirs(cmd, &conf.Dirs, &conf.DirApps)
	flags.StringSliceVar(&conf.TrustedKeys, "trusted-key", nil, "public `key`: run only modules that it has signed; may be repeated (default the keys that the apps require)")
	flags.IntVar(&conf.Slots, "slots", 0, "tasks to run at once (default the processors, at least 4)")
	addMaxSleeping(cmd, &conf.MaxSleeping)
	flags.StringVar(&conf.MetricsListen, "metrics-listen", "", "`address` that serves /metrics and /livez to every client that reaches it, without a token, for example 127.0.0.1:9464 (default none)")
	flags.StringVar(&conf.ReadyFile, "ready-file", "", "`file` that appears when ready")
	executors := addExecutors(cmd, &conf.Executors)
	caches := addCaches(cmd, &conf.ModuleBytes, &conf.CompiledBytes, &conf.GuestBytes)
	log := process.AddLog(cmd, "info")
	addProfile(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return command.Unknown(cmd, args[0])
		case (conf.Nameserver == "") == (conf.Server == ""):
			return command.Usage(cmd, "give --nameserver or --server, one of them")
		case conf.TokenFile == "" && c.PlainToken() == "" && conf.JoinToken == "" && !node.HasJoined(conf.Data):
			return command.Usage(cmd, "give --join-token, with a token of `wheelwork join-token create`, or --token-file with the token of the installation's hosts")
		case conf.Slots < 0:
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
		if conf.TokenFile == "" && conf.JoinToken == "" {
			conf.Token = c.PlainToken()
		}
		conf.CACert, conf.Logger = c.CACert, out.Logger
		return launch(c, cmd, service[node.HostConfig]{
			conf: conf, log: out,
			readers: func(conf node.HostConfig) (string, string) { return conf.Token, conf.TokenFile },
			run: func(ctx context.Context, conf node.HostConfig, ready func(), reloads <-chan node.Reload[node.HostConfig]) error {
				conf.Reload, conf.Ready = reloads, func(node.Ready) { ready(); c.Note("host ready") }
				if err := node.HideMemory(); err != nil {
					return err
				}
				return node.Host(ctx, conf)
			},
		})
	}
	return cmd
}

func (c *commands) revokeHost() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke HOST",
		Short: "Revoke the certificate of a host: its calls are refused at once",
		Long: `Revoke the certificate of a host. Its streams end within two seconds on all servers, and
its runs are repeated elsewhere as if it were lost. HOST is the id or the name of a host
that has joined with a join token. It comes back only with another join token: the one
with which it joined is revoked too.`,
		Example: `  wheelwork host revoke worker-3`,
		Args:    command.Arguments("HOST"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if err := client.RevokeHost(ctx, args[0]); err != nil {
				return err
			}
			c.Note("host %s: its certificate is revoked", args[0])
			return nil
		}),
	}
}

func (c *commands) revokeServer() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke SERVER",
		Short: "Revoke a server of a cluster: its process ends, and the others refuse its certificate",
		Long: `Revoke a server of a cluster, by its id or its name as "wheelwork certificate list" shows
them. Its process ends within two seconds, and the other servers refuse its certificate
and take over its partitions. Then remove its member of etcd with "wheelwork cluster
member remove". A server has the authority of the installation and the keys of the secrets:
if the machine was stolen, replace both, see docs/joining.md.`,
		Example: `  wheelwork server revoke server-3`,
		Args:    command.Arguments("SERVER"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if err := client.RevokeServer(ctx, args[0]); err != nil {
				return err
			}
			c.Note("server %s: its certificate is revoked", args[0])
			return nil
		}),
	}
}

func (c *commands) listHosts() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the hosts that the server knows",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			hosts, err := client.Hosts(ctx)
			if err != nil {
				return err
			}
			return c.PrintAll(hostColumns, output.Each(hosts, func(h *sdk.Host) output.Record { return output.Message(h, func() []output.Cell { return hostRow(h) }) }))
		}),
	}
}

var hostColumns = []string{"name", "state", "running", "sleeping", "waiting", "slots", "apps", "labels", "version", "last seen at", "runs", "id"}

func (c *commands) printHost(h *sdk.Host) error {
	return c.PrintOne(hostColumns, output.Message(h, func() []output.Cell { return hostRow(h) }))
}

func (c *commands) cordonHost() *cobra.Command {
	return &cobra.Command{
		Use:   "cordon HOST",
		Short: "Keep new tasks from a host until it is uncordoned",
		Long: `Keep new tasks from a host until it is uncordoned, also after a restart. Tasks that it
has continue. HOST is the id or the name of a host.`,
		Example: `  wheelwork host cordon worker-3`,
		Args:    command.Arguments("HOST"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			h, err := client.CordonHost(ctx, args[0], false)
			if err != nil {
				return err
			}
			return c.printHost(h)
		}),
	}
}

func (c *commands) uncordonHost() *cobra.Command {
	return &cobra.Command{
		Use:     "uncordon HOST",
		Aliases: []string{"undrain"},
		Short:   "Let a host that was cordoned or drained have tasks again",
		Args:    command.Arguments("HOST"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			h, err := client.UncordonHost(ctx, args[0])
			if err != nil {
				return err
			}
			return c.printHost(h)
		}),
	}
}

func (c *commands) drainHost() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "drain HOST",
		Short: "Cordon a host, and take back the tasks that it has not started",
		Long: `Cordon a host, and take back the tasks that it has not started: other hosts run them.
With --wait the command ends when the host has no task.`,
		Example: `  wheelwork host drain worker-3 --wait --timeout 10m`,
		Args:    command.Arguments("HOST"),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the host has no task")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		connected := c.Call
		if wait {
			connected = c.Wait
		}
		return connected(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			h, err := client.CordonHost(ctx, args[0], true)
			if err == nil && wait {
				h, err = c.awaitIdle(ctx, client, h)
			}
			if err != nil {
				return err
			}
			return c.printHost(h)
		})(cmd, args)
	}
	return cmd
}

// drainEvery is how often awaitIdle looks at a host.
const drainEvery = 500 * time.Millisecond

// awaitIdle waits until a host has no task, or is gone.
func (c *commands) awaitIdle(ctx context.Context, client *sdk.Client, h *sdk.Host) (*sdk.Host, error) {
	ticker := time.NewTicker(drainEvery)
	defer ticker.Stop()
	for h.GetRunning()+h.GetSleeping()+h.GetWaiting() > 0 {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, command.Fail("timeout", "host %s still has %d tasks and gets no new ones: wait again with \"wheelwork host drain %s --wait\"", h.GetName(), h.GetRunning()+h.GetSleeping()+h.GetWaiting(), h.GetId())
		}
		all, err := client.Hosts(ctx)
		if err != nil && ctx.Err() == nil {
			return nil, err
		}
		i := slices.IndexFunc(all, func(other *sdk.Host) bool { return other.GetId() == h.GetId() })
		if err == nil && i < 0 {
			return h, nil
		}
		if i >= 0 {
			h = all[i]
		}
	}
	return h, nil
}

func hostRow(h *sdk.Host) []output.Cell {
	var labels []string
	for _, k := range slices.Sorted(maps.Keys(h.GetLabels())) {
		labels = append(labels, k+"="+h.GetLabels()[k])
	}
	apps := "all"
	if len(h.GetApps()) > 0 {
		apps = strings.Join(h.GetApps(), ",")
	}
	return []output.Cell{
		{Text: h.GetName()},
		{Text: h.GetState(), Tint: output.StateTint(h.GetState())},
		{Text: fmt.Sprint(h.GetRunning())},
		{Text: fmt.Sprint(h.GetSleeping())},
		{Text: fmt.Sprint(h.GetWaiting())},
		{Text: fmt.Sprint(h.GetSlots())},
		{Text: apps},
		{Text: strings.Join(labels, ",")},
		{Text: h.GetVersion()},
		{Text: output.Time(h.GetLastSeenAt())},
		{Text: runsText(h.GetAbi())},
		{Text: h.GetId()},
	}
}

// runsText lists what a host can run now, without plugins that are down.
func runsText(abi []string) string {
	var runs []string
	modules := len(abi) == 0
	for _, s := range abi {
		if strings.Contains(s, ":") {
			runs = append(runs, s)
			continue
		}
		modules = true
	}
	if modules {
		runs = append([]string{"modules"}, runs...)
	}
	return strings.Join(runs, ",")
}
