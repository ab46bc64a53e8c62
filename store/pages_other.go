//go:build !linux

package store

// ReleasePages does nothing on this system; see the version for Linux.
func ReleasePages() {}
