package definition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/environment"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// undo makes the inverse of a change, shows it and applies it.
func (p *planning) undo(cmd *cobra.Command, id string) error {
	at, err := timeOf(id)
	if err != nil {
		return command.Usage(cmd, "--change: %v", err)
	}
	if p.to != "" {
		if err := noServerFlags(cmd); err != nil {
			return err
		}
	}
	ctx, cancel := p.Deadline(cmd.Context(), 0)
	defer cancel()
	defer p.close()
	if p.target, err = p.place(ctx, p.to, ""); err != nil {
		return err
	}
	p.target.overlay = nil // the revisions have the values of the overlay of their time
	plan, err := p.inverse(ctx, id, at)
	if err != nil {
		return p.target.server.In(err)
	}
	if len(plan.Changes) == 0 {
		p.Note("change %s: nothing to undo, the definitions are as they were before it", id)
		return nil
	}
	return p.showAndApply(ctx, cmd, plan)
}

// revised is an object that a change has changed.
type revised struct {
	kind     *document.Kind
	name     string
	first    int64 // the revision that the change made; a change of a calendar or alias in the same set may make another one
	number   int64 // the last one
	now, was *document.Document
	err      error
}

// clocks is how far the clocks of a client and a server may differ.
const clocks = time.Hour

// inverse returns the plan that undoes a change, from the revisions before it.
func (p *planning) inverse(ctx context.Context, id string, at time.Time) (*environment.Plan, error) {
	all, err := p.changedBy(ctx, id, at)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, command.Fail("not_found", "the audit log has no change %s in app %s: name its environment with --in, or its server and app", id, p.target.server.App)
	}
	target, _, err := p.target.definitions(ctx)
	if err != nil {
		return nil, err
	}
	there := map[string]*document.Document{}
	for _, d := range target {
		there[d.String()] = d
	}
	in := environment.Input{Prune: true, Now: time.Now(), Base: sdk.BaseOf}
	var turn sync.WaitGroup
	limit := make(chan struct{}, partialAtOnce)
	for i := range all {
		r := &all[i]
		r.now = there[strings.ToLower(r.kind.Name)+" "+r.name]
		turn.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			r.err = p.restore(ctx, r)
		})
	}
	turn.Wait()
	for i := range all {
		r := &all[i]
		if r.err != nil {
			return nil, r.err
		}
		if r.now != nil {
			in.Target = append(in.Target, r.now)
		}
		if r.was != nil {
			in.Wanted = append(in.Wanted, r.was)
		}
	}
	for _, d := range target { // for the planned times
		if d.Kind.Name == "Calendar" && !slices.ContainsFunc(in.Target, func(x *document.Document) bool { return x.String() == d.String() }) {
			in.Target, in.Wanted = append(in.Target, d), append(in.Wanted, d)
		}
	}
	plan, err := environment.New(in)
	if err != nil {
		return nil, err
	}
	plan.From, plan.Server, plan.App, plan.Note = "change "+id, p.target.server.URL, p.target.server.App, strings.TrimSuffix("roll back "+id+": "+p.note, ": ")
	if err := p.examine(ctx, plan); err != nil {
		return nil, err
	}
	return plan, plan.Seal()
}

// changedBy returns the objects that a change has changed, from the audit log.
func (p *planning) changedBy(ctx context.Context, id string, at time.Time) (all []revised, err error) {
	known := map[environment.Object]int{}
	for e, err := range p.target.client.AuditEvents(ctx, sdk.AuditQuery{App: p.target.server.App, Since: at.Add(-clocks), Until: at.Add(clocks)}) {
		if err != nil {
			return nil, err
		}
		if rest, ok := strings.CutPrefix(e.GetMessage(), id); !ok || rest != "" && !strings.HasPrefix(rest, ": ") {
			continue
		}
		kind, did, _ := strings.Cut(e.GetCode(), ".")
		k, err := kindOfEvent(kind)
		if err != nil {
			continue // it changed no definition
		}
		r := revised{kind: k, name: e.GetObject()}
		number, deleted := e.GetAfter(), did == "deleted"
		if deleted {
			number = e.GetBefore()
		}
		if r.number, err = strconv.ParseInt(strings.TrimPrefix(number, "revision "), 10, 64); err != nil {
			return nil, fmt.Errorf("the audit event of %s %s has the revision %q", kind, r.name, number)
		}
		if deleted {
			r.number++ // the deletion is a revision too
		}
		r.first = r.number
		if i, twice := known[environment.Object{Kind: k.Name, Name: r.name}]; twice {
			all[i].first, all[i].number = min(all[i].first, r.number), max(all[i].number, r.number)
			continue
		}
		known[environment.Object{Kind: k.Name, Name: r.name}] = len(all)
		all = append(all, r)
	}
	return all, nil
}

// kindOfEvent returns the kind of the definitions that the code of an audit event is about.
func kindOfEvent(name string) (*document.Kind, error) {
	if name == sdk.KindGrants {
		name = "grant"
	}
	return document.Find(strings.ReplaceAll(name, "_", ""))
}

// restore finds what an object was before the change. It fails if the object was changed since.
func (p *planning) restore(ctx context.Context, r *revised) error {
	kind := revisionKind(r.kind)
	list, err := p.target.client.Revisions(ctx, p.target.server.App, kind, r.name)
	if err != nil {
		return err
	}
	if len(list) == 0 || list[0].GetNumber() != r.number {
		by := ""
		if len(list) > 0 {
			by = " by " + list[0].GetAuthor()
		}
		return command.Fail("failed_precondition", "%s %s has a change after this one%s: `wheelwork history %[1]s %[2]s` shows it, and `wheelwork rollback %[1]s %[2]s --to N` rolls back one definition", strings.ToLower(r.kind.Name), r.name, by)
	}
	if r.first == 1 {
		if r.kind.Name == "App" { // settings are never deleted
			r.was = document.Of(r.kind, &sdk.App{Name: r.name})
		}
		return nil
	}
	before, err := p.target.client.Revision(ctx, p.target.server.App, kind, r.name, r.first-1)
	if err != nil {
		return err
	}
	m := definitionOf(before)
	if m == nil {
		return errors.New("revision " + strconv.FormatInt(r.first-1, 10) + " of " + kind + " " + r.name + " has no definition")
	}
	r.was = document.Of(r.kind, m)
	return nil
}

// definitionOf returns the definition of a revision, nil if it is a deletion.
func definitionOf(r *sdk.Revision) proto.Message {
	switch {
	case r.GetJob() != nil:
		return r.GetJob()
	case r.GetCalendar() != nil:
		return r.GetCalendar()
	case r.GetAlias() != nil:
		return r.GetAlias()
	case r.GetGrants() != nil:
		return r.GetGrants()
	case r.GetSettings() != nil:
		return r.GetSettings()
	case r.GetAlertRule() != nil:
		return r.GetAlertRule()
	case r.GetAlertChannel() != nil:
		return r.GetAlertChannel()
	case r.GetEventSource() != nil:
		return r.GetEventSource()
	}
	return nil
}
