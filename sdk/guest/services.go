//go:build wasip1

package guest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"
	"unsafe"
)

// Refusals of the host. Test for them with errors.Is; the run's log has the details.
var (
	ErrNoEntry     = errors.New("there is no such entry")
	ErrConflict    = errors.New("the entry has another version")
	ErrNotGranted  = errors.New("the module was not granted this")
	ErrUnavailable = errors.New("the service cannot be reached now")
	ErrTooLarge    = errors.New("more than a limit allows")
	ErrInvalid     = errors.New("an argument makes no sense")
	ErrQuota       = errors.New("more requests than the attempt may make")
	ErrNotServed   = errors.New("this host does not serve it")
)

// hostErrors maps the host's numbers to errors.
var hostErrors = map[int64]error{
	-6: ErrUnavailable, -11: ErrCancelled, -19: ErrQuota, -20: ErrConflict, -28: ErrInvalid,
	-33: ErrQuota, -44: ErrNoEntry, -52: ErrNotServed, -61: ErrTooLarge, -76: ErrNotGranted,
}

// hostError returns the error of a negative result, otherwise nil.
func hostError(n int64) error {
	if n >= 0 {
		return nil
	}
	if err, ok := hostErrors[n]; ok {
		return err
	}
	return fmt.Errorf("the host failed with number %d", -n)
}

// Sleep waits for d, or until the attempt ends.
func (Context) Sleep(d time.Duration) { sleepMs(d.Milliseconds()) }

// Checkpoint returns the last checkpoint of an earlier attempt of this run, or
// ErrNoEntry.
func (Context) Checkpoint() ([]byte, error) { return fetch(checkpointGet) }

// SetCheckpoint saves data for the next attempt of this run. The data is durable when
// SetCheckpoint returns.
func (Context) SetCheckpoint(data []byte) error {
	return hostError(int64(checkpointPut(address(data), length(data))))
}

// Bucket holds keys and values of the app. All modules of the app with a grant for the
// bucket share it.
type Bucket struct{ name string }

// Bucket returns the bucket with this name.
func (Context) Bucket(name string) Bucket { return Bucket{name} }

// AnyVersion as an expected version matches every version, and a missing entry.
const AnyVersion = ^uint64(0)

// Get returns a value and its version, or ErrNoEntry.
func (b Bucket) Get(key string) (value []byte, version uint64, err error) {
	bucket, k := []byte(b.name), []byte(key)
	value, err = fetch(func(p unsafe.Pointer, capacity uint32) int32 {
		return kvGet(address(bucket), length(bucket), address(k), length(k), p, capacity, unsafe.Pointer(&version))
	})
	return value, version, err
}

// Put sets a value unconditionally and returns its version.
func (b Bucket) Put(key string, value []byte) (version uint64, err error) {
	bucket, k := []byte(b.name), []byte(key)
	n := kvPut(address(bucket), length(bucket), address(k), length(k), address(value), length(value))
	return uint64(max(n, 0)), hostError(n)
}

// Swap sets a value if the entry has the expected version, 0 for no entry, and returns
// the new version. It returns ErrConflict if the entry has another version.
func (b Bucket) Swap(key string, value []byte, expect uint64) (version uint64, err error) {
	bucket, k := []byte(b.name), []byte(key)
	n := kvCAS(address(bucket), length(bucket), address(k), length(k), address(value), length(value), expect)
	return uint64(max(n, 0)), hostError(n)
}

// Delete removes an entry if it has the expected version, or for AnyVersion
// unconditionally.
func (b Bucket) Delete(key string, expect uint64) error {
	bucket, k := []byte(b.name), []byte(key)
	return hostError(int64(kvDelete(address(bucket), length(bucket), address(k), length(k), expect)))
}

// Submit describes a run for Enqueue.
type Submit struct {
	App   string // "": the task's own app
	Job   string
	Input []byte // nil: the job's own input
	Key   string // idempotency key; "": derived from the order of the calls, so a repeated attempt makes no further runs
	Delay time.Duration
}

// Enqueue creates a run of a job and returns its id. The run is durable when Enqueue
// returns.
func (Context) Enqueue(s Submit) (run string, err error) {
	spec := struct {
		App     string  `json:"app,omitempty"`
		Job     string  `json:"job"`
		Input   *string `json:"input_base64,omitempty"`
		Key     string  `json:"key,omitempty"`
		DelayMs int64   `json:"delay_ms,omitempty"`
	}{App: s.App, Job: s.Job, Key: s.Key, DelayMs: s.Delay.Milliseconds()}
	if s.Input != nil {
		text := base64.StdEncoding.EncodeToString(s.Input)
		spec.Input = &text
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return "", err
	}
	// There is only one call: repeating it with a larger buffer would create a second
	// run.
	id := make([]byte, 256)
	n := jobEnqueue(address(text), length(text), address(id), length(id))
	return string(id[:min(max(int(n), 0), len(id))]), hostError(int64(n))
}

// Map adds parts with these inputs to the run; the same handler executes them. A retried
// attempt must map the same inputs in the same order, and then refers to the same parts.
func (Context) Map(inputs ...[]byte) error {
	var list []byte
	for _, in := range inputs {
		list = binary.LittleEndian.AppendUint32(list, uint32(len(in)))
		list = append(list, in...)
	}
	return hostError(int64(mapInputs(address(list), length(list))))
}

// Secret returns a secret of the app, or ErrNoEntry. A handler need not read a secret
// that only goes into a request's header: it writes {{secret:NAME}} there.
func (Context) Secret(name string) ([]byte, error) {
	n := []byte(name)
	return fetch(func(p unsafe.Pointer, capacity uint32) int32 { return secretGet(address(n), length(n), p, capacity) })
}

// Request is an HTTP request. The host replaces {{secret:NAME}} in header values.
type Request struct {
	Method string // "": GET
	URL    string
	Header map[string][]string
	Body   []byte
}

// Response is the response to a Request. The caller closes its body.
type Response struct {
	Status int
	Header map[string][]string // names in canonical form, such as Content-Type
	Body   io.ReadCloser
}

// Send sends a request and returns when the head of the response has arrived.
func (Context) Send(r Request) (*Response, error) {
	text, err := json.Marshal(struct {
		Method  string              `json:"method,omitempty"`
		URL     string              `json:"url"`
		Headers map[string][]string `json:"headers,omitempty"`
	}{r.Method, r.URL, r.Header})
	if err != nil {
		return nil, err
	}
	handle := httpSend(address(text), length(text), address(r.Body), length(r.Body))
	runtime.KeepAlive(r.Body)
	if err := hostError(int64(handle)); err != nil {
		return nil, err
	}
	b := body{handle}
	head, err := fetch(func(p unsafe.Pointer, capacity uint32) int32 { return httpHead(handle, p, capacity) })
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	res := &Response{Body: b}
	if err := json.Unmarshal(head, &struct {
		Status  *int                 `json:"status"`
		Headers *map[string][]string `json:"headers"`
	}{&res.Status, &res.Header}); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return res, nil
}

// body is the body of a response.
type body struct{ handle int32 }

func (b body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n := httpRecv(b.handle, address(p), length(p))
	switch {
	case n < 0:
		return 0, hostError(int64(n))
	case n == 0:
		return 0, io.EOF
	}
	return int(n), nil
}

func (b body) Close() error { return hostError(int64(httpClose(b.handle))) }

// Count adds to a counter.
func (Context) Count(name string, n float64) error { return metric(name, 0, n) }

// Gauge sets a gauge.
func (Context) Gauge(name string, value float64) error { return metric(name, 1, value) }

// Record records a value into a histogram.
func (Context) Record(name string, value float64) error { return metric(name, 2, value) }

func metric(name string, kind int32, value float64) error {
	n := []byte(name)
	return hostError(int64(metricAdd(address(n), length(n), kind, value)))
}
