package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/mq"
)

// Bounds of how a process ends. What it has cost nothing acknowledged: a process that
// does not end in order is one that was killed.
const (
	// failedPatience is for a process whose disk has failed: what waits for such a disk
	// may wait for ever.
	failedPatience = 3 * time.Second
	// probePause is how often a process that ends looks whether its disk still works.
	probePause = 500 * time.Millisecond
	// probePatience is how long a disk may take to answer one look.
	probePatience = 15 * time.Second
)

// faults keeps the first failure of some logs. A process may be idle, and then no
// caller meets it.
type faults struct {
	once  sync.Once
	came  chan struct{} // closed when there is one
	first error         // set before came is closed
}

func newFaults() *faults { return &faults{came: make(chan struct{})} }

// of returns what the log of that name reports its failure to.
func (f *faults) of(name string) func(error) {
	return func(err error) {
		f.once.Do(func() {
			f.first = fmt.Errorf("%w: %s: %w", mq.ErrReadOnly, name, err)
			close(f.came)
		})
	}
}

// err returns the failure, if there is one.
func (f *faults) err() error {
	select {
	case <-f.came:
		return f.first
	default:
		return nil
	}
}

// run returns with the failure.
func (f *faults) run(ctx context.Context) error {
	select {
	case <-f.came:
		return f.first
	case <-ctx.Done():
		return nil
	}
}

// finish calls end, which ends a process in order, for one that works in the data
// directory. It does not wait for end when the disk there fails or has failed: cause
// is why the process ends. The process has to exit then.
func finish(data string, cause error, end func() error) error {
	done := make(chan error, 1)
	go func() { done <- end() }()
	failed := make(chan error, 1)
	if isDiskFailure(cause) {
		failed <- cause
	} else {
		stop := make(chan struct{})
		defer close(stop)
		go func() { failed <- watchDisk(data, stop) }()
	}
	select {
	case err := <-done:
		return err
	case cause = <-failed:
	}
	select {
	case err := <-done:
		return err
	case <-time.After(failedPatience):
		return fmt.Errorf("the disk of %s has failed, and what waits for it was left: %w", data, cause)
	}
}

// isDiskFailure reports whether an error means that a disk has failed, not that it is
// full.
func isDiskFailure(err error) bool {
	for _, reason := range []error{mq.ErrReadOnly, syscall.EIO, syscall.EROFS, errNoAnswer} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

var errNoAnswer = errors.New("the disk does not answer")

// watchDisk looks again and again whether the disk of a data directory works, and returns
// when it does not, or with nil when stop is closed.
func watchDisk(data string, stop <-chan struct{}) error {
	for {
		looked := make(chan error, 1)
		go func() { looked <- tryDisk(data) }()
		select {
		case err := <-looked:
			if isDiskFailure(err) {
				return err
			}
		case <-time.After(probePatience):
			return errNoAnswer
		case <-stop:
			return nil
		}
		select {
		case <-time.After(probePause):
		case <-stop:
			return nil
		}
	}
}

// tryDisk syncs the lock file, which changes nothing.
func tryDisk(data string) error {
	f, err := os.OpenFile(filepath.Join(data, "lock"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
