package core

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/pool"
	"github.com/wheelworkhq/wheelwork/job"
)

const (
	// MaxCommands bounds the commands of one message.
	MaxCommands = 256
	// MaxPipelined bounds the messages of one stream that wait for durability.
	MaxPipelined = 64
)

// Message is one message of a producer and its answer. Its owner is first the stream on which
// it came, then the loop, then the receiver of ready. Messages are pooled, because one with
// MaxCommands triggers takes 100 KiB (BenchmarkPool in internal/pool).
type Message struct {
	number   uint64
	Commands []command
	triggers []Trigger // those of commands
	results  []apiv1.CommandResult
	answer   apiv1.ProduceResponse
	Ready    chan *apiv1.ProduceResponse // capacity 1: the answer, once it is durable
}

// Messages is the pool of messages.
var Messages = pool.Pool[Message]{New: func() *Message { return &Message{Ready: make(chan *apiv1.ProduceResponse, 1)} }}

// Recycle puts a message back into the pool. Its answer must no longer be in use.
func (m *Message) Recycle() {
	clear(m.Commands)
	clear(m.triggers)
	clear(m.results)
	clear(m.answer.Results)
	Messages.Release(m)
}

// Read validates the commands of a request. Commands that are invalid get an error. by is the
// attribution of changes of the call.
func (m *Message) Read(req *apiv1.ProduceRequest, traceParent string, by *apiv1.Attribution) {
	n := 0
	for _, c := range req.Commands {
		if c.GetTrigger() != nil {
			n++
		}
	}
	m.number = req.Number
	m.Commands = slices.Grow(m.Commands[:0], len(req.Commands))
	m.triggers = slices.Grow(m.triggers[:0], n)[:n]
	triggers := m.triggers
	for _, c := range req.Commands {
		var t *Trigger
		if c.GetTrigger() != nil {
			t, triggers = &triggers[0], triggers[1:]
		}
		m.Commands = append(m.Commands, NewCommand(c, t, traceParent, by))
	}
}

// command is a validated command of a producer. It has an error, or exactly one of apply,
// delete and trigger.
type command struct {
	Err     error
	apply   *apiv1.Job
	etag    string // that the job must have for apply; "": any
	newEtag string // of apply, see [JobChange]
	delete  *apiv1.DeleteJobRequest
	by      *apiv1.Attribution // of apply and delete
	Trigger *Trigger
	Done    bool // it was executed before
}

// NewCommand validates a command. It stores a trigger in t. traceParent is the trace of
// the call that the command came with, and by the attribution of its changes; the command's
// own take precedence.
func NewCommand(c *apiv1.Command, t *Trigger, traceParent string, by *apiv1.Attribution) (cmd command) {
	switch k := c.GetKind().(type) {
	case *apiv1.Command_Apply:
		cmd.apply, cmd.Err = Definition(k.Apply)
		if cmd.Err == nil {
			cmd.newEtag = etagOf(cmd.apply)
		}
		cmd.etag = k.Apply.GetEtag()
		cmd.by = Attribute(c, by)
	case *apiv1.Command_Delete:
		cmd.delete = k.Delete
		cmd.by = Attribute(c, by)
	case *apiv1.Command_Trigger:
		if c.Trace != nil {
			traceParent = job.TraceText(c.Trace.Parent, c.Trace.State)
		}
		if k.Trigger.GetWait() != "" {
			cmd.Err = status.Error(codes.InvalidArgument, "wait is for TriggerJob: a stream of commands waits for no run")
		} else if cmd.Err = NewTrigger(t, k.Trigger, traceParent); cmd.Err == nil {
			if t.By = by.GetAuthor(); by == ByQueue { // the server added the caller when it accepted the command
				t.By = c.Attribution.GetAuthor()
			}
			cmd.Trigger = t
		}
	default:
		cmd.Err = status.Error(codes.InvalidArgument, "the command is empty, or of a newer version than this server")
	}
	if cmd.Err == nil && cmd.by != nil {
		cmd.Err = CheckAttribution(cmd.by)
	}
	return cmd
}

// Produce executes the commands of a message, and sends the answer to m.ready when they are
// durable.
func (cm *Commands) Produce(m *Message) {
	if h := cm.held(m.Commands); h != nil {
		h.changes = true
		cm.l.Holds.wait(h, func(l *Loop) { l.Commands.Produce(m) })
		return
	}
	defer func() { cm.l.commits.by = byServer }()
	n := len(m.Commands)
	m.results = slices.Grow(m.results[:0], n)[:n]
	resp := &m.answer
	resp.Number, resp.Sync, resp.Results = m.number, cm.l.cfg.Sync, slices.Grow(resp.Results[:0], n)
	cm.findJobs(m.Commands)
	var ids idTexts
	ids.Grow(len(m.triggers) * idText)
	for i := range m.Commands {
		resp.Results = append(resp.Results, cm.command(&m.Commands[i], &m.results[i], &ids))
	}
	cm.l.commits.onDurable(func(err error) {
		if err != nil {
			for i := range resp.Results {
				resp.Results[i] = Failed(err)
			}
		}
		m.Ready <- resp
	})
}

// held returns the hold for which the commands of a message wait; nil: there is none. While
// changes of definitions wait, later messages for the app also wait, because they may name
// the jobs that the changes create.
func (cm *Commands) held(cmds []command) *hold {
	of := cm.l.Holds.of
	if len(of) == 0 {
		return nil
	}
	for i := range cmds {
		c, app := &cmds[i], ""
		switch {
		case c.apply != nil:
			app = c.apply.App
		case c.delete != nil:
			app = AppOf(c.delete.App)
		case c.Trigger != nil:
			if h := of[c.Trigger.App]; h != nil && h.changes {
				return h
			}
		}
		if h := of[app]; h != nil {
			return h
		}
	}
	return nil
}

const idText = 26 // bytes of an id's text

// idTexts makes the texts of several ids in one allocation, which lasts as long as any of the
// texts is in use.
type idTexts struct{ strings.Builder }

func (t *idTexts) of(id job.RunID) string {
	from, text := t.Len(), id.Text()
	t.Write(text[:])
	return t.String()[from:]
}

// findJobs looks up the jobs of a message that has only triggers. It does so for many at
// once, so that their cache misses overlap: a million jobs do not fit into a cache.
func (cm *Commands) findJobs(cmds []command) {
	for i := range cmds {
		if cmds[i].Trigger == nil {
			return // it may create or delete the jobs of other commands
		}
	}
	for i, j := range job.FindJobs(cmds, func(c *command, w *job.Wanted) {
		t := c.Trigger
		w.Name, w.Key = t.Name, t.hash
		if a := cm.l.State.find(t.App); a != nil {
			w.Slot = a.slots[job.SlotOf(t.Name)]
		}
	}) {
		cmds[i].Trigger.job = j
	}
}

// command executes a command. It sets and returns r, or returns another result if it fails.
func (cm *Commands) command(c *command, r *apiv1.CommandResult, ids *idTexts) *apiv1.CommandResult {
	if c.Err == nil {
		c.Err = cm.errIfCommandMoving(c)
	}
	switch {
	case c.Err != nil:
		return Failed(c.Err)
	case c.Done:
		r.Result = "duplicate"
		return r
	case c.apply != nil:
		cm.l.commits.by = c.by
		put, result, err := cm.change(JobChange{Def: c.apply, When: Condition{Etag: c.etag}, etag: c.newEtag})
		if err == nil {
			err = cm.put(put)
		}
		if err != nil {
			return Failed(err)
		}
		r.Result = result
		return r
	case c.delete != nil:
		cm.l.commits.by = c.by
		if err := cm.DeleteRequested(c.delete); err != nil {
			return Failed(err)
		}
		r.Result = "deleted"
		return r
	}
	id, duplicate, err := cm.TriggerJob(c.Trigger)
	if err != nil {
		return Failed(err)
	}
	r.Result, r.RunId = "accepted", ids.of(id)
	if duplicate {
		r.Result = "duplicate"
	}
	return r
}

// errIfCommandMoving fails if the slot of the command's job has moved or is moving.
func (cm *Commands) errIfCommandMoving(c *command) error {
	switch {
	case !cm.l.cfg.Cluster:
		return nil
	case c.apply != nil:
		return cm.l.Moves.ErrIfJobMoving(c.apply.App, c.apply.Name)
	case c.delete != nil:
		return cm.l.Moves.ErrIfJobMoving(AppOf(c.delete.App), c.delete.Name)
	case c.Trigger != nil:
		return cm.l.Moves.ErrIfJobMoving(c.Trigger.App, c.Trigger.Name)
	}
	return nil
}

// Failed returns the result of a command that has failed.
func Failed(err error) *apiv1.CommandResult {
	st := status.Convert(err)
	return &apiv1.CommandResult{Code: int32(st.Code()), Error: st.Message()}
}
