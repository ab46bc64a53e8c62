package job

import (
	"iter"
	"slices"

	"github.com/wheelworkhq/wheelwork/internal/prefetch"
)

// This file has the loops over many jobs or runs, which prefetch the memory of their
// objects: see [prefetch.Each].
//
// Gain: with a million jobs, the row e2e/waiting1024 of bench/sched was 1.2 to 1.6 times as
// high in three pairs of runs, and reading every cache line raised e2e/batch100 to 1.04 in
// four more. In BenchmarkPrefetch a job takes 0.67 of the time of a loop without prefetch.

// EachJob yields jobs after it has prefetched the fields that their rows contain.
func EachJob(jobs []*Job) iter.Seq2[int, *Job] { return prefetch.Each(jobs, readJobs) }

// EachRun yields runs after it has prefetched their fields and those of their jobs that
// decide whether a run may be dispatched, or that change when the run ends.
func EachRun(runs []*Run) iter.Seq2[int, *Run] { return prefetch.Each(runs, readRuns) }

// EachEffect yields effects after it has prefetched their runs as [EachRun] does.
func EachEffect(fx []Effect) iter.Seq[*Effect] {
	return func(yield func(*Effect) bool) {
		var runs [prefetch.Group]*Run
		for group := range slices.Chunk(fx, prefetch.Group) {
			for i := range group {
				runs[i] = group[i].Run
			}
			readRuns(runs[:len(group)])
			for i := range group {
				if !yield(&group[i]) {
					return
				}
			}
		}
	}
}

// Wanted names a job and an idempotency key that are about to be looked up in a slot.
type Wanted struct {
	Slot *Slot // nil: there is no job
	Name string
	Key  [16]byte

	hash uint32
	job  *Job // the first job with that hash, which is nearly always the one with that name
}

// FindJobs yields, with the index of each item, the job that want sets in an empty Wanted;
// nil: there is none. It prefetches what the look-ups of the jobs and of the keys read, and
// the fields of the jobs.
func FindJobs[T any](items []T, want func(*T, *Wanted)) iter.Seq2[int, *Job] {
	return func(yield func(int, *Job) bool) {
		var wanted [prefetch.Group]Wanted
		for from := 0; from < len(items); from += prefetch.Group {
			group := items[from:min(from+prefetch.Group, len(items))]
			for i := range group {
				wanted[i] = Wanted{}
				want(&group[i], &wanted[i])
			}
			readWanted(wanted[:len(group)])
			for i := range group {
				var j *Job
				if w := &wanted[i]; w.Slot != nil {
					j = w.Slot.Jobs.Get(w.Name)
				}
				if !yield(from+i, j) {
					return
				}
			}
		}
	}
}

// FindRuns yields, with the index of each item, the live run that want returns by its slot
// and id; nil: there is none, or the slot is nil. It prefetches the items with read, what
// the look-ups read, and the runs as [EachRun] does. It has looked up the runs of a group
// before it yields the first one.
func FindRuns[T any](items []T, read func([]T) (sum int64), want func(T) (*Slot, RunID)) iter.Seq2[int, *Run] {
	return func(yield func(int, *Run) bool) {
		var lookups [prefetch.Group]runLookup
		var runs [prefetch.Group]*Run
		for from := 0; from < len(items); from += prefetch.Group {
			group := items[from:min(from+prefetch.Group, len(items))]
			read(group)
			for i, item := range group {
				lookups[i].slot, lookups[i].id = want(item)
			}
			readRunLookups(lookups[:len(group)])
			for i := range group {
				runs[i] = nil
				if l := &lookups[i]; l.slot != nil {
					runs[i] = l.slot.Runs.Get(l.id)
				}
			}
			readRuns(runs[:len(group)])
			for i := range group {
				if !yield(from+i, runs[i]) {
					return
				}
			}
		}
	}
}

// PrefetchRuns prefetches up to [prefetch.Group] runs as [EachRun] does, and what their
// look-ups by id read. It is for a loop that takes its runs from a queue.
func PrefetchRuns(runs []*Run) {
	readRuns(runs)
	var room [prefetch.Group]runLookup
	for i, r := range runs {
		room[i] = runLookup{slot: r.slot, id: r.ID}
	}
	readRunLookups(room[:len(runs)])
}

// read reads one byte of each cache line of a job. A job may begin anywhere in a line, so
// the bytes are at most 64 bytes apart.
func (j *Job) read() int64 { return int64(len(j.text)) + j.Planned + int64(j.etag[0]) }

// read reads one byte of each cache line of a run.
func (r *Run) read() int64 {
	return int64(r.ID[0]) + r.PlannedMs + int64(r.Attempt) + int64(len(r.Output)) + int64(len(r.Error)) + int64(r.Revision) +
		int64(r.Mark) + r.first[0].FinishedMs + int64(len(r.spec.own))
}

// readJobs reads jobs and their texts. It skips nil.
//
//go:noinline
func readJobs(jobs []*Job) (sum int64) {
	for _, j := range jobs {
		if j != nil {
			sum += j.read()
		}
	}
	for _, j := range jobs {
		if j != nil && j.text != "" {
			sum += int64(j.text[0])
		}
	}
	return sum
}

// readRuns reads runs and their jobs. It skips nil.
//
//go:noinline
func readRuns(runs []*Run) (sum int64) {
	for _, r := range runs {
		if r != nil {
			sum += r.read()
		}
	}
	for _, r := range runs {
		if r != nil && r.owner != nil {
			sum += r.owner.read()
		}
	}
	for _, r := range runs {
		if r != nil && len(r.Job) > 0 {
			sum += int64(r.Job[0])
		}
	}
	return sum
}

// readWanted reads what the look-ups read, one step of all look-ups after another.
//
//go:noinline
func readWanted(wanted []Wanted) (sum int64) {
	for i := range wanted {
		w := &wanted[i]
		if w.Slot == nil {
			continue
		}
		w.hash = hashOf(w.Name)
		sum += int64(w.Slot.Jobs.table.Load(w.hash)) + w.Slot.keys.read(w.Key)
	}
	for i := range wanted {
		if w := &wanted[i]; w.Slot != nil {
			t := &w.Slot.Jobs.table
			w.job = t.At(t.First(w.hash))
		}
	}
	for i := range wanted {
		if j := wanted[i].job; j != nil {
			sum += j.read()
		}
	}
	for i := range wanted {
		if j := wanted[i].job; j != nil && j.text != "" {
			sum += int64(j.text[0])
		}
	}
	return sum
}

// read reads the cells where a look-up of a key begins.
func (k *keys) read(hash [16]byte) int64 {
	h := mixed(hash)
	return int64(k.young.Load(h) + k.old.Load(h))
}

// runLookup is a look-up of a live run by id.
type runLookup struct {
	slot *Slot // nil: no run
	id   RunID

	hash uint32
	run  *Run // the first run with that hash
}

// readRunLookups reads what the look-ups read, one step of all look-ups after another.
//
//go:noinline
func readRunLookups(lookups []runLookup) (sum int64) {
	for i := range lookups {
		if l := &lookups[i]; l.slot != nil {
			l.hash = mixed(l.id)
			sum += int64(l.slot.Runs.table.Load(l.hash))
		}
	}
	for i := range lookups {
		l := &lookups[i]
		if l.run = nil; l.slot != nil {
			t := &l.slot.Runs.table
			l.run = t.At(t.First(l.hash))
		}
	}
	for i := range lookups {
		if r := lookups[i].run; r != nil {
			sum += int64(r.ID[0])
		}
	}
	return sum
}
