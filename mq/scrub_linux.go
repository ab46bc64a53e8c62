package mq

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openUncached implements uncached. Some file systems refuse direct reads only at the
// first read, so it tries one.
func (d dir) openUncached(name string) (file, error) {
	f, err := os.OpenFile(d.path(name), os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.ReadAt(alignedBytes(pageSize), 0); err != nil {
		return nil, closeAfter(f, fmt.Errorf("read %s around the page cache: %w", name, err))
	}
	return plainFile{f}, nil
}
