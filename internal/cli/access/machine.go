package access

import (
	"context"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func claimsOf(apps []string, labels map[string]string, executors []string) []output.Cell {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, name+"="+labels[name])
	}
	return []output.Cell{{Text: orAll(apps)}, {Text: strings.Join(pairs, ",")}, {Text: orAll(executors)}}
}

// orAll shows a list of which an empty one limits nothing.
func orAll(list []string) string {
	if len(list) == 0 {
		return "all"
	}
	return strings.Join(list, ",")
}

var joinTokenColumns = []string{"id", "kind", "apps", "labels", "executors", "uses left", "expires at", "created by"}

func joinTokenCells(t *sdk.JoinToken) []output.Cell {
	all := append([]output.Cell{{Text: t.GetId()}, {Text: t.GetKind()}}, claimsOf(t.GetApps(), t.GetLabels(), t.GetExecutors())...)
	return append(all, output.Cell{Text: strconv.Itoa(int(t.GetUsesLeft()))}, output.Cell{Text: output.Time(t.GetExpiresAt())}, output.Cell{Text: t.GetCreatedBy()})
}

func (c *commands) createJoinToken() *cobra.Command {
	var n sdk.NewJoinToken
	kind := "host"
	cmd := &cobra.Command{
		Use:        "create",
		SuggestFor: []string{"new", "make", "add"},
		Short:      "Create a token with which hosts or servers join",
		Long: `Create a token with which hosts or servers join. A host that joins gets a certificate,
which says what it may do: the apps that it serves, its labels and its executors. The host
renews the certificate by itself. A server that joins a cluster also gets the keys of its
secrets, so treat its token like the password of an administrator. The text of the token is
shown once. It contains the fingerprint of the authority of this installation, by which the
machine knows the server.`,
		Example: `  wheelwork join-token create
  wheelwork join-token create --kind host --apps shop,billing --labels zone=a --uses 20 --ttl 24h -o json
  wheelwork join-token create --kind server --ttl 10m`,
		Args: command.Arguments(),
	}
	cmd.Flags().StringVar(&kind, "kind", kind, "`kind` of the machines: host or server")
	command.Complete(cmd, "kind", "host", "server")
	cmd.Flags().StringSliceVar(&n.Apps, "apps", nil, "apps that the hosts serve (default all)")
	cmd.Flags().StringToStringVar(&n.Labels, "labels", nil, "labels of the hosts, `NAME=VALUE`, by which jobs can select them; may be repeated")
	cmd.Flags().StringSliceVar(&n.Executors, "executors", nil, "executors that the hosts may have: modules, native:NAME, plugin:NAME, builtin:NAME, or a beginning and \"*\" (default all)")
	cmd.Flags().DurationVar(&n.TTL, "ttl", time.Hour, "how `long` machines can join, at most 168h")
	cmd.Flags().IntVar(&n.Uses, "uses", 1, "`number` of machines that can join")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case kind != "host" && kind != "server":
			return command.Usage(cmd, "--kind %q: want host or server", kind)
		case kind == "server" && len(n.Apps)+len(n.Labels)+len(n.Executors) > 0:
			return command.Usage(cmd, "--apps, --labels and --executors are of hosts: a server has none")
		case n.Uses < 1:
			return command.Usage(cmd, "--uses %d: want 1 or more", n.Uses)
		case n.TTL < time.Second || n.TTL > 7*24*time.Hour:
			return command.Usage(cmd, "--ttl %v: want a time from 1s to 168h", n.TTL)
		}
		n.Kind = kind
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			t, err := client.CreateJoinToken(ctx, n)
			if err != nil {
				return err
			}
			err = c.PrintOne(append(slices.Clone(joinTokenColumns), "token"), output.Message(t, func() []output.Cell {
				return append(joinTokenCells(t), output.Cell{Text: t.GetToken()})
			}))
			switch {
			case err != nil:
			case kind == "server":
				c.Note("on the new machine, whose address is HOST:\nwheelwork server --cluster --listen HOST:7700 --cluster-listen HOST:2379 --cluster-peer HOST:2380 --join-server %s --join-token %s", c.address(), t.GetToken())
			default:
				c.Note("on the new machine:\nwheelwork host --server %s --join-token %s", c.address(), t.GetToken())
			}
			return err
		})(cmd, args)
	}
	return cmd
}

// address returns where hosts reach the server that the command has called.
func (c *commands) address() string {
	first, _, _ := strings.Cut(c.URL, ",")
	u, err := url.Parse(first)
	if err != nil || u.Hostname() == "" {
		return "HOST:PORT"
	}
	if u.Port() == "" {
		return u.Host + ":443"
	}
	return u.Host
}

func (c *commands) listJoinTokens() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the join tokens that can still be used, without their texts",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			all, err := client.JoinTokens(ctx)
			if err != nil {
				return err
			}
			return c.PrintAll(joinTokenColumns, output.Each(all, func(t *sdk.JoinToken) output.Record {
				return output.Message(t, func() []output.Cell { return joinTokenCells(t) })
			}))
		}),
	}
}

func (c *commands) revokeJoinToken() *cobra.Command {
	return &cobra.Command{
		Use:        "revoke ID",
		SuggestFor: []string{"delete", "remove"},
		Short:      "Remove a join token; machines that have joined with it stay",
		Args:       command.Arguments("ID"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if err := client.RevokeJoinToken(ctx, args[0]); err != nil {
				return err
			}
			c.Note("join token %s: revoked", args[0])
			return nil
		}),
	}
}

var certificateColumns = []string{"id", "kind", "name", "apps", "labels", "executors", "expires at", "renewed at", "revoked at", "join token", "address"}

func certificateRecord(m *sdk.Certificate) output.Record {
	return output.Message(m, func() []output.Cell {
		all := append([]output.Cell{{Text: m.GetId()}, {Text: m.GetKind()}, {Text: m.GetName()}}, claimsOf(m.GetApps(), m.GetLabels(), m.GetExecutors())...)
		return append(all, output.Cell{Text: output.Time(m.GetExpiresAt())}, output.Cell{Text: output.Time(m.GetRenewedAt())}, output.Cell{Text: output.Time(m.GetRevokedAt())}, output.Cell{Text: m.GetJoinToken()}, output.Cell{Text: m.GetAddress()})
	})
}

func (c *commands) listCertificates() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the machines that have joined, with the ends of their certificates",
		Long: `List the machines that have joined, with the ends of their certificates. A certificate is
valid for a day and renewed after 16 hours, so one that ends soon is of a machine that is
off, or that reaches no server.`,
		Args: command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			all, err := client.Certificates(ctx)
			if err != nil {
				return err
			}
			return c.PrintAll(certificateColumns, output.Each(all, certificateRecord))
		}),
	}
}

func (c *commands) renameMachine() *cobra.Command {
	return &cobra.Command{
		Use:     "rename ID NAME",
		Short:   "Give a machine another name for people",
		Long:    "Give a machine another name for people. ID is its id or its present name. Servers show\nthe name from the next connection of the machine on.",
		Example: `  wheelwork certificate rename host-8c1e press-3`,
		Args:    command.Arguments("ID", "NAME"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			m, err := client.RenameMachine(ctx, args[0], args[1])
			if err != nil {
				return err
			}
			return c.PrintOne(certificateColumns, certificateRecord(m))
		}),
	}
}
