package mq

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// BenchmarkAppend measures durable appends of 256 bytes by producers that each wait for
// their acknowledgement. The rows "raw" are the limit of the disk: one thread frames,
// writes and syncs as many records, which are always ready.
func BenchmarkAppend(b *testing.B) {
	for _, producers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("raw/%d", producers), func(b *testing.B) { benchRaw(b, producers) })
		for _, w := range allWriters() {
			if w != "auto" {
				b.Run(fmt.Sprintf("%s/%d", w, producers), func(b *testing.B) { benchAppend(b, w, producers, 1) })
			}
		}
	}
	b.Run("pwrite/256x16", func(b *testing.B) { benchAppend(b, "pwrite", 256, 16) })
}

const benchBody = 256

func benchRaw(b *testing.B, batch int) {
	d := dir(b.TempDir())
	const size = 32 << 20
	if err := d.fill("raw", size, accessPwrite, nil); err != nil {
		b.Fatal(err)
	}
	f, err := d.open("raw", accessPwrite)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	body := make([]byte, benchBody)
	buf := make([]byte, batch*frameSize(benchBody), batch*frameSize(benchBody)+pageSize)
	off := int64(0)
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		if off+int64(len(buf))+pageSize > size {
			off = 0
		}
		for i := range batch {
			at := i * frameSize(benchBody)
			putFrame(buf[at:at+frameSize(benchBody)], 1, off+int64(at), frame{seq: uint64(n + i + 1), body: body})
		}
		end := off + int64(len(buf)) // whole pages, as the log writes them
		if _, err := f.WriteAt(buf[:int64(len(buf))+(-end&(pageSize-1))], off); err != nil {
			b.Fatal(err)
		}
		if err := f.sync(off, int64(len(buf))); err != nil {
			b.Fatal(err)
		}
		off += int64(len(buf))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

func benchAppend(b *testing.B, writer string, producers, batch int) {
	l := mustOpen(b, Config{Dir: b.TempDir(), Writer: writer})
	stop := make(chan struct{})
	var trimmer sync.WaitGroup
	trimmer.Go(func() { // segments are recycled, as in a long-lived log
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = l.Trim(l.Durable())
			case <-stop:
				return
			}
		}
	})
	b.ResetTimer()
	var wg sync.WaitGroup
	share := (b.N + producers*batch - 1) / (producers * batch)
	for range producers {
		wg.Go(func() {
			recs := make([]Record, batch)
			for i := range recs {
				recs[i].Body = make([]byte, benchBody)
			}
			done := make(chan error, 1)
			ack := func(err error) { done <- err }
			for range share {
				if _, err := l.Append(recs, ack); err != nil {
					b.Error(err)
					return
				}
				if err := <-done; err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	close(stop)
	trimmer.Wait()
	n := share * producers * batch
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msg/s")
	if s := l.Stats(); s.Flushes > 0 {
		b.ReportMetric(float64(s.Records)/float64(s.Flushes), "msg/flush")
	}
}

// BenchmarkRead measures reading a log of 64 MiB from its start.
func BenchmarkRead(b *testing.B) {
	l := mustOpen(b, Config{Dir: b.TempDir(), Writer: "pwrite", Sync: OS})
	recs := make([]Record, 1000)
	for i := range recs {
		recs[i].Body = make([]byte, benchBody)
	}
	for range 220 {
		mustWrite(b, l, recs...)
	}
	b.SetBytes(int64(l.Stats().Bytes))
	for b.Loop() {
		n := 0
		if err := l.Read(1, func(Entry) error { n++; return nil }); err != nil || n != 220_000 {
			b.Fatal(n, err)
		}
	}
}

// BenchmarkOpen measures opening an empty log and closing it.
func BenchmarkOpen(b *testing.B) {
	root := b.TempDir()
	for i := 0; b.Loop(); i++ {
		dir := filepath.Join(root, fmt.Sprint(i))
		l, err := Open(Config{Dir: dir})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		_ = l.Close()
		_ = os.RemoveAll(dir)
		b.StartTimer()
	}
}
