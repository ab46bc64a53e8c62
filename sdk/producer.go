package sdk

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	maxBatch      = 256     // commands in one message, as the API allows
	maxBatchBytes = 1 << 20 // well below the 4 MiB at which gRPC servers refuse a message

	// A message goes out at once while few are unanswered; then only a full one
	// does. So a lone caller never waits, and many callers fill messages by
	// themselves while the server is busy, without a timer.
	eagerMessages = 4
	maxMessages   = 16

	minPause = 25 * time.Millisecond // between two attempts to reach the server, doubled each time
	maxPause = 2 * time.Second
)

type (
	produceStream = grpc.BidiStreamingClient[apiv1.ProduceRequest, apiv1.ProduceResponse]
	openProduce   = func(context.Context, ...grpc.CallOption) (produceStream, error)
)

// producer carries the commands of many goroutines over one stream at a time.
//
// One goroutine (run) owns the stream and the unanswered messages. Callers only
// append to the queue. When a stream breaks, its unanswered commands return to
// the front of the queue, so that the order of commands is kept: every command
// is idempotent, an apply and a delete by nature, a trigger by its key.
type producer struct {
	open     openProduce
	explain  func(*status.Status) *Error
	retryFor time.Duration

	ctx  context.Context // ends when the client is closed
	stop context.CancelFunc
	done chan struct{} // closed when run has returned

	room chan struct{} // one element for each command that is not done
	wake chan struct{} // holds an element after the queue grew

	mu struct {
		sync.Mutex
		queue  []*Pending // in the order of the calls; none of them is on the stream
		closed bool       // set once; then the queue stays empty
	}
}

func newProducer(open openProduce, explain func(*status.Status) *Error, maxPending int, retryFor time.Duration) *producer {
	ctx, stop := context.WithCancel(context.Background())
	p := &producer{
		open:     open,
		explain:  explain,
		retryFor: retryFor,
		ctx:      ctx,
		stop:     stop,
		done:     make(chan struct{}),
		room:     make(chan struct{}, maxPending),
		wake:     make(chan struct{}, 1),
	}
	go p.run()
	return p
}

func (p *producer) close() {
	p.stop()
	<-p.done
}

// submit queues a command as soon as there is room.
func (p *producer) submit(ctx context.Context, command *apiv1.Command) *Pending {
	c := &Pending{command: command, size: proto.Size(command), done: make(chan struct{})}
	if c.size > maxBatchBytes {
		return c.settle(Answer{}, &Error{
			Code:    codes.InvalidArgument,
			Message: fmt.Sprintf("a command of %d bytes exceeds the limit of %d: shorten the input", c.size, maxBatchBytes),
		})
	}
	select {
	case p.room <- struct{}{}:
	case <-ctx.Done():
		return c.settle(Answer{}, fmt.Errorf("wait for room: %w", ctx.Err()))
	case <-p.ctx.Done():
		return c.settle(Answer{}, ErrClosed)
	}
	if !p.enqueue(c) {
		p.finish(c, Answer{}, ErrClosed)
	}
	return c
}

func (p *producer) enqueue(c *Pending) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return false
	}
	p.mu.queue = append(p.mu.queue, c)
	select {
	case p.wake <- struct{}{}:
	default: // run has not seen the last one yet
	}
	return true
}

// call submits a command and waits for its answer. When ctx ends first, a
// command that was not sent yet is taken back; one that was sent goes on.
func (p *producer) call(ctx context.Context, command *apiv1.Command) (Answer, error) {
	c := p.submit(ctx, command)
	answer, err := c.Wait(ctx)
	if err != nil && ctx.Err() != nil && p.withdraw(c) {
		p.finish(c, Answer{}, err)
	}
	return answer, err
}

func (p *producer) withdraw(c *Pending) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.mu.queue, c)
	if i < 0 {
		return false
	}
	p.mu.queue = slices.Delete(p.mu.queue, i, i+1)
	return true
}

// finish settles a command that holds room.
func (p *producer) finish(c *Pending, answer Answer, err error) {
	c.settle(answer, err)
	<-p.room
}

// run serves the queue, stream after stream, until the client is closed.
func (p *producer) run() {
	defer close(p.done)
	var down time.Time // since when nobody answers; zero while somebody does
	pause := minPause
	for p.awaitWork() {
		answered, err := p.session()
		if answered {
			down, pause = time.Time{}, minPause
		}
		switch {
		case p.ctx.Err() != nil:
		case p.queued() == 0: // an idle stream ended; the next command opens another
		case !broken(err):
			p.failQueued(p.explain(status.Convert(err)))
		case down.IsZero() && p.retryFor > 0:
			down = time.Now()
			_ = sleep(p.ctx, pause) // the loop asks the context itself
		case time.Since(down) < p.retryFor:
			pause = min(2*pause, maxPause)
			_ = sleep(p.ctx, pause) // the loop asks the context itself
		default:
			p.failQueued(p.explain(unavailable(err)))
			down, pause = time.Time{}, minPause
		}
	}
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.failQueued(ErrClosed)
}

func (p *producer) awaitWork() bool {
	for p.queued() == 0 {
		select {
		case <-p.wake:
		case <-p.ctx.Done():
			return false
		}
	}
	return p.ctx.Err() == nil
}

func (p *producer) queued() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.queue)
}

func (p *producer) failQueued(err error) {
	p.mu.Lock()
	queue := p.mu.queue
	p.mu.queue = nil
	p.mu.Unlock()
	for _, c := range queue {
		p.finish(c, Answer{}, err)
	}
}

// session is the life of one stream. It reports whether the server answered on
// it and why it ended; what was unanswered is queued again.
func (p *producer) session() (answered bool, err error) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	stream, err := p.open(ctx)
	if err != nil {
		return false, err
	}

	// The receiver never blocks: the server owes at most maxMessages answers.
	answers := make(chan *apiv1.ProduceResponse, maxMessages)
	var ended error // written before answers is closed
	go func() {
		defer close(answers)
		for {
			var answer *apiv1.ProduceResponse
			if answer, ended = stream.Recv(); ended != nil {
				return
			}
			select {
			case answers <- answer:
			case <-ctx.Done():
				ended = ctx.Err()
				return
			}
		}
	}()

	var unanswered []message // sent, oldest first
	defer func() { p.requeue(unanswered) }()
	next, sending := uint64(1), true
	for {
		for sending {
			m := message{number: next, commands: p.take(len(unanswered))}
			if len(m.commands) == 0 {
				break
			}
			next++
			unanswered = append(unanswered, m)
			// A failed send says only that the stream is broken; Recv knows why.
			sending = stream.Send(m.request()) == nil
		}
		select {
		case <-p.wake:
		case answer, ok := <-answers:
			if !ok {
				return answered, ended
			}
			if err := p.settle(unanswered, answer); err != nil {
				return answered, err
			}
			unanswered, answered = unanswered[1:], true
		}
	}
}

// take removes the next message's commands from the queue: none if what is
// there should wait for company.
func (p *producer) take(unanswered int) []*Pending {
	if unanswered >= maxMessages {
		return nil
	}
	// Callers that were just answered get the chance to join this message.
	runtime.Gosched()
	p.mu.Lock()
	defer p.mu.Unlock()
	n, size := 0, 0
	for n < min(len(p.mu.queue), maxBatch) && size+p.mu.queue[n].size <= maxBatchBytes {
		size += p.mu.queue[n].size
		n++
	}
	if n == len(p.mu.queue) && n < maxBatch && unanswered >= eagerMessages {
		return nil
	}
	commands := slices.Clone(p.mu.queue[:n])
	clear(p.mu.queue[:n]) // the array outlives the commands
	p.mu.queue = p.mu.queue[n:]
	return commands
}

// requeue puts unanswered commands before all others.
func (p *producer) requeue(messages []message) {
	var commands []*Pending
	for _, m := range messages {
		commands = append(commands, m.commands...)
	}
	for _, c := range commands {
		c.resent = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.queue = append(commands, p.mu.queue...)
}

// settle hands the results of the oldest unanswered message to its callers.
func (p *producer) settle(unanswered []message, answer *apiv1.ProduceResponse) error {
	if len(unanswered) == 0 || answer.GetNumber() != unanswered[0].number || len(answer.GetResults()) != len(unanswered[0].commands) {
		return status.Error(codes.Internal, "the server broke the protocol: its answer does not fit what was sent")
	}
	for i, r := range answer.GetResults() {
		c := unanswered[0].commands[i]
		result, err := p.outcome(c, r)
		p.finish(c, result, err)
	}
	return nil
}

func (p *producer) outcome(c *Pending, r *apiv1.CommandResult) (Answer, error) {
	code := codes.Code(r.GetCode())
	switch {
	case code == codes.OK:
		return Answer{Result: Result(r.GetResult()), RunID: r.GetRunId()}, nil
	case code == codes.NotFound && c.resent && c.command.GetDelete() != nil:
		return Answer{Result: Deleted}, nil // by the first sending, whose answer was lost
	}
	return Answer{}, &Error{Code: code, Message: cmp.Or(r.GetError(), "the server answered "+strings.ToLower(code.String()))}
}

// message is what one ProduceRequest carries.
type message struct {
	number   uint64
	commands []*Pending
}

func (m message) request() *apiv1.ProduceRequest {
	r := &apiv1.ProduceRequest{Number: m.number, Commands: make([]*apiv1.Command, len(m.commands))}
	for i, c := range m.commands {
		r.Commands[i] = c.command
	}
	return r
}

// Pending is a command on its way.
type Pending struct {
	command *apiv1.Command
	size    int  // of the command on the wire, in bytes
	resent  bool // owned by the producer's goroutine

	done   chan struct{} // closed after answer and err are set
	answer Answer
	err    error
}

// Answer is what the server did with a command.
type Answer struct {
	Result Result
	RunID  string // of a trigger; empty otherwise
}

// Done is closed when the command is answered or has failed.
func (c *Pending) Done() <-chan struct{} { return c.done }

// Wait blocks until the command is answered or has failed. Ending ctx ends the
// wait, not the command.
func (c *Pending) Wait(ctx context.Context) (Answer, error) {
	select {
	case <-c.done:
		return c.answer, c.err
	default:
	}
	select {
	case <-c.done:
		return c.answer, c.err
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
}

func (c *Pending) settle(answer Answer, err error) *Pending {
	c.answer, c.err = answer, err
	close(c.done)
	return c
}
