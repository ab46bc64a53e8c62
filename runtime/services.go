package runtime

import (
	"context"
	"errors"
	"io"
)

// What a service answers instead of doing its work. An executor hands these to
// the guest as the error numbers of its ABI.
var (
	ErrNotGranted  = errors.New("the module was not granted this")        // no grant covers it
	ErrNoEntry     = errors.New("there is no such entry")                 // key, secret or checkpoint
	ErrConflict    = errors.New("the entry was changed by somebody else") // compare-and-set on another version
	ErrInvalid     = errors.New("the arguments make no sense")
	ErrTooLarge    = errors.New("it is larger than the limit")               // value, body or number of entries
	ErrUnavailable = errors.New("no server that could answer was reachable") // a later try may help
	ErrNoService   = errors.New("this host does not serve it")               // the executor was given no such service
)

// Services is what a handler may ask of the world outside its memory. The host
// implements it; an executor calls it with the task on whose behalf it asks,
// after it has checked the task's grants. Calls block and end with ctx.
// Implementations are safe for concurrent use and keep no argument.
type Services interface {
	// Checkpoint returns what an earlier attempt of this run left last, or ErrNoEntry.
	Checkpoint(ctx context.Context, t *Task) ([]byte, error)
	// SetCheckpoint keeps data for the next attempt. It is durable when it returns.
	SetCheckpoint(ctx context.Context, t *Task, data []byte) error

	// Get returns a value of the app's bucket and its version, or ErrNoEntry.
	Get(ctx context.Context, t *Task, bucket, key string) (value []byte, version uint64, err error)
	// Put sets a value and returns its new version, which is never 0. expect says
	// which version it replaces: AnyVersion, 0 for none at all, or that one;
	// otherwise it is ErrConflict. It is durable when it returns.
	Put(ctx context.Context, t *Task, bucket, key string, value []byte, expect uint64) (version uint64, err error)
	// Delete removes a value under the same terms; ErrNoEntry when there is none.
	Delete(ctx context.Context, t *Task, bucket, key string, expect uint64) error

	// Enqueue triggers a run and returns its id. It is durable when it returns.
	// The same task and sequence number, in any attempt, give the same run.
	Enqueue(ctx context.Context, t *Task, s Submit) (run string, err error)
	// Map adds parts to the run that the task belongs to, each with one input;
	// they run the same handler. first counts the inputs that this task mapped
	// before: the same task and number, in any attempt, is the same part, so a
	// handler that is tried again maps the same list again.
	Map(ctx context.Context, t *Task, first int, inputs [][]byte) error

	// Secret returns a secret of the app, or ErrNoEntry.
	Secret(ctx context.Context, t *Task, name string) ([]byte, error)

	// Send sends a request and returns the response's head; the caller closes
	// the body. The grants are checked again on the address that is dialled and
	// on every redirect. {{secret:NAME}} in a header's value is replaced by the
	// host if the task was granted that secret.
	Send(ctx context.Context, t *Task, r Request) (*Response, error)

	// Metric adds value to a counter, sets a gauge or records into a histogram.
	Metric(ctx context.Context, t *Task, name string, kind MetricKind, value float64) error
}

// AnyVersion as an expected version means that any will do, and none too.
const AnyVersion = ^uint64(0)

// Submit asks for a run of a job.
type Submit struct {
	App      string // "" means the task's own
	Job      string
	Input    []byte // nil means the job's own
	Key      string // idempotency key; "" means the task's run and Sequence
	Sequence int    // counts the submits of this task, from 0
	DelayMs  int64
}

// Request is an outgoing HTTP request.
type Request struct {
	Method string
	URL    string
	Header map[string][]string
	Body   []byte

	// Secret names the headers whose values hold secrets, and SecretBody says that
	// the body does. Such a request leaves only to whom SecretTo allows as well.
	Secret     []string
	SecretBody bool
	SecretTo   *Grants
}

// Response is the head of an answer and its body, which is bounded by the host.
type Response struct {
	Status int
	Header map[string][]string // names in their canonical form
	Body   io.ReadCloser
}

// MetricKind says what a number means.
type MetricKind uint8

// The kinds.
const (
	Counter MetricKind = iota
	Gauge
	Histogram
)

// Grants are what the owner of an app allows a module there. The zero value
// allows nothing. A module's manifest asks for them; the server sends with each
// task those that were both asked for and allowed.
type Grants struct {
	HTTP    []HTTPGrant
	KV      []Bucket
	Secrets []string // names
	Enqueue []string // jobs of the app, or app/job; "*" for every job of the app
	Files   []FileGrant
}

// HTTPGrant allows requests to one host, or to the subdomains of one.
type HTTPGrant struct {
	Host    string   // "api.example.com", "*.example.com", with ":port" when it is neither 80 nor 443
	Methods []string // empty: GET and HEAD
	Paths   []string // prefixes; empty: all
	Private bool     // it may resolve to a private or loopback address
}

// Bucket allows access to one bucket of the app.
type Bucket struct {
	Name  string
	Write bool
}

// FileGrant mounts files for the length of one task.
type FileGrant struct {
	Mount string // the guest's path, "/tmp"
	Dir   string // a directory that the host's operator named; "" means an empty one in memory
	Write bool
	Bytes int64 // quota of what is written; 0 means 16 MiB
}
