//go:build !linux

package process

// HideMemory does nothing on this system: only Linux lets a process hide its memory.
func HideMemory() error { return nil }
