package ingress

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/mq"
	"github.com/wheelworkhq/wheelwork/mq/queue"
)

const (
	// topic holds the commands, group is who applies them.
	topic = "commands"
	group = "owner"
	// batch is how many commands are applied together.
	batch = 256
)

// Config is what an ingress is made of. All but Logger is required.
type Config struct {
	Queue *queue.Queue
	// Log is the log that the queue does not know of: the server's journal.
	Journal *mq.Log
	// Apply does commands and returns when that is durable, with a result for each. An error says that nothing is
	// known of any of them. at are the times at which they were accepted.
	Apply  func(ctx context.Context, commands []*apiv1.Command, at []time.Time) ([]*apiv1.CommandResult, error)
	Logger *slog.Logger // default: discard
}

// Ingress accepts commands and forwards them. It owns neither the queue nor the
// journal. Its methods may be called concurrently.
type Ingress struct {
	cfg Config
}

// New returns an ingress on an open queue.
func New(cfg Config) *Ingress {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Ingress{cfg: cfg}
}

// Accept makes commands durable. done is called once, with a result for each
// command, on the queue's goroutine: it must be quick. An error means that
// nothing was accepted and that done is not called.
func (i *Ingress) Accept(commands []*apiv1.Command, origin string, done func([]*apiv1.CommandResult, error)) error {
	results := make([]*apiv1.CommandResult, len(commands))
	var msgs []queue.Message
	var of []int // the command of each message
	at := time.Now().UnixMilli()
	for n, c := range commands {
		m, err := message(c, at, origin)
		if err != nil {
			results[n] = failed(err)
			continue
		}
		msgs, of = append(msgs, m), append(of, n)
	}
	if len(msgs) == 0 {
		done(results, nil)
		return nil
	}
	err := i.cfg.Queue.Publish(msgs, func(receipts []queue.Receipt, err error) {
		if err != nil {
			done(nil, status.Error(codes.Unavailable, err.Error()))
			return
		}
		for k, r := range receipts {
			result := "accepted"
			if r.Duplicate {
				result = "duplicate"
			}
			results[of[k]] = &apiv1.CommandResult{Result: result, Message: r.ID}
		}
		done(results, nil)
	})
	return translate(err)
}

// message is the form in which a command waits.
func message(c *apiv1.Command, at int64, origin string) (m queue.Message, err error) {
	m = queue.Message{Topic: topic, Origin: origin}
	switch k := c.GetKind().(type) {
	case *apiv1.Command_Apply:
		m.Key = k.Apply.GetApp() + "/" + k.Apply.GetName()
	case *apiv1.Command_Delete:
		m.Key = k.Delete.GetApp() + "/" + k.Delete.GetName()
	case *apiv1.Command_Trigger:
		m.Key = k.Trigger.GetApp() + "/" + k.Trigger.GetName()
		if k.Trigger.IdempotencyKey == "" {
			c = proto.CloneOf(c)
			c.GetTrigger().IdempotencyKey = newKey()
		} else {
			m.Dedup = m.Key + "/" + k.Trigger.IdempotencyKey
		}
	default:
		return m, status.Error(codes.InvalidArgument, "the command is empty, or of a newer version than this server")
	}
	m.Body, err = proto.Marshal(&apiv1.Ingress{Command: c, AtMs: at})
	return m, err
}

// newKey is the idempotency key of a trigger that came without one.
func newKey() string { return "ingress/" + rand.Text() }

func failed(err error) *apiv1.CommandResult {
	st := status.Convert(err)
	return &apiv1.CommandResult{Code: int32(st.Code()), Error: st.Message()}
}

// translate gives errors of the queue the code that callers act on.
func translate(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, queue.ErrFull), errors.Is(err, mq.ErrFull):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, queue.ErrInvalid), errors.Is(err, mq.ErrTooLarge):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, queue.ErrNotFound):
		return status.Error(codes.NotFound, err.Error())
	case errors.Is(err, queue.ErrBusy):
		return status.Error(codes.Aborted, err.Error())
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return status.FromContextError(err).Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

// Run forwards until ctx ends. An error means that the queue failed.
func (i *Ingress) Run(ctx context.Context) error {
	c, err := i.cfg.Queue.Consumer(topic, group)
	if err != nil {
		return fmt.Errorf("ingress: %w", err)
	}
	defer c.Close()
	for {
		ds, err := c.Fetch(ctx, batch)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("ingress: %w", err)
		}
		if err := i.forward(ctx, c, ds); err != nil {
			return fmt.Errorf("ingress: %w", err)
		}
	}
}

// forward applies what was fetched. What ctx interrupts is given back.
func (i *Ingress) forward(ctx context.Context, c *queue.Consumer, ds []queue.Delivery) error {
	var commands []*apiv1.Command
	var at []time.Time
	var of []queue.Delivery
	for _, d := range ds {
		m := &apiv1.Ingress{}
		if err := proto.Unmarshal(d.Body, m); err != nil || m.Command == nil {
			if err := refuse(c, d, fmt.Errorf("the body is not a command: %w", cmp.Or(err, errNoCommand)), true); err != nil {
				return err
			}
			continue
		}
		commands, at, of = append(commands, m.Command), append(at, time.UnixMilli(m.AtMs)), append(of, d)
	}
	if len(commands) == 0 {
		return nil
	}
	results, err := i.cfg.Apply(ctx, commands, at)
	if ctx.Err() != nil {
		return nil
	}
	var applied []queue.Delivery
	for n, d := range of {
		cause := err
		if cause == nil && results[n].GetCode() != 0 {
			cause = status.Error(codes.Code(results[n].GetCode()), results[n].GetError())
		}
		if cause == nil {
			applied = append(applied, d)
			continue
		}
		if err := refuse(c, d, errors.New(status.Convert(cause).Message()), permanent(status.Code(cause))); err != nil {
			return err
		}
	}
	if err := c.Ack(applied, nil); err != nil && !errors.Is(err, queue.ErrStale) {
		return err
	}
	return nil
}

// refuse gives a delivery back as failed. One that is no longer ours is left to whoever has it.
func refuse(c *queue.Consumer, d queue.Delivery, cause error, permanent bool) error {
	if err := c.Nack(d, cause, permanent); err != nil && !errors.Is(err, queue.ErrStale) {
		return err
	}
	return nil
}

var errNoCommand = errors.New("there is no command in it")

// permanent reports whether trying again is no use. That there is no such job
// or module is permanent: the commands of a job come in their order, so what is
// missing now was missing when the producer sent the command. Aborted means that a job
// has another etag than the command's, which it will not have again by waiting.
func permanent(c codes.Code) bool {
	switch c {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.Aborted:
		return true
	}
	return false
}
