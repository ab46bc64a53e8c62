package mq

import (
	"errors"
	"runtime"
	"slices"
	"time"
)

const (
	probeName   = "probe" + tempSuffix
	probeBytes  = 128 << 10
	probeRounds = 9
)

// chooseAccess decides between the two writers. "auto" times both on a small file and takes mmap only when it is clearly
// faster: stores through a mapping give the kernel less to tell about errors.
func (l *Log) chooseAccess() error {
	l.access = accessPwrite
	if l.cfg.Writer == "mmap" {
		l.access = accessMmap
	}
	if l.cfg.Writer != "auto" || runtime.GOOS != "linux" {
		return nil
	}
	pwrite, err := l.probe(accessPwrite)
	if err != nil {
		if errors.Is(err, errNoProbe) {
			return nil
		}
		return err
	}
	mmap, err := l.probe(accessMmap)
	if err == nil && mmap < pwrite*8/10 {
		l.access = accessMmap
	}
	return nil // a file system that cannot map is no error
}

// errNoProbe means that the disk has no room even for the probe; the log may well be readable.
var errNoProbe = errors.New("no space for a probe")

// probe returns the median time of a small durable write.
func (l *Log) probe(how access) (time.Duration, error) {
	if err := l.disk.fill(probeName, probeBytes, how, l.stopping); err != nil {
		_ = l.disk.remove(probeName)
		return 0, errors.Join(errNoProbe, err)
	}
	f, err := l.disk.open(probeName, how)
	if err != nil {
		return 0, errors.Join(err, l.disk.remove(probeName))
	}
	took, err := timeWrites(f)
	return took, errors.Join(err, f.Close(), l.disk.remove(probeName))
}

func timeWrites(f file) (time.Duration, error) {
	var took [probeRounds]time.Duration
	block := make([]byte, 336) // a record of 256 bytes with its commit
	for i := range took {
		off := int64(i * len(block))
		start := time.Now()
		if _, err := f.WriteAt(block, off); err != nil {
			return 0, err
		}
		if err := f.sync(off, int64(len(block))); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took[:])
	return took[probeRounds/2], nil
}
