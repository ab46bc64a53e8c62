package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/ingress"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/node/offline"
	"github.com/wheelworkhq/wheelwork/store"
)

func (c *cli) mqVerify() *cobra.Command {
	var log string
	cmd := &cobra.Command{
		Use:   "verify [DIR]",
		Short: "Read whole logs and say what is damaged; exit code 1 if anything is",
		Long: `Read whole logs and say what is damaged. With DIR, the data directory of a
server or host that is down or the directory of one log or queue, it reads the
files there and changes none. Without, the server checks its logs beside its
work.

In the data directory of a server it also reads the store: "view", the database,
and whether the journal belongs to it; "snapshots"; "history", the runs that have
ended; "keys", the idempotency keys; and "logs", the lines of runs. The server of a
cluster has them for each further unit as well: "units/NAME/view" and so on. Their
journals are in etcd and are not compared.

Exit code 0: every record is intact. A torn tail, which a crash leaves and the
next start clears, is listed and is no damage. Exit code 1: something is damaged,
or could not be read.`,
		Example: `  wheelwork mq verify
  wheelwork mq verify --log journal -o json
  wheelwork mq verify /var/lib/wheelwork`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(cmd, "unexpected argument %q", args[1])
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&log, "log", "", "only the log of this `name`: journal, ingress; in DIR also spool, view, snapshots, history, keys, logs (default all)")
	complete(cmd, "log", "journal", ingressLog, "spool", "view", "snapshots", "history", "keys", "logs")
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
func (c *cli) verifyDirectory(ctx context.Context, dir, only string) error {
	p, err := findLogs(dir)
	if err != nil {
		return err
	}
	logs := p.all()
	stores := offline.Stores(dir)
	names := slices.Concat(slices.Sorted(maps.Keys(logs)), stores.Parts())
	if only != "" {
		if !slices.Contains(names, only) {
			return &codedError{"not_found", fmt.Sprintf("there is no log %q in %s: there is %s", only, dir, strings.Join(names, ", "))}
		}
		names = []string{only}
	}
	return c.printFindings(names, func(name string) (*apiv1.VerifyLogResponse, error) {
		if logs[name] == "" {
			part, err := stores.Verify(name)
			if err != nil {
				return nil, inUse(dir, err)
			}
			return findingsOf(part), nil
		}
		report, err := mq.Verify(logs[name], c.reading(ctx, "verify "+name))
		if err != nil {
			return nil, inUse(dir, err)
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
func (c *cli) askVerify(ctx context.Context, q apiv1.QueuesServer, name string) (*apiv1.VerifyLogResponse, error) {
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
		return nil, &codedError{"failed", "the server ended before it had checked " + name + ": ask again"}
	}
	return last, nil
}

// reading returns a function that shows the bytes read of a log in a progress bar, and
// stops with the context.
func (c *cli) reading(ctx context.Context, what string) mq.Progress {
	var shown bar
	return func(done, total int64) error {
		if shown.shown == nil {
			shown = c.progress(total, what, true)
		}
		shown.reached(done)
		if done >= total {
			shown.end()
		}
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

func (f finding) row() []cell {
	verdict := cell{"sound", green}
	var damaged []string
	for _, d := range f.Damages {
		place := fmt.Sprintf("%s at %d: %s", d.File, d.Offset, d.Why)
		if d.First > 0 {
			place += fmt.Sprintf("; records %d to %d are lost", d.First, d.Last)
		}
		damaged = append(damaged, place)
	}
	if !f.Sound {
		verdict = cell{"damaged", red}
	}
	return []cell{
		{f.Log, none},
		verdict,
		{fmt.Sprint(f.Records), none},
		{span(max(f.First, 1), f.Last+1), none},
		{bytesText(f.Bytes), none},
		{fmt.Sprint(f.Lost), none},
		{strings.Join(damaged, "\n"), none},
	}
}

// printFindings verifies logs one after another and fails if one is damaged.
func (c *cli) printFindings(names []string, verify func(name string) (*apiv1.VerifyLogResponse, error)) error {
	var damaged []string
	columns := []string{"log", "verdict", "records", "sequences", "bytes", "lost", "places"}
	err := c.printAll(columns, func(yield func(record, error) bool) {
		for _, name := range names {
			m, err := verify(name)
			if err != nil {
				yield(record{}, err)
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
			if !yield(object(f, f.row), nil) {
				return
			}
		}
	})
	if err == nil && len(damaged) > 0 {
		err = &codedError{"damaged", fmt.Sprintf("%s: damaged. Restore the directory from a copy, or stop the server and choose what to keep: "+
			"\"wheelwork mq repair DIR --choice cut|skip --dry-run\" says what each costs for a log, and "+
			"\"wheelwork store repair --data DIR --dry-run\" what is lost of history, keys and logs", strings.Join(damaged, ", "))}
	}
	return err
}

func (c *cli) mqRepair() *cobra.Command {
	var choice string
	var dryRun, yes bool
	cmd := &cobra.Command{
		Use:   "repair DIR --choice cut|skip",
		Short: "Make a damaged log of a stopped server usable again, at a price",
		Long: `Make the damaged log in DIR, the directory of one log or queue, usable again.
Nobody may have it open. Acknowledged records are given up, and you choose which:

  cut   keep everything in front of the first lost record and drop all that
        follows, intact or not. The log is then as it once was.
  skip  keep every intact record. Readers meet a hole where some are missing.

It says first what will be lost, and asks. A choice after which the server would
not start is refused: its journal has to fit its store, and a queue cannot go
over a hole. What the store has applied already is not lost by "skip".

The original of every file that it touches goes to quarantine/ inside the log's
directory and is never deleted. A copy of the directory, if there is one, is
better than either.`,
		Example: `  wheelwork mq repair /var/lib/wheelwork/journal --choice cut --dry-run
  wheelwork mq repair /var/lib/wheelwork/journal --choice cut`,
		Args: arguments("DIR"),
	}
	cmd.Flags().StringVar(&choice, "choice", "", "what to keep: cut, skip; there is no default")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be lost")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	complete(cmd, "choice", "cut", "skip")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if choice == "" {
			return usage(cmd, "--choice is missing: cut or skip")
		}
		keep, err := mq.ParseChoice(choice)
		if err != nil {
			return usage(cmd, "--choice %q: want cut or skip", choice)
		}
		dir, err := oneLog(args[0])
		if err != nil {
			return err
		}
		plan, err := mq.Repair(dir, keep, mq.RepairOptions{DryRun: true, Progress: c.reading(cmd.Context(), "read")})
		if err != nil {
			return inUse(args[0], err)
		}
		if dryRun || plan.Found.Sound() {
			return c.printRepaired(dir, plan, dryRun)
		}
		if err := startable(dir, plan); err != nil {
			return err
		}
		if !yes {
			c.note("%s", price(dir, plan))
			if err := c.confirm("Repair it"); err != nil {
				return err
			}
		}
		done, err := mq.Repair(dir, keep, mq.RepairOptions{Progress: c.reading(cmd.Context(), "repair")})
		if err != nil {
			return inUse(args[0], err)
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
			return &codedError{
				"failed_precondition",
				"nothing was done: a message queue cannot go over a hole in its log: choose cut, or restore the directory from a copy",
			}
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
		return &codedError{"failed_precondition", fmt.Sprintf("nothing was done: the server's store has applied the records up to %d, and %s", applied, why)}
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
		return "", &codedError{"invalid_argument", fmt.Sprintf("%s holds several logs: name the one to repair, %s", dir, strings.Join(all, " or "))}
	}
	return all[0], nil
}

// price describes what a repair gives up.
func price(dir string, r mq.Repaired) string {
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

func (c *cli) printRepaired(dir string, r mq.Repaired, dryRun bool) error {
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
	return c.printOne(columns, object(done, func() []cell {
		return []cell{
			{dir, none},
			{result, none},
			{done.Choice, none},
			{fmt.Sprint(r.Lost), none},
			{fmt.Sprint(r.Dropped), none},
			{fmt.Sprint(r.Next), none},
			{strings.Join(r.Rewrote, " "), none},
			{strings.Join(r.Removed, " "), none},
			{r.Quarantine, none},
		}
	}))
}

// confirm asks a person and fails unless the answer is yes.
func (c *cli) confirm(question string) error {
	fmt.Fprintf(c.err, "%s? Type yes to go on: ", question)
	answer, err := bufio.NewReader(io.LimitReader(c.in, 1<<10)).ReadString('\n')
	if strings.TrimSpace(answer) == "yes" {
		return nil
	}
	if err != nil {
		fmt.Fprintln(c.err) // the input ended without a line break
	}
	return &codedError{"canceled", "nothing was done: answer yes, or pass --yes where nobody can answer"}
}
