package hostabi

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
)

// WASI error numbers.
const (
	wasiOK      = 0
	wasiBadFD   = 8
	wasiFault   = 21
	wasiInvalid = 28
	wasiNoSys   = 52
)

// wasi builds a version of WASI: preview1 or preview0. It replaces functions of the engine to
// bound the work of one call. For guests without files it also makes closing or moving a
// standard stream have no effect, because the effect would outlive the task in an instance
// that is reused.
func wasi(rt wazero.Runtime, version string, files bool) wazero.HostModuleBuilder {
	b := rt.NewHostModuleBuilder(version)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(b)
	replace := func(name string, params int, f func(c *guest.Call, mem api.Memory, stack []uint64) uint64) {
		fn := api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			stack[0] = f(guest.CallFrom(ctx), mod.Memory(), stack)
		})
		b.NewFunctionBuilder().WithGoModuleFunction(fn, slices.Repeat([]api.ValueType{i32}, params), []api.ValueType{i32}).Export(name)
	}
	layout := subscription1
	if version == preview0 {
		layout = subscription0
		replaceOfPreview0(b)
	}
	replace("poll_oneoff", 4, func(c *guest.Call, mem api.Memory, stack []uint64) uint64 {
		p := poll{c: c, mem: mem, layout: layout, files: files, in: uint32(stack[0]), out: uint32(stack[1]), n: uint32(stack[2])}
		return p.run(uint32(stack[3]))
	})
	if files {
		return b
	}
	replace("fd_close", 1, func(_ *guest.Call, _ api.Memory, stack []uint64) uint64 { return standardStream(stack[0]) })
	replace("fd_renumber", 2, func(_ *guest.Call, _ api.Memory, stack []uint64) uint64 {
		return max(standardStream(stack[0]), standardStream(stack[1]))
	})
	replace("fd_read", 4, func(c *guest.Call, mem api.Memory, stack []uint64) uint64 {
		return readStdin(c, mem, uint32(stack[0]), uint32(stack[1]), uint32(stack[2]), uint32(stack[3]))
	})
	return b
}

// maxVectors bounds the number of buffers of one call, as Linux does. The engine's own
// fd_read takes as many as a memory holds, and skips empty ones without a point at which it
// could be stopped.
const maxVectors = 1024

// readStdin is fd_read for guests without files: it fills the buffers at vectors with input
// and writes the number of bytes to the address read.
func readStdin(c *guest.Call, mem api.Memory, fd, vectors, n, read uint32) uint64 {
	c.Work(0)
	switch {
	case fd == 1 || fd == 2:
		return wasiNoSys
	case fd != 0:
		return wasiBadFD
	case n > maxVectors:
		return wasiInvalid
	}
	total := 0
	for ; n > 0; n, vectors = n-1, vectors+8 {
		ptr, ok := mem.ReadUint32Le(vectors)
		size, fits := mem.ReadUint32Le(vectors + 4)
		if !ok || !fits {
			return wasiFault
		}
		into, ok := mem.Read(ptr, size)
		if !ok {
			return wasiFault
		}
		got := c.ReadInput(into)
		if total += got; got < len(into) {
			break
		}
	}
	if !mem.WriteUint32Le(read, uint32(total)) {
		return wasiFault
	}
	return wasiOK
}

// standardStream returns the result for a file descriptor of a guest that has only the
// three standard streams.
func standardStream(fd uint64) uint64 {
	if uint32(fd) <= 2 {
		return wasiOK
	}
	return wasiBadFD
}

// A subscription is the layout of a subscription of poll_oneoff: its size and the offsets of the
// fields of a clock. Its user data, its type and a file descriptor are at 0, 8 and 16 in every
// version.
type subscription struct{ size, clock, timeout, flags uint32 }

var (
	subscription1 = subscription{size: 48, clock: 16, timeout: 24, flags: 40}
	// A clock of preview 0 has an identifier of its own at 16.
	subscription0 = subscription{size: 56, clock: 24, timeout: 32, flags: 48}
)

// Sizes and types of WASI's subscriptions and events, and bounds of their number.
const (
	eventBytes       = 32
	eventClock       = 0
	eventRead        = 1
	eventWrite       = 2
	clockReal        = 0
	maxSubscriptions = 1024
)

// poll is one call of poll_oneoff. The streams and files of a guest are always ready, so a
// guest waits only when it polls nothing but clocks. The engine's own function takes as
// many subscriptions as a memory holds.
type poll struct {
	c          *guest.Call
	mem        api.Memory
	layout     subscription
	files      bool
	in, out, n uint32
	events     uint32 // number of events written
}

// run waits, and writes the number of events to the address count.
func (p *poll) run(count uint32) uint64 {
	if p.n == 0 || p.n > maxSubscriptions {
		return wasiInvalid
	}
	in, ok := p.mem.Read(p.in, p.n*p.layout.size)
	out, fits := p.mem.Read(p.out, p.n*eventBytes)
	if !ok || !fits || !p.mem.WriteUint32Le(count, 0) {
		return wasiFault
	}
	p.c.Work(len(in))
	subscriptions := bytes.Clone(in) // the events may be written over them
	least := time.Duration(math.MaxInt64)
	waits := make([]time.Duration, 0, p.n) // of the clocks; 0 for streams
	for s := range slices.Chunk(subscriptions, int(p.layout.size)) {
		switch s[8] {
		case eventClock:
			wait, bad := p.layout.wait(s)
			if bad != wasiOK {
				return bad
			}
			least = min(least, max(wait, 0))
			waits = append(waits, max(wait, 0))
		case eventRead, eventWrite:
			least = 0
			waits = append(waits, 0)
		default:
			return wasiInvalid
		}
	}
	p.c.Sleep(least)
	for i, wait := range waits {
		s := subscriptions[i*int(p.layout.size):][:p.layout.size]
		switch {
		case s[8] != eventClock:
			p.event(out, s, p.stream(binary.LittleEndian.Uint32(s[16:])))
		case wait <= least:
			p.event(out, s, wasiOK)
		}
	}
	if !p.mem.WriteUint32Le(count, p.events) {
		return wasiFault
	}
	return wasiOK
}

// stream returns the error of an event of a file descriptor.
func (p *poll) stream(fd uint32) uint16 {
	if !p.files && fd > 2 {
		return wasiBadFD
	}
	return wasiOK
}

func (p *poll) event(out, subscription []byte, errno uint16) {
	e := out[p.events*eventBytes:][:eventBytes]
	clear(e)
	copy(e, subscription[:8]) // the user data of the subscription
	binary.LittleEndian.PutUint16(e[8:], errno)
	e[10] = subscription[8]
	p.events++
}

// wait returns how long a clock subscription still has to wait.
func (l subscription) wait(s []byte) (wait time.Duration, errno uint64) {
	at := binary.LittleEndian.Uint64(s[l.timeout:])
	until := time.Duration(min(at, math.MaxInt64))
	switch flags := binary.LittleEndian.Uint16(s[l.flags:]); flags {
	case 0:
		return until, wasiOK
	case 1: // an absolute time
		if binary.LittleEndian.Uint32(s[l.clock:]) == clockReal {
			return until - time.Duration(time.Now().UnixNano()), wasiOK
		}
		return until - time.Duration(guest.Nanotime()), wasiOK
	}
	return 0, wasiInvalid
}
