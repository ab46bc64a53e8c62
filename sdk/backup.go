package sdk

import (
	"context"
	"errors"
	"io"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// BackupOptions say what a backup includes, and who can read it. With the zero value it
// includes the keys of the server if the server encrypts it for recipients of its own.
type BackupOptions struct {
	// Recipients are public keys of age (age1…), for which the server encrypts the backup.
	// Without any the server uses its own; if it has none, the backup is not encrypted.
	Recipients []string
	Keys       BackupKeys
	// PlaintextKeys accepts keys in a backup that is not encrypted.
	PlaintextKeys bool
}

// BackupKeys says whether a backup includes the tokens and keys of the server.
type BackupKeys = apiv1.BackupKeys

// Values of [BackupKeys].
const (
	BackupKeysIfEncrypted = apiv1.BackupKeys_BACKUP_KEYS_UNSPECIFIED
	BackupKeysIncluded    = apiv1.BackupKeys_BACKUP_KEYS_INCLUDED
	BackupKeysLeftOut     = apiv1.BackupKeys_BACKUP_KEYS_LEFT_OUT
	BackupKeysOnly        = apiv1.BackupKeys_BACKUP_KEYS_ONLY // and nothing else
)

// encryptedStart begins each encrypted backup.
const encryptedStart = "age-encryption.org/v1\n"

// Backup writes a backup of the server to w, in the format that `wheelwork restore`
// reads. It contains everything that was acknowledged before the call. The summary is that
// of an encrypted backup, and nil for others. After an error the bytes in w are not a
// valid backup.
func (c *Client) Backup(ctx context.Context, w io.Writer, opt BackupOptions) (*BackupSummary, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.backups.Backup(ctx, &apiv1.BackupRequest{Recipients: opt.Recipients, Keys: opt.Keys, PlaintextKeys: opt.PlaintextKeys})
	var summary *BackupSummary
	for first := true; err == nil; first = false {
		var chunk *apiv1.BackupChunk
		if chunk, err = stream.Recv(); err != nil {
			break
		}
		if first && len(opt.Recipients) > 0 && !strings.HasPrefix(string(chunk.GetData()), encryptedStart) {
			return nil, errors.New("back up the server: it is of a version that does not encrypt backups: bring it up to date")
		}
		if chunk.GetSummary() != nil {
			summary = chunk.GetSummary()
		}
		if _, err := w.Write(chunk.GetData()); err != nil {
			return nil, err
		}
	}
	if errors.Is(err, io.EOF) {
		if len(opt.Recipients) > 0 && summary == nil {
			return nil, errors.New("back up the server: the backup ended early: make it again")
		}
		return summary, nil
	}
	return nil, c.callError(ctx, "back up the server", err)
}

// Backups returns the backups that the servers make by themselves (--backup-dir), and the state
// of their plan.
func (c *Client) Backups(ctx context.Context) (*BackupPlan, error) {
	p, err := c.backups.GetBackups(ctx, &apiv1.GetBackupsRequest{})
	return p, c.callError(ctx, "list the backups", err)
}

// StartBackup starts a backup to the directory of --backup-dir. [Client.Backups] shows its
// progress and its result.
func (c *Client) StartBackup(ctx context.Context) (*BackupPlan, error) {
	p, err := c.backups.RunBackup(ctx, &apiv1.RunBackupRequest{})
	return p, c.callError(ctx, "start a backup", err)
}
