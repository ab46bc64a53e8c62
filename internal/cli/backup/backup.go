package backup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/node/offline"

	"github.com/spf13/cobra"

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
modules, secrets, calendars, commands that wait in the ingress, and the server's keys.
The server continues to work; the file has all that it acknowledged before the
command. Any server of a cluster can write the backup: it gets all partitions from
their owners. FILE gets its name when it is complete and has been read back; "-" is
standard output. A reader of the file has the rights of the administrator: protect it.

With --data the command reads the directory of a stopped server; without it, it asks
the server that --url names.`,
		Example: `  wheelwork backup --url http://127.0.0.1:7700 monday.wwb
  wheelwork backup --data /var/lib/wheelwork monday.wwb`,
		Args: command.Arguments("FILE"),
	}
	cmd.Flags().StringVar(&data, "data", "", "data `directory` of a stopped server (default: ask the server at --url)")
	cmd.Flags().BoolVar(&force, "force", false, "replace a FILE that exists")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		write := func(ctx context.Context, w io.Writer) error {
			_, err := offline.Backup(ctx, data, slog.New(slog.DiscardHandler), w)
			return err
		}
		if data == "" {
			return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
				return c.backUp(ctx, args[0], force, client.Backup)
			})(cmd, args)
		}
		return c.backUp(cmd.Context(), args[0], force, write)
	}
	return cmd
}

// backUp writes a backup and verifies it while it is written. So a file with the final
// name can always be restored.
func (c *commands) backUp(ctx context.Context, file string, force bool, write func(context.Context, io.Writer) error) (err error) {
	to, done, err := c.backupFile(file, force)
	if err != nil {
		return err
	}
	start := time.Now()
	defer func() { err = errors.Join(err, done(err == nil)) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	type found struct {
		res archive.Restored
		err error
	}
	checked := make(chan found, 1)
	go func() {
		res, err := archive.Check(ctx, r, c.Transfer("back up").Reached)
		_ = r.CloseWithError(errors.Join(errors.New("the backup cannot be read back"), err)) // writes after the end fail
		checked <- found{res, err}
	}()
	buffered := bufio.NewWriterSize(to, 1<<20)
	err = write(ctx, io.MultiWriter(buffered, w))
	_ = w.CloseWithError(err) // nil is its end
	got := <-checked
	if err != nil {
		return err
	}
	if err := errors.Join(got.err, buffered.Flush()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	if file == "-" {
		return nil
	}
	if err := to.Sync(); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return c.printBackup(file, got.res, time.Since(start))
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
	archive.Restored
}

func (c *commands) printBackup(file string, r archive.Restored, took time.Duration) error {
	return c.printRestored(backupRow{File: file, Seconds: took.Seconds(), Restored: r})
}

func (c *commands) printRestored(r backupRow) error {
	key := "yes"
	if !r.Key {
		key = "no: keep the file of --secret-key-file yourself"
	}
	columns := []string{"file", "of server", "made at", "version", "units", "records up to", "files", "bytes", "modules", "in the ingress", "key of the secrets"}
	return c.PrintOne(columns, output.Object(r, func() []output.Cell {
		return []output.Cell{
			{Text: r.File},
			{Text: r.Server},
			{Text: r.MadeAt.Local().Format(time.RFC3339)},
			{Text: r.Version},
			{Text: fmt.Sprint(max(r.Units, 1))},
			{Text: fmt.Sprint(r.Applied)},
			{Text: fmt.Sprint(r.Files)},
			{Text: fmt.Sprint(r.Size)},
			{Text: fmt.Sprint(r.Modules)},
			{Text: fmt.Sprint(r.Ingress)},
			{Text: key},
		}
	}))
}

func (c *commands) restore() *cobra.Command {
	var data string
	var check bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Create a data directory from a backup",
		Long: `Create a data directory from a backup, for "wheelwork server --data" or, for a
cluster, "wheelwork cluster init --data" and the server after it. The command refuses
a directory that is not empty. It also refuses a backup that is damaged or truncated,
and then leaves nothing behind. Run an interrupted restore again.`,
		Example: `  wheelwork restore monday.wwb --data /var/lib/wheelwork
  wheelwork restore monday.wwb --check`,
		Args: command.Arguments("FILE"),
	}
	cmd.Flags().StringVar(&data, "data", "", "`directory` to create; an empty one may exist")
	cmd.Flags().BoolVar(&check, "check", false, "read the whole backup and show what it has, without a restore")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if (data == "") == !check {
			return command.Usage(cmd, "give --data, the directory to restore to, or --check")
		}
		in := cmd.InOrStdin()
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if errors.Is(err, fs.ErrNotExist) {
				return command.Fail("not_found", "there is no file %s", args[0])
			}
			if err != nil {
				return err
			}
			defer f.Close() //nolint:errcheck // only read
			in = f
		}
		row := backupRow{File: args[0], Data: data}
		start := time.Now()
		if check {
			row.Restored, err = archive.Check(cmd.Context(), in, c.Transfer("check").Reached)
		} else {
			row.Restored, err = archive.Restore(cmd.Context(), in, data, c.Transfer("restore").Reached)
		}
		if err != nil {
			return err
		}
		row.Seconds = time.Since(start).Seconds()
		return c.printRestored(row)
	}
	return cmd
}
