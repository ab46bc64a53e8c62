package delivery

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// stateVersion is the version of the state file. A program refuses one that it does not know.
const stateVersion = 1

// State is a file with the place up to where events were delivered. It is replaced as a whole.
type State struct {
	path string
	file stateFile
}

type stateFile struct {
	Version int `json:"version"`
	// After is the place behind the last delivered event of each partition, see [sdk.AuditPage].
	After string `json:"after"`
	// Since is that of the first start: a time ago means that one also after a restart.
	Since time.Time `json:"since,omitzero"`
	// The selection; events that another one would deliver are behind After already.
	App   string `json:"app,omitempty"`
	Actor string `json:"actor,omitempty"`
	Code  string `json:"code,omitempty"`
}

// OpenState reads a state file. One that does not exist is that of a first start. It fails if the file
// could not be replaced, before anything is delivered.
func OpenState(path string) (*State, error) {
	s := &State{path: path}
	probe, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err == nil {
		err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	}
	if err != nil {
		return nil, fmt.Errorf("--state: a file cannot be written in this directory: %w", err)
	}
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("read --state: %w", err)
	}
	if err := json.Unmarshal(b, &s.file); err != nil || s.file.After == "" {
		return nil, fmt.Errorf("read --state: %s is not a state file of this command: name another file, or remove it to deliver all events again", path)
	}
	if s.file.Version != stateVersion {
		return nil, fmt.Errorf("read --state: %s has version %d, and this program knows version %d: use the program that wrote it", path, s.file.Version, stateVersion)
	}
	return s, nil
}

func (s *State) after() string { return s.file.After }

// begin puts the time of the first start in a selection, and refuses another selection than the one of
// that start.
func (s *State) begin(q *sdk.AuditQuery) error {
	if s.file.After == "" {
		s.file = stateFile{Version: stateVersion, Since: q.Since, App: q.App, Actor: q.Actor, Code: q.Code}
		return nil
	}
	if s.file.App != q.App || s.file.Actor != q.Actor || s.file.Code != q.Code {
		return fmt.Errorf("the state %s is of another selection of events (--app %q --actor %q --code %q): give the same one, or another --state", s.path, s.file.App, s.file.Actor, s.file.Code)
	}
	q.Since = s.file.Since
	return nil
}

// save stores that events were delivered up to a place.
func (s *State) save(after string) error {
	next := s.file
	next.After = after
	b, err := json.Marshal(next)
	if err == nil {
		err = datadir.WriteFile(s.path, append(b, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write --state: %w", err)
	}
	s.file = next
	return nil
}
