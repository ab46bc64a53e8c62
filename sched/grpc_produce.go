package sched

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/pool"
	"github.com/wheelworkhq/wheelwork/job"
)

type producerAPI struct {
	apiv1.UnimplementedProducerServer
	s *Server
}

const (
	// maxCommands bounds the commands of one message.
	maxCommands = 256
	// maxPipelined bounds the messages of one stream that wait for durability.
	maxPipelined = 64
)

func (a *producerAPI) Produce(stream apiv1.Producer_ProduceServer) error {
	answers := make(chan *message, maxPipelined)
	sent := make(chan error, 1)
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	go func() { // answers in the order of the messages
		var err error
		for m := range answers {
			select {
			case answer := <-m.ready:
				if err == nil {
					err = stream.Send(answer)
				}
				m.recycle()
			case <-a.s.loop.done:
				err = errEnded
			}
			if err != nil {
				cancel()
			}
		}
		sent <- err
	}()
	err := a.receive(ctx, stream, answers)
	close(answers)
	return errors.Join(err, <-sent)
}

func (a *producerAPI) receive(ctx context.Context, stream apiv1.Producer_ProduceServer, answers chan<- *message) error {
	trace := TraceParent(ctx)
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(req.Commands) > maxCommands {
			return status.Errorf(codes.InvalidArgument, "a message has %d commands, the limit is %d", len(req.Commands), maxCommands)
		}
		m := messages.Get()
		switch req.Ack {
		case "", "applied":
			m.read(req, trace)
			if !a.s.loop.do(func(l *loop) { l.produce(m) }) {
				return errEnded
			}
		case "accepted":
			if err := a.accept(ctx, req, m.ready); err != nil {
				return err
			}
		default:
			return status.Errorf(codes.InvalidArgument, "ack: %q is neither applied nor accepted", req.Ack)
		}
		select {
		case answers <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// message is one message of a producer and its answer. Its owner is first the stream on which
// it came, then the loop, then the receiver of ready. Messages are pooled, because one with
// maxCommands triggers takes 100 KiB (BenchmarkPool in internal/pool).
type message struct {
	number   uint64
	commands []command
	triggers []trigger // those of commands
	results  []apiv1.CommandResult
	answer   apiv1.ProduceResponse
	ready    chan *apiv1.ProduceResponse // capacity 1: the answer, once it is durable
}

var messages = pool.Pool[message]{New: func() *message { return &message{ready: make(chan *apiv1.ProduceResponse, 1)} }}

// recycle puts a message back into the pool. Its answer must no longer be in use.
func (m *message) recycle() {
	clear(m.commands)
	clear(m.triggers)
	clear(m.results)
	clear(m.answer.Results)
	messages.Release(m)
}

// read validates the commands of a request. Commands that are invalid get an error.
func (m *message) read(req *apiv1.ProduceRequest, traceParent string) {
	n := 0
	for _, c := range req.Commands {
		if c.GetTrigger() != nil {
			n++
		}
	}
	m.number = req.Number
	m.commands = slices.Grow(m.commands[:0], len(req.Commands))
	m.triggers = slices.Grow(m.triggers[:0], n)[:n]
	triggers := m.triggers
	for _, c := range req.Commands {
		var t *trigger
		if c.GetTrigger() != nil {
			t, triggers = &triggers[0], triggers[1:]
		}
		m.commands = append(m.commands, newCommand(c, t, traceParent))
	}
}

// accept puts commands into the ingress. It refuses invalid commands at once, because no
// later try could succeed.
func (a *producerAPI) accept(ctx context.Context, req *apiv1.ProduceRequest, ready chan<- *apiv1.ProduceResponse) error {
	if a.s.cfg.Ingress == nil {
		return status.Error(codes.Unimplemented, `this server has no ingress: use ack "applied"`)
	}
	resp := &apiv1.ProduceResponse{Number: req.Number, Sync: a.s.cfg.Sync, Results: make([]*apiv1.CommandResult, len(req.Commands))}
	var sound []*apiv1.Command
	var of []int
	for i, c := range req.Commands {
		if cmd := newCommand(c, &trigger{}, ""); cmd.err != nil {
			resp.Results[i] = failed(cmd.err)
			continue
		}
		sound, of = append(sound, c), append(of, i)
	}
	answer := func(results []*apiv1.CommandResult, err error) {
		for k, i := range of {
			if err != nil {
				resp.Results[i] = failed(err)
			} else {
				resp.Results[i] = results[k]
			}
		}
		ready <- resp
	}
	origin := "producer"
	if p, ok := peer.FromContext(ctx); ok {
		origin += " " + p.Addr.String()
	}
	if err := a.s.cfg.Ingress.Accept(sound, origin, answer); err != nil {
		answer(nil, err)
	}
	return nil
}

// Apply executes commands that a server accepted into its ingress, and returns their results
// in the same order when they are durable. A command may be executed several times: only the
// first time changes anything. again says that some may have been executed before. The caller
// owns the results.
func (s *Server) Apply(ctx context.Context, accepted []*apiv1.Ingress, again bool) ([]*apiv1.CommandResult, error) {
	req := &apiv1.ProduceRequest{Commands: make([]*apiv1.Command, len(accepted))}
	for i, a := range accepted {
		req.Commands[i] = a.Command
	}
	m := messages.Get() // not recycled: the caller owns its results
	m.read(req, "")
	for i := range m.commands {
		t := m.commands[i].trigger
		if t == nil || m.commands[i].err != nil {
			continue
		}
		t.traceParent = accepted[i].TraceParent
		if id := accepted[i].Run; len(id) == len(t.run) && t.key == "" {
			t.run, t.again = job.RunID(id), again
			if !again {
				continue
			}
		} else if t.at = time.UnixMilli(accepted[i].AtMs); time.Since(t.at) < job.KeyWindow/2 {
			continue
		}
		// A key may have been forgotten, and the job may have moved to this partition
		// since. The run, if there is one, is in the history.
		ended, err := s.ended(ctx, t.app, t.runID())
		if err != nil {
			return nil, err
		}
		m.commands[i].done = ended
	}
	if !s.loop.do(func(l *loop) { l.produce(m) }) {
		return nil, errEnded
	}
	select {
	case resp := <-m.ready:
		return resp.Results, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case <-s.loop.done:
		return nil, errEnded
	}
}

// command is a validated command of a producer. It has an error, or exactly one of apply,
// delete and trigger.
type command struct {
	err     error
	apply   *apiv1.Job
	etag    string // that the job must have for apply; "": any
	delete  *apiv1.DeleteJobRequest
	trigger *trigger
	done    bool // it was executed before
}

// newCommand validates a command. It stores a trigger in t.
func newCommand(c *apiv1.Command, t *trigger, traceParent string) (cmd command) {
	switch k := c.GetKind().(type) {
	case *apiv1.Command_Apply:
		cmd.apply, cmd.err = definition(k.Apply)
		cmd.etag = k.Apply.GetEtag()
	case *apiv1.Command_Delete:
		cmd.delete = k.Delete
	case *apiv1.Command_Trigger:
		if k.Trigger.GetWait() != "" {
			cmd.err = status.Error(codes.InvalidArgument, "wait is for TriggerJob: a stream of commands waits for no run")
		} else if cmd.err = newTrigger(t, k.Trigger, traceParent); cmd.err == nil {
			cmd.trigger = t
		}
	default:
		cmd.err = status.Error(codes.InvalidArgument, "the command is empty, or of a newer version than this server")
	}
	return cmd
}

// produce executes the commands of a message, and sends the answer to m.ready when they are
// durable.
func (l *loop) produce(m *message) {
	n := len(m.commands)
	m.results = slices.Grow(m.results[:0], n)[:n]
	resp := &m.answer
	resp.Number, resp.Sync, resp.Results = m.number, l.cfg.Sync, slices.Grow(resp.Results[:0], n)
	l.findJobs(m.commands)
	var ids idTexts
	ids.Grow(len(m.triggers) * idText)
	for i := range m.commands {
		resp.Results = append(resp.Results, l.command(&m.commands[i], &m.results[i], &ids))
	}
	l.onDurable(func(err error) {
		if err != nil {
			for i := range resp.Results {
				resp.Results[i] = failed(err)
			}
		}
		m.ready <- resp
	})
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
func (l *loop) findJobs(cmds []command) {
	for i := range cmds {
		if cmds[i].trigger == nil {
			return // it may create or delete the jobs of other commands
		}
	}
	for i, j := range job.FindJobs(cmds, func(c *command, w *job.Wanted) {
		t := c.trigger
		w.Name, w.Key = t.name, t.hash
		if a := l.apps[t.app]; a != nil {
			w.Slot = a.slots[job.SlotOf(t.name)]
		}
	}) {
		cmds[i].trigger.job = j
	}
}

// command executes a command. It sets and returns r, or returns another result if it fails.
func (l *loop) command(c *command, r *apiv1.CommandResult, ids *idTexts) *apiv1.CommandResult {
	if c.err == nil {
		c.err = l.errIfCommandMoving(c)
	}
	switch {
	case c.err != nil:
		return failed(c.err)
	case c.done:
		r.Result = "duplicate"
		return r
	case c.apply != nil:
		put, result, err := l.change(wanted{def: c.apply, when: condition{etag: c.etag}})
		if err == nil {
			err = l.put(put)
		}
		if err != nil {
			return failed(err)
		}
		r.Result = result
		return r
	case c.delete != nil:
		if err := l.deleteAsked(c.delete); err != nil {
			return failed(err)
		}
		r.Result = "deleted"
		return r
	}
	id, duplicate, err := l.triggerJob(c.trigger)
	if err != nil {
		return failed(err)
	}
	r.Result, r.RunId = "accepted", ids.of(id)
	if duplicate {
		r.Result = "duplicate"
	}
	return r
}

// errIfCommandMoving fails if the slot of the command's job has moved or is moving.
func (l *loop) errIfCommandMoving(c *command) error {
	switch {
	case l.cfg.Remote == nil:
		return nil
	case c.apply != nil:
		return l.errIfJobMoving(c.apply.App, c.apply.Name)
	case c.delete != nil:
		return l.errIfJobMoving(appOf(c.delete.App), c.delete.Name)
	case c.trigger != nil:
		return l.errIfJobMoving(c.trigger.app, c.trigger.name)
	}
	return nil
}

func failed(err error) *apiv1.CommandResult {
	st := status.Convert(err)
	return &apiv1.CommandResult{Code: int32(st.Code()), Error: st.Message()}
}
