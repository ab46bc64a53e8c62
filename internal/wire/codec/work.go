package codec

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/prefetch"
	"github.com/wheelworkhq/wheelwork/internal/wire"
	"github.com/wheelworkhq/wheelwork/internal/wire/fields"
)

// The messages of hosts.

func appendUp(b []byte, m *apiv1.WorkUp) ([]byte, bool) {
	if m.Hello != nil || len(m.Progress)+len(m.Logs)+len(m.Modules)+len(m.States) > 0 || m.Load != nil || m.Abilities != nil || m.Leaving || m.Cordoned != nil {
		return b, false
	}
	b = wire.Int(b, fields.WorkUpCredits, int64(m.Credits))
	b = wire.Int(b, fields.WorkUpBatch, int64(m.Batch))
	for _, t := range m.Results {
		if t.Unit != "" || !plain(t) || !valid(t.App, t.Error, t.Code, t.Trace) {
			return b, false
		}
		var from int
		b, from = wire.Begin(b, fields.WorkUpResults)
		b = wire.Bytes(b, fields.TaskResultRun, t.Run)
		b = wire.Text(b, fields.TaskResultApp, t.App)
		b = wire.Int(b, fields.TaskResultAttempt, int64(t.Attempt))
		b = wire.Int(b, fields.TaskResultEpoch, int64(t.Epoch))
		b = wire.Int(b, fields.TaskResultOutcome, int64(t.Outcome))
		b = wire.Bytes(b, fields.TaskResultOutput, t.Output)
		b = wire.Text(b, fields.TaskResultError, t.Error)
		b = wire.Text(b, fields.TaskResultCode, t.Code)
		b = wire.Text(b, fields.TaskResultTrace, t.Trace)
		b = wire.Int(b, fields.TaskResultStartedMs, t.StartedMs)
		b = wire.Int(b, fields.TaskResultDurationUs, t.DurationUs)
		b = wire.Int(b, fields.TaskResultRetryAfterMs, t.RetryAfterMs)
		b = wire.Int(b, fields.TaskResultWaitedUs, t.WaitedUs)
		b = wire.Int(b, fields.TaskResultSleptUs, t.SleptUs)
		b = wire.End(b, from)
	}
	return wire.Bool(b, fields.WorkUpDraining, m.Draining), plain(m)
}

func readUp(r *wire.Reader, m *apiv1.WorkUp) bool {
	for r.Next() {
		switch r.Field {
		case fields.WorkUpCredits:
			m.Credits = uint32(r.Int())
		case fields.WorkUpBatch:
			m.Batch = uint64(r.Int())
		case fields.WorkUpResults:
			t := NewResult()
			in := r.Message()
			if !readResult(&in, t) {
				return false
			}
			m.Results = append(m.Results, t)
		case fields.WorkUpDraining:
			m.Draining = r.Int() != 0
		default:
			r.Fail()
		}
	}
	return !r.Failed()
}

func readResult(r *wire.Reader, t *apiv1.TaskResult) bool {
	for r.Next() {
		switch r.Field {
		case fields.TaskResultRun:
			t.Run = r.Bytes()
		case fields.TaskResultApp:
			t.App = r.Text()
		case fields.TaskResultAttempt:
			t.Attempt = int32(r.Int())
		case fields.TaskResultEpoch:
			t.Epoch = uint64(r.Int())
		case fields.TaskResultOutcome:
			t.Outcome = apiv1.Outcome(r.Int())
		case fields.TaskResultOutput:
			t.Output = r.Bytes()
		case fields.TaskResultError:
			t.Error = r.Text()
		case fields.TaskResultCode:
			t.Code = r.Text()
		case fields.TaskResultTrace:
			t.Trace = r.Text()
		case fields.TaskResultStartedMs:
			t.StartedMs = r.Int()
		case fields.TaskResultDurationUs:
			t.DurationUs = r.Int()
		case fields.TaskResultRetryAfterMs:
			t.RetryAfterMs = r.Int()
		case fields.TaskResultWaitedUs:
			t.WaitedUs = r.Int()
		case fields.TaskResultSleptUs:
			t.SleptUs = r.Int()
		default:
			r.Fail()
		}
	}
	return !r.Failed()
}

func appendDown(b []byte, m *apiv1.WorkDown) ([]byte, bool) {
	if m.Welcome != nil || len(m.Cancels)+len(m.Prefetch)+len(m.Unload)+len(m.Recalls) > 0 || m.Cordon != nil {
		return b, false
	}
	for _, t := range prefetch.Each(m.Tasks, readTasks) {
		if len(t.Env) > 0 || t.Http != nil || !plain(t) || !valid(t.Args...) ||
			!valid(t.App, t.Job, t.Module, t.Digest, t.Handler, t.TraceParent, t.GetTraceState(), t.Command, t.Role, t.Trust) {
			return b, false
		}
		var from int
		b, from = wire.Begin(b, fields.WorkDownTasks)
		b = appendTask(b, t)
		b = wire.End(b, from)
	}
	return wire.Int(b, fields.WorkDownAcked, int64(m.Acked)), plain(m)
}

// readTasks reads what appendTask needs of each task. Another processor has written the
// tasks, the names of their jobs and the ids of their runs.
//
//go:noinline
func readTasks(tasks []*apiv1.Task) (sum int64) {
	for _, t := range tasks {
		sum += int64(len(t.Run)) + t.PlannedMs + int64(len(t.Input)) + t.Covers + int64(len(t.Role))
	}
	for _, t := range tasks {
		if t.Job != "" && len(t.Run) > 0 {
			sum += int64(t.Job[0]) + int64(t.Run[0])
		}
	}
	return sum
}

// ReadResults reads one byte of each cache line of results, for a loop that prefetches
// them: see [prefetch.Each]. The sum has no meaning.
//
//go:noinline
func ReadResults(results []*apiv1.TaskResult) (sum int64) {
	for _, t := range results {
		sum += int64(len(t.Run)) + int64(len(t.Output)) + t.DurationUs + int64(len(t.Unit))
	}
	return sum
}

func appendTask(b []byte, t *apiv1.Task) []byte {
	b = wire.Bytes(b, fields.TaskRun, t.Run)
	b = wire.Text(b, fields.TaskApp, t.App)
	b = wire.Text(b, fields.TaskJob, t.Job)
	b = wire.Int(b, fields.TaskAttempt, int64(t.Attempt))
	b = wire.Int(b, fields.TaskMaxAttempts, int64(t.MaxAttempts))
	b = wire.Int(b, fields.TaskEpoch, int64(t.Epoch))
	b = wire.Int(b, fields.TaskPlannedMs, t.PlannedMs)
	b = wire.Text(b, fields.TaskModule, t.Module)
	b = wire.Text(b, fields.TaskDigest, t.Digest)
	b = wire.Text(b, fields.TaskHandler, t.Handler)
	b = wire.Bytes(b, fields.TaskInput, t.Input)
	b = wire.Texts(b, fields.TaskArgs, t.Args)
	b = wire.Int(b, fields.TaskTimeoutMs, t.TimeoutMs)
	b = wire.Text(b, fields.TaskTraceParent, t.TraceParent)
	b = wire.Int(b, fields.TaskPart, int64(t.Part))
	b = wire.Int(b, fields.TaskParts, int64(t.Parts))
	b = wire.Int(b, fields.TaskCovers, t.Covers)
	b = wire.Text(b, fields.TaskCommand, t.Command)
	b = wire.Bytes(b, fields.TaskGrants, t.Grants)
	b = wire.Text(b, fields.TaskRole, t.Role)
	b = wire.Text(b, fields.TaskTrust, t.Trust)
	b = wire.Int(b, fields.TaskMemoryBytes, t.MemoryBytes)
	b = wire.Int(b, fields.TaskFuel, t.Fuel)
	b = wire.Int(b, fields.TaskPriority, int64(t.Priority))
	b = wire.Int(b, fields.TaskPace, int64(t.Pace))
	b = wire.Int(b, fields.TaskStartWithinMs, t.StartWithinMs)
	if t.TraceState != nil {
		b = protowire.AppendString(protowire.AppendTag(b, fields.TaskTraceState, protowire.BytesType), *t.TraceState)
	}
	return b
}

func readDown(r *wire.Reader, m *apiv1.WorkDown) bool {
	last := &apiv1.Task{}
	for r.Next() {
		switch r.Field {
		case fields.WorkDownTasks:
			t := NewTask() // allocated alone, because it lives until its handler ends
			in := r.Message()
			if !readTask(&in, t, last) {
				return false
			}
			last = t
			m.Tasks = append(m.Tasks, t)
		case fields.WorkDownAcked:
			m.Acked = uint64(r.Int())
		default:
			r.Fail()
		}
	}
	return !r.Failed()
}

func readTask(r *wire.Reader, t, last *apiv1.Task) bool {
	for r.Next() {
		switch r.Field {
		case fields.TaskRun:
			t.Run = r.Bytes()
		case fields.TaskApp:
			t.App = again(r.Text(), last.App)
		case fields.TaskJob:
			t.Job = r.Text()
		case fields.TaskAttempt:
			t.Attempt = int32(r.Int())
		case fields.TaskMaxAttempts:
			t.MaxAttempts = int32(r.Int())
		case fields.TaskEpoch:
			t.Epoch = uint64(r.Int())
		case fields.TaskPlannedMs:
			t.PlannedMs = r.Int()
		case fields.TaskModule:
			t.Module = again(r.Text(), last.Module)
		case fields.TaskDigest:
			t.Digest = again(r.Text(), last.Digest)
		case fields.TaskHandler:
			t.Handler = again(r.Text(), last.Handler)
		case fields.TaskInput:
			t.Input = r.Bytes()
		case fields.TaskArgs:
			t.Args = append(t.Args, r.Text())
		case fields.TaskTimeoutMs:
			t.TimeoutMs = r.Int()
		case fields.TaskTraceParent:
			t.TraceParent = r.Text()
		case fields.TaskPart:
			t.Part = int32(r.Int())
		case fields.TaskParts:
			t.Parts = int32(r.Int())
		case fields.TaskCovers:
			t.Covers = r.Int()
		case fields.TaskCommand:
			t.Command = r.Text()
		case fields.TaskGrants:
			t.Grants = r.Bytes()
		case fields.TaskRole:
			t.Role = r.Text()
		case fields.TaskTrust:
			t.Trust = again(r.Text(), last.Trust)
		case fields.TaskMemoryBytes:
			t.MemoryBytes = r.Int()
		case fields.TaskFuel:
			t.Fuel = r.Int()
		case fields.TaskPriority:
			t.Priority = int32(r.Int())
		case fields.TaskPace:
			t.Pace = apiv1.Pace(r.Int())
		case fields.TaskStartWithinMs:
			t.StartWithinMs = r.Int()
		case fields.TaskTraceState:
			t.TraceState = proto.String(r.Text())
		default:
			r.Fail()
		}
	}
	return !r.Failed()
}
