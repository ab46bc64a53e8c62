package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/sched/hosts"
	"github.com/wheelworkhq/wheelwork/sched/projection"
)

// TestScenarios runs the files of testdata. Each drives a loop step by step, without gRPC,
// store and journal files; testdata/README.md describes the language.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 30 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			newScenario(t).run(file, string(text))
		})
	}
}

// scenario is a loop with its surroundings. Its clock begins at midnight.
type scenario struct {
	t       *testing.T
	l       *Loop
	now     time.Time
	next    time.Time // when the loop wants its next turn
	journal *memoryJournal
	hosts   map[string]*scenarioHost
	runs    map[string][]job.RunID // by job, in the order in which they were accepted
	passed  map[string][]string    // by job: "STATE COUNT" for times that got no run of their own
	err     error                  // of the last command
}

var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const scenarioApp = "default"

func newScenario(t *testing.T) *scenario {
	s := &scenario{t: t, now: midnight, hosts: map[string]*scenarioHost{}}
	s.journal = &memoryJournal{room: 1 << 30}
	s.start()
	return s
}

// start makes a loop that applies the records of the journal.
func (s *scenario) start() {
	s.t.Helper()
	l, err := newLoop(Config{
		ID: "server", Epoch: 1, Now: func() time.Time { return s.now }, Journal: s.journal, Sync: "always",
		View:    projection.New(projection.Config{Every: time.Hour, BundleRuns: 512, StatsBatch: 20_000}),
		MaxLive: 1000, HostLease: 10 * time.Second, Random: rand.NewChaCha8([32]byte{1}),
	})
	if err == nil {
		err = l.BecomeOwner()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.l = l
	s.settle()
}

// settle runs turns until none has anything left to do at this time.
func (s *scenario) settle() {
	s.t.Helper()
	for {
		in := s.l.Mail.take()
		next, err := s.l.step(s.now, &in)
		if err != nil {
			s.t.Fatal(err)
		}
		s.next = next
		s.l.Mail.putBack(in)
		for _, h := range s.hosts {
			h.receive()
		}
		select {
		case <-s.l.Mail.kick:
		default:
			if next.After(s.now) {
				s.read()
				return
			}
		}
	}
}

// advance lets the time pass, with a turn whenever the loop wants one.
func (s *scenario) advance(d time.Duration) {
	s.t.Helper()
	for end := s.now.Add(d); s.now.Before(end); s.settle() {
		if s.now = end; s.next.Before(end) {
			s.now = s.next
		}
	}
}

// call runs f as a caller's function, and records its error.
func (s *scenario) call(f func(l *Loop) error) {
	s.t.Helper()
	s.l.Mail.Do(func(l *Loop) { s.err = f(l) })
	s.settle()
}

// read follows the records that the journal got since the last call.
func (s *scenario) read() {
	s.t.Helper()
	if s.runs == nil {
		s.runs, s.passed, s.journal.seen = map[string][]job.RunID{}, map[string][]string{}, 0
	}
	for ; s.journal.seen < len(s.journal.records); s.journal.seen++ {
		r := s.journal.records[s.journal.seen]
		rec := &apiv1.Record{}
		if err := proto.Unmarshal(r.Body, rec); err != nil {
			s.t.Fatal(err)
		}
		for _, x := range rec.Accepts {
			s.runs[x.Job] = append(s.runs[x.Job], job.RunID(x.Run))
		}
		switch k := rec.Kind.(type) {
		case *apiv1.Record_Armed:
			for _, x := range k.Armed.Runs {
				s.runs[x.Job] = append(s.runs[x.Job], job.OccurrenceID(r.Slot.App, x.Job, time.UnixMilli(x.PlannedMs), ""))
			}
		case *apiv1.Record_Accepted:
			s.runs[k.Accepted.Job] = append(s.runs[k.Accepted.Job], job.RunID(k.Accepted.Run))
		case *apiv1.Record_Fanned:
			parent := job.RunID(k.Fanned.Run)
			if run := s.l.State.LiveRun(r.Slot.App, parent); run != nil {
				for n := range k.Fanned.Parts {
					s.runs[run.Job+"/part"] = append(s.runs[run.Job+"/part"], job.PartID(r.Slot.App, run.Job, time.UnixMilli(run.PlannedMs), parent, n))
				}
			}
		case *apiv1.Record_Passed:
			s.passed[k.Passed.Job] = append(s.passed[k.Passed.Job], fmt.Sprint(k.Passed.State, " ", k.Passed.Count))
		}
	}
}

// run returns a run by a name such as mail#2.
func (s *scenario) runOf(name string) job.RunID {
	s.t.Helper()
	j, number, ok := strings.Cut(name, "#")
	n := 1
	if ok {
		n, _ = strconv.Atoi(number)
	}
	if n < 1 || n > len(s.runs[j]) {
		s.t.Fatalf("job %s has %d runs: there is no %s", j, len(s.runs[j]), name)
	}
	return s.runs[j][n-1]
}

func (s *scenario) shown(id job.RunID) *apiv1.Run {
	s.t.Helper()
	m, err := s.l.Shown(scenarioApp, id)
	if err != nil || m == nil {
		s.t.Fatalf("run %s: %v, %v", id, m, err)
	}
	if m.State == string(job.Armed) && !m.PlannedAt.AsTime().After(s.now) {
		m.State = string(job.Queued)
	}
	return m
}

func (s *scenario) run(file, text string) {
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "# ")
		if line = strings.TrimSpace(line); line == "" || line == "#" {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		s.t.Run(fmt.Sprintf("%s:%d", filepath.Base(file), i+1), func(t *testing.T) {
			outer := s.t
			s.t = t
			defer func() { s.t = outer }()
			if verb != "refused" && s.err != nil {
				t.Fatalf("the command before failed: %v", s.err)
			}
			s.do(verb, strings.TrimSpace(rest))
		})
		if s.t.Failed() {
			return
		}
	}
	if s.err != nil {
		s.t.Fatalf("the last command failed: %v", s.err)
	}
}

func (s *scenario) do(verb, rest string) {
	s.t.Helper()
	word, more, _ := strings.Cut(rest, " ")
	switch verb {
	case "app":
		m := &apiv1.App{Name: scenarioApp}
		s.message(rest, m)
		s.call(func(l *Loop) error { _, err := l.Commands.PutApp(m); return err })
	case "job":
		m := &apiv1.Job{App: scenarioApp, Name: word, Paused: proto.Bool(false)}
		s.message(more, m)
		if m.Handler == nil && m.Workflow == nil {
			m.Handler = &apiv1.Handler{Name: "native:work"}
		}
		def, err := Definition(m)
		if err != nil {
			s.t.Fatal(err)
		}
		s.call(func(l *Loop) error { _, _, err := l.Commands.ApplyJob(JobChange{Def: def}); return err })
	case "trigger":
		req := &apiv1.TriggerJobRequest{App: scenarioApp, Name: word}
		for _, f := range strings.Fields(more) {
			switch k, v, _ := strings.Cut(f, "="); k {
			case "key":
				req.IdempotencyKey = v
			case "input":
				req.Input = &v
			default:
				s.t.Fatalf("%q is neither key= nor input=", f)
			}
		}
		tr := &Trigger{}
		if err := NewTrigger(tr, req, ""); err != nil {
			s.t.Fatal(err)
		}
		s.call(func(l *Loop) error { _, _, err := l.Commands.TriggerJob(tr); return err })
	case "pause":
		s.call(func(l *Loop) error { _, err := l.Commands.PauseJob(scenarioApp, word, "", nil); return err })
	case "resume":
		s.call(func(l *Loop) error { _, err := l.Commands.ResumeJob(scenarioApp, word); return err })
	case "skip-next":
		s.call(func(l *Loop) error { _, err := l.Commands.SkipNext(scenarioApp, word); return err })
	case "delete":
		s.call(func(l *Loop) error {
			return l.Commands.DeleteRequested(&apiv1.DeleteJobRequest{App: scenarioApp, Name: word, Force: more == "force"})
		})
	case "cancel":
		id := s.runOf(word)
		s.call(func(l *Loop) error { _, err := l.Commands.CancelRun(scenarioApp, id); return err })
	case "refused":
		if s.err == nil || !strings.Contains(s.err.Error(), rest) {
			s.t.Fatalf("the command gave %v, want an error with %q", s.err, rest)
		}
		s.err = nil
	case "advance":
		d, err := time.ParseDuration(rest)
		if err != nil {
			s.t.Fatal(err)
		}
		s.advance(d)
	case "restart":
		s.journal.orderly = word == "orderly"
		for _, h := range s.hosts {
			h.connected = false
		}
		s.start()
	case "journal":
		s.journal.holds = word == "holds"
		if !s.journal.holds {
			s.journal.write()
		}
		s.settle()
	case "disk":
		if s.journal.room = 1 << 30; word == "full" {
			s.journal.room = 0
		}
		s.settle()
	case "host", "connect", "disconnect", "drain", "start", "sleep", "finish":
		s.doHost(verb, word, more)
	case "expect":
		s.expect(word, strings.TrimSpace(more))
	default:
		s.t.Fatalf("%q is no command", verb)
	}
}

// message reads a YAML mapping into a message.
func (s *scenario) message(text string, m proto.Message) {
	s.t.Helper()
	if text == "" {
		return
	}
	var v map[string]any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		s.t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	other := m.ProtoReflect().New().Interface()
	if err := protojson.Unmarshal(b, other); err != nil {
		s.t.Fatal(err)
	}
	proto.Merge(m, other)
}

func (s *scenario) expect(what, rest string) {
	s.t.Helper()
	word, more, _ := strings.Cut(rest, " ")
	var got string
	want := rest
	switch what {
	case "runs": // expect runs JOB STATE…
		var states []string
		for _, id := range s.runs[word] {
			states = append(states, s.shown(id).State)
		}
		got, want = strings.Join(states, " "), more
	case "run": // expect run JOB#N FIELD VALUE
		m := s.shown(s.runOf(word))
		field, value, _ := strings.Cut(more, " ")
		want = value
		switch field {
		case "state":
			got = m.State
		case "attempt":
			got = fmt.Sprint(m.Attempt, "/", m.MaxAttempts)
		case "planned":
			got = clockOf(m.PlannedAt.AsTime())
		case "host":
			got = m.Host
		case "code":
			got = m.Code
		case "input":
			got = m.Input
		case "output":
			got = m.Output
		case "covers":
			got = fmt.Sprint(m.Covers)
		default:
			s.t.Fatalf("a scenario cannot read the field %q", field)
		}
	case "passed": // expect passed JOB STATE COUNT
		got, want = strings.Join(s.passed[word], ", "), more
	case "next": // expect next JOB HH:MM:SS, or none
		got, want = "none", more
		m, err := s.l.GetJob(scenarioApp, word)
		if err != nil {
			s.t.Fatal(err)
		}
		if m.NextAt != nil {
			got = clockOf(m.NextAt.AsTime())
		}
	case "tasks": // expect tasks HOST JOB#N…
		got, want = s.host(word).tasks(), more
	case "cancels": // expect cancels HOST JOB#N…
		h := s.host(word)
		got, want = strings.Join(h.cancels, " "), more
		h.cancels = nil
	case "why": // expect why JOB#N TEXT
		r := s.l.State.LiveRun(scenarioApp, s.runOf(word))
		if r == nil {
			s.t.Fatalf("run %s is not live", word)
		}
		got, want = s.l.Dispatcher.Explain(r).Why, more
		if strings.Contains(got, want) {
			return
		}
	case "live":
		got = fmt.Sprint(s.l.State.live)
	default:
		s.t.Fatalf("%q cannot be expected", what)
	}
	if got != want {
		s.t.Fatalf("%s: got %q, want %q", what, got, want)
	}
}

func clockOf(t time.Time) string {
	if days := int(t.Sub(midnight) / (24 * time.Hour)); days > 0 {
		return fmt.Sprintf("%s+%dd", t.UTC().Format("15:04:05"), days)
	}
	return t.UTC().Format("15:04:05")
}

// scenarioHost is a host that does what the scenario says.
type scenarioHost struct {
	s         *scenario
	hello     *apiv1.Hello
	session   Session
	out       *hosts.Outbox
	connected bool
	batch     uint64
	holds     []*apiv1.Task // in the order in which they came
	cancels   []string
}

func (s *scenario) host(name string) *scenarioHost {
	s.t.Helper()
	h := s.hosts[name]
	if h == nil {
		s.t.Fatalf("there is no host %s", name)
	}
	return h
}

// hostOf returns the host that holds a run, and the task.
func (s *scenario) hostOf(name string) (*scenarioHost, *apiv1.Task) {
	s.t.Helper()
	id := s.runOf(name)
	for _, h := range s.hosts {
		for _, task := range h.holds {
			if job.RunID(task.Run) == id {
				return h, task
			}
		}
	}
	s.t.Fatalf("no host holds %s", name)
	return nil, nil
}

func (s *scenario) doHost(verb, word, more string) {
	s.t.Helper()
	switch verb {
	case "host": // host NAME [slots=N] [label=value]…
		h := &scenarioHost{s: s, hello: &apiv1.Hello{
			Host: word, Name: word, Session: "1", Slots: 4, Abi: []string{"native:work", "native:other"}, Recalls: true, Labels: map[string]string{},
		}}
		for _, f := range strings.Fields(more) {
			k, v, _ := strings.Cut(f, "=")
			switch k {
			case "slots":
				n, err := strconv.Atoi(v)
				if err != nil {
					s.t.Fatal(err)
				}
				h.hello.Slots = uint32(n)
			case "abi":
				h.hello.Abi = strings.Split(v, ",")
			default:
				h.hello.Labels[k] = v
			}
		}
		s.hosts[word] = h
		h.connect()
	case "connect":
		h := s.host(word)
		if more == "empty" { // its process was started again
			h.holds, h.hello.Session = nil, h.hello.Session+"1"
		}
		h.connect()
	case "disconnect":
		h := s.host(word)
		h.connected = false
		s.l.Mail.Do(func(l *Loop) { l.Sessions.Detach(h.session) })
		s.settle()
	case "drain":
		s.host(word).send(&apiv1.WorkUp{Draining: true})
	case "start", "sleep":
		h, task := s.hostOf(word)
		h.send(&apiv1.WorkUp{States: []*apiv1.TaskState{{Run: task.Run, App: task.App, Attempt: task.Attempt, Sleeping: verb == "sleep"}}})
	case "finish": // finish JOB#N ok|retry|permanent|timeout [took=D] [output=TEXT]
		h, task := s.hostOf(word)
		outcome, options, _ := strings.Cut(more, " ")
		h.finish(task, outcome, options)
	}
}

func (h *scenarioHost) connect() {
	h.s.t.Helper()
	h.out, h.connected = hosts.NewOutbox(), true
	hello := proto.CloneOf(h.hello)
	for _, task := range h.holds {
		hello.Running = append(hello.Running, &apiv1.Running{Run: task.Run, App: task.App, Attempt: task.Attempt, Epoch: task.Epoch})
	}
	h.s.l.Mail.Do(func(l *Loop) { h.session, h.s.err = l.Sessions.Attach(hello, h.out) })
	h.s.settle()
	if h.connected = h.s.err == nil; h.connected {
		h.send(&apiv1.WorkUp{Credits: h.hello.Slots * 4})
	}
}

func (h *scenarioHost) send(up *apiv1.WorkUp) {
	h.s.t.Helper()
	h.s.l.Mail.DoForHost(func(l *Loop) { l.Sessions.HandleHostMessage(h.session, up) })
	h.s.settle()
}

func (h *scenarioHost) finish(task *apiv1.Task, outcome, options string) {
	h.s.t.Helper()
	outcomes := map[string]apiv1.Outcome{
		"ok": apiv1.Outcome_OUTCOME_SUCCEEDED, "retry": apiv1.Outcome_OUTCOME_RETRYABLE, "permanent": apiv1.Outcome_OUTCOME_PERMANENT,
		"timeout": apiv1.Outcome_OUTCOME_TIMED_OUT, "stopped": apiv1.Outcome_OUTCOME_STOPPED,
	}
	o, ok := outcomes[outcome]
	if !ok {
		h.s.t.Fatalf("%q is no outcome", outcome)
	}
	r := &apiv1.TaskResult{Run: task.Run, App: task.App, Attempt: task.Attempt, Epoch: task.Epoch, Outcome: o, DurationUs: 1000, StartedMs: h.s.now.UnixMilli()}
	for _, f := range strings.Fields(options) {
		switch k, v, _ := strings.Cut(f, "="); k {
		case "took":
			d, err := time.ParseDuration(v)
			if err != nil {
				h.s.t.Fatal(err)
			}
			r.DurationUs = d.Microseconds()
		case "output":
			r.Output = []byte(v)
		default:
			h.s.t.Fatalf("%q is neither took= nor output=", f)
		}
	}
	h.holds = slices.DeleteFunc(h.holds, func(x *apiv1.Task) bool { return x == task })
	h.batch++
	h.send(&apiv1.WorkUp{Credits: 1, Batch: h.batch, Results: []*apiv1.TaskResult{r}})
}

// receive takes the messages of the loop.
func (h *scenarioHost) receive() {
	for h.connected {
		m, closed := h.out.Take()
		if m == nil {
			h.connected = !closed
			return
		}
		for _, task := range m.Tasks {
			h.holds = append(h.holds, proto.CloneOf(task))
		}
		for _, c := range m.Cancels {
			h.cancels = append(h.cancels, h.s.nameOf(job.RunID(c.Run)))
		}
		for _, c := range m.Recalls { // the handler has not started
			h.holds = slices.DeleteFunc(h.holds, func(x *apiv1.Task) bool { return job.RunID(x.Run) == job.RunID(c.Run) })
		}
	}
}

func (h *scenarioHost) tasks() string {
	var names []string
	for _, task := range h.holds {
		names = append(names, h.s.nameOf(job.RunID(task.Run)))
	}
	return strings.Join(names, " ")
}

// nameOf returns the name of a run, such as mail#2.
func (s *scenario) nameOf(id job.RunID) string {
	s.t.Helper()
	s.read()
	for name, ids := range s.runs {
		if i := slices.Index(ids, id); i >= 0 {
			return fmt.Sprintf("%s#%d", name, i+1)
		}
	}
	return id.String()
}

// memoryJournal is a journal in memory. Records are durable at once unless it holds them.
type memoryJournal struct {
	records []journal.Record
	seen    int // records that the scenario has read
	room    int64
	holds   bool
	waiting []func(error)
	orderly bool
}

func (j *memoryJournal) Append(recs []journal.Record, done func(error)) (uint64, error) {
	if j.room == 0 && len(recs) > 0 {
		return 0, errors.New("no room: the loop must ask for it before")
	}
	last, err := j.AppendLazy(recs)
	if j.holds {
		j.waiting = append(j.waiting, done)
	} else {
		done(nil)
	}
	return last, err
}

func (j *memoryJournal) AppendLazy(recs []journal.Record) (uint64, error) {
	for _, r := range recs {
		j.records = append(j.records, journal.Record{Slot: r.Slot, Body: slices.Clone(r.Body)})
	}
	return uint64(len(j.records)), nil
}

// write makes the records durable that the journal holds.
func (j *memoryJournal) write() {
	waiting := j.waiting
	j.waiting = nil
	for _, done := range waiting {
		done(nil)
	}
}

func (j *memoryJournal) Room() int64 { return j.room }

func (j *memoryJournal) Next() uint64 { return uint64(len(j.records)) + 1 }

func (j *memoryJournal) Read(from uint64, fn func(uint64, journal.Slot, []byte) error) error {
	for i := from; i <= uint64(len(j.records)); i++ {
		if err := fn(i, j.records[i-1].Slot, j.records[i-1].Body); err != nil {
			return err
		}
	}
	return nil
}

func (j *memoryJournal) Orderly() bool { return j.orderly }

func (j *memoryJournal) Settle() {}

func (j *memoryJournal) Opened() time.Time { return midnight }
