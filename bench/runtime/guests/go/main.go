//go:build wasip1

// A reactor in Go. It answers 64 bytes with 8 on the plain ABI, and has the loop for
// which metering costs a Go guest most.
package main

import (
	"encoding/binary"
	"unsafe"
)

//go:wasmimport wheelwork_v1 input_read
func inputRead(off int64, to unsafe.Pointer, capacity uint32) int32

//go:wasmimport wheelwork_v1 output_write
func outputWrite(from unsafe.Pointer, length uint32) int32

var in, out [64]byte

//go:wasmexport wheelwork_handle
func handle(int32) int32 {
	n := inputRead(0, unsafe.Pointer(&in), uint32(len(in)))
	binary.LittleEndian.PutUint64(out[:], uint64(n)<<32|uint64(in[0]))
	return outputWrite(unsafe.Pointer(&out), 8)
}

//go:wasmexport fnv
func fnv(rounds int32) int32 {
	h := uint32(2166136261)
	for i := range rounds {
		h = (h ^ uint32(i)&0xff) * 16777619
	}
	return int32(h)
}

func main() {}
