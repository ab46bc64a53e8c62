//go:build !poison

package pool

// quarantine holds nothing: see poison.go.
type quarantine[T any] struct{}

// hold reports whether the quarantine has taken a released object.
func (*quarantine[T]) hold(*T) bool { return false }
