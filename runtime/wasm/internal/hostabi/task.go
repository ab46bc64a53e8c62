package hostabi

import (
	"crypto/rand"
	"io"
	"strconv"
	"time"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/oneline"
)

const (
	maxCode    = 128     // bytes of an error code
	maxMessage = 4 << 10 // bytes of an error or progress message
)

func inputLen(c *guest.Call, _ Memory, stack []uint64) { stack[0] = uint64(len(c.Task.Input)) }

func inputRead(c *guest.Call, mem Memory, stack []uint64) {
	off := min(stack[0], uint64(len(c.Task.Input)))
	stack[0] = mem.give(stack[1], stack[2], c.Task.Input[off:])
}

func paramGet(c *guest.Call, mem Memory, stack []uint64) {
	key := mem.text(stack[0], stack[1], maxMessage)
	value, ok := Param(c, key)
	if !ok {
		stack[0] = errno(abi.ErrnoNoEntry)
		return
	}
	stack[0] = mem.give(stack[2], stack[3], []byte(value))
}

// Param returns a property of the task, or else a variable of the job's environment.
func Param(c *guest.Call, key string) (string, bool) {
	t := c.Task
	switch key {
	case "run_id":
		return t.RunID, true
	case "app":
		return t.App, true
	case "job":
		return t.Job, true
	case "attempt":
		return strconv.Itoa(t.Attempt), true
	case "max_attempts":
		return strconv.Itoa(t.MaxAttempt), true
	case "planned_at_ms":
		return unixMs(t.PlannedAt), true
	case "covers":
		return strconv.FormatInt(t.Covers, 10), true
	case "part":
		return strconv.Itoa(t.Part), true
	case "parts":
		return strconv.Itoa(t.Parts), true
	case "role":
		return t.Role, true
	case "deadline_ms":
		return unixMs(c.Due()), true
	case "module":
		return t.Module, true
	case "digest":
		return t.Digest, true
	case "handler":
		return guest.HandlerName(t), true
	case "trace_parent":
		return t.TraceParent, true
	case "trace_state":
		return t.TraceState, true
	}
	v, ok := t.Env[key]
	return v, ok
}

// unixMs formats a time in milliseconds since 1970; the zero time is "0".
func unixMs(t time.Time) string {
	if t.IsZero() {
		return "0"
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

func outputWrite(c *guest.Call, mem Memory, stack []uint64) {
	if !c.HasOutput() {
		c.EndWithoutTask(mem.function)
	}
	c.WriteOutput(mem.read(stack[0], stack[1]))
	stack[0] = 0
}

func fail(c *guest.Call, mem Memory, stack []uint64) {
	kind, retryAfter := abi.Status(int32(stack[0])), int64(stack[1])
	if (kind != abi.StatusRetryable && kind != abi.StatusPermanent) || retryAfter < 0 || retryAfter > maxRetryAfter.Milliseconds() {
		stack[0] = errno(abi.ErrnoInvalid)
		return
	}
	c.Fail(guest.Failure{
		Permanent:  kind == abi.StatusPermanent,
		RetryAfter: time.Duration(retryAfter) * time.Millisecond,
		Code:       oneline.Valid(mem.text(stack[2], stack[3], maxCode)),
		Text:       oneline.Valid(mem.text(stack[4], stack[5], maxMessage)),
	})
	stack[0] = 0
}

// maxRetryAfter is the longest retry delay that a handler can set.
const maxRetryAfter = 30 * 24 * time.Hour

func logLines(c *guest.Call, mem Memory, stack []uint64) {
	level := runtime.Level(min(uint32(stack[0]), abi.LogError))
	c.LogLines(level, mem.read(stack[1], stack[2]))
	stack[0] = 0
}

func setProgress(c *guest.Call, mem Memory, stack []uint64) {
	text := mem.read(stack[2], stack[3])
	c.SetProgress(int64(stack[0]), int64(stack[1]), text[:min(len(text), maxMessage)])
	stack[0] = 0
}

func cancelled(c *guest.Call, _ Memory, stack []uint64) { stack[0] = result(int32(c.Cancelled())) }

func nowMs(_ *guest.Call, _ Memory, stack []uint64) { stack[0] = uint64(time.Now().UnixMilli()) }

func random(c *guest.Call, mem Memory, stack []uint64) {
	// ReadFull cannot fail: the source ends the guest instead.
	_, _ = io.ReadFull(randomSource{c}, mem.read(stack[0], stack[1]))
	stack[0] = 0
}

// randomSource reads with ReadRandom.
type randomSource struct{ c *guest.Call }

func (s randomSource) Read(p []byte) (int, error) { return ReadRandom(s.c, p) }

const randomPiece = 64 << 10

// ReadRandom fills a part of p with random bytes and returns its length. It checks the
// deadline between two parts, so that a request for a whole memory ends at the deadline.
func ReadRandom(c *guest.Call, p []byte) (int, error) {
	if len(p) > randomPiece {
		p = p[:randomPiece]
		c.Check()
	}
	return rand.Read(p)
}

func jobNext(c *guest.Call, _ Memory, stack []uint64) { stack[0] = result(c.JobNext()) }

func jobDone(c *guest.Call, _ Memory, stack []uint64) { stack[0] = result(c.JobDone(stack[0])) }
