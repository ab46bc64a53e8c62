package rule

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// TestEscalationIsResolved: the resolve message goes to all channels that were told.
func TestEscalationIsResolved(t *testing.T) {
	s := tellStory(t, &Rule{Escalate: time.Minute, EscalateTo: []string{"boss", "ops"}})
	s.fails(0, "a").to(100)
	out := s.g.Observe(s.r, &Event{Subject: Subject{Job: "a"}, About: "job:a", Ends: true, AtMs: s.at}, Never)
	if len(out) != 1 || !slices.Equal(out[0].Channels, []string{"ops", "boss"}) {
		t.Errorf("%v", out)
	}
}

// story is what happens to one group, and what it tells. Times are seconds.
type story struct {
	t     *testing.T
	r     *Rule
	g     *Group
	at    int64 // ms
	runs  int
	quiet Quiet
	said  []string
}

func tellStory(t *testing.T, r *Rule) *story {
	t.Helper()
	r.Name, r.Channels = "rule", []string{"ops"}
	if len(r.Events) == 0 {
		r.Events = []string{Failed, Recovered}
	}
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	return &story{t: t, r: r, g: &Group{}, at: 1_000_000, quiet: Never}
}

func (s *story) note(all []Output) {
	for _, o := range all {
		n := o.Notification
		if err := n.Check(); err != nil {
			s.t.Error(err)
		}
		what := fmt.Sprintf("%d:%s %d", (n.At.UnixMilli()-1_000_000)/1000, n.State, n.Count)
		if o.Escalation {
			what += " to " + strings.Join(o.Channels, ",")
		}
		s.said = append(s.said, what)
	}
}

// to lets the time pass, with a tick whenever one is due.
func (s *story) to(second int64) *story {
	end := 1_000_000 + second*1000
	for {
		due := s.g.Due(s.r, s.at, s.quiet)
		if due == 0 || due > end {
			break
		}
		s.at = max(s.at, due)
		before := len(s.said)
		s.note(s.g.Tick(s.r, s.at, s.quiet))
		if len(s.said) == before {
			s.t.Fatalf("a tick at %d, which was due, told nothing", (s.at-1_000_000)/1000)
		}
	}
	s.at = end
	return s
}

func (s *story) event(second int64, name, job string) *story {
	s.to(second)
	s.runs++
	s.note(s.g.Observe(s.r, &Event{Name: name, Subject: Subject{Job: job}, Run: fmt.Sprint("run-", s.runs), AtMs: s.at, About: "job:" + job}, s.quiet))
	return s
}

func (s *story) fails(second int64, job string) *story { return s.event(second, Failed, job) }

func (s *story) succeeds(second int64, job string) *story {
	s.to(second)
	s.note(s.g.Observe(s.r, &Event{Subject: Subject{Job: job}, AtMs: s.at, About: "job:" + job, Ends: true}, s.quiet))
	return s
}

func (s *story) wants(want ...string) {
	s.t.Helper()
	if !slices.Equal(s.said, want) {
		s.t.Errorf("told %q, want %q", s.said, want)
	}
}

func TestGroup(t *testing.T) {
	type run = func(*story)
	for name, x := range map[string]struct {
		rule Rule
		do   run
		want []string
	}{
		"at once":                        {Rule{}, func(s *story) { s.fails(1, "a").succeeds(5, "a") }, []string{"1:firing 1", "5:resolved 1"}},
		"once while it fires":            {Rule{}, func(s *story) { s.fails(1, "a").fails(2, "a").fails(3, "a").succeeds(9, "a") }, []string{"1:firing 1", "9:resolved 3"}},
		"again after the end":            {Rule{}, func(s *story) { s.fails(1, "a").succeeds(2, "a").fails(3, "a") }, []string{"1:firing 1", "2:resolved 1", "3:firing 1"}},
		"no resolve unless listed":       {Rule{Events: []string{Failed}}, func(s *story) { s.fails(1, "a").succeeds(2, "a").fails(3, "a") }, []string{"1:firing 1", "3:firing 1"}},
		"other events":                   {Rule{}, func(s *story) { s.event(1, TimedOut, "a").event(2, Recovered, "a") }, nil},
		"an end without a beginning":     {Rule{}, func(s *story) { s.succeeds(1, "a") }, nil},
		"wait":                           {Rule{Wait: 30 * time.Second}, func(s *story) { s.fails(1, "a").fails(9, "b").to(99) }, []string{"31:firing 2"}},
		"an end within the wait":         {Rule{Wait: 30 * time.Second}, func(s *story) { s.fails(1, "a").succeeds(9, "a").to(99) }, []string{"9:firing 1", "9:resolved 1"}},
		"all subjects end":               {Rule{}, func(s *story) { s.fails(1, "a").fails(2, "b").succeeds(3, "a").succeeds(4, "b") }, []string{"1:firing 1", "4:resolved 2"}},
		"repeat":                         {Rule{Repeat: time.Minute}, func(s *story) { s.fails(0, "a").fails(10, "a").to(130).succeeds(170, "a") }, []string{"0:firing 1", "60:firing 2", "120:firing 2", "170:resolved 2"}},
		"acknowledged":                   {Rule{Repeat: time.Minute, Escalate: time.Minute, EscalateTo: []string{"b"}}, func(s *story) { s.fails(0, "a"); s.g.Acknowledge("p", s.at); s.to(500).succeeds(600, "a") }, []string{"0:firing 1", "600:resolved 1"}},
		"escalation":                     {Rule{Escalate: time.Minute, EscalateTo: []string{"boss"}}, func(s *story) { s.fails(0, "a").to(500) }, []string{"0:firing 1", "60:firing 1 to boss"}},
		"threshold":                      {Rule{Threshold: 3}, func(s *story) { s.fails(1, "a").fails(100, "a").fails(9000, "a").fails(9001, "a") }, []string{"9000:firing 3"}},
		"threshold in a window":          {Rule{Threshold: 3, Window: 10 * time.Second}, func(s *story) { s.fails(1, "a").fails(5, "a").fails(11, "a").fails(12, "a") }, []string{"12:firing 3"}},
		"too slow for the window":        {Rule{Threshold: 3, Window: 10 * time.Second}, func(s *story) { s.fails(1, "a").fails(8, "a").fails(15, "a").fails(22, "a") }, nil},
		"silence":                        {Rule{Silence: time.Minute}, func(s *story) { s.fails(0, "a").succeeds(1, "a").fails(2, "a").to(100) }, []string{"0:firing 1", "1:resolved 1", "60:firing 1"}},
		"begun and ended in a silence":   {Rule{Silence: time.Minute}, func(s *story) { s.fails(0, "a").succeeds(1, "a").fails(2, "a").succeeds(3, "a").to(100) }, []string{"0:firing 1", "1:resolved 1"}},
		"a silence that a person made":   {Rule{}, func(s *story) { s.quiet = until(s, 50); s.fails(1, "a").to(100).succeeds(101, "a") }, []string{"50:firing 1", "101:resolved 1"}},
		"a resolve message in a silence": {Rule{}, func(s *story) { s.fails(1, "a"); s.quiet = until(s, 50); s.succeeds(5, "a") }, []string{"1:firing 1", "5:resolved 1"}},
		"in a row":                       {Rule{Events: []string{FailedInRow, Recovered}, Threshold: 2}, func(s *story) { inRow(s, "f1 s2 f3 g4 f5 f6 s7 f8 f9") }, []string{"5:firing 1", "7:resolved 2", "9:firing 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := tellStory(t, &x.rule)
			x.do(s)
			s.wants(x.want...)
		})
	}
}

// until is a quiet up to a second.
func until(s *story, second int64) Quiet { return func(int64) int64 { return 1_000_000 + second*1000 } }

// inRow plays failures (f) and successes (s) of job a, and failures of job g, at seconds.
func inRow(s *story, play string) {
	for x := range strings.FieldsSeq(play) {
		var second int64
		fmt.Sscan(x[1:], &second) //nolint:errcheck // a number
		switch x[0] {
		case 'f':
			s.event(second, FailedInRow, "a")
		case 'g':
			s.event(second, FailedInRow, "g")
		default:
			s.succeeds(second, "a")
		}
	}
}

// TestWithoutEnd: an event without an end makes an alert that ends with its notification.
func TestWithoutEnd(t *testing.T) {
	s := tellStory(t, &Rule{Events: []string{DeadLetter, Recovered}, Wait: 10 * time.Second, Repeat: time.Minute, Silence: time.Minute})
	for _, second := range []int64{1, 2, 20, 30} {
		s.to(second)
		s.note(s.g.Observe(s.r, &Event{Name: DeadLetter, AtMs: s.at}, s.quiet))
	}
	s.to(1000)
	s.wants("11:firing 2", "71:firing 2")
	if !s.g.Idle(s.r, s.at) {
		t.Errorf("the group is not idle: %+v", s.g)
	}
}

func TestIDs(t *testing.T) {
	observe := func(run string) string {
		g := &Group{Key: "a"}
		out := g.Observe(&Rule{App: "shop", Name: "r", Events: []string{Failed}, Channels: []string{"c"}}, &Event{Name: Failed, Run: run, AtMs: 1, About: "job:a"}, Never)
		return out[0].Notification.ID
	}
	if a, b := observe("run-1"), observe("run-1"); a != b || !strings.HasPrefix(a, "alert-") || !strings.HasSuffix(a, "-1") {
		t.Errorf("%s, %s", a, b)
	}
	if observe("run-1") == observe("run-2") {
		t.Error("alerts of two runs have the same id")
	}
}

func TestKey(t *testing.T) {
	e := &Event{Name: Failed, Subject: Subject{App: "shop", Job: "j", Labels: map[string]string{"team": "a"}}, Host: "h"}
	r := &Rule{GroupBy: []string{"job", "label:team", "label:none", "event"}}
	key, labels := r.Key(e)
	if want := map[string]string{"job": "j", "team": "a", "event": Failed}; !reflect.DeepEqual(labels, want) {
		t.Errorf("%v, want %v", labels, want)
	}
	e.Job = "k"
	if other, _ := r.Key(e); other == key {
		t.Error("two jobs have one key")
	}
	if key, labels := (&Rule{}).Key(e); key != "" || len(labels) != 0 {
		t.Errorf("without group_by: %q, %v", key, labels)
	}
}

func TestSelects(t *testing.T) {
	x := &Subject{App: "shop", Job: "report-daily", Owner: "ana", Labels: map[string]string{"team": "a"}}
	for name, c := range map[string]struct {
		r    Rule
		want bool
	}{
		"all":           {Rule{}, true},
		"a pattern":     {Rule{Select: Selection{Jobs: []string{"x", "report-*"}}}, true},
		"another job":   {Rule{Select: Selection{Jobs: []string{"report"}}}, false},
		"a label":       {Rule{Select: Selection{Labels: map[string]string{"team": "a"}}}, true},
		"any value":     {Rule{Select: Selection{Labels: map[string]string{"team": "*"}}}, true},
		"another value": {Rule{Select: Selection{Labels: map[string]string{"team": "b"}}}, false},
		"no such label": {Rule{Select: Selection{Labels: map[string]string{"zone": "*"}}}, false},
		"an owner":      {Rule{Select: Selection{Owners: []string{"bo", "ana"}}}, true},
		"other owners":  {Rule{Select: Selection{Owners: []string{"bo"}}}, false},
		"the app":       {Rule{App: "shop"}, true},
		"another app":   {Rule{App: "bank"}, false},
	} {
		if got := c.r.Selects(x); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	none := &Subject{App: "shop"}
	if r := (Rule{}); !r.Selects(none) {
		t.Error("a rule without a selection does not select an event without a job")
	}
	if r := (Rule{Select: Selection{Jobs: []string{"*"}}}); r.Selects(none) {
		t.Error("a rule for jobs selects an event without a job")
	}
}

func TestCheck(t *testing.T) {
	for want, change := range map[string]func(*Rule){
		"name is missing":                       func(r *Rule) { r.Name = "" },
		"no event that begins an alert":         func(r *Rule) { r.Events = []string{Recovered} },
		`events has "nothing"`:                  func(r *Rule) { r.Events = []string{"nothing"} },
		`events has "failed" twice`:             func(r *Rule) { r.Events = []string{Failed, Failed} },
		"threshold is 1001":                     func(r *Rule) { r.Threshold = 1001 },
		"window needs a threshold":              func(r *Rule) { r.Window = time.Minute },
		"severity is":                           func(r *Rule) { r.Severity = "loud" },
		"channels is empty":                     func(r *Rule) { r.Channels = nil },
		"escalate needs both":                   func(r *Rule) { r.Escalate = time.Minute },
		"the pattern is malformed":              func(r *Rule) { r.Select.Jobs = []string{"[a"} },
		`group_by has "label:"`:                 func(r *Rule) { r.GroupBy = []string{"label:"} },
		"wait is -1s":                           func(r *Rule) { r.Wait = -time.Second },
		"repeat is 1s":                          func(r *Rule) { r.Repeat = time.Second },
		"channels has 101 entries":              func(r *Rule) { r.Channels = make([]string, 101) },
		"failed_in_row beside others":           func(r *Rule) { r.Events = []string{Failed, FailedInRow} },
		"window is for events that are counted": func(r *Rule) { r.Events, r.Threshold, r.Window = []string{FailedInRow}, 3, time.Minute },
	} {
		r := Rule{Name: "r", Events: []string{Failed}, Channels: []string{"c"}}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		change(&r)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestSilenceCovers(t *testing.T) {
	r := &Rule{Name: "r"}
	labels := map[string]string{"job": "a"}
	for _, c := range []struct {
		s    Silence
		want bool
	}{
		{Silence{}, true},
		{Silence{Rule: "r"}, true},
		{Silence{Rule: "other"}, false},
		{Silence{Labels: map[string]string{"job": "a"}}, true},
		{Silence{Labels: map[string]string{"job": "b"}}, false},
		{Silence{Labels: map[string]string{"host": ""}}, true},
	} {
		if got := c.s.Covers(r, labels); got != c.want {
			t.Errorf("%+v: %t", c.s, got)
		}
	}
}

// TestPromise lets a group see anything at any time, stores and loads it at every step, and checks what the package
// comment promises.
func TestPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := &Rule{
			App: "shop", Name: "r", Events: []string{Failed, DeadLetter}, Channels: []string{"c"},
			Threshold: rapid.IntRange(1, 3).Draw(t, "threshold"), Wait: seconds(t, "wait", 0, 20), Silence: seconds(t, "silence", 0, 100),
		}
		if rapid.Bool().Draw(t, "recovered") {
			r.Events = append(r.Events, Recovered)
		}
		if r.Threshold > 1 && rapid.Bool().Draw(t, "windowed") {
			r.Window = seconds(t, "window", 1, 50)
		}
		if rapid.Bool().Draw(t, "repeats") {
			r.Repeat = seconds(t, "repeat", 60, 100)
		}
		if rapid.Bool().Draw(t, "escalates") {
			r.Escalate, r.EscalateTo = seconds(t, "escalate", 1, 200), []string{"boss"}
		}
		if err := r.Check(); err != nil {
			t.Fatal(err)
		}
		var quietUntil int64
		quiet := func(int64) int64 { return quietUntil }
		g := &Group{Key: "k"}
		var all []Output
		ids := map[string]bool{}
		now := int64(1_000_000)
		tell := func(out []Output) {
			for _, o := range out {
				n := o.Notification
				if err := n.Check(); err != nil {
					t.Fatal(err)
				}
				if ids[n.ID] {
					t.Fatalf("notification %s twice", n.ID)
				}
				ids[n.ID] = true
				if n.State == notification.Firing && quietUntil > now {
					t.Fatal("told in a silence")
				}
				all = append(all, o)
			}
		}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += rapid.Int64Range(1, 90_000).Draw(t, "passes")
			job := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "job")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1:
				tell(g.Observe(r, &Event{Name: Failed, Subject: Subject{Job: job}, Run: fmt.Sprint("run-", i), AtMs: now, About: "job:" + job}, quiet))
			case 2:
				tell(g.Observe(r, &Event{Subject: Subject{Job: job}, AtMs: now, About: "job:" + job, Ends: true}, quiet))
			case 3:
				tell(g.Observe(r, &Event{Name: DeadLetter, AtMs: now}, quiet))
			case 4:
				g.Acknowledge("person", now)
			case 5:
				quietUntil = now + rapid.Int64Range(-1, 200_000).Draw(t, "quiet")
			}
			tell(g.Tick(r, now, quiet))
			if due := g.Due(r, now, quiet); due != 0 && due <= now {
				t.Fatalf("due at %d after a tick at %d: %+v", due, now, g)
			}
			text, err := json.Marshal(g)
			if err != nil {
				t.Fatal(err)
			}
			stored := &Group{}
			if err := json.Unmarshal(text, stored); err != nil {
				t.Fatal(err)
			}
			again, _ := json.Marshal(stored)
			if string(again) != string(text) {
				t.Fatalf("stored %s, loaded %s", text, again)
			}
			if g = stored; g.Idle(r, now) {
				g = &Group{Key: "k"} // forgotten
			}
		}
		check(t, r, all)
	})
}

func check(t *rapid.T, r *Rule, all []Output) {
	state := map[string]string{} // by alert: its last state
	escalated := map[string]bool{}
	var lastMs int64 // of the last alert's last notification
	last := map[string]int64{}
	for _, o := range all {
		n := o.Notification
		now := n.At.UnixMilli()
		switch before, ok := state[n.Alert]; {
		case before == string(notification.Resolved):
			t.Fatalf("alert %s is told after its end", n.Alert)
		case n.State == notification.Resolved && (!ok || !r.Lists(Recovered)):
			t.Fatalf("alert %s is resolved, and was not told or recovered is not listed", n.Alert)
		case n.State == notification.Firing && !ok && lastMs != 0 && now < lastMs+r.Silence.Milliseconds():
			t.Fatalf("alert %s is told in the silence of the one before", n.Alert)
		case n.State == notification.Firing && ok && !o.Escalation && (r.Repeat == 0 || now < last[n.Alert]+r.Repeat.Milliseconds()):
			t.Fatalf("alert %s is told again too early", n.Alert)
		}
		if o.Escalation {
			if escalated[n.Alert] {
				t.Fatalf("alert %s is escalated twice", n.Alert)
			}
			escalated[n.Alert] = true
		}
		state[n.Alert] = string(n.State)
		if n.State == notification.Firing {
			lastMs, last[n.Alert] = now, now
		}
	}
}

func seconds(t *rapid.T, name string, least, most int) time.Duration {
	return time.Duration(rapid.IntRange(least, most).Draw(t, name)) * time.Second
}

// TestOwners: an alert has the owners of its jobs that are mail addresses, each once, until it ends.
func TestOwners(t *testing.T) {
	r := &Rule{App: "shop", Name: "r", Events: []string{Failed, Recovered}, Channels: []string{"ops"}}
	g := &Group{}
	var out []Output
	for i, owner := range []string{"cy@example.com", "ann@example.com", "bo", "cy@example.com", ""} {
		about := string(rune('a' + i))
		out = append(out, g.Observe(r, &Event{Name: Failed, Subject: Subject{App: "shop", Job: about, Owner: owner}, About: about, AtMs: int64(i + 1)}, Never)...)
	}
	if want := []string{"ann@example.com", "cy@example.com"}; !slices.Equal(g.Owners, want) || len(out) != 1 {
		t.Errorf("owners %v, %d notifications", g.Owners, len(out))
	}
	out = nil
	for i := range 5 {
		out = append(out, g.Observe(r, &Event{Ends: true, About: string(rune('a' + i)), AtMs: 10}, Never)...)
	}
	if len(out) != 1 || len(out[0].Notification.Owners) != 2 || len(g.Owners) != 0 {
		t.Errorf("the end: %+v, owners %v", out, g.Owners)
	}
	for i := range 150 {
		g.Observe(r, &Event{Name: Failed, Subject: Subject{Owner: fmt.Sprint(i, "@example.com")}, AtMs: 20}, Never)
	}
	if len(g.Owners) > 100 {
		t.Errorf("%d owners", len(g.Owners))
	}
}

// TestEachRun: a rule for each run has a group for each, and no event about several runs.
func TestEachRun(t *testing.T) {
	r := Rule{Name: "out", Events: []string{Succeeded, Failed}, GroupBy: []string{"run"}, Channels: []string{"out"}}
	if err := r.Check(); err != nil || !r.EachRun() {
		t.Errorf("a rule for each run: %v", err)
	}
	key, labels := r.Key(&Event{Name: Failed, Run: "0001"})
	if key != "0001" || labels["run"] != "0001" {
		t.Errorf("key %q, labels %v", key, labels)
	}
	for _, events := range [][]string{{Failed, Recovered}, {FailedInRow}} {
		if r.Events = events; r.Check() == nil {
			t.Errorf("%v is accepted", events)
		}
	}
}
