package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *cli) jobCommand() *cobra.Command {
	return group("job", "Define, change and trigger jobs",
		c.jobApply(), c.jobGet(), c.jobList(), c.jobDelete(), c.jobPause(), c.jobResume(), c.jobTrigger(),
		c.jobSkipNext(), c.jobBackfill(), c.jobBulk(), c.jobExport())
}

func (c *cli) jobApply() *cobra.Command {
	var files []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Create or update jobs from YAML or JSON documents",
		Long: `Create or update the jobs that the documents of a file define, in any order:
jobs that others depend on or run as nodes are applied first. Applying the
same documents again changes nothing. "-f -" reads standard input. The field
inputFile names a file, beside the document, that becomes the input. A document
with an etag, which "job get -o json" shows, changes the job only while it has
that etag: what others changed meanwhile is not lost.`,
		Example: `  wheelwork job apply -f totals.yaml
  wheelwork job export | wheelwork job apply -f - --url https://other:8700`,
		Args: arguments(),
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "`file` with job documents, - for standard input; may be repeated")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check, and say what would change")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(files) == 0 {
			return usage(cmd, "-f FILE is missing")
		}
		jobs, err := c.readJobs(files, cmd.Flags().Changed("app"))
		if err != nil {
			return err
		}
		return c.wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			return c.printResults(len(jobs), c.apply(ctx, client, jobs, dryRun))
		})(cmd, args)
	}
	return cmd
}

// readJobs reads the documents of all files. A document must not name another app than
// the command line.
func (c *cli) readJobs(files []string, appGiven bool) ([]*sdk.Job, error) {
	var jobs []*sdk.Job
	for _, name := range files {
		read, err := c.readJobFile(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		jobs = append(jobs, read...)
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("%s: there is no job in it", strings.Join(files, ", "))
	}
	for _, job := range jobs {
		job.App = cmp.Or(job.GetApp(), c.app)
		if appGiven && job.GetApp() != c.app {
			return nil, fmt.Errorf("job %s belongs to app %s, but --app says %s: change one of them", job.GetName(), job.GetApp(), c.app)
		}
	}
	return jobs, nil
}

func (c *cli) readJobFile(name string) ([]*sdk.Job, error) {
	if name == "-" {
		return sdk.ReadJobs(c.in, ".")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return sdk.ReadJobs(f, filepath.Dir(name))
}

// result is the outcome for one job of a command on many jobs.
type result struct {
	App    string `json:"app"`
	Job    string `json:"job"`
	Result string `json:"result"`          // "refused" if there is an error
	Error  string `json:"error,omitempty"` // one sentence

	err error
}

func resultOf(job *sdk.Job, done sdk.Result, err error) result {
	r := result{App: job.GetApp(), Job: job.GetName(), Result: string(done)}
	if err != nil {
		r.Result, r.Error, r.err = "refused", err.Error(), err
	}
	return r
}

// printResults prints one line for each of total jobs. It fails if a job was refused.
func (c *cli) printResults(total int, results iter.Seq[result]) error {
	bar := c.progress(int64(total), "jobs", false)
	var refused []error
	n := 0
	err := c.printAll([]string{"name", "result", "why"}, func(yield func(record, error) bool) {
		for r := range results {
			n++
			bar.reached(int64(n))
			tint := none
			if r.err != nil {
				tint = red
				refused = append(refused, r.err)
			}
			if fatal(r.err) {
				return
			}
			row := []cell{{r.Job, none}, {r.Result, tint}, {r.Error, none}}
			if !yield(object(r, func() []cell { return row }), nil) {
				return
			}
		}
		bar.end()
	})
	switch {
	case err != nil:
		return err
	case total == 1 && len(refused) == 1:
		return refused[0]
	case len(refused) > 0 && fatal(refused[len(refused)-1]):
		return refused[len(refused)-1] // the remaining jobs would fail in the same way
	case len(refused) > 0:
		return &codedError{"refused", fmt.Sprintf("%d of %d jobs were refused: the list says why", len(refused), total)}
	}
	return nil
}

// fatal reports whether an error concerns the whole command rather than one job.
func fatal(err error) bool {
	return err != nil && (errors.Is(err, sdk.ErrUnauthenticated) || errors.Is(err, sdk.ErrUnavailable) ||
		errors.Is(err, sdk.ErrDenied) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded))
}

func (c *cli) jobGet() *cobra.Command {
	return &cobra.Command{
		Use:               "get JOB",
		Short:             "Show a job; -o yaml prints a document that can be applied",
		Args:              arguments("JOB"),
		ValidArgsFunction: c.completeJobs,
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			job, err := client.Job(ctx, c.app, args[0])
			if err != nil {
				return err
			}
			return c.printJob(job)
		}),
	}
}

func (c *cli) printJob(job *sdk.Job) error {
	columns := []string{
		"name", "app", "description", "module", "handler", "args", "workflow", "schedule", "next at", "why then", "paused",
		"depends on", "misfire", "overlap", "deadline", "priority", "rate", "routing", "fan-out",
		"timeout", "limits", "retries", "input", "live runs", "succeeded", "failed", "last run", "revision", "updated at", "digest",
	}
	stats := job.GetStats()
	return c.printOne(columns, jobRecord(job, func() []cell {
		return []cell{
			{job.GetName(), none},
			{job.GetApp(), none},
			{job.GetDescription(), none},
			{job.GetHandler().GetModule(), none},
			{job.GetHandler().GetName(), none},
			{strings.Join(job.GetHandler().GetArgs(), " "), none},
			{workflowText(job.GetWorkflow()), none},
			{scheduleText(job), none},
			{moment(job.GetNextAt()), none},
			{job.GetNextWhy(), yellow},
			{pausedText(job), yellow},
			{dependencyText(job.GetDependency()), none},
			{misfireText(job.GetMisfire()), none},
			{overlapText(job.GetOverlap()), none},
			{job.GetDeadline(), none},
			{priorityText(job.GetPriority()), none},
			{rateText(job.GetRate()), none},
			{routingText(job.GetRouting()), none},
			{fanoutText(job.GetFanout()), none},
			{job.GetTimeout(), none},
			{limitsText(job.GetLimits()), none},
			{retryText(job.GetRetry()), none},
			{inputText(job.GetInput(), job.GetInputBytes()), none},
			{fmt.Sprint(stats.GetLive()), none},
			{fmt.Sprint(stats.GetSucceeded()), none},
			{fmt.Sprint(stats.GetFailed()), none},
			{strings.TrimSpace(stats.GetLastState() + " " + stats.GetLastRun()), stateTint(stats.GetLastState())},
			{fmt.Sprint(job.GetRevision()), none},
			{moment(job.GetUpdatedAt()), none},
			{job.GetDigest(), none},
		}
	}))
}

// jobRecord returns the record of a job: its YAML is the document that defines it.
func jobRecord(job *sdk.Job, row func() []cell) record {
	r := message(job, row)
	r.yaml = func() ([]byte, error) {
		var b bytes.Buffer
		err := sdk.WriteJobs(&b, job)
		return b.Bytes(), err
	}
	return r
}

func pausedText(job *sdk.Job) string {
	if job.GetPaused() {
		return "paused"
	}
	return ""
}

// inputText returns a text unchanged, and otherwise the number of bytes.
func inputText(text string, raw []byte) string {
	if len(raw) > 0 {
		return fmt.Sprintf("(%d bytes that are not text)", len(raw))
	}
	return text
}

func (c *cli) jobList() *cobra.Command {
	q := sdk.JobQuery{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the jobs of an app by name",
		Args:  arguments(),
		RunE: c.wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			q.App, q.NoInput = c.app, c.format == formatTable // documents, which can be applied, have the input
			return c.printJobs(client.Jobs(ctx, q))
		}),
	}
	cmd.Flags().StringVar(&q.Prefix, "prefix", "", "only names that begin so")
	cmd.Flags().IntVar(&q.Limit, "limit", 0, "show at most this many (default all)")
	return cmd
}

func (c *cli) printJobs(jobs iter.Seq2[*sdk.Job, error]) error {
	columns := []string{"name", "schedule", "next at", "module", "live", "succeeded", "failed", "last", "state"}
	return c.printAll(columns, records(jobs, func(job *sdk.Job) record {
		return jobRecord(job, func() []cell { return jobRow(job) })
	}))
}

func jobRow(job *sdk.Job) []cell {
	stats := job.GetStats()
	return []cell{
		{job.GetName(), none},
		{scheduleText(job), none},
		{moment(job.GetNextAt()), none},
		{job.GetHandler().GetModule(), none},
		{fmt.Sprint(stats.GetLive()), none},
		{fmt.Sprint(stats.GetSucceeded()), none},
		{fmt.Sprint(stats.GetFailed()), none},
		{stats.GetLastState(), stateTint(stats.GetLastState())},
		{pausedText(job), yellow},
	}
}

// records converts a list of the API for the output.
func records[T any](list iter.Seq2[T, error], convert func(T) record) iter.Seq2[record, error] {
	return func(yield func(record, error) bool) {
		for element, err := range list {
			if err != nil {
				yield(record{}, err)
				return
			}
			if !yield(convert(element), nil) {
				return
			}
		}
	}
}

func (c *cli) jobPause() *cobra.Command {
	return c.jobSwitch("pause", "Keep the schedule of a job from firing", (*sdk.Client).Pause)
}

func (c *cli) jobResume() *cobra.Command {
	return c.jobSwitch("resume", "Let the schedule of a paused job fire again", (*sdk.Client).Resume)
}

func (c *cli) jobSwitch(name, short string, do func(*sdk.Client, context.Context, string, string) (*sdk.Job, error)) *cobra.Command {
	return &cobra.Command{
		Use:               name + " JOB",
		Short:             short,
		Args:              arguments("JOB"),
		ValidArgsFunction: c.completeJobs,
		RunE: c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			job, err := do(client, ctx, c.app, args[0])
			if err != nil {
				return err
			}
			return c.printJob(job)
		}),
	}
}

func (c *cli) jobTrigger() *cobra.Command {
	var input, key string
	var wait bool
	cmd := &cobra.Command{
		Use:   "trigger JOB",
		Short: "Run a job now",
		Long: `Run a job now and print the run: as soon as it is durable or, with --wait, when
it has ended. With --wait the exit code is 1 unless the run succeeded.`,
		Example: `  wheelwork job trigger totals --input @orders.csv --wait
  wheelwork job trigger totals -o json | jq -r .id`,
		Args:              arguments("JOB"),
		ValidArgsFunction: c.completeJobs,
	}
	cmd.Flags().StringVar(&input, "input", "", "input instead of the job's own: a text, @FILE, or @- for standard input")
	cmd.Flags().StringVar(&key, "key", "", "idempotency key: the same key starts one run, however often it is sent")
	cmd.Flags().BoolVar(&wait, "wait", false, "wait for the end of the run")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		t := sdk.Trigger{App: c.app, Job: args[0], Key: key}
		if cmd.Flags().Changed("input") {
			var err error
			if t.Input, err = c.readInput(input); err != nil {
				return err
			}
		}
		if !wait {
			return c.call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
				run, err := client.TriggerRun(ctx, t)
				if err != nil {
					return err
				}
				return c.printRun(run)
			})(cmd, args)
		}
		return c.wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			run, err := client.TriggerRun(ctx, t)
			if err != nil {
				return err
			}
			return c.await(ctx, client, run.GetId())
		})(cmd, args)
	}
	return cmd
}

// readInput returns the value of --input: a text, @FILE, or @- for standard input. It
// never returns nil, because an empty input differs from none.
func (c *cli) readInput(arg string) ([]byte, error) {
	name, isFile := strings.CutPrefix(arg, "@")
	var input []byte
	var err error
	switch {
	case !isFile:
		input = []byte(arg)
	case name == "-":
		input, err = io.ReadAll(c.in)
	default:
		input, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read --input: %w", err)
	}
	return slices.Concat([]byte{}, input), nil
}

func (c *cli) jobExport() *cobra.Command {
	return &cobra.Command{
		Use:   "export [JOB...]",
		Short: "Print jobs, all of them by default, as YAML documents that can be applied",
		Long: `Print jobs, all of them by default, as YAML documents that can be applied: each
after the jobs that it names.`,
		ValidArgsFunction: c.completeJobs,
		RunE: c.wait(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("output") {
				c.format = formatYAML
			}
			list := client.Jobs(ctx, sdk.JobQuery{App: c.app})
			if len(args) > 0 {
				list = func(yield func(*sdk.Job, error) bool) {
					for _, name := range args {
						if job, err := client.Job(ctx, c.app, name); !yield(job, err) {
							return
						}
					}
				}
			}
			return c.printJobs(sdk.InOrder(list, func(names []string) {
				c.note("the jobs %s name each other in a circle: an app that has none of them refuses the first of these documents", strings.Join(names, ", "))
			}))
		}),
	}
}
