package mq

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/ingress"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/node/offline"
	"github.com/wheelworkhq/wheelwork/store"
)

func (c *commands) verify() *cobra.Command {
	var log string
	cmd := &cobra.Command{
		Use:   "verify [DIR]",
		Short: "Read whole logs and report damage; exit code 1 if there is any",
		Long: `Read whole logs and report damage. With DIR, the data directory of a server or host
that is down or the directory of one log or queue, the command reads the files there
and changes none. Without DIR, the server checks its logs while it works.

In the data directory of a server it also reads the store: "view", the database,
and whether the journal belongs to it; "snapshots"; "history", the runs that have
ended; "keys", the idempotency keys; "revisions", the changes of definitions;
"audit", the audit events; and "logs", the lines of runs. A server of a cluster also has them for each further
partition: "units/NAME/view" and so on. The journals of these are in etcd and are not
compared.

Exit code 0: every record is intact. A torn tail, which a crash leaves and the next
start removes, is listed and is not damage. Exit code 1: something is damaged or
cannot be read.`,
		Example: `  wheelwork mq verify
  wheelwork mq verify --log journal -o json
  wheelwork mq verify /var/lib/wheelwork`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return command.Usage(cmd, "unexpected argument %q", args[1])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&log, "log", "", "only the log of this `name`: journal, ingress; in DIR also spool, view, snapshots, history, keys, revisions, audit, logs (default all)")
	command.Complete(cmd, "log", "journal", ingressLog, "spool", "view", "snapshots", "history", "keys", "revisions", "audit", "logs")
	server := new(string) // no directory
	asked := c.onQueues(server, need{waits: true}, func(ctx context.Context, q apiv1.QueuesServer, _ *cobra.Command, _ []string) error {
		names := []string{log}
		if log == "" {
			stats, err := q.GetQueues(ctx, &apiv1.GetQueuesRequest{})
			if err != nil {
				return err
			}
			names = nil
			for _, l := range stats.Logs {
				names = append(names, l.Name)
			}
		}
		return c.printFindings(names, func(name string) (*apiv1.VerifyLogResponse, error) { return c.askVerify(ctx, q, name) })
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return asked(cmd, args)
		}
		return c.verifyDirectory(cmd.Context(), args[0], log)
	}
	return cmd
}

// verifyDirectory verifies all parts of a directory, or only the part with the given
// name.
func (c *commands) verifyDirectory(ctx context.Context, dir, only string) error {
	p, err := findLogs(dir)
	if err != nil {
		return err
	}
	logs := p.all()
	stores := offline.Stores(dir)
	names := slices.Concat(slices.Sorted(maps.Keys(logs)), stores.Parts())
	if only != "" {
		if !slices.Contains(names, only) {
			return command.Fail("not_found", "there is no log %q in %s: there is %s", only, dir, strings.Join(names, ", "))
		}
		names = []string{only}
	}
	return c.printFindings(names, func(name string) (*apiv1.VerifyLogResponse, error) {
		if logs[name] == "" {
			part, err := stores.Verify(name)
			if err != nil {
				return nil, process.InUse(dir, err)
			}
			return findingsOf(part), nil
		}
		report, err := mq.Verify(logs[name], c.reading(ctx, "verify "+name))
		if err != nil {
			return nil, process.InUse(dir, err)
		}
		return ingress.Findings(report), nil
	})
}

// findingsOf converts the findings of a store's part, like ingress.Findings for a log.
func findingsOf(p store.Part) *apiv1.VerifyLogResponse {
	m := &apiv1.VerifyLogResponse{Bytes: p.Bytes, TotalBytes: p.Bytes, Done: true, Records: p.Rows}
	for _, d := range p.Damage {
		why := d.Why
		if d.To > d.From {
			why += fmt.Sprintf("; positions %d to %d are lost", d.From, d.To-1)
		}
		m.Damages = append(m.Damages, &apiv1.LogDamage{File: cmp.Or(d.File, "a missing file"), Offset: d.Offset, Kind: "rot", Why: why})
	}
	return m
}

// askVerify lets the server verify a log and shows the progress.
func (c *commands) askVerify(ctx context.Context, q apiv1.QueuesServer, name string) (*apiv1.VerifyLogResponse, error) {
	var last *apiv1.VerifyLogResponse
	progress := c.reading(ctx, "verify "+name)
	err := q.VerifyLog(&apiv1.VerifyLogRequest{Log: name}, sink[apiv1.VerifyLogResponse]{ctx: ctx, send: func(m *apiv1.VerifyLogResponse) error {
		if last = m; !m.Done {
			return progress(m.Bytes, m.TotalBytes)
		}
		return progress(m.TotalBytes, m.TotalBytes)
	}})
	if err != nil {
		return nil, err
	}
	if last == nil || !last.Done {
		return nil, command.Fail("failed", "the server ended before it had checked %s: ask again", name)
	}
	return last, nil
}

// reading returns a function that shows the bytes read of a log in a progress bar, and
// stops with the context.
func (c *commands) reading(ctx context.Context, what string) mq.Progress {
	shown := c.Transfer(what)
	return func(done, total int64) error {
		shown.Reached(done, total)
		return ctx.Err()
	}
}

// finding is the result of verifying one log.
type finding struct {
	Log     string             `json:"log"`
	Sound   bool               `json:"sound"`
	Bytes   int64              `json:"bytes"`
	Records uint64             `json:"records"` // intact
	First   uint64             `json:"first"`   // 0: there is no record
	Last    uint64             `json:"last"`
	Lost    uint64             `json:"lost"` // acknowledged records that are damaged
	Damages []*apiv1.LogDamage `json:"damages"`
}

func (f finding) row() []output.Cell {
	verdict := output.Cell{Text: "sound", Tint: output.Green}
	var damaged []string
	for _, d := range f.Damages {
		place := fmt.Sprintf("%s at %d: %s", d.File, d.Offset, d.Why)
		if d.First > 0 {
			place += fmt.Sprintf("; records %d to %d are lost", d.First, d.Last)
		}
		damaged = append(damaged, place)
	}
	if !f.Sound {
		verdict = output.Cell{Text: "damaged", Tint: output.Red}
	}
	return []output.Cell{
		{Text: f.Log},
		verdict,
		{Text: fmt.Sprint(f.Records)},
		{Text: span(max(f.First, 1), f.Last+1)},
		{Text: output.Bytes(f.Bytes)},
		{Text: fmt.Sprint(f.Lost)},
		{Text: strings.Join(damaged, "\n")},
	}
}

// printFindings verifies logs one after another and fails if one is damaged.
func (c *commands) printFindings(names []string, verify func(name string) (*apiv1.VerifyLogResponse, error)) error {
	var damaged []string
	columns := []string{"log", "verdict", "records", "sequences", "bytes", "lost", "places"}
	err := c.PrintAll(columns, func(yield func(output.Record, error) bool) {
		for _, name := range names {
			m, err := verify(name)
			if err != nil {
				yield(output.Record{}, err)
				return
			}
			f := finding{Log: name, Sound: true, Bytes: m.Bytes, Records: m.Records, First: m.First, Last: m.Last, Damages: append([]*apiv1.LogDamage{}, m.Damages...)}
			for _, d := range m.Damages {
				if d.Kind != "torn" {
					f.Sound = false
				}
				if d.First > 0 {
					f.Lost += d.Last - d.First + 1
				}
			}
			if !f.Sound {
				damaged = append(damaged, name)
			}
			if !yield(output.Object(f, f.row), nil) {
				return
			}
		}
	})
	if err == nil && len(damaged) > 0 {
		err = command.Fail("damaged", "%s: damaged. Restore the directory from a copy, or stop the server and choose what to keep: "+
			"\"wheelwork mq repair DIR --choice cut|skip --dry-run\" shows what each loses of a log, and "+
			"\"wheelwork store repair --data DIR --dry-run\" what a repair loses of history, keys, revisions, audit and logs", strings.Join(damaged, ", "))
	}
	return err
}

func (c *commands) repair() *cobra.Command {
	var choice string
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "repair DIR --choice cut|skip",
		Short: "Repair a damaged log of a stopped server, which loses records",
		Long: `Repair the damaged log in DIR, the directory of one log or queue. No process may have
it open. The repair loses acknowledged records, and you choose which:

  cut   keep all records before the first lost one and drop all later ones, intact
        or not. The log then has an earlier state.
  skip  keep every intact record. Readers meet a hole where records are missing.

The command first shows what will be lost, and asks. It refuses a choice after which
the server would not start: the journal must fit the store, and a queue cannot skip
a hole. "skip" does not lose what the store has applied.

The original of each file that it changes goes to quarantine/ in the directory of the
log and is never deleted. If you have a copy of the directory, restore that instead.`,
		Example: `  wheelwork mq repair /var/lib/wheelwork/journal --choice cut --dry-run
  wheelwork mq repair /var/lib/wheelwork/journal --choice cut`,
		Args: command.Arguments("DIR"),
	}
	cmd.Flags().StringVar(&choice, "choice", "", "records to keep: cut, skip; no default")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only show what would be lost")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	command.Complete(cmd, "choice", "cut", "skip")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if choice == "" {
			return command.Usage(cmd, "--choice is missing: cut or skip")
		}
		keep, err := mq.ParseChoice(choice)
		if err != nil {
			return command.Usage(cmd, "--choice %q: want cut or skip", choice)
		}
		dir, err := oneLog(args[0])
		if err != nil {
			return err
		}
		plan, err := mq.Repair(dir, keep, mq.RepairOptions{DryRun: true, Progress: c.reading(cmd.Context(), "read")})
		if err != nil {
			return process.InUse(args[0], err)
		}
		if dryRun || plan.Found.Sound() {
			return c.printRepaired(dir, plan, dryRun)
		}
		if err := startable(dir, plan); err != nil {
			return err
		}
		if !yes {
			c.Note("%s", lossText(dir, plan))
			if err := command.Confirm(cmd, "Repair it"); err != nil {
				return err
			}
		}
		done, err := mq.Repair(dir, keep, mq.RepairOptions{Progress: c.reading(cmd.Context(), "repair")})
		if err != nil {
			return process.InUse(args[0], err)
		}
		return c.printRepaired(dir, done, false)
	}
	return cmd
}

// startable refuses a repair after which the owner of the log could not start or work. A
// queue cannot skip missing records. The journal of a server must end after the last
// record that the store beside it has applied, and must be complete from there on.
func startable(dir string, r mq.Repaired) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	parent := filepath.Dir(abs)
	switch filepath.Base(abs) {
	case "log":
		if _, err := os.Stat(filepath.Join(parent, "index")); err == nil && r.Choice == mq.SkipDamaged && r.Lost > 0 {
			return command.Fail("failed_precondition", "nothing was done: a message queue cannot skip a hole in its log: choose cut, or restore the directory from a copy")
		}
	case "journal":
		beside := filepath.Join(parent, "store")
		if _, err := os.Stat(beside); err != nil {
			return nil // not the journal of a server
		}
		reach, err := store.Look(beside)
		if err != nil {
			return fmt.Errorf("ask the store in %s what it has applied: %w", beside, err)
		}
		applied := reach.View
		if reach.Unread != nil { // the next start makes the view again, and reads the journal from there
			applied = reach.Snapshot
		}
		return fits(r, applied)
	}
	return nil
}

// fits is startable for a journal whose store has applied the records up to a sequence.
func fits(r mq.Repaired, applied uint64) error {
	refuse := func(why string) error {
		return command.Fail("failed_precondition", "nothing was done: the server's store has applied the records up to %d, and %s", applied, why)
	}
	if r.Choice == mq.CutBehind && r.Next <= applied {
		return refuse(fmt.Sprintf("the server does not start with a journal that ends before %d: choose skip, or restore the directory from a copy", r.Next))
	}
	for _, d := range r.Found.Damage {
		if r.Choice == mq.SkipDamaged && d.End > d.First && d.End-1 > applied {
			return refuse(fmt.Sprintf("record %d behind them is lost: the server does not start with a hole there: choose cut, or restore the directory from a copy", d.End-1))
		}
	}
	return nil
}

// oneLog returns the directory of the only log in dir.
func oneLog(dir string) (string, error) {
	p, err := findLogs(dir)
	if err != nil {
		return "", err
	}
	all := slices.Sorted(maps.Values(p.all()))
	if len(all) > 1 {
		return "", command.Fail("invalid_argument", "%s holds several logs: name the one to repair, %s", dir, strings.Join(all, " or "))
	}
	return all[0], nil
}

// lossText lists the records and files that a repair loses or replaces.
func lossText(dir string, r mq.Repaired) string {
	var b strings.Builder
	fmt.Fprintf(&b, "The log in %s is damaged:\n", dir)
	for _, d := range r.Found.Damage {
		fmt.Fprintf(&b, "  %s\n", d)
	}
	if r.Found.Unfinished {
		b.WriteString("  a repair was interrupted, and this one finishes it\n")
	}
	fmt.Fprintf(&b, "With the choice %q %d damaged records are given up", r.Choice, r.Lost)
	if r.Choice == mq.CutBehind {
		fmt.Fprintf(&b, ", and %d intact ones behind them: the log then ends before record %d", r.Dropped, r.Next)
	}
	b.WriteString(".\n")
	if r.Lost+r.Dropped > 0 {
		b.WriteString("All of them were acknowledged: what they did is undone or unknown afterwards.\n")
	}
	fmt.Fprintf(&b, "%d files are replaced and %d taken away; the originals are kept in %s.", len(r.Rewrote), len(r.Removed), filepath.Join(dir, "quarantine"))
	return b.String()
}

// repaired is the result of a repair or of its dry run.
type repaired struct {
	Dir        string   `json:"dir"`
	Choice     string   `json:"choice"`
	DryRun     bool     `json:"dry_run"`
	Sound      bool     `json:"sound"`   // before the repair: nothing to do
	Lost       uint64   `json:"lost"`    // damaged records that are given up
	Dropped    uint64   `json:"dropped"` // intact records that cut gives up
	Next       uint64   `json:"next"`    // sequence of the next record
	Rewrote    []string `json:"rewrote"`
	Removed    []string `json:"removed"`
	Quarantine string   `json:"quarantine"`
}

func (c *commands) printRepaired(dir string, r mq.Repaired, dryRun bool) error {
	done := repaired{
		Dir: dir, Choice: r.Choice.String(), DryRun: dryRun, Sound: r.Found.Sound(), Lost: r.Lost, Dropped: r.Dropped, Next: r.Next,
		Rewrote: append([]string{}, r.Rewrote...), Removed: append([]string{}, r.Removed...), Quarantine: r.Quarantine,
	}
	result := "repaired"
	switch {
	case done.Sound:
		result = "sound, nothing to do"
	case dryRun:
		result = "damaged, not repaired yet"
	}
	columns := []string{"dir", "result", "choice", "damaged records given up", "intact records given up", "next record", "replaced", "taken away", "originals"}
	return c.PrintOne(columns, output.Object(done, func() []output.Cell {
		return []output.Cell{
			{Text: dir},
			{Text: result},
			{Text: done.Choice},
			{Text: fmt.Sprint(r.Lost)},
			{Text: fmt.Sprint(r.Dropped)},
			{Text: fmt.Sprint(r.Next)},
			{Text: strings.Join(r.Rewrote, " ")},
			{Text: strings.Join(r.Removed, " ")},
			{Text: r.Quarantine},
		}
	}))
}
