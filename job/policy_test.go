package job

import (
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

func TestSettle(t *testing.T) {
	retry := Policy{Retries: 2, First: time.Second, Limit: time.Minute}
	for _, c := range []struct {
		name    string
		run     Run
		outcome apiv1.Outcome
		after   time.Duration
		want    Verdict
	}{
		{"success", Run{Attempt: 1}, apiv1.Outcome_OUTCOME_SUCCEEDED, 0, Verdict{State: Succeeded}},
		{"success after a cancel came too late", Run{Attempt: 1, CancelRequested: true}, apiv1.Outcome_OUTCOME_SUCCEEDED, 0, Verdict{State: Succeeded}},
		{"no retries", Run{Attempt: 1}, apiv1.Outcome_OUTCOME_RETRYABLE, 0, Verdict{State: Failed}},
		{"first retry", Run{Attempt: 1, Policy: &retry}, apiv1.Outcome_OUTCOME_RETRYABLE, 0, Verdict{Waiting, time.Second}},
		{"second retry doubles", Run{Attempt: 2, Policy: &retry}, apiv1.Outcome_OUTCOME_RETRYABLE, 0, Verdict{Waiting, 2 * time.Second}},
		{"retries used up", Run{Attempt: 3, Policy: &retry}, apiv1.Outcome_OUTCOME_RETRYABLE, 0, Verdict{State: Failed}},
		{"a lost attempt is no retry", Run{Attempt: 3, Lost: 1, Policy: &retry}, apiv1.Outcome_OUTCOME_RETRYABLE, 0, Verdict{Waiting, 2 * time.Second}},
		{"the handler's wish", Run{Attempt: 1, Policy: &retry}, apiv1.Outcome_OUTCOME_RETRYABLE, 7 * time.Second, Verdict{Waiting, 7 * time.Second}},
		{"permanent", Run{Attempt: 1, Policy: &retry}, apiv1.Outcome_OUTCOME_PERMANENT, 0, Verdict{State: Failed}},
		{"timed out is tried again", Run{Attempt: 1, Policy: &retry}, apiv1.Outcome_OUTCOME_TIMED_OUT, 0, Verdict{Waiting, time.Second}},
		{"timed out at last", Run{Attempt: 3, Policy: &retry}, apiv1.Outcome_OUTCOME_TIMED_OUT, 0, Verdict{State: TimedOut}},
		{"host error is tried again", Run{Attempt: 1, Policy: &retry}, apiv1.Outcome_OUTCOME_HOST_ERROR, 0, Verdict{Waiting, time.Second}},
		{"stopped by request", Run{Attempt: 1, CancelRequested: true}, apiv1.Outcome_OUTCOME_STOPPED, 0, Verdict{State: Stopped}},
		{"stopped by a drain", Run{Attempt: 1}, apiv1.Outcome_OUTCOME_STOPPED, 0, Verdict{State: Queued}},
		{"no retry after a cancel", Run{Attempt: 1, Policy: &retry, CancelRequested: true}, apiv1.Outcome_OUTCOME_RETRYABLE, 0, Verdict{State: Stopped}},
		{"lost", Run{Attempt: 1}, apiv1.Outcome_OUTCOME_LOST, 0, Verdict{State: Queued}},
		{"lost too often", Run{Attempt: 6, Lost: maxLost, Attempts: lost(maxLost)}, apiv1.Outcome_OUTCOME_LOST, 0, Verdict{State: Failed}},
		{"drained often", Run{Attempt: 9, Lost: 9}, apiv1.Outcome_OUTCOME_STOPPED, 0, Verdict{State: Queued}},
		{"lost while it was to end", Run{Attempt: 1, CancelRequested: true}, apiv1.Outcome_OUTCOME_LOST, 0, Verdict{State: Stopped}},
	} {
		if c.run.Policy == nil {
			c.run.Policy = &Policy{}
		}
		if got := Settle(&c.run, c.outcome, c.after); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func lost(n int) []Attempt {
	var rows []Attempt
	for range n {
		rows = append(rows, Attempt{Outcome: apiv1.Outcome_OUTCOME_LOST})
	}
	return rows
}

func TestBackoff(t *testing.T) {
	exp := Policy{First: time.Second, Limit: time.Minute}
	for n, want := range map[int32]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: time.Minute, 100: time.Minute} {
		if got := exp.Backoff(n); got != want {
			t.Errorf("exponential, retry %d: %s, want %s", n, got, want)
		}
	}
	fixed := Policy{First: 3 * time.Second, Limit: time.Minute, Fixed: true}
	if got := fixed.Backoff(50); got != 3*time.Second {
		t.Errorf("fixed: %s", got)
	}
	long := Policy{First: schedule.MaxInterval, Limit: schedule.MaxInterval}
	for n := range int32(200) {
		if got := long.Backoff(n); got != schedule.MaxInterval {
			t.Fatalf("retry %d of a long back-off: %s", n, got)
		}
	}
}

func TestValidateNamesWhatIsWrong(t *testing.T) {
	valid := func() *apiv1.Job {
		return &apiv1.Job{Name: "totals", Handler: &apiv1.Handler{Module: "totals@1"}}
	}
	if err := Validate(valid()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*apiv1.Job)
		want   string
	}{
		{"no name", func(j *apiv1.Job) { j.Name = "" }, "name is missing"},
		{"bad name", func(j *apiv1.Job) { j.Name = "a/b" }, "is not a name"},
		{"bad app", func(j *apiv1.Job) { j.App = "../x" }, "is not a name"},
		{"no module", func(j *apiv1.Job) { j.Handler = nil }, "handler.module is missing"},
		{"module without version", func(j *apiv1.Job) { j.Handler.Module = "totals" }, "not name@version"},
		{"two schedules", func(j *apiv1.Job) { j.Schedule = &apiv1.Schedule{Every: "1s", Delay: "1s"} }, "exclude each other"},
		{"30 February", func(j *apiv1.Job) { j.Schedule = &apiv1.Schedule{Cron: "0 0 0 30 2 *"} }, "schedule.cron"},
		{"no such zone", func(j *apiv1.Job) { j.Schedule = &apiv1.Schedule{Cron: "@daily", Zone: "Asia/Shangai"} }, "schedule.zone"},
		{"zone without cron", func(j *apiv1.Job) { j.Schedule = &apiv1.Schedule{Every: "1s", Zone: "UTC"} }, "goes with schedule.cron"},
		{"bad every", func(j *apiv1.Job) { j.Schedule = &apiv1.Schedule{Every: "5 minutes"} }, "not a duration"},
		{"too quick", func(j *apiv1.Job) { j.Schedule = &apiv1.Schedule{Every: "1ms"} }, "the shortest is"},
		{"bad at", func(j *apiv1.Job) { j.Schedule = &apiv1.Schedule{At: "tomorrow"} }, "not a time"},
		{"large input", func(j *apiv1.Job) { j.Input = strings.Repeat("x", MaxInput+1) }, "the limit is 65536"},
		{"bad timeout", func(j *apiv1.Job) { j.Timeout = "soon" }, "timeout"},
		{"retries", func(j *apiv1.Job) { j.Retry = &apiv1.Retry{Max: 1000} }, "retry.max"},
		{"back-off", func(j *apiv1.Job) { j.Retry = &apiv1.Retry{Backoff: "linear"} }, "retry.backoff"},
		{"first over limit", func(j *apiv1.Job) { j.Retry = &apiv1.Retry{First: "2h", Limit: "1h"} }, "longer than retry.limit"},
		{"little memory", func(j *apiv1.Job) { j.Limits = &apiv1.Limits{MemoryBytes: 65535} }, "limits.memory_bytes is 65535"},
		{"too much memory", func(j *apiv1.Job) { j.Limits = &apiv1.Limits{MemoryBytes: 4<<30 + 1} }, "(4 GiB)"},
		{"negative memory", func(j *apiv1.Job) { j.Limits = &apiv1.Limits{MemoryBytes: -1} }, "limits.memory_bytes"},
		{"negative fuel", func(j *apiv1.Job) { j.Limits = &apiv1.Limits{Fuel: -1} }, "limits.fuel"},
		{"limits without a module", func(j *apiv1.Job) {
			j.Handler, j.Limits = &apiv1.Handler{Name: "native:f"}, &apiv1.Limits{Fuel: 1}
		}, "handler in a module"},
		{"limits of a workflow", func(j *apiv1.Job) {
			j.Handler, j.Limits = nil, &apiv1.Limits{Fuel: 1}
			j.Workflow = &apiv1.Workflow{Nodes: []*apiv1.Node{{Name: "a", Job: "a"}}}
		}, "limits is set, but the job is a workflow"},
		{"env", func(j *apiv1.Job) { j.Handler.Env = map[string]string{"A=B": "c"} }, "handler.env"},
	} {
		j := valid()
		c.change(j)
		err := Validate(j)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %q", c.name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: more than one line: %q", c.name, err)
		}
	}
}

func FuzzParseRunID(f *testing.F) {
	f.Add(OccurrenceID("app", "job", time.UnixMilli(1_700_000_000_000), "salt").String())
	f.Add("06gzszraa8556snnmnmppn9gx9m")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseRunID(s)
		if err == nil && !strings.EqualFold(id.String(), s) {
			t.Fatalf("%q was read as %s", s, id)
		}
	})
}

func TestRunIDs(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	id := OccurrenceID("app", "job", at, "")
	if id != OccurrenceID("app", "job", at, "") {
		t.Fatal("the same occurrence has two ids")
	}
	if !id.Planned().Equal(at) || id.Slot() != SlotOf("job") {
		t.Fatalf("id %s: planned %s, slot %d", id, id.Planned(), id.Slot())
	}
	for _, other := range []RunID{OccurrenceID("app", "job", at, "x"), OccurrenceID("app2", "job", at, ""), OccurrenceID("a", "ppjob", at, "")} {
		if other == id {
			t.Fatal("two occurrences have one id")
		}
	}
	if later := OccurrenceID("app", "job", at.Add(time.Millisecond), ""); later.String() <= id.String() {
		t.Fatal("ids do not sort by time")
	}
	if back, err := ParseRunID(strings.ToLower(id.String())); err != nil || back != id {
		t.Fatalf("read back: %s, %v", back, err)
	}
}

func TestAdmit(t *testing.T) {
	for _, c := range []struct {
		name string
		p    Policy
		want [4][3]Admission // by in (0 to 3) and held (0 to 2)
	}{
		{"parallel", Policy{}, [4][3]Admission{}},
		{"parallel 1", Policy{Limited: 1}, [4][3]Admission{1: {Hold, Hold, Hold}, 2: {Hold, Hold, Hold}, 3: {Hold, Hold, Hold}}},
		{"parallel 2", Policy{Limited: 2}, [4][3]Admission{2: {Hold, Hold, Hold}, 3: {Hold, Hold, Hold}}},
		{"queue", Policy{Overlap: Queue}, [4][3]Admission{{LetIn, Hold, Hold}, {Hold, Hold, Hold}, {Hold, Hold, Hold}, {Hold, Hold, Hold}}},
		{"queue 1", Policy{Overlap: Queue, Limited: 1}, [4][3]Admission{{LetIn, Skip, Skip}, {Hold, Skip, Skip}, {Hold, Skip, Skip}, {Hold, Skip, Skip}}},
		{"queue 2", Policy{Overlap: Queue, Limited: 2}, [4][3]Admission{{LetIn, Hold, Skip}, {Hold, Hold, Skip}, {Hold, Hold, Skip}, {Hold, Hold, Skip}}},
		{"discard", Policy{Overlap: Discard}, [4][3]Admission{{LetIn, Skip, Skip}, {Skip, Skip, Skip}, {Skip, Skip, Skip}, {Skip, Skip, Skip}}},
		{"cover", Policy{Overlap: Cover}, [4][3]Admission{
			{LetIn, LetIn, LetIn},
			{LetInLast, LetInLast, LetInLast},
			{LetInLast, LetInLast, LetInLast},
			{LetInLast, LetInLast, LetInLast},
		}},
	} {
		for in, row := range c.want {
			for held, want := range row {
				if got := Admit(&c.p, in, held); got != want {
					t.Errorf("%s, %d in and %d held: %d, want %d", c.name, in, held, got, want)
				}
			}
		}
	}
}
