package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) apply() *cobra.Command {
	var files []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:        "apply -f FILE",
		SuggestFor: []string{"create", "diff", "edit", "put", "update"},
		Short:      "Create or update jobs from YAML or JSON documents",
		Long: `Create or update the jobs that the documents of a file define, in any order:
jobs that others depend on or run as nodes are applied first. Applying the
same documents again changes nothing. "-f -" reads standard input, and "-f DIR"
the files of a folder whose names end in .yaml, .yml or .json, sorted by name. The
field inputFile names a file, beside the document, that becomes the input. A
document with an etag, which "job get -o json" shows, changes the job only while
it has that etag, so that it does not undo changes of other users.`,
		Example: `  wheelwork job apply -f totals.yaml
  wheelwork job apply -f jobs/ --dry-run
  wheelwork job export | wheelwork job apply -f - --url https://other:8700`,
		Args: command.Arguments(),
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "`file` with job documents, a folder of such files, or - for standard input; may be repeated")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check, and show what would change, field by field")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(files) == 0 {
			return command.Usage(cmd, "-f FILE is missing")
		}
		jobs, err := c.readJobs(cmd.InOrStdin(), files, cmd.Flags().Changed("app"))
		if err != nil {
			return err
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			fresh := newApps(ctx, client, jobs)
			created := map[string]bool{}
			results := applyJobs(ctx, client, jobs, dryRun)
			err := c.printResults(len(jobs), func(yield func(result) bool) {
				for r := range results {
					created[r.App] = created[r.App] || r.Result == string(sdk.Created)
					if !yield(r) {
						return
					}
				}
			})
			for _, app := range slices.Sorted(maps.Keys(created)) {
				if created[app] && fresh[app] {
					c.Note("%s", newAppText(app, dryRun))
				}
			}
			return err
		})(cmd, args)
	}
	return cmd
}

// newApps returns the apps of jobs that have nothing in them yet. It looks at a hundred
// apps at most: documents for more of them are no mistyped name.
func newApps(ctx context.Context, client *sdk.Client, jobs []*sdk.Job) map[string]bool {
	fresh := map[string]bool{}
	for _, job := range jobs {
		app := job.GetApp()
		if _, known := fresh[app]; !known && len(fresh) < 100 {
			fresh[app] = app != sdk.DefaultApp && !connect.HasApp(ctx, client, app)
		}
	}
	return fresh
}

func newAppText(app string, dryRun bool) string {
	if dryRun {
		return "app " + app + " would be new: its name is in the document or in --app"
	}
	return "app " + app + " is new: its name is in the document or in --app"
}

// readJobs reads the documents of all files. A document must not name another app than
// the command line.
func (c *commands) readJobs(in io.Reader, names []string, appGiven bool) ([]*sdk.Job, error) {
	files, err := jobFiles(names)
	if err != nil {
		return nil, err
	}
	var jobs []*sdk.Job
	definedIn := map[jobName]string{}
	for _, file := range files {
		read, err := readJobFile(in, file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, job := range read {
			job.App = cmp.Or(job.GetApp(), c.App)
			key := jobName{job.GetApp(), job.GetName()}
			if appGiven && job.GetApp() != c.App {
				return nil, fmt.Errorf("job %s belongs to app %s, but --app says %s: change one of them", job.GetName(), job.GetApp(), c.App)
			}
			if first, twice := definedIn[key]; twice {
				return nil, fmt.Errorf("job %s is defined twice, in %s and in %s: keep one of the two", job.GetName(), first, file)
			}
			definedIn[key] = file
		}
		jobs = append(jobs, read...)
	}
	if len(jobs) == 0 {
		return nil, fmt.Errorf("%s: there is no job in it", strings.Join(names, ", "))
	}
	return jobs, nil
}

// jobFiles replaces each folder by its files with documents, sorted by name.
func jobFiles(names []string) ([]string, error) {
	var files []string
	for _, name := range names {
		info, err := os.Stat(name)
		if name == "-" || err != nil || !info.IsDir() { // readJobFile reports the error
			files = append(files, name)
			continue
		}
		entries, err := os.ReadDir(name)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) {
				files = append(files, filepath.Join(name, e.Name()))
			}
		}
	}
	return files, nil
}

// readJobFile reads the documents of a file, or of standard input for "-".
func readJobFile(in io.Reader, name string) ([]*sdk.Job, error) {
	if name == "-" {
		return sdk.ReadJobs(in, ".")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return sdk.ReadJobs(f, filepath.Dir(name))
}

// applyJobs applies jobs, each after the jobs that it names, and returns the results in that
// order.
func applyJobs(ctx context.Context, client *sdk.Client, jobs []*sdk.Job, dryRun bool) iter.Seq[result] {
	if dryRun {
		return func(yield func(result) bool) {
			done := map[jobName]bool{}
			for job := range sdk.InOrder(output.Values(jobs), nil) {
				var together []string
				for _, name := range sdk.References(job) {
					if done[jobName{job.GetApp(), name}] {
						together = append(together, name)
					}
				}
				preview, err := client.Preview(ctx, job, together...)
				done[jobName{job.GetApp(), job.GetName()}] = err == nil
				r := resultOf(job, preview.Result, err)
				r.Changes = preview.Changes
				if !yield(r) {
					return
				}
			}
		}
	}
	return func(yield func(result) bool) {
		// The window keeps the stream full without storing an answer for each of a
		// million jobs.
		const window = 4096
		a := applying{client: client, last: make(map[jobName]*sdk.Pending, min(len(jobs), window))}
		next, stop := iter.Pull2(sdk.InOrder(output.Values(jobs), func(names []string) { a.circles = append(a.circles, names) }))
		defer stop()
		batch := make([]sentJob, 0, min(len(jobs), window))
		for job, _, more := next(); more; {
			for batch = batch[:0]; more && len(batch) < window; job, _, more = next() {
				batch = append(batch, a.send(ctx, job))
			}
			for _, sent := range batch {
				if !yield(a.result(ctx, sent)) {
					return
				}
			}
			clear(a.last)
		}
	}
}

type jobName struct{ app, name string }

type sentJob struct {
	job    *sdk.Job
	answer *sdk.Pending
}

// applying is one window of unanswered jobs.
type applying struct {
	client  *sdk.Client
	last    map[jobName]*sdk.Pending // latest command of each job
	circles [][]string               // cycles of jobs that name each other
}

// send sends a job after the server has answered for the jobs that it names. While a
// partition moves, a cluster may otherwise execute the two commands in either order.
func (a *applying) send(ctx context.Context, job *sdk.Job) sentJob {
	for _, name := range sdk.References(job) {
		if first := a.last[jobName{job.GetApp(), name}]; first != nil {
			first.Wait(ctx) //nolint:errcheck // its own result tells
		}
	}
	answer := a.client.ApplyAsync(ctx, job)
	a.last[jobName{job.GetApp(), job.GetName()}] = answer
	return sentJob{job, answer}
}

func (a *applying) result(ctx context.Context, sent sentJob) result {
	answer, err := sent.answer.Wait(ctx)
	if errors.Is(err, sdk.ErrPrecondition) || errors.Is(err, sdk.ErrInvalid) {
		err = a.inCircle(sent.job.GetName(), err)
	}
	return resultOf(sent.job, answer.Result, err)
}

// inCircle adds to a refusal the cycle that contains the job, if any.
func (a *applying) inCircle(name string, refused error) error {
	for _, names := range a.circles {
		if slices.Contains(names, name) {
			return fmt.Errorf("%w; the documents name each other in a circle (%s): apply one of them first without the name", refused, strings.Join(names, ", "))
		}
	}
	return refused
}
