package job

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func TestJudgeCanary(t *testing.T) {
	c := &apiv1.Canary{MinAttempts: 20, MaxFailure: 0.1, Window: "10m"}
	for _, tt := range []struct {
		succeeded, failed int64
		back              bool
	}{
		{0, 0, false},
		{0, 19, false}, // too few attempts
		{0, 20, true},
		{18, 2, false}, // exactly the allowed share
		{17, 3, true},
		{1000, 100, false},
		{899, 101, true},
		{1_000_000, 0, false},
	} {
		why := JudgeCanary(c, tt.succeeded, tt.failed)
		if (why != "") != tt.back {
			t.Errorf("%d succeeded, %d failed: %q", tt.succeeded, tt.failed, why)
		}
		if want := fmt.Sprintf("%d of %d attempts within 10m failed, which is more than 10 %%", tt.failed, tt.succeeded+tt.failed); tt.back && why != want {
			t.Errorf("got %q, want %q", why, want)
		}
	}
	always := &apiv1.Canary{MinAttempts: 1, MaxFailure: 1, Window: "1m"}
	if why := JudgeCanary(always, 0, 100); why != "" {
		t.Errorf("a canary that may always fail: %q", why)
	}
}

func TestCheckCanary(t *testing.T) {
	for _, tt := range []struct {
		c    *apiv1.Canary
		want string // part of the error; "": none
	}{
		{&apiv1.Canary{Version: "2", Percent: 10}, ""},
		{&apiv1.Canary{Version: "2", Percent: 0.01, MinAttempts: 1, MaxFailure: 1, Window: "24h"}, ""},
		{&apiv1.Canary{Percent: 10}, "canary.version is missing"},
		{&apiv1.Canary{Version: "../2", Percent: 10}, "is not a name"},
		{&apiv1.Canary{Version: "2"}, "canary.percent is 0"},
		{&apiv1.Canary{Version: "2", Percent: 100}, "set the alias to the version"},
		{&apiv1.Canary{Version: "2", Percent: -1}, "canary.percent"},
		{&apiv1.Canary{Version: "2", Percent: math.NaN()}, "canary.percent"},
		{&apiv1.Canary{Version: "2", Percent: 1, MinAttempts: -1}, "canary.min_attempts"},
		{&apiv1.Canary{Version: "2", Percent: 1, MaxFailure: 1.1}, "canary.max_failure"},
		{&apiv1.Canary{Version: "2", Percent: 1, MaxFailure: math.NaN()}, "canary.max_failure"},
		{&apiv1.Canary{Version: "2", Percent: 1, Window: "59s"}, "canary.window"},
		{&apiv1.Canary{Version: "2", Percent: 1, Window: "25h"}, "canary.window"},
		{&apiv1.Canary{Version: "2", Percent: 1, Window: "soon"}, "canary.window"},
	} {
		err := CheckCanary(tt.c)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q in it", tt.c, err, tt.want)
		}
	}
	c := &apiv1.Canary{Version: "2", Percent: 10}
	if err := CheckCanary(c); err != nil || c.MinAttempts != 20 || c.MaxFailure != 0.1 || c.Window != "10m" {
		t.Errorf("defaults: %v, %v", c, err)
	}
}

// TestInCanary checks the share, that the choice depends only on the run, and that a
// larger share includes the runs of a smaller one.
func TestInCanary(t *testing.T) {
	const n = 20_000
	for _, percent := range []float64{0.5, 10, 50, 99} {
		hits := 0
		for i := range n {
			id := OccurrenceID("a", fmt.Sprint("job", i), time.UnixMilli(1e12), "")
			in := InCanary(id, "m@prod", percent)
			if in {
				hits++
			}
			if in != InCanary(id, "m@prod", percent) {
				t.Fatal("asked twice, two answers")
			}
			if in && !InCanary(id, "m@prod", percent+0.5) {
				t.Fatal("a larger share lost a run")
			}
		}
		want := percent / 100 * n
		if dev := 5 * math.Sqrt(want*(1-percent/100)); math.Abs(float64(hits)-want) > dev {
			t.Errorf("%v %%: %d of %d runs", percent, hits, n)
		}
	}
	same := 0
	for i := range n {
		id := OccurrenceID("a", fmt.Sprint("job", i), time.UnixMilli(1e12), "")
		if InCanary(id, "m@prod", 50) == InCanary(id, "other@prod", 50) {
			same++
		}
	}
	if same < n*45/100 || same > n*55/100 {
		t.Errorf("two aliases choose the same runs: %d of %d", same, n)
	}
}

func TestTally(t *testing.T) {
	const window = 10 * time.Minute
	at := int64(1_000_000) * 60_000
	minute := func(n int64) int64 { return at + n*60_000 }
	tl := &Tally{StartedMs: at}
	check := func(nowMs, succeeded, failed int64) {
		t.Helper()
		if s, f := tl.Sum(nowMs, window); s != succeeded || f != failed {
			t.Errorf("at minute %d: %d and %d, want %d and %d", (nowMs-at)/60_000, s, f, succeeded, failed)
		}
	}
	tl.Add(minute(0), window, false)
	tl.Add(minute(0)+59_999, window, true)
	tl.Add(minute(5), window, true)
	check(minute(5), 2, 1)
	check(minute(9), 2, 1)
	check(minute(10), 1, 0) // the first minute has left the window
	check(minute(15), 0, 0)
	back := LoadTally(tl.Row())
	if !proto.Equal(back.Row(), tl.Row()) || back.StartedMs != at {
		t.Errorf("read back: %v, want %v", back.Row(), tl.Row())
	}
	tl.Add(minute(4), window, false) // the clock was set back
	check(minute(5), 2, 2)
	for i := range int64(1000) {
		tl.Add(minute(20+i), window, true)
	}
	if n := len(tl.minutes); n > 10 {
		t.Errorf("it remembers %d minutes of a window of 10", n)
	}
}

// aliasDef returns a definition. If digest is "", module is an alias.
func aliasDef(name, module, digest string) *apiv1.Job {
	return &apiv1.Job{App: "a", Name: name, Revision: 1, Handler: &apiv1.Handler{Module: module, Name: "main"}, Digest: digest}
}

func TestPinsAndUses(t *testing.T) {
	s := NewSlot("a", 3)
	put := func(d *apiv1.Job, pin *apiv1.Pin) {
		s.Apply(&apiv1.Record{AtMs: 1, Kind: &apiv1.Record_JobPut{JobPut: &apiv1.JobPut{Job: d, Pin: pin}}}, nil)
	}
	uses := func() map[string]int {
		m := map[string]int{}
		s.Uses(func(module, handler string, jobs int) { m[module+"/"+handler] += jobs })
		return m
	}
	put(aliasDef("j", "m@prod", ""), nil)
	put(aliasDef("k", "m@prod", ""), nil)
	put(aliasDef("l", "m@1", "sha256:1"), nil)
	put(&apiv1.Job{App: "a", Name: "w", Workflow: &apiv1.Workflow{}}, nil)
	if got := uses(); len(got) != 2 || got["m@prod/main"] != 2 || got["m@1/main"] != 1 {
		t.Fatalf("uses %v", got)
	}
	if s.Jobs.Get("j").Alias() != "m@prod" || s.Jobs.Get("l").Alias() != "" || s.Jobs.Get("w").Alias() != "" {
		t.Fatal("what names an alias")
	}
	id := func(n byte) []byte { return append(make([]byte, 15), n) }
	accept := func(n byte, pin *apiv1.Pin) *Run {
		s.Apply(&apiv1.Record{AtMs: 2, Kind: &apiv1.Record_Accepted{Accepted: &apiv1.Accepted{Run: id(n), Job: "j", Pin: pin}}}, nil)
		return s.Runs.Get(RunID(id(n)))
	}
	one := &apiv1.Pin{Alias: "m@prod", Module: "m@1", Digest: "sha256:1"}
	two := &apiv1.Pin{Alias: "m@prod", Module: "m@2", Digest: "sha256:2", Canary: true}
	r1, r2, r3 := accept(1, one), accept(2, proto.CloneOf(one)), accept(3, two)
	for _, tt := range []struct {
		r              *Run
		module, digest string
	}{{r1, "m@1", "sha256:1"}, {r2, "m@1", "sha256:1"}, {r3, "m@2", "sha256:2"}} {
		if d := tt.r.Definition(); d.Handler.Module != tt.module || d.Digest != tt.digest {
			t.Errorf("run %x executes %s %s, want %s", tt.r.ID, d.Handler.Module, d.Digest, tt.module)
		}
		row := tt.r.Row()
		m := RunMessage(row, time.UnixMilli(5))
		if m.Module != tt.module || m.Alias != "m@prod" || m.Canary != tt.r.Pin.Canary {
			t.Errorf("shown as %v", m)
		}
	}
	if r1.shape != r2.shape || r1.Pin != r2.Pin {
		t.Error("two runs of one pin hold two definitions")
	}
	refs := map[string]bool{}
	s.RunModules(func(ref string) { refs[ref] = true })
	if len(refs) != 2 || !refs["m@1"] || !refs["m@2"] {
		t.Errorf("live runs refer to %v", refs)
	}
	// Store and restore the rows.
	again := NewSlot("a", 3)
	for j := range s.Jobs.All() {
		if _, err := again.LoadJob(j.Name(), j.Row()); err != nil {
			t.Fatal(err)
		}
	}
	if err := again.LoadRun(r3.Row()); err != nil {
		t.Fatal(err)
	}
	if r := again.Runs.Get(r3.ID); !proto.Equal(r.Pin, two) || r.Definition().Digest != "sha256:2" || again.Jobs.Get("j").Alias() != "m@prod" {
		t.Errorf("loaded: pin %v", again.Runs.Get(r3.ID).Pin)
	}
	// An armed run follows a changed definition and keeps its version, unless the job
	// names another alias.
	s.Apply(&apiv1.Record{AtMs: 3, Kind: &apiv1.Record_Armed{Armed: &apiv1.Armed{Runs: []*apiv1.Armed_Run{{Job: "k", PlannedMs: 1000, Pin: two}}}}}, nil)
	armed := s.Jobs.Get("k").armed()[0]
	changed := aliasDef("k", "m@prod", "")
	changed.Input = "new"
	put(changed, one)
	if d := armed.Definition(); d.Digest != "sha256:2" || d.Input != "new" {
		t.Errorf("an armed run after a change of the input: %v", d)
	}
	put(aliasDef("k", "m@test", ""), &apiv1.Pin{Alias: "m@test", Module: "m@3", Digest: "sha256:3"})
	if d := armed.Definition(); d.Digest != "sha256:3" || armed.Pin.Alias != "m@test" {
		t.Errorf("an armed run of a job that names another alias: %v", d)
	}
	put(aliasDef("k", "m@1", "sha256:1"), nil)
	if d := armed.Definition(); d.Digest != "sha256:1" || armed.Pin != nil {
		t.Errorf("an armed run of a job that names a version: %v, %v", d, armed.Pin)
	}
	s.Apply(&apiv1.Record{AtMs: 4, Kind: &apiv1.Record_JobDelete{JobDelete: &apiv1.JobDelete{Name: "j"}}}, nil)
	if got := uses(); len(got) != 1 || got["m@1/main"] != 2 {
		t.Errorf("uses after changes %v", got)
	}
}

func TestAliasEventsAreBounded(t *testing.T) {
	a := &apiv1.Alias{}
	for i := range 3 * maxAliasEvents {
		NoteAlias(a, &apiv1.AliasEvent{To: fmt.Sprint(i)})
	}
	if len(a.Events) != maxAliasEvents || a.Events[0].To != fmt.Sprint(3*maxAliasEvents-1) {
		t.Errorf("%d events, the first is %v", len(a.Events), a.Events[0])
	}
}
