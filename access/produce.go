package access

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// refusals are the commands of a producer's stream that the guard has refused. A refused command is
// emptied before the server sees it, and its result is replaced: the other commands of the stream
// are executed. The messages of a stream are answered in their order.
type refusals struct {
	received uint64       // messages; only the receiver uses it
	sent     uint64       // answers; only the sender uses it
	open     atomic.Int64 // messages in of
	mu       sync.Mutex   // guards of
	of       map[uint64][]refusal
}

// refusal is a refused command of a message.
type refusal struct {
	at  int // index of the command
	err *status.Status
}

// check empties the commands of a message that a principal may not give, and returns the error of the
// first one; nil: it may give all. Consecutive commands are
// usually of one kind and for one app, which is checked once.
func (r *refusals) check(p *Principal, q *apiv1.ProduceRequest) (first error) {
	var refused []refusal
	var err error
	var last, lastApp string
	for i, c := range q.Commands {
		permission, app := "jobs.write", ""
		switch k := c.GetKind().(type) {
		case *apiv1.Command_Trigger:
			permission, app = "jobs.trigger", k.Trigger.GetApp()
		case *apiv1.Command_Apply:
			app = k.Apply.GetApp()
		case *apiv1.Command_Delete:
			app = k.Delete.GetApp()
		}
		if permission != last || app != lastApp {
			err = require(p, permission, app)
			last, lastApp = permission, app
		}
		if err != nil {
			if first == nil {
				first = err
			}
			c.Kind = nil
			refused = append(refused, refusal{i, status.Convert(err)})
		}
	}
	if refused != nil {
		r.mu.Lock()
		if r.of == nil {
			r.of = map[uint64][]refusal{}
		}
		r.of[r.received] = refused
		r.mu.Unlock()
		r.open.Add(1)
	}
	r.received++
	return first
}

// answer puts the refusals of a message into its answer.
func (r *refusals) answer(resp *apiv1.ProduceResponse) {
	n := r.sent
	r.sent++
	if r.open.Load() == 0 {
		return
	}
	r.mu.Lock()
	refused := r.of[n]
	delete(r.of, n)
	r.mu.Unlock()
	if refused == nil {
		return
	}
	r.open.Add(-1)
	for _, x := range refused {
		if x.at < len(resp.Results) {
			resp.Results[x.at] = &apiv1.CommandResult{Code: int32(x.err.Code()), Error: x.err.Message()}
		}
	}
}
