package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/contexts"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

var userColumns = []string{"name", "kind", "state", "roles", "created at", "created by"}

func userRecord(p *sdk.Principal) output.Record {
	return output.Message(p, func() []output.Cell {
		state, roles := "", ""
		switch {
		case p.GetDisabled():
			state = "disabled"
		case p.GetBuiltIn():
			state = "built in"
		}
		for i, b := range p.GetBindings() {
			if i > 0 {
				roles += ", "
			}
			roles += b.GetRole() + " in " + b.GetScope()
		}
		return []output.Cell{{Text: p.GetPrincipal()}, {Text: p.GetKind()}, {Text: state}, {Text: roles}, {Text: output.Time(p.GetCreatedAt())}, {Text: p.GetCreatedBy()}}
	})
}

// firstPassword is the output about a password for a first sign-in.
type firstPassword struct {
	Name     string `json:"name"`
	Password string `json:"password"`
}

func (c *commands) printPassword(name, password string) error {
	return c.PrintOne([]string{"name", "password for the first sign-in"}, output.Object(firstPassword{name, password}, func() []output.Cell {
		return []output.Cell{{Text: name}, {Text: password}}
	}))
}

func (c *commands) createUser() *cobra.Command {
	return &cobra.Command{
		Use:   "create NAME",
		Short: "Create a person who signs in with a password",
		Long: `Create a person who signs in with a password. The command prints a password for the first
sign-in, which replaces it. A new user may do nothing: give it a role with
"wheelwork binding add NAME".`,
		Example: `  wheelwork user create ada
  wheelwork binding add ada --role developer --app shop`,
		Args: command.Arguments("NAME"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			password, err := client.CreateUser(ctx, args[0])
			if err != nil {
				return err
			}
			return c.printPassword(args[0], password)
		}),
	}
}

func (c *commands) resetPassword() *cobra.Command {
	return &cobra.Command{
		Use:   "passwd NAME",
		Short: "Give a user another password for the next sign-in; its sessions end",
		Args:  command.Arguments("NAME"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			password, err := client.ResetPassword(ctx, args[0])
			if err != nil {
				return err
			}
			return c.printPassword(args[0], password)
		}),
	}
}

func (c *commands) listUsers() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the users and service accounts that you may see",
		Long: `List the users and service accounts that you may see, with their roles. With the permission
access.read in the cluster the list also has the principals that are built in: their tokens
are in files of the server that you call.`,
		Args: command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			all, err := client.Principals(ctx)
			if err != nil {
				return err
			}
			return c.PrintAll(userColumns, output.Each(all, userRecord))
		}),
	}
}

func (c *commands) disableUser() *cobra.Command {
	enable := false
	cmd := &cobra.Command{
		Use:   "disable NAME",
		Short: "Keep a user or a service account out, with its tokens and sessions",
		Args:  command.Arguments("NAME"),
	}
	cmd.Flags().BoolVar(&enable, "undo", false, "let it in again")
	cmd.RunE = c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
		p, err := client.DisableUser(ctx, args[0], !enable)
		if err != nil {
			return err
		}
		return c.PrintOne(userColumns, userRecord(p))
	})
	return cmd
}

var sessionColumns = []string{"id", "user", "program", "address", "signed in at", "expires at"}

func (c *commands) listSessions() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List your sessions, or those of all users if you manage the access to the cluster",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			all, err := client.Sessions(ctx)
			if err != nil {
				return err
			}
			return c.PrintAll(sessionColumns, output.Each(all, func(x *sdk.Session) output.Record {
				return output.Message(x, func() []output.Cell {
					return []output.Cell{
						{Text: x.GetId()},
						{Text: x.GetPrincipal()},
						{Text: x.GetProgram()},
						{Text: x.GetAddress()},
						{Text: output.Time(x.GetCreatedAt())},
						{Text: output.Time(x.GetExpiresAt())},
					}
				})
			}))
		}),
	}
}

func (c *commands) endSession() *cobra.Command {
	return &cobra.Command{
		Use:     "end ID",
		Short:   "End a session: its user must sign in again there",
		Example: `  wheelwork session end ses-4fhd2q7a`,
		Args:    command.Arguments("ID"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if err := client.EndSession(ctx, args[0]); err != nil {
				return err
			}
			c.Note("session %s: ended", args[0])
			return nil
		}),
	}
}

func (c *commands) login() *cobra.Command {
	name, oidc, device := "", false, false
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Sign in to a server as a user; later commands use the session",
		Long: `Sign in to the server of --url. Later commands to this server use the session, unless they have
a token. It ends when it was not used for 12 hours, after 30 days (a day if an OpenID provider
signs you in), and with "wheelwork logout".

With --user you give a password here. The first sign-in asks for another password. Without a
terminal the passwords come from standard input, one on each line: the password, and if it must
be replaced, the new one.

With --oidc the browser of this machine opens a page of the console, where you sign in in any way
that the server offers and approve this command. With --device the command prints the address
of that page and a code, for a browser on any machine.`,
		Example: `  wheelwork login --url https://wheelwork.example --user ada
  wheelwork login --url https://wheelwork.example --oidc
  wheelwork login --url https://wheelwork.example --device     # over SSH, for example`,
		Args: command.Arguments(),
	}
	cmd.Flags().StringVar(&name, "user", "", "the `name` of the user")
	cmd.Flags().BoolVar(&oidc, "oidc", false, "sign in with the browser of this machine")
	cmd.Flags().BoolVar(&device, "device", false, "sign in with a browser on any machine")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case name != "" && (oidc || device), oidc && device:
			return command.Usage(cmd, "--user, --oidc and --device: give one of them")
		case name == "" && !oidc && !device:
			return command.Usage(cmd, "say how to sign in: --user NAME with a password, --oidc with the browser of this machine, or --device with a browser on any machine")
		}
		file, err := c.SessionFile()
		if err != nil {
			return err
		}
		wait := time.Duration(0)
		if name == "" {
			wait = approvalWait
		}
		ctx, cancel := c.Deadline(cmd.Context(), wait)
		defer cancel()
		client, err := c.Anonymous(ctx)
		if err != nil {
			return err
		}
		defer client.Close() //nolint:errcheck // every answer has come
		signIn := c.withBrowser(oidc)
		if name != "" {
			signIn = c.withPassword(cmd, name)
		}
		session, token, err := signIn(ctx, client)
		if err != nil {
			return err
		}
		if err := contexts.SaveSession(file, token); err != nil {
			return err
		}
		c.Note("signed in as %s at %s: %s", session.GetPrincipal(), c.URL, session.GetId())
		return nil
	}
	return cmd
}

// signIn starts a session, and returns the text of its token.
type signIn func(context.Context, *sdk.Client) (*sdk.Session, string, error)

func (c *commands) withPassword(cmd *cobra.Command, name string) signIn {
	return func(ctx context.Context, client *sdk.Client) (*sdk.Session, string, error) {
		secrets := command.NewSecrets(cmd)
		password, err := secrets.Next("password of " + name)
		if err != nil {
			return nil, "", err
		}
		session, token, err := client.SignIn(ctx, name, password, "")
		if errors.Is(err, sdk.ErrPrecondition) {
			return c.replacePassword(ctx, client, secrets, name, password)
		}
		return session, token, err
	}
}

// replacePassword signs in with another password than the first one.
func (c *commands) replacePassword(ctx context.Context, client *sdk.Client, secrets *command.Secrets, name, password string) (*sdk.Session, string, error) {
	c.Note("this password is for the first sign-in: choose another one, of at least 15 characters")
	fresh, err := secrets.Next("new password of " + name)
	if err != nil {
		return nil, "", err
	}
	return client.SignIn(ctx, name, password, fresh)
}

func (c *commands) logout() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "End the session at a server",
		Args:  command.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := c.SessionFile()
			if err != nil {
				return err
			}
			ended := c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
				who, err := client.WhoAmI(ctx)
				if err != nil {
					return err
				}
				return client.EndSession(ctx, who.GetToken())
			})(cmd, nil)
			if err := contexts.RemoveSession(file); err != nil {
				return err
			}
			if ended != nil && !errors.Is(ended, sdk.ErrUnauthenticated) {
				return fmt.Errorf("you are signed out here, and the server could not end the session: %w", ended)
			}
			c.Note("signed out at %s", c.URL)
			return nil
		},
	}
}
