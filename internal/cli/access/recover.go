package access

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/node/offline"
)

// recovered is the output of a recovery.
type recovered struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// recoverAccess is a command that needs the files of the server and no server.
func recoverAccess(printer *output.Printer) *cobra.Command {
	data := ""
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Become the administrator of a stopped server for an hour, with its files",
		Long: `Make a token that is an administrator for one hour, when nobody can sign in any other way.
Stop the server first: the command writes a digest of the token to its data directory, and the
server accepts the token from its next start. The use of the token is in the audit log, and so
are the changes that are made with it.`,
		Example: `  wheelwork access recover --data /var/lib/wheelwork-server
  wheelwork user create ada --token wwk_...
  wheelwork binding add ada --role admin --cluster --token wwk_...`,
		Args: command.Arguments(),
	}
	cmd.Flags().StringVar(&data, "data", "wheelwork-data", "`directory` of the server's data")
	cmd.RunE = func(*cobra.Command, []string) error {
		token, until, err := offline.Recover(data, time.Now())
		if err != nil {
			return err
		}
		return printer.PrintOne([]string{"token", "expires at"}, output.Object(recovered{token, until}, func() []output.Cell {
			return []output.Cell{{Text: token}, {Text: until.Format(time.RFC3339)}}
		}))
	}
	return cmd
}
