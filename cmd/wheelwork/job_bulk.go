package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *cli) jobSkipNext() *cobra.Command {
	cmd := c.jobSwitch("skip-next", "Give up the next planned time of a job; the ones after it stay", (*sdk.Client).SkipNext)
	cmd.Example = `  wheelwork job skip-next totals
  wheelwork run list --job totals --state skipped --limit 1`
	return cmd
}

func (c *cli) jobBackfill() *cobra.Command {
	b := sdk.Backfill{}
	var from, until string
	cmd := &cobra.Command{
		Use:   "backfill JOB --from TIME [--until TIME]",
		Short: "Make the runs that a schedule plans in a span of time, also in the past",
		Long: `Make a run for each time that the schedule of a job plans from --from and before
--until. A time that has a run already gets no second one, so that the command
can be repeated: after an interruption it goes on where it ended. --dry-run
says how many runs that would be, and the first 100 of their times.`,
		Example: `  wheelwork job backfill totals --from 2026-03-01 --until 2026-03-08 --dry-run
  wheelwork job backfill totals --from 6h
  wheelwork job backfill totals --from 2026-03-01T00:00:00+08:00 --limit 1000 -o json`,
		Args:              arguments("JOB"),
		ValidArgsFunction: c.completeJobs,
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "the first `time`: RFC 3339, a date in UTC, or how long ago, as 6h")
	flags.StringVar(&until, "until", "", "before this `time` (default now)")
	flags.IntVar(&b.Limit, "limit", 0, "look at this many planned times at most (default all)")
	flags.BoolVar(&b.DryRun, "dry-run", false, "only say which times")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		now := time.Now()
		var err error
		if from == "" {
			return usage(cmd, "--from is missing")
		}
		if b.From, err = momentFlag(cmd, "from", from, now); err != nil {
			return err
		}
		b.Until = now
		if until != "" {
			if b.Until, err = momentFlag(cmd, "until", until, now); err != nil {
				return err
			}
		}
		if !b.Until.After(b.From) {
			return usage(cmd, "--until must be after --from")
		}
		if b.Limit < 0 {
			return usage(cmd, "--limit %d: want a positive number, or 0 for all", b.Limit)
		}
		b.App, b.Job = c.app, args[0]
		return c.wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			return c.backfill(ctx, client, b)
		})(cmd, args)
	}
	return cmd
}

// momentFlag parses an instant of the command line.
func momentFlag(cmd *cobra.Command, flag, text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return at, nil
	}
	if at, err := time.Parse(time.DateOnly, text); err == nil {
		return at, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	return time.Time{}, usage(cmd, "--%s %q: want a time as 2026-03-08T12:00:00Z, a date as 2026-03-08, or how long ago, as 6h", flag, text)
}

// backfilled is the output of a backfill.
type backfilled struct {
	App      string      `json:"app"`
	Job      string      `json:"job"`
	DryRun   bool        `json:"dry_run"`
	Accepted int64       `json:"accepted"`       // new runs; for a dry run: that would be created
	Existing int64       `json:"existing"`       // times that already had a run
	Times    []time.Time `json:"times"`          // the first 100 of the new runs
	Next     *time.Time  `json:"next,omitempty"` // --from of a command that continues
}

// backfill runs a backfill. After an error it reports how far the backfill came.
func (c *cli) backfill(ctx context.Context, client *sdk.Client, b sdk.Backfill) error {
	bar := c.progress(100, "% of the span", false)
	b.Progress = func(done sdk.Backfilled) {
		if !done.Next.IsZero() {
			bar.reached(int64(100 * float64(done.Next.Sub(b.From)) / float64(b.Until.Sub(b.From))))
		}
	}
	done, err := client.Backfill(ctx, b)
	bar.end()
	if err != nil {
		if done.Accepted+done.Existing == 0 {
			return err
		}
		code, message := c.explain(err)
		return &codedError{code, fmt.Sprintf("%s; %d runs were accepted and %d times had one: go on with --from %s",
			message, done.Accepted, done.Existing, done.Next.UTC().Format(time.RFC3339Nano))}
	}
	out := backfilled{App: b.App, Job: b.Job, DryRun: b.DryRun, Accepted: done.Accepted, Existing: done.Existing, Times: append([]time.Time{}, done.Times...)}
	next := ""
	if !done.Next.IsZero() {
		out.Next, next = &done.Next, done.Next.UTC().Format(time.RFC3339Nano)
	}
	word, times := "accepted", ""
	if b.DryRun {
		word = "would be accepted"
		var lines []string
		for _, t := range done.Times {
			lines = append(lines, t.Local().Format(time.RFC3339))
		}
		if more := done.Accepted - int64(len(lines)); more > 0 {
			lines = append(lines, fmt.Sprintf("and %d more", more))
		}
		times = strings.Join(lines, "\n")
	}
	return c.printOne([]string{"job", word, "existing", "times", "go on from"}, object(out, func() []cell {
		return []cell{{b.Job, none}, {fmt.Sprint(done.Accepted), none}, {fmt.Sprint(done.Existing), none}, {times, none}, {next, none}}
	}))
}

func (c *cli) jobBulk() *cobra.Command {
	return group("bulk", "Pause, resume, trigger or delete many jobs",
		c.bulk(sdk.BulkPause, "Keep the schedules of many jobs from firing"),
		c.bulk(sdk.BulkResume, "Let the schedules of many paused jobs fire again"),
		c.bulk(sdk.BulkTrigger, "Run many jobs now"),
		c.bulk(sdk.BulkDelete, "Delete many jobs; runs that were accepted go on"))
}

func (c *cli) bulk(action, short string) *cobra.Command {
	b := sdk.Bulk{Action: action}
	var yes bool
	cmd := &cobra.Command{
		Use:   action + " [JOB...]",
		Short: short + "; asks first",
		Long: short + `: those that the names, --prefix and
--label, as far as they are given, all select. It says how many they are and
asks, unless --yes is given.`,
		Example: fmt.Sprintf(`  wheelwork job bulk %[1]s --label team=billing --dry-run
  wheelwork job bulk %[1]s --prefix tenant-17- --yes`, action),
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: c.completeJobs,
	}
	flags := cmd.Flags()
	flags.StringVar(&b.Prefix, "prefix", "", "only names that begin so")
	flags.StringToStringVar(&b.Labels, "label", nil, "only with this label, as `KEY=VALUE`; may be repeated: all of them")
	flags.BoolVar(&b.All, "all", false, "all jobs of the app")
	flags.BoolVar(&b.DryRun, "dry-run", false, "only count")
	flags.BoolVar(&yes, "yes", false, "do not ask")
	if action == sdk.BulkDelete {
		flags.BoolVar(&b.Force, "force", false, "also jobs that others name which are not chosen")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		b.App, b.Names = c.app, args
		chosen := b.Prefix != "" || len(b.Labels) > 0 || len(args) > 0
		switch {
		case !chosen && !b.All:
			return usage(cmd, "say which jobs: by name, --prefix or --label, or --all of them")
		case chosen && b.All:
			return usage(cmd, "--all stands beside a choice: give one of them")
		}
		return c.wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			return c.doBulk(ctx, client, b, yes)
		})(cmd, args)
	}
	return cmd
}

// bulked is the output of a command on many jobs that the server selects.
type bulked struct {
	App      string   `json:"app"`
	Action   string   `json:"action"`
	DryRun   bool     `json:"dry_run"`
	Matched  int64    `json:"matched"`
	Changed  int64    `json:"changed"`
	Failures []string `json:"failures"`
}

func (c *cli) doBulk(ctx context.Context, client *sdk.Client, b sdk.Bulk, yes bool) error {
	counting := b
	counting.DryRun = true
	found, err := client.Bulk(ctx, counting)
	if err != nil {
		return err
	}
	done := found
	if !b.DryRun && found.Matched > 0 {
		if !yes {
			if err := c.confirm(fmt.Sprintf("%s %d jobs of app %s", strings.ToUpper(b.Action[:1])+b.Action[1:], found.Matched, b.App)); err != nil {
				return err
			}
		}
		bar := c.progress(found.Matched, "jobs", false)
		b.Progress = func(so sdk.Bulked) { bar.reached(min(so.Matched, found.Matched)) }
		done, err = client.Bulk(ctx, b)
		bar.end()
	}
	out := bulked{App: b.App, Action: b.Action, DryRun: b.DryRun, Matched: done.Matched, Changed: done.Changed, Failures: append([]string{}, done.Failures...)}
	printed := c.printOne([]string{"action", "matched", "changed", "failures"}, object(out, func() []cell {
		return []cell{{b.Action, none}, {fmt.Sprint(done.Matched), none}, {fmt.Sprint(done.Changed), none}, {strings.Join(done.Failures, "\n"), red}}
	}))
	switch {
	case err != nil:
		return err
	case printed != nil:
		return printed
	case len(done.Failures) > 0:
		return &codedError{"refused", fmt.Sprintf("%d of %d jobs were refused: the list says why", done.Matched-done.Changed, done.Matched)}
	case len(b.Names) > 0 && b.Prefix == "" && len(b.Labels) == 0 && done.Matched < int64(len(distinct(b.Names))):
		return &codedError{"not_found", fmt.Sprintf("%d of the named jobs are not in app %s", int64(len(distinct(b.Names)))-done.Matched, b.App)}
	}
	return nil
}

func distinct(names []string) map[string]bool {
	set := map[string]bool{}
	for _, n := range names {
		set[n] = true
	}
	return set
}
