package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *cli) secretCommand() *cobra.Command {
	return group("secret", "Store secrets for handlers; no command shows their values", c.secretSet(), c.secretList(), c.secretDelete())
}

var secretColumns = []string{"name", "version", "created at", "updated at"}

func secretRecord(s *sdk.Secret) record {
	return message(s, func() []cell {
		return []cell{
			{s.GetName(), none},
			{strconv.FormatInt(s.GetVersion(), 10), none},
			{moment(s.GetCreatedAt()), none},
			{moment(s.GetUpdatedAt()), none},
		}
	})
}

func (c *cli) secretSet() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Create or replace a secret; its value comes from standard input or a file",
		Long: `Create or replace a secret. Its value is read from standard input, without the
line break at its end, or from a file as it is. It is never an argument: those
stand in the history of the shell and in the list of processes. No command shows
it again; a handler gets it when its module asks for it and was granted it.`,
		Example: `  wheelwork secret set api-token
  printf %s "$TOKEN" | wheelwork secret set api-token
  wheelwork secret set tls-key --file key.pem`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 { // the argument is probably the value, so the error does not repeat it
				return usage(cmd, "the value of a secret is no argument: give it on standard input, as in \"printf %%s VALUE | wheelwork secret set NAME\", or with --file")
			}
			return arguments("NAME")(cmd, args)
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "`file` with the value (default standard input)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		value, err := c.readSecret(args[0], file)
		if err != nil {
			return err
		}
		if len(value) == 0 {
			return fmt.Errorf("the value is empty: `wheelwork secret delete` removes a secret")
		}
		return c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			s, err := client.SetSecret(ctx, c.app, args[0], value)
			if err != nil {
				return err
			}
			return c.printOne(secretColumns, secretRecord(s))
		})(cmd, args)
	}
	return cmd
}

// readSecret reads a value from a file, or from a person without echo.
func (c *cli) readSecret(name, file string) ([]byte, error) {
	if file != "" {
		value, err := c.readBounded(file, maxValueFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		return value, nil
	}
	if f, ok := c.in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprintf(c.err, "value of %s: ", name) //nolint:errcheck // the question is a courtesy
		value, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(c.err) //nolint:errcheck // the question is a courtesy
		return value, err
	}
	value, err := c.readBounded("-", maxValueFile+2)
	if err != nil {
		return nil, fmt.Errorf("standard input: %w", err)
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(value, []byte("\n")), []byte("\r")), nil
}

func (c *cli) secretList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the names, versions and times of secrets",
		Args:  arguments(),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			secrets, err := client.Secrets(ctx, c.app)
			if err != nil {
				return err
			}
			return c.printAll(secretColumns, func(yield func(record, error) bool) {
				for _, s := range secrets {
					if !yield(secretRecord(s), nil) {
						return
					}
				}
			})
		}),
	}
}

func (c *cli) secretDelete() *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a secret",
		Args:  arguments("NAME"),
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if err := client.DeleteSecret(ctx, c.app, args[0]); err != nil {
				return err
			}
			c.note("secret %s: deleted", args[0])
			return nil
		}),
	}
}
