package mq

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"
)

// watchPause is the longest time for which the files of an open log may be missing before
// the log fails. Until then it acknowledges records that no later Open will find.
const watchPause = time.Second

// runWatcher regularly checks that the log's files still exist and can be written, and
// fails the log otherwise. Without it, a process would write to a deleted file without an
// error, and an idle one would not notice that its disk has failed.
func (l *Log) runWatcher() {
	defer close(l.watched)
	for l.sleep(watchPause) {
		if err := l.lostFile(); err != nil {
			l.flusher.abort(err)
			return
		}
	}
}

// lostFile returns an error that names a lost file, or nil.
func (l *Log) lostFile() error {
	before := l.segments()
	names, err := l.disk.names()
	if isLoss(err) {
		return fmt.Errorf("list the segments: %w", err)
	}
	if err != nil {
		return nil // not the fault of the disk: too many open files, for example
	}
	after := l.segments()
	for _, s := range before {
		// A segment that is trimmed meanwhile is not in the second list.
		if !slices.Contains(names, s.name()) && slices.Contains(after, s) {
			return deleted(s)
		}
	}
	return l.flusher.lostActive()
}

func (l *Log) segments() []*segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.segs)
}

// lostActive returns an error if the active segment is lost.
func (f *flusher) lostActive() error {
	f.role.Lock()
	defer f.role.Unlock()
	f.l.mu.Lock()
	closed := f.l.closed || len(f.l.live) == 0
	var s *segment
	if !closed {
		s = f.l.live[0]
	}
	f.l.mu.Unlock()
	if closed || f.failed || s.file == nil {
		return nil
	}
	switch err := f.l.disk.holds(s.name(), s.file); {
	case errors.Is(err, fs.ErrNotExist): // since the segments were listed
		return deleted(s)
	case isLoss(err):
		return fmt.Errorf("%s cannot be written: %w", s.name(), err)
	}
	return nil
}

func deleted(s *segment) error {
	return fmt.Errorf("%s was deleted or renamed while the log was open", s.name())
}

// errOtherFile means that another file has the name now.
var errOtherFile = errors.New("it was replaced by another file while the log was open")

// isLoss reports whether an error means that a file or its disk is lost, and not a
// temporary lack of resources of the process.
func isLoss(err error) bool {
	for _, loss := range []error{errOtherFile, fs.ErrNotExist, syscall.EIO, syscall.EROFS, syscall.ESTALE, syscall.ENODEV} {
		if errors.Is(err, loss) {
			return true
		}
	}
	return false
}

// abort fails the log for a reason that no write has met.
func (f *flusher) abort(why error) {
	f.role.Lock()
	defer f.role.Unlock()
	if !f.failed {
		f.failed = true
		f.l.fail(why, nil)
		signal(f.l.wake)
	}
}
