//go:build wasip1

package guest

import (
	"runtime"
	"unsafe"
)

// Functions of the host. Pointers refer to this module's memory; see
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

// param reads into a small buffer first and, when that was too small, into one of the
// required size.
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

// Since wheelwork_v1.1.

//go:wasmimport wheelwork_v1 sleep
func sleepMs(ms int64) int32

//go:wasmimport wheelwork_v1 checkpoint_get
func checkpointGet(p unsafe.Pointer, capacity uint32) int32

//go:wasmimport wheelwork_v1 checkpoint_put
func checkpointPut(p unsafe.Pointer, n uint32) int32

//go:wasmimport wheelwork_v1 kv_get
func kvGet(bucket unsafe.Pointer, bucketLen uint32, key unsafe.Pointer, keyLen uint32, p unsafe.Pointer, capacity uint32, version unsafe.Pointer) int32

//go:wasmimport wheelwork_v1 kv_put
func kvPut(bucket unsafe.Pointer, bucketLen uint32, key unsafe.Pointer, keyLen uint32, p unsafe.Pointer, n uint32) int64

//go:wasmimport wheelwork_v1 kv_cas
func kvCAS(bucket unsafe.Pointer, bucketLen uint32, key unsafe.Pointer, keyLen uint32, p unsafe.Pointer, n uint32, expect uint64) int64

//go:wasmimport wheelwork_v1 kv_delete
func kvDelete(bucket unsafe.Pointer, bucketLen uint32, key unsafe.Pointer, keyLen uint32, expect uint64) int32

//go:wasmimport wheelwork_v1 job_enqueue
func jobEnqueue(spec unsafe.Pointer, specLen uint32, id unsafe.Pointer, idCapacity uint32) int32

//go:wasmimport wheelwork_v1 map
func mapInputs(p unsafe.Pointer, n uint32) int32

//go:wasmimport wheelwork_v1 secret_get
func secretGet(name unsafe.Pointer, nameLen uint32, p unsafe.Pointer, capacity uint32) int32

//go:wasmimport wheelwork_v1 http_send
func httpSend(head unsafe.Pointer, headLen uint32, body unsafe.Pointer, bodyLen uint32) int32

//go:wasmimport wheelwork_v1 http_head
func httpHead(handle int32, p unsafe.Pointer, capacity uint32) int32

//go:wasmimport wheelwork_v1 http_recv
func httpRecv(handle int32, p unsafe.Pointer, capacity uint32) int32

//go:wasmimport wheelwork_v1 http_close
func httpClose(handle int32) int32

//go:wasmimport wheelwork_v1 metric_add
func metricAdd(name unsafe.Pointer, nameLen uint32, kind int32, value float64) int32

//go:wasmimport wheelwork_v1 job_next
func jobNext(timeoutMs int32) int32

//go:wasmimport wheelwork_v1 job_done
func jobDone(status int32) int32

// fetch returns the bytes that f writes, growing the buffer until it is large enough.
func fetch(f func(p unsafe.Pointer, capacity uint32) int32) ([]byte, error) {
	buf := make([]byte, 512)
	for {
		n := f(address(buf), length(buf))
		switch {
		case n < 0:
			return nil, hostError(int64(n))
		case int(n) <= len(buf):
			return buf[:n], nil
		}
		buf = make([]byte, n)
	}
}
