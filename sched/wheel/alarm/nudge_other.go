//go:build !linux

package alarm

import "time"

// nudge is only needed on Linux.
type nudge struct{}

func newNudge() nudge           { return nudge{} }
func (nudge) set(time.Duration) {}
func (nudge) close()            {}
