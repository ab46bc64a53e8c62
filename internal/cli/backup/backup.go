package backup

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/backup/encryption"
	"github.com/wheelworkhq/wheelwork/node/offline"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// commands are the commands about backups.
type commands struct {
	*output.Printer
	*connect.Server
}

// Commands returns the commands "backup" and "restore".
func Commands(printer *output.Printer, server *connect.Server) []*cobra.Command {
	c := &commands{printer, server}
	return []*cobra.Command{c.backup(), c.restore()}
}

func (c *commands) backup() *cobra.Command {
	var data string
	var force bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write all data of a server to a file, while it runs or when it is stopped",
		Long: `Write all data of a server to a file: jobs, runs, history and logs, the code of
modules, secrets, calendars, and commands that wait in the ingress. The server
continues to work; the file has all that it acknowledged before the command. Any
server of a cluster can write the backup: it gets all partitions from their owners.
FILE gets its name when it is complete and has been read back; "-" is standard output.

With --recipient the server encrypts the backup with age, for the owner of the private
key, and the backup includes the server's keys: its tokens, and the key of the secrets.
A backup that is not encrypted leaves the keys out: the secrets in it can be read only
with the key that the server has. Store an export of the keys (--only-keys) elsewhere
then. A reader of the keys has the rights of the administrator.

With --data the command reads the directory of a stopped server, and encrypts itself;
without it, it asks the server that --url names.

"wheelwork server --backup-dir DIR --backup-at SCHEDULE" makes backups without the command:
"backup list" shows them, and "backup now" starts one.`,
		Example: `  wheelwork backup --url http://127.0.0.1:7700 --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p monday.wwb
  wheelwork backup --data /var/lib/wheelwork monday.wwb
  wheelwork backup --only-keys --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p keys.wwb`,
		Args: command.Arguments("FILE"),
	}
	cmd.Flags().StringVar(&data, "data", "", "data `directory` of a stopped server (default: ask the server at --url)")
	cmd.Flags().BoolVar(&force, "force", false, "replace a FILE that exists")
	request := addContents(cmd)
	cmd.AddCommand(c.list(), c.now())
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		req, err := request(cmd)
		if err != nil {
			return err
		}
		if data != "" {
			return c.backUp(cmd.Context(), args[0], force, req, offlineBackup(data, req))
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			return c.backUp(ctx, args[0], force, req, func(ctx context.Context, w io.Writer, progress func(done, total int64)) (made, error) {
				return askBackup(ctx, client, req, w, progress)
			})
		})(cmd, args)
	}
	return cmd
}

// made is a backup that was written.
type made struct {
	archive.Restored
	encrypted bool
}

// offlineBackup writes a backup of the data directory of a stopped server.
func offlineBackup(data string, req *apiv1.BackupRequest) func(context.Context, io.Writer, func(done, total int64)) (made, error) {
	return func(ctx context.Context, w io.Writer, progress func(done, total int64)) (made, error) {
		order, err := archive.OrderOf(req, encryption.Recipients{})
		if errors.Is(err, archive.ErrPlaintextKeys) {
			return made{}, command.Fail("failed_precondition", "%v", err)
		}
		if err != nil {
			return made{}, err
		}
		to, err := order.Recipients.Encrypt(w)
		if err != nil {
			return made{}, err
		}
		res, err := archive.Verified(ctx, to, progress, func(ctx context.Context, w io.Writer) error {
			_, err := offline.Backup(ctx, data, slog.New(slog.DiscardHandler), order.Keys, w)
			return err
		})
		if err == nil {
			err = to.Close()
		}
		return made{res, order.Recipients.Any()}, err
	}
}

// askBackup gets a backup from a server.
func askBackup(ctx context.Context, client *sdk.Client, req *apiv1.BackupRequest, w io.Writer, progress func(done, total int64)) (made, error) {
	var summary *sdk.BackupSummary
	res, err := archive.Verified(ctx, w, progress, func(ctx context.Context, w io.Writer) (err error) {
		summary, err = client.Backup(ctx, w, sdk.BackupOptions{Recipients: req.Recipients, Keys: req.Keys, PlaintextKeys: req.PlaintextKeys})
		return err
	})
	switch {
	case err != nil:
		return made{}, err
	case summary != nil:
		return made{archive.Summarized(summary), true}, nil
	case len(res.Keys) > 0 && !req.PlaintextKeys:
		return made{}, errors.New("the server is of a version that includes its keys in each backup, and does not encrypt it: bring it up to date, or accept that each reader of the file has the keys with --with-keys --plaintext-keys")
	}
	return made{res, false}, nil
}

// backUp writes a backup, which is verified while it is written. So a file with the final
// name can always be restored.
func (c *commands) backUp(ctx context.Context, file string, force bool, req *apiv1.BackupRequest, write func(context.Context, io.Writer, func(done, total int64)) (made, error)) (err error) {
	to, done, err := c.backupFile(file, force)
	if err != nil {
		return err
	}
	start := time.Now()
	defer func() { err = errors.Join(err, done(err == nil)) }()
	buffered := bufio.NewWriterSize(to, 1<<20)
	got, err := write(ctx, buffered, c.Transfer("back up").Reached)
	if err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	c.noteKeys(req, got)
	if file == "-" {
		return nil
	}
	if err := to.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return c.printRestored(backupRow{File: file, Seconds: time.Since(start).Seconds(), Encrypted: got.encrypted, Restored: got.Restored})
}

// noteKeys says what a reader of a backup can do, and what a backup without keys lacks.
func (c *commands) noteKeys(req *apiv1.BackupRequest, m made) {
	if len(m.Keys) > 0 && !m.Key {
		c.Note("the server has the key of the secrets elsewhere (--secret-key-file), and the file does not include it: keep it apart, because without it the secrets of apps cannot be read")
	}
	switch {
	case m.encrypted && len(req.Recipients) == 0:
		c.Note("the server encrypted the backup for the recipients of its setting --backup-recipient: `wheelwork restore` needs the identity of one of them")
	case !m.encrypted && len(m.Keys) > 0:
		c.Note("the file holds keys and is not encrypted: each reader of it has the rights of the administrator, and can read the secrets of apps")
	case len(m.Keys) == 0 && req.Keys != sdk.BackupKeysLeftOut:
		c.Note("the backup has no keys: without the server's secret.key the secrets of apps in it cannot be read, and a restored server has other tokens. Include the keys with --recipient, or store them apart with `wheelwork backup --only-keys --recipient KEY FILE`")
	}
}

// backupFile opens a temporary file beside the requested one; done renames it.
func (c *commands) backupFile(file string, force bool) (to *os.File, done func(ok bool) error, err error) {
	if file == "-" {
		out, ok := c.Out.(*os.File)
		if !ok {
			return nil, nil, errors.New("standard output is not a file")
		}
		if output.IsTerminal(out) {
			return nil, nil, command.Fail("usage", "a backup is not for a terminal: name a FILE, or send it to a program")
		}
		return out, func(bool) error { return nil }, nil
	}
	if _, err := os.Stat(file); err == nil && !force {
		return nil, nil, command.Fail("already_exists", "%s exists: name another FILE, or replace it with --force", file)
	}
	to, err = os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".partial-*")
	if err != nil {
		return nil, nil, err
	}
	return to, func(ok bool) error {
		if err := to.Close(); err != nil || !ok {
			return errors.Join(err, os.Remove(to.Name()))
		}
		return os.Rename(to.Name(), file)
	}, nil
}

// backupRow is the output about a backup. Other tools rely on the field names.
type backupRow struct {
	File    string  `json:"file"`
	Data    string  `json:"data,omitempty"` // directory of a restore
	Seconds float64 `json:"seconds"`
	// Encrypted says whether the file is encrypted.
	Encrypted bool `json:"encrypted"`
	archive.Restored
}

func (c *commands) printRestored(r backupRow) error {
	yes := map[bool]string{true: "yes", false: "no"}
	keys := strings.Join(r.Keys, ", ")
	columns := []string{"file", "encrypted", "of server", "made at", "version", "units", "records up to", "files", "bytes", "modules", "in the ingress", "keys", "key of the secrets"}
	return c.PrintOne(columns, output.Object(r, func() []output.Cell {
		return []output.Cell{
			{Text: r.File},
			{Text: yes[r.Encrypted]},
			{Text: r.Server},
			{Text: r.MadeAt.Local().Format(time.RFC3339)},
			{Text: r.Version},
			{Text: fmt.Sprint(max(r.Units, 1))},
			{Text: fmt.Sprint(r.Applied)},
			{Text: fmt.Sprint(r.Files)},
			{Text: fmt.Sprint(r.Size)},
			{Text: fmt.Sprint(r.Modules)},
			{Text: fmt.Sprint(r.Ingress)},
			{Text: cmp.Or(keys, "none")},
			{Text: yes[r.Key]},
		}
	}))
}
