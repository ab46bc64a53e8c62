package ingress

import (
	"cmp"
	"context"
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
	// topic holds the commands; group is the consumer group of the forwarder.
	topic = "commands"
	group = "owner"
	// batch is the number of commands that the forwarder applies together, at most.
	batch = 256
)

// Config configures an ingress. All fields but Logger are required.
type Config struct {
	Queue *queue.Queue
	// Journal is the server's journal, a log that the queue does not know.
	Journal *mq.Log
	// Apply carries out commands and returns a result for each when they are durable.
	// again means that some of them may have been carried out before. An error means that
	// the outcome of all of them is unknown.
	Apply func(ctx context.Context, accepted []*apiv1.Ingress, again bool) ([]*apiv1.CommandResult, error)
	// NewRun returns the id of the run of a trigger that has no key and is accepted at
	// the given time. Ids are unique.
	NewRun func(app, name string, at time.Time) []byte
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

// Accept makes commands durable. It calls done once, with a result for each command, on
// the goroutine of the queue; done must return quickly. After an error of Accept nothing
// was accepted and done is not called.
func (i *Ingress) Accept(commands []*apiv1.Command, origin string, done func([]*apiv1.CommandResult, error)) error {
	results := make([]*apiv1.CommandResult, len(commands))
	var msgs []queue.Message
	var of []int // the command of each message
	at := time.Now()
	for n, c := range commands {
		m, err := i.message(c, at, origin)
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

// message returns the queue message that carries a command.
func (i *Ingress) message(c *apiv1.Command, at time.Time, origin string) (m queue.Message, err error) {
	m = queue.Message{Topic: topic, Origin: origin}
	body := &apiv1.Ingress{Command: c, AtMs: at.UnixMilli()}
	switch k := c.GetKind().(type) {
	case *apiv1.Command_Apply:
		m.Key = k.Apply.GetApp() + "/" + k.Apply.GetName()
	case *apiv1.Command_Delete:
		m.Key = k.Delete.GetApp() + "/" + k.Delete.GetName()
	case *apiv1.Command_Trigger:
		m.Key = k.Trigger.GetApp() + "/" + k.Trigger.GetName()
		if k.Trigger.IdempotencyKey == "" {
			body.Run = i.cfg.NewRun(k.Trigger.App, k.Trigger.Name, at)
		} else {
			m.Dedup = m.Key + "/" + k.Trigger.IdempotencyKey
		}
	default:
		return m, status.Error(codes.InvalidArgument, "the command is empty, or of a newer version than this server")
	}
	m.Body, err = proto.Marshal(body)
	return m, err
}

func failed(err error) *apiv1.CommandResult {
	st := status.Convert(err)
	return &apiv1.CommandResult{Code: int32(st.Code()), Error: st.Message()}
}

// translate maps errors of the queue to gRPC codes that callers act on.
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

// Run forwards commands until ctx ends. An error means that the queue failed.
func (i *Ingress) Run(ctx context.Context) error {
	began := time.Now()
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
		if err := i.forward(ctx, c, ds, began); err != nil {
			return fmt.Errorf("ingress: %w", err)
		}
	}
}

// forward applies the fetched commands and returns those that ctx interrupts to the
// queue. A command may have been applied before if it was published before began, or if
// it has failed before.
func (i *Ingress) forward(ctx context.Context, c *queue.Consumer, ds []queue.Delivery, began time.Time) error {
	var commands []*apiv1.Ingress
	var of []queue.Delivery
	again := false
	for _, d := range ds {
		m := &apiv1.Ingress{}
		if err := proto.Unmarshal(d.Body, m); err != nil || m.Command == nil {
			if err := refuse(c, d, fmt.Errorf("the body is not a command: %w", cmp.Or(err, errNoCommand)), true); err != nil {
				return err
			}
			continue
		}
		again = again || d.Attempt > 1 || d.Published.Before(began)
		commands, of = append(commands, m), append(of, d)
	}
	if len(commands) == 0 {
		return nil
	}
	results, err := i.cfg.Apply(ctx, commands, again)
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

// refuse returns a delivery as failed. It ignores a stale delivery, because another
// consumer has the message now.
func refuse(c *queue.Consumer, d queue.Delivery, cause error, permanent bool) error {
	if err := c.Nack(d, cause, permanent); err != nil && !errors.Is(err, queue.ErrStale) {
		return err
	}
	return nil
}

var errNoCommand = errors.New("there is no command in it")

// permanent reports whether a retry is useless. A missing job or module is permanent: the
// commands of a job come in order, so it was missing when the producer sent the command.
// Aborted means that the etag of the job differs from the command's; waiting does not
// change that.
func permanent(c codes.Code) bool {
	switch c {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.OutOfRange, codes.Unimplemented, codes.Aborted:
		return true
	}
	return false
}
