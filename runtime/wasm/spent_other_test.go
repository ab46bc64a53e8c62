//go:build !linux

package wasm

import "time"

// spent cannot tell here how long a processor works at what do does.
func spent(do func()) time.Duration {
	do()
	return 0
}

func spentFrom(do func(mark func())) time.Duration {
	do(func() {})
	return 0
}
