// Package local implements the services of handlers in memory, for handlers that run
// without a server: in the command, in tests, and while an author develops one. It makes
// the same decisions as a server, but keeps nothing when the process ends, and triggers
// no run.
package local

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// Bounds, equal to those of a server.
const (
	maxKey        = 256
	maxValue      = 64 << 10
	maxCheckpoint = 64 << 10
	maxParts      = 1_000_000
)

// Sender sends the HTTP requests of handlers.
type Sender func(ctx context.Context, t *runtime.Task, r runtime.Request) (*runtime.Response, error)

// Services implements [runtime.Services] in memory. The zero value implements everything
// but HTTP requests. It is safe for concurrent use. It must not be copied.
type Services struct {
	// Sender sends requests; nil: Send returns an error. It may call Secret.
	Sender Sender

	mu          sync.Mutex
	last        uint64 // last version that a value received
	entries     map[entryKey]Entry
	checkpoints map[[2]string][]byte // by app and run
	secrets     map[[2]string][]byte // by app and name
	runs        map[string]int       // index in submits, by the identity of the submit
	submits     []runtime.Submit
	parts       map[partKey]map[int][]byte
	metrics     map[string]float64
}

var _ runtime.Services = (*Services)(nil)

type entryKey struct{ app, bucket, key string }

type partKey struct {
	app, run string
	part     int
}

// Entry is a value of a bucket and its version.
type Entry struct {
	Value   []byte
	Version uint64
}

// SetSecret sets a secret of an app.
func (s *Services) SetSecret(app, name string, value []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	set(&s.secrets, [2]string{app, name}, slices.Clone(value))
}

func set[K comparable, V any](m *map[K]V, k K, v V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[k] = v
}

// Submits returns the enqueued runs in the order of the calls.
func (s *Services) Submits() []runtime.Submit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.submits)
}

// Parts returns the inputs that the handler of a run has mapped, in order. If the run has
// parts, it returns only the inputs that its first part has mapped.
func (s *Services) Parts(app, run string) [][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	mapped := s.parts[partKey{app: app, run: run}]
	out := make([][]byte, 0, len(mapped))
	for i := range len(mapped) {
		out = append(out, mapped[i])
	}
	return out
}

// Value returns the value of a metric: the sum for a counter or a histogram, the last
// value for a gauge.
func (s *Services) Value(metric string) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.metrics[metric]
}

// Checkpoint implements runtime.Services.
func (s *Services) Checkpoint(_ context.Context, t *runtime.Task) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.checkpoints[[2]string{t.App, t.RunID}]
	if !ok {
		return nil, runtime.ErrNoEntry
	}
	return slices.Clone(data), nil
}

// SetCheckpoint implements runtime.Services.
func (s *Services) SetCheckpoint(_ context.Context, t *runtime.Task, data []byte) error {
	if len(data) > maxCheckpoint {
		return fmt.Errorf("%w: a checkpoint has at most %d bytes", runtime.ErrTooLarge, maxCheckpoint)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	set(&s.checkpoints, [2]string{t.App, t.RunID}, slices.Clone(data))
	return nil
}

// Get implements runtime.Services.
func (s *Services) Get(_ context.Context, t *runtime.Task, bucket, key string) ([]byte, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[entryKey{t.App, bucket, key}]
	if !ok {
		return nil, 0, runtime.ErrNoEntry
	}
	return slices.Clone(e.Value), e.Version, nil
}

// Put implements runtime.Services.
func (s *Services) Put(_ context.Context, t *runtime.Task, bucket, key string, value []byte, expect uint64) (uint64, error) {
	if len(key) > maxKey || len(value) > maxValue {
		return 0, fmt.Errorf("%w: a key has at most %d bytes, a value %d", runtime.ErrTooLarge, maxKey, maxValue)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := entryKey{t.App, bucket, key}
	if expect != runtime.AnyVersion && s.entries[k].Version != expect {
		return 0, runtime.ErrConflict
	}
	s.last++
	set(&s.entries, k, Entry{slices.Clone(value), s.last})
	return s.last, nil
}

// Delete implements runtime.Services.
func (s *Services) Delete(_ context.Context, t *runtime.Task, bucket, key string, expect uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := entryKey{t.App, bucket, key}
	e, ok := s.entries[k]
	switch {
	case !ok:
		return runtime.ErrNoEntry
	case expect != runtime.AnyVersion && e.Version != expect:
		return runtime.ErrConflict
	}
	delete(s.entries, k)
	return nil
}

// Buckets returns the names of an app's buckets.
func (s *Services) Buckets(app string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for k := range s.entries {
		if k.app == app && !slices.Contains(out, k.bucket) {
			out = append(out, k.bucket)
		}
	}
	slices.Sort(out)
	return out
}

// Entries returns the entries of a bucket by key.
func (s *Services) Entries(app, bucket string) map[string]Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]Entry{}
	for k, e := range s.entries {
		if k.app == app && k.bucket == bucket {
			out[k.key] = e
		}
	}
	return out
}

// Enqueue implements runtime.Services. The id of the run shows which submit it is.
func (s *Services) Enqueue(_ context.Context, t *runtime.Task, submit runtime.Submit) (string, error) {
	if submit.App == "" {
		submit.App = t.App
	}
	same := fmt.Sprintf("key %q %q %q", submit.App, submit.Job, submit.Key)
	if submit.Key == "" {
		same = fmt.Sprintf("task %q %q %d %d", t.App, t.RunID, t.Part, submit.Sequence)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.runs[same]
	if !known {
		at = len(s.submits)
		s.submits = append(s.submits, submit)
		set(&s.runs, same, at)
	}
	return fmt.Sprintf("local-%d", at+1), nil
}

// Map implements runtime.Services.
func (s *Services) Map(_ context.Context, t *runtime.Task, first int, inputs [][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := partKey{t.App, t.RunID, t.Part}
	mapped := s.parts[run]
	if mapped == nil {
		mapped = map[int][]byte{}
		set(&s.parts, run, mapped)
	}
	if first+len(inputs) > maxParts {
		return fmt.Errorf("%w: a run has at most %d parts", runtime.ErrTooLarge, maxParts)
	}
	for i, in := range inputs {
		if _, known := mapped[first+i]; !known {
			mapped[first+i] = slices.Clone(in)
		}
	}
	return nil
}

// Secret implements runtime.Services.
func (s *Services) Secret(_ context.Context, t *runtime.Task, name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.secrets[[2]string{t.App, name}]
	if !ok {
		return nil, runtime.ErrNoEntry
	}
	return slices.Clone(value), nil
}

// Send implements runtime.Services.
func (s *Services) Send(ctx context.Context, t *runtime.Task, r runtime.Request) (*runtime.Response, error) {
	if s.Sender == nil {
		return nil, runtime.ErrNoService
	}
	return s.Sender(ctx, t, r)
}

// Metric implements runtime.Services.
func (s *Services) Metric(_ context.Context, _ *runtime.Task, name string, kind runtime.MetricKind, value float64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind != runtime.Gauge {
		value += s.metrics[name]
	}
	set(&s.metrics, name, value)
	return nil
}
