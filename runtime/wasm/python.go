package wasm

import (
	"encoding/binary"
	"io"
	"io/fs"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/wheelworkhq/wheelwork/runtime"
	"github.com/wheelworkhq/wheelwork/runtime/abi"
)

// CPython is a WASI command: each task gets a fresh instance, which finds the sources in a
// file system of its own. The command imports no function of wheelwork, so the Python SDK
// communicates with the host through the standard streams: it writes a request to standard
// output and reads the answer from standard input. The print function of a script writes to
// standard error, which is the log.
//
// A request is u32 n, then n bytes: u8 length and name of the function, u8 number of
// arguments, and for each argument a tag and its value: 'i' and i64, 'f' and f64, 'b' and
// u32 length and bytes, 'o' and u32 capacity of a buffer that the function fills. 'b' and
// 'o' represent two parameters, pointer and length; 'p' is like 'o' but represents only the
// pointer. The answer is the result as i64 (an f64 as its bits), then the bytes of each 'o'
// and 'p' in full length. Numbers are little-endian.
const (
	pythonApp   = "/app"
	pythonEntry = "wheelwork.py"

	// pythonDone is a function that only the bridge has: it reports the status of the
	// handler.
	pythonDone = "done"

	maxRequest = 16 << 20 // bytes of a request, and of its arguments and output buffers
)

// runPython runs a handler in Python in a new instance.
func (e *Engine) runPython(c *call, m *module, limit int64) runtime.Result {
	start := time.Now()
	unmount, err := e.mount(c)
	if err != nil {
		return failed(runtime.HostError, codeFiles, "%v", err)
	}
	defer unmount()
	if c.files == nil {
		c.files = wazero.NewFSConfig()
	}
	c.files = c.files.WithFSMount(sourceFS(m.script.Files), pythonApp)
	c.bridge = &bridge{c: c}
	inst, err := e.instantiate(c, m, limit)
	if err != nil {
		return c.notStarted(err)
	}
	defer inst.close(c)
	inst.arm(c, e.cfg.StackBytes)
	_, err = inst.mod.ExportedFunction(abi.ExportStart).Call(c)
	r := c.commandResult(err)
	if r.Outcome == runtime.Succeeded && c.bridge.done {
		r = c.statusResult(c.bridge.status)
	}
	r.Duration = time.Since(start)
	return r
}

// pythonConfig returns the streams and arguments of CPython.
func (inst *instance) pythonConfig(cfg wazero.ModuleConfig, t *runtime.Task) wazero.ModuleConfig {
	s := inst.module.script
	return cfg.WithStdin(inst.call.bridge).WithStdout(inst.call.bridge).
		// Without site packages, environment and compiled files, and with the log in UTF-8.
		WithArgs("python", "-S", "-E", "-B", "-X", "utf8", path.Join(pythonApp, pythonEntry), s.Main, handlerName(t))
}

// bridge implements the standard input and output of CPython.
type bridge struct {
	c       *call
	request []byte
	answer  []byte

	done   bool
	status abi.Status
}

// Write takes a part of a request, and serves each complete request.
func (b *bridge) Write(p []byte) (int, error) {
	b.c.work(len(p))
	b.request = append(b.request, p...)
	for len(b.request) >= 4 {
		size := binary.LittleEndian.Uint32(b.request)
		if size > maxRequest {
			b.c.endf("a request of %d bytes came on standard output, which is the SDK's: print writes to the log", size)
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
func (b *bridge) Read(p []byte) (int, error) {
	if len(b.answer) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.answer)
	b.c.work(n)
	b.answer = b.answer[n:]
	return n, nil
}

// serve executes one request and sets the answer.
func (b *bridge) serve(request []byte) {
	r := requestReader{rest: request}
	name := string(r.bytes(int(r.u8())))
	args := int(r.u8())
	var params [maxArgs]uint64
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
		b.c.endf("a request on standard output is not what the SDK writes")
	}
	if name == pythonDone {
		if n != 1 {
			b.c.endf("done has 1 parameter, it was called with %d", n)
		}
		b.done, b.status = true, abi.Status(int32(params[0]))
		b.answer = binary.LittleEndian.AppendUint64(b.answer[:0], 0)
		return
	}
	f, ok := hostTable()[name]
	if !ok || n != len(f.params) {
		b.c.endf("the host has no function %.40q with %d parameters", name, n)
	}
	for i, t := range f.params {
		if t == i32 {
			params[i] = uint64(uint32(params[i]))
		}
	}
	f.fn(b.c, memory{b.c, name, &mem}, params[:])
	var result uint64
	if len(f.results) > 0 {
		if result = params[0]; f.results[0] == i32 {
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

// sourceFS is a read-only file system of a script's files.
type sourceFS map[string]string

// Open opens a file, or a folder that contains files.
func (s sourceFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if text, ok := s[name]; ok {
		return &sourceFile{sourceInfo: sourceInfo{path.Base(name), int64(len(text)), false}, text: strings.NewReader(text)}, nil
	}
	entries := s.entries(name)
	if len(entries) == 0 && name != "." {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &sourceFolder{sourceInfo: sourceInfo{path.Base(name), 0, true}, rest: entries}, nil
}

// entries lists the direct entries of a folder, by name.
func (s sourceFS) entries(dir string) []fs.DirEntry {
	prefix := dir + "/"
	if dir == "." {
		prefix = ""
	}
	found := make(map[string]sourceInfo)
	for name, text := range s {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		first, _, deeper := strings.Cut(rest, "/")
		found[first] = sourceInfo{first, int64(len(text)), deeper}
	}
	var out []fs.DirEntry
	for _, info := range found {
		if info.dir {
			info.size = 0
		}
		out = append(out, fs.FileInfoToDirEntry(info))
	}
	slices.SortFunc(out, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return out
}

// sourceInfo describes a file or folder. All have the same time, because they never change.
type sourceInfo struct {
	name string
	size int64
	dir  bool
}

func (i sourceInfo) Name() string       { return i.name }
func (i sourceInfo) Size() int64        { return i.size }
func (i sourceInfo) IsDir() bool        { return i.dir }
func (i sourceInfo) ModTime() time.Time { return time.Unix(0, 0) }
func (i sourceInfo) Sys() any           { return nil }

func (i sourceInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

type sourceFile struct {
	sourceInfo
	text *strings.Reader
}

func (f *sourceFile) Stat() (fs.FileInfo, error)                  { return f.sourceInfo, nil }
func (f *sourceFile) Read(p []byte) (int, error)                  { return f.text.Read(p) }
func (f *sourceFile) Seek(off int64, whence int) (int64, error)   { return f.text.Seek(off, whence) }
func (f *sourceFile) ReadAt(p []byte, off int64) (n int, e error) { return f.text.ReadAt(p, off) }
func (f *sourceFile) Close() error                                { return nil }

type sourceFolder struct {
	sourceInfo
	rest []fs.DirEntry
}

func (f *sourceFolder) Stat() (fs.FileInfo, error) { return f.sourceInfo, nil }
func (f *sourceFolder) Read([]byte) (int, error)   { return 0, fs.ErrInvalid }
func (f *sourceFolder) Close() error               { return nil }

// ReadDir returns the next n entries, or all remaining ones when n is not positive.
func (f *sourceFolder) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 || n > len(f.rest) {
		if n > 0 && len(f.rest) == 0 {
			return nil, io.EOF
		}
		n = len(f.rest)
	}
	out := f.rest[:n]
	f.rest = f.rest[n:]
	return out, nil
}
