package access

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// commands are the commands about principals, tokens and bindings.
type commands struct {
	*output.Printer
	*connect.Server
}

// Commands returns the commands "whoami", "login", "logout", "user", "session", "token", "binding",
// "join-token", "certificate" and "audit".
func Commands(printer *output.Printer, server *connect.Server) []*cobra.Command {
	c := &commands{printer, server}
	return []*cobra.Command{
		c.whoAmI(), c.login(), c.logout(),
		command.Group("access", "Recover the access to a server", recoverAccess(printer)),
		command.Group("user", "Create people who sign in, and keep them out", c.createUser(), c.listUsers(), c.disableUser(), c.resetPassword()),
		command.Group("session", "Show who is signed in, and end sessions", c.listSessions(), c.endSession()),
		command.Group("token", "Create and revoke the tokens of programs", c.createToken(), c.listTokens(), c.rotateToken(), c.revokeToken(), generateToken(printer)),
		command.Group("binding", "Give roles to principals, and remove them", c.addBinding(), c.listBindings(), c.removeBinding()),
		command.Group("join-token", "Create and revoke the tokens with which hosts join", c.createJoinToken(), c.listJoinTokens(), c.revokeJoinToken()),
		command.Group("certificate", "Show the machines that have joined, and rename them", c.listCertificates(), c.renameMachine()),
		command.Group("audit", "Show who changed what, and check that no event is missing", c.listAudit(), c.verifyAudit(), c.acceptAudit(), c.exportAudit()),
	}
}

// scope has the flags that say where a role holds. The global flag --app counts only when it is on
// the command line: a role in the default app must be asked for.
type scope struct {
	role, prefix string
	cluster      bool
}

const roleNames = "viewer, operator, developer, maintainer, admin, auditor, deployer, producer or scraper"

func (s *scope) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.role, "role", "", "the `role`: "+roleNames)
	cmd.Flags().StringVar(&s.prefix, "app-prefix", "", "the role holds in every app whose name begins with this `prefix`")
	cmd.Flags().BoolVar(&s.cluster, "cluster", false, "the role holds in every app, and for what belongs to no app")
}

// appOf returns the app of the command line; "": there is none.
func (c *commands) appOf(cmd *cobra.Command) string {
	if cmd.Flags().Changed("app") {
		return c.App
	}
	return ""
}

// text returns the scope that the flags name.
func (s *scope) text(cmd *cobra.Command, app string) (string, error) {
	if s.role == "" {
		return "", command.Usage(cmd, "--role is missing: give one of %s", roleNames)
	}
	named := 0
	for _, given := range []bool{app != "", s.prefix != "", s.cluster} {
		if given {
			named++
		}
	}
	switch {
	case named == 0:
		return "", command.Usage(cmd, "say where the role holds: --app APP, --app-prefix PREFIX or --cluster")
	case named > 1:
		return "", command.Usage(cmd, "--app, --app-prefix and --cluster: give one of them")
	case s.cluster:
		return sdk.ClusterScope, nil
	case app != "":
		return sdk.AppScope(app), nil
	}
	return sdk.PrefixScope(strings.TrimSuffix(s.prefix, "*")), nil
}

var principalColumns = []string{"principal", "kind", "role", "scope", "expires at"}

func (c *commands) whoAmI() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Show who you are for the server, and which roles you have",
		Long: `Show the principal of the token that commands use, and its roles with their scopes.
The output as JSON also has the permissions.`,
		Args: command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			p, err := client.WhoAmI(ctx)
			if err != nil {
				return err
			}
			return c.PrintOne(principalColumns, output.Message(p, func() []output.Cell {
				var roles, scopes, ends []string
				for _, b := range p.GetBindings() {
					roles, scopes, ends = append(roles, b.GetRole()), append(scopes, b.GetScope()), append(ends, output.Time(b.GetExpiresAt()))
				}
				return []output.Cell{{Text: p.GetPrincipal()}, {Text: p.GetKind()}, {Text: strings.Join(roles, ", ")}, {Text: strings.Join(scopes, ", ")}, {Text: strings.Trim(strings.Join(ends, ", "), ", ")}}
			}))
		}),
	}
}

var bindingColumns = []string{"id", "principal", "role", "scope", "expires at", "created by"}

func bindingRecord(b *sdk.Binding) output.Record {
	return output.Message(b, func() []output.Cell {
		return []output.Cell{
			{Text: b.GetId()},
			{Text: b.GetPrincipal()},
			{Text: b.GetRole()},
			{Text: b.GetScope()},
			{Text: output.Time(b.GetExpiresAt())},
			{Text: b.GetCreatedBy()},
		}
	})
}

func (c *commands) addBinding() *cobra.Command {
	var s scope
	var expires string
	cmd := &cobra.Command{
		Use:   "add PRINCIPAL",
		Short: "Give a principal a role in an app, in apps with a prefix, or in the cluster",
		Long: `Give a principal a role in an app, in every app with a prefix, or in the cluster. The
role holds beside the others that the principal has, and for each of its tokens.

You can give what you have yourself: the role of a maintainer or an admin in the whole
scope, and each permission of the new role. A binding that exists gets the new expiry.`,
		Example: `  wheelwork binding add ci --role operator --app shop
  wheelwork binding add ci --role viewer --app-prefix shop- --expires 30d`,
		Args: command.Arguments("PRINCIPAL"),
	}
	s.addTo(cmd)
	cmd.Flags().StringVar(&expires, "expires", "", "`when` the role ends: a time from now, as 30d or 12h, a date, or an instant as 2030-01-31T08:00:00Z (default never)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		where, err := s.text(cmd, c.appOf(cmd))
		if err != nil {
			return err
		}
		until, err := expiry(expires, time.Now())
		if err != nil {
			return command.Usage(cmd, "--expires %q: %v", expires, err)
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			b, err := client.AddBinding(ctx, args[0], s.role, where, until)
			if err != nil {
				return err
			}
			return c.PrintOne(bindingColumns, bindingRecord(b))
		})(cmd, args)
	}
	return cmd
}

// expiry reads a time from now, a date or an instant; "" is the zero time.
func expiry(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36500 {
			return now.AddDate(0, 0, n), nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.ParseInLocation(form, text, time.Local); err == nil && t.After(now) {
			return t, nil
		}
	}
	return time.Time{}, errExpiry
}

func (c *commands) listBindings() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the bindings that you may see",
		Long: `List the bindings that you may see: those in whose whole scope you have the permission
access.read. With --app on the command line, only those that hold in this app.`,
		Args: command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, _ []string) error {
			all, err := client.Bindings(ctx, c.appOf(cmd))
			if err != nil {
				return err
			}
			return c.PrintAll(bindingColumns, output.Each(all, bindingRecord))
		}),
	}
}

func (c *commands) removeBinding() *cobra.Command {
	var s scope
	cmd := &cobra.Command{
		Use:   "remove ID | PRINCIPAL",
		Short: "Remove a binding, by its id or by principal, role and scope",
		Example: `  wheelwork binding remove bnd-abcdefghijklmnop
  wheelwork binding remove ci --role operator --app shop`,
		Args: command.Arguments("ID"),
	}
	s.addTo(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, where := args[0], ""
		if s.role != "" || s.prefix != "" || s.cluster || c.appOf(cmd) != "" {
			var err error
			if where, err = s.text(cmd, c.appOf(cmd)); err != nil {
				return err
			}
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if where != "" {
				var err error
				if id, err = find(ctx, client, args[0], s.role, where); err != nil {
					return err
				}
			}
			if err := client.RemoveBinding(ctx, id); err != nil {
				return err
			}
			c.Note("binding %s: removed", id)
			return nil
		})(cmd, args)
	}
	return cmd
}
