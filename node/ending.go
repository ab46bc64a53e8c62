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

// Bounds for the end of a process. A process that does not end in order loses nothing
// that was acknowledged: it is like one that was killed.
const (
	// failedPatience is for a process whose disk has failed: an operation on such a disk
	// may never return.
	failedPatience = 3 * time.Second
	// probePause is the time between two checks of the disk while a process ends.
	probePause = 500 * time.Millisecond
	// probePatience is how long one check of the disk may take.
	probePatience = 15 * time.Second
)

// faults records the first failure of some logs. An idle process has no caller that would
// meet the failure, so it must be watched.
type faults struct {
	once  sync.Once
	came  chan struct{} // closed after the first failure
	first error         // set before came is closed
}

func newFaults() *faults { return &faults{came: make(chan struct{})} }

// of returns the function to which the log of that name reports its failure.
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

// run waits for a failure and returns it; nil when ctx ends first.
func (f *faults) run(ctx context.Context) error {
	select {
	case <-f.came:
		return f.first
	case <-ctx.Done():
		return nil
	}
}

// finish calls end, which ends a process in order. data is the data directory of the
// process, and cause is why it ends. If the disk of data has failed, or fails meanwhile,
// finish waits for end only failedPatience longer; then the process must exit.
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

// isDiskFailure reports whether an error means that a disk has failed. A full disk has
// not.
func isDiskFailure(err error) bool {
	for _, reason := range []error{mq.ErrReadOnly, syscall.EIO, syscall.EROFS, errNoAnswer} {
		if errors.Is(err, reason) {
			return true
		}
	}
	return false
}

var errNoAnswer = errors.New("the disk does not answer")

// watchDisk checks the disk of a data directory again and again. It returns an error when
// the disk does not work, and nil when stop is closed.
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
