package wasm

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/runtime"
)

func TestExitCodes(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "exit"))
	outcomes := map[byte]runtime.Outcome{
		0: runtime.Succeeded,
		1: runtime.Retryable, 2: runtime.Retryable, 63: runtime.Retryable, 71: runtime.Retryable, 74: runtime.Retryable, 79: runtime.Retryable, 255: runtime.Retryable,
		64: runtime.Permanent, 65: runtime.Permanent, 70: runtime.Permanent, 76: runtime.Permanent, 78: runtime.Permanent,
		75: runtime.Retryable,
	}
	for code, outcome := range outcomes {
		sink := &recorder{}
		r := e.Run(context.Background(), runtime.Task{Module: "exit", Digest: digest, Input: []byte{code}}, sink)
		r.Duration = 0
		want := runtime.Result{Outcome: outcome}
		if code != 0 {
			want = runtime.Result{Outcome: outcome, ExitCode: int(code), Code: "exit", Error: fmt.Sprintf("exit code %d: going", code)}
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("exit %d (-want +got):\n%s", code, diff)
		}
		if diff := cmp.Diff([]string{"going"}, sink.lines); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	}
	if r := e.Run(context.Background(), runtime.Task{Digest: digest}, &recorder{}); r.Outcome != runtime.Succeeded {
		t.Errorf("plain return of _start = %+v", r)
	}
}

func TestArgumentsAndEnvironment(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "args"))
	r := e.Run(context.Background(), runtime.Task{
		Module: "lister", Digest: digest, RunID: "r", App: "a", Job: "j", Attempt: 1, MaxAttempt: 3, Handler: "main",
		PlannedAt: time.UnixMilli(1000), Part: 2, Parts: 5,
		Args: []string{"-v", "two words"},
		Env:  map[string]string{"B": "2", "A": "one"},
	}, &recorder{})
	if want := "lister\x00-v\x00two words\x00WHEELWORK_RUN_ID=r\x00WHEELWORK_APP=a\x00WHEELWORK_JOB=j\x00WHEELWORK_ATTEMPT=1\x00" +
		"WHEELWORK_MAX_ATTEMPTS=3\x00WHEELWORK_PLANNED_AT_MS=1000\x00WHEELWORK_COVERS=0\x00WHEELWORK_PART=2\x00WHEELWORK_PARTS=5\x00A=one\x00B=2\x00"; string(r.Output) != want {
		t.Errorf("output = %q (%+v), want %q and nothing else of this process", r.Output, r, want)
	}
}

func TestBadArgumentIsNoPanic(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "args"))
	for _, task := range []runtime.Task{
		{Digest: digest, Args: []string{"a\x00b"}},
		{Digest: digest, Env: map[string]string{"": "x"}},
		{Digest: digest, Env: map[string]string{"A=B": "x"}},
	} {
		if r := e.Run(context.Background(), task, &recorder{}); r.Outcome != runtime.Permanent || r.Code != "bad_task" || r.Error == "" {
			t.Errorf("args %q env %v: %+v", task.Args, task.Env, r)
		}
	}
}

func TestNotLoaded(t *testing.T) {
	e := newEngine(t, Config{})
	r := e.Run(context.Background(), runtime.Task{Module: "m", Digest: "sha256:00"}, &recorder{})
	if r.Outcome != runtime.HostError || r.Code != "not_loaded" {
		t.Errorf("result = %+v", r)
	}
}

func TestTasksThatComeTooLateDoNotRun(t *testing.T) {
	e := newEngine(t, Config{})
	digest := load(t, e, fixture(t, "exit"))
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	sink := &recorder{}
	if r := e.Run(cancelled, runtime.Task{Digest: digest}, sink); r.Outcome != runtime.Stopped {
		t.Errorf("cancelled before: %+v", r)
	}
	if r := e.Run(context.Background(), runtime.Task{Digest: digest, Deadline: within(-time.Second)}, sink); r.Outcome != runtime.TimedOut {
		t.Errorf("deadline before: %+v", r)
	}
	if len(sink.lines) != 0 {
		t.Errorf("the guest ran and said %q", sink.lines)
	}
}
