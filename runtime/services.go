package runtime

import (
	"context"
	"errors"
	"io"
)

// Errors of services. An executor translates them to the error numbers of its ABI for the
// guest.
var (
	ErrNotGranted  = errors.New("the module was not granted this")         // no grant covers it
	ErrNoEntry     = errors.New("there is no such entry")                  // key, secret or checkpoint
	ErrConflict    = errors.New("the entry was changed by another caller") // compare-and-set on another version
	ErrInvalid     = errors.New("the arguments are invalid")
	ErrTooLarge    = errors.New("it is larger than the limit")               // value, body or number of entries
	ErrUnavailable = errors.New("no server that could answer was reachable") // a later call may succeed
	ErrNoService   = errors.New("this host does not serve it")               // the executor has no such service
)

// Services are the operations outside its memory that a handler may call. The host
// implements them. An executor checks the grants of the task and then calls with that
// task. Calls block until they are done or ctx is. Implementations are safe for
// concurrent use and retain no argument.
type Services interface {
	// Checkpoint returns the last checkpoint of the run's earlier attempts, or
	// ErrNoEntry.
	Checkpoint(ctx context.Context, t *Task) ([]byte, error)
	// SetCheckpoint saves data for the next attempt. The data is durable when
	// SetCheckpoint returns.
	SetCheckpoint(ctx context.Context, t *Task, data []byte) error

	// Get returns a value of a bucket and its version, or ErrNoEntry.
	Get(ctx context.Context, t *Task, bucket, key string) (value []byte, version uint64, err error)
	// Put sets a value and returns its new version, which is never 0. expect is the
	// version to replace: AnyVersion, 0 if there must be no value, or a version. If the
	// current version is another one, Put returns ErrConflict. The value is durable when
	// Put returns.
	Put(ctx context.Context, t *Task, bucket, key string, value []byte, expect uint64) (version uint64, err error)
	// Delete removes a value. expect is as for Put. It returns ErrNoEntry if there is no
	// value.
	Delete(ctx context.Context, t *Task, bucket, key string, expect uint64) error

	// Enqueue triggers a run and returns its id. The run is durable when Enqueue returns.
	// Calls with the same task and sequence number return the same run, also in another
	// attempt.
	Enqueue(ctx context.Context, t *Task, s Submit) (run string, err error)
	// Map adds one part for each input to the run of the task. The parts run the same
	// handler. first is the number of inputs that this attempt has mapped before. The
	// task and the number of the input identify a part, in every attempt. So a handler
	// that is retried maps the same list again without creating more parts.
	Map(ctx context.Context, t *Task, first int, inputs [][]byte) error

	// Secret returns a secret of the app, or ErrNoEntry.
	Secret(ctx context.Context, t *Task, name string) ([]byte, error)

	// Send sends a request and returns the head of the response. The caller must close
	// the body. Send checks the grants again on the address that it dials and on every
	// redirect. In the value of a header, the host replaces {{secret:NAME}} if the task
	// has a grant for that secret.
	Send(ctx context.Context, t *Task, r Request) (*Response, error)

	// Metric adds value to a counter, sets a gauge or records value in a histogram.
	Metric(ctx context.Context, t *Task, name string, kind MetricKind, value float64) error
}

// AnyVersion as the expected version matches every version, and also a missing value.
const AnyVersion = ^uint64(0)

// Submit is a request to trigger a run of a job.
type Submit struct {
	App      string // "" means the app of the task
	Job      string
	Input    []byte // nil means the input of the job definition
	Key      string // idempotency key; "": the run of the task and Sequence identify the submit
	Sequence int    // number of the submit in this task, from 0
	DelayMs  int64
}

// Request is an outgoing HTTP request.
type Request struct {
	Method string
	URL    string
	Header map[string][]string
	Body   []byte

	// Secret names the headers whose values contain secrets, and SecretBody reports that
	// the body does. The host sends such a request only to addresses that SecretTo also
	// allows.
	Secret     []string
	SecretBody bool
	SecretTo   *Grants
}

// Response is the head of an HTTP response, and its body, whose size the host bounds.
type Response struct {
	Status int
	Header map[string][]string // by canonical name
	Body   io.ReadCloser
}

// MetricKind is the kind of a metric.
type MetricKind uint8

// The kinds of metrics.
const (
	Counter MetricKind = iota
	Gauge
	Histogram
)

// Grants are the capabilities that the owner of an app allows to a module. The zero value
// allows nothing. With each task, the server sends the capabilities that the module's
// manifest asks for and the owner allows.
type Grants struct {
	HTTP    []HTTPGrant
	KV      []Bucket
	Secrets []string // names of secrets
	Enqueue []string // jobs of the app as "job", of other apps as "app/job"; "*" for every job of the app
	Files   []FileGrant
}

// HTTPGrant allows requests to one host, or to the subdomains of one domain.
type HTTPGrant struct {
	Host    string   // "api.example.com", "*.example.com"; with ":port" unless it is 80 or 443
	Methods []string // empty: GET and HEAD
	Paths   []string // path prefixes; empty: all paths
	Private bool     // allow addresses that are private or loopback
}

// Bucket allows access to one bucket of the app.
type Bucket struct {
	Name  string
	Write bool
}

// FileGrant mounts a directory for the duration of one task.
type FileGrant struct {
	Mount string // path in the guest, for example "/tmp"
	Dir   string // name of a directory that the operator of the host configured; "" means an empty directory in memory
	Write bool
	Bytes int64 // quota for written bytes; 0 means 16 MiB
}
