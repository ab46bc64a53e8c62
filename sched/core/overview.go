package core

import (
	"slices"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/projection"
)

// Overview reads counters. Only the dispatched and sleeping runs of the app are counted one
// by one, over the runs of the hosts.
func (l *Loop) Overview(name string) *apiv1.Overview {
	o := &apiv1.Overview{ServerTime: timestamppb.New(l.clock.now), Writable: true}
	if err := l.commits.refuse(); err != nil {
		o.Writable, o.NotWritableReason = false, status.Convert(err).Message()
	}
	for _, h := range l.Sessions.hosts {
		switch {
		case !h.Serves(name):
		case h.Connected:
			o.HostsUp++
		default:
			o.HostsLost++
		}
	}
	p50, p99 := l.Stats.late.quantiles()
	o.LatenessP50Ms, o.LatenessP99Ms = float64(p50)/1e6, float64(p99)/1e6
	a := l.State.apps[name]
	if a == nil {
		a = &app{}
	}
	for _, s := range a.slots {
		if s == nil {
			continue
		}
		o.Jobs += int64(s.Jobs.Len())
		o.Armed += int64(s.Live(job.Armed))
		o.Queued += int64(s.Live(job.Queued))
		o.Running += int64(s.Live(job.Running))
		o.Waiting += int64(s.Live(job.Waiting))
	}
	o.Dispatched, o.Sleeping = l.Sessions.atHosts(a)
	o.Armed -= int64(a.fair.Queue.Armed) // armed runs whose time has come count as queued
	o.Queued += int64(a.fair.Queue.Armed)
	o.SucceededTotal, o.FailedTotal = a.rows.Count.Succeeded, a.rows.Count.Failed
	const shown = 60
	for at := projection.MinuteOf(l.clock.nowMs) - shown + 1; at <= projection.MinuteOf(l.clock.nowMs); at++ {
		m := a.rows.Past(at)
		o.Minutes = append(o.Minutes, &apiv1.Minute{
			Start: timestamppb.New(time.Unix(at*60, 0)), Accepted: m.GetAccepted(), Succeeded: m.GetSucceeded(), Failed: m.GetFailed(),
		})
	}
	return o
}

// Shown returns a run that is live, or has ended and may not be in the history yet; nil:
// there is none.
func (l *Loop) Shown(app string, id job.RunID) (*apiv1.Run, error) {
	if r := l.State.LiveRun(app, id); r != nil {
		return l.message(r), nil
	}
	value := l.View.Recent(app, id)
	if value == nil {
		return nil, nil
	}
	row := &apiv1.RunRow{}
	if err := proto.Unmarshal(value, row); err != nil {
		return nil, err
	}
	return job.RunMessage(row, l.clock.now), nil
}

// message returns a live run as the API shows it.
func (l *Loop) message(r *job.Run) *apiv1.Run {
	m := job.RunMessage(l.Sessions.row(r), l.clock.now)
	m.Progress = l.Sessions.progress[r.ID]
	if lag := l.timing.ahead.lag(r); lag > 0 && m.NextAttemptAt != nil {
		m.NextAttemptAt = timestamppb.New(time.UnixMilli(r.RetryMs - lag))
	}
	if !r.HasNodes() {
		return m
	}
	for i, n := range r.Nodes.Rows { // the rows do not have each state of a node's run
		if job.State(n.State) != job.Running {
			continue
		}
		if run := l.State.LiveRun(r.App, job.RunID(n.Run)); run != nil {
			m.Nodes[i].State, m.Nodes[i].StartedAt = string(l.Sessions.state(run)), nil
			if at := l.Sessions.handlerMs(run); at > 0 {
				m.Nodes[i].StartedAt = timestamppb.New(time.UnixMilli(at))
			}
		}
	}
	return m
}

// JobMessage returns a job as the API shows it.
func (l *Loop) JobMessage(j *job.Job) *apiv1.Job {
	m := j.Message(l.clock.now)
	if next := l.timing.ahead.next(j); next != j.NextMs {
		m.NextAt = timestamppb.New(time.UnixMilli(next))
	}
	return m
}

// JobPosition returns the position of a job in a list, as [job.Order.Position] for the times of its
// message.
func JobPosition(l *Loop, o job.Order, j *job.Job) string {
	next := l.timing.ahead.next(j)
	if next == j.NextMs {
		next = j.NextShownMs(l.clock.nowMs)
	}
	return o.Position(j.Name(), j.LastEndMs(), next)
}

// PartitionLoad returns the load of the partition.
func (l *Loop) PartitionLoad() Load {
	ld := Load{ScheduleRate: l.Stats.rate.value(l.clock.now)}
	zones := map[string]int{}
	for _, h := range l.Sessions.hosts {
		if h.Connected {
			ld.Hosts++
			if zone := h.Hello.Labels["zone"]; zone != "" {
				zones[zone]++
			}
		}
	}
	for zone, n := range zones {
		if m := zones[ld.Zone]; n > m || n == m && zone < ld.Zone {
			ld.Zone = zone
		}
	}
	for name, a := range l.State.apps {
		if a.primary() == "" {
			ld.Apps = append(ld.Apps, name)
		}
	}
	slices.Sort(ld.Apps)
	if l.cfg.Cluster {
		ld.Shares = l.Moves.shares()
	}
	return ld
}

// AppNames returns the names of the apps, sorted.
func (l *Loop) AppNames() (names []string) {
	for name, a := range l.State.apps {
		if !a.gone() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// message returns an app as the API shows it at a time in Unix ms.
func (a *app) message(nowMs int64) *apiv1.App {
	m := &apiv1.App{Name: a.name}
	if s := a.slots[job.ModuleSlot].Settings; s != nil {
		m = proto.CloneOf(s)
	}
	for _, s := range a.slots {
		m.Jobs += int64(s.Jobs.Len())
		m.Live += int64(s.Runs.Len())
	}
	m.Limits, m.AtHosts, m.Bytes, m.ModuleBytes, m.Pause = a.limits(), int64(a.fair.AtHosts), a.used.Bytes, a.moduleBytes(""), a.pausedAt(nowMs)
	return m
}

// AppMessage returns an app as the API shows it; nil: there is none.
func (l *Loop) AppMessage(name string) *apiv1.App {
	if a := l.State.apps[name]; a != nil && !a.gone() {
		return a.message(l.clock.nowMs)
	}
	return nil
}

// RunFilter says which live runs a list shows.
type RunFilter struct {
	App       string
	Job, Host string // "": any
	States    []job.State
	Triggers  []job.Trigger     // any of these; none: any trigger
	Labels    map[string]string // all of these
}

// Newest returns up to limit live runs, the newest first. If before is not 0, it returns
// only runs that were accepted before the one with that serial. more is the argument before
// for the next page; 0: there is none.
func (l *Loop) Newest(f RunFilter, before uint64, limit int) (runs []*apiv1.Run, more uint64) {
	a := l.State.apps[f.App]
	if a == nil {
		return nil, 0
	}
	found, more := a.live.newest(before, limit, func(r *job.Run) bool {
		state := l.Sessions.state(r)
		if state == job.Armed && l.timing.due(r) {
			state = job.Queued
		}
		return l.State.LiveRun(f.App, r.ID) == r && slices.Contains(f.States, state) &&
			(f.Job == "" || r.Job == f.Job) && (f.Host == "" || r.Host == f.Host) &&
			(len(f.Triggers) == 0 || slices.Contains(f.Triggers, r.Trigger)) && job.HasLabels(r.Shape().Labels, f.Labels)
	})
	for _, r := range found {
		m := job.RunMessage(l.Sessions.row(r), l.clock.now)
		m.Progress = l.Sessions.progress[r.ID]
		runs = append(runs, m)
	}
	return runs, more
}

// Counts are the numbers of live runs and of hosts.
type Counts struct {
	Live, Up, Lost int
	AtHosts        map[job.State]int // by dispatched, running and sleeping
	Used           []LimitUse        // of the limits of all apps
}

// Counts returns the numbers of live runs and of hosts.
func (l *Loop) Counts() Counts {
	c := Counts{Live: l.State.live, AtHosts: map[job.State]int{}}
	for _, a := range l.State.apps {
		if a.name != "" && !a.gone() {
			c.Used = a.uses(c.Used)
		}
	}
	for _, h := range l.Sessions.hosts {
		if h.Connected {
			c.Up++
		} else {
			c.Lost++
		}
		l.Sessions.countStates(h, c.AtHosts)
	}
	return c
}

// LimitUse says how much of a limit an app has used: 0 to 1, or more if the limit is lower than what
// the app has had before.
type LimitUse struct {
	App, Limit string
	Part       float64
}

// uses appends the use of each limit of the app.
func (a *app) uses(all []LimitUse) []LimitUse {
	m := a.message(0)
	add := func(limit string, used, most int64) {
		if most > 0 {
			all = append(all, LimitUse{a.name, limit, float64(used) / float64(a.part(most))})
		}
	}
	add("jobs", m.Jobs, m.Limits.Jobs)
	add("queued_runs", m.Live, m.Limits.QueuedRuns)
	add("live_runs", m.AtHosts, m.Limits.LiveRuns)
	add("bytes", m.Bytes, m.Limits.Bytes)
	add("module_bytes", m.ModuleBytes, m.Limits.ModuleBytes)
	return all
}

// HostMessages returns the hosts as the API shows them, in no order.
func (l *Loop) HostMessages() (all []*apiv1.Host) {
	for _, h := range l.Sessions.hosts {
		all = append(all, h.Message(l.cfg.ID))
	}
	return all
}

// Load is the load of a server as it reports it to the nameserver and the balancer.
type Load struct {
	ScheduleRate float64          // armed and triggered runs a second, an average with a half-life of 30 s
	Hosts        int              // connected hosts
	Zone         string           // the most frequent label "zone" of these hosts; "": no host has one
	Apps         []string         // apps whose primary partition is this one, sorted
	Shares       map[string]Share // of active and split apps; nil without [Config.Remote]
}

// GetJob returns a job as the API shows it, with the reason why its next time is late.
func (l *Loop) GetJob(app, name string) (*apiv1.Job, error) {
	j := l.State.Job(app, name)
	if j == nil {
		return nil, noJob(app, name)
	}
	m := l.JobMessage(j)
	m.NextWhy = l.timing.whyNext(j)
	return m, nil
}

// RunRow returns the row of a live run, or the encoded row of a run that has ended and may
// not be in the history yet.
func (l *Loop) RunRow(app string, id job.RunID) (live *apiv1.RunRow, ended []byte) {
	if r := l.State.LiveRun(app, id); r != nil {
		return l.Sessions.row(r), nil
	}
	return nil, l.View.Recent(app, id)
}

// Current is the current state of a definition that has revisions.
type Current struct {
	Content job.Content // zero: there is no such object
	Number  int64       // of its last revision
}

// DefinitionNow returns the current state of a definition. kind must be valid.
func (l *Loop) DefinitionNow(app, kind, name string) (d Current) {
	a := l.State.apps[app]
	if a == nil {
		return d
	}
	m := a.slots[job.ModuleSlot]
	switch kind {
	case job.KindJob:
		if j := l.State.Job(app, name); j != nil {
			d.Content, d.Number = j.Content(), j.Revision()
		}
	case job.KindCalendar:
		if x := m.Calendars[name]; x != nil {
			d.Content, d.Number = job.ContentOf(x), x.Revision
		}
	case job.KindAlias:
		if x := m.Aliases[name]; x != nil {
			d.Content, d.Number = job.ContentOf(x), x.Revision
		}
	case job.KindGrants:
		if x := m.Grants(name); x != nil {
			d.Content, d.Number = job.ContentOf(x), x.Revision
		}
	case job.KindAlertRule, job.KindAlertChannel, job.KindEventSource:
		if x := m.Definition(kind, name); x != nil {
			d.Content, d.Number = job.ContentOf(x), x.GetRevision()
		}
	case job.KindApp:
		if m.Settings != nil && !job.Deleted(m.Settings) {
			d.Content, d.Number = job.ContentOf(m.Settings), m.Settings.Revision
		}
	}
	return d
}

// versionOf returns the number of the newest revision of a definition in the module slot, and when it was
// made; 0: there is no such definition.
func versionOf(m *job.Slot, kind, name string) (number int64, at *timestamppb.Timestamp) {
	switch kind {
	case job.KindCalendar:
		return m.Calendars[name].GetRevision(), m.Calendars[name].GetUpdatedAt()
	case job.KindAlias:
		return m.Aliases[name].GetRevision(), m.Aliases[name].GetUpdatedAt()
	case job.KindGrants:
		return m.Grants(name).GetRevision(), m.Grants(name).GetUpdatedAt()
	case job.KindApp:
		if !job.Deleted(m.Settings) {
			return m.Settings.GetRevision(), m.Settings.GetUpdatedAt()
		}
	case job.KindAlertRule, job.KindAlertChannel, job.KindEventSource:
		if d, ok := m.Definition(kind, name).(interface{ GetUpdatedAt() *timestamppb.Timestamp }); ok {
			return m.Definition(kind, name).GetRevision(), d.GetUpdatedAt()
		}
	}
	return 0, nil
}
