// Package wait waits for a time or the end of a context.
package wait

import (
	"context"
	"time"
)

// For waits for d. It reports false when ctx ended first.
func For(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
