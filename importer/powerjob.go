package importer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/importer/fires"
	"github.com/wheelworkhq/wheelwork/importer/rows"
)

// The tables of k-job are a part of those of PowerJob.
var (
	powerJob = Source{
		Name: "powerjob", Title: "PowerJob",
		Wants: func(table string) bool {
			return slices.Contains([]string{"app_info", "job_info", "user_info", "workflow_info", "workflow_node_info"}, table)
		},
		Import: func(t rows.Tables, o Options) (*Result, error) { return importPowerJob("powerjob", t, o) },
	}
	kJob = Source{
		Name: "k-job", Title: "k-job",
		Wants:  func(table string) bool { return table == "app_info" || table == "job_info" },
		Import: func(t rows.Tables, o Options) (*Result, error) { return importPowerJob("k-job", t, o) },
	}
)

// Codes of PowerJob: how a job is planned, and its states.
const (
	powerAPI      = 1
	powerCron     = 2
	powerRate     = 3
	powerDelay    = 4
	powerWorkflow = 5
	powerDaily    = 11

	powerDeleted = 99
)

type power struct {
	*conversion
	apps map[string]string   // names by id
	mail map[string]string   // addresses of users by id
	byID map[string]*job     // of job_info
	flow map[string]*job     // of workflow_info
	node map[string]rows.Row // by id
}

func importPowerJob(source string, t rows.Tables, o Options) (*Result, error) {
	if !t.Has("job_info") {
		return nil, errors.New("there is no table job_info")
	}
	p := &power{conversion: begin(source, o), apps: map[string]string{}, mail: map[string]string{}, byID: map[string]*job{}, flow: map[string]*job{}, node: map[string]rows.Row{}}
	for _, r := range t["app_info"] {
		p.apps[r.Text("id")] = r.Text("app_name")
	}
	for _, r := range t["user_info"] {
		p.mail[r.Text("id")] = r.Text("email")
		p.line("user "+r.Text("username"), "user_info", Todo, "add the user and its bindings; passwords cannot be taken over")
	}
	for _, r := range t["job_info"] {
		if r.Int("status") != powerDeleted {
			p.job(r)
		}
	}
	for _, r := range t["workflow_node_info"] {
		p.node[r.Text("id")] = r
	}
	for _, r := range t["workflow_info"] {
		if r.Int("status") != powerDeleted {
			p.flow[r.Text("id")] = p.conversion.job("workflow-"+r.Text("id"), r.Text("wf_name"), "workflow")
		}
	}
	for _, r := range t["workflow_info"] {
		if j := p.flow[r.Text("id")]; j != nil {
			p.workflow(j, r)
		}
	}
	return p.end(), nil
}

func (p *power) job(r rows.Row) {
	id := r.Text("id")
	app := p.apps[r.Text("app_id")]
	if r.Text("job_id") != "" { // of k-job
		id, app = r.Text("job_id"), r.Text("app_name")
	}
	class := r.Text("processor_info")
	switch r.Int("processor_type") {
	case 2, 3:
		class = "" // the text of a script
	case 4:
		class = class[strings.LastIndexByte(class, '#')+1:]
	}
	j := p.conversion.job(id, r.Text("job_name"), class)
	p.byID[r.Text("id")] = j
	j.label("import/group", app)
	j.describe(r.Text("job_description"))
	p.handler(j, r)
	j.input("job_params", r.Raw("job_params"))
	p.schedule(j, r)
	p.limits(j, r)
	p.hosts(j, r)
	p.alarm(j, r)
	for _, column := range []string{"tag", "extra", "log_config", "advanced_runtime_config", "concurrency", "task_retry_num"} {
		if v := r.Text(column); v != "" && v != "0" && v != "{}" {
			j.line(column, Lost, "%s", bounded(v, 200))
		}
	}
	j.state("status", r.Int("status") == 1)
}

// handler sets the handler to bind, and the fan-out.
func (p *power) handler(j *job, r rows.Row) {
	info := r.Raw("processor_info")
	kind := r.Int("processor_type")
	switch kind {
	case 2, 3:
		j.spec.Handler = &apiv1.Handler{Name: "native:" + j.spec.Name}
		extension, language := "sh", "shell"
		if kind == 3 {
			extension, language = "py", "Python"
		}
		p.script(j, "processor_info", extension, language, info)
	default: // 1 is a class, 4 a class of a container
		if kind == 4 {
			j.line("processor_type", Todo, "the class is in the container %s: give it to a program with a worker, or make a module", info[:max(0, strings.IndexByte(info, '#'))])
			info = info[strings.LastIndexByte(info, '#')+1:]
		}
		name := slug(info)
		if name == "" {
			name = j.spec.Name
		}
		j.spec.Handler = &apiv1.Handler{Name: "native:" + name}
		j.line("processor_info", Todo, "handler %s: register a function of this name in a program with a worker, or change handler", j.spec.Handler.Name)
	}
	switch r.Int("execute_type") {
	case 2:
		j.spec.Fanout = &apiv1.Fanout{Mode: "broadcast"}
	case 3:
		j.spec.Fanout = &apiv1.Fanout{Mode: "map_reduce"}
	case 4:
		j.spec.Fanout = &apiv1.Fanout{Mode: "map"}
	default:
		return
	}
	j.line("execute_type", Kept, "fanout: %s", j.spec.Fanout.Mode)
}

// schedule sets the schedule. k-job and PowerJob have the same codes.
func (p *power) schedule(j *job, r rows.Row) {
	expression := r.Text("time_expression")
	next := r.Millis("next_trigger_time")
	switch kind := r.Int("time_expression_type"); kind {
	case powerAPI, 0:
		j.line("time_expression_type", Kept, "it runs when it is triggered")
	case powerWorkflow:
		j.line("time_expression_type", Kept, "it runs as a node of a workflow")
	case powerCron:
		if r.Int("status") == 1 {
			j.stored = next
		}
		j.quartz("time_expression", expression, p.zone())
	case powerRate, powerDelay:
		var ms int64
		if _, err := fmt.Sscanf(expression, "%d", &ms); err != nil || ms < 1 || ms > 1<<40 {
			j.line("time_expression", Todo, "%q is no number of milliseconds: the job has no schedule", expression)
			return
		}
		step := time.Duration(ms) * time.Millisecond
		if kind == powerRate {
			if r.Int("status") != 1 {
				next = time.Time{}
			}
			j.stored = next
			j.rate("time_expression", step, next)
			break
		}
		if j.plan("time_expression", &apiv1.Schedule{Delay: short(step)}) {
			j.line("time_expression", Kept, "schedule.delay: %s", short(step))
		}
	case powerDaily:
		p.daily(j, expression)
	default:
		j.line("time_expression_type", Todo, "the code %d is not known: the job has no schedule", kind)
	}
	p.life(j, r.Text("lifecycle"))
}

// daily sets a rate between two times of day.
func (p *power) daily(j *job, text string) {
	var d struct {
		Interval json.Number `json:"interval"`
		From     string      `json:"startTimeOfDay"`
		Until    string      `json:"endTimeOfDay"`
		Unit     string      `json:"intervalUnit"`
		Days     []int       `json:"daysOfWeek"` // 1 is Monday
	}
	units := map[string]time.Duration{"": time.Second, "SECONDS": time.Second, "MINUTES": time.Minute, "HOURS": time.Hour}
	err := json.Unmarshal([]byte(text), &d)
	n, _ := d.Interval.Int64()
	unit := units[strings.ToUpper(d.Unit)]
	if err != nil || n < 1 || n > 1<<31 || unit == 0 {
		j.line("time_expression", Todo, "%q is no interval of a day: the job has no schedule", text)
		return
	}
	s := &apiv1.Schedule{Zone: zoneName(p.zone()), Daily: &apiv1.Daily{From: d.From, Until: d.Until, Every: short(time.Duration(n) * unit)}}
	names := []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
	var days []time.Weekday
	for _, day := range d.Days {
		if day >= 1 && day <= 7 {
			s.Daily.Days = append(s.Daily.Days, names[day-1])
			days = append(days, time.Weekday(day%7))
		}
	}
	if !j.plan("time_expression", s) {
		return
	}
	from, errFrom := time.Parse(time.TimeOnly, d.From)
	until, errUntil := time.Parse(time.TimeOnly, d.Until)
	if errFrom == nil && errUntil == nil {
		midnight := time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
		j.rule = fires.Daily{From: from.Sub(midnight), Until: until.Sub(midnight), Step: time.Duration(n) * unit, Days: days, In: p.zone()}
	}
	j.line("time_expression", Kept, "schedule.daily: each %s from %s until %s", s.Daily.Every, d.From, d.Until)
}

// life bounds the schedule.
func (p *power) life(j *job, text string) {
	var l struct {
		Start int64 `json:"start"`
		End   int64 `json:"end"`
	}
	if text == "" || j.spec.Schedule == nil || json.Unmarshal([]byte(text), &l) != nil || l.Start <= 0 && l.End <= 0 {
		return
	}
	s := j.spec.Schedule
	if l.Start > 0 && s.From == "" {
		s.From = time.UnixMilli(l.Start).UTC().Format(time.RFC3339Nano)
	}
	if l.End > 0 {
		s.Until = time.UnixMilli(l.End).UTC().Format(time.RFC3339Nano)
	}
	if j.rule != nil {
		j.rule = bounds{j.rule, l.Start, l.End}
	}
	j.line("lifecycle", Kept, "schedule.from %s, schedule.until %s", s.From, s.Until)
}

// bounds are the times of a rule from a first to before a last moment.
type bounds struct {
	rule       fires.Rule
	start, end int64 // milliseconds; 0: no bound
}

// Next returns the first time after the given one.
func (b bounds) Next(after time.Time) (time.Time, bool) {
	if start := time.UnixMilli(b.start); b.start > 0 && after.Before(start) {
		after = start.Add(-time.Millisecond)
	}
	t, ok := b.rule.Next(after)
	return t, ok && (b.end <= 0 || t.UnixMilli() < b.end)
}

// limits sets timeout, retries and overlap.
func (p *power) limits(j *job, r rows.Row) {
	j.timeout("instance_time_limit", time.Duration(min(r.Int("instance_time_limit"), 1<<40))*time.Millisecond)
	j.retries("instance_retry_num", r.Int("instance_retry_num"), 10*time.Second, "each 10s after the failure")
	switch n := r.Int("max_instance_num"); {
	case n == 1:
		j.spec.Overlap = &apiv1.Overlap{Policy: "discard"}
		j.line("max_instance_num", Changed, "overlap: discard; the excess run is skipped here, and fails there")
	case n > 1:
		j.spec.Overlap = &apiv1.Overlap{Policy: "parallel", Limit: int32(min(n, 1_000_000))}
		j.line("max_instance_num", Changed, "overlap: parallel, at most %d; the excess run waits here, and fails there", n)
	}
}

// hosts sets where the job may run.
func (p *power) hosts(j *job, r rows.Row) {
	switch s := r.Int("dispatch_strategy"); s {
	case 2:
		j.spec.Routing = &apiv1.Routing{Strategy: "random"}
		j.line("dispatch_strategy", Kept, "routing: random")
	case 11:
		j.line("dispatch_strategy", Todo, "%s: give hosts labels, and name them in routing.labels", r.Text("dispatch_strategy_config"))
	}
	if v := r.Text("designated_workers"); v != "" {
		j.line("designated_workers", Todo, "%s: name the hosts in routing.hosts", v)
	}
	if n := r.Int("max_worker_count"); n > 0 {
		if j.spec.Routing == nil {
			j.spec.Routing = &apiv1.Routing{}
		}
		j.spec.Routing.MaxHosts = int32(min(n, 1<<30))
		j.line("max_worker_count", Kept, "routing.max_hosts: %d", n)
	}
	for _, column := range []string{"min_cpu_cores", "min_memory_space", "min_disk_space"} {
		if v := strings.TrimRight(strings.TrimRight(r.Text(column), "0"), "."); v != "" {
			j.line(column, Todo, "%s: give such hosts a label, and name it in routing.labels", v)
		}
	}
}

// alarm sets the receivers of failures.
func (p *power) alarm(j *job, r rows.Row) {
	var to []string
	for id := range strings.SplitSeq(r.Text("notify_user_ids"), ",") {
		if id = strings.TrimSpace(id); id == "" {
			continue
		}
		if p.mail[id] == "" {
			j.line("notify_user_ids", Todo, "the user %s has no address for mails", id)
			continue
		}
		to = append(to, p.mail[id])
	}
	var a struct {
		Threshold int64 `json:"alertThreshold"`
		Window    int64 `json:"statisticWindowLen"` // seconds
		Silence   int64 `json:"silenceWindowLen"`   // seconds
	}
	_ = json.Unmarshal([]byte(r.Text("alarm_config")), &a) // without it each failure is told
	j.tell("notify_user_ids, alarm_config", to, func(m *mail) {
		if a.Threshold > 1 {
			m.threshold = int32(min(a.Threshold, 1000))
			if a.Window > 0 {
				m.window = short(time.Duration(min(a.Window, 1<<20)) * time.Second)
			}
		}
		if a.Silence > 0 {
			m.silence = short(time.Duration(min(a.Silence, 1<<20)) * time.Second)
		}
	})
}

// graph is the graph of a workflow.
type graph struct {
	Nodes []graphNode `json:"nodes"`
	Edges []struct {
		From   json.Number `json:"from"`
		To     json.Number `json:"to"`
		Enable *bool       `json:"enable"`
	} `json:"edges"`
}

type graphNode struct {
	ID       json.Number `json:"nodeId"`
	Kind     int         `json:"nodeType"` // 1 a job, 2 a decision, 3 a workflow
	Job      json.Number `json:"jobId"`
	Name     string      `json:"nodeName"`
	Params   string      `json:"nodeParams"`
	Enable   *bool       `json:"enable"`
	SkipFail *bool       `json:"skipWhenFailed"`
}

// workflow converts the graph. Nodes that are left out pass their predecessors on.
func (p *power) workflow(j *job, r rows.Row) {
	j.describe(r.Text("wf_description"))
	p.schedule(j, r)
	p.alarm(j, r)
	j.state("status", r.Int("status") == 1)
	var g graph
	if err := json.Unmarshal([]byte(r.Raw("pedag")), &g); err != nil {
		j.line("pedag", Todo, "the graph cannot be read (%v): the workflow is in no document", err)
		j.gone = true
		return
	}
	before := map[string][]string{}
	for _, e := range g.Edges {
		if e.Enable == nil || *e.Enable {
			before[e.To.String()] = append(before[e.To.String()], e.From.String())
		}
	}
	nodes := map[string]*apiv1.Node{}
	used := map[string]bool{}
	j.spec.Workflow = &apiv1.Workflow{}
	for _, n := range g.Nodes {
		if node := p.graphNode(j, n); node != nil {
			if node.Name == "" || used[node.Name] {
				node.Name = "node-" + n.ID.String()
			}
			used[node.Name] = true
			nodes[n.ID.String()] = node
			j.spec.Workflow.Nodes = append(j.spec.Workflow.Nodes, node)
		}
	}
	for _, n := range g.Nodes {
		if node := nodes[n.ID.String()]; node != nil {
			seen := map[string]bool{}
			var visit func(id string)
			visit = func(id string) {
				for _, from := range before[id] {
					if seen[from] {
						continue
					}
					seen[from] = true
					if nodes[from] != nil {
						node.After = append(node.After, nodes[from].Name)
					} else {
						visit(from)
					}
				}
			}
			visit(n.ID.String())
			slices.Sort(node.After)
		}
	}
	j.line("pedag", Kept, "a workflow of %d nodes", len(j.spec.Workflow.Nodes))
}

// graphNode converts a node; nil leaves it out.
func (p *power) graphNode(j *job, n graphNode) *apiv1.Node {
	row := p.node[n.ID.String()]
	if row != nil {
		n.Kind, n.Job, n.Name, n.Params = int(row.Int("type")), json.Number(row.Text("job_id")), row.Text("node_name"), row.Raw("node_params")
		enable, skip := row.Truth("enable"), row.Truth("skip_when_failed")
		n.Enable, n.SkipFail = &enable, &skip
	}
	title := fmt.Sprintf("node %s (%s)", n.ID, n.Name)
	if n.Enable != nil && !*n.Enable {
		j.line("pedag", Changed, "%s is disabled and left out", title)
		return nil
	}
	target := p.byID[n.Job.String()]
	switch n.Kind {
	case 2:
		j.line("pedag", Todo, "%s is a decision in Groovy and is left out: write its condition in `when` of the nodes after it: %s", title, bounded(n.Params, 400))
		return nil
	case 3:
		target = p.flow[n.Job.String()]
	}
	if target == nil || target == j {
		j.line("pedag", Todo, "%s names no job that is imported: it is left out", title)
		return nil
	}
	node := &apiv1.Node{Name: strings.ReplaceAll(slug(n.Name), ".", "-"), Job: target.spec.Name, Optional: n.SkipFail != nil && *n.SkipFail}
	if len(node.Name) > 64 {
		node.Name = ""
	}
	switch {
	case n.Params == "":
	case strings.Contains(n.Params, "${"):
		j.line("pedag", Todo, "%s has parameters with ${, which begins a reference here: set its input", title)
	default:
		node.Input = n.Params
	}
	return node
}
