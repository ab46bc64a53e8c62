package serve

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/verifier"
)

// verifierName is the hidden command that a server starts to verify an upload.
const verifierName = "upload-gate"

// verifierConfig returns the command line that starts this program as the upload verifier of a
// server.
func verifierConfig() verifier.Config {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	return verifier.Config{Command: []string{exe, verifierName}}
}

func verifierCommand() *cobra.Command {
	return &cobra.Command{
		Use:    verifierName,
		Short:  "Verify an upload; a server starts this command itself",
		Hidden: true,
		Args:   command.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return verifier.Child(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), os.NewFile(3, "alive"))
		},
	}
}
