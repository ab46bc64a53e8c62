//go:build linux && !amd64 && !arm64

package sandbox

// hasSeccomp returns false: the filter has the call numbers of amd64 and arm64.
func hasSeccomp() bool { return false }

func (b *Box) filter() any { return nil }

func setFilter(any) error { return nil }
