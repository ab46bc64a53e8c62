package backup

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/credential"
)

func (c *commands) restore() *cobra.Command {
	var data, identity, keyFile string
	var check bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Create a data directory from a backup",
		Long: `Create a data directory from a backup, for "wheelwork server --data" or, for a
cluster, "wheelwork cluster init --data" and the server after it. The command refuses
a directory that is not empty. It also refuses a backup that is damaged or truncated,
and then leaves nothing behind. Run an interrupted restore again.

--identity opens an encrypted backup. --keys adds the server's keys from an export of
"wheelwork backup --only-keys", or from another backup; without keys the command says
what the restored server lacks.`,
		Example: `  wheelwork restore monday.wwb --identity backup-key.txt --data /var/lib/wheelwork
  wheelwork restore monday.wwb --keys keys.wwb --identity backup-key.txt --data /var/lib/wheelwork
  wheelwork restore monday.wwb --check`,
		Args: command.Arguments("FILE"),
	}
	cmd.Flags().StringVar(&data, "data", "", "`directory` to create; an empty one may exist")
	cmd.Flags().BoolVar(&check, "check", false, "read the whole backup and show what it has, without a restore")
	cmd.Flags().StringVar(&identity, "identity", "", "`file` with the private keys of age that open the backup and the file of --keys")
	cmd.Flags().StringVar(&keyFile, "keys", "", "`file` with the server's keys, which replace those of the backup")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		switch {
		case (data == "") == !check:
			return command.Usage(cmd, "give --data, the directory to restore to, or --check")
		case check && keyFile != "":
			return command.Usage(cmd, "--keys is for --data; check an export of keys with `wheelwork restore %s --check`", keyFile)
		case args[0] == "-" && keyFile == "-":
			return command.Usage(cmd, "the backup and --keys cannot both be standard input")
		}
		ids, err := readIdentities(identity)
		if err != nil {
			return err
		}
		keys, err := readKeys(cmd, keyFile, ids)
		if err != nil {
			return err
		}
		in, err := openBackup(cmd, args[0], ids)
		if err != nil {
			return err
		}
		defer in.Close() //nolint:errcheck // only read
		row := backupRow{File: args[0], Data: data, Encrypted: in.encrypted}
		start := time.Now()
		if check {
			row.Restored, err = archive.Check(cmd.Context(), in, c.Transfer("check").Reached)
		} else {
			row.Restored, err = archive.Restore(cmd.Context(), in, data, keys, c.Transfer("restore").Reached)
		}
		if err != nil {
			return err
		}
		row.Seconds = time.Since(start).Seconds()
		if !check {
			c.noteMissing(row.Keys)
		}
		return c.printRestored(row)
	}
	return cmd
}

// noteMissing says what a restored directory lacks, and what to do.
func (c *commands) noteMissing(keys []string) {
	missing := archive.MissingKeys(keys)
	if len(missing) == 0 {
		return
	}
	c.Note("the restored directory lacks keys. To have them, restore to another directory with --keys FILE, from an export of keys or a backup that has them. Without them:")
	for _, m := range missing {
		c.Note("  %s: %s", m.Name, m.Without)
	}
}

// readIdentities reads the file of --identity; "" names none.
func readIdentities(path string) (ids encryption.Identities, err error) {
	if path == "" {
		return ids, nil
	}
	f, err := credential.OpenPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ids, command.Fail("not_found", "--identity: there is no file %s", path)
	}
	if err != nil {
		return ids, fmt.Errorf("--identity: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	if ids, err = encryption.ParseIdentities(f); err != nil {
		return ids, fmt.Errorf("--identity %s: %w", path, err)
	}
	return ids, nil
}

// readKeys reads the file of --keys; "" names none.
func readKeys(cmd *cobra.Command, path string, ids encryption.Identities) (archive.KeySet, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // the zero value of the set
	}
	in, err := openBackup(cmd, path, ids)
	if err != nil {
		return nil, fmt.Errorf("--keys: %w", err)
	}
	defer in.Close() //nolint:errcheck // only read
	keys, err := archive.ReadKeys(cmd.Context(), in)
	if err != nil {
		return nil, fmt.Errorf("--keys %s: %w", path, err)
	}
	return keys, nil
}

// openedBackup is the decrypted contents of a file.
type openedBackup struct {
	io.Reader
	io.Closer
	encrypted bool
}

// openBackup opens a backup; "-" is standard input.
func openBackup(cmd *cobra.Command, path string, ids encryption.Identities) (*openedBackup, error) {
	o := &openedBackup{Closer: io.NopCloser(nil)}
	in := cmd.InOrStdin()
	if path != "-" {
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, command.Fail("not_found", "there is no file %s", path)
		}
		if err != nil {
			return nil, err
		}
		in, o.Closer = f, f
	}
	var err error
	if o.Reader, o.encrypted, err = encryption.Open(in, ids); err == nil {
		return o, nil
	}
	o.Close() //nolint:errcheck // only read
	if errors.Is(err, encryption.ErrEncrypted) {
		return nil, command.Fail("failed_precondition", "%s is encrypted: name the file with the private key of one of its recipients with --identity", path)
	}
	return nil, fmt.Errorf("open %s: %w", path, err)
}
