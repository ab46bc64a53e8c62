package delivery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// file appends events to a file, as lines of JSON. A file that was moved away is made anew.
type file struct {
	path string
	f    *os.File
}

// NewFile returns the receiver that appends to a file. fresh: the file must not exist. A last line without
// an end is removed: it was being written when the process ended, and its event is delivered again.
func NewFile(path string, fresh bool) (Receiver, error) {
	f := &file{path: path}
	flags := os.O_RDWR | os.O_CREATE | os.O_APPEND
	if fresh {
		flags |= os.O_EXCL
	}
	return f, f.open(flags)
}

func (f *file) open(flags int) (err error) {
	if f.f, err = os.OpenFile(f.path, flags, 0o600); err != nil {
		return fmt.Errorf("write the events: %w", err)
	}
	if err := cutTail(f.f); err != nil {
		return errors.Join(fmt.Errorf("write the events: %w", err), f.f.Close())
	}
	return nil
}

// cutTail removes an incomplete last line.
func cutTail(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	const step = 64 << 10
	for end := info.Size(); end > 0; {
		from := max(end-step, 0)
		b := make([]byte, end-from)
		if _, err := f.ReadAt(b, from); err != nil {
			return err
		}
		if at := bytes.LastIndexByte(b, '\n'); at >= 0 {
			return f.Truncate(from + int64(at) + 1)
		}
		end = from
	}
	return f.Truncate(0)
}

// Deliver implements [Receiver].
func (f *file) Deliver(_ context.Context, events []*sdk.AuditEvent) (int, error) {
	text, err := lines(events)
	if err != nil {
		return 0, err
	}
	if err := f.follow(); err != nil {
		return 0, err
	}
	if _, err := f.f.Write(text); err != nil {
		return 0, errors.Join(fmt.Errorf("write the events: %w", err), cutTail(f.f))
	}
	if err := f.f.Sync(); err != nil {
		return 0, fmt.Errorf("write the events: %w", err)
	}
	return len(events), nil
}

// follow opens the file again if another one, or none, has its name now.
func (f *file) follow() error {
	there, err := os.Stat(f.path)
	if err == nil {
		own, err := f.f.Stat()
		if err == nil && os.SameFile(there, own) {
			return nil
		}
	}
	old := f.f
	if err := f.open(os.O_RDWR | os.O_CREATE | os.O_APPEND); err != nil {
		f.f = old
		return err
	}
	return old.Close()
}

// Close implements [Receiver].
func (f *file) Close() error { return f.f.Close() }

// stream writes events to a stream, as lines of JSON.
type stream struct{ w io.Writer }

// NewStream returns the receiver that writes to w.
func NewStream(w io.Writer) Receiver { return stream{w} }

// Deliver implements [Receiver].
func (s stream) Deliver(_ context.Context, events []*sdk.AuditEvent) (int, error) {
	text, err := lines(events)
	if err == nil {
		if _, failed := s.w.Write(text); failed != nil { // what it has is unknown
			err = final("write the events: %v", failed)
		}
	}
	if err != nil {
		return 0, err
	}
	return len(events), nil
}

// Close implements [Receiver].
func (stream) Close() error { return nil }
