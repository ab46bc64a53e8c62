package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	maxBatch      = 256     // commands in one message, as the API allows
	maxBatchBytes = 1 << 20 // well below the 4 MiB at which gRPC servers refuse a message

	// While few messages are unanswered, a message goes out at once; otherwise only a
	// full one does. So a lone caller never waits, and many callers fill messages while
	// the server is busy, without a timer.
	eagerMessages = 4
	maxMessages   = 16

	minPause = 25 * time.Millisecond // between two attempts to reach a resting server, doubled each time
	maxPause = 2 * time.Second

	idleAfter = time.Minute // a stream without commands is closed

	// Servers remember the key of a trigger for 10 minutes, and 65 536 keys for each
	// slot, from all clients together. A command is not sent again in the last minute of
	// that time, which is reserved for its transfer. And one client never has more
	// commands under way than a slot remembers keys. So its own commands cannot make a
	// server forget one that it will send again.
	resendFor  = 9 * time.Minute
	maxPending = 1 << 16
)

// instant is a time as the duration since the producer was created: half the size of a
// time.Time and cheaper to read.
type instant = time.Duration

const never = instant(math.MaxInt64)

// producer carries the commands of many goroutines. It bounds them together, and each
// app's commands have a lane of their own.
//
// A command is in exactly one place at a time: waiting (no room yet), in the queue of its
// lane (not on the wire), or in one of the lane's sent messages (on the wire, no answer
// yet). A goroutine that holds mu and finds the command there may end it. It
// calls settle after it has released mu, so that waiters find the producer unlocked.
type producer struct {
	servers *servers
	explain func(*status.Status) *Error
	limits  limits
	began   time.Time

	ctx     context.Context // ends when the client is closed
	stop    context.CancelFunc
	running sync.WaitGroup // one for each lane

	mu struct {
		sync.Mutex
		lanes    map[string]*lane // by app; an idle lane ends and is removed
		commands int              // number of commands in the queues and the messages
		bytes    int              // size of these commands
		waiting  []waiter         // in the order of the calls
		closed   bool             // set once; no command enters afterwards
		expiry   *time.Timer      // fires at the next deadline
		expireAt instant          // at or before the first deadline; never: none
	}
}

type limits struct {
	commands, bytes            int
	timeout, attempt, retryFor time.Duration
	ack                        Ack
}

// waiter is a call whose command has no room yet.
type waiter struct {
	lane    string
	command *Pending
	until   instant       // the command's deadline
	decided chan struct{} // closed when the command has entered or is over
}

func newProducer(servers *servers, explain func(*status.Status) *Error, limits limits) *producer {
	p := &producer{servers: servers, explain: explain, limits: limits, began: time.Now()}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.mu.lanes = map[string]*lane{}
	p.mu.expireAt = never
	p.mu.expiry = time.AfterFunc(never, p.expire)
	return p
}

func (p *producer) now() instant { return time.Since(p.began) }

// close fails all remaining commands.
func (p *producer) close() {
	p.mu.Lock()
	p.mu.closed = true
	var ended []*Pending
	for _, w := range p.mu.waiting {
		ended = append(ended, w.command.overLocked(Answer{}, ErrClosed))
		close(w.decided)
	}
	p.mu.waiting = nil
	p.mu.expiry.Stop()
	p.mu.Unlock()
	settleAll(ended)
	p.stop()
	p.running.Wait()
}

// submit queues a command, waiting until there is room.
func (p *producer) submit(ctx context.Context, app string, command *apiv1.Command) *Pending {
	c := p.pending(ctx, command)
	w, err := p.enter(ctx, app, c, true)
	switch {
	case err != nil:
		c.err = err
		c.settle()
	case w.decided != nil:
		p.await(ctx, w)
	}
	return c
}

// trySubmit queues a command if there is room now.
func (p *producer) trySubmit(ctx context.Context, app string, command *apiv1.Command) (*Pending, error) {
	c := p.pending(ctx, command)
	if _, err := p.enter(ctx, app, c, false); err != nil {
		return nil, err
	}
	return c, nil
}

func (p *producer) pending(ctx context.Context, command *apiv1.Command) *Pending {
	traceCommand(ctx, command)
	attributeCommand(ctx, command)
	c := &Pending{command: command, size: sizeOf(command), deadline: p.now() + p.limits.timeout}
	if end, ok := ctx.Deadline(); ok {
		c.deadline = min(c.deadline, end.Sub(p.began))
	}
	return c
}

// sizeOf returns an upper bound of a command's size in a message, at most a few bytes too
// large. Triggers are frequent, so it does not look at each of their optional fields.
func sizeOf(command *apiv1.Command) int {
	t := command.GetTrigger()
	if t == nil {
		return proto.Size(command)
	}
	const heads = 3*5 + 7*5 // of the three messages and the seven texts: a tag, and a length of at most four bytes
	return heads + len(t.App) + len(t.Name) + len(t.GetInput()) + len(t.InputBytes) + len(t.IdempotencyKey) +
		len(command.Trace.GetParent()) + len(command.Trace.GetState())
}

// enter queues a command, or adds it to the waiters for room.
func (p *producer) enter(ctx context.Context, app string, c *Pending, wait bool) (waiter, error) {
	if c.size > maxBatchBytes {
		return waiter{}, &Error{
			Code:    codes.InvalidArgument,
			Message: fmt.Sprintf("a command of %d bytes exceeds the limit of %d: shorten the input", c.size, maxBatchBytes),
		}
	}
	if err := ctx.Err(); err != nil {
		return waiter{}, notSent(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.mu.closed:
		return waiter{}, ErrClosed
	case len(p.mu.waiting) == 0 && p.fitsLocked(c):
		p.enqueueLocked(app, c)
		return waiter{}, nil
	case !wait:
		return waiter{}, ErrFull
	}
	w := waiter{app, c, c.deadline, make(chan struct{})}
	p.mu.waiting = append(p.mu.waiting, w)
	return w, nil
}

// await blocks until a command has room, or ends the command at its deadline.
func (p *producer) await(ctx context.Context, w waiter) {
	timer := time.NewTimer(w.until - p.now())
	defer timer.Stop()
	cause := context.DeadlineExceeded
	select {
	case <-w.decided:
		return
	case <-timer.C:
	case <-ctx.Done():
		cause = ctx.Err()
	}
	p.mu.Lock()
	i := slices.IndexFunc(p.mu.waiting, func(o waiter) bool { return o.command == w.command })
	if i < 0 {
		p.mu.Unlock()
		return // it entered in the meantime
	}
	p.mu.waiting = slices.Delete(p.mu.waiting, i, i+1)
	w.command.overLocked(Answer{}, fmt.Errorf("wait for room: %w", cause))
	p.admitLocked() // it may have blocked a smaller one
	p.mu.Unlock()
	w.command.settle()
}

func (p *producer) fitsLocked(c *Pending) bool {
	return p.mu.commands < p.limits.commands && p.mu.bytes+c.size <= p.limits.bytes
}

func (p *producer) enqueueLocked(app string, c *Pending) {
	p.mu.commands++
	p.mu.bytes += c.size
	p.expireByLocked(c.deadline)
	l := p.mu.lanes[app]
	if l == nil {
		l = &lane{p: p, app: app, wake: make(chan struct{}, 1)}
		p.mu.lanes[app] = l
		p.running.Go(l.run)
	}
	l.queue = append(l.queue, c)
	select {
	case l.wake <- struct{}{}:
	default: // the lane has not handled the last wake-up yet
	}
}

// admitLocked lets waiters enter in their order, as long as there is room.
func (p *producer) admitLocked() {
	for len(p.mu.waiting) > 0 && p.fitsLocked(p.mu.waiting[0].command) {
		w := p.mu.waiting[0]
		p.mu.waiting[0] = waiter{} // the array outlives the command
		p.mu.waiting = p.mu.waiting[1:]
		p.enqueueLocked(w.lane, w.command)
		close(w.decided)
	}
}

// endLocked decides the outcome of a command that holds room. The caller then admits
// waiters and, after it has released the lock, calls settle.
func (p *producer) endLocked(c *Pending, answer Answer, err error) *Pending {
	p.mu.commands--
	p.mu.bytes -= c.size
	return c.overLocked(answer, err)
}

func (c *Pending) overLocked(answer Answer, err error) *Pending {
	c.over, c.command, c.answer, c.err = true, nil, answer, err
	return c
}

// fate adds to the error of a command whether a server may have executed it. It returns
// err unchanged if certainly none has.
func (c *Pending) fate(err error) error {
	if c.uncertain {
		return unknown(err)
	}
	return err
}

// expireByLocked makes the timer fire at the deadline or earlier.
func (p *producer) expireByLocked(deadline instant) {
	if deadline < p.mu.expireAt && !p.mu.closed {
		p.mu.expireAt = deadline
		p.mu.expiry.Reset(deadline - p.now())
	}
}

// expire ends the commands whose deadline has passed.
func (p *producer) expire() {
	p.mu.Lock()
	ended := p.expireLocked()
	p.mu.Unlock()
	settleAll(ended)
}

func (p *producer) expireLocked() (ended []*Pending) {
	now := p.now()
	if now < p.mu.expireAt {
		return nil
	}
	next := never
	expired := func(c *Pending, onWire bool) bool {
		switch {
		case c.over:
			return true
		case c.deadline > now:
			next = min(next, c.deadline)
			return false
		case onWire || c.uncertain:
			ended = append(ended, p.endLocked(c, Answer{}, unknown(context.DeadlineExceeded)))
		default:
			ended = append(ended, p.endLocked(c, Answer{}, notSent(context.DeadlineExceeded)))
		}
		return true
	}
	for _, l := range p.mu.lanes {
		l.queue = slices.DeleteFunc(l.queue, func(c *Pending) bool { return expired(c, false) })
		for _, m := range l.sent {
			for _, c := range m.commands {
				expired(c, true)
			}
		}
	}
	p.mu.expireAt = never
	p.expireByLocked(next)
	p.admitLocked()
	return ended
}

// call submits a command and waits for its answer. When ctx ends first, call withdraws a
// command that is not on the wire; one that is on the wire continues.
func (p *producer) call(ctx context.Context, app string, command *apiv1.Command) (Answer, error) {
	c := p.submit(ctx, app, command)
	select {
	case <-c.Done():
		return c.answer, c.err
	case <-ctx.Done():
		return p.abandon(app, c, ctx.Err())
	}
}

func (p *producer) abandon(app string, c *Pending, cause error) (Answer, error) {
	p.mu.Lock()
	if c.over {
		p.mu.Unlock()
		<-c.Done()
		return c.answer, c.err
	}
	if l := p.mu.lanes[app]; l != nil {
		if i := slices.Index(l.queue, c); i >= 0 {
			l.queue = slices.Delete(l.queue, i, i+1)
			err := notSent(cause)
			if c.uncertain {
				err = unknown(cause)
			}
			p.endLocked(c, Answer{}, err)
			p.admitLocked()
			p.mu.Unlock()
			c.settle()
			return c.answer, c.err
		}
	}
	p.mu.Unlock()
	return Answer{}, unknown(cause)
}

// flush waits for the commands that have entered.
func (p *producer) flush(ctx context.Context) error {
	p.mu.Lock()
	var under []*Pending
	for _, l := range p.mu.lanes {
		for _, m := range l.sent {
			under = append(under, m.commands...)
		}
		under = append(under, l.queue...)
	}
	p.mu.Unlock()
	for i, c := range under {
		select {
		case <-c.Done():
		case <-ctx.Done():
			return fmt.Errorf("flush: of %d commands, %d or more are not answered yet: %w", len(under), len(under)-i, ctx.Err())
		}
	}
	return nil
}

// lane carries the commands of one app over one stream at a time, in the order of the
// calls. Its goroutine (run) owns the stream.
//
// When a stream breaks, its unanswered commands return to the front of the queue, so that
// the order is preserved. The next stream may lead to another server, because every
// command is idempotent: an apply and a delete by nature, a trigger by its key.
type lane struct {
	p    *producer
	app  string
	wake chan struct{} // holds an element after the queue grew

	// Guarded by p.mu.
	queue []*Pending // none of them is on the wire
	sent  []message  // on the wire and unanswered, oldest first; changed only by run
}

type message struct {
	number   uint64
	commands []*Pending
}

// run serves the queue with one stream after another until the lane has nothing left to
// do.
func (l *lane) run() {
	var down time.Time // start of the time without answers; zero while a server answers
	pause := minPause
	hops := 0 // number of redirects since the last answer or failure
	astray := false
	for !l.ended() {
		at := l.p.servers.pick(l.p.ctx, l.app)
		if !down.IsZero() && (astray || l.p.servers.resting(at)) {
			_ = sleep(l.p.ctx, jitter(pause)) // the loop checks the context itself
			pause = min(2*pause, maxPause)
		}
		astray = false
		answered, err := l.session(at)
		if answered {
			down, pause, hops = time.Time{}, minPause, 0
		}
		if hops < maxHops && l.p.servers.follow(at, l.app, err) != nil {
			hops++
			continue // to the server that the refusal named
		}
		switch {
		case l.p.ctx.Err() != nil || l.idle(): // an idle stream ended; the next command opens another
		case !broken(err) && !moving(err):
			l.fail(l.p.explain(status.Convert(err)))
			down, pause = time.Time{}, minPause
		default:
			if !moving(err) {
				l.p.servers.heard(at, err)
			}
			if down.IsZero() {
				down = time.Now()
			}
			if time.Since(down) >= l.p.limits.retryFor {
				l.fail(l.p.explain(unavailable(err)))
				down, pause = time.Time{}, minPause
			}
			// The named server is lost. Until its lease has ended, the other servers
			// continue to name it or to forward calls to it. The pause bounds how often the
			// client calls them.
			hops, astray = 0, hops > 0 || moving(err)
		}
	}
}

func (l *lane) idle() bool {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	return len(l.queue) == 0
}

// ended reports whether the lane has nothing left to do, and removes it from the producer
// then. If the client is closed, it fails the remaining commands.
func (l *lane) ended() bool {
	if l.p.ctx.Err() != nil {
		l.fail(ErrClosed)
	}
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	if len(l.queue) > 0 {
		return false
	}
	delete(l.p.mu.lanes, l.app)
	return true
}

// fail ends every command of the queue.
func (l *lane) fail(err error) {
	l.p.mu.Lock()
	ended := l.queue
	l.queue = nil
	for _, c := range ended {
		l.p.endLocked(c, Answer{}, c.fate(err))
	}
	l.p.admitLocked()
	l.p.mu.Unlock()
	settleAll(ended)
}

var errQuiet = errors.New("the server sent nothing for too long")

// session sends commands of the queue over one stream until the stream ends, and returns
// the reason. answered reports whether a message was answered.
func (l *lane) session(at *server) (answered bool, err error) {
	// One timer watches the stream. While messages are unanswered, it bounds the time to
	// the next answer; otherwise it bounds the time without commands.
	ctx, cancel := context.WithCancelCause(l.p.ctx)
	quiet := time.AfterFunc(l.p.limits.attempt, func() { cancel(errQuiet) })
	answers := make(chan *apiv1.ProduceResponse, maxMessages)
	received := false // whether the receiver runs, which closes answers
	defer func() {
		quiet.Stop()
		if errors.Is(context.Cause(ctx), errQuiet) {
			err = status.Errorf(codes.Unavailable, "%s did not answer for %v", at.url, l.p.limits.attempt)
		}
		cancel(nil)
		for received {
			_, received = <-answers
		}
		l.requeue(!answered && (refused(err) || hint(err) != nil))
	}()
	stream, err := apiv1.NewProducerClient(at.conn).Produce(l.p.servers.headed(ctx))
	if err != nil {
		return false, err
	}

	// The receiver never blocks: the server has at most maxMessages answers left to send.
	received = true
	var broke error // written before answers is closed
	go func() {
		defer close(answers)
		for {
			var answer *apiv1.ProduceResponse
			if answer, broke = stream.Recv(); broke != nil {
				return
			}
			select {
			case answers <- answer:
			case <-ctx.Done():
				broke = ctx.Err()
				return
			}
		}
	}()

	next, sending, unanswered := uint64(1), true, 0
	for {
		for sending {
			request := l.take(next, unanswered)
			if request == nil {
				break
			}
			if next++; unanswered == 0 {
				quiet.Reset(l.p.limits.attempt)
			}
			unanswered++
			// A failed Send says only that the stream is broken; Recv returns the reason.
			sending = stream.Send(request) == nil
		}
		select {
		case <-l.wake:
		case answer, ok := <-answers:
			if !ok {
				received = false
				return answered, broke
			}
			if err := l.settle(answer); err != nil {
				return answered, err
			}
			if !answered {
				answered = true
				l.p.servers.heard(at, nil)
			}
			if unanswered--; unanswered > 0 {
				quiet.Reset(l.p.limits.attempt)
			} else {
				quiet.Reset(idleAfter)
			}
		}
	}
}

// take moves the commands of the next message from the queue to the wire. It takes none
// if they should wait for a fuller message.
func (l *lane) take(number uint64, unanswered int) *apiv1.ProduceRequest {
	if unanswered >= maxMessages {
		return nil
	}
	// Lets callers that were just answered add their next command to this message.
	runtime.Gosched()
	l.p.mu.Lock()
	ended := l.p.expireLocked() // an expired command is not sent, even if the timer is late
	request := l.takeLocked(number, unanswered)
	l.p.mu.Unlock()
	settleAll(ended)
	return request
}

func (l *lane) takeLocked(number uint64, unanswered int) *apiv1.ProduceRequest {
	n, size := 0, 0
	for n < min(len(l.queue), maxBatch) && size+l.queue[n].size <= maxBatchBytes {
		size += l.queue[n].size
		n++
	}
	if n == 0 || n == len(l.queue) && n < maxBatch && unanswered >= eagerMessages {
		return nil
	}
	m := message{number: number, commands: slices.Clone(l.queue[:n])}
	request := &apiv1.ProduceRequest{Number: number, Commands: make([]*apiv1.Command, n), Ack: string(l.p.limits.ack)}
	now := l.p.now()
	for i, c := range m.commands {
		request.Commands[i] = c.command
		c.sentAt = cmp.Or(c.sentAt, now)
	}
	clear(l.queue[:n]) // the array outlives the commands
	l.queue = l.queue[n:]
	l.sent = append(l.sent, m)
	return request
}

// requeue puts the unanswered commands before all others. refused means that the server
// has certainly not looked at them.
func (l *lane) requeue(refused bool) {
	l.p.mu.Lock()
	defer l.p.mu.Unlock()
	var commands []*Pending
	for _, m := range l.sent {
		for _, c := range m.commands {
			if c.over {
				continue
			}
			commands = append(commands, c)
			if !refused {
				c.uncertain = true
				c.deadline = min(c.deadline, c.sentAt+resendFor)
				l.p.expireByLocked(c.deadline)
			}
		}
	}
	l.sent = nil
	l.queue = append(commands, l.queue...)
}

// settle ends the commands of the oldest message as its answer says. A command that the
// server could not execute for now stays unanswered: its error ends the stream, and the
// client sends it again.
func (l *lane) settle(answer *apiv1.ProduceResponse) (err error) {
	l.p.mu.Lock()
	if len(l.sent) == 0 || answer.GetNumber() != l.sent[0].number || len(answer.GetResults()) != len(l.sent[0].commands) {
		l.p.mu.Unlock()
		return status.Error(codes.Internal, "the server broke the protocol: its answer does not fit what was sent")
	}
	commands := l.sent[0].commands
	ended := commands[:0]
	var again []*Pending
	for i, r := range answer.GetResults() {
		c := commands[i]
		switch {
		case c.over: // its deadline has passed
		case codes.Code(r.GetCode()) == codes.Unavailable:
			again = append(again, c)
			err = status.Error(codes.Unavailable, cmp.Or(strings.Clone(r.GetError()), "the server is unavailable"))
		default:
			result, err := outcome(c, r)
			result.Sync = answer.GetSync()
			ended = append(ended, l.p.endLocked(c, result, err))
		}
	}
	if again != nil {
		l.sent[0].commands = again
	} else {
		l.sent = slices.Delete(l.sent, 0, 1)
	}
	l.p.admitLocked()
	l.p.mu.Unlock()
	settleAll(ended)
	return err
}

func outcome(c *Pending, r *apiv1.CommandResult) (Answer, error) {
	code := codes.Code(r.GetCode())
	switch {
	case code == codes.OK:
		return Answer{Result: Result(r.GetResult()), RunID: strings.Clone(r.GetRunId()), Message: r.GetMessage()}, nil
	case code == codes.NotFound && c.uncertain && c.command.GetDelete() != nil:
		return Answer{Result: Deleted}, nil // the first sending deleted it, and its answer was lost
	}
	err := &Error{Code: code, Message: cmp.Or(strings.Clone(r.GetError()), "the server answered "+strings.ToLower(code.String()))}
	switch code {
	case codes.Unknown, codes.Internal, codes.DataLoss, codes.DeadlineExceeded, codes.Canceled:
		return Answer{}, unknown(err) // the server has a problem and did not refuse the command
	}
	return Answer{}, c.fate(err) // the first sending may have succeeded although the second is refused
}
