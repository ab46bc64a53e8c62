package job

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/runview"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// commands are the commands about jobs.
type commands struct {
	*output.Printer
	*connect.Server
	runs runview.Viewer
}

// Command returns the command "job".
func Command(printer *output.Printer, server *connect.Server) *cobra.Command {
	c := &commands{printer, server, runview.Viewer{Printer: printer, Server: server}}
	return command.Group("job", "Define, change and trigger jobs",
		c.apply(), c.get(), c.list(), c.delete(), c.pause(), c.resume(), c.trigger(),
		c.skipNext(), c.backfill(), c.bulk(), c.export())
}

func (c *commands) get() *cobra.Command {
	return &cobra.Command{
		Use:   "get JOB...",
		Short: "Show jobs; -o yaml prints documents that can be applied",
		Long: `Show jobs; -o yaml prints documents that can be applied. The output of several
jobs is a list.`,
		Args:              command.Arguments("JOB..."),
		ValidArgsFunction: c.completeJobs,
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return c.printWhole(c.named(ctx, client, args))
			}
			job, err := client.Job(ctx, c.App, args[0])
			if err != nil {
				return err
			}
			return c.printJob(job)
		}),
	}
}

// named iterates over the jobs with these names.
func (c *commands) named(ctx context.Context, client *sdk.Client, names []string) iter.Seq2[*sdk.Job, error] {
	return func(yield func(*sdk.Job, error) bool) {
		for _, name := range names {
			if job, err := client.Job(ctx, c.App, name); !yield(job, err) {
				return
			}
		}
	}
}

// printWhole prints jobs as [commands.printJob] does, with an empty line between the tables.
func (c *commands) printWhole(jobs iter.Seq2[*sdk.Job, error]) error {
	if c.Format != output.Table {
		return c.printJobs(jobs)
	}
	first := true
	for job, err := range jobs {
		if err != nil {
			return err
		}
		if !first {
			fmt.Fprintln(c.Out)
		}
		first = false
		if err := c.printJob(job); err != nil {
			return err
		}
	}
	return nil
}

func (c *commands) printJob(job *sdk.Job) error {
	columns := []string{
		"name", "app", "description", "owner", "module", "handler", "args", "workflow", "schedule", "next at", "why then", "paused",
		"depends on", "started by event", "misfire", "overlap", "deadline", "priority", "rate", "routing", "fan-out",
		"timeout", "limits", "retries", "input", "live runs", "succeeded", "failed", "last run", "revision", "created by", "changed by", "updated at", "digest",
	}
	stats := job.GetStats()
	return c.PrintOne(columns, recordOf(job, func() []output.Cell {
		return []output.Cell{
			{Text: job.GetName()},
			{Text: job.GetApp()},
			{Text: job.GetDescription()},
			{Text: job.GetOwner()},
			{Text: job.GetHandler().GetModule()},
			{Text: job.GetHandler().GetName()},
			{Text: strings.Join(job.GetHandler().GetArgs(), " ")},
			{Text: workflowText(job.GetWorkflow())},
			{Text: scheduleText(job)},
			{Text: output.Time(job.GetNextAt())},
			{Text: job.GetNextWhy(), Tint: output.Yellow},
			{Text: pausedText(job), Tint: output.Yellow},
			{Text: dependencyText(job.GetDependency())},
			{Text: triggerText(job.GetTrigger())},
			{Text: misfireText(job.GetMisfire())},
			{Text: overlapText(job.GetOverlap())},
			{Text: job.GetDeadline()},
			{Text: priorityText(job.GetPriority())},
			{Text: output.Rate(job.GetRate().GetMax(), job.GetRate().GetPer())},
			{Text: routingText(job.GetRouting())},
			{Text: fanoutText(job.GetFanout())},
			{Text: job.GetTimeout()},
			{Text: limitsText(job.GetLimits())},
			{Text: retryText(job.GetRetry())},
			{Text: output.Payload(job.GetInput(), job.GetInputBytes())},
			{Text: fmt.Sprint(stats.GetLive())},
			{Text: fmt.Sprint(stats.GetSucceeded())},
			{Text: fmt.Sprint(stats.GetFailed())},
			{Text: strings.TrimSpace(stats.GetLastState() + " " + stats.GetLastRun()), Tint: output.StateTint(stats.GetLastState())},
			{Text: fmt.Sprint(job.GetRevision())},
			{Text: job.GetCreatedBy()},
			{Text: job.GetChangedBy()},
			{Text: output.Time(job.GetUpdatedAt())},
			{Text: job.GetDigest()},
		}
	}))
}

// recordOf returns the record of a job: its YAML is the document that defines it.
func recordOf(job *sdk.Job, row func() []output.Cell) output.Record {
	r := output.Message(job, row)
	r.YAML = func() ([]byte, error) {
		var b bytes.Buffer
		err := sdk.WriteJobs(&b, job)
		return b.Bytes(), err
	}
	return r
}

func (c *commands) list() *cobra.Command {
	q, paused := sdk.JobQuery{}, false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the jobs of an app",
		Args:  command.Arguments(),
		RunE: c.Wait(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, _ []string) error {
			if q.Limit < 0 {
				return command.Usage(cmd, "--limit %d: want a number, or 0 for all", q.Limit)
			}
			if cmd.Flags().Changed("paused") {
				q.Paused = &paused
			}
			q.App, q.NoInput = c.App, c.Format == output.Table // documents, which can be applied, have the input
			return c.printListed(ctx, client, client.Jobs(ctx, q))
		}),
	}
	cmd.Flags().StringVar(&q.Prefix, "prefix", "", "only names with this prefix")
	cmd.Flags().StringToStringVar(&q.Labels, "label", nil, "only with this label, as `KEY=VALUE`; may be repeated, and then all must match")
	cmd.Flags().StringVar(&q.Owner, "owner", "", "only jobs with this owner, a user or a group")
	cmd.Flags().StringVar(&q.Contains, "contains", "", "only names that contain this `TEXT`, in upper or lower case")
	cmd.Flags().StringVar(&q.Module, "module", "", "only jobs whose handler is in this module: `NAME`, NAME@VERSION or NAME@ALIAS")
	cmd.Flags().StringVar(&q.Schedule, "schedule", "", "only this `KIND` of schedule: cron, every, delay, at, after, daily or none")
	cmd.Flags().BoolVar(&paused, "paused", false, "only paused jobs; with =false only those that are not paused")
	cmd.Flags().BoolVar(&q.Failing, "failing", false, "only jobs whose last run neither succeeded nor was skipped")
	cmd.Flags().StringVar(&q.Order, "order", "name", "name, last_run (latest first) or next_time (earliest first)")
	cmd.Flags().IntVar(&q.Limit, "limit", 0, "show at most this many (default all)")
	return cmd
}

// printListed prints jobs of the app, and tells if there is none because the app's name is
// mistyped.
func (c *commands) printListed(ctx context.Context, client *sdk.Client, jobs iter.Seq2[*sdk.Job, error]) error {
	n := 0
	err := c.printJobs(connect.Counted(jobs, &n))
	if err == nil && n == 0 {
		c.Note("%s", connect.WhyEmpty(ctx, client, c.App, ""))
	}
	return err
}

func (c *commands) printJobs(jobs iter.Seq2[*sdk.Job, error]) error {
	columns := []string{"name", "schedule", "next at", "module", "live", "succeeded", "failed", "last", "state"}
	return c.PrintAll(columns, output.Records(jobs, func(job *sdk.Job) output.Record {
		return recordOf(job, func() []output.Cell { return rowOf(job) })
	}))
}

func rowOf(job *sdk.Job) []output.Cell {
	stats := job.GetStats()
	return []output.Cell{
		{Text: job.GetName()},
		{Text: scheduleText(job)},
		{Text: output.Time(job.GetNextAt())},
		{Text: job.GetHandler().GetModule()},
		{Text: fmt.Sprint(stats.GetLive())},
		{Text: fmt.Sprint(stats.GetSucceeded())},
		{Text: fmt.Sprint(stats.GetFailed())},
		{Text: stats.GetLastState(), Tint: output.StateTint(stats.GetLastState())},
		{Text: pausedText(job), Tint: output.Yellow},
	}
}

func (c *commands) resume() *cobra.Command {
	return c.toggle("resume", "Let the schedule of a paused job fire again", (*sdk.Client).Resume)
}

func (c *commands) toggle(name, short string, do func(*sdk.Client, context.Context, string, string) (*sdk.Job, error)) *cobra.Command {
	return &cobra.Command{
		Use:               name + " JOB",
		Short:             short,
		Args:              command.Arguments("JOB"),
		ValidArgsFunction: c.completeJobs,
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			job, err := do(client, ctx, c.App, args[0])
			if err != nil {
				return err
			}
			return c.printJob(job)
		}),
	}
}

func (c *commands) skipNext() *cobra.Command {
	cmd := c.toggle("skip-next", "Skip the next planned time of a job; later ones stay", (*sdk.Client).SkipNext)
	cmd.Example = `  wheelwork job skip-next totals
  wheelwork run list --job totals --state skipped --limit 1`
	return cmd
}

func (c *commands) export() *cobra.Command {
	return &cobra.Command{
		Use:   "export [JOB...]",
		Short: "Print jobs, all of them by default, as YAML documents that can be applied",
		Long: `Print jobs, all of them by default, as YAML documents that can be applied: each
after the jobs that it names.`,
		ValidArgsFunction: c.completeJobs,
		RunE: c.Wait(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("output") {
				c.Format = output.YAML
			}
			list := client.Jobs(ctx, sdk.JobQuery{App: c.App})
			if len(args) > 0 {
				list = c.named(ctx, client, args)
			}
			return c.printListed(ctx, client, sdk.InOrder(list, func(names []string) {
				c.Note("the jobs %s name each other in a circle: an app that has none of them refuses the first of these documents", strings.Join(names, ", "))
			}))
		}),
	}
}

// completeJobs completes the names of jobs in the shell.
func (c *commands) completeJobs(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
	defer cancel()
	client, err := c.Dial(ctx)
	many := strings.Contains(cmd.Use, "JOB...")
	if err != nil || len(args) > 0 && !many {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer client.Close() //nolint:errcheck // only read
	var names []string
	for job, err := range client.Jobs(ctx, sdk.JobQuery{App: c.App, Prefix: prefix, Limit: 100, NoInput: true}) {
		if err != nil {
			break
		}
		names = append(names, job.GetName())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
