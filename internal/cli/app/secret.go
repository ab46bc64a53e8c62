package app

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

var secretColumns = []string{"name", "version", "created at", "updated at"}

func secretRecord(s *sdk.Secret) output.Record {
	return output.Message(s, func() []output.Cell {
		return []output.Cell{
			{Text: s.GetName()},
			{Text: strconv.FormatInt(s.GetVersion(), 10)},
			{Text: output.Time(s.GetCreatedAt())},
			{Text: output.Time(s.GetUpdatedAt())},
		}
	})
}

func (c *commands) setSecret() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Create or replace a secret; its value comes from standard input or a file",
		Long: `Create or replace a secret. Its value is read from standard input, without the
line break at its end, or from a file as it is. It is never an argument: the
history of the shell and the list of processes show arguments. No command shows
the value; a handler gets it when its module requests it and a grant allows it.`,
		Example: `  wheelwork secret set api-token
  printf %s "$TOKEN" | wheelwork secret set api-token
  wheelwork secret set tls-key --file key.pem`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 { // the argument is probably the value, so the error does not repeat it
				return command.Usage(cmd, "the value of a secret is not an argument: give it on standard input, as in \"printf %%s VALUE | wheelwork secret set NAME\", or with --file")
			}
			return command.Arguments("NAME")(cmd, args)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "`file` with the value (default standard input)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		value, err := readSecret(cmd, args[0], file)
		if err != nil {
			return err
		}
		if len(value) == 0 {
			return fmt.Errorf("the value is empty: `wheelwork secret delete` removes a secret")
		}
		return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			s, err := client.SetSecret(ctx, c.App, args[0], value)
			if err != nil {
				return err
			}
			return c.PrintOne(secretColumns, secretRecord(s))
		})(cmd, args)
	}
	return cmd
}

// readSecret reads a value from a file, or from a person without echo.
func readSecret(cmd *cobra.Command, name, file string) ([]byte, error) {
	if file != "" {
		value, err := readBounded(cmd.InOrStdin(), file, maxValueFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return value, nil
	}
	if text, ok, err := command.TypeSecret(cmd, "value of "+name); ok {
		return []byte(text), err
	}
	value, err := readBounded(cmd.InOrStdin(), "-", maxValueFile+2)
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r")), nil
}

func (c *commands) listSecrets() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the names, versions and times of secrets",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			secrets, err := client.Secrets(ctx, c.App)
			if err != nil {
				return err
			}
			return c.PrintAll(secretColumns, output.Each(secrets, secretRecord))
		}),
	}
}

func (c *commands) deleteSecret() *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a secret",
		Args:  command.Arguments("NAME"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if err := client.DeleteSecret(ctx, c.App, args[0]); err != nil {
				return err
			}
			c.Note("secret %s: deleted", args[0])
			return nil
		}),
	}
}
