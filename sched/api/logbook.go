package api

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/sched/core"
	"github.com/wheelworkhq/wheelwork/store"
)

type runKey struct {
	app string
	id  job.RunID
}

// logbook numbers the lines of run logs and writes them to the store. It does not
// acknowledge lines, and a crash of the machine may lose the last ones. It is safe for
// concurrent use.
type logbook struct {
	store *store.Store
	hub   *core.Hub
	start time.Time

	mu   sync.Mutex
	next map[runKey]*lines // of the runs that have written lines lately, see forgetLines
	swap time.Time
}

type lines struct {
	next int64 // offset of the next line
	seen time.Time
}

// forgetLines is how long the position of a run that writes no lines stays in memory.
// Later, the next line makes the logbook read the position from the store.
const forgetLines = 10 * time.Minute

var levels = [...]string{"debug", "info", "warn", "error"}

func newLogbook(s *store.Store, h *core.Hub) *logbook {
	return &logbook{store: s, hub: h, start: time.Now(), next: map[runKey]*lines{}, swap: time.Now()}
}

// add appends the lines that a host has sent. After an error these lines may be lost, but
// the runs go on: the caller only writes the error to the server's own log.
func (b *logbook) add(logs []*apiv1.TaskLog) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.forget(now)
	var entries []store.LogEntry
	for _, t := range logs {
		if len(t.Run) != len(job.RunID{}) || len(t.Lines) == 0 {
			continue
		}
		k := runKey{t.App, job.RunID(t.Run)}
		at, err := b.position(k)
		if err != nil {
			return err
		}
		at.seen = now
		row := &apiv1.LogRow{}
		for _, line := range t.Lines {
			row.Lines = append(row.Lines, &apiv1.LogLine{
				Offset: at.next, Time: timestamppb.New(time.UnixMilli(line.TimeMs)), Attempt: t.Attempt,
				Level: levels[min(max(int(line.Level), 0), len(levels)-1)], Text: strings.ToValidUTF8(string(line.Text), "\uFFFD"),
			})
			at.next++
		}
		value, err := proto.Marshal(row)
		if err != nil {
			return err
		}
		entries = append(entries, store.LogEntry{App: t.App, Run: k.id, Offset: row.Lines[0].Offset, Count: len(row.Lines), Value: value})
	}
	if len(entries) == 0 {
		return nil
	}
	if err := b.store.AppendLog(entries); err != nil {
		return fmt.Errorf("keep the log of %d runs: %w", len(entries), err)
	}
	for _, e := range entries {
		b.hub.Notify(e.Run)
	}
	return nil
}

// position returns the offset of the next line of a run. The caller holds b.mu.
func (b *logbook) position(k runKey) (*lines, error) {
	if at := b.next[k]; at != nil {
		return at, nil
	}
	at := &lines{}
	// A run planned after this logbook was created has no earlier lines, and one that is
	// younger than forgetLines has not been forgotten: its log is empty.
	if planned := k.id.Planned(); planned.After(b.start) && time.Since(planned) < forgetLines/2 {
		b.next[k] = at
		return at, nil
	}
	err := b.store.Log(k.app, k.id, 0, func(e store.LogEntry) error {
		at.next = max(at.next, e.Offset+int64(e.Count))
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.next[k] = at
	return at, nil
}

func (b *logbook) forget(now time.Time) {
	if now.Sub(b.swap) < forgetLines {
		return
	}
	b.swap = now
	for k, at := range b.next {
		if now.Sub(at.seen) >= forgetLines {
			delete(b.next, k)
		}
	}
}

// read calls fn for the lines of a run from the offset from on, and returns the offset
// after the last line that fn has taken.
func (b *logbook) read(k runKey, from int64, fn func(*apiv1.LogLine) error) (int64, error) {
	next := from
	err := b.store.Log(k.app, k.id, from, func(e store.LogEntry) error {
		row := &apiv1.LogRow{}
		if err := proto.Unmarshal(e.Value, row); err != nil {
			return fmt.Errorf("decode log: %w", err)
		}
		for _, line := range row.Lines {
			if line.Offset < next {
				continue
			}
			if err := fn(line); err != nil {
				return err
			}
			next = line.Offset + 1
		}
		return nil
	})
	return next, err
}
