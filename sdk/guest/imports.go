//go:build wasip1

package guest

import (
	"runtime"
	"unsafe"
)

// The host's functions. Pointers are into this module's memory; see
// runtime/abi/wheelwork.wit.

//go:wasmimport wheelwork_v1 input_len
func inputLen() int64

//go:wasmimport wheelwork_v1 input_read
func inputRead(off int64, p unsafe.Pointer, capacity uint32) int32

//go:wasmimport wheelwork_v1 param_get
func paramGet(key unsafe.Pointer, keyLen uint32, p unsafe.Pointer, capacity uint32) int32

//go:wasmimport wheelwork_v1 output_write
func outputWrite(p unsafe.Pointer, n uint32) int32

//go:wasmimport wheelwork_v1 fail
func fail(kind int32, retryAfterMs int64, code unsafe.Pointer, codeLen uint32, text unsafe.Pointer, textLen uint32) int32

//go:wasmimport wheelwork_v1 log
func logLine(level int32, p unsafe.Pointer, n uint32) int32

//go:wasmimport wheelwork_v1 progress
func progress(done, total int64, p unsafe.Pointer, n uint32) int32

//go:wasmimport wheelwork_v1 cancelled
func cancelled() int32

//go:wasmimport wheelwork_v1 now_ms
func nowMs() int64

func address(p []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p)) }

func length(p []byte) uint32 { return uint32(len(p)) }

func input() []byte {
	p := make([]byte, inputLen())
	inputRead(0, address(p), length(p))
	return p
}

// param reads into a small buffer first and, when that was too small, into one
// of the right size.
func param(name string) (string, bool) {
	key := []byte(name)
	buf := make([]byte, 128)
	for {
		n := paramGet(address(key), length(key), address(buf), length(buf))
		runtime.KeepAlive(key)
		switch {
		case n < 0:
			return "", false
		case int(n) <= len(buf):
			return string(buf[:n]), true
		}
		buf = make([]byte, n)
	}
}
