package access

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/credential"
	"github.com/wheelworkhq/wheelwork/sdk"
)

var errExpiry = errors.New("want a time in the future, as 30d, 12h, 2030-01-31 or 2030-01-31T08:00:00Z")

// find returns the id of a binding.
func find(ctx context.Context, client *sdk.Client, principal, role, scope string) (string, error) {
	all, err := client.Bindings(ctx, "")
	if err != nil {
		return "", err
	}
	for _, b := range all {
		if b.GetPrincipal() == principal && b.GetRole() == role && b.GetScope() == scope {
			return b.GetId(), nil
		}
	}
	return "", fmt.Errorf("%s has no binding with the role %s in %s that you may see: `wheelwork binding list` shows what there is", principal, role, scope)
}

var tokenColumns = []string{"id", "principal", "role", "scope", "expires at", "last used", "created by", "former text until"}

func tokenRecord(t *sdk.Token) output.Record {
	return output.Message(t, func() []output.Cell {
		return []output.Cell{
			{Text: t.GetId()},
			{Text: t.GetPrincipal()},
			{Text: t.GetRole()},
			{Text: t.GetScope()},
			{Text: output.Time(t.GetExpiresAt())},
			{Text: output.Time(t.GetUsedAt())},
			{Text: t.GetCreatedBy()},
			{Text: output.Time(t.GetFormerUntil())},
		}
	})
}

var newTokenColumns = []string{"id", "principal", "role", "scope", "expires at", "token"}

// newTokenRecord is the output about a token with its text.
func newTokenRecord(t *sdk.Token) output.Record {
	return output.Message(t, func() []output.Cell {
		return []output.Cell{
			{Text: t.GetId()},
			{Text: t.GetPrincipal()},
			{Text: t.GetRole()},
			{Text: t.GetScope()},
			{Text: output.Time(t.GetExpiresAt())},
			{Text: t.GetToken()},
		}
	})
}

func (c *commands) createToken() *cobra.Command {
	var s scope
	var ttl string
	cmd := &cobra.Command{
		Use:        "create NAME",
		SuggestFor: []string{"new", "make", "add"},
		Short:      "Create a token for a program",
		Long: `Create a token for a program. NAME is the service account that the token belongs to,
which is created with its first token; changes are recorded under this name. The token
works wherever --token does, with its role, in its scope, until it expires. Its text is
shown once: the server stores a digest.`,
		Example: `  wheelwork token create ci --role deployer --app shop
  wheelwork token create billing --role producer --app-prefix billing- --ttl 30d -o json
  wheelwork token create prometheus --role scraper --cluster --ttl never`,
		Args: command.Arguments("NAME"),
	}
	s.addTo(cmd)
	cmd.Flags().StringVar(&ttl, "ttl", "", "how `long` the token is valid, as 30d or 12h, or never (default 90d, or as long as your own role lasts)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		where, err := s.text(cmd, c.appOf(cmd))
		if err != nil {
			return err
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			t, err := client.CreateToken(ctx, args[0], s.role, where, ttl)
			if err != nil {
				return err
			}
			return c.PrintOne(newTokenColumns, newTokenRecord(t))
		})(cmd, args)
	}
	return cmd
}

func (c *commands) listTokens() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the tokens that you may see, without their texts",
		Long: `List the tokens that you may see: those in whose whole scope you have the permission
access.read. With --app on the command line, only those that hold in this app.`,
		Args: command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, _ []string) error {
			all, err := client.Tokens(ctx, c.appOf(cmd))
			if err != nil {
				return err
			}
			return c.PrintAll(tokenColumns, output.Each(all, tokenRecord))
		}),
	}
}

func (c *commands) rotateToken() *cobra.Command {
	var keep, ttl string
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Give a token a new text, while the former one stays valid for a time",
		Long: `Give a token a new text, which is shown once. Role, scope and id stay. The former text
stays valid for a time, so that its programs can be changed one after another; with
--keep 0s it ends at once. The text before that one ends at once in any case.`,
		Example: `  wheelwork token rotate tok-abcdefgh
  wheelwork token rotate tok-abcdefgh --keep 0s --ttl 90d`,
		Args: command.Arguments("ID"),
	}
	cmd.Flags().StringVar(&keep, "keep", "", "how `long` the former text stays valid (default 24h)")
	cmd.Flags().StringVar(&ttl, "ttl", "", "how `long` the token is valid from now, or never (default: the expiry stays)")
	cmd.RunE = c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
		t, err := client.RotateToken(ctx, args[0], keep, ttl)
		if err != nil {
			return err
		}
		return c.PrintOne(newTokenColumns, newTokenRecord(t))
	})
	return cmd
}

func (c *commands) revokeToken() *cobra.Command {
	return &cobra.Command{
		Use:        "revoke ID",
		SuggestFor: []string{"delete", "remove"},
		Short:      "Remove a token; calls with it are refused at once",
		Args:       command.Arguments("ID"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if err := client.RevokeToken(ctx, args[0]); err != nil {
				return err
			}
			c.Note("token %s: revoked", args[0])
			return nil
		}),
	}
}

// generatedToken is the output about a token in a file, which alone contains it.
type generatedToken struct {
	File string `json:"file"`
}

func generateToken(printer *output.Printer) *cobra.Command {
	return &cobra.Command{
		Use:   "generate FILE",
		Short: "Write a new token for hosts and servers to a file that only you may read",
		Long: `Write a new token of 160 random bits to a file that only you may read (mode 0600).
No server is needed. A file that exists is not replaced.

Hosts and the processes that they join share one token (--token-file). The nameserver
and the servers share another one (--server-token-file), which hosts do not get.
Programs that call the API get a token from "wheelwork token create".`,
		Example: `  wheelwork token generate host-token
  wheelwork token generate server-token`,
		Args: command.Arguments("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := credential.GenerateToken(args[0]); err != nil {
				return err
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return printer.PrintOne([]string{"file"}, output.Object(generatedToken{path}, func() []output.Cell { return []output.Cell{{Text: path}} }))
		},
	}
}
