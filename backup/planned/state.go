package planned

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/wheelworkhq/wheelwork/internal/datadir"
)

// Board is what the servers of a cluster share about their backups.
type Board interface {
	// Leads reports whether this server makes the backups.
	Leads(context.Context) (bool, error)
	// Load returns what Save has kept; nil: nothing.
	Load(context.Context) ([]byte, error)
	Save(context.Context, []byte) error
}

// Alone is the board of a server in no cluster: it makes its own backups.
type Alone struct{ File datadir.File }

// Leads implements [Board].
func (Alone) Leads(context.Context) (bool, error) { return true, nil }

// Load implements [Board].
func (a Alone) Load(context.Context) ([]byte, error) { return a.File.Load() }

// Save implements [Board].
func (a Alone) Save(_ context.Context, state []byte) error { return a.File.Save(state) }

// State is what outlives the server that makes the backups.
type State struct {
	Schedule string    `json:"schedule,omitempty"` // to which Done belongs
	Done     time.Time `json:"done,omitzero"`      // planned times up to this one are dealt with
	Last     *Made     `json:"last,omitempty"`     // the last backup that was verified
	Drill    *Drill    `json:"drill,omitempty"`    // the last one
	Error    string    `json:"error,omitempty"`    // of the last attempt
	FailedAt time.Time `json:"failed_at,omitzero"`
	Failures int64     `json:"failures,omitempty"` // since the last success
}

// Made is a backup that was verified.
type Made struct {
	File      string    `json:"file"`
	Bytes     int64     `json:"bytes"`
	Encrypted bool      `json:"encrypted"`
	Began     time.Time `json:"began"`
	Ended     time.Time `json:"ended"`
	Server    string    `json:"server"` // that made it
}

// The results of a drill.
const (
	Passed = "passed"
	Failed = "failed"
	// Read means that the whole backup was read back and not restored.
	Read = "read"
)

// Drill is the restore of a backup to a temporary directory.
type Drill struct {
	Result string    `json:"result"`
	Reason string    `json:"reason,omitempty"` // of a result other than Passed
	File   string    `json:"file"`
	Began  time.Time `json:"began"`
	Ended  time.Time `json:"ended"`
	Found
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Found counts what a server has that opens a restored directory.
type Found struct {
	Partitions int   `json:"partitions"`
	Jobs       int64 `json:"jobs"`
	Live       int64 `json:"live_runs"`  // runs that have not ended
	Ended      int64 `json:"ended_runs"` // in the history
	Modules    int64 `json:"modules"`
}

func load(ctx context.Context, b Board) (s State, err error) {
	text, err := b.Load(ctx)
	if err == nil && len(text) > 0 {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read the state of the backups: %w", err)
	}
	return s, nil
}

func save(ctx context.Context, b Board, s State) error {
	text, err := json.Marshal(s)
	if err == nil {
		err = b.Save(ctx, text)
	}
	if err != nil {
		return fmt.Errorf("write the state of the backups: %w", err)
	}
	return nil
}
