package projection

import (
	"slices"

	"github.com/wheelworkhq/wheelwork/job"
)

// finished has runs that have ended and are not in the history yet. Only the loop and the
// writer read its rows, so their buffers can be used again. Other rows of a batch are
// written to the same buffers.
type finished struct {
	runs  []ended
	rows  map[job.RunID]int // index in runs, of the first len(rows) runs: row adds the others
	room  []byte            // buffer for the next rows: the last one of used
	used  [][]byte          // buffers with rows
	spare [][]byte          // buffers without rows

	common [8]common // the last eight shared parts that were written
	next   int       // number of shared parts that were written, which gives the index of the next one
}

// common is a part of a row that several runs share, and one of these runs.
type common struct {
	run  *job.Run
	part []byte
}

func newFinished() finished { return finished{rows: map[job.RunID]int{}} }

// ended is a run with its row, which is shared followed by own.
type ended struct {
	run         *job.Run
	shared, own []byte
}

// rowRoom is the size of a buffer for rows, in bytes.
const rowRoom = 256 << 10

func (f *finished) add(r *job.Run) error {
	shared, err := f.shared(r)
	if err != nil {
		return err
	}
	own, err := f.write(ownOf{r})
	if err != nil {
		return err
	}
	f.runs = append(f.runs, ended{r, shared, own})
	return nil
}

// shared returns the part of a row that other runs share. It is written once for many runs,
// so that a run takes 0.5 of the bytes of the history (history/bytes of bench/sched, ADR
// 30).
func (f *finished) shared(r *job.Run) ([]byte, error) {
	for i := range f.common {
		if c := &f.common[i]; c.run != nil && c.run.Shares(r) {
			return c.part, nil
		}
	}
	part, err := f.write(sharedOf{r})
	f.common[f.next%len(f.common)] = common{r, part}
	f.next++
	return part, err
}

// appender appends a row of the store that is encoded by hand (ADR 23).
type appender interface {
	AppendRow(b []byte) ([]byte, error)
}

// statsOf appends the row with the stats of a job.
type statsOf struct{ *job.Job }

func (s statsOf) AppendRow(b []byte) ([]byte, error) { return s.AppendStats(b) }

// sharedOf and ownOf append the two parts of the row of a run.
type (
	sharedOf struct{ *job.Run }
	ownOf    struct{ *job.Run }
)

func (r sharedOf) AppendRow(b []byte) ([]byte, error) { return r.AppendShared(b), nil }
func (r ownOf) AppendRow(b []byte) ([]byte, error)    { return r.AppendOwn(b) }

// write encodes a row. The result is valid until forget.
func (f *finished) write(r appender) ([]byte, error) {
	if cap(f.room)-len(f.room) < 1<<10 {
		f.room = nil
		if n := len(f.spare); n > 0 {
			f.room, f.spare = f.spare[n-1], f.spare[:n-1]
		} else {
			f.room = make([]byte, 0, rowRoom)
		}
		f.used = append(f.used, f.room)
	}
	from := len(f.room)
	b, err := r.AppendRow(f.room)
	if err != nil {
		return nil, err
	}
	if cap(b) == cap(f.room) { // otherwise the row did not fit and has an array of its own
		f.room = b
	}
	return b[from:len(b):len(b)], nil
}

// row returns the row of a run; nil: f does not have it.
func (f *finished) row(app string, id job.RunID) []byte {
	for i := len(f.rows); i < len(f.runs); i++ {
		f.rows[f.runs[i].run.ID] = i
	}
	if i, ok := f.rows[id]; ok && f.runs[i].run.App == app {
		return slices.Concat(f.runs[i].shared, f.runs[i].own)
	}
	return nil
}

// forget empties f, and its rows become invalid. It retains the buffers that had rows, and
// releases the others.
func (f *finished) forget() {
	clear(f.runs)
	f.runs, f.room = f.runs[:0], nil
	clear(f.common[:])
	clear(f.rows)
	f.spare, f.used = f.used, emptied(f.spare)
}
