// Package services serves the requests of handlers for state outside their memory:
// it implements [runtime.Services] with calls to the server that sent the task.
//
// A call names the attempt and is fenced: the server refuses it when the attempt is no
// longer the current one of its run on this host. While no server is reachable, a call is
// repeated for some time; the repetitions are idempotent.
//
// The package removes the secrets that an attempt has received from its texts, encoded
// forms included.
package services

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/runtime"
)

// Link gives services access to the host.
type Link interface {
	// Caller returns the identity of an attempt that the host runs now. It returns false
	// for any other attempt.
	Caller(app string, run [16]byte, attempt int32) (*apiv1.Caller, bool)
	// ConnOf returns the connection to the server that an attempt came from, which may
	// differ between the partitions of a cluster; nil: there is none now.
	ConnOf(app string, run [16]byte, attempt int32) grpc.ClientConnInterface
}

// Config configures services. A zero value means the default that the comment of the
// field gives.
type Config struct {
	// Send sends a request of a handler to the network, within the grants g, and fills in
	// the secrets that the request names. Default: no request may be sent.
	Send func(ctx context.Context, g *runtime.Grants, secrets Secrets, r runtime.Request) (*runtime.Response, error)
	// Patience is how long a call is repeated while no server is reachable; the default
	// is 30 s.
	Patience time.Duration
	Meter    metric.Meter // for the metrics of handlers; default: none
}

// Secrets returns the value of a secret for the attempt that sends a request.
type Secrets = func(ctx context.Context, name string) ([]byte, error)

// Services implements [runtime.Services]. It is safe for concurrent use.
type Services struct {
	cfg  Config
	link atomic.Pointer[Link]

	meter instruments

	told  atomic.Int64 // number of attempts in known; saves the lock while it is 0
	mu    sync.Mutex
	known map[attempt]forms // of the secrets that an attempt has received; an entry is replaced, not changed
}

var _ runtime.Services = (*Services)(nil)

type attempt struct {
	app, run string
	number   int
}

// New returns services that fail with [runtime.ErrUnavailable] until Attach is called.
func New(cfg Config) *Services {
	cfg.Patience = cmp.Or(cfg.Patience, 30*time.Second)
	if cfg.Meter == nil {
		cfg.Meter = noop.NewMeterProvider().Meter("")
	}
	return &Services{cfg: cfg, known: map[attempt]forms{}, meter: newInstruments(cfg.Meter)}
}

// Attach sets the host. It exists because an engine needs its services before its host
// exists.
func (s *Services) Attach(l Link) { s.link.Store(&l) }

const (
	firstWait   = 20 * time.Millisecond
	longestWait = time.Second
	// tryFor bounds one attempt of a call, so that a hanging server counts as
	// unreachable.
	tryFor = 10 * time.Second
)

// call makes a call for an attempt of a run and repeats it while no server answers. again
// is true if an earlier try may have reached a server.
func (s *Services) call(ctx context.Context, t *runtime.Task, f func(ctx context.Context, c apiv1.GuestClient, who *apiv1.Caller, again bool) error) error {
	id, err := job.ParseRunID(t.RunID)
	if err != nil {
		return fmt.Errorf("run %s: %w", t.RunID, err)
	}
	var last error
	again := false
	until := time.Now().Add(s.cfg.Patience)
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		tried, err := s.try(ctx, t, id, again, f)
		switch code := status.Code(err); {
		case code == codes.Unavailable:
		case (code == codes.DeadlineExceeded || code == codes.Canceled) && ctx.Err() == nil: // a server that ends cancels its calls
		default:
			return translate(err)
		}
		again = again || tried
		last = err
		if time.Now().Add(wait).After(until) {
			return fmt.Errorf("%w within %s: %s", runtime.ErrUnavailable, s.cfg.Patience, status.Convert(last).Message())
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errNoServer = status.Error(codes.Unavailable, "no server is connected")

func (s *Services) try(ctx context.Context, t *runtime.Task, id job.RunID, again bool, f func(context.Context, apiv1.GuestClient, *apiv1.Caller, bool) error) (tried bool, err error) {
	link := s.link.Load()
	if link == nil {
		return false, errNoServer
	}
	who, ok := (*link).Caller(t.App, id, int32(t.Attempt))
	if !ok {
		return false, status.Error(codes.FailedPrecondition, "the host does not run the attempt any more")
	}
	conn := (*link).ConnOf(t.App, id, int32(t.Attempt))
	if conn == nil {
		return false, errNoServer
	}
	ctx, cancel := context.WithTimeout(ctx, tryFor)
	defer cancel()
	return true, f(ctx, apiv1.NewGuestClient(conn), who, again)
}

// translate converts a gRPC error of the server to an error of the runtime.
func translate(err error) error {
	var word error
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.NotFound:
		word = runtime.ErrNoEntry
	case codes.Aborted:
		word = runtime.ErrConflict
	case codes.PermissionDenied, codes.Unauthenticated:
		word = runtime.ErrNotGranted
	case codes.InvalidArgument:
		word = runtime.ErrInvalid
	case codes.OutOfRange, codes.ResourceExhausted:
		word = runtime.ErrTooLarge
	case codes.Unimplemented:
		word = runtime.ErrNoService
	case codes.FailedPrecondition:
		word = runtime.ErrUnavailable // for this attempt; a later attempt may succeed
	case codes.Canceled:
		return context.Canceled
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	default:
		return errors.New(status.Convert(err).Message())
	}
	return fmt.Errorf("%w: %s", word, status.Convert(err).Message())
}

// Checkpoint implements [runtime.Services].
func (s *Services) Checkpoint(ctx context.Context, t *runtime.Task) (data []byte, err error) {
	err = s.call(ctx, t, func(ctx context.Context, c apiv1.GuestClient, who *apiv1.Caller, _ bool) error {
		resp, err := c.GetCheckpoint(ctx, &apiv1.GuestGetCheckpointRequest{Caller: who})
		data = resp.GetData()
		return err
	})
	return data, err
}

// SetCheckpoint implements [runtime.Services].
func (s *Services) SetCheckpoint(ctx context.Context, t *runtime.Task, data []byte) error {
	if len(data) > job.MaxValue {
		return fmt.Errorf("%w: a checkpoint is at most %d bytes", runtime.ErrTooLarge, job.MaxValue)
	}
	return s.call(ctx, t, func(ctx context.Context, c apiv1.GuestClient, who *apiv1.Caller, _ bool) error {
		_, err := c.SetCheckpoint(ctx, &apiv1.GuestSetCheckpointRequest{Caller: who, Data: data})
		return err
	})
}

// checkText refuses a key that is not UTF-8. A replacement of invalid bytes could map two
// keys to one entry, or to one run.
func checkText(key string) error {
	if !utf8.ValidString(key) {
		return fmt.Errorf("%w: the key is not UTF-8: encode it, as base64 does", runtime.ErrInvalid)
	}
	return nil
}

// Get implements [runtime.Services].
func (s *Services) Get(ctx context.Context, t *runtime.Task, bucket, key string) (value []byte, version uint64, err error) {
	if err := checkText(key); err != nil {
		return nil, 0, err
	}
	err = s.call(ctx, t, func(ctx context.Context, c apiv1.GuestClient, who *apiv1.Caller, _ bool) error {
		resp, err := c.GetEntry(ctx, &apiv1.GuestGetEntryRequest{Caller: who, Bucket: bucket, Key: key})
		value, version = resp.GetValue(), resp.GetVersion()
		return err
	})
	return value, version, err
}

// expected converts the expected version of a write for its request.
func expected(version uint64) *uint64 {
	if version == runtime.AnyVersion {
		return nil
	}
	return &version
}

// Put implements [runtime.Services].
func (s *Services) Put(ctx context.Context, t *runtime.Task, bucket, key string, value []byte, expect uint64) (version uint64, err error) {
	if len(value) > job.MaxValue {
		return 0, fmt.Errorf("%w: a value is at most %d bytes", runtime.ErrTooLarge, job.MaxValue)
	}
	if err := checkText(key); err != nil {
		return 0, err
	}
	id := rand.Text()
	err = s.call(ctx, t, func(ctx context.Context, c apiv1.GuestClient, who *apiv1.Caller, _ bool) error {
		resp, err := c.PutEntry(ctx, &apiv1.GuestPutEntryRequest{Caller: who, Bucket: bucket, Key: key, Value: value, Expect: expected(expect), Id: id})
		version = resp.GetVersion()
		return err
	})
	return version, err
}

// Delete implements [runtime.Services].
func (s *Services) Delete(ctx context.Context, t *runtime.Task, bucket, key string, expect uint64) error {
	if err := checkText(key); err != nil {
		return err
	}
	return s.call(ctx, t, func(ctx context.Context, c apiv1.GuestClient, who *apiv1.Caller, again bool) error {
		_, err := c.DeleteEntry(ctx, &apiv1.GuestDeleteEntryRequest{Caller: who, Bucket: bucket, Key: key, Expect: expected(expect)})
		if again && status.Code(err) == codes.NotFound {
			return nil // an earlier try, whose answer was lost, deleted it
		}
		return err
	})
}

// Enqueue implements [runtime.Services].
func (s *Services) Enqueue(ctx context.Context, t *runtime.Task, sub runtime.Submit) (run string, err error) {
	req := &apiv1.GuestEnqueueRequest{
		App: sub.App, Job: sub.Job, HasInput: sub.Input != nil, Input: sub.Input, Key: sub.Key,
		Sequence: int64(sub.Sequence), DelayMs: sub.DelayMs,
	}
	if err := checkText(sub.Key); err != nil {
		return "", err
	}
	for _, name := range []string{sub.App, sub.Job} {
		if name != "" && naming.Check("name", name) != nil {
			return "", fmt.Errorf("%w: %q is not the name of an app or a job", runtime.ErrNotGranted, name)
		}
	}
	err = s.call(ctx, t, func(ctx context.Context, c apiv1.GuestClient, who *apiv1.Caller, _ bool) error {
		req.Caller = who
		resp, err := c.Enqueue(ctx, req)
		if err == nil && len(resp.Run) == len(job.RunID{}) {
			run = job.RunID(resp.Run).String()
		}
		return err
	})
	return run, err
}

// Map implements [runtime.Services]. It splits inputs that exceed one call over several
// calls.
func (s *Services) Map(ctx context.Context, t *runtime.Task, first int, inputs [][]byte) error {
	for len(inputs) > 0 {
		n, size := 0, 0
		for n < len(inputs) && n < job.MaxMapBatch {
			if len(inputs[n]) > job.MaxInput {
				return fmt.Errorf("%w: input %d is %d bytes, the limit is %d", runtime.ErrTooLarge, first+n, len(inputs[n]), job.MaxInput)
			}
			if size += len(inputs[n]); size > job.MaxMapBytes {
				break
			}
			n++
		}
		err := s.call(ctx, t, func(ctx context.Context, c apiv1.GuestClient, who *apiv1.Caller, _ bool) error {
			_, err := c.Map(ctx, &apiv1.GuestMapRequest{Caller: who, First: int64(first), Inputs: inputs[:n]})
			return err
		})
		if err != nil {
			return err
		}
		first, inputs = first+n, inputs[n:]
	}
	return nil
}

// Secret implements [runtime.Services].
func (s *Services) Secret(ctx context.Context, t *runtime.Task, name string) (value []byte, err error) {
	if !t.Grants.Secret(name) {
		return nil, fmt.Errorf("%w: secret %q", runtime.ErrNotGranted, name)
	}
	err = s.call(ctx, t, func(ctx context.Context, c apiv1.GuestClient, who *apiv1.Caller, _ bool) error {
		resp, err := c.GetSecret(ctx, &apiv1.GuestGetSecretRequest{Caller: who, Name: name})
		value = resp.GetValue()
		return err
	})
	if err == nil {
		s.remember(t, value)
	}
	return value, err
}

// Send implements [runtime.Services].
func (s *Services) Send(ctx context.Context, t *runtime.Task, r runtime.Request) (*runtime.Response, error) {
	if s.cfg.Send == nil {
		return nil, runtime.ErrNoService
	}
	return s.cfg.Send(ctx, t.Grants, func(ctx context.Context, name string) ([]byte, error) { return s.Secret(ctx, t, name) }, r)
}

func (s *Services) remember(t *runtime.Task, value []byte) {
	f := formsOf(value)
	if f.none() {
		return
	}
	k := attempt{t.App, t.RunID, t.Attempt}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.known[k]
	if known.none() {
		s.told.Add(1)
	}
	s.known[k] = known.and(f)
}

// Redact removes the secrets that an attempt has received from a text. It returns text
// itself if it contains none.
func (s *Services) Redact(t *runtime.Task, text []byte) []byte {
	if s.told.Load() == 0 {
		return text
	}
	s.mu.Lock()
	known := s.known[attempt{t.App, t.RunID, t.Attempt}]
	s.mu.Unlock()
	return known.takeOut(text)
}

// Done drops the secrets of an attempt that has ended.
func (s *Services) Done(t *runtime.Task) {
	if s.told.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := attempt{t.App, t.RunID, t.Attempt}
	if !s.known[k].none() {
		delete(s.known, k)
		s.told.Add(-1)
	}
}
