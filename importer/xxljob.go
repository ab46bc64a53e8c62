package importer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/importer/rows"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

var xxlJob = Source{
	Name: "xxl-job", Title: "XXL-JOB",
	Wants: func(table string) bool {
		return slices.Contains([]string{"xxl_job_group", "xxl_job_info", "xxl_job_user"}, table)
	},
	Import: importXXLJob,
}

// xxlInput is the input of a job for the bridge to executors of XXL-JOB.
type xxlInput struct {
	Handler  string `json:"executorHandler"`
	Params   string `json:"executorParams"`
	Route    string `json:"executorRouteStrategy"`
	Block    string `json:"executorBlockStrategy"`
	Timeout  int64  `json:"executorTimeout"`
	GlueType string `json:"glueType"`
}

// xxlThreshold is the delay up to which XXL-JOB still starts a job.
const xxlThreshold = 5 * time.Second

func importXXLJob(t rows.Tables, o Options) (*Result, error) {
	if !t.Has("xxl_job_info") {
		return nil, errors.New("there is no table xxl_job_info")
	}
	c := begin("xxl-job", o)
	x := &xxl{conversion: c, groups: map[string]rows.Row{}, byID: map[string]*job{}}
	for _, g := range t["xxl_job_group"] {
		x.group(g)
	}
	for _, r := range t["xxl_job_info"] {
		x.job(r)
	}
	x.children(t["xxl_job_info"])
	for _, u := range t["xxl_job_user"] {
		x.user(u)
	}
	return c.end(), nil
}

type xxl struct {
	*conversion
	groups map[string]rows.Row // by id
	byID   map[string]*job
}

// group reports an executor.
func (x *xxl) group(g rows.Row) {
	name := g.Text("app_name")
	x.groups[g.Text("id")] = g
	object := "executor " + name
	title := g.Text("name")
	if title == "" {
		title = g.Text("title") // before 3.5
	}
	x.line(object, "app_name", Kept, "its jobs have the handler %s (%s)", xxlHandler(name), title)
	if g.Int("address_type") == 1 {
		x.line(object, "address_list", Todo, "its addresses were entered by hand (%s): executors have to register themselves", g.Text("address_list"))
	}
	if g.Text("access_token") != "" {
		x.line(object, "access_token", Todo, "the executor has a token of its own: set it in the bridge")
	}
}

// xxlHandler returns the handler of the jobs of an executor.
func xxlHandler(app string) string { return "native:xxl-job." + app }

func (x *xxl) job(r rows.Row) {
	id := r.Text("id")
	title := r.Text("name")
	if title == "" {
		title = r.Text("job_desc") // before 3.5
	}
	j := x.conversion.job(id, title, r.Text("executor_handler"))
	x.byID[id] = j
	app := x.groups[r.Text("job_group")].Text("app_name")
	x.handler(j, r, app)
	j.owner("author", r.Text("author"))
	x.schedule(j, r)
	x.policies(j, r)
	j.tell("alarm_email", strings.Split(r.Text("alarm_email"), ","), nil)
	j.state("trigger_status", r.Int("trigger_status") == 1)
}

// handler sets the handler and its input.
func (x *xxl) handler(j *job, r rows.Row, app string) {
	if !naming.Valid("xxl-job."+app) || app == "" {
		j.line("job_group", Todo, "%q cannot be part of the name of a handler: give the executor another app_name, and import again", app)
		if app = slug(app); app == "" {
			app = "unknown"
		}
	}
	j.label("import/group", app)
	j.spec.Handler = &apiv1.Handler{Name: xxlHandler(app)}
	j.line("job_group", Kept, "handler %s", j.spec.Handler.Name)
	glue := r.Text("glue_type")
	if glue == "" {
		glue = "BEAN"
	}
	in := xxlInput{
		Handler: r.Text("executor_handler"), Params: r.Raw("executor_param"), Route: r.Text("executor_route_strategy"),
		Block: r.Text("executor_block_strategy"), Timeout: r.Int("executor_timeout"), GlueType: glue,
	}
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(in) // texts and numbers always encode
	j.input("executor_handler, executor_param, executor_route_strategy, glue_type", strings.TrimSpace(b.String()))
	if glue != "BEAN" {
		x.glue(j, r, glue)
	}
}

// extensions of the languages of scripts.
var extensions = map[string]string{
	"GLUE_GROOVY": "groovy", "GLUE_SHELL": "sh", "GLUE_PYTHON": "py", "GLUE_PYTHON2": "py", "GLUE_NODEJS": "js", "GLUE_POWERSHELL": "ps1", "GLUE_PHP": "php",
}

// glue keeps the source of a job that is written in the console of XXL-JOB.
func (x *xxl) glue(j *job, r rows.Row, glue string) {
	x.script(j, "glue_source", extensions[glue], glue, r.Raw("glue_source"))
	if note := r.Text("glue_remark"); note != "" {
		j.line("glue_remark", Lost, "%s", note)
	}
}

// script keeps a script as a file.
func (c *conversion) script(j *job, field, extension, language, source string) {
	if extension == "" {
		extension = "txt"
	}
	f := File{Name: j.spec.Name + "." + extension, Text: []byte(source)}
	c.out.Files = append(c.out.Files, f)
	switch extension {
	case "js", "py":
		j.line(field, Todo, "the script %s (%s) is in no document: make its entry a function (docs/languages.md), push it with `wheelwork module push %s@1 %s`, and set handler to {module: %s@1}",
			f.Name, language, j.spec.Name, f.Name, j.spec.Name)
	default:
		j.line(field, Todo, "the script %s (%s) is in no document: make it a module, a plugin or a command of the host (docs/executors.md), and change the handler", f.Name, language)
	}
}

// schedule sets the schedule and what happens to missed times.
func (x *xxl) schedule(j *job, r rows.Row) {
	kind, line := r.Text("schedule_type"), r.Text("schedule_conf")
	old := !r.Has("schedule_type") && r.Text("job_cron") != ""
	if old { // up to 2.2
		kind, line = "CRON", r.Text("job_cron")
	}
	running := r.Int("trigger_status") == 1
	if running {
		j.stored = r.Millis("trigger_next_time")
	}
	switch kind {
	case "CRON":
		j.quartz("schedule_conf", line, x.zone())
	case "FIX_RATE":
		x.rate(j, line)
	case "", "NONE":
		j.line("schedule_type", Kept, "it runs when it is triggered")
		j.stored = time.Time{}
	default:
		j.line("schedule_type", Todo, "%s %s is of a version that is not known: the job has no schedule", kind, line)
	}
	if j.spec.Schedule == nil {
		return
	}
	switch policy := r.Text("misfire_strategy"); {
	case policy == "FIRE_ONCE_NOW":
		j.misfire("misfire_strategy", "fire_once", xxlThreshold, "fire_once after 5s")
	case policy == "DO_NOTHING", old:
		j.misfire("misfire_strategy", "skip", xxlThreshold, "skip after 5s")
	default:
		j.misfire("misfire_strategy", "skip", xxlThreshold, fmt.Sprintf("skip, because %q is not known", policy))
	}
}

// rate sets a fixed rate in seconds.
func (x *xxl) rate(j *job, text string) {
	var seconds int64
	if _, err := fmt.Sscanf(text, "%d", &seconds); err != nil || seconds < 1 || seconds > 1<<31 {
		j.line("schedule_conf", Todo, "%q is no number of seconds: the job has no schedule", text)
		return
	}
	j.rate("schedule_conf", time.Duration(seconds)*time.Second, j.stored)
}

// policies sets timeout, retries, overlap and routing.
func (x *xxl) policies(j *job, r rows.Row) {
	j.timeout("executor_timeout", time.Duration(r.Int("executor_timeout"))*time.Second)
	j.retries("executor_fail_retry_count", r.Int("executor_fail_retry_count"), time.Second, "each 1s after the failure; there at once")
	const scope = "for each executor there, for the whole job here"
	switch block := r.Text("executor_block_strategy"); block {
	case "SERIAL_EXECUTION", "":
		j.spec.Overlap = &apiv1.Overlap{Policy: "queue"}
		j.line("executor_block_strategy", Changed, "overlap: queue, %s", scope)
	case "DISCARD_LATER":
		j.spec.Overlap = &apiv1.Overlap{Policy: "discard"}
		j.line("executor_block_strategy", Changed, "overlap: discard, %s", scope)
	case "COVER_EARLY":
		j.spec.Overlap = &apiv1.Overlap{Policy: "cover"}
		j.line("executor_block_strategy", Changed, "overlap: cover, %s", scope)
	default:
		j.line("executor_block_strategy", Todo, "%q is not known: runs may overlap", block)
	}
}

// children turns the children of jobs into dependencies on their parents. An edge that would
// close a circle is left out.
func (x *xxl) children(all []rows.Row) {
	after := map[*job][]*job{} // parents by child
	for _, r := range all {
		parent := x.byID[r.Text("id")]
		for id := range strings.SplitSeq(r.Text("child_jobid"), ",") {
			if id = strings.TrimSpace(id); id == "" {
				continue
			}
			child := x.byID[id]
			switch {
			case child == nil:
				parent.line("child_jobid", Todo, "there is no job with the id %s", id)
			case slices.Contains(after[child], parent):
			case child == parent || reaches(after, parent, child):
				parent.line("child_jobid", Lost, "it would start %s, which is before it: a circle of jobs is refused", child.spec.Name)
			default:
				after[child] = append(after[child], parent)
				parent.line("child_jobid", Kept, "its success starts %s", child.spec.Name)
			}
		}
	}
	for _, r := range all {
		child := x.byID[r.Text("id")]
		parents := after[child]
		if len(parents) == 0 || child.spec.Dependency != nil {
			continue
		}
		child.spec.Dependency = &apiv1.Dependency{Need: "any"}
		for _, p := range parents {
			child.spec.Dependency.Jobs = append(child.spec.Dependency.Jobs, p.spec.Name)
		}
		if r.Int("trigger_status") != 1 {
			child.line("child_jobid", Todo, "it was stopped there, and its parents started it nevertheless: resume it together with them%s", withoutSchedule(child))
		}
	}
}

func withoutSchedule(j *job) string {
	if j.spec.Schedule == nil {
		return ""
	}
	return ", and remove its schedule, which would start with it"
}

// reaches reports whether one job is before another.
func reaches(after map[*job][]*job, from, to *job) bool {
	seen := map[*job]bool{}
	var visit func(*job) bool
	visit = func(j *job) bool {
		if j == to {
			return true
		}
		if seen[j] {
			return false
		}
		seen[j] = true
		return slices.ContainsFunc(after[j], visit)
	}
	return visit(from)
}

// user reports a user and what the user may do.
func (x *xxl) user(u rows.Row) {
	object := "user " + u.Text("username")
	if u.Int("role") == 1 {
		x.line(object, "role", Todo, "an administrator: add the user and a binding to the role admin; passwords cannot be taken over")
		return
	}
	var apps []string
	for id := range strings.SplitSeq(u.Text("permission"), ",") {
		if g := x.groups[strings.TrimSpace(id)]; g != nil {
			apps = append(apps, g.Text("app_name"))
		}
	}
	x.line(object, "permission", Todo, "executors %s: add the user and a binding to the role operator; passwords cannot be taken over", strings.Join(apps, ", "))
}
