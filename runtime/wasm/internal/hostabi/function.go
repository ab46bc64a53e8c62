package hostabi

import (
	"context"
	"math"

	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
	f64 = api.ValueTypeF64
)

// A Function is a function that guests import.
type Function struct {
	Name            string
	Params, Results []api.ValueType
	NeedsTask       bool // a guest that has no task may not call it
	// Do reads the parameters from the stack and stores the result there.
	Do func(c *guest.Call, mem Memory, stack []uint64)
}

// Call implements api.GoModuleFunction.
func (f *Function) Call(ctx context.Context, mod api.Module, stack []uint64) {
	c := guest.CallFrom(ctx)
	if f.NeedsTask && !c.HasTask() {
		c.EndWithoutTask(f.Name)
	}
	f.Do(c, Memory{c, f.Name, mod.Memory()}, stack)
}

// A plainFunction is a function that needs no memory, which makes its call cheaper.
type plainFunction struct{ of Function }

// Call implements api.GoFunction.
func (f *plainFunction) Call(ctx context.Context, stack []uint64) {
	c := guest.CallFrom(ctx)
	if f.of.NeedsTask && !c.HasTask() {
		c.EndWithoutTask(f.of.Name)
	}
	f.of.Do(c, Memory{c: c, function: f.of.Name}, stack)
}

// Memory is a guest's memory in one call of a host function. An access outside it ends the
// guest.
type Memory struct {
	c        *guest.Call
	function string
	view     api.Memory
}

// NewMemory returns the memory for a call of a function.
func NewMemory(c *guest.Call, function string, view api.Memory) Memory {
	return Memory{c, function, view}
}

// Function returns the name of the function that is called.
func (m Memory) Function() string { return m.function }

// View returns the memory without its checks; nil: the guest has none.
func (m Memory) View() api.Memory { return m.view }

// read returns a view of the guest's memory, valid until the guest runs again.
func (m Memory) read(ptr, n uint64) []byte {
	if m.view != nil {
		if b, ok := m.view.Read(uint32(ptr), uint32(n)); ok {
			m.c.Work(len(b))
			return b
		}
	}
	m.c.Endf("%s: range %d+%d is outside the memory", m.function, uint32(ptr), uint32(n))
	return nil
}

// text copies a string and truncates it to limit bytes.
func (m Memory) text(ptr, n uint64, limit int) string {
	b := m.read(ptr, n)
	return string(b[:min(len(b), limit)])
}

// give writes src to a buffer of the guest, truncated to capacity, and returns src's full
// length.
func (m Memory) give(ptr, capacity uint64, src []byte) uint64 {
	copy(m.read(ptr, capacity), src)
	return result(int32(len(src)))
}

func result(v int32) uint64 { return api.EncodeI32(v) }

func errno(e abi.Errno) uint64 { return result(-int32(e)) }

// maxName bounds the name of a bucket, key, secret or metric, in bytes.
const maxName = 1 << 10

// short copies a name; ok is false when it is empty or longer than maxName.
func (m Memory) short(ptr, n uint64) (name string, ok bool) {
	b := m.read(ptr, n)
	return string(b[:min(len(b), maxName)]), len(b) > 0 && len(b) <= maxName
}

// bytes copies an argument of a service, of at most limit bytes.
func (m Memory) bytes(ptr, n uint64, limit int) (data []byte, ok bool) {
	b := m.read(ptr, n)
	if len(b) > limit {
		return nil, false
	}
	return append([]byte{}, b...), true // never nil, because an empty value is a value
}

// giveOr writes the data that a service returned, unless e is an error.
func (m Memory) giveOr(e abi.Errno, ptr, capacity uint64, data []byte) uint64 {
	if e != 0 {
		return errno(e)
	}
	if len(data) > math.MaxInt32 {
		return errno(abi.ErrnoOverflow)
	}
	return m.give(ptr, capacity, data)
}

// wide extends an i32 result to i64.
func wide(v uint64) uint64 { return uint64(int64(int32(v))) }
