package codec

import (
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/wire"
)

// The messages of hosts.

func appendUp(b []byte, m *apiv1.WorkUp) ([]byte, bool) {
	if m.Hello != nil || len(m.Progress)+len(m.Logs)+len(m.Modules)+len(m.States) > 0 || m.Load != nil || m.Abilities != nil || m.Leaving {
		return b, false
	}
	b = wire.Int(b, 2, int64(m.Credits))
	b = wire.Int(b, 3, int64(m.Batch))
	for _, t := range m.Results {
		if t.Unit != "" || !plain(t) || !valid(t.App, t.Error, t.Code, t.Trace) {
			return b, false
		}
		var from int
		b, from = wire.Begin(b, 4)
		b = wire.Bytes(b, 1, t.Run)
		b = wire.Text(b, 2, t.App)
		b = wire.Int(b, 3, int64(t.Attempt))
		b = wire.Int(b, 4, int64(t.Epoch))
		b = wire.Int(b, 5, int64(t.Outcome))
		b = wire.Bytes(b, 6, t.Output)
		b = wire.Text(b, 7, t.Error)
		b = wire.Text(b, 8, t.Code)
		b = wire.Text(b, 9, t.Trace)
		b = wire.Int(b, 10, t.StartedMs)
		b = wire.Int(b, 11, t.DurationUs)
		b = wire.Int(b, 12, t.RetryAfterMs)
		b = wire.Int(b, 41, t.WaitedUs)
		b = wire.Int(b, 42, t.SleptUs)
		b = wire.End(b, from)
	}
	return wire.Bool(b, 8, m.Draining), plain(m)
}

func readUp(r *wire.Reader, m *apiv1.WorkUp) bool {
	for r.Next() {
		switch r.Field {
		case 2:
			m.Credits = uint32(r.Int())
		case 3:
			m.Batch = uint64(r.Int())
		case 4:
			t := NewResult()
			in := r.Message()
			if !readResult(&in, t) {
				return false
			}
			m.Results = append(m.Results, t)
		case 8:
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
		case 1:
			t.Run = r.Bytes()
		case 2:
			t.App = r.Text()
		case 3:
			t.Attempt = int32(r.Int())
		case 4:
			t.Epoch = uint64(r.Int())
		case 5:
			t.Outcome = apiv1.Outcome(r.Int())
		case 6:
			t.Output = r.Bytes()
		case 7:
			t.Error = r.Text()
		case 8:
			t.Code = r.Text()
		case 9:
			t.Trace = r.Text()
		case 10:
			t.StartedMs = r.Int()
		case 11:
			t.DurationUs = r.Int()
		case 12:
			t.RetryAfterMs = r.Int()
		case 41:
			t.WaitedUs = r.Int()
		case 42:
			t.SleptUs = r.Int()
		default:
			r.Fail()
		}
	}
	return !r.Failed()
}

func appendDown(b []byte, m *apiv1.WorkDown) ([]byte, bool) {
	if m.Welcome != nil || len(m.Cancels)+len(m.Prefetch)+len(m.Unload)+len(m.Recalls) > 0 {
		return b, false
	}
	for i, t := range m.Tasks {
		if i%fetchAtOnce == 0 {
			fetch(m.Tasks[i:min(i+fetchAtOnce, len(m.Tasks))])
		}
		if len(t.Env) > 0 || t.Http != nil || !plain(t) || !valid(t.Args...) ||
			!valid(t.App, t.Job, t.Module, t.Digest, t.Handler, t.TraceParent, t.Command, t.Role, t.Trust) {
			return b, false
		}
		var from int
		b, from = wire.Begin(b, 2)
		b = appendTask(b, t)
		b = wire.End(b, from)
	}
	return wire.Int(b, 3, int64(m.Acked)), plain(m)
}

// fetchAtOnce is the number of tasks whose cache lines are fetched together.
const fetchAtOnce = 32

// fetch loads the cache lines that appendTask needs of each task. Another processor has
// written the tasks, the names of their jobs and the ids of their runs, and they lie
// scattered in memory. Cache misses overlap, so loading many lines takes about as long as
// loading one. The sum only keeps the compiler from removing the loads.
//
//go:noinline
func fetch(tasks []*apiv1.Task) (sum int64) {
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

// FetchResults does for results that another processor has read what fetch does for
// tasks. The sum means nothing to the caller.
//
//go:noinline
func FetchResults(results []*apiv1.TaskResult) (sum int64) {
	for _, t := range results {
		sum += int64(len(t.Run)) + int64(len(t.Output)) + t.DurationUs + int64(len(t.Unit))
	}
	return sum
}

func appendTask(b []byte, t *apiv1.Task) []byte {
	b = wire.Bytes(b, 1, t.Run)
	b = wire.Text(b, 2, t.App)
	b = wire.Text(b, 3, t.Job)
	b = wire.Int(b, 4, int64(t.Attempt))
	b = wire.Int(b, 5, int64(t.MaxAttempts))
	b = wire.Int(b, 6, int64(t.Epoch))
	b = wire.Int(b, 7, t.PlannedMs)
	b = wire.Text(b, 8, t.Module)
	b = wire.Text(b, 9, t.Digest)
	b = wire.Text(b, 10, t.Handler)
	b = wire.Bytes(b, 11, t.Input)
	b = wire.Texts(b, 12, t.Args)
	b = wire.Int(b, 14, t.TimeoutMs)
	b = wire.Text(b, 15, t.TraceParent)
	b = wire.Int(b, 16, int64(t.Part))
	b = wire.Int(b, 17, int64(t.Parts))
	b = wire.Int(b, 18, t.Covers)
	b = wire.Text(b, 41, t.Command)
	b = wire.Bytes(b, 50, t.Grants)
	b = wire.Text(b, 51, t.Role)
	b = wire.Text(b, 60, t.Trust)
	b = wire.Int(b, 70, t.MemoryBytes)
	b = wire.Int(b, 71, t.Fuel)
	b = wire.Int(b, 72, int64(t.Priority))
	b = wire.Int(b, 73, int64(t.Pace))
	return wire.Int(b, 74, t.StartWithinMs)
}

func readDown(r *wire.Reader, m *apiv1.WorkDown) bool {
	last := &apiv1.Task{}
	for r.Next() {
		switch r.Field {
		case 2:
			t := NewTask() // allocated alone, because it lives until its handler ends
			in := r.Message()
			if !readTask(&in, t, last) {
				return false
			}
			last = t
			m.Tasks = append(m.Tasks, t)
		case 3:
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
		case 1:
			t.Run = r.Bytes()
		case 2:
			t.App = again(r.Text(), last.App)
		case 3:
			t.Job = r.Text()
		case 4:
			t.Attempt = int32(r.Int())
		case 5:
			t.MaxAttempts = int32(r.Int())
		case 6:
			t.Epoch = uint64(r.Int())
		case 7:
			t.PlannedMs = r.Int()
		case 8:
			t.Module = again(r.Text(), last.Module)
		case 9:
			t.Digest = again(r.Text(), last.Digest)
		case 10:
			t.Handler = again(r.Text(), last.Handler)
		case 11:
			t.Input = r.Bytes()
		case 12:
			t.Args = append(t.Args, r.Text())
		case 14:
			t.TimeoutMs = r.Int()
		case 15:
			t.TraceParent = r.Text()
		case 16:
			t.Part = int32(r.Int())
		case 17:
			t.Parts = int32(r.Int())
		case 18:
			t.Covers = r.Int()
		case 41:
			t.Command = r.Text()
		case 50:
			t.Grants = r.Bytes()
		case 51:
			t.Role = r.Text()
		case 60:
			t.Trust = again(r.Text(), last.Trust)
		case 70:
			t.MemoryBytes = r.Int()
		case 71:
			t.Fuel = r.Int()
		case 72:
			t.Priority = int32(r.Int())
		case 73:
			t.Pace = apiv1.Pace(r.Int())
		case 74:
			t.StartWithinMs = r.Int()
		default:
			r.Fail()
		}
	}
	return !r.Failed()
}
