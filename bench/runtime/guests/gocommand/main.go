//go:build wasip1

// A command in Go. It answers its input with eight bytes.
package main

import (
	"encoding/binary"
	"io"
	"os"
)

func main() {
	in, err := io.ReadAll(os.Stdin)
	if err != nil || len(in) == 0 {
		os.Exit(1)
	}
	var out [8]byte
	binary.LittleEndian.PutUint64(out[:], uint64(len(in))<<32|uint64(in[0]))
	if _, err := os.Stdout.Write(out[:]); err != nil {
		os.Exit(1)
	}
}
