package cpython

import (
	"encoding/binary"
	"io"
	"math"
	"path"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime/abi"
	"github.com/wheelworkhq/wheelwork/runtime/script"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/guest"
	"github.com/wheelworkhq/wheelwork/runtime/wasm/internal/hostabi"
)

const (
	appDir    = "/app"
	entryFile = "wheelwork.py"

	// doneFunction is a function that only the bridge has: it reports the status of the
	// handler.
	doneFunction = "done"

	maxRequest = 16 << 20 // bytes of a request, and of its arguments and output buffers
)

// A Bridge implements the standard input and output of CPython.
type Bridge struct {
	c       *guest.Call
	request []byte
	answer  []byte

	done   bool
	status abi.Status
}

// NewBridge returns the bridge of a call.
func NewBridge(c *guest.Call) *Bridge { return &Bridge{c: c} }

// Config returns the streams and arguments of CPython for a handler of a script.
func (b *Bridge) Config(cfg wazero.ModuleConfig, s *script.Script, handler string) wazero.ModuleConfig {
	return cfg.WithStdin(b).WithStdout(b).
		// Without site packages, environment and compiled files, and with the log in UTF-8.
		WithArgs("python", "-S", "-E", "-B", "-X", "utf8", path.Join(appDir, entryFile), s.Main, handler)
}

// Status returns the status of the handler; ok is false when the handler has not reported
// one.
func (b *Bridge) Status() (s abi.Status, ok bool) { return b.status, b.done }

// Mount adds the files of a script to the files of an instance.
func Mount(files wazero.FSConfig, s *script.Script) wazero.FSConfig {
	return files.WithFSMount(sourceFS(s.Files), appDir)
}

// Write takes a part of a request, and serves each complete request.
func (b *Bridge) Write(p []byte) (int, error) {
	b.c.Work(len(p))
	b.request = append(b.request, p...)
	for len(b.request) >= 4 {
		size := binary.LittleEndian.Uint32(b.request)
		if size > maxRequest {
			b.c.Endf("the SDK uses standard output, and a request of %d bytes came there: print writes to the log", size)
		}
		if len(b.request)-4 < int(size) {
			break
		}
		b.serve(b.request[4 : 4+size])
		b.request = append(b.request[:0], b.request[4+size:]...)
	}
	return len(p), nil
}

// Read returns a part of the answer.
func (b *Bridge) Read(p []byte) (int, error) {
	if len(b.answer) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.answer)
	b.c.Work(n)
	b.answer = b.answer[n:]
	return n, nil
}

// serve executes one request and sets the answer.
func (b *Bridge) serve(request []byte) {
	r := requestReader{rest: request}
	name := string(r.bytes(int(r.u8())))
	args := int(r.u8())
	var params [hostabi.MaxArgs]uint64
	var results [][2]uint32 // offset and size of the buffers to be returned
	var mem scratchMemory
	n := 0
	for range args {
		tag := r.u8()
		if n+2 > len(params) {
			r.bad = true
		}
		if r.bad {
			break
		}
		switch tag {
		case 'i', 'f':
			params[n] = r.u64()
			n++
		case 'b':
			data := r.bytes(int(r.u32()))
			params[n], params[n+1] = uint64(len(mem.bytes)), uint64(len(data))
			mem.bytes = append(mem.bytes, data...)
			n += 2
		case 'o', 'p':
			size := r.u32()
			if len(mem.bytes)+int(size) > maxRequest {
				r.bad = true
				break
			}
			at := uint32(len(mem.bytes))
			results = append(results, [2]uint32{at, size})
			mem.bytes = append(mem.bytes, make([]byte, size)...)
			params[n] = uint64(at)
			n++
			if tag == 'o' {
				params[n] = uint64(size)
				n++
			}
		default:
			r.bad = true
		}
	}
	if r.bad || len(r.rest) > 0 {
		b.c.Endf("a request on standard output is not what the SDK writes")
	}
	if name == doneFunction {
		if n != 1 {
			b.c.Endf("done has 1 parameter, it was called with %d", n)
		}
		b.done, b.status = true, abi.Status(int32(params[0]))
		b.answer = binary.LittleEndian.AppendUint64(b.answer[:0], 0)
		return
	}
	f, ok := hostabi.Lookup(name)
	if !ok || n != len(f.Params) {
		b.c.Endf("the host has no function %.40q with %d parameters", name, n)
	}
	for i, t := range f.Params {
		if t == api.ValueTypeI32 {
			params[i] = uint64(uint32(params[i]))
		}
	}
	f.Do(b.c, hostabi.NewMemory(b.c, name, &mem), params[:])
	var result uint64
	if len(f.Results) > 0 {
		if result = params[0]; f.Results[0] == api.ValueTypeI32 {
			result = uint64(int64(int32(result)))
		}
	}
	b.answer = binary.LittleEndian.AppendUint64(b.answer[:0], result)
	for _, at := range results {
		b.answer = append(b.answer, mem.bytes[at[0]:at[0]+at[1]]...)
	}
}

// requestReader reads a request; bad is set when the request is too short.
type requestReader struct {
	rest []byte
	bad  bool
}

func (r *requestReader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *requestReader) u8() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *requestReader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *requestReader) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// scratchMemory replaces a guest's memory for one host function: it holds the arguments of
// one request and its output buffers.
type scratchMemory struct {
	api.Memory // nil: host functions only read, write and call Size
	bytes      []byte
}

func (m *scratchMemory) Size() uint32 { return uint32(len(m.bytes)) }

func (m *scratchMemory) Read(off, n uint32) ([]byte, bool) {
	if uint64(off)+uint64(n) > uint64(len(m.bytes)) {
		return nil, false
	}
	return m.bytes[off : off+n : off+n], true
}

func (m *scratchMemory) Write(off uint32, data []byte) bool {
	to, ok := m.Read(off, uint32(len(data)))
	return ok && copy(to, data) == len(data)
}

func (m *scratchMemory) WriteUint32Le(off, v uint32) bool {
	return m.Write(off, binary.LittleEndian.AppendUint32(nil, v))
}

func (m *scratchMemory) WriteUint64Le(off uint32, v uint64) bool {
	return m.Write(off, binary.LittleEndian.AppendUint64(nil, v))
}

func (m *scratchMemory) WriteFloat64Le(off uint32, v float64) bool {
	return m.WriteUint64Le(off, math.Float64bits(v))
}
