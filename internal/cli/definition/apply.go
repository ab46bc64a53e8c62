package definition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// applying has the flags of apply.
type applying struct {
	*commands
	scope
	dryRun, partial, createApp, yes bool
	note                            string
}

func (c *commands) apply() *cobra.Command {
	a := applying{commands: c}
	cmd := &cobra.Command{
		Use:        "apply {-f FILE | PLAN}",
		SuggestFor: []string{"create", "put", "update"},
		Short:      "Apply documents of all kinds, all of them or none",
		Long: `Create and update the definitions that documents describe: jobs, calendars, aliases,
grants and settings of apps, in any order. The documents of one app are one change set:
the server checks all of them, and applies all or, if one is refused, none, also if it
crashes meanwhile. Applying the same documents again changes nothing.

A document replaces its definition as a whole; a job whose document does not say paused
keeps its pause. An app that has nothing in it yet needs --create-app or a document of kind
App, so that a mistyped name does not make one.

With --owner the definitions get the label ` + ownerLabel + `, and with --prune also those
of that owner are deleted that the documents no longer name, in the apps of the documents
and of --app. Settings of apps are never deleted. The command asks before it deletes,
unless --yes is given.

With --partial each document is a change of its own: those that are refused do not keep
the others from being applied.

With PLAN, a file of "wheelwork plan -o", the changes of the plan are applied as they were
planned, with the modules that they need: all of them, or none if an object has changed
since, the file was changed, or this is another server or app.

--dry-run checks the documents at the server and shows what would change, field by field,
as "diff -f" does.

Exit codes: 0 done, or without a difference in a dry run, 2 differences in a dry run, 1 an
error, 64 wrong usage.`,
		Example: `  wheelwork apply -f definitions
  wheelwork apply -f definitions --dry-run
  wheelwork apply -f definitions --owner billing --prune --yes --note "release 17"
  wheelwork export | wheelwork apply -f - --url https://other:8700 --create-app`,
		Args:        cobra.ArbitraryArgs,
		Annotations: command.Compares,
	}
	a.flags(cmd)
	cmd.Flags().BoolVar(&a.dryRun, "dry-run", false, "check the documents, and show what would change")
	cmd.Flags().BoolVar(&a.partial, "partial", false, "apply each document for itself, and go on after one that is refused")
	cmd.Flags().BoolVar(&a.createApp, "create-app", false, "create apps that have nothing in them yet")
	cmd.Flags().BoolVar(&a.yes, "yes", false, "do not ask before definitions are deleted")
	cmd.Flags().StringVar(&a.note, "note", "", "reason, for the history")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 1, len(args) > 0 && len(a.files) > 0:
			return command.Usage(cmd, "unexpected argument %q: give one PLAN, or documents with -f", args[len(args)-1])
		case len(args) == 1:
			for _, name := range []string{"dry-run", "partial", "create-app", "owner", "prune"} {
				if cmd.Flags().Changed(name) {
					return command.Usage(cmd, "PLAN and --%s: a plan is applied as it was made", name)
				}
			}
			return c.applyPlan(cmd, args[0], a.note)
		case len(a.files) == 0:
			return command.Usage(cmd, "-f FILE or PLAN is missing")
		}
		documents, err := a.read(cmd, c)
		if err != nil {
			return err
		}
		return c.Wait(func(ctx context.Context, client *sdk.Client, cmd *cobra.Command, _ []string) error {
			return a.run(sdk.WithNote(ctx, a.note), client, cmd, documents)
		})(cmd, args)
	}
	return cmd
}

// run applies documents, or shows what that would change.
func (a *applying) run(ctx context.Context, client *sdk.Client, cmd *cobra.Command, documents []*document.Document) error {
	plans, err := a.plans(ctx, client, a.App, cmd.Flags().Changed("app"), documents)
	if err != nil {
		return err
	}
	if a.dryRun {
		for _, p := range plans {
			if err := a.check(ctx, client, p); err != nil {
				return err
			}
		}
		return a.showDifferences(ctx, client, plans)
	}
	var gone []string
	for _, p := range plans {
		if len(p.gone) > 0 {
			gone = append(gone, fmt.Sprintf("%s of app %s (%s)", command.Count(len(p.gone), "definition"), p.app, namesOf(p.gone)))
		}
	}
	if len(gone) > 0 && !a.yes {
		if err := command.Confirm(cmd, "Delete "+strings.Join(gone, " and ")); err != nil {
			return err
		}
	}
	var done []change
	var failed error
	for i, p := range plans {
		apply := a.whole
		if a.partial {
			apply = a.each
		}
		err := a.follow(p, apply(ctx, client, p), &done)
		if err != nil && len(plans) > 1 && !a.partial {
			err = fmt.Errorf("%w\n%s", err, progressText(plans, i))
		}
		if failed = cmp.Or(failed, err); err != nil && (!a.partial || connect.Fatal(err)) {
			break
		}
	}
	return cmp.Or(a.print(done), failed)
}

// print prints the outcomes. The table omits unchanged documents.
func (a *applying) print(done []change) error {
	if a.Format == output.Table {
		if done = slices.DeleteFunc(done, func(x change) bool { return x.Result == sdk.Unchanged }); len(done) == 0 {
			return nil
		}
	}
	several := slices.ContainsFunc(done, func(x change) bool { return x.App != done[0].App })
	columns := []string{"document", "result"}
	if a.partial {
		columns = append(columns, "why")
	}
	return a.PrintAll(columns, output.Each(done, func(x change) output.Record {
		return output.Object(x, func() []output.Cell {
			row := []output.Cell{{Text: titleOf(x.Kind, x.App, x.Name, several)}, {Text: string(x.Result)}, {Text: x.Error}}
			if x.err != nil {
				row[1].Tint = output.Red
			}
			return row[:len(columns)]
		})
	}))
}

// change is the outcome for one document or deletion.
type change struct {
	Kind   string     `json:"kind"`
	App    string     `json:"app"`
	Name   string     `json:"name"`
	Result sdk.Result `json:"result"`          // "refused" if there is an error
	Error  string     `json:"error,omitempty"` // one sentence

	err error
}

func changeOf(d *document.Document, result sdk.Result, err error) change {
	x := change{Kind: d.Kind.Name, App: d.App, Name: d.Name, Result: result}
	if err != nil {
		x.Result, x.Error, x.err = "refused", err.Error(), err
	}
	return x
}

// follow adds the outcomes of a plan to done and notes a summary. It fails if a document was
// refused.
func (a *applying) follow(p plan, changes iter.Seq2[change, error], done *[]change) error {
	bar := a.Progress(int64(p.len()), "documents", false)
	defer bar.End()
	counts := map[sdk.Result]int{}
	n, refused := 0, 0
	var last error
	for x, err := range changes {
		if err != nil {
			return err
		}
		n++
		bar.Reached(int64(n))
		counts[x.Result]++
		if x.err != nil {
			refused, last = refused+1, x.err
		}
		*done = append(*done, x)
	}
	bar.End()
	var parts []string
	for _, result := range []sdk.Result{sdk.Created, sdk.Updated, sdk.Deleted, sdk.Unchanged, "refused"} {
		if counts[result] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[result], result))
		}
	}
	a.Note("app %s: %s", p.app, cmp.Or(strings.Join(parts, ", "), "nothing to change"))
	switch {
	case last != nil && connect.Fatal(last):
		return last // the remaining documents would fail in the same way
	case refused > 0:
		return command.Fail("refused", "%d of %s refused: the list says why", refused, command.Count(p.len(), "document"))
	}
	return nil
}

// check lets the server check a plan.
func (a *applying) check(ctx context.Context, client *sdk.Client, p plan) error {
	if p.len() == 0 {
		return nil
	}
	set := p.changeSet(a.createApp)
	set.DryRun = true
	_, err := client.ApplyChangeSet(ctx, set)
	return p.refusal(err)
}

// whole applies a plan as one change set.
func (a *applying) whole(ctx context.Context, client *sdk.Client, p plan) iter.Seq2[change, error] {
	return func(yield func(change, error) bool) {
		if p.len() == 0 {
			return
		}
		if !a.partial {
			a.Status(fmt.Sprintf("applying %s to app %s …", command.Count(p.len(), "change"), p.app))
			defer a.ClearStatus()
		}
		results, err := client.ApplyChangeSet(ctx, p.changeSet(a.createApp))
		if err != nil {
			yield(change{}, p.refusal(err))
			return
		}
		if len(results) != p.len() {
			yield(change{}, fmt.Errorf("the server has %d results for %d changes: it is of another version", len(results), p.len()))
			return
		}
		for i, result := range results {
			if !yield(changeOf(p.at(i), result, nil), nil) {
				return
			}
		}
	}
}

// partialAtOnce bounds the concurrent calls of a partial apply. Most of their time is that of
// a sync of the journal, which they share.
const partialAtOnce = 64

// each applies every document as a change set of its own: documents in the order of their
// references, those without references to other jobs at the same time, and deletions last.
func (a *applying) each(ctx context.Context, client *sdk.Client, p plan) iter.Seq2[change, error] {
	return func(yield func(change, error) bool) {
		var group []plan // independent of each other
		flush := func() bool {
			results := make([]change, len(group))
			var calls sync.WaitGroup
			for i, one := range group {
				calls.Go(func() {
					for x, err := range a.whole(ctx, client, one) {
						if results[i] = x; err != nil {
							results[i] = changeOf(one.at(0), "", err)
						}
					}
				})
			}
			calls.Wait()
			for _, x := range results {
				if !yield(x, nil) || connect.Fatal(x.err) {
					return false
				}
			}
			group = group[:0]
			return true
		}
		for _, step := range p.steps() {
			if step.alone && !flush() {
				return
			}
			if group = append(group, step.plan); (step.alone || len(group) == partialAtOnce) && !flush() {
				return
			}
		}
		flush()
	}
}

// shownNames bounds the names in a question.
const shownNames = 5

func namesOf(documents []*document.Document) string {
	var names []string
	for _, d := range documents[:min(len(documents), shownNames)] {
		names = append(names, d.String())
	}
	if more := len(documents) - shownNames; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// progressText says which apps were changed before plan i failed, and which were not tried.
func progressText(plans []plan, i int) string {
	var parts []string
	if i > 0 {
		parts = append(parts, "the documents of "+appsOf(plans[:i])+" are applied")
	}
	parts = append(parts, "those of "+appsOf(plans[i:])+" are not")
	return strings.Join(parts, ", ")
}

func appsOf(plans []plan) string {
	var names []string
	for _, p := range plans {
		names = append(names, "app "+p.app)
	}
	return strings.Join(names, ", ")
}

// changeSet returns the change set of a plan.
func (p plan) changeSet(createApp bool) sdk.ChangeSet {
	set := sdk.ChangeSet{App: p.app, CreateApp: createApp, Definitions: make([]proto.Message, 0, len(p.documents))}
	for _, d := range p.documents {
		set.Definitions = append(set.Definitions, d.Spec)
	}
	for _, d := range p.gone {
		set.Deletions = append(set.Deletions, sdk.Object{Kind: revisionKind(d.Kind), Name: d.Name})
	}
	return set
}

// refusal adds to the error of a change set where the documents are that the server refused.
func (p plan) refusal(err error) error {
	var refused *sdk.Error
	if !errors.As(err, &refused) || len(refused.Problems) == 0 {
		return err
	}
	var lines []string
	for _, x := range refused.Problems {
		d := p.at(x.Index)
		text := x.Message
		if !strings.HasPrefix(text, d.String()+": ") {
			text = d.String() + ": " + text
		}
		lines = append(lines, document.Problem{At: d.At, Text: text}.Error())
	}
	if more := refused.ProblemsInAll - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return &refusedSet{strings.Join(lines, "\n"), refused}
}

// refusedSet is the refusal of a change set with the positions of the documents.
type refusedSet struct {
	text string
	by   error
}

func (e *refusedSet) Error() string { return e.text }
func (e *refusedSet) Unwrap() error { return e.by }

// A step of a partial apply is one document or deletion.
type step struct {
	plan  plan
	alone bool // it refers to other documents, or others to it
}

// steps returns the changes of a plan one by one, each behind those that it refers to.
func (p plan) steps() []step {
	var steps []step
	var jobs []*sdk.Job
	of := map[*sdk.Job]*document.Document{}
	for _, d := range p.documents {
		if job, ok := d.Spec.(*sdk.Job); ok {
			jobs = append(jobs, job)
			of[job] = d
			continue
		}
		steps = append(steps, step{plan{app: p.app, documents: []*document.Document{d}}, true})
	}
	named := map[string]bool{}
	for _, job := range jobs {
		for _, name := range sdk.References(job) {
			named[name] = true
		}
	}
	for job := range sdk.InOrder(output.Values(jobs), nil) {
		steps = append(steps, step{plan{app: p.app, documents: []*document.Document{of[job]}}, named[job.GetName()] || len(sdk.References(job)) > 0})
	}
	return append(steps, p.deletions()...)
}

// deletions returns the deletions of a plan one by one, each behind those of the objects that
// refer to it.
func (p plan) deletions() []step {
	var steps []step
	var jobs []*sdk.Job
	of := map[string]*document.Document{}
	for _, d := range p.gone {
		of[d.Kind.Name+" "+d.Name] = d
		if job, ok := d.Spec.(*sdk.Job); ok {
			jobs = append(jobs, job)
		} else {
			steps = append(steps, step{plan{app: p.app, gone: []*document.Document{d}}, true})
		}
	}
	for job := range sdk.InOrder(output.Values(jobs), nil) {
		steps = append(steps, step{plan{app: p.app, gone: []*document.Document{of["Job "+job.GetName()]}}, true})
	}
	slices.Reverse(steps)
	return steps
}
