// Package migrate has the command "import": the jobs of other schedulers as documents.
package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/importer"
	"github.com/wheelworkhq/wheelwork/importer/database"
	"github.com/wheelworkhq/wheelwork/importer/dump"
	"github.com/wheelworkhq/wheelwork/importer/rows"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

type commands struct {
	*output.Printer
	getenv func(string) string
}

// Command returns the command "import".
func Command(printer *output.Printer, getenv func(string) string) *cobra.Command {
	c := &commands{printer, getenv}
	group := command.Group("import", "Turn the jobs of another scheduler into documents, without a server")
	group.SuggestFor = []string{"migrate", "convert"}
	for _, s := range importer.Sources() {
		group.AddCommand(c.tables(s))
	}
	group.AddCommand(c.files()...)
	return group
}

// flags are the flags that all sources share.
type flags struct {
	importer.Options
	zone, scripts string
}

func (f *flags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.zone, "zone", "", "IANA time `zone` of the old scheduler's processes, as Asia/Shanghai (default UTC)")
	cmd.Flags().StringVar(&f.App, "app", "", "app of the documents (default: they name none)")
	cmd.Flags().StringVar(&f.MailServer, "mail-server", "", "server for alerts by mail, as smtp://mail.example.com")
	cmd.Flags().StringVar(&f.MailFrom, "mail-from", "", "sender of alerts by mail")
	cmd.Flags().StringVar(&f.scripts, "scripts", "", "write scripts of jobs to this new or empty `folder`")
}

func (f *flags) read(cmd *cobra.Command) error {
	f.Now = time.Now()
	if (f.MailServer == "") != (f.MailFrom == "") {
		return command.Usage(cmd, "--mail-server and --mail-from go together")
	}
	if f.zone == "" {
		return nil
	}
	in, err := cron.LoadZone(f.zone)
	if err != nil {
		return command.Usage(cmd, "--zone: %v", err)
	}
	f.Zone = in
	return nil
}

const help = `Documents go to standard output, for "wheelwork apply -f -". All jobs are paused. The label
import/state says which of them were running. The report goes to standard error, with -o
json as JSON: one line for each field that was kept, that means something else (changed),
that cannot be expressed (lost), or after which a person has to act (to do); and a
comparison of the next 20 times of each schedule by the rule of the source.

The exit code is 0 unless nothing could be read.`

func (c *commands) tables(s importer.Source) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   s.Name + " DSN|FILE",
		Short: "Import jobs from the database of " + s.Title + ", or from a dump of it",
		Long: "Import the jobs of " + s.Title + ` from its database (mysql://, mariadb:// or postgres://, or
USER:PASSWORD@tcp(HOST:PORT)/NAME), or from a file that mysqldump or pg_dump has written; -
is standard input. The database is only read. Without a password in the address that of
MYSQL_PWD or PGPASSWORD is used.

` + help,
		Example: "  wheelwork import " + s.Name + " dump.sql --zone Asia/Shanghai > jobs.yaml\n" +
			"  MYSQL_PWD=… wheelwork import " + s.Name + " mysql://reader@127.0.0.1:3306/scheduler --zone Asia/Shanghai > jobs.yaml",
		Args: command.Arguments("DSN|FILE"),
	}
	f.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.read(cmd); err != nil {
			return err
		}
		tables, err := c.read(cmd.Context(), cmd.InOrStdin(), args[0], s.Wants)
		if err != nil {
			return command.Fail("failed", "%v", err)
		}
		result, err := s.Import(tables, f.Options)
		if err != nil {
			return command.Fail("not_found", "%v: these are not the tables of %s", err, s.Title)
		}
		return c.write(result, f.scripts)
	}
	return cmd
}

// read reads the tables from a database or a dump.
func (c *commands) read(ctx context.Context, in io.Reader, from string, wanted func(string) bool) (rows.Tables, error) {
	if database.Is(from) {
		variable := "MYSQL_PWD"
		if strings.HasPrefix(from, "postgres") {
			variable = "PGPASSWORD"
		}
		return database.Read(ctx, from, c.getenv(variable), wanted)
	}
	if from != "-" {
		f, err := os.Open(from)
		if err != nil {
			return nil, err
		}
		defer f.Close() //nolint:errcheck // only read
		in = f
	}
	return dump.Read(in, wanted)
}

// maxFile bounds a crontab or a manifest.
const maxFile = 64 << 20

// files returns the commands for sources that are files.
func (c *commands) files() []*cobra.Command {
	crontab := c.file("crontab", "Import the lines of a crontab",
		`Import the commands of a crontab of a user, or with --user-column one of the system, as
/etc/crontab. Each command becomes a script: --scripts writes the scripts, and commands.yaml
for the flag --commands of a host.`,
		"  crontab -l | wheelwork import crontab - --zone Europe/Berlin --scripts scripts > jobs.yaml", importer.Crontab)
	kubernetes := c.file("kubernetes", "Import the CronJobs of a manifest",
		`Import the CronJobs of manifests in YAML or JSON. A container is no handler: the jobs name
a handler that is still to be written.`,
		"  kubectl get cronjobs -o yaml | wheelwork import kubernetes - > jobs.yaml", importer.Kubernetes)
	return []*cobra.Command{crontab, kubernetes}
}

func (c *commands) file(name, short, long, example string, convert func([]byte, importer.Options) (*importer.Result, error)) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use: name + " FILE", Short: short, Long: long + "\n\n" + help, Example: example, Args: command.Arguments("FILE"),
	}
	f.add(cmd)
	if name == "crontab" {
		cmd.Flags().BoolVar(&f.UserColumn, "user-column", false, "the lines name a user before the command, as in /etc/crontab")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := f.read(cmd); err != nil {
			return err
		}
		in := cmd.InOrStdin()
		if args[0] != "-" {
			file, err := os.Open(args[0])
			if err != nil {
				return command.Fail("failed", "%v", err)
			}
			defer file.Close() //nolint:errcheck // only read
			in = file
		}
		text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
		if err == nil && len(text) > maxFile {
			err = fmt.Errorf("the file is larger than %d MiB", maxFile>>20)
		}
		if err != nil {
			return command.Fail("failed", "%v", err)
		}
		result, err := convert(text, f.Options)
		if err != nil {
			return command.Fail("failed", "%v", err)
		}
		return c.write(result, f.scripts)
	}
	return cmd
}

// write prints the documents and the report, and writes the scripts.
func (c *commands) write(r *importer.Result, folder string) error {
	if folder != "" {
		if err := writeScripts(folder, r.Files); err != nil {
			return command.Fail("failed", "%v", err)
		}
	} else if len(r.Files) > 0 {
		c.Note("%s not written: give --scripts FOLDER", command.Count(len(r.Files), "script"))
	}
	text, err := document.Marshal(r.Documents...)
	if err != nil {
		return err
	}
	if _, err := c.Out.Write(text); err != nil {
		return err
	}
	return c.report(r)
}

// writeScripts writes files into a folder that has none yet.
func writeScripts(folder string, files []importer.File) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("the folder %s is not empty", folder)
	}
	for _, f := range files {
		mode := os.FileMode(0o600)
		if f.Executable {
			mode = 0o700
		}
		if err := os.WriteFile(filepath.Join(folder, filepath.Base(f.Name)), f.Text, mode); err != nil {
			return err
		}
	}
	return nil
}

// report prints the report to standard error.
func (c *commands) report(r *importer.Result) error {
	p := *c.Printer
	p.Out = p.Err
	if p.Format == output.JSON || p.Format == output.JSONL {
		e := json.NewEncoder(p.Err)
		e.SetEscapeHTML(false)
		return e.Encode(struct {
			Lines []importer.Line       `json:"lines"`
			Fires []importer.Comparison `json:"fires"`
		}{append([]importer.Line{}, r.Lines...), append([]importer.Comparison{}, r.Fires...)})
	}
	if p.Format != output.Table {
		return errors.New("the report is a table or JSON")
	}
	tints := map[importer.Outcome]output.Tint{importer.Todo: output.Red}
	counts := map[importer.Outcome]int{}
	err := p.PrintAll([]string{"object", "field", "outcome", "text"}, output.Each(r.Lines, func(l importer.Line) output.Record {
		counts[l.Outcome]++
		return output.Object(l, func() []output.Cell {
			return []output.Cell{{Text: l.Object}, {Text: l.Field}, {Text: string(l.Outcome), Tint: tints[l.Outcome]}, {Text: l.Text}}
		})
	}))
	equal := 0
	for _, x := range r.Fires {
		if x.Equal {
			equal++
		}
	}
	c.Note("%s; fields: %d kept, %d changed, %d lost, %d to do; next times: equal for %d of %s", command.Count(len(r.Documents), "document"),
		counts[importer.Kept], counts[importer.Changed], counts[importer.Lost], counts[importer.Todo], equal, command.Count(len(r.Fires), "schedule"))
	return err
}
