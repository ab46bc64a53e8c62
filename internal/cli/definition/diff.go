package definition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/job/schedule"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) diff() *cobra.Command {
	var revs []int64
	var s scope
	cmd := &cobra.Command{
		Use:   "diff {-f FILE | KIND NAME --rev A [--rev B]}",
		Short: "Compare documents with the server, or two revisions of a definition",
		Long: `Compare documents with the definitions of the server, or two revisions of one definition,
field by field.

With -f the documents may be of any kinds. What is compared is their canonical form, so
defaults that are written out and another order make no difference. For a changed schedule
the output also has the cron expression in words and the next times that change. Nothing
is checked that only the server can check, and definitions that no document names are not
compared, except with --prune. --owner and --prune mean the same as in "apply".

With one --rev, the revision is compared with the definition as it is now.

` + kinds + `

Exit codes: 0 no difference, 2 differences, 1 an error, 64 wrong usage.`,
		Example: `  wheelwork diff -f definitions
  wheelwork export | wheelwork diff -f - --url https://other:8700 -o json
  wheelwork diff job report --rev 3 --rev 5
  wheelwork diff job report --rev 3`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: c.completeKinds,
		Annotations:       command.Compares,
	}
	s.flags(cmd)
	cmd.Flags().Int64SliceVar(&revs, "rev", nil, "`number` of a revision; once or twice")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(s.files) == 0 {
			if s.owner != "" || s.prune {
				return command.Usage(cmd, "--owner and --prune go with -f")
			}
			if len(args) == 0 && len(revs) == 0 {
				return command.Usage(cmd, "say what to compare: -f FILE, or KIND NAME --rev A")
			}
			if err := command.Arguments("KIND", "NAME")(cmd, args); err != nil {
				return err
			}
			return c.diffRevisions(cmd, args, revs)
		}
		switch {
		case len(revs) > 0:
			return command.Usage(cmd, "-f and --rev: compare documents, or revisions")
		case len(args) > 0:
			return command.Usage(cmd, "unexpected argument %q: -f names the documents", args[0])
		}
		documents, err := s.read(cmd, c)
		if err != nil {
			return err
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, _ []string) error {
			plans, err := s.plans(ctx, client, c.App, cmd.Flags().Changed("app"), documents)
			if err != nil {
				return err
			}
			return c.showDifferences(ctx, client, plans)
		})(cmd, args)
	}
	return cmd
}

// diffRevisions compares two revisions of a definition.
func (c *commands) diffRevisions(cmd *cobra.Command, args []string, revs []int64) error {
	o, err := c.object(cmd, args)
	switch {
	case err != nil:
		return err
	case len(revs) < 1 || len(revs) > 2:
		return command.Usage(cmd, "--rev is there %d times: want one revision, or two", len(revs))
	}
	return c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
		if len(revs) == 1 {
			all, err := client.Revisions(ctx, o.app, o.kind, o.name)
			if err != nil {
				return err
			}
			if len(all) == 0 {
				return command.Fail("not_found", "%s %s has no revision %d", o.kind, o.name, revs[0])
			}
			revs = append(revs, all[0].GetNumber())
		}
		old, err := client.Revision(ctx, o.app, o.kind, o.name, revs[0])
		if err != nil {
			return err
		}
		next, err := client.Revision(ctx, o.app, o.kind, o.name, revs[1])
		if err != nil {
			return err
		}
		changes := sdk.RevisionChanges(old, next)
		err = c.PrintAll([]string{"field", "revision " + strconv.FormatInt(revs[0], 10), "revision " + strconv.FormatInt(revs[1], 10)}, output.Each(changes, func(x sdk.Change) output.Record {
			return output.Object(x, func() []output.Cell {
				return []output.Cell{{Text: x.Field}, {Text: x.Old, Tint: output.Red}, {Text: x.New, Tint: output.Green}}
			})
		}))
		if err == nil && len(changes) > 0 {
			return command.ErrDiffers
		}
		return err
	})(cmd, args)
}

// documents reads the documents of files. Each belongs to the app that it names, or to that of
// the command line, and must not contradict the flag --app. No document at all is an error,
// unless none is allowed.
func (c *commands) documents(cmd *cobra.Command, files []string, none bool) ([]*document.Document, error) {
	all, err := document.ReadFiles(cmd.InOrStdin(), files, document.Options{})
	if err != nil {
		return nil, err
	}
	for _, d := range all {
		if d.App == "" {
			d.SetApp(c.App)
		}
		if cmd.Flags().Changed("app") && d.App != c.App {
			return nil, document.Problem{At: d.At, Text: fmt.Sprintf("%s belongs to app %s, but --app says %s: change one of them", d, d.App, c.App)}
		}
	}
	if len(all) == 0 && !none {
		return nil, command.Fail("failed", "%s: there is no document in it", strings.Join(files, ", "))
	}
	return all, document.CheckUnique(all)
}

// difference is what differs between a document and the server.
type difference struct {
	Kind    string       `json:"kind"`
	App     string       `json:"app"`
	Name    string       `json:"name"`
	Result  sdk.Result   `json:"result"` // created, updated or deleted: what applying the documents would do
	Changes []sdk.Change `json:"changes"`
	// Schedule has the old and the new schedule of a job, if it changes.
	Schedule *scheduleChange `json:"schedule,omitempty"`
	// Moves has the jobs whose next times change with a calendar, and not by their own
	// schedules: the first maxMoves of MovesInAll.
	Moves      []move `json:"moves,omitempty"`
	MovesInAll int    `json:"moves_in_all,omitempty"`
}

// move is a job whose next times change with a calendar.
type move struct {
	Job string   `json:"job"`
	Old []string `json:"old"` // the next planned times, as in scheduleText
	New []string `json:"new"`
}

// maxMoves bounds the jobs of a difference.
const maxMoves = 20

type scheduleChange struct {
	Old scheduleText `json:"old"`
	New scheduleText `json:"new"`
}

// scheduleText describes a schedule.
type scheduleText struct {
	Words string   `json:"words"` // what a cron expression means
	Next  []string `json:"next"`  // the next planned times, RFC 3339, in the zone of the schedule
}

// differences compares documents with the server.
func differences(ctx context.Context, client *sdk.Client, documents []*document.Document) ([]difference, error) {
	x := comparison{client: client, now: time.Now(), next: documents, of: map[group]map[string]*document.Document{}}
	var all []difference
	slices.SortStableFunc(documents, document.Compare)
	for _, d := range documents {
		diff, err := x.compare(ctx, d)
		if err != nil {
			return nil, err
		}
		if diff != nil {
			all = append(all, *diff)
		}
	}
	return all, nil
}

func (c *commands) printDifferences(all []difference) error {
	if c.Format != output.Table {
		return c.PrintAll(nil, output.Each(all, func(x difference) output.Record { return output.Object(x, nil) }))
	}
	var rows [][]output.Cell
	several := slices.ContainsFunc(all, func(x difference) bool { return x.App != all[0].App })
	for _, x := range all {
		what := titleOf(x.Kind, x.App, x.Name, several)
		rows = append(rows, []output.Cell{{Text: what}, {Text: string(x.Result)}, {}, {}, {}})
		for _, change := range x.Changes {
			rows = append(rows, changeRow(change.Field, change.Old, change.New))
			if change.Field == "schedule.cron" && x.Schedule != nil {
				rows = append(rows, changeRow("  in words", x.Schedule.Old.Words, x.Schedule.New.Words))
			}
		}
		if s := x.Schedule; s != nil && !slices.Equal(s.Old.Next, s.New.Next) {
			rows = append(rows, timeRows("  next times", s.Old.Next, s.New.Next)...)
		}
		for _, m := range x.Moves {
			rows = append(rows, timeRows("moves job "+m.Job, m.Old, m.New)...)
		}
		if more := x.MovesInAll - len(x.Moves); more > 0 {
			rows = append(rows, []output.Cell{{}, {}, {Text: "moves " + command.Count(more, "more job")}, {}, {}})
		}
	}
	return c.PrintAll([]string{"document", "change", "field", "server", "file"}, output.Each(rows, func(row []output.Cell) output.Record {
		return output.Record{Row: func() []output.Cell { return row }}
	}))
}

// timeRows shows old and new times beside each other.
func timeRows(field string, old, next []string) (rows [][]output.Cell) {
	at := func(times []string, i int) string {
		if i < len(times) {
			return times[i]
		}
		return ""
	}
	for i := range max(len(old), len(next)) {
		rows = append(rows, changeRow(field, at(old, i), at(next, i)))
		field = ""
	}
	return rows
}

func changeRow(field, old, next string) []output.Cell {
	return []output.Cell{{}, {}, {Text: field}, {Text: cmp.Or(old, "-"), Tint: output.Red}, {Text: cmp.Or(next, "-"), Tint: output.Green}}
}

// group is the definitions of one kind in one app.
type group struct {
	kind *document.Kind
	app  string
}

// comparison compares documents with the definitions of a server.
type comparison struct {
	client *sdk.Client
	now    time.Time
	next   []*document.Document
	of     map[group]map[string]*document.Document // what the server has, as far as it was read
	plans  map[string]map[string]*schedule.Calendar
	jobsOf map[string][]*sdk.Job // by app, as far as they were read
	byName map[[3]string]*document.Document
}

// few is the number of documents of a kind up to which each is read by its name. More of them
// are read with one list.
const few = 50

// server returns the definition that the server has, nil if there is none.
func (x *comparison) server(ctx context.Context, g group, name string) (*document.Document, error) {
	if x.of[g] == nil {
		n := 0
		for _, d := range x.next {
			if d.Kind == g.kind && d.App == g.app {
				n++
			}
		}
		if n <= few {
			d, err := read(ctx, x.client, g.kind, g.app, name)
			if errors.Is(err, sdk.ErrNotFound) {
				return nil, nil
			}
			return d, err
		}
		list, err := readAll(ctx, x.client, g.kind, g.app)
		if err != nil {
			return nil, err
		}
		x.of[g] = make(map[string]*document.Document, len(list))
		for _, d := range list {
			x.of[g][d.Name] = d
		}
	}
	return x.of[g][name], nil
}

// compare returns how a document differs from the server, nil if it does not.
func (x *comparison) compare(ctx context.Context, d *document.Document) (*difference, error) {
	old, err := x.server(ctx, group{d.Kind, d.App}, d.Name)
	if err != nil {
		return nil, err
	}
	next, err := asStored(d)
	if err != nil {
		return nil, document.Problem{At: d.At, Text: err.Error()}
	}
	diff := &difference{Kind: d.Kind.Name, App: d.App, Name: d.Name, Result: sdk.Created, Changes: []sdk.Change{}}
	if old != nil {
		diff.Result = sdk.Updated
		diff.Changes = document.Diff(old, next)
	}
	switch {
	case old != nil && len(diff.Changes) == 0, old == nil && isEmpty(next):
		return nil, nil
	case old == nil:
		return diff, nil
	}
	if _, ok := next.Spec.(*sdk.Calendar); ok && diff.Result == sdk.Updated {
		return diff, x.findMoves(ctx, diff)
	}
	if job, ok := next.Spec.(*sdk.Job); ok && slices.ContainsFunc(diff.Changes, func(c sdk.Change) bool { return strings.HasPrefix(c.Field, "schedule") }) {
		calendars, err := x.calendars(ctx, d.App, old.Spec.(*sdk.Job), job)
		if err != nil {
			return nil, err
		}
		diff.Schedule = &scheduleChange{x.describe(old.Spec.(*sdk.Job), calendars), x.describe(job, calendars)}
	}
	return diff, nil
}

// findMoves adds the jobs to the difference of a calendar whose next times it changes: jobs of
// the server that name it and whose schedules the documents do not change.
func (x *comparison) findMoves(ctx context.Context, diff *difference) error {
	jobs, err := x.jobs(ctx, diff.App)
	if err != nil {
		return err
	}
	var before, after map[string]*schedule.Calendar
	for _, job := range jobs {
		s := job.GetSchedule()
		if !slices.Contains(s.GetInclude(), diff.Name) && !slices.Contains(s.GetExclude(), diff.Name) {
			continue
		}
		if d := x.document("Job", diff.App, job.GetName()); d != nil && !proto.Equal(d.Spec.(*sdk.Job).GetSchedule(), s) {
			continue // the difference of the job has its times
		}
		if before == nil {
			list, err := x.client.Calendars(ctx, diff.App)
			if err != nil {
				return err
			}
			before, after = compiled(list...), compiled(append(list, x.calendarsOf(diff.App)...)...)
		}
		m := move{job.GetName(), x.describe(job, before).Next, x.describe(job, after).Next}
		if slices.Equal(m.Old, m.New) {
			continue
		}
		if diff.MovesInAll++; len(diff.Moves) < maxMoves {
			diff.Moves = append(diff.Moves, m)
		}
	}
	return nil
}

// jobs returns all jobs of an app. They are read once.
func (x *comparison) jobs(ctx context.Context, app string) ([]*sdk.Job, error) {
	if x.jobsOf == nil {
		x.jobsOf = map[string][]*sdk.Job{}
	}
	if list, known := x.jobsOf[app]; known {
		return list, nil
	}
	var list []*sdk.Job
	for job, err := range x.client.Jobs(ctx, sdk.JobQuery{App: app, NoInput: true}) {
		if err != nil {
			return nil, err
		}
		list = append(list, job)
	}
	x.jobsOf[app] = list
	return list, nil
}

// document returns a document by its kind and name; nil: there is none.
func (x *comparison) document(kind, app, name string) *document.Document {
	if x.byName == nil {
		x.byName = make(map[[3]string]*document.Document, len(x.next))
		for _, d := range x.next {
			x.byName[[3]string{d.Kind.Name, d.App, d.Name}] = d
		}
	}
	return x.byName[[3]string{kind, app, name}]
}

// calendarsOf returns the calendars of an app among the documents.
func (x *comparison) calendarsOf(app string) (list []*sdk.Calendar) {
	for _, d := range x.next {
		if calendar, ok := d.Spec.(*sdk.Calendar); ok && d.App == app {
			list = append(list, calendar)
		}
	}
	return list
}

// compiled compiles calendars by name; a later one replaces an earlier one of its name.
// Calendars that the server would refuse are left out.
func compiled(list ...*sdk.Calendar) map[string]*schedule.Calendar {
	all := make(map[string]*schedule.Calendar, len(list))
	for _, calendar := range list {
		if one, err := schedule.CompileCalendar(proto.CloneOf(calendar)); err == nil {
			all[calendar.GetName()] = one
		}
	}
	return all
}

// asStored returns a document as the server would store it: a calendar with its dates sorted.
func asStored(d *document.Document) (*document.Document, error) {
	calendar, ok := d.Spec.(*sdk.Calendar)
	if !ok {
		return d, nil
	}
	calendar = proto.CloneOf(calendar)
	if _, err := schedule.CompileCalendar(calendar); err != nil {
		return nil, err
	}
	return document.Of(d.Kind, calendar), nil
}

// calendars returns the calendars of an app, those of the server and over them those of the
// documents, if one of the jobs names a calendar.
func (x *comparison) calendars(ctx context.Context, app string, jobs ...*sdk.Job) (map[string]*schedule.Calendar, error) {
	names := func(j *sdk.Job) bool {
		return len(j.GetSchedule().GetInclude())+len(j.GetSchedule().GetExclude()) > 0
	}
	if x.plans[app] != nil || !slices.ContainsFunc(jobs, names) {
		return x.plans[app], nil
	}
	list, err := x.client.Calendars(ctx, app)
	if err != nil {
		return nil, err
	}
	if x.plans == nil {
		x.plans = map[string]map[string]*schedule.Calendar{}
	}
	x.plans[app] = compiled(append(list, x.calendarsOf(app)...)...)
	return x.plans[app], nil
}

// shown is the number of planned times in a difference.
const shown = 3

// describe describes the schedule of a job. It leaves out what it cannot tell: the times of a
// schedule that counts from an event, and of one that the server would refuse.
func (x *comparison) describe(job *sdk.Job, calendars map[string]*schedule.Calendar) scheduleText {
	text := scheduleText{Next: []string{}} // never null in JSON
	s := job.GetSchedule()
	plan, err := schedule.NewPlan(job, func(name string) *schedule.Calendar { return calendars[name] })
	if err != nil {
		return text
	}
	if s.GetCron() != "" {
		line, err := cron.Parse(s.GetCron(), plan.Location(), cron.Options{Seed: job.GetApp() + "/" + job.GetName(), Gap: cron.GapPolicy(s.GetGap()), Fold: cron.FoldPolicy(s.GetFold())})
		if err == nil {
			text.Words = line.Explain("en")
		}
	}
	if s.GetEvery() != "" && s.GetFrom() == "" || s.GetDelay() != "" || s.GetAfter() != "" {
		return text
	}
	for at, ok := plan.First(x.now); ok && len(text.Next) < shown; at, ok = plan.After(at) {
		text.Next = append(text.Next, at.In(plan.Location()).Format(time.RFC3339))
	}
	return text
}
