package xxljob

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
)

// maxKept is how long the file of an attempt is kept when no attempt of its run comes.
const maxKept = 7 * 24 * time.Hour

// call is one request to an executor and its result.
type call struct {
	LogID   int64  `json:"logId"`
	Address string `json:"address"`
	Began   int64  `json:"began"` // milliseconds
	Index   int    `json:"index"`
	Line    int    `json:"line"` // the next line of the log
	Done    bool   `json:"done"`
	Code    int    `json:"code"`
	Msg     string `json:"msg"`

	idleSince time.Time // zero: it was busy
	quiet     bool      // its log has ended
	noLog     bool      // the run's log says that this log cannot be read
}

// attempt is an attempt of a run: its calls, until they have results.
type attempt struct {
	App   string  `json:"app"`
	Job   string  `json:"job"`
	Run   string  `json:"run"`
	Part  int     `json:"part"`
	JobID int32   `json:"jobId"`
	Calls []*call `json:"calls"`

	live    bool          // a task waits for it
	changed chan struct{} // capacity 1: a call is done
	free    chan struct{} // closed when no task waits for it
}

func (a *attempt) key() string { return fmt.Sprintf("%s/%s/%d", a.App, a.Run, a.Part) }

// done reports whether all calls have results.
func (a *attempt) done() bool {
	for _, c := range a.Calls {
		if !c.Done {
			return false
		}
	}
	return len(a.Calls) > 0
}

// attempts holds the attempts whose results are not known, in memory and in files. Its lock
// guards the fields of all of them.
type attempts struct {
	dir string

	mu    sync.Mutex
	byKey map[string]*attempt
	byLog map[int64]*attempt
	last  int64 // the last log id
}

// openAttempts reads what an earlier process has left.
func openAttempts(dir string) (*attempts, error) {
	s := &attempts{dir: dir, byKey: map[string]*attempt{}, byLog: map[int64]*attempt{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		a := &attempt{}
		if err := json.Unmarshal(b, a); err != nil {
			return nil, fmt.Errorf("%s is damaged: remove it, and its run is started again: %w", file, err)
		}
		s.enterLocked(a)
	}
	return s, nil
}

// enterLocked adds an attempt that no task waits for.
func (s *attempts) enterLocked(a *attempt) {
	a.changed = make(chan struct{}, 1)
	s.byKey[a.key()] = a
	for _, c := range a.Calls {
		s.byLog[c.LogID] = a
		s.last = max(s.last, c.LogID)
	}
}

// take returns the attempt of a run for one task. If an earlier process has begun it, its calls
// are there already. While another task has it, take returns a channel that closes when it is free.
func (s *attempts) take(a *attempt) (_ *attempt, wait <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byKey[a.key()]
	switch {
	case old == nil:
		s.enterLocked(a)
		old = a
	case old.live:
		return nil, old.free
	}
	old.live, old.free = true, make(chan struct{})
	return old, nil
}

// release ends the wait of a task. The attempt is forgotten, unless a later task is to go on
// with it.
func (s *attempts) release(a *attempt, keep bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.live = false
	close(a.free)
	if keep {
		return s.saveLocked(a)
	}
	return s.dropLocked(a)
}

func (s *attempts) dropLocked(a *attempt) error {
	delete(s.byKey, a.key())
	for _, c := range a.Calls {
		delete(s.byLog, c.LogID)
	}
	if err := os.Remove(s.file(a)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// begin gives an attempt its calls and stores it before the first request.
func (s *attempts) begin(a *attempt, addresses []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now().UnixMilli()
	for i, address := range addresses {
		// Log ids increase over restarts, and stay below 2^53.
		s.last = max(s.last+1, now*1000)
		a.Calls = append(a.Calls, &call{LogID: s.last, Address: address, Began: now, Index: i, Line: 1})
		s.byLog[s.last] = a
	}
	return s.saveLocked(a)
}

// read runs f with the lock.
func (s *attempts) read(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *attempts) saveLocked(a *attempt) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return datadir.WriteFile(s.file(a), b, 0o600)
}

// file returns the name of the file of an attempt, which is short and has no name of a caller.
func (s *attempts) file(a *attempt) string {
	h := fnv.New64a()
	h.Write([]byte(a.key())) //nolint:errcheck // a hash never fails
	return filepath.Join(s.dir, fmt.Sprintf("%s-%016x.json", strings.ToLower(a.Run), h.Sum64()))
}

// settle stores the result of a call. It reports whether the call was known and had none.
func (s *attempts) settle(logID int64, code int, msg string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.byLog[logID]
	if a == nil {
		return false, nil
	}
	for _, c := range a.Calls {
		if c.LogID != logID || c.Done {
			continue
		}
		c.Done, c.Code, c.Msg = true, code, msg
		if err := s.saveLocked(a); err != nil {
			c.Done = false
			return false, err
		}
		select {
		case a.changed <- struct{}{}:
		default:
		}
		return true, nil
	}
	return false, nil
}

// expire forgets attempts that no task has taken for maxKept.
func (s *attempts) expire() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, a := range s.byKey {
		if !a.live && (len(a.Calls) == 0 || time.Since(time.UnixMilli(a.Calls[0].Began)) > maxKept) {
			errs = append(errs, s.dropLocked(a))
		}
	}
	return errors.Join(errs...)
}
