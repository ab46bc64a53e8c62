package hostabi

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/manifest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/oneline"
)

// Bounds of the arguments that a guest may pass to a service in one call, in bytes. A
// service may have lower bounds.
const (
	maxValue      = 1 << 20  // of a value or checkpoint
	maxSpec       = 2 << 20  // of the JSON of job_enqueue
	maxMapped     = 16 << 20 // of the inputs of one map
	maxMapInputs  = 100_000  // in one map
	maxHead       = 128 << 10
	maxBody       = 16 << 20
	maxHandles    = 16 // open at once
	maxReceive    = 1 << 20
	maxDelay      = 366 * 24 * time.Hour
	unknownMetric = abi.MetricHistogram + 1
)

// notGranted returns the result of a host function when no grant covers its arguments.
func notGranted(c *guest.Call, name, format string, args ...any) uint64 {
	what := fmt.Sprintf(format, args...)
	return errno(c.Refused(name, fmt.Errorf("%s: %w", oneline.Printable(what), runtime.ErrNotGranted)))
}

func sleep(c *guest.Call, _ Memory, stack []uint64) {
	ms := int64(stack[0])
	if ms < 0 {
		stack[0] = errno(abi.ErrnoInvalid)
		return
	}
	c.Sleep(time.Duration(min(ms, maxDelay.Milliseconds())) * time.Millisecond)
	stack[0] = 0
}

func checkpointGet(c *guest.Call, mem Memory, stack []uint64) {
	var data []byte
	e := c.Ask(mem.function, func(ctx context.Context, s runtime.Services) (err error) {
		data, err = s.Checkpoint(ctx, c.Task)
		return err
	})
	stack[0] = mem.giveOr(e, stack[0], stack[1], data)
}

func checkpointPut(c *guest.Call, mem Memory, stack []uint64) {
	data, ok := mem.bytes(stack[0], stack[1], maxValue)
	if !ok {
		stack[0] = errno(abi.ErrnoOverflow)
		return
	}
	stack[0] = errno(c.Ask(mem.function, func(ctx context.Context, s runtime.Services) error { return s.SetCheckpoint(ctx, c.Task, data) }))
}

// entry reads the bucket and key of a kv function and checks them against the grants.
// refused is nil when the call is allowed.
func entry(c *guest.Call, mem Memory, stack []uint64, write bool) (bucket, key string, refused *uint64) {
	bucket, ok := mem.short(stack[0], stack[1])
	key, fits := mem.short(stack[2], stack[3])
	if !ok || !fits {
		e := errno(abi.ErrnoInvalid)
		return "", "", &e
	}
	if !utf8.ValidString(key) { // a service might map two invalid keys to one
		e := errno(c.Refused(mem.function, fmt.Errorf("%w: the key is not UTF-8: encode it, as base64 does", runtime.ErrInvalid)))
		return "", "", &e
	}
	if !c.Task.Grants.Bucket(bucket, write) {
		e := notGranted(c, mem.function, "the bucket %.60q", bucket)
		return "", "", &e
	}
	return bucket, key, nil
}

func kvGet(c *guest.Call, mem Memory, stack []uint64) {
	bucket, key, refused := entry(c, mem, stack, false)
	if refused != nil {
		stack[0] = *refused
		return
	}
	var value []byte
	var version uint64
	e := c.Ask(mem.function, func(ctx context.Context, s runtime.Services) (err error) {
		value, version, err = s.Get(ctx, c.Task, bucket, key)
		return err
	})
	if at := stack[6]; e == 0 && uint32(at) != 0 {
		binary.LittleEndian.PutUint64(mem.read(at, 8), version)
	}
	stack[0] = mem.giveOr(e, stack[4], stack[5], value)
}

func kvPut(c *guest.Call, mem Memory, stack []uint64) { put(c, mem, stack, runtime.AnyVersion) }

func kvCAS(c *guest.Call, mem Memory, stack []uint64) { put(c, mem, stack, stack[6]) }

func put(c *guest.Call, mem Memory, stack []uint64, expect uint64) {
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
	e := c.Ask(mem.function, func(ctx context.Context, s runtime.Services) (err error) {
		version, err = s.Put(ctx, c.Task, bucket, key, value, expect)
		return err
	})
	if e != 0 {
		stack[0] = wide(errno(e))
		return
	}
	stack[0] = version & math.MaxInt64
}

func kvDelete(c *guest.Call, mem Memory, stack []uint64) {
	bucket, key, refused := entry(c, mem, stack, true)
	if refused != nil {
		stack[0] = *refused
		return
	}
	expect := stack[4]
	stack[0] = errno(c.Ask(mem.function, func(ctx context.Context, s runtime.Services) error {
		return s.Delete(ctx, c.Task, bucket, key, expect)
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

func jobEnqueue(c *guest.Call, mem Memory, stack []uint64) {
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
		submit, err = spec.submit(c.Uses.Enqueued)
	}
	if err != nil {
		stack[0] = errno(c.Refused(mem.function, fmt.Errorf("%w: %s", runtime.ErrInvalid, oneline.Printable(err.Error()))))
		return
	}
	if !c.Task.Grants.Target(c.Task.App, submit.App, submit.Job) {
		stack[0] = notGranted(c, mem.function, "runs of the job %.60q", strings.TrimPrefix(submit.App+"/"+submit.Job, "/"))
		return
	}
	var run string
	e := c.Ask(mem.function, func(ctx context.Context, s runtime.Services) (err error) {
		run, err = s.Enqueue(ctx, c.Task, submit)
		return err
	})
	if e == 0 {
		c.Uses.Enqueued++
	}
	stack[0] = mem.giveOr(e, stack[2], stack[3], []byte(run))
}

func mapParts(c *guest.Call, mem Memory, stack []uint64) {
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
	e := c.Ask(mem.function, func(ctx context.Context, s runtime.Services) error {
		return s.Map(ctx, c.Task, c.Uses.Mapped, inputs)
	})
	if e == 0 {
		c.Uses.Mapped += len(inputs)
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

func secretGet(c *guest.Call, mem Memory, stack []uint64) {
	name, ok := mem.short(stack[0], stack[1])
	if !ok {
		stack[0] = errno(abi.ErrnoInvalid)
		return
	}
	if !c.Task.Grants.Secret(name) {
		stack[0] = notGranted(c, mem.function, "the secret %.60q", name)
		return
	}
	var value []byte
	e := c.Ask(mem.function, func(ctx context.Context, s runtime.Services) (err error) {
		value, err = s.Secret(ctx, c.Task, name)
		return err
	})
	stack[0] = mem.giveOr(e, stack[2], stack[3], value)
}

func metricAdd(c *guest.Call, mem Memory, stack []uint64) {
	name, ok := mem.short(stack[0], stack[1])
	kind, value := uint32(stack[2]), api.DecodeF64(stack[3])
	if !ok || kind >= unknownMetric || math.IsNaN(value) || math.IsInf(value, 0) || kind == abi.MetricCounter && value < 0 {
		stack[0] = errno(abi.ErrnoInvalid)
		return
	}
	stack[0] = errno(c.Ask(mem.function, func(ctx context.Context, s runtime.Services) error {
		return s.Metric(ctx, c.Task, name, runtime.MetricKind(kind), value)
	}))
}
