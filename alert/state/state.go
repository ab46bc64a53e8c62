package state

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/alert/rule"
	"github.com/wheelworkhq/wheelwork/internal/timeheap"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// Bounds of the state of one app.
const (
	MaxGroups   = 20_000
	MaxSilences = 1_000
	// MaxEnded is the number of deliveries that stay after their end, for the delivery log.
	MaxEnded = 1_000
	// MaxWaiting bounds the deliveries of one channel that wait. Beyond it the oldest is dropped, so that the newest
	// state of an incident is told.
	MaxWaiting = 10_000
)

// Row is one part of the state.
type Row struct {
	Key   string
	Value []byte // JSON; nil: the part is gone
}

// The kinds of rows. The key of a row begins with its kind.
const (
	kindGroup    = "group"
	kindSilence  = "silence"
	kindDelivery = "delivery"
	kindUsage    = "channel"
	kindWatched  = "watched"
	kindMark     = "mark"
)

// Rule is a rule of the app with what its groups need.
type Rule struct {
	*definition.Rule
	// Open counts the groups in which something is in trouble, or counts towards an alert: without any, a run that
	// succeeded concerns the rule only as the end of nothing.
	Open int
}

// State is the alerts of one app. It is not safe for concurrent use.
type State struct {
	app       string
	calendars schedule.Calendars
	rules     map[string]*Rule
	index     index
	groups    map[groupKey]*group
	due       timeheap.Heap[*group] // an entry whose time is not that of its group is stale
	silences  map[string]Silence
	box       outbox
	marks     map[string]Mark  // by fingerprint
	watched   map[string]int64 // by rule, see Watched
	changed   map[string]bool  // keys of rows
}

// Silence is a silence with its author.
type Silence struct {
	rule.Silence
	Reason string
	By     string
}

type groupKey struct{ rule, key string }

// row returns the key of the row of a group.
func (k groupKey) row() string { return kindGroup + "/" + k.rule + "/" + k.key }

// group is a group with the rule that it is of.
type group struct {
	id    groupKey
	rule  *Rule // nil while the rule of a loaded group is not known
	state rule.Group
	dueMs int64 // its time in State.due; 0: it is not there
	open  bool  // it is counted in rule.Open
}

// New returns the state of an app without alerts. calendars returns the compiled calendars of
// the app.
func New(app string, calendars schedule.Calendars) *State {
	return &State{
		app: app, calendars: calendars, rules: map[string]*Rule{}, groups: map[groupKey]*group{}, silences: map[string]Silence{}, marks: map[string]Mark{},
		box: newOutbox(), watched: map[string]int64{}, changed: map[string]bool{},
	}
}

// Load reads a row. The caller loads all rows before it sets rules and channels.
func (st *State) Load(key string, value []byte) error {
	kind, rest, _ := strings.Cut(key, "/")
	switch kind {
	case kindGroup:
		name, groupName, _ := strings.Cut(rest, "/")
		g := &group{id: groupKey{name, groupName}}
		if err := json.Unmarshal(value, &g.state); err != nil {
			return fmt.Errorf("alert group %q: %w", key, err)
		}
		st.groups[g.id] = g
	case kindSilence:
		var s Silence
		if err := json.Unmarshal(value, &s); err != nil {
			return fmt.Errorf("silence %q: %w", key, err)
		}
		st.silences[rest] = s
	case kindWatched:
		at := int64(0)
		if err := json.Unmarshal(value, &at); err != nil {
			return fmt.Errorf("alert row %q: %w", key, err)
		}
		st.watched[rest] = at
	case kindMark:
		m := Mark{Fingerprint: rest}
		if err := json.Unmarshal(value, &m); err != nil {
			return fmt.Errorf("mark of the error %q: %w", rest, err)
		}
		st.marks[rest] = m
	case kindDelivery, kindUsage:
		return st.box.load(kind, rest, value)
	default:
		return fmt.Errorf("alert row %q: this version does not write such a row", key)
	}
	return nil
}

// Changes returns the rows that have changed since the last call, by key.
func (st *State) Changes() ([]Row, error) {
	if len(st.changed) == 0 {
		return nil, nil
	}
	rows := make([]Row, 0, len(st.changed))
	for _, key := range slices.Sorted(maps.Keys(st.changed)) {
		v := st.part(key)
		row := Row{Key: key}
		if v != nil {
			var err error
			if row.Value, err = json.Marshal(v); err != nil {
				return nil, fmt.Errorf("encode %q: %w", key, err)
			}
		}
		rows = append(rows, row)
	}
	clear(st.changed)
	return rows, nil
}

// part returns the part with the key of a row; nil: there is none.
func (st *State) part(key string) any {
	kind, rest, _ := strings.Cut(key, "/")
	switch kind {
	case kindGroup:
		name, groupName, _ := strings.Cut(rest, "/")
		if g := st.groups[groupKey{name, groupName}]; g != nil {
			return &g.state
		}
	case kindSilence:
		if s, ok := st.silences[rest]; ok {
			return s
		}
	case kindWatched:
		if at := st.watched[rest]; at != 0 {
			return at
		}
	case kindMark:
		if m, ok := st.marks[rest]; ok {
			return m
		}
	default:
		return st.box.part(kind, rest)
	}
	return nil
}

// SetRules replaces the rules. The alerts of a rule that is gone, or that divides its groups in
// another way, end; they are resolved in their channels if the former rule lists recovered.
func (st *State) SetRules(rules []*definition.Rule, nowMs int64) {
	former := st.rules
	st.rules = make(map[string]*Rule, len(rules))
	for _, r := range rules {
		st.rules[r.Name] = &Rule{Rule: r}
	}
	st.index = indexOf(st.Rules())
	for _, id := range slices.SortedFunc(maps.Keys(st.groups), compareKeys) {
		g := st.groups[id]
		was, now := former[id.rule], st.rules[id.rule]
		if now == nil || was != nil && !slices.Equal(was.GroupBy, now.GroupBy) {
			if was != nil {
				st.queue(was, g.state.Close(&was.Rule.Rule, nowMs))
			}
			st.drop(g)
			continue
		}
		g.rule, g.open, g.dueMs = now, false, 0
		st.settle(g, nowMs)
	}
	for name := range st.watched {
		if st.rules[name] == nil {
			delete(st.watched, name)
			st.changed[kindWatched+"/"+name] = true
		}
	}
	st.due.Retain(func(atMs int64, g *group) bool { return st.groups[g.id] == g && atMs == g.dueMs })
}

func compareKeys(a, b groupKey) int {
	return cmp.Or(strings.Compare(a.rule, b.rule), strings.Compare(a.key, b.key))
}

// Rules returns the rules, by name.
func (st *State) Rules() []*Rule {
	return slices.SortedFunc(maps.Values(st.rules), func(a, b *Rule) int { return strings.Compare(a.Name, b.Name) })
}

// Rule returns a rule; nil: there is none.
func (st *State) Rule(name string) *Rule { return st.rules[name] }

// Watched returns up to when the times of day of a rule were looked at, in Unix ms; 0: never.
func (st *State) Watched(name string) int64 { return st.watched[name] }

// SetWatched sets that time.
func (st *State) SetWatched(name string, atMs int64) {
	st.watched[name] = atMs
	st.changed[kindWatched+"/"+name] = true
}

// Observe folds an event, or an end, into the group that a rule has for it.
func (st *State) Observe(r *Rule, e *rule.Event) {
	key, labels := r.Key(e)
	id := groupKey{r.Name, key}
	g := st.groups[id]
	if g == nil {
		if e.Ends {
			return
		}
		if len(st.groups) >= MaxGroups {
			id.key, labels = others, map[string]string{"group": others}
			g = st.groups[id]
		}
		if g == nil {
			g = &group{id: id, rule: r, state: rule.Group{Key: id.key, Labels: labels}}
			st.groups[id] = g
		}
	}
	st.queue(r, g.state.Observe(&r.Rule.Rule, e, st.quiet(r, labels)))
	st.changed[id.row()] = true
	st.settle(g, e.AtMs)
}

// others is the key of the group for events beyond MaxGroups.
const others = "…"

// Troubled reports whether a subject is in trouble in the group that a rule has for an event.
func (st *State) Troubled(r *Rule, e *rule.Event) bool {
	key, _ := r.Key(e)
	g := st.groups[groupKey{r.Name, key}]
	if g == nil {
		return false
	}
	_, found := slices.BinarySearch(g.state.Subjects, e.About)
	return found
}

// End ends the trouble of a subject in all groups of a rule: the caller does not know the labels
// under which it began.
func (st *State) End(r *Rule, about string, nowMs int64) {
	if r.Open == 0 {
		return
	}
	for _, g := range st.groupsOf(r.Name) {
		_, found := slices.BinarySearch(g.state.Subjects, about)
		if !found && g.state.InRow[about] == 0 {
			continue
		}
		e := rule.Event{Subject: rule.Subject{App: st.app}, About: about, Ends: true, AtMs: nowMs}
		st.queue(r, g.state.Observe(&r.Rule.Rule, &e, st.quiet(r, g.state.Labels)))
		st.changed[g.id.row()] = true
		st.settle(g, nowMs)
	}
}

// EndOthers ends the trouble of the subjects of a rule that begin with a prefix and are not among those that there are.
func (st *State) EndOthers(r *Rule, prefix string, there map[string]bool, nowMs int64) {
	if r.Open == 0 {
		return
	}
	for _, g := range st.groupsOf(r.Name) {
		for _, about := range slices.Clone(g.state.Subjects) {
			if strings.HasPrefix(about, prefix) && !there[about] {
				st.End(r, about, nowMs)
			}
		}
	}
}

// groupsOf returns the groups of a rule by key. A rule without group_by has one.
func (st *State) groupsOf(name string) []*group {
	r := st.rules[name]
	if r != nil && len(r.GroupBy) == 0 {
		if g := st.groups[groupKey{name, ""}]; g != nil {
			return []*group{g}
		}
		return nil
	}
	var all []*group
	for id, g := range st.groups {
		if id.rule == name {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b *group) int { return compareKeys(a.id, b.id) })
	return all
}

// settle plans the next time of a group after a change, and forgets one that is idle.
func (st *State) settle(g *group, nowMs int64) {
	r := &g.rule.Rule.Rule
	open := len(g.state.Subjects)+len(g.state.InRow)+len(g.state.Seen) > 0 || g.state.SinceMs != 0
	if open != g.open {
		g.open = open
		if open {
			g.rule.Open++
		} else {
			g.rule.Open--
		}
	}
	if g.state.Idle(r, nowMs) {
		st.drop(g)
		return
	}
	at := g.state.Due(r, nowMs, st.quiet(g.rule, g.state.Labels))
	if at == 0 { // the rest of an alert that was sent becomes idle
		at = g.state.QuietMs
		if n := len(g.state.Seen); n > 0 && r.Window > 0 {
			at = max(at, g.state.Seen[n-1]+r.Window.Milliseconds())
		}
		if at <= nowMs {
			at = 0
		}
	}
	if g.dueMs = at; at != 0 {
		st.due.Add(at, g)
	}
}

// drop forgets a group.
func (st *State) drop(g *group) {
	if g.open && g.rule != nil {
		g.rule.Open--
	}
	g.dueMs, g.open = 0, false
	delete(st.groups, g.id)
	st.changed[g.id.row()] = true
}

// Due returns the next time at which Tick has something to do, in Unix ms; 0: none.
func (st *State) Due() int64 {
	at := int64(0)
	for {
		dueMs, g, ok := st.due.First()
		if ok && dueMs != g.dueMs {
			st.due.Remove()
			continue
		}
		at = dueMs
		break
	}
	for _, s := range st.silences {
		if at == 0 || s.UntilMs < at {
			at = s.UntilMs
		}
	}
	return at
}

// Tick makes the notifications that are due.
func (st *State) Tick(nowMs int64) {
	for id, s := range st.silences {
		if s.UntilMs <= nowMs {
			st.removeSilence(id, nowMs)
		}
	}
	for _, g := range st.takeDue(nowMs) {
		if out := g.state.Tick(&g.rule.Rule.Rule, nowMs, st.quiet(g.rule, g.state.Labels)); len(out) > 0 {
			st.queue(g.rule, out)
			st.changed[g.id.row()] = true
		}
		st.settle(g, nowMs)
	}
}

// takeDue returns the groups that are due, in the order of their times and keys.
func (st *State) takeDue(nowMs int64) (due []*group) {
	for atMs, g, ok := st.due.First(); ok && atMs <= nowMs; atMs, g, ok = st.due.First() {
		if st.due.Remove(); atMs == g.dueMs && !slices.Contains(due[max(0, len(due)-1):], g) {
			due = append(due, g)
		}
	}
	slices.SortStableFunc(due, func(a, b *group) int { return cmp.Or(cmp.Compare(a.dueMs, b.dueMs), compareKeys(a.id, b.id)) })
	for _, g := range due {
		g.dueMs = 0
	}
	return due
}

// quiet returns until when silences and calendars keep a group from telling.
func (st *State) quiet(r *Rule, labels map[string]string) rule.Quiet {
	if len(st.silences) == 0 && len(r.Mute) == 0 {
		return rule.Never
	}
	return func(nowMs int64) int64 {
		until := int64(0)
		for _, s := range st.silences {
			if s.FromMs <= nowMs && nowMs < s.UntilMs && s.Covers(&r.Rule.Rule, labels) {
				until = max(until, s.UntilMs)
			}
		}
		return max(until, st.mutedUntil(r, nowMs))
	}
}

// maxMuted bounds the days for which a calendar is followed: with a calendar of all days a rule is asked again then.
const maxMuted = 366

// mutedUntil returns the end of the days on which calendars mute a rule; 0: today is none of them.
func (st *State) mutedUntil(r *Rule, nowMs int64) int64 {
	if len(r.Mute) == 0 || st.calendars == nil {
		return 0
	}
	at, until := time.UnixMilli(nowMs).In(r.Zone), int64(0)
	for range maxMuted {
		year, month, day := at.Date()
		if !slices.ContainsFunc(r.Mute, func(name string) bool {
			c := st.calendars(name)
			return c != nil && c.Has(year, month, day)
		}) {
			break
		}
		at = time.Date(year, month, day+1, 0, 0, 0, 0, r.Zone)
		until = at.UnixMilli()
	}
	return until
}

// Errors of calls of people.
var (
	ErrNoAlert   = errors.New("there is no such alert")
	ErrNoSilence = errors.New("there is no such silence")
	ErrTooMany   = fmt.Errorf("the app has %d silences, which is the limit", MaxSilences)
)

// Acknowledge notes that a person takes care of an alert. One that was acknowledged before
// keeps the first person.
func (st *State) Acknowledge(id, by string, nowMs int64) error {
	g := st.alert(id)
	if g == nil {
		return ErrNoAlert
	}
	if g.state.Acknowledge(by, nowMs) {
		st.changed[g.id.row()] = true
		st.settle(g, nowMs)
	}
	return nil
}

// alert returns the group that has an alert; nil: there is none.
func (st *State) alert(id string) *group {
	for _, g := range st.groups {
		if g.state.SinceMs != 0 && g.rule != nil && g.state.AlertID(&g.rule.Rule.Rule) == id {
			return g
		}
	}
	return nil
}

// AddSilence begins a silence.
func (st *State) AddSilence(s Silence, nowMs int64) error {
	if len(st.silences) >= MaxSilences {
		return ErrTooMany
	}
	st.silences[s.ID] = s
	st.changed[kindSilence+"/"+s.ID] = true
	st.replan(nowMs)
	return nil
}

// EndSilence ends a silence.
func (st *State) EndSilence(id string, nowMs int64) error {
	if _, ok := st.silences[id]; !ok {
		return ErrNoSilence
	}
	st.removeSilence(id, nowMs)
	return nil
}

func (st *State) removeSilence(id string, nowMs int64) {
	delete(st.silences, id)
	st.changed[kindSilence+"/"+id] = true
	st.replan(nowMs)
}

// replan plans all groups again, after a change of what keeps them quiet.
func (st *State) replan(nowMs int64) {
	for _, id := range slices.SortedFunc(maps.Keys(st.groups), compareKeys) {
		if g := st.groups[id]; g.rule != nil {
			st.settle(g, nowMs)
		}
	}
}

// Silences returns the silences, the one that ends first first.
func (st *State) Silences() []Silence {
	return slices.SortedFunc(maps.Values(st.silences), func(a, b Silence) int {
		return cmp.Or(cmp.Compare(a.UntilMs, b.UntilMs), strings.Compare(a.ID, b.ID))
	})
}

// Alert is an alert that fires.
type Alert struct {
	ID    string
	Rule  *definition.Rule
	Group *rule.Group // not to be modified
	Next  int64       // the next notification, Unix ms; 0: none before the next event
	Quiet int64       // until when a silence or a calendar keeps it from being told; 0: nothing does
}

// Firing counts the alerts that fire, by severity. It has each severity.
func (st *State) Firing() map[notification.Severity]int {
	n := map[notification.Severity]int{}
	for _, s := range notification.Severities() {
		n[s] = 0
	}
	for _, g := range st.groups {
		if g.state.SinceMs != 0 && g.rule != nil {
			n[cmp.Or(g.rule.Severity, notification.Error)]++
		}
	}
	return n
}

// Alerts returns the alerts that fire, the newest first.
func (st *State) Alerts(nowMs int64) []Alert {
	var all []Alert
	for _, g := range st.groups {
		if g.state.SinceMs == 0 || g.rule == nil {
			continue
		}
		r := &g.rule.Rule.Rule
		quiet := st.quiet(g.rule, g.state.Labels)
		a := Alert{ID: g.state.AlertID(r), Rule: g.rule.Rule, Group: &g.state, Next: g.state.Due(r, nowMs, quiet)}
		if until := quiet(nowMs); until > nowMs {
			a.Quiet = until
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Alert) int {
		return cmp.Or(-cmp.Compare(a.Group.SinceMs, b.Group.SinceMs), strings.Compare(a.ID, b.ID))
	})
	return all
}
