package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
	"github.com/wheelworkhq/wheelwork/mq"
)

// device measures the bytes that reach the device for each durable message of one
// producer, for each writer of the log.
func (b *bench) device(ctx context.Context) (err error) {
	row := func(writer string) string { return "device-bytes/append/" + writer }
	var writers []string
	for _, w := range []string{"pwrite", "mmap", "direct"} {
		if b.wants(row(w)) {
			writers = append(writers, w)
		}
	}
	if len(writers) == 0 {
		return nil
	}
	c, err := b.openCounter(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	b.note("bytes that reach the device: %s", c.what)
	goal := report.AtMost(1.25 * 4096)
	for _, w := range writers {
		n, err := b.bytesPerAppend(ctx, c, w)
		if why := skipped(""); errors.As(err, &why) {
			b.report.Skip(row(w), "B", string(why), goal)
			continue
		}
		if err != nil {
			return err
		}
		b.report.Add(row(w), n, "B", goal)
		b.report.Note(c.what)
	}
	return nil
}

func (b *bench) bytesPerAppend(ctx context.Context, c *counter, writer string) (_ float64, err error) {
	dir := filepath.Join(c.dir, writer)
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := mq.Open(mq.Config{Dir: dir, Writer: writer, SegmentBytes: 8 << 20, ReserveBytes: -1})
	if err != nil {
		return 0, skipped(fmt.Sprintf("the log does not open with this writer here: %v", err))
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	recs := records(bodies(0, 1))
	if _, err := l.Write(recs); err != nil {
		return 0, err
	}
	if err := c.settle(ctx); err != nil { // the log fills its next segment meanwhile
		return 0, err
	}
	before, err := c.read()
	if err != nil {
		return 0, err
	}
	for range b.size.appends {
		if _, err := l.Write(recs); err != nil {
			return 0, err
		}
	}
	after, err := c.read()
	return float64(after-before) / float64(b.size.appends), err
}

// counter counts the bytes that are written to the device below dir.
type counter struct {
	dir   string
	what  string
	read  func() (int64, error)
	close func() error
}

// settle returns when nothing has been written for 200 ms.
func (c *counter) settle(ctx context.Context) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	const quiet, patience = 10, 500 // ticks
	last, since := int64(-1), 0
	for range patience {
		n, err := c.read()
		if err != nil {
			return err
		}
		if n != last {
			last, since = n, 0
		} else if since++; since == quiet {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("the device does not become idle")
}

// openCounter returns a counter of a new file system if it can. The device of that file
// system counts all of its writes, including its journal, and no others. Mounting it
// needs root. Otherwise the counter uses the I/O statistics of the kernel for this
// process, which do not include the journal.
func (b *bench) openCounter(ctx context.Context) (*counter, error) {
	c, err := b.openLoop(ctx)
	if err == nil {
		return c, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	b.note("no file system of its own for the bytes that reach the device: %v", err)
	return &counter{
		dir: b.dir, what: "by the kernel's account of the process, without the journal of the file system",
		read: func() (int64, error) {
			text, err := os.ReadFile("/proc/self/io")
			if err != nil {
				return 0, err
			}
			return strconv.ParseInt(report.Field(text, "write_bytes"), 10, 64)
		},
		close: func() error { return nil },
	}, nil
}

// openLoop mounts a new ext4 file system whose image is a file in the directory to
// measure.
func (b *bench) openLoop(ctx context.Context) (_ *counter, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("only root can mount one")
	}
	image, dir := filepath.Join(b.dir, "ext4"), filepath.Join(b.dir, "loop")
	f, err := os.Create(image)
	if err != nil {
		return nil, err
	}
	// The image is written completely, so that it neither grows nor has holes.
	if err := errors.Join(fill(f, 128<<20), f.Close(), os.Mkdir(dir, 0o755)); err != nil {
		return nil, err
	}
	const atOnce = "lazy_itable_init=0,lazy_journal_init=0,nodiscard" // mkfs leaves no work for later
	if _, err := command(ctx, "mkfs.ext4", "-q", "-F", "-E", atOnce, image); err != nil {
		return nil, err
	}
	if _, err := command(ctx, "mount", "-o", "loop", image, dir); err != nil {
		return nil, err
	}
	unmount := func() error {
		_, err := command(context.WithoutCancel(ctx), "umount", dir)
		return errors.Join(err, os.Remove(image))
	}
	device, err := command(ctx, "findmnt", "-n", "-o", "SOURCE", dir)
	if err != nil {
		return nil, errors.Join(err, unmount())
	}
	stat := filepath.Join("/sys/class/block", filepath.Base(device), "stat")
	return &counter{
		dir: dir, what: "by a device of its own with ext4, the journal included",
		read:  func() (int64, error) { return writtenBytes(stat) },
		close: unmount,
	}, nil
}

// writtenBytes reads the seventh number of a device's stat file: written sectors of 512
// bytes.
func writtenBytes(stat string) (int64, error) {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0, err
	}
	numbers := strings.Fields(string(text))
	if len(numbers) < 7 {
		return 0, fmt.Errorf("%s has %d numbers, want at least 7", stat, len(numbers))
	}
	sectors, err := strconv.ParseInt(numbers[6], 10, 64)
	return sectors * 512, err
}

func command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return strings.TrimSpace(string(out)), nil
}
