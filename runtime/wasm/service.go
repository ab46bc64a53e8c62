package wasm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
)

// Bounds of the arguments that a guest may pass to a service in one call, in bytes. A
// service may have lower bounds.
const (
	maxName       = 1 << 10  // of a bucket, key, secret or metric
	maxValue      = 1 << 20  // of a value or checkpoint
	maxSpec       = 2 << 20  // of the JSON of job_enqueue
	maxMapped     = 16 << 20 // of the inputs of one map
	maxMapInputs  = 100_000  // in one map
	maxHead       = 128 << 10
	maxBody       = 16 << 20
	maxHandles    = 16 // open at once
	maxReceive    = 1 << 20
	maxReason     = 300 // of a service's error in the log
	maxDelay      = 366 * 24 * time.Hour
	unknownMetric = abi.MetricHistogram + 1
)

// asked is the use of services by one task.
type asked struct {
	calls    int64
	enqueued int // successful enqueues. A failed one may have reached its job, so the next one reuses its number
	mapped   int
	handles  map[int32]*exchange
	last     int32           // the handle that was returned last
	ctx      context.Context // ends with the task; nil until it is needed
	cancel   context.CancelFunc
}

func (a *asked) close() {
	for _, x := range a.handles {
		_ = x.body.Close() // the rest of the response is not needed
	}
	a.handles = nil
	if a.cancel != nil {
		a.cancel()
	}
}

// context returns the context of all service calls of a task. Response bodies are read in
// it long after the call that sent the request.
func (c *call) context() context.Context {
	if c.asked.ctx == nil {
		if c.deadline == never {
			c.asked.ctx, c.asked.cancel = context.WithCancel(c.ctx)
		} else {
			c.asked.ctx, c.asked.cancel = context.WithDeadline(c.ctx, c.deadline.time())
		}
	}
	return c.asked.ctx
}

// ask calls a service for the guest, which waits without a slot, and converts the service's
// error to an error number. The arguments of a service are never views of the guest's
// memory.
func (c *call) ask(name string, f func(ctx context.Context, s runtime.Services) error) abi.Errno {
	if c.services == nil {
		return c.refused(name, runtime.ErrNoService)
	}
	if c.asked.calls++; c.asked.calls > orDefault(c.task.Limits.Calls, defaultCalls) {
		return abi.ErrnoQuota
	}
	c.progress.flush(c.look(), false)
	ctx := c.context()
	c.releaseSlot()
	err := guarded(func() error { return f(ctx, c.services) })
	if err := c.acquireSlot(); err != nil {
		c.end(err)
	}
	c.sliceStart = c.look()
	c.check(c.seen)
	var broken serviceError
	if errors.As(err, &broken) {
		c.end(broken)
	}
	return c.refused(name, err)
}

// serviceError is a panic in the host's code, for which the guest is not responsible.
type serviceError struct{ text string }

func (e serviceError) Error() string { return e.text }

func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = serviceError{fmt.Sprintf("a service of the host failed: %v", r)}
		}
	}()
	return f()
}

// refused returns the number of an error, and logs errors whose number says too little to
// the run's log.
func (c *call) refused(name string, err error) abi.Errno {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, runtime.ErrNoEntry):
		return abi.ErrnoNoEntry
	case errors.Is(err, runtime.ErrConflict):
		return abi.ErrnoConflict
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return abi.ErrnoCancelled
	}
	text := oneLineOrEmpty(err.Error())
	c.log.emit(runtime.LevelWarn, []byte(name+": "+strings.ToValidUTF8(text[:min(len(text), maxReason)], "")))
	c.pace()
	switch {
	case errors.Is(err, runtime.ErrNotGranted):
		return abi.ErrnoNotGranted
	case errors.Is(err, runtime.ErrInvalid):
		return abi.ErrnoInvalid
	case errors.Is(err, runtime.ErrTooLarge):
		return abi.ErrnoOverflow
	case errors.Is(err, runtime.ErrUnavailable):
		return abi.ErrnoAgain
	case errors.Is(err, runtime.ErrNoService):
		return abi.ErrnoNoSys
	}
	return abi.ErrnoIO
}

// notGranted returns the result of a host function when no grant covers its arguments.
func (c *call) notGranted(name, format string, args ...any) uint64 {
	what := fmt.Sprintf(format, args...)
	return errno(c.refused(name, fmt.Errorf("%s: %w", printable(what), runtime.ErrNotGranted)))
}

// short copies a name; ok is false when it is empty or longer than maxName.
func (m memory) short(ptr, n uint64) (name string, ok bool) {
	b := m.read(ptr, n)
	return string(b[:min(len(b), maxName)]), len(b) > 0 && len(b) <= maxName
}

// bytes copies an argument of a service, of at most limit bytes.
func (m memory) bytes(ptr, n uint64, limit int) (data []byte, ok bool) {
	b := m.read(ptr, n)
	if len(b) > limit {
		return nil, false
	}
	return append([]byte{}, b...), true // never nil, because an empty value is a value
}

func sleep(c *call, _ memory, stack []uint64) {
	ms := int64(stack[0])
	if ms < 0 {
		stack[0] = errno(abi.ErrnoInvalid)
		return
	}
	c.sleep(time.Duration(min(ms, maxDelay.Milliseconds())) * time.Millisecond)
	stack[0] = 0
}

func checkpointGet(c *call, mem memory, stack []uint64) {
	var data []byte
	e := c.ask(mem.fn, func(ctx context.Context, s runtime.Services) (err error) {
		data, err = s.Checkpoint(ctx, c.task)
		return err
	})
	stack[0] = mem.giveOr(e, stack[0], stack[1], data)
}

// giveOr writes the data that a service returned, unless e is an error.
func (m memory) giveOr(e abi.Errno, ptr, capacity uint64, data []byte) uint64 {
	if e != 0 {
		return errno(e)
	}
	if len(data) > math.MaxInt32 {
		return errno(abi.ErrnoOverflow)
	}
	return m.give(ptr, capacity, data)
}

func checkpointPut(c *call, mem memory, stack []uint64) {
	data, ok := mem.bytes(stack[0], stack[1], maxValue)
	if !ok {
		stack[0] = errno(abi.ErrnoOverflow)
		return
	}
	stack[0] = errno(c.ask(mem.fn, func(ctx context.Context, s runtime.Services) error { return s.SetCheckpoint(ctx, c.task, data) }))
}

// entry reads the bucket and key of a kv function and checks them against the grants.
// refused is nil when the call is allowed.
func entry(c *call, mem memory, stack []uint64, write bool) (bucket, key string, refused *uint64) {
	bucket, ok := mem.short(stack[0], stack[1])
	key, fits := mem.short(stack[2], stack[3])
	if !ok || !fits {
		e := errno(abi.ErrnoInvalid)
		return "", "", &e
	}
	if !utf8.ValidString(key) { // a service might map two invalid keys to one
		e := errno(c.refused(mem.fn, fmt.Errorf("%w: the key is not UTF-8: encode it, as base64 does", runtime.ErrInvalid)))
		return "", "", &e
	}
	if !c.task.Grants.Bucket(bucket, write) {
		e := c.notGranted(mem.fn, "the bucket %.60q", bucket)
		return "", "", &e
	}
	return bucket, key, nil
}

func kvGet(c *call, mem memory, stack []uint64) {
	bucket, key, refused := entry(c, mem, stack, false)
	if refused != nil {
		stack[0] = *refused
		return
	}
	var value []byte
	var version uint64
	e := c.ask(mem.fn, func(ctx context.Context, s runtime.Services) (err error) {
		value, version, err = s.Get(ctx, c.task, bucket, key)
		return err
	})
	if at := stack[6]; e == 0 && uint32(at) != 0 {
		binary.LittleEndian.PutUint64(mem.read(at, 8), version)
	}
	stack[0] = mem.giveOr(e, stack[4], stack[5], value)
}

func kvPut(c *call, mem memory, stack []uint64) { put(c, mem, stack, runtime.AnyVersion) }

func kvCAS(c *call, mem memory, stack []uint64) { put(c, mem, stack, stack[6]) }

func put(c *call, mem memory, stack []uint64, expect uint64) {
	bucket, key, refused := entry(c, mem, stack, true)
	if refused != nil {
		stack[0] = wide(*refused)
		return
	}
	value, ok := mem.bytes(stack[4], stack[5], maxValue)
	if !ok {
		stack[0] = wide(errno(abi.ErrnoOverflow))
		return
	}
	var version uint64
	e := c.ask(mem.fn, func(ctx context.Context, s runtime.Services) (err error) {
		version, err = s.Put(ctx, c.task, bucket, key, value, expect)
		return err
	})
	if e != 0 {
		stack[0] = wide(errno(e))
		return
	}
	stack[0] = version & math.MaxInt64
}

// wide extends an i32 result to i64.
func wide(v uint64) uint64 { return uint64(int64(int32(v))) }

func kvDelete(c *call, mem memory, stack []uint64) {
	bucket, key, refused := entry(c, mem, stack, true)
	if refused != nil {
		stack[0] = *refused
		return
	}
	expect := stack[4]
	stack[0] = errno(c.ask(mem.fn, func(ctx context.Context, s runtime.Services) error {
		return s.Delete(ctx, c.task, bucket, key, expect)
	}))
}

// submission is the JSON of job_enqueue.
type submission struct {
	App         string  `json:"app"`
	Job         string  `json:"job"`
	Input       *string `json:"input"`
	InputBase64 *string `json:"input_base64"`
	Key         string  `json:"key"`
	DelayMs     int64   `json:"delay_ms"`
}

func (s submission) submit(sequence int) (runtime.Submit, error) {
	out := runtime.Submit{App: s.App, Job: s.Job, Key: s.Key, Sequence: sequence, DelayMs: s.DelayMs}
	switch {
	case s.Job == "" || len(s.Job) > maxName || len(s.App) > maxName || len(s.Key) > maxName:
		return out, errors.New("job is missing, or job, app or key is too long")
	case s.DelayMs < 0 || s.DelayMs > maxDelay.Milliseconds():
		return out, errors.New("delay_ms is negative or more than a year")
	case s.Input != nil && s.InputBase64 != nil:
		return out, errors.New("input and input_base64 exclude each other")
	case s.Input != nil:
		out.Input = append([]byte{}, *s.Input...)
	case s.InputBase64 != nil:
		data, err := base64.StdEncoding.DecodeString(*s.InputBase64)
		if err != nil {
			return out, errors.New("input_base64 is not base64")
		}
		out.Input = append([]byte{}, data...)
	}
	return out, nil
}

var errNoText = errors.New("the spec is not UTF-8")

func jobEnqueue(c *call, mem memory, stack []uint64) {
	text, ok := mem.bytes(stack[0], stack[1], maxSpec)
	if !ok {
		stack[0] = errno(abi.ErrnoOverflow)
		return
	}
	var spec submission
	err := errNoText
	if utf8.Valid(text) { // JSON decoding would map two invalid keys to one
		err = manifest.Decode(text, &spec)
	}
	var submit runtime.Submit
	if err == nil {
		submit, err = spec.submit(c.asked.enqueued)
	}
	if err != nil {
		stack[0] = errno(c.refused(mem.fn, fmt.Errorf("%w: %s", runtime.ErrInvalid, printable(err.Error()))))
		return
	}
	if !c.task.Grants.Target(c.task.App, submit.App, submit.Job) {
		stack[0] = c.notGranted(mem.fn, "runs of the job %.60q", strings.TrimPrefix(submit.App+"/"+submit.Job, "/"))
		return
	}
	var run string
	e := c.ask(mem.fn, func(ctx context.Context, s runtime.Services) (err error) {
		run, err = s.Enqueue(ctx, c.task, submit)
		return err
	})
	if e == 0 {
		c.asked.enqueued++
	}
	stack[0] = mem.giveOr(e, stack[2], stack[3], []byte(run))
}

func mapParts(c *call, mem memory, stack []uint64) {
	data, ok := mem.bytes(stack[0], stack[1], maxMapped)
	if !ok {
		stack[0] = errno(abi.ErrnoOverflow)
		return
	}
	inputs, ok := splitInputs(data)
	switch {
	case !ok:
		stack[0] = errno(abi.ErrnoInvalid)
		return
	case len(inputs) > maxMapInputs:
		stack[0] = errno(abi.ErrnoOverflow)
		return
	case len(inputs) == 0:
		stack[0] = 0
		return
	}
	e := c.ask(mem.fn, func(ctx context.Context, s runtime.Services) error {
		return s.Map(ctx, c.task, c.asked.mapped, inputs)
	})
	if e == 0 {
		c.asked.mapped += len(inputs)
	}
	stack[0] = errno(e)
}

// splitInputs reads a list of lengths and bytes. It stops at maxMapInputs+1 inputs, which
// the caller refuses.
func splitInputs(data []byte) (inputs [][]byte, ok bool) {
	for len(data) > 0 && len(inputs) <= maxMapInputs {
		if len(data) < 4 {
			return nil, false
		}
		n := int64(binary.LittleEndian.Uint32(data))
		if n > int64(len(data)-4) {
			return nil, false
		}
		inputs = append(inputs, data[4:4+n:4+n])
		data = data[4+n:]
	}
	return inputs, true
}

func secretGet(c *call, mem memory, stack []uint64) {
	name, ok := mem.short(stack[0], stack[1])
	if !ok {
		stack[0] = errno(abi.ErrnoInvalid)
		return
	}
	if !c.task.Grants.Secret(name) {
		stack[0] = c.notGranted(mem.fn, "the secret %.60q", name)
		return
	}
	var value []byte
	e := c.ask(mem.fn, func(ctx context.Context, s runtime.Services) (err error) {
		value, err = s.Secret(ctx, c.task, name)
		return err
	})
	stack[0] = mem.giveOr(e, stack[2], stack[3], value)
}

func metricAdd(c *call, mem memory, stack []uint64) {
	name, ok := mem.short(stack[0], stack[1])
	kind, value := uint32(stack[2]), api.DecodeF64(stack[3])
	if !ok || kind >= unknownMetric || math.IsNaN(value) || math.IsInf(value, 0) || kind == abi.MetricCounter && value < 0 {
		stack[0] = errno(abi.ErrnoInvalid)
		return
	}
	stack[0] = errno(c.ask(mem.fn, func(ctx context.Context, s runtime.Services) error {
		return s.Metric(ctx, c.task, name, runtime.MetricKind(kind), value)
	}))
}

// An exchange is an open response to a request.
type exchange struct {
	head []byte
	body io.ReadCloser
	err  error // reported after the data that was read with it
}

// requestHead is the JSON of http_send.
type requestHead struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Headers map[string]values `json:"headers"`
}

// values are the values of one header: a string, or a list of strings.
type values []string

// UnmarshalJSON accepts both forms.
func (v *values) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte{'"'}) {
		*v = values{""}
		return json.Unmarshal(text, &(*v)[0])
	}
	return json.Unmarshal(text, (*[]string)(v))
}

func httpSend(c *call, mem memory, stack []uint64) {
	text, fits := mem.bytes(stack[0], stack[1], maxHead)
	body, small := mem.bytes(stack[2], stack[3], maxBody)
	if !fits || !small {
		stack[0] = errno(abi.ErrnoOverflow)
		return
	}
	if len(c.asked.handles) >= maxHandles {
		stack[0] = errno(abi.ErrnoHandles)
		return
	}
	var head requestHead
	if err := manifest.Decode(text, &head); err != nil {
		stack[0] = errno(c.refused(mem.fn, fmt.Errorf("%w: the head: %s", runtime.ErrInvalid, printable(err.Error()))))
		return
	}
	request := runtime.Request{Method: cmp.Or(head.Method, "GET"), URL: head.URL, Header: make(map[string][]string, len(head.Headers)), Body: body}
	for name, v := range head.Headers {
		request.Header[name] = v
	}
	if e := c.allowed(mem.fn, request); e != 0 {
		stack[0] = errno(e)
		return
	}
	var answer *runtime.Response
	e := c.ask(mem.fn, func(ctx context.Context, s runtime.Services) (err error) {
		answer, err = s.Send(ctx, c.task, request)
		return err
	})
	if e != 0 {
		stack[0] = errno(e)
		return
	}
	stack[0] = result(c.asked.open(answer))
}

// open stores a response and returns its handle. Handles are never reused, so that a closed
// handle cannot refer to another response.
func (a *asked) open(answer *runtime.Response) int32 {
	head, err := json.Marshal(struct {
		Status  int                 `json:"status"`
		Headers map[string][]string `json:"headers"`
	}{answer.Status, answer.Header})
	if err != nil {
		panic(fmt.Sprintf("numbers and strings do not encode: %v", err))
	}
	if a.handles == nil {
		a.handles = make(map[int32]*exchange)
	}
	a.last++
	a.handles[a.last] = &exchange{head: head, body: answer.Body}
	return a.last
}

func (c *call) handle(v uint64) (*exchange, int32) {
	h := int32(uint32(v))
	return c.asked.handles[h], h
}

func httpHead(c *call, mem memory, stack []uint64) {
	x, _ := c.handle(stack[0])
	if x == nil {
		stack[0] = errno(abi.ErrnoBadHandle)
		return
	}
	stack[0] = mem.give(stack[1], stack[2], x.head)
}

func httpRecv(c *call, mem memory, stack []uint64) {
	x, _ := c.handle(stack[0])
	if x == nil {
		stack[0] = errno(abi.ErrnoBadHandle)
		return
	}
	into := mem.read(stack[1], stack[2])
	if len(into) == 0 {
		stack[0] = errno(abi.ErrnoInvalid) // 0 would mean the end of the body
		return
	}
	// A buffer, not the guest's memory, because a transport may retain the slice.
	buf := make([]byte, min(len(into), maxReceive))
	n := 0
	e := c.ask(mem.fn, func(context.Context, runtime.Services) (err error) {
		for n == 0 && x.err == nil {
			n, x.err = x.body.Read(buf)
		}
		if n > 0 || errors.Is(x.err, io.EOF) {
			return nil
		}
		return x.err
	})
	if e != 0 {
		stack[0] = errno(e)
		return
	}
	stack[0] = result(int32(copy(into, buf[:n])))
}

func httpClose(c *call, _ memory, stack []uint64) {
	x, h := c.handle(stack[0])
	if x == nil {
		stack[0] = errno(abi.ErrnoBadHandle)
		return
	}
	delete(c.asked.handles, h)
	_ = x.body.Close() // the guest needs no more of the body
	stack[0] = 0
}

// serviceFunctions are the functions that wheelwork_v1.1 added, in the order of
// wheelwork.wit.
func serviceFunctions() []hostFunction {
	types := func(t ...api.ValueType) []api.ValueType { return t }
	entry := types(i32, i32, i32, i32) // bucket and key
	and := func(t ...api.ValueType) []api.ValueType { return slices.Concat(entry, t) }
	return []hostFunction{
		{"sleep", types(i64), types(i32), true, sleep},
		{"checkpoint_get", types(i32, i32), types(i32), true, checkpointGet},
		{"checkpoint_put", types(i32, i32), types(i32), true, checkpointPut},
		{"kv_get", and(i32, i32, i32), types(i32), true, kvGet},
		{"kv_put", and(i32, i32), types(i64), true, kvPut},
		{"kv_cas", and(i32, i32, i64), types(i64), true, kvCAS},
		{"kv_delete", and(i64), types(i32), true, kvDelete},
		{"job_enqueue", types(i32, i32, i32, i32), types(i32), true, jobEnqueue},
		{"map", types(i32, i32), types(i32), true, mapParts},
		{"secret_get", types(i32, i32, i32, i32), types(i32), true, secretGet},
		{"http_send", types(i32, i32, i32, i32), types(i32), true, httpSend},
		{"http_head", types(i32, i32, i32), types(i32), true, httpHead},
		{"http_recv", types(i32, i32, i32), types(i32), true, httpRecv},
		{"http_close", types(i32), types(i32), true, httpClose},
		{"metric_add", types(i32, i32, i32, f64), types(i32), true, metricAdd},
		{"job_next", types(i32), types(i32), false, jobNext},
		{"job_done", types(i32), types(i32), true, jobDone},
	}
}
