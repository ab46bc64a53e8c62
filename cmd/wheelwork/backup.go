package main

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

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/backup/archive"
	"github.com/wheelworkhq/wheelwork/node/offline"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *cli) backupCommand() *cobra.Command {
	var data string
	var force bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write all that a server keeps to a file, while it works or when it is stopped",
		Long: `Write all that a server keeps to a file: jobs, runs, history and logs, the code of
modules, secrets, calendars, what waits in the ingress, and the server's keys.
The server works on; what it acknowledged before the command is in the file. Of a
cluster any server is asked: it has all units, from whoever owns them.
FILE gets its name when it is whole and has been read back; "-" is standard
output. Whoever reads it can do what the administrator can: keep it so.

With --data the directory of a server that is stopped is read, without it the
server that --url names is asked.`,
		Example: `  wheelwork backup --url http://127.0.0.1:7700 monday.wwb
  wheelwork backup --data /var/lib/wheelwork monday.wwb`,
		Args: arguments("FILE"),
	}
	cmd.Flags().StringVar(&data, "data", "", "data `directory` of a stopped server (default the server at --url is asked)")
	cmd.Flags().BoolVar(&force, "force", false, "replace a FILE that is there")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		write := func(ctx context.Context, w io.Writer) error {
			_, err := offline.Backup(ctx, data, slog.New(slog.DiscardHandler), w)
			return err
		}
		if data == "" {
			return c.wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
				return c.backUp(ctx, args[0], force, client.Backup)
			})(cmd, args)
		}
		return c.backUp(cmd.Context(), args[0], force, write)
	}
	return cmd
}

// backUp writes a backup and verifies it while it is written. So a file with the final
// name can always be restored.
func (c *cli) backUp(ctx context.Context, file string, force bool, write func(context.Context, io.Writer) error) (err error) {
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
		res, err := archive.Check(ctx, r, c.bytesBar("back up"))
		_ = r.CloseWithError(errors.Join(errors.New("the backup does not read back"), err)) // writes after the end fail
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
func (c *cli) backupFile(file string, force bool) (to *os.File, done func(ok bool) error, err error) {
	if file == "-" {
		out, ok := c.out.(*os.File)
		if !ok {
			return nil, nil, errors.New("standard output is no file")
		}
		if terminal(out) {
			return nil, nil, &codedError{"usage", "a backup is not for a terminal: name a FILE, or send it to a program"}
		}
		return out, func(bool) error { return nil }, nil
	}
	if _, err := os.Stat(file); err == nil && !force {
		return nil, nil, &codedError{"already_exists", file + " is there: name another FILE, or replace it with --force"}
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

func (c *cli) bytesBar(what string) func(done, total int64) {
	if !terminal(c.err) {
		return nil
	}
	var shown bar
	return func(done, total int64) {
		if shown.shown == nil {
			shown = c.progress(total, what, true)
		}
		if shown.reached(done); done == total {
			shown.end()
		}
	}
}

// backupRow is the output about a backup. Other tools rely on the field names.
type backupRow struct {
	File    string  `json:"file"`
	Data    string  `json:"data,omitempty"` // directory of a restore
	Seconds float64 `json:"seconds"`
	archive.Restored
}

func (c *cli) printBackup(file string, r archive.Restored, took time.Duration) error {
	return c.printRestored(backupRow{File: file, Seconds: took.Seconds(), Restored: r})
}

func (c *cli) printRestored(r backupRow) error {
	key := "yes"
	if !r.Key {
		key = "no: keep the file of --secret-key-file yourself"
	}
	columns := []string{"file", "of server", "made at", "version", "units", "records up to", "files", "bytes", "modules", "in the ingress", "key of the secrets"}
	return c.printOne(columns, object(r, func() []cell {
		return []cell{
			{r.File, none},
			{r.Server, none},
			{r.MadeAt.Local().Format(time.RFC3339), none},
			{r.Version, none},
			{fmt.Sprint(max(r.Units, 1)), none},
			{fmt.Sprint(r.Applied), none},
			{fmt.Sprint(r.Files), none},
			{fmt.Sprint(r.Size), none},
			{fmt.Sprint(r.Modules), none},
			{fmt.Sprint(r.Ingress), none},
			{key, none},
		}
	}))
}

func (c *cli) restoreCommand() *cobra.Command {
	var data string
	var check bool
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a data directory from a backup",
		Long: `Make a data directory from a backup, for "wheelwork server --data" or, for a
cluster, "wheelwork cluster init --data" and the server after it. A directory
that is not empty is refused, and so is a backup that is damaged or cut short: it
leaves nothing behind. A restore that was interrupted is run again.`,
		Example: `  wheelwork restore monday.wwb --data /var/lib/wheelwork
  wheelwork restore monday.wwb --check`,
		Args: arguments("FILE"),
	}
	cmd.Flags().StringVar(&data, "data", "", "`directory` to make; an empty one may be there")
	cmd.Flags().BoolVar(&check, "check", false, "read the backup to its end and say what it holds, and restore nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if (data == "") == !check {
			return usage(cmd, "give --data, the directory to restore to, or --check")
		}
		var in io.Reader = c.in
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if errors.Is(err, fs.ErrNotExist) {
				return &codedError{"not_found", "there is no file " + args[0]}
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
			row.Restored, err = archive.Check(cmd.Context(), in, c.bytesBar("check"))
		} else {
			row.Restored, err = archive.Restore(cmd.Context(), in, data, c.bytesBar("restore"))
		}
		if err != nil {
			return err
		}
		row.Seconds = time.Since(start).Seconds()
		return c.printRestored(row)
	}
	return cmd
}
