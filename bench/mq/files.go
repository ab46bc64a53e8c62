package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/mq"
)

// write fills a new log with at least total bytes and closes it. It does not sync each
// message.
func (b *bench) write(ctx context.Context, dir string, total int64, recs []mq.Record) (err error) {
	l, err := mq.Open(mq.Config{Dir: dir, Sync: mq.OS})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	for int64(l.Stats().Bytes) < total {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := l.AppendLazy(recs); err != nil {
			return err
		}
	}
	return nil
}

// read compares reading a log with reading its files. All data is in the page cache.
func (b *bench) read(ctx context.Context) (err error) {
	const name = "recover/read"
	if !b.wants(name) {
		return nil
	}
	b.note("read a log of %d MiB", b.size.read>>20)
	dir := filepath.Join(b.dir, "read")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := b.write(ctx, dir, b.size.read, records(bodies(0, 1000))); err != nil {
		return err
	}
	l, err := mq.Open(mq.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	var log, files []result
	for round := range b.size.rounds + 1 {
		if err := ctx.Err(); err != nil {
			return err
		}
		ours, err := speed(func() (int64, error) { return readLog(l) })
		if err != nil {
			return err
		}
		theirs, err := speed(func() (int64, error) { return readFiles(dir) })
		if err != nil {
			return err
		}
		if round > 0 { // the first round warms up
			log, files = append(log, ours), append(files, theirs)
		}
	}
	value, anchor := median(rate, log, files)
	b.report.AddRatio(name, value/1e6, "MB/s", "pread+crc32c", anchor/1e6, report.AtLeast(0.5))
	return nil
}

// speed returns the bytes per second of a read as the rate of a result.
func speed(read func() (int64, error)) (result, error) {
	begin := time.Now()
	n, err := read()
	return result{rate: float64(n) / time.Since(begin).Seconds()}, err
}

// readLog reads a log through its API and returns the bytes of its records.
func readLog(l *mq.Log) (n int64, err error) {
	next := l.First()
	err = l.Read(next, func(e mq.Entry) error {
		if e.Seq != next {
			return fmt.Errorf("record %d follows record %d", e.Seq, next-1)
		}
		next++
		n += frameBytes
		return nil
	})
	if err == nil && next != l.Next() {
		err = fmt.Errorf("the log was read up to %d of %d", next, l.Next())
	}
	return n, err
}

// readFiles reads the files of a log one after another and computes a checksum of each
// piece.
func readFiles(dir string) (n int64, err error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.seg"))
	if err != nil {
		return 0, err
	}
	piece := make([]byte, 256<<10)
	for _, name := range names {
		if err := readFile(name, piece, &n); err != nil {
			return n, err
		}
	}
	return n, nil
}

func readFile(name string, piece []byte, n *int64) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for off := int64(0); ; {
		got, err := f.ReadAt(piece, off)
		checksum = crc32.Update(checksum, castagnoli, piece[:got])
		off += int64(got)
		*n += int64(got)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// checksum keeps the compiler from removing the checksums of readFile.
var checksum uint32

// open measures how long opening a large log takes.
func (b *bench) open(ctx context.Context) (err error) {
	name, goal := "open/"+gibibytes(b.size.open), report.AtMost(200)
	if !b.wants(name) {
		return nil
	}
	free, err := freeBytes(b.dir)
	if err != nil {
		return err
	}
	if need := b.size.open*11/10 + 2<<30; free < need {
		why := fmt.Sprintf("it takes %s of free disk space and there is %s", gibibytes(need), gibibytes(free))
		b.report.Skip(name, "ms", why, goal)
		return nil
	}
	b.note("open a log of %s", gibibytes(b.size.open))
	dir := filepath.Join(b.dir, "open")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := b.write(ctx, dir, b.size.open, []mq.Record{{Body: make([]byte, 1<<20)}}); err != nil {
		return err
	}
	var took []time.Duration
	for range b.size.rounds {
		begin := time.Now()
		l, err := mq.Open(mq.Config{Dir: dir})
		took = append(took, time.Since(begin))
		if err != nil {
			return err
		}
		if err := cmp.Or(l.Close(), ctx.Err()); err != nil {
			return err
		}
	}
	slices.Sort(took)
	b.report.Add(name, took[len(took)/2].Seconds()*1000, "ms", goal)
	return nil
}

func gibibytes(n int64) string { return fmt.Sprintf("%.3gGiB", float64(n)/(1<<30)) }
