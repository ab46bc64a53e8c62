package core

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/event"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// This file applies change sets (ADR 48). A set is checked, in several turns if it is large.
// A small set is then applied in one batch of the journal. A large one, or one of a split app, is
// stored first, and applied in steps, each of them one batch with the number of the changes that
// are applied.

const (
	// MaxChanges bounds the changes of a set.
	MaxChanges = 50_000
	// stepChanges bounds the changes that one turn checks or applies.
	stepChanges = 128
	// partBytes is the size, in bytes, at which a stored part of a set takes no more changes.
	partBytes = 256 << 10
	// circleBudget bounds the jobs that one turn visits to find a circle.
	circleBudget = 4096
	// shownProblems bounds the problems in the error of a set.
	shownProblems = 20
)

// ChangeSet is a set of changes of the definitions of one app.
type ChangeSet struct {
	app       string
	dryRun    bool
	createApp bool
	by        *apiv1.Attribution
	done      <-chan struct{} // closed when the caller has gone; nil: there is none

	items   []changeItem // in the order in which they are applied
	parts   [][]byte     // encoded items, each an ApplyChangeSetRequest
	bytes   int64        // of parts
	with    *Together
	results []*apiv1.ChangeResult // by the index of the request
	checked int                   // number of items that were checked
	circles *circleSearch
	at      int            // number of items whose circles were searched
	added   map[string]int // by kind: number of calendars and aliases that the set adds
	grows   growth         // what the jobs of the set add
	refused problems
	records int // number of records that a calendar of the set makes for jobs that name it

	sharing *sharing                                   // nil: the app is in this partition alone
	number  uint64                                     // of a stored set of the app
	stored  bool                                       // the set is in the journal
	applied int                                        // number of items that were applied
	hold    *hold                                      // nil: a dry run
	answer  func(*apiv1.ApplyChangeSetResponse, error) // nil: no caller waits
}

// changeItem is one change.
type changeItem struct {
	index    int // in the request
	change   *apiv1.Change
	etag     string             // that a job must have; "": any
	base     string             // the state that the object must have, see [apiv1.Change]; "": any
	calendar *schedule.Calendar // compiled; nil: the change is no calendar
	same     bool               // the check has found that it changes nothing
}

// problems are the reasons for which a set is refused.
type problems struct {
	first []*apiv1.Refusal_Problem // those of the first changes in the request, sorted
	n     int
}

func (p *problems) add(index int, err error) {
	p.n++
	st := status.Convert(err)
	at, _ := slices.BinarySearchFunc(p.first, int32(index), func(x *apiv1.Refusal_Problem, index int32) int { return cmp.Compare(x.Index, index) })
	p.first = slices.Insert(p.first, at, &apiv1.Refusal_Problem{Index: int32(index), Code: int32(st.Code()), Error: st.Message()})
	p.first = p.first[:min(len(p.first), shownProblems)]
}

// addOnce is add, unless the change has a problem already.
func (p *problems) addOnce(index int, err error) {
	if !slices.ContainsFunc(p.first, func(x *apiv1.Refusal_Problem) bool { return x.Index == int32(index) }) {
		p.add(index, err)
	}
}

// err returns the refusal of a set; nil: there are no problems.
func (p *problems) err() error {
	if p.n == 0 {
		return nil
	}
	text := fmt.Sprintf("the change set was not applied: change %d: %s", p.first[0].Index, p.first[0].Error)
	if p.n > 1 {
		text += fmt.Sprintf(" (and %d more)", p.n-1)
	}
	return Refused(codes.Code(p.first[0].Code), text, &apiv1.Refusal{Reason: reasonChangeSet, Problems: p.first, ProblemsInAll: int32(p.n)})
}

// NewChangeSet checks a request as far as that needs no state. The set shares the messages of
// the request. ctx is that of the caller: a set that is not stored yet ends with it.
func NewChangeSet(ctx context.Context, req *apiv1.ApplyChangeSetRequest) (*ChangeSet, error) {
	set := &ChangeSet{
		app: AppOf(req.App), dryRun: req.DryRun, createApp: req.CreateApp, done: ctx.Done(),
		with: &Together{}, added: map[string]int{}, results: make([]*apiv1.ChangeResult, len(req.Changes)),
	}
	if err := naming.Check("app", set.app); err != nil {
		return nil, Invalid(err)
	}
	switch n := len(req.Changes); {
	case n == 0:
		return nil, status.Error(codes.InvalidArgument, "the set has no changes")
	case n > MaxChanges:
		return nil, status.Errorf(codes.InvalidArgument, "the set has %d changes, the limit is %d: make several sets", n, MaxChanges)
	}
	first := map[[2]string]int{}
	for i, c := range req.Changes {
		item := changeItem{index: i}
		if err := item.read(set.app, c); err != nil {
			set.refused.add(i, err)
			continue
		}
		k := [2]string{kindOf(item.change), nameOf(item.change)}
		if before, twice := first[k]; twice {
			set.refused.add(i, status.Errorf(codes.InvalidArgument, "%s %s is changed twice, first by change %d: keep one of the two", k[0], k[1], before))
			continue
		}
		first[k] = i
		set.items = append(set.items, item)
		item.join(set.with)
	}
	if err := set.refused.err(); err != nil {
		return nil, err
	}
	slices.SortStableFunc(set.items, func(a, b changeItem) int {
		if r := rank(a.change) - rank(b.change); r != 0 || kindOf(a.change) != job.KindJob {
			return r
		}
		return int(job.SlotOf(nameOf(a.change))) - int(job.SlotOf(nameOf(b.change))) // those of a slot together: another partition may have it
	})
	return set, set.encode()
}

// encode makes the parts of the set.
func (set *ChangeSet) encode() error {
	part := &apiv1.ApplyChangeSetRequest{}
	size := 0
	for i := range set.items {
		part.Changes = append(part.Changes, set.items[i].change)
		size += proto.Size(set.items[i].change)
		if size < partBytes && i < len(set.items)-1 {
			continue
		}
		b, err := proto.Marshal(part)
		if err != nil {
			return Invalid(err)
		}
		set.parts = append(set.parts, b)
		set.bytes += int64(len(b))
		part.Changes, size = part.Changes[:0], 0
	}
	return nil
}

// read checks a change and keeps it in the form in which it is applied.
func (it *changeItem) read(app string, c *apiv1.Change) (err error) {
	it.change, it.base = &apiv1.Change{}, c.GetBase()
	in := func(of *string) error {
		if *of == "" {
			*of = app
		}
		if *of != app {
			return status.Errorf(codes.InvalidArgument, "it belongs to app %s, and the set to app %s: make one set for each app", *of, app)
		}
		return nil
	}
	switch k := c.GetKind().(type) {
	case *apiv1.Change_Job:
		if k.Job != nil {
			it.etag, err = k.Job.Etag, in(&k.Job.App)
		}
		var def *apiv1.Job
		if err == nil {
			def, err = Definition(k.Job)
		}
		it.change.Kind = &apiv1.Change_Job{Job: def}
	case *apiv1.Change_Calendar:
		if k.Calendar != nil {
			err = in(&k.Calendar.App)
		}
		var def *apiv1.Calendar
		if err == nil {
			def, it.calendar, err = CalendarDefinition(k.Calendar)
		}
		it.change.Kind = &apiv1.Change_Calendar{Calendar: def}
	case *apiv1.Change_Alias:
		if k.Alias != nil {
			err = in(&k.Alias.App)
		}
		var def *apiv1.Alias
		if err == nil {
			def, err = AliasDefinition(k.Alias)
		}
		it.change.Kind = &apiv1.Change_Alias{Alias: def}
	case *apiv1.Change_Grants:
		if k.Grants != nil {
			err = in(&k.Grants.App)
		}
		var def *apiv1.ModuleGrants
		if err == nil {
			def, err = GrantsDefinition(k.Grants)
		}
		it.change.Kind = &apiv1.Change_Grants{Grants: def}
	case *apiv1.Change_Settings:
		if k.Settings != nil {
			err = in(&k.Settings.Name)
		}
		var def *apiv1.App
		if err == nil {
			def, err = AppDefinition(k.Settings)
		}
		it.change.Kind = &apiv1.Change_Settings{Settings: def}
	case *apiv1.Change_AlertRule:
		if k.AlertRule != nil {
			err = in(&k.AlertRule.App)
		}
		var def *apiv1.AlertRule
		if err == nil {
			def, _, err = definition.ReadRule(k.AlertRule)
			err = invalidIf(err)
		}
		it.change.Kind = &apiv1.Change_AlertRule{AlertRule: def}
	case *apiv1.Change_AlertChannel:
		if k.AlertChannel != nil {
			err = in(&k.AlertChannel.App)
		}
		var def *apiv1.AlertChannel
		if err == nil {
			def, err = definition.ReadChannel(k.AlertChannel)
			err = invalidIf(err)
		}
		it.change.Kind = &apiv1.Change_AlertChannel{AlertChannel: def}
	case *apiv1.Change_EventSource:
		if k.EventSource != nil {
			err = in(&k.EventSource.App)
		}
		var def *apiv1.EventSource
		if err == nil {
			def, err = event.ReadSource(k.EventSource)
			err = invalidIf(err)
		}
		it.change.Kind = &apiv1.Change_EventSource{EventSource: def}
	case *apiv1.Change_Delete:
		d := k.Delete
		switch {
		case !slices.Contains(deletable, d.GetKind()):
			err = status.Errorf(codes.InvalidArgument, "delete.kind is %q, want one of %s", d.GetKind(), strings.Join(deletable, ", "))
		case d.GetName() == "" || d.Kind == job.KindAlias && strings.Count(d.Name, "@") != 1:
			err = status.Errorf(codes.InvalidArgument, "delete.name is %q, want the name of the %s", d.GetName(), d.GetKind())
		}
		it.change.Kind = &apiv1.Change_Delete{Delete: d}
	default:
		err = status.Error(codes.InvalidArgument, "the change is empty, or of a newer version than this server")
	}
	return err
}

// deletable are the kinds of objects that a change deletes.
var deletable = []string{job.KindJob, job.KindCalendar, job.KindAlias, job.KindGrants, job.KindAlertRule, job.KindAlertChannel, job.KindEventSource}

func invalidIf(err error) error {
	if err == nil {
		return nil
	}
	return Invalid(err)
}

// rank is the position of a change in the order in which a set is applied: an object comes
// behind those that it may refer to, and deletions are last.
func rank(c *apiv1.Change) int {
	switch k := c.Kind.(type) {
	case *apiv1.Change_Settings:
		return 0
	case *apiv1.Change_Calendar:
		return 1
	case *apiv1.Change_Alias:
		return 2
	case *apiv1.Change_Grants:
		return 3
	case *apiv1.Change_EventSource:
		return 4
	case *apiv1.Change_Job:
		return 5
	case *apiv1.Change_AlertChannel:
		return 6
	case *apiv1.Change_AlertRule:
		return 7
	case *apiv1.Change_Delete:
		if k.Delete.Kind == job.KindJob || k.Delete.Kind == job.KindAlertRule {
			return 8 // they refer to the others
		}
	}
	return 9
}

// kindOf returns the kind of the object that a change changes.
func kindOf(c *apiv1.Change) string {
	switch k := c.Kind.(type) {
	case *apiv1.Change_Settings:
		return job.KindApp
	case *apiv1.Change_Calendar:
		return job.KindCalendar
	case *apiv1.Change_Alias:
		return job.KindAlias
	case *apiv1.Change_Grants:
		return job.KindGrants
	case *apiv1.Change_AlertRule:
		return job.KindAlertRule
	case *apiv1.Change_AlertChannel:
		return job.KindAlertChannel
	case *apiv1.Change_EventSource:
		return job.KindEventSource
	case *apiv1.Change_Delete:
		return k.Delete.Kind
	}
	return job.KindJob
}

// nameOf returns the name of the object that a change changes.
func nameOf(c *apiv1.Change) string {
	switch k := c.Kind.(type) {
	case *apiv1.Change_Settings:
		return k.Settings.Name
	case *apiv1.Change_Calendar:
		return k.Calendar.Name
	case *apiv1.Change_Alias:
		return job.AliasRef(k.Alias)
	case *apiv1.Change_Grants:
		return k.Grants.Module
	case *apiv1.Change_AlertRule:
		return k.AlertRule.Name
	case *apiv1.Change_AlertChannel:
		return k.AlertChannel.Name
	case *apiv1.Change_EventSource:
		return k.EventSource.Name
	case *apiv1.Change_Delete:
		return k.Delete.Name
	}
	return c.GetJob().GetName()
}

// join adds a change to the definitions that the checks of the others see.
func (it *changeItem) join(t *Together) {
	name, deleted := nameOf(it.change), it.change.GetDelete() != nil
	switch kindOf(it.change) {
	case job.KindApp:
		t.settings = it.change.GetSettings()
	case job.KindCalendar:
		set(&t.calendars, name, it.calendar)
	case job.KindAlias:
		set(&t.aliases, name, it.change.GetAlias())
	case job.KindAlertChannel:
		set(&t.channels, name, !deleted)
	case job.KindEventSource:
		set(&t.sources, name, !deleted)
	case job.KindAlertRule:
		set(&t.rules, name, it.change.GetAlertRule())
	case job.KindJob:
		if deleted {
			t.addJob(name, nil)
		} else {
			t.addJob(name, it.change.GetJob())
		}
	}
}

// Begin checks a set and applies it. It calls answer once, with the results when all changes
// are durable, or with the reason for which nothing has changed. With an error of the code
// Unavailable the set may be applied.
func (cs *ChangeSets) Begin(set *ChangeSet, answer func(*apiv1.ApplyChangeSetResponse, error)) {
	set.by, set.answer = cs.l.commits.by, answer
	a := cs.l.State.app(set.app)
	refuse := func() error {
		switch {
		case !set.createApp && set.with.settings == nil && set.app != naming.DefaultApp && cs.l.AppMessage(set.app) == nil:
			return status.Errorf(codes.NotFound, "there is no app %q: create it with --create-app (create_app in the API), or with a document of kind App", set.app)
		case a.primary() != "" || a.split() && cs.l.cfg.Others == nil:
			return status.Errorf(codes.Unavailable, "this partition is not the primary one of app %s: try again in a moment", set.app)
		case cs.l.limits.mayAddApp(set.app) != nil:
			return cs.l.limits.mayAddApp(set.app)
		case set.dryRun:
			return nil
		case cs.l.commits.failure == nil && cs.l.cfg.Journal.Room()-int64(cs.l.commits.stage.bytes)-3*set.bytes < growthRoom: // the set, its changes and their revisions
			return errFull
		}
		return cs.l.commits.refuse()
	}
	if !set.dryRun {
		if err := cs.l.Holds.Free(set.app); err != nil {
			answer(nil, err)
			return
		}
	}
	if err := refuse(); err != nil {
		answer(nil, err)
		return
	}
	if !set.dryRun {
		set.hold = cs.l.Holds.take(set.app)
	}
	if a.split() {
		set.sharing = &sharing{}
		cs.ask(set)
	}
	cs.check(set)
}

// later continues with a set in the next turn.
func (cs *ChangeSets) later(f func()) { cs.l.Mail.Do(func(*Loop) { f() }) }

// check checks some of the changes, and continues in the next turn if more are left. Then it
// applies the set.
func (cs *ChangeSets) check(set *ChangeSet) {
	select {
	case <-set.done:
		cs.end(set, status.FromContextError(context.Canceled).Err())
		return
	default:
	}
	for n := 0; set.checked < len(set.items); n++ {
		if n == stepChanges {
			cs.later(func() { cs.check(set) })
			return
		}
		it := &set.items[set.checked]
		if set.checked++; !cs.concerns(set, it) {
			continue
		}
		result, err := cs.checkItem(set, it)
		if err != nil {
			set.refused.add(it.index, err)
		}
		it.same = result == "unchanged"
		set.results[it.index] = &apiv1.ChangeResult{Result: result}
	}
	if set.refused.n == 0 && !cs.findCircles(set) {
		cs.later(func() { cs.check(set) })
		return
	}
	if set.sharing != nil && set.sharing.asked {
		set.sharing.waits = true
		return
	}
	if err := set.refused.err(); err != nil || set.dryRun {
		cs.end(set, err)
		return
	}
	cs.apply(set)
}

// findCircles searches for jobs of the set that would start each other. It returns false if
// the search continues in the next turn.
func (cs *ChangeSets) findCircles(set *ChangeSet) (done bool) {
	if set.circles == nil {
		set.circles = &circleSearch{re: &cs.l.relations, app: set.app, t: set.with}
	}
	for budget := circleBudget; set.at < len(set.items); set.at++ {
		it := &set.items[set.at]
		if def := it.change.GetJob(); def.GetWorkflow() == nil && def.GetDependency() == nil {
			continue // it names no job, so it cannot close a circle
		}
		done, err := set.circles.search(nameOf(it.change), &budget)
		if err != nil {
			set.refused.add(it.index, err)
			return true
		}
		if !done {
			return false
		}
	}
	return true
}

// checkItem returns what a change would do: created, updated, unchanged or deleted.
func (cs *ChangeSets) checkItem(set *ChangeSet, it *changeItem) (result string, err error) {
	a := cs.l.State.app(set.app)
	s := a.slots[job.ModuleSlot]
	if err := cs.checkBase(set, it); err != nil {
		return "", err
	}
	switch k := it.change.Kind.(type) {
	case *apiv1.Change_Job:
		_, result, err = cs.l.Commands.change(JobChange{Def: proto.CloneOf(k.Job), When: Condition{Etag: it.etag}, With: set.with, inSet: true, set: &set.grows})
		return result, err
	case *apiv1.Change_Settings:
		return changeOf(s.Settings, k.Settings), nil
	case *apiv1.Change_Calendar:
		set.records += len(cs.l.Planner.naming(set.app, k.Calendar.Name))
		old := s.Calendars[k.Calendar.Name]
		return changeOf(old, k.Calendar), set.count(old == nil, job.KindCalendar, len(s.Calendars), maxCalendars)
	case *apiv1.Change_Alias:
		old := s.Aliases[job.AliasRef(k.Alias)]
		if err := cmp.Or(cs.l.Catalog.checkAlias(a, k.Alias, false, set.with), set.count(old == nil, job.KindAlias, len(s.Aliases), job.MaxAliases)); err != nil {
			return "", err
		}
		if a.version(job.AliasRef(k.Alias)) != nil {
			return "", status.Errorf(codes.AlreadyExists, "%s is a version of the module: give the alias another name", job.AliasRef(k.Alias))
		}
		return resultOf(old != nil, cs.l.Catalog.continues(old, proto.CloneOf(k.Alias))), nil
	case *apiv1.Change_Grants:
		old := s.Grants(k.Grants.Module)
		if job.Nothing(k.Grants.Grants) {
			return deletion(old != nil), nil
		}
		return changeOf(old, k.Grants), nil
	case *apiv1.Change_AlertRule:
		return cs.checkDefinition(set, s, job.KindAlertRule, k.AlertRule, maxAlertRules, cmp.Or(a.errIfSplitForAlerts(), missingChannels(s, set.with, k.AlertRule)))
	case *apiv1.Change_AlertChannel:
		return cs.checkDefinition(set, s, job.KindAlertChannel, k.AlertChannel, maxAlertChannels, nil)
	case *apiv1.Change_EventSource:
		return cs.checkDefinition(set, s, job.KindEventSource, k.EventSource, maxEventSources, nil)
	case *apiv1.Change_Delete:
		return cs.checkDeletion(set, a, k.Delete)
	}
	return "", nil
}

// noBase is the base of an object that must not exist.
const noBase = "none"

// checkBase fails if the object of a change is not in the state that the caller has seen. The app is held
// since before the check, so that the state stays until the change is applied.
func (cs *ChangeSets) checkBase(set *ChangeSet, it *changeItem) error {
	if it.base == "" {
		return nil
	}
	kind, name := kindOf(it.change), nameOf(it.change)
	now := noBase
	if kind == job.KindJob {
		if j := cs.l.State.Job(set.app, name); j != nil {
			now = j.Etag()
		}
	} else if number, at := versionOf(cs.l.State.app(set.app).slots[job.ModuleSlot], kind, name); number > 0 {
		now = fmt.Sprintf("%d@%d", number, at.AsTime().UnixMilli())
	}
	if now == it.base {
		return nil
	}
	why := "was changed meanwhile"
	switch noBase {
	case now:
		why = "was deleted meanwhile"
	case it.base:
		why = "was created meanwhile"
	}
	return Refused(codes.Aborted, fmt.Sprintf("%s %s %s: make the change again from what it is now", kind, name, why), &apiv1.Refusal{Reason: reasonChanged})
}

// count fails if the set would add too many objects of a kind. The deletions of the set count
// after it is applied, so that the number never exceeds the limit.
func (set *ChangeSet) count(added bool, kind string, now, most int) error {
	if !added {
		return nil
	}
	if set.added[kind]++; now+set.added[kind] > most {
		return status.Errorf(codes.ResourceExhausted, "app %s would have %d objects of kind %s, and the limit is %d", set.app, now+set.added[kind], kind, most)
	}
	return nil
}

// checkDeletion fails if an object that remains refers to one that is deleted.
func (cs *ChangeSets) checkDeletion(set *ChangeSet, a *app, d *apiv1.Deletion) (string, error) {
	s := a.slots[job.ModuleSlot]
	var names []string
	exists := false
	switch d.Kind {
	case job.KindJob:
		exists = cs.l.State.Job(set.app, d.Name) != nil
		names = cs.l.relations.namers(jobKey{set.app, d.Name}, func(j *job.Job) bool { return !set.with.changesJob(j.Name()) })
	case job.KindCalendar:
		exists = s.Calendars[d.Name] != nil
		for _, j := range cs.l.Planner.naming(set.app, d.Name) {
			if !set.with.changesJob(j.Name()) {
				names = append(names, "job "+j.Name())
			}
		}
	case job.KindAlias:
		exists = s.Aliases[d.Name] != nil
		for _, name := range a.jobsNaming(d.Name) {
			if !set.with.changesJob(strings.TrimPrefix(name, "job ")) {
				names = append(names, name)
			}
		}
	case job.KindGrants:
		exists = s.Grants(d.Name) != nil
	case job.KindAlertRule, job.KindAlertChannel, job.KindEventSource:
		exists = s.Definition(d.Kind, d.Name) != nil
		names = rulesTelling(s, set.with, d)
		if d.Kind == job.KindAlertChannel {
			names = append(names, jobsTelling(a, set.with, d.Name)...)
		}
	}
	return deletion(exists), referenced(d.Kind+" "+d.Name, names)
}

func deletion(exists bool) string {
	if exists {
		return "deleted"
	}
	return "unchanged"
}

func resultOf(exists, same bool) string {
	switch {
	case !exists:
		return "created"
	case same:
		return "unchanged"
	}
	return "updated"
}

// changeOf compares a definition that is no job with the one that it replaces, which is nil if
// there is none.
func changeOf[D interface {
	comparable
	proto.Message
}](old, next D) string {
	var none D
	return resultOf(old != none, old != none && job.ContentOf(old) == job.ContentOf(next))
}

// apply applies a set that was checked.
func (cs *ChangeSets) apply(set *ChangeSet) {
	if len(set.items) > stepChanges || set.records > fewJobs || set.sharing != nil {
		cs.store(set)
	}
	cs.step(set)
}

// store writes the set to the journal, in one batch: from then on it is applied.
func (cs *ChangeSets) store(set *ChangeSet) {
	s := cs.l.State.app(set.app).slots[job.ModuleSlot]
	set.number = s.ChangeSetNumber() + 1
	for i, part := range set.parts {
		p := &apiv1.ChangeSetPart{Changes: part}
		if i == len(set.parts)-1 {
			p.Set = &apiv1.ChangeSetRow{Changes: int64(len(set.items)), Attribution: set.by, Number: set.number}
		}
		cs.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_ChangeSetPart{ChangeSetPart: p}})
	}
	set.parts, set.stored = nil, true
	cs.l.commits.submit()
}

// step applies some of the changes, and continues in the next turn if more are left. The
// changes of one step are in one batch, unless a calendar changes many jobs: such a step is
// repeated after a crash, which changes nothing again.
func (cs *ChangeSets) step(set *ChangeSet) {
	if cs.l.commits.failure != nil { // the server ends, and its next start continues
		cs.end(set, cs.l.commits.failure)
		return
	}
	if set.stored && cs.l.commits.cramped() {
		cs.again(set)
		return
	}
	cs.l.commits.by = set.by
	defer func() { cs.l.commits.by = byServer }()
	for n := 0; set.applied < len(set.items); n++ {
		if set.stored && (n == stepChanges || cs.l.commits.stage.bytes >= stageBytes) {
			break
		}
		it := &set.items[set.applied]
		if !cs.concerns(set, it) {
			if n == 0 {
				cs.send(set)
				return
			}
			break
		}
		if !it.same && !cs.reached(set, it) {
			cs.applyItem(set, it)
		}
		set.applied++
	}
	cs.progress(set)
}

// reached reports whether the next change was applied in another partition, from which its
// slot has come since.
func (cs *ChangeSets) reached(set *ChangeSet, it *changeItem) bool {
	if set.sharing == nil || kindOf(it.change) != job.KindJob {
		return false
	}
	applied, _ := cs.slotOf(set, it).ReachedBy(set.number)
	return int64(set.applied) < applied
}

// progress records how many changes of a stored set were applied, and continues in the next turn
// if more are left.
func (cs *ChangeSets) progress(set *ChangeSet) {
	if set.stored {
		s := cs.l.State.app(set.app).slots[job.ModuleSlot]
		cs.l.commits.record(s, &apiv1.Record{Kind: &apiv1.Record_ChangeSetStep{ChangeSetStep: &apiv1.ChangeSetStep{Applied: int64(set.applied)}}})
	}
	if set.applied < len(set.items) {
		cs.later(func() { cs.step(set) })
		return
	}
	cs.end(set, nil)
}

// waitAgain is the pause before a set tries again that cannot continue.
const waitAgain = 200 * time.Millisecond

// again continues with a stored set after waitAgain. It uses no timer of the loop: these follow
// the wall clock, which may be set back.
func (cs *ChangeSets) again(set *ChangeSet) {
	time.AfterFunc(waitAgain, func() { cs.later(func() { cs.step(set) }) })
}

// applyItem records a change that was checked.
func (cs *ChangeSets) applyItem(set *ChangeSet, it *changeItem) {
	l := cs.l
	a := l.State.app(set.app)
	s := a.slots[job.ModuleSlot]
	var err error
	switch k := it.change.Kind.(type) {
	case *apiv1.Change_Job:
		var put *apiv1.JobPut
		if put, _, err = l.Commands.change(JobChange{Def: k.Job, inSet: true, checked: true}); err == nil && put != nil {
			l.commits.record(a.slots[job.SlotOf(k.Job.Name)], &apiv1.Record{Kind: &apiv1.Record_JobPut{JobPut: put}})
		}
	case *apiv1.Change_Settings:
		l.Commands.setApp(k.Settings)
	case *apiv1.Change_Calendar:
		err = l.Planner.setCalendar(s, k.Calendar, it.calendar)
	case *apiv1.Change_Alias:
		old := s.Aliases[job.AliasRef(k.Alias)]
		k.Alias.Events = slices.Clone(old.GetEvents())
		if !l.Catalog.continues(old, k.Alias) {
			l.Catalog.moveAlias(a, old, k.Alias)
		}
	case *apiv1.Change_Grants:
		l.Guests.setGrants(k.Grants)
	case *apiv1.Change_AlertRule:
		cs.define(a, k.AlertRule)
	case *apiv1.Change_AlertChannel:
		cs.define(a, k.AlertChannel)
	case *apiv1.Change_EventSource:
		cs.define(a, k.EventSource)
	case *apiv1.Change_Delete:
		cs.delete(a, k.Delete)
	}
	if err != nil { // never: the check has found the same, and the app did not change since
		l.cfg.Logger.Error("a change of a checked set could not be applied, and is left out", "app", set.app, "kind", kindOf(it.change), "name", nameOf(it.change), "error", err)
	}
}

func (cs *ChangeSets) delete(a *app, d *apiv1.Deletion) {
	s := a.slots[job.ModuleSlot]
	switch d.Kind {
	case job.KindJob:
		if j := cs.l.State.Job(a.name, d.Name); j != nil {
			cs.l.Commands.dropJob(j)
		}
	case job.KindCalendar:
		if s.Calendars[d.Name] != nil {
			cs.l.Planner.dropCalendar(a.name, d.Name)
		}
	case job.KindAlias:
		if x := s.Aliases[d.Name]; x != nil {
			cs.l.Catalog.dropAlias(a, x.Module, x.Name)
		}
	case job.KindGrants:
		if s.Grants(d.Name) != nil {
			cs.l.Guests.setGrants(&apiv1.ModuleGrants{App: a.name, Module: d.Name})
		}
	case job.KindAlertRule, job.KindAlertChannel, job.KindEventSource:
		if s.Definition(d.Kind, d.Name) != nil {
			cs.undefine(a, d.Kind, d.Name)
		}
	}
}

// end answers the caller of a set, and lets the calls that wait for it continue. Without an
// error the answer waits until the set is durable.
func (cs *ChangeSets) end(set *ChangeSet, err error) {
	switch {
	case set.answer == nil:
	case err != nil:
		set.answer(nil, err)
	default:
		resp := &apiv1.ApplyChangeSetResponse{Results: set.results}
		cs.l.commits.onDurable(func(err error) { set.answer(resp, err) })
	}
	if set.hold != nil {
		cs.l.commits.by = byServer // the calls that waited are not a part of the set
		cs.l.Holds.drain(set.hold)
	}
}

// resume continues the sets that a former owner of the partition has stored.
func (cs *ChangeSets) resume() {
	for _, name := range slices.Sorted(maps.Keys(cs.l.State.apps)) {
		stored := cs.l.State.apps[name].slots[job.ModuleSlot].ChangeSet()
		if stored == nil {
			continue
		}
		set := &ChangeSet{app: name, by: stored.Row.Attribution, number: stored.Row.Number, stored: true, applied: int(stored.Row.Applied)}
		if cs.l.State.apps[name].split() {
			set.sharing = &sharing{}
		}
		changes, err := stored.Changes()
		for i, c := range changes {
			it := changeItem{index: i, change: c}
			if c.GetCalendar() != nil {
				var invalid error
				_, it.calendar, invalid = CalendarDefinition(c.GetCalendar())
				err = cmp.Or(err, invalid)
			}
			set.items = append(set.items, it)
		}
		if err != nil {
			cs.l.commits.fail(fmt.Errorf("continue the change set of app %s: %w", name, err))
			return
		}
		set.hold = cs.l.Holds.take(name)
		cs.l.cfg.Logger.Info("a change set continues after a restart", "app", name, "changes", len(set.items), "applied", set.applied)
		cs.later(func() { cs.step(set) })
	}
}

// Bounds of the definitions of an app.
const (
	maxAlertRules    = 2_000
	maxAlertChannels = 200
	maxEventSources  = 200
)

// define records a definition of a rule, a channel or an event source.
func (cs *ChangeSets) define(a *app, d job.AppDefinition) {
	m := d.ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName("updated_at"), protoreflect.ValueOfMessage(timestamppb.New(cs.l.clock.now).ProtoReflect()))
	cs.l.commits.record(a.slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_DefinitionPut{DefinitionPut: &apiv1.DefinitionPut{Definition: job.Wrap(d)}}})
}

// undefine records that one of them is deleted.
func (cs *ChangeSets) undefine(a *app, kind, name string) {
	cs.l.commits.record(a.slots[job.ModuleSlot], &apiv1.Record{Kind: &apiv1.Record_DefinitionDelete{DefinitionDelete: &apiv1.DefinitionDelete{Kind: kind, Name: name}}})
}

// checkDefinition returns what a change of a rule, a channel or an event source would do. wrong refuses it.
func (cs *ChangeSets) checkDefinition(set *ChangeSet, s *job.Slot, kind string, d job.AppDefinition, most int, wrong error) (string, error) {
	if wrong != nil {
		return "", wrong
	}
	old := s.Definition(kind, d.GetName())
	return changeOf(old, d), set.count(old == nil, kind, len(s.DefinitionsOf(kind)), most)
}
