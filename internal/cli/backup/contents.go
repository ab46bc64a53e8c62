package backup

import (
	"github.com/spf13/cobra"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
)

// addContents adds the flags for the contents of a backup and its readers. The
// returned function checks them.
func addContents(cmd *cobra.Command) func(*cobra.Command) (*apiv1.BackupRequest, error) {
	var recipients []string
	var with, only, plaintext bool
	flags := cmd.Flags()
	flags.StringSliceVar(&recipients, "recipient", nil, "`public key` of age, as age-keygen prints it, for which the backup is encrypted; give several to let each owner open it (default the server's --backup-recipient)")
	flags.BoolVar(&with, "with-keys", false, "fail rather than leave the server's keys out; --with-keys=false leaves them out of an encrypted backup too")
	flags.BoolVar(&only, "only-keys", false, "write the server's keys and nothing else, for \"wheelwork restore --keys\"")
	flags.BoolVar(&plaintext, "plaintext-keys", false, "accept keys in a FILE that is not encrypted")
	return func(cmd *cobra.Command) (*apiv1.BackupRequest, error) {
		req := &apiv1.BackupRequest{Recipients: recipients, PlaintextKeys: plaintext}
		_, err := encryption.ParseRecipients(recipients)
		wants := cmd.Flags().Changed("with-keys")
		switch {
		case err != nil:
			return nil, command.Usage(cmd, "--recipient: %v", err)
		case only && wants:
			return nil, command.Usage(cmd, "--only-keys and --with-keys exclude each other")
		case plaintext && len(recipients) > 0:
			return nil, command.Usage(cmd, "--plaintext-keys and --recipient exclude each other: with a recipient the backup is encrypted")
		case plaintext && !with && !only:
			return nil, command.Usage(cmd, "--plaintext-keys is for --with-keys or --only-keys")
		}
		switch {
		case only:
			req.Keys = apiv1.BackupKeys_BACKUP_KEYS_ONLY
		case wants && with:
			req.Keys = apiv1.BackupKeys_BACKUP_KEYS_INCLUDED
		case wants:
			req.Keys = apiv1.BackupKeys_BACKUP_KEYS_LEFT_OUT
		}
		return req, nil
	}
}
