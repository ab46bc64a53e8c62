package store

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// LogEntry holds some lines of a run, in the caller's encoding.
type LogEntry struct {
	App    string
	Run    [16]byte
	Offset int64 // number of its first line in the log of the run, from 0
	Count  int   // number of lines
	Value  []byte
}

// byLog is the kind of the look-up of a run's lines: app, id.
const byLog = 'l'

func logKey(app string, run [16]byte) uint64 { return lookup{byLog, app, string(run[:]), ""}.hash() }

// blockEntries and blockBytes limit a block of the logs.
const (
	blockEntries = 1000
	blockBytes   = 1 << 20
)

// entryHead is the size of the key, offset, line count and value length of an entry.
const entryHead = 8 + 8 + 4 + 4

// AppendLog appends lines. The caller passes the entries of one run in the order of their
// offsets, each line once. AppendLog does not sync: lines survive a crash of the process,
// but a power cut may lose those since the last snapshot. After [ErrFull] nothing was
// written.
func (s *Store) AppendLog(entries []LogEntry) error {
	if len(entries) == 0 {
		return nil
	}
	blocks, err := logBlocks(entries, time.Now().UnixMilli())
	if err == nil {
		err = s.guard.check(blocksSize(blocks))
	}
	if err == nil {
		_, err = s.logs.Append(blocks...)
	}
	if err != nil {
		return fmt.Errorf("store: append log: %w", fullOr(err))
	}
	return nil
}

// logBlocks encodes entries. Payload of a block, little endian, for each entry:
// key of the run (8), offset (8), lines (4), length of the value (4), value.
func logBlocks(entries []LogEntry, nowMs int64) ([]segment.Block, error) {
	var blocks []segment.Block
	b := segment.Block{Min: nowMs, Max: nowMs}
	n := 0
	flush := func() {
		slices.Sort(b.Keys)
		b.Keys = slices.Compact(b.Keys)
		blocks = append(blocks, b)
		b, n = segment.Block{Min: nowMs, Max: nowMs}, 0
	}
	for i := range entries {
		e := &entries[i]
		if e.Offset < 0 || e.Count < 0 || e.Count > math.MaxInt32 || len(e.Value) > maxValue {
			return nil, fmt.Errorf("an entry at line %d of %d lines and %d bytes: out of range", e.Offset, e.Count, len(e.Value))
		}
		if n > 0 && (n == blockEntries || len(b.Payload)+len(e.Value) > blockBytes) {
			flush()
		}
		key := logKey(e.App, e.Run)
		b.Keys = append(b.Keys, key)
		b.Payload = appendEntry(b.Payload, key, e)
		n++
	}
	flush()
	return blocks, nil
}

func appendEntry(dst []byte, key uint64, e *LogEntry) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint64(dst, key)
	dst = le.AppendUint64(dst, uint64(e.Offset))
	dst = le.AppendUint32(dst, uint32(e.Count))
	dst = le.AppendUint32(dst, uint32(len(e.Value)))
	return append(dst, e.Value...)
}

// entriesOf returns the entries of a key in a block, without App and Run. Their values
// are copies.
func entriesOf(b segment.Block, key uint64) ([]LogEntry, error) {
	le := binary.LittleEndian
	var entries []LogEntry
	for p := b.Payload; len(p) > 0; {
		if len(p) < entryHead || int64(len(p)-entryHead) < int64(le.Uint32(p[20:])) {
			return nil, fmt.Errorf("log block at %d: its entries do not fit it: %w", b.Pos, segment.ErrCorrupt)
		}
		end := entryHead + int(le.Uint32(p[20:]))
		if le.Uint64(p) == key {
			entries = append(entries, LogEntry{
				Offset: int64(le.Uint64(p[8:])),
				Count:  int(le.Uint32(p[16:])),
				Value:  append([]byte{}, p[entryHead:end]...),
			})
		}
		p = p[end:]
	}
	return entries, nil
}

// Log calls fn, in order, for the entries of a run that hold lines from the line from on.
// An error of fn ends the walk and is returned. The cost of following a log depends on
// its new lines, not on its length. Reading a whole log takes memory for the positions of
// its blocks, not for its lines. A run with a [Removal] has no lines.
func (s *Store) Log(app string, run [16]byte, from int64, fn func(LogEntry) error) error {
	if s.removed.n.Load() > 0 {
		if _, ok := s.mark(lookup{byApp, app, "", ""}.hash(), run); ok {
			return nil
		}
	}
	key := logKey(app, run)
	err := s.walkLog(key, from, s.retention.of(app).logsFrom(), func(e LogEntry) error {
		e.App, e.Run = app, run
		return fn(e)
	})
	if err != nil {
		return fmt.Errorf("store: log: %w", err)
	}
	return nil
}

// walkLog is Log without the lines of blocks that are all from before a time (Unix ms).
func (s *Store) walkLog(key uint64, from, gone int64, fn func(LogEntry) error) error {
	positions, err := s.logPositions(key, from, gone)
	if err != nil {
		return err
	}
	for _, pos := range slices.Backward(positions) {
		entries, err := s.logBlock(key, pos)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Offset+int64(e.Count) <= from {
				continue
			}
			if err := fn(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// logPositions returns the positions of the blocks that hold lines of the run from the
// line from on, newest first. Blocks that are all from before gone are left out.
func (s *Store) logPositions(key uint64, from, gone int64) (positions []int64, err error) {
	for b, err := range s.logs.Find([][]uint64{{key}}, segment.End) {
		if isDamage(err) {
			s.cfg.Logger.Warn("store: lines of a run cannot be read", "error", err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if b.Max < gone {
			break
		}
		entries, err := entriesOf(b, key)
		if err != nil {
			return nil, err
		}
		if len(entries) == 0 {
			continue
		}
		last := entries[len(entries)-1]
		if last.Offset+int64(last.Count) <= from {
			break // this block and all before it are older
		}
		positions = append(positions, b.Pos)
		if entries[0].Offset <= from {
			break
		}
	}
	return positions, nil
}

// logBlock reads the entries of the block at pos. It returns none if retention has
// removed the block meanwhile.
func (s *Store) logBlock(key uint64, pos int64) ([]LogEntry, error) {
	for b, err := range s.logs.Find([][]uint64{{key}}, pos+1) {
		if err != nil {
			return nil, err
		}
		if b.Pos != pos {
			break
		}
		return entriesOf(b, key)
	}
	return nil, nil
}

// SyncHistory syncs the committed finished runs.
func (s *Store) SyncHistory() error {
	if err := s.history.Sync(); err != nil {
		return fmt.Errorf("store: sync history: %w", err)
	}
	return nil
}
