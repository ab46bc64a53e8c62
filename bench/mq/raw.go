package main

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameBytes is the size of a message as raw and the log write it.
const frameBytes = 24 + bodyBytes

// openRaw opens a store that shows the limit of the disk for shared syncs. One thread
// frames all messages of the load, writes them to a file that was filled before, and
// syncs. It never waits for producers.
func (b *bench) openRaw(_ context.Context, dir string) (store, error) {
	f, err := os.Create(filepath.Join(dir, raw))
	if err != nil {
		return store{}, err
	}
	if err := fill(f, b.size.raw); err != nil {
		_ = f.Close()
		return store{}, err
	}
	w := &rawWriter{f: f, size: b.size.raw}
	return store{run: w.run, close: f.Close}, nil
}

// fill writes zeros in pages of 4 KiB, so that the page cache holds the file in small
// pieces.
func fill(f *os.File, size int64) error {
	zeros := make([]byte, 4096)
	for off := int64(0); off < size; off += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros, off); err != nil {
			return err
		}
	}
	return f.Sync()
}

type rawWriter struct {
	f         *os.File
	off, size int64
	seq       uint64
}

func (w *rawWriter) run(ctx context.Context, l load, window time.Duration) (result, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	n := l.producers * l.batch
	all := bodies(0, n)
	buf := make([]byte, n*frameBytes)
	var waits []time.Duration
	begin := time.Now()
	for last := begin; last.Sub(begin) < window; {
		for i, body := range all {
			w.seq++
			putFrame(buf[i*frameBytes:(i+1)*frameBytes], w.seq, body)
		}
		if w.off+int64(len(buf)) > w.size {
			w.off = 0
		}
		if _, err := w.f.WriteAt(buf, w.off); err != nil {
			return result{}, err
		}
		if err := fdatasync(w.f); err != nil {
			return result{}, err
		}
		w.off += int64(len(buf))
		now := time.Now()
		waits = append(waits, now.Sub(last))
		last = now
	}
	return summary(waits, n, time.Since(begin)), ctx.Err()
}

// putFrame does the same work as the log does for a record.
func putFrame(b []byte, seq uint64, body []byte) {
	binary.LittleEndian.PutUint32(b[4:], uint32(len(body)))
	binary.LittleEndian.PutUint64(b[8:], 1)
	binary.LittleEndian.PutUint64(b[16:], seq)
	copy(b[24:], body)
	binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
}
