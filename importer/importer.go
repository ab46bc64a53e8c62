package importer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/importer/fires"
	"github.com/wheelworkhq/wheelwork/importer/rows"
	jobs "github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// Options are what the source does not say.
type Options struct {
	// Zone is the time zone of the old scheduler's processes; nil means UTC, with a line in
	// the report where it matters.
	Zone *time.Location
	// App is the app of the documents; "": they name none.
	App string
	// Now is the time after which schedules are compared.
	Now time.Time
	// MailServer and MailFrom complete the channels for mails; without them there are none.
	MailServer, MailFrom string
	// UserColumn says that a crontab has a column with the user.
	UserColumn bool
}

// Outcome is the result for one field.
type Outcome string

// The outcomes.
const (
	Kept    Outcome = "kept"    // it means the same
	Changed Outcome = "changed" // it means something else, which the text says
	Lost    Outcome = "lost"    // a document cannot express it
	Todo    Outcome = "to do"   // a person has to act
)

// Line is one line of a report.
type Line struct {
	Object  string  `json:"object"` // as job totals
	Field   string  `json:"field"`  // of the source
	Outcome Outcome `json:"outcome"`
	Text    string  `json:"text"`
}

// Comparison has the next times of a job by the rule of the source and by the document.
type Comparison struct {
	Object string   `json:"object"`
	Equal  bool     `json:"equal"`
	Theirs []string `json:"theirs"`
	Ours   []string `json:"ours"`
	// Stored is the next time that the source has planned, "" without one. The times begin
	// with it.
	Stored string `json:"stored,omitempty"`
	Text   string `json:"text"`
}

// File is a script of the source.
type File struct {
	Name       string
	Text       []byte
	Executable bool
}

// Result is what an import makes.
type Result struct {
	Documents []*document.Document
	Files     []File
	Lines     []Line
	Fires     []Comparison
}

// Source is a scheduler with tables.
type Source struct {
	Name  string // of the command
	Title string // as its makers write it
	// Wants reports whether a table, by its name in lower case, is needed.
	Wants func(table string) bool
	// Import converts the rows. An error says that the tables are not of this source.
	Import func(rows.Tables, Options) (*Result, error)
}

// Sources returns the sources with tables.
func Sources() []Source {
	return []Source{xxlJob, powerJob, kJob}
}

// Labels of imported jobs.
const (
	labelSource = "import/source"
	labelID     = "import/id"
	labelState  = "import/state" // running or stopped: the state in the source
	labelAlarm  = "import/alarm" // the channel that is told of failures
)

// longest is the timeout of a job whose source has no bound: the longest that a job may have.
const longest = 30 * 24 * time.Hour

// conversion is the state of an import.
type conversion struct {
	Options
	source string
	out    Result
	jobs   []*job
	used   map[string]bool // names of jobs
	mails  map[string]*mail
	zoned  bool // a schedule depended on the zone
}

func begin(source string, o Options) *conversion {
	return &conversion{Options: o, source: source, used: map[string]bool{}, mails: map[string]*mail{}}
}

// zone returns the zone of the old scheduler.
func (c *conversion) zone() *time.Location {
	c.zoned = true
	return cmp.Or(c.Zone, time.UTC)
}

func (c *conversion) line(object, field string, o Outcome, format string, args ...any) {
	c.out.Lines = append(c.out.Lines, Line{object, field, o, fmt.Sprintf(format, args...)})
}

// job is one job on its way to a document.
type job struct {
	c      *conversion
	spec   *apiv1.Job
	rule   fires.Rule // of the source; nil: nothing to compare
	stored time.Time  // the next time that the source has planned
	gone   bool       // it could not become a document
}

// job begins a job. The name is made from the first of the candidates that has letters or
// digits.
func (c *conversion) job(id string, candidates ...string) *job {
	name := c.name(id, candidates...)
	j := &job{c: c, spec: &apiv1.Job{Name: name, Paused: proto.Bool(true), Labels: map[string]string{labelSource: c.source}}}
	if id != "" {
		j.label(labelID, id)
	}
	if title := strings.TrimSpace(candidates[0]); title != name && title != "" {
		j.spec.Description = bounded(title, 4096)
		j.line("name", Changed, "%q is now %s", title, name)
	} else {
		j.line("name", Kept, "%s", name)
	}
	c.jobs = append(c.jobs, j)
	return j
}

func (j *job) object() string { return "job " + j.spec.Name }

func (j *job) line(field string, o Outcome, format string, args ...any) {
	j.c.line(j.object(), field, o, format, args...)
}

func (j *job) label(key, value string) {
	if value = bounded(value, 256); value != "" {
		j.spec.Labels[key] = value
	}
}

// state notes whether the job was running.
func (j *job) state(field string, running bool) {
	state := "stopped"
	if running {
		state = "running"
	}
	j.spec.Labels[labelState] = state
	j.line(field, Changed, "it was %s there, and is paused here with the label %s=%s", state, labelState, state)
}

// describe adds a sentence to the description.
func (j *job) describe(text string) {
	if text = strings.TrimSpace(text); text == "" || text == j.spec.Description {
		return
	}
	j.spec.Description = bounded(strings.TrimSpace(j.spec.Description+"\n"+text), 4096)
}

// owner sets the owner, if it can be one.
func (j *job) owner(field, name string) {
	if name == "" {
		return
	}
	j.spec.Owner = name
	if err := jobs.Validate(&apiv1.Job{Name: "a", Owner: name, Handler: &apiv1.Handler{Name: "native:a"}}); err != nil {
		j.spec.Owner = ""
		j.line(field, Lost, "%q cannot be an owner", name)
		return
	}
	j.line(field, Kept, "owner: %s", name)
}

// timeout sets the timeout; 0 is none.
func (j *job) timeout(field string, d time.Duration) {
	switch {
	case d <= 0:
		j.spec.Timeout = short(longest)
		j.line(field, Changed, "there was no bound; here it is the longest, %s", short(longest))
	case d > longest:
		j.spec.Timeout = short(longest)
		j.line(field, Changed, "%s is now %s, the longest", short(d), short(longest))
	default:
		j.spec.Timeout = short(d)
		j.line(field, Kept, "timeout: %s", short(d))
	}
}

// input sets the input, if it is not too large.
func (j *job) input(field, text string) {
	if len(text) > jobs.MaxInput {
		j.line(field, Todo, "%d bytes are more than an input may have (%d): pass a reference to the data instead", len(text), jobs.MaxInput)
		return
	}
	if j.spec.Input = text; text != "" {
		j.line(field, Kept, "input, %d bytes", len(text))
	}
}

// retries sets the retries.
func (j *job) retries(field string, n int64, first time.Duration, text string) {
	if n <= 0 {
		return
	}
	j.spec.Retry = &apiv1.Retry{Max: int32(min(n, 100)), Backoff: "fixed", First: short(first)}
	if n > 100 {
		text += "; the most are 100"
	}
	j.line(field, Changed, "retry: %d, %s", min(n, 100), text)
}

// quartz sets a schedule by a line of Quartz.
func (j *job) quartz(field, line string, in *time.Location) {
	rule, err := fires.Quartz(line, in)
	if err != nil {
		j.line(field, Todo, "%q is no line of Quartz (%v): the job has no schedule", line, err)
		return
	}
	j.cron(field, line, in)
	if j.spec.Schedule != nil {
		j.rule = rule
	}
}

// cron sets a schedule by a line of any dialect that the server takes.
func (j *job) cron(field, line string, in *time.Location) {
	s := &apiv1.Schedule{Cron: strings.Join(strings.Fields(line), " "), Zone: zoneName(in)}
	if j.plan(field, s) {
		j.line(field, Kept, "schedule.cron: %s in %s", s.Cron, cmp.Or(s.Zone, "UTC"))
	}
}

func zoneName(in *time.Location) string {
	if in == time.UTC || in.String() == "UTC" {
		return ""
	}
	return in.String()
}

// rate sets a fixed rate that keeps its phase if the next time is known.
func (j *job) rate(field string, step time.Duration, next time.Time) {
	s := &apiv1.Schedule{Every: short(step)}
	from := next
	if from.IsZero() {
		from = j.c.Now.Truncate(time.Millisecond).UTC()
	} else {
		s.From = next.UTC().Format(time.RFC3339Nano)
	}
	if !j.plan(field, s) {
		return
	}
	j.rule = fires.Rate{From: from, Step: step}
	if s.From == "" {
		j.line(field, Changed, "schedule.every: %s, counted from the moment the job is applied", s.Every)
		return
	}
	j.line(field, Kept, "schedule.every: %s from %s, the next time that was planned", s.Every, s.From)
}

// plan sets the schedule, unless the server would refuse it.
func (j *job) plan(field string, s *apiv1.Schedule) bool {
	if err := schedule.Check(&apiv1.Job{Name: j.spec.Name, Schedule: proto.CloneOf(s)}); err != nil {
		j.line(field, Todo, "the job has no schedule: %v", err)
		return false
	}
	j.spec.Schedule = s
	return true
}

// misfire sets the misfire policy of a job with a schedule.
func (j *job) misfire(field, policy string, threshold time.Duration, text string) {
	if j.spec.Schedule == nil {
		return
	}
	j.spec.Misfire = &apiv1.Misfire{Policy: policy}
	if threshold > 0 {
		j.spec.Misfire.Threshold = short(threshold)
	}
	j.line(field, Kept, "misfire: %s", text)
}

// short writes a duration as people do.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// bounded returns the beginning of a text, at most n bytes of it.
func bounded(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// kind returns a kind of documents.
func kind(name string) *document.Kind {
	k, err := document.Find(name)
	if err != nil {
		panic(err) // the name is misspelt in this package
	}
	return k
}

// end checks all jobs, compares their times and returns the result.
func (c *conversion) end() *Result {
	if c.zoned && c.Zone == nil {
		c.line(c.source, "zone", Todo, "times of the source are read as UTC: if its processes have another time zone, import again with --zone")
	}
	for again := true; again; {
		again = false
		for _, j := range c.jobs {
			if !j.gone {
				j.forget()
				j.check()
				again = again || j.gone
			}
		}
	}
	c.sendMails()
	for _, j := range c.jobs {
		if !j.gone {
			c.document("Job", j.spec)
			j.compare()
		}
	}
	slices.SortStableFunc(c.out.Documents, document.Compare)
	return &c.out
}

func (c *conversion) document(kindName string, spec proto.Message) {
	d := document.Of(kind(kindName), spec)
	if c.App != "" {
		d.SetApp(c.App)
	}
	c.out.Documents = append(c.out.Documents, d)
}

// forget removes a dependency on jobs that are in no document. A workflow with such a job is
// in no document either.
func (j *job) forget() {
	gone := func(name string) bool {
		return slices.ContainsFunc(j.c.jobs, func(other *job) bool { return other.gone && other.spec.Name == name })
	}
	if d := j.spec.Dependency; d != nil {
		if d.Jobs = slices.DeleteFunc(d.Jobs, gone); len(d.Jobs) == 0 {
			j.spec.Dependency = nil
			j.line("dependency", Lost, "the jobs before it are in no document")
		}
	}
	for _, n := range j.spec.GetWorkflow().GetNodes() {
		if gone(n.Job) && !j.gone {
			j.gone = true
			j.line("workflow", Todo, "it is in no document, because its job %s is in none", n.Job)
		}
	}
}

// check lets the rules of the server judge the job.
func (j *job) check() {
	err := jobs.Validate(proto.CloneOf(j.spec))
	if err == nil || j.gone {
		return
	}
	j.gone = true
	j.line("job", Todo, "it is in no document: %v", err)
}

// compared is the number of times that are compared.
const compared = 20

// compare compares the next times of the source with those of the document.
func (j *job) compare() {
	if j.rule == nil || j.spec.Schedule == nil {
		return
	}
	plan, err := schedule.NewPlan(proto.CloneOf(j.spec), nil)
	if err != nil {
		j.line("fires", Todo, "%v", err)
		return
	}
	after := j.c.Now.Truncate(time.Millisecond)
	x := Comparison{Object: j.object()}
	if !j.stored.IsZero() {
		after = j.stored.Add(-time.Millisecond)
		x.Stored = j.stored.In(plan.Location()).Format(time.RFC3339)
	}
	if rate, ok := j.rule.(fires.Rate); ok {
		plan = plan.Anchor(rate.From)
	}
	theirs := fires.Take(j.rule, after, compared)
	var ours []time.Time
	for t, ok := plan.After(after); ok && len(ours) < compared; t, ok = plan.After(t) {
		ours = append(ours, t)
	}
	x.Theirs, x.Ours = texts(theirs, plan.Location()), texts(ours, plan.Location())
	x.Equal = slices.EqualFunc(theirs, ours, time.Time.Equal)
	switch {
	case !x.Equal:
		n := 0
		for n < min(len(theirs), len(ours)) && theirs[n].Equal(ours[n]) {
			n++
		}
		x.Text = fmt.Sprintf("time %d differs: %s there, %s here", n+1, at(x.Theirs, n), at(x.Ours, n))
		j.line("fires", Changed, "%s", x.Text)
	case len(theirs) == 0:
		x.Text = "none in both"
		j.line("fires", Kept, "there is no next time in the source either")
	default:
		x.Text = fmt.Sprintf("the next %d are equal", len(theirs))
		j.line("fires", Kept, "%s, from %s", x.Text, x.Theirs[0])
	}
	if !j.stored.IsZero() && (len(theirs) == 0 || !theirs[0].Equal(j.stored)) {
		x.Equal = false
		x.Text = fmt.Sprintf("the source has planned %s, which is no time of the schedule in %s: check --zone", x.Stored, plan.Location())
		j.line("fires", Todo, "%s", x.Text)
	}
	j.c.out.Fires = append(j.c.out.Fires, x)
}

func at(times []string, n int) string {
	if n < len(times) {
		return times[n]
	}
	return "none"
}

func texts(times []time.Time, in *time.Location) []string {
	out := []string{} // never null in JSON
	for _, t := range times {
		out = append(out, t.In(in).Format(time.RFC3339Nano))
	}
	return out
}
