package life_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/cluster/life"
)

var (
	phases = []life.Phase{life.Standby, life.Taking, life.Restoring, life.Declaring, life.Serving, life.Leaving, life.Reopening, life.Stopped}
	events = []life.Event{
		life.Elected, life.Granted, life.Refused, life.Restored, life.Declared, life.HandOver, life.Lost, life.Ended,
		life.Left, life.Fenced, life.Reopened, life.Halted, life.Failed,
	}
)

// TestNext covers every phase with every event. Columns are events, rows are phases, and a
// dot is a refused event.
func TestNext(t *testing.T) {
	want := map[life.Phase]string{
		//                elected granted refused restored declared hand-over lost ended left fenced reopened halted failed
		life.Standby:   "taking . . . . . . . . . . stopped stopped",
		life.Taking:    ". restoring standby . . . . . . . . . .",
		life.Restoring: ". . . declaring . . standby . . . . stopped stopped",
		life.Declaring: ". . . . serving . leaving leaving . . . leaving .",
		life.Serving:   ". . . . . leaving leaving leaving . . . leaving .",
		life.Leaving:   ". . . . . . . . standby reopening . . stopped",
		life.Reopening: ". . . . . . . . . . standby . stopped",
		life.Stopped:   ". . . . . . . . . . . . .",
	}
	for _, p := range phases {
		row := strings.Fields(want[p])
		if len(row) != len(events) {
			t.Fatalf("%s: the row has %d events, want %d", p, len(row), len(events))
		}
		for i, e := range events {
			got := "."
			if next, ok := life.Next(p, e); ok {
				got = next.String()
			}
			if got != row[i] {
				t.Errorf("%s after %s: got %s, want %s", p, e, got, row[i])
			}
		}
	}
}

// TestTableInTheDocument compares the table in the package comment with the machine.
func TestTableInTheDocument(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(strings.TrimPrefix(line, "//"))
		if len(f) < 4 {
			continue
		}
		p := slices.IndexFunc(phases, func(p life.Phase) bool { return strings.EqualFold(p.String(), f[0]) })
		e := slices.IndexFunc(events, func(e life.Event) bool {
			return strings.EqualFold(strings.ReplaceAll(e.String(), "-", ""), f[1])
		})
		if p < 0 || e < 0 {
			continue
		}
		rows++
		if next, ok := life.Next(phases[p], events[e]); !ok || !strings.EqualFold(next.String(), f[2]) {
			t.Errorf("the document says %s after %s in %s; the machine says %s, %v", f[2], f[1], f[0], next, ok)
		}
	}
	n := 0
	for _, p := range phases {
		for _, e := range events {
			if _, ok := life.Next(p, e); ok {
				n++
			}
		}
	}
	if rows != n {
		t.Errorf("the document has %d transitions, the machine %d", rows, n)
	}
}

func TestStepOfStandby(t *testing.T) {
	for _, c := range []struct {
		owner, want string
		step        life.StandbyStep
	}{
		{"", "", life.FollowOwner},
		{"", "me", life.TakeIfWhole},
		{"", "you", life.FollowOwner},
		{"me", "", life.ReleaseAndFollow},
		{"me", "me", life.TakeBack},
		{"me", "you", life.ReleaseAndFollow},
		{"you", "", life.FollowOwner},
		{"you", "me", life.FollowOwner},
		{"you", "you", life.FollowOwner},
	} {
		if got := life.StepOfStandby(life.Standing{Owner: c.owner, Epoch: 3, Want: c.want}, "me"); got != c.step {
			t.Errorf("owner %q, desired owner %q: got step %d, want %d", c.owner, c.want, got, c.step)
		}
	}
}

func TestReportsReady(t *testing.T) {
	for _, c := range []struct {
		owner, want string
		whole       bool
		reported    uint64
		reports     bool
	}{
		{"you", "me", true, 0, true},
		{"you", "me", true, 2, true}, // of an earlier ownership
		{"you", "me", true, 3, false},
		{"you", "me", false, 0, false},
		{"you", "you", true, 0, false},
		{"", "me", true, 0, false},
	} {
		s := life.Standing{Owner: c.owner, Epoch: 3, Want: c.want}
		if got := life.ReportsReady(s, "me", c.whole, c.reported); got != c.reports {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

func TestStepOfOwner(t *testing.T) {
	for _, c := range []struct {
		s    life.Standing
		step life.OwnerStep
	}{
		{life.Standing{Owner: "me", Epoch: 3, Want: "me"}, life.Stay},
		{life.Standing{Owner: "me", Epoch: 3, Want: "me", Ready: true}, life.Stay},
		{life.Standing{Owner: "me", Epoch: 3, Ready: true}, life.Stay},
		{life.Standing{Owner: "me", Epoch: 3, Want: "you"}, life.Stay},
		{life.Standing{Owner: "me", Epoch: 3, Want: "you", Ready: true}, life.Yield},
		{life.Standing{Owner: "me", Epoch: 2, Want: "you", Ready: true}, life.Verify}, // the view is late
		{life.Standing{Owner: "you", Epoch: 4, Want: "you", Ready: true}, life.Verify},
		{life.Standing{Want: "me"}, life.Verify},
	} {
		if got := life.StepOfOwner(c.s, "me", 3); got != c.step {
			t.Errorf("%+v: got step %d, want %d", c.s, got, c.step)
		}
	}
}

// script answers each phase with the next of its events, and records the phases.
type script struct {
	events []life.Event
	err    error // of the last one
	phases []string
}

func (s *script) next(phase string) (life.Event, error) {
	s.phases = append(s.phases, phase)
	e := s.events[0]
	if s.events = s.events[1:]; len(s.events) == 0 {
		return e, s.err
	}
	return e, nil
}

func (s *script) Follow(context.Context) (life.Event, error)  { return s.next("standby") }
func (s *script) Take(context.Context) (life.Event, error)    { return s.next("taking") }
func (s *script) Restore(context.Context) (life.Event, error) { return s.next("restoring") }
func (s *script) Declare(context.Context) (life.Event, error) { return s.next("declaring") }
func (s *script) Serve(context.Context) (life.Event, error)   { return s.next("serving") }
func (s *script) Leave(context.Context) (life.Event, error)   { return s.next("leaving") }
func (s *script) Reopen(context.Context) (life.Event, error)  { return s.next("reopening") }

func TestRun(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		events []life.Event
		err    error
		phases string
		want   string // in the error; "": none
	}{
		"an owner whose process ends": {
			[]life.Event{life.Elected, life.Granted, life.Restored, life.Declared, life.Halted, life.Left, life.Halted},
			nil,
			"standby taking restoring declaring serving leaving standby", "",
		},
		"a fenced owner": {
			[]life.Event{life.Elected, life.Granted, life.Restored, life.Declared, life.Lost, life.Fenced, life.Reopened, life.Halted},
			nil,
			"standby taking restoring declaring serving leaving reopening standby", "",
		},
		"a second server was first": {[]life.Event{life.Elected, life.Refused, life.Halted}, nil, "standby taking standby", ""},
		"the disk fails":            {[]life.Event{life.Elected, life.Granted, life.Restored}, broken, "standby taking restoring", "broken"},
		"an error in a phase that cannot fail": {
			[]life.Event{life.Elected, life.Granted}, broken, "standby taking", "broken",
		},
		"an event of another phase": {[]life.Event{life.Declared}, nil, "standby", "error of the program"},
	} {
		s := &script{events: c.events, err: c.err}
		err := life.Run(t.Context(), s)
		if got := strings.Join(s.phases, " "); got != c.phases {
			t.Errorf("%s: the phases are %s, want %s", name, got, c.phases)
		}
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got the error %v, want %q", name, err, c.want)
		}
	}
}
