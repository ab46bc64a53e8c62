package cli

import (
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/internal/credential"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
)

func tokenCommand(printer *output.Printer) *cobra.Command {
	return command.Group("token", "Create the tokens that processes authenticate with", generateToken(printer))
}

// generatedToken is the output about a new token; only the file contains the token.
type generatedToken struct {
	File string `json:"file"`
}

func generateToken(printer *output.Printer) *cobra.Command {
	return &cobra.Command{
		Use:        "generate FILE",
		SuggestFor: []string{"create", "new", "make"},
		Short:      "Write a new token to a file that only you may read",
		Long: `Write a new token of 160 random bits to a file that only you may read (mode 0600).
No server is needed. A file that exists is not replaced.

Hosts and the processes that they join share one token (--token-file). The nameserver
and the servers share another one (--server-token-file), which hosts do not get.`,
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
