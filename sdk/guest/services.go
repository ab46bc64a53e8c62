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

// What the host answers instead of doing what it was asked for. Test with
// errors.Is; the run's log says more.
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

// hostErrors maps the host's numbers.
var hostErrors = map[int64]error{
	-6: ErrUnavailable, -11: ErrCancelled, -19: ErrQuota, -20: ErrConflict, -28: ErrInvalid,
	-33: ErrQuota, -44: ErrNoEntry, -52: ErrNotServed, -61: ErrTooLarge, -76: ErrNotGranted,
}

// hostError is the error of a result below 0, or nil.
func hostError(n int64) error {
	if n >= 0 {
		return nil
	}
	if err, ok := hostErrors[n]; ok {
		return err
	}
	return fmt.Errorf("the host failed with number %d", -n)
}

// Sleep waits. It ends with the attempt.
func (Context) Sleep(d time.Duration) { sleepMs(d.Milliseconds()) }

// Checkpoint returns what an earlier attempt of this run left last, or ErrNoEntry.
func (Context) Checkpoint() ([]byte, error) { return fetch(checkpointGet) }

// SetCheckpoint keeps data for the next attempt of this run. It is durable when
// it returns.
func (Context) SetCheckpoint(data []byte) error {
	return hostError(int64(checkpointPut(address(data), length(data))))
}

// A Bucket holds keys and values of the app, which all its modules share that
// were granted it.
type Bucket struct{ name string }

// Bucket returns the bucket of that name.
func (Context) Bucket(name string) Bucket { return Bucket{name} }

// AnyVersion, as an expected version, stands for any, and for no entry too.
const AnyVersion = ^uint64(0)

// Get returns a value and its version, or ErrNoEntry.
func (b Bucket) Get(key string) (value []byte, version uint64, err error) {
	bucket, k := []byte(b.name), []byte(key)
	value, err = fetch(func(p unsafe.Pointer, capacity uint32) int32 {
		return kvGet(address(bucket), length(bucket), address(k), length(k), p, capacity, unsafe.Pointer(&version))
	})
	return value, version, err
}

// Put sets a value, whatever was there, and returns its version.
func (b Bucket) Put(key string, value []byte) (version uint64, err error) {
	bucket, k := []byte(b.name), []byte(key)
	n := kvPut(address(bucket), length(bucket), address(k), length(k), address(value), length(value))
	return uint64(max(n, 0)), hostError(n)
}

// Swap sets a value if the entry has the expected version, 0 for no entry, and
// returns its new version; ErrConflict if it has another one.
func (b Bucket) Swap(key string, value []byte, expect uint64) (version uint64, err error) {
	bucket, k := []byte(b.name), []byte(key)
	n := kvCAS(address(bucket), length(bucket), address(k), length(k), address(value), length(value), expect)
	return uint64(max(n, 0)), hostError(n)
}

// Delete removes an entry that has the expected version, or AnyVersion.
func (b Bucket) Delete(key string, expect uint64) error {
	bucket, k := []byte(b.name), []byte(key)
	return hostError(int64(kvDelete(address(bucket), length(bucket), address(k), length(k), expect)))
}

// Submit asks for a run.
type Submit struct {
	App   string // "" is the task's own
	Job   string
	Input []byte // nil is the job's own
	Key   string // idempotency key; "": another attempt that enqueues in the same order makes no other runs
	Delay time.Duration
}

// Enqueue makes a run of a job and returns its id. It is durable when it returns.
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
	// One call: a second one for a larger buffer would make a second run.
	id := make([]byte, 256)
	n := jobEnqueue(address(text), length(text), address(id), length(id))
	return string(id[:min(max(int(n), 0), len(id))]), hostError(int64(n))
}

// Map adds parts to the run, which run the same handler with these inputs. An
// attempt that is tried again must map the same inputs in the same order: they
// are then the same parts.
func (Context) Map(inputs ...[]byte) error {
	var list []byte
	for _, in := range inputs {
		list = binary.LittleEndian.AppendUint32(list, uint32(len(in)))
		list = append(list, in...)
	}
	return hostError(int64(mapInputs(address(list), length(list))))
}

// Secret returns a secret of the app, or ErrNoEntry. A secret that only goes
// into a request's header need not be read: write {{secret:NAME}} there.
func (Context) Secret(name string) ([]byte, error) {
	n := []byte(name)
	return fetch(func(p unsafe.Pointer, capacity uint32) int32 { return secretGet(address(n), length(n), p, capacity) })
}

// Request is an HTTP request. The host replaces {{secret:NAME}} in header values.
type Request struct {
	Method string // "" is GET
	URL    string
	Header map[string][]string
	Body   []byte
}

// Response is an answer. Its body has to be closed.
type Response struct {
	Status int
	Header map[string][]string // names in their canonical form, such as Content-Type
	Body   io.ReadCloser
}

// Send sends a request and returns when the response's head is there.
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

// body is that of a response.
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
