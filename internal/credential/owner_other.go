//go:build !unix

package credential

import "io/fs"

// keepOwner does nothing: access lists come from the directory.
func keepOwner(string, fs.FileInfo) error { return nil }
