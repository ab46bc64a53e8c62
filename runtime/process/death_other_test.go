//go:build unix && !linux

package process

const parentDeathSignal = false
