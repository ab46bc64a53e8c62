package core

import (
	"math"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
)

// depends adds j to the indexes of the nodes, upstream jobs and events that it names. It is part of
// applying a record, and of loading the store.
func (re *relations) depends(j *job.Job) {
	for _, name := range j.Nodes() {
		k := jobKey{j.Slot().App, name}
		if !slices.Contains(re.nodeOf[k], j) {
			re.nodeOf[k] = append(re.nodeOf[k], j)
		}
	}
	if e := j.Event(); e != nil {
		k := jobKey{j.Slot().App, e.Event}
		if !slices.Contains(re.started[k], j) {
			re.started[k] = append(re.started[k], j)
		}
	}
	if j.Dependency() == nil {
		return
	}
	for _, up := range j.Dependency().Jobs {
		k := jobKey{j.Slot().App, up}
		if !slices.Contains(re.dependents[k], j) {
			re.dependents[k] = append(re.dependents[k], j)
		}
	}
}

// dependOn returns the jobs that depend on a job now. It drops stale entries of the index.
func (re *relations) dependOn(up jobKey) []*job.Job {
	of := re.dependents[up]
	if len(of) == 0 {
		return nil
	}
	of = slices.DeleteFunc(of, func(j *job.Job) bool {
		return !j.Current() || j.Dependency() == nil || !slices.Contains(j.Dependency().Jobs, up.name)
	})
	if re.dependents[up] = of; len(of) == 0 {
		delete(re.dependents, up)
	}
	return of
}

// checkUpstream fails if an upstream job of a definition is in another partition, or does not
// exist.
func (re *relations) checkUpstream(def *apiv1.Job, with *Together) error {
	for _, up := range def.GetDependency().GetJobs() {
		if err := re.l.Moves.errIfCrossPartition(def, up); err != nil {
			return err
		}
		if !with.hasJob(&re.l.State, def.App, up) {
			return status.Errorf(codes.FailedPrecondition, "job %s: it depends on job %q, which app %s does not have: apply that one first", def.Name, up, def.App)
		}
	}
	return nil
}

// checkCircle fails if with a definition jobs would start each other forever.
func (re *relations) checkCircle(def *apiv1.Job) error {
	if def.Workflow == nil && def.Dependency == nil {
		return nil // it names no job, so it cannot close a circle
	}
	t := &Together{}
	t.addJob(def.Name, def)
	budget := math.MaxInt
	_, err := (&circleSearch{re: re, app: def.App, t: t}).search(def.Name, &budget)
	return err
}

// runners returns the workflows that have a job as a node now.
func (re *relations) runners(k jobKey) []*job.Job {
	of := slices.DeleteFunc(re.nodeOf[k], func(j *job.Job) bool { return !j.Current() || !slices.Contains(j.Nodes(), k.name) })
	if len(of) == 0 {
		delete(re.nodeOf, k)
		return nil
	}
	re.nodeOf[k] = of
	return of
}

// namers returns the other jobs that depend on a job or have it as a node, each once as
// the text "job NAME". It omits those for which counts returns false.
func (re *relations) namers(k jobKey, counts func(*job.Job) bool) (names []string) {
	seen := map[string]bool{k.name: true}
	for _, of := range [][]*job.Job{re.dependOn(k), re.runners(k)} {
		for _, j := range of {
			if !seen[j.Name()] {
				seen[j.Name()] = true
				if counts(j) {
					names = append(names, "job "+j.Name())
				}
			}
		}
	}
	return names
}

// maxStarted bounds the jobs of an app that events of one type start.
const maxStarted = 1_000

// startedBy returns the jobs with a trigger for a type of events now. It drops stale entries of the
// index.
func (re *relations) startedBy(k jobKey) []*job.Job {
	of := slices.DeleteFunc(re.started[k], func(j *job.Job) bool {
		return !j.Current() || j.Event() == nil || j.Event().Event != k.name
	})
	if re.started[k] = of; len(of) == 0 {
		delete(re.started, k)
	}
	return of
}

// checkTrigger fails if no event can start the job of a definition, or if too many jobs would have its
// trigger.
func (re *relations) checkTrigger(def *apiv1.Job, with *Together) error {
	t := def.GetTrigger()
	if t == nil {
		return nil
	}
	a := re.l.State.apps[def.App]
	if a != nil && (a.primary() != "" || !here(a.slots[job.SlotOf(def.Name)])) {
		return status.Errorf(codes.FailedPrecondition, "job %s: it has a trigger, and app %s is split: events come to another partition of the cluster. Bring the app together with `wheelwork cluster merge %s`; jobs with a trigger stay where the events come", def.Name, def.App, def.App)
	}
	if t.Source != "" {
		exists, changes := with.sourceChange(t.Source)
		if !changes {
			exists = a != nil && a.eventSource(t.Source) != nil
		}
		if !exists {
			return status.Errorf(codes.FailedPrecondition, "job %s: its trigger names the event source %q, which does not exist: apply a document of kind EventSource with it, or before", def.Name, t.Source)
		}
	}
	n := 1
	if !with.alone() {
		n = with.started[t.Event]
	}
	for _, j := range re.startedBy(jobKey{def.App, t.Event}) {
		if j.Name() != def.Name && !with.changesJob(j.Name()) {
			n++
		}
	}
	if n > maxStarted {
		return status.Errorf(codes.ResourceExhausted, "job %s: app %s would have %d jobs with a trigger for the event %.100q, and the limit is %d: divide the events by type", def.Name, def.App, n, t.Event, maxStarted)
	}
	return nil
}

// eventSource returns the definition of an event source; nil: there is none. It is immutable.
func (a *app) eventSource(name string) *apiv1.EventSource {
	m, _ := a.slots[job.ModuleSlot].Definition(job.KindEventSource, name).(*apiv1.EventSource)
	return m
}

// checkNodes fails if a node of a workflow names a job that does not exist, or is in another
// partition.
func (re *relations) checkNodes(def *apiv1.Job, with *Together) error {
	for _, n := range def.GetWorkflow().GetNodes() {
		if err := re.l.Moves.errIfCrossPartition(def, n.Job); err != nil {
			return err
		}
		if n.Job != def.Name && !with.hasJob(&re.l.State, def.App, n.Job) {
			return status.Errorf(codes.FailedPrecondition, "job %s: node %s is job %q, which app %s does not have: apply that one first", def.Name, n.Name, n.Job, def.App)
		}
	}
	return nil
}

// circleSearch finds jobs that would start each other forever. A job starts the jobs that
// depend on it, and a workflow starts the jobs of its nodes. It is a depth-first search that
// can be interrupted, because a change set may have many thousand jobs.
type circleSearch struct {
	re   *relations
	app  string
	t    *Together
	path []visit         // from the start of the search to the job that it visits
	on   map[string]bool // the jobs that were visited; true: on path
}

// visit is a job on the path of a search.
type visit struct {
	name, how string // how: the text that says why the job before it starts it
	next      []visit
}

// search starts at a job, visits up to *budget jobs and counts them down. done is false if more
// are left: the next call with the same name continues.
func (c *circleSearch) search(name string, budget *int) (done bool, err error) {
	if len(c.path) == 0 {
		if _, seen := c.on[name]; seen {
			return true, nil
		}
		c.enter(visit{name: name, how: name})
	}
	for ; len(c.path) > 0; *budget-- {
		if *budget <= 0 {
			return false, nil
		}
		last := &c.path[len(c.path)-1]
		if len(last.next) == 0 {
			c.on[last.name] = false
			c.path = c.path[:len(c.path)-1]
			continue
		}
		next := last.next[0]
		last.next = last.next[1:]
		onPath, seen := c.on[next.name]
		if onPath {
			return true, c.circle(next)
		}
		if !seen {
			c.enter(next)
		}
	}
	return true, nil
}

func (c *circleSearch) enter(v visit) {
	set(&c.on, v.name, true)
	k := jobKey{c.app, v.name}
	nodes := func(names []string) {
		for _, name := range names {
			v.next = append(v.next, visit{name: name, how: ", which runs " + name})
		}
	}
	after := func(name string) { v.next = append(v.next, visit{name: name, how: ", after which runs " + name}) }
	if c.t.changesJob(v.name) {
		nodes(job.NodeJobs(c.t.jobs[v.name]))
	} else if j := c.re.l.State.Job(c.app, v.name); j != nil {
		nodes(j.Nodes())
	}
	for _, j := range c.re.dependOn(k) {
		if !c.t.changesJob(j.Name()) {
			after(j.Name())
		}
	}
	for _, name := range c.t.dependents[v.name] {
		after(name)
	}
	c.path = append(c.path, v)
}

// circle returns the error for a circle that last closes.
func (c *circleSearch) circle(last visit) error {
	from := slices.IndexFunc(c.path, func(v visit) bool { return v.name == last.name })
	text := last.name
	for _, v := range c.path[from+1:] {
		text += v.how
	}
	return status.Errorf(codes.InvalidArgument, "job %s: jobs would start each other in a circle: %s", last.name, text+last.how)
}

// maxJobAlerts bounds the jobs of an app that have alerts: a change of one reads those of all.
const maxJobAlerts = 2_000

// checkAlerts fails if the alerts of a job are wrong, or name a channel that does not exist.
func (re *relations) checkAlerts(def *apiv1.Job, with *Together) error {
	if len(def.Alerts) == 0 {
		return nil
	}
	if _, err := definition.ReadJobAlerts(def.App, def.Name, def.Alerts); err != nil {
		return status.Errorf(codes.InvalidArgument, "job %s: %v", def.Name, err)
	}
	a := re.l.State.apps[def.App]
	if a != nil && a.split() {
		return status.Errorf(codes.FailedPrecondition, "job %s: it has alerts, and app %s is split over several partitions of the cluster: bring it together with `wheelwork cluster merge %s` first", def.Name, def.App, def.App)
	}
	for _, x := range def.Alerts {
		for _, name := range slices.Concat(x.Channels, x.GetEscalate().GetChannels()) {
			exists, changes := with.channelChange(name)
			if !changes {
				exists = a != nil && a.slots[job.ModuleSlot].Definition(job.KindAlertChannel, name) != nil
			}
			if !exists {
				return status.Errorf(codes.FailedPrecondition, "job %s: its alerts name the channel %q, which does not exist: apply a document of kind AlertChannel with it, or before", def.Name, name)
			}
		}
	}
	n := with.alerting()
	if a != nil && a.alerts != nil {
		for name := range a.alerts.own {
			if name != def.Name && !with.changesJob(name) {
				n++
			}
		}
	}
	if n > maxJobAlerts {
		return status.Errorf(codes.ResourceExhausted, "job %s: app %s would have %d jobs with alerts of their own, and the limit is %d: select the jobs with an alert rule", def.Name, def.App, n, maxJobAlerts)
	}
	return nil
}
