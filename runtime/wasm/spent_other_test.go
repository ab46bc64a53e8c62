//go:build !linux

package wasm

import "time"

// spent returns 0, because the processor time of do cannot be measured on this system.
func spent(do func()) time.Duration {
	do()
	return 0
}

func spentFrom(do func(mark func())) time.Duration {
	do(func() {})
	return 0
}
