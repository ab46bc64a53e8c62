package verifier

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/local"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
	"github.com/wheelworkhq/wheelwork/sched"
)

// trialLimits bound a trial, beside the limits of the child and the smaller ones of the manifest.
var trialLimits = runtime.Limits{MemoryBytes: 256 << 20, OutputBytes: 256 << 10, LogBytes: 256 << 10, LogLines: 1000, Calls: 10_000}

// TryScript executes a handler of an upload that is a script, which Inspect has accepted, with the
// bytes of its interpreter. The child has no secret, no file and no network: the services of the
// handler are in its memory and end with it. A verifier without a child executes nothing.
func (g *Verifier) TryScript(ctx context.Context, code *modules.Upload, interpreter []byte, t sched.Trial) (sched.Tried, error) {
	if len(g.Command) == 0 {
		return sched.Tried{}, status.Error(codes.FailedPrecondition, "this server has no process in which it may try a script: try it with `wheelwork module run`")
	}
	select {
	case g.turns <- struct{}{}:
		defer func() { <-g.turns }()
	case <-ctx.Done():
		return sched.Tried{}, context.Cause(ctx)
	}
	trial, err := json.Marshal(t)
	if err != nil {
		return sched.Tried{}, failed("%v", err)
	}
	a, err := g.interpret(ctx, work{code: code.Reader(), interpreter: interpreter, trial: trial})
	switch {
	case err != nil:
		return sched.Tried{}, err
	case a.Tried == nil:
		return sched.Tried{}, failed("the upload verifier has not executed the script")
	}
	return *a.Tried, nil
}

// try executes a handler of a script in the child.
func try(ctx context.Context, code, interpreter, trial []byte, folder string) answer {
	var t sched.Trial
	if err := json.Unmarshal(trial, &t); err != nil {
		return answer{Refused: fmt.Sprintf("read the trial: %v", err)}
	}
	return withScript(ctx, code, interpreter, folder, &local.Services{}, func(engine *wasm.Engine, digest string, a *answer) error {
		if err := engine.CheckScript(ctx, digest); err != nil {
			return err
		}
		info, _ := engine.Info(digest)
		var log trialLog
		now := time.Now()
		r := engine.Run(ctx, runtime.Task{
			RunID: "trial", App: t.App, Job: "trial", Attempt: 1, MaxAttempt: 1, PlannedAt: now, Module: t.Module, Digest: digest,
			Handler: t.Handler, Input: t.Input, Deadline: now.Add(t.Timeout), Limits: trialLimits, Grants: &info.Manifest.Capabilities,
		}, &log)
		a.Tried = &sched.Tried{
			Outcome: outcomes[r.Outcome], Output: r.Output, Error: r.Error, Code: r.Code, Trace: r.Trace, Took: r.Duration, Log: log.lines,
		}
		return nil
	})
}

// outcomes and levels are the words of the API.
var (
	outcomes = map[runtime.Outcome]string{
		runtime.Succeeded: "succeeded", runtime.Retryable: "retryable", runtime.Permanent: "permanent", runtime.TimedOut: "timed_out",
		runtime.Stopped: "stopped", runtime.HostError: "host_error",
	}
	levels = map[runtime.Level]string{runtime.LevelDebug: "debug", runtime.LevelInfo: "info", runtime.LevelWarn: "warn", runtime.LevelError: "error"}
)

// trialLog collects the log of a trial, which the engine bounds.
type trialLog struct{ lines []sched.TriedLine }

// Log implements [runtime.Sink].
func (l *trialLog) Log(level runtime.Level, line []byte) {
	l.lines = append(l.lines, sched.TriedLine{Level: levels[level], Text: string(line)})
}

// Progress implements [runtime.Sink].
func (l *trialLog) Progress(int64, int64, string) {}
