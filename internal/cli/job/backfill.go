package job

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) backfill() *cobra.Command {
	b := sdk.Backfill{}
	var from, until string
	cmd := &cobra.Command{
		Use:   "backfill JOB --from TIME [--until TIME]",
		Short: "Create the runs that a schedule plans in a period, also in the past",
		Long: `Create a run for each time that the schedule of a job plans from --from and before
--until. A planned time that has a run gets no second one, so that you can repeat
the command: after an interruption it continues. --dry-run shows the number of runs
and the first 100 of their times.`,
		Example: `  wheelwork job backfill totals --from 2026-03-01 --until 2026-03-08 --dry-run
  wheelwork job backfill totals --from 6h
  wheelwork job backfill totals --from 2026-03-01T00:00:00+08:00 --limit 1000 -o json`,
		Args:              command.Arguments("JOB"),
		ValidArgsFunction: c.completeJobs,
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "from", "", "the first `time`: RFC 3339, a date in UTC, or how long ago, as 6h")
	flags.StringVar(&until, "until", "", "before this `time` (default now)")
	flags.IntVar(&b.Limit, "limit", 0, "look at this many planned times at most (default all)")
	flags.BoolVar(&b.DryRun, "dry-run", false, "only show the times")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		now := time.Now()
		var err error
		if from == "" {
			return command.Usage(cmd, "--from is missing")
		}
		if b.From, err = command.Moment(cmd, "from", from, now); err != nil {
			return err
		}
		b.Until = now
		if until != "" {
			if b.Until, err = command.Moment(cmd, "until", until, now); err != nil {
				return err
			}
		}
		if !b.Until.After(b.From) {
			return command.Usage(cmd, "--until must be after --from")
		}
		if b.Limit < 0 {
			return command.Usage(cmd, "--limit %d: want a positive number, or 0 for all", b.Limit)
		}
		b.App, b.Job = c.App, args[0]
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			return c.doBackfill(ctx, client, b)
		})(cmd, args)
	}
	return cmd
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

// doBackfill runs a backfill. After an error it reports how far the backfill came.
func (c *commands) doBackfill(ctx context.Context, client *sdk.Client, b sdk.Backfill) error {
	bar := c.Progress(100, "% of the span", false)
	b.Progress = func(done sdk.Backfilled) {
		if !done.Next.IsZero() {
			bar.Reached(int64(100 * float64(done.Next.Sub(b.From)) / float64(b.Until.Sub(b.From))))
		}
	}
	done, err := client.Backfill(ctx, b)
	bar.End()
	if err != nil {
		if done.Accepted+done.Existing == 0 {
			return err
		}
		code, message := c.Explain(err)
		return command.Fail(code, "%s; %d runs were accepted and %d times had one: continue with --from %s",
			message, done.Accepted, done.Existing, done.Next.UTC().Format(time.RFC3339Nano))
	}
	if done.Accepted+done.Existing == 0 {
		if job, err := client.Job(ctx, b.App, b.Job); err == nil && job.GetSchedule() == nil {
			c.Note("job %s has no schedule, so it has no planned times", b.Job)
		}
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
	return c.PrintOne([]string{"job", word, "existing", "times", "go on from"}, output.Object(out, func() []output.Cell {
		return []output.Cell{{Text: b.Job}, {Text: fmt.Sprint(done.Accepted)}, {Text: fmt.Sprint(done.Existing)}, {Text: times}, {Text: next}}
	}))
}
