package job

// A loop over many jobs or runs reads memory that is far apart, and a processor waits for
// several cache misses as long as for one. The functions in this file prefetch a group of
// objects before the loop reads them: each reads one byte of every cache line that the
// loop needs, for the whole group, before it follows the next pointer. The returned sums
// have no meaning; they only keep the compiler from removing the reads.

// Fetch prefetches the fields of jobs that their rows contain. It skips nil.
//
//go:noinline
func Fetch(jobs []*Job) (sum int64) {
	for _, j := range jobs {
		if j != nil {
			sum += j.lines()
		}
	}
	for _, j := range jobs {
		if j != nil && j.text != "" {
			sum += int64(j.text[0])
		}
	}
	return sum
}

// lines reads one byte of each cache line of a job. A job may begin anywhere in a line,
// so the bytes are at most 64 bytes apart.
func (j *Job) lines() int64 { return int64(len(j.text)) + j.Planned + int64(j.etag[0]) }

// lines reads one byte of each cache line of a run.
func (r *Run) lines() int64 {
	return int64(r.ID[0]) + r.PlannedMs + int64(r.Attempt) + int64(len(r.Output)) + int64(len(r.Error)) + int64(r.Revision) +
		int64(r.Mark) + r.first[0].FinishedMs + int64(len(r.spec.own))
}

// FetchRuns prefetches the fields of runs and of their jobs that the loop reads to decide
// whether a run may be dispatched, or changes when the run ends. It skips nil.
//
//go:noinline
func FetchRuns(runs []*Run) (sum int64) {
	for _, r := range runs {
		if r != nil {
			sum += r.lines()
		}
	}
	for _, r := range runs {
		if r != nil && r.owner != nil {
			sum += r.owner.lines()
		}
	}
	for _, r := range runs {
		if r != nil && len(r.Job) > 0 {
			sum += int64(r.Job[0])
		}
	}
	return sum
}

// Wanted is a job that the caller is about to look up by Slot and Name.
type Wanted struct {
	Slot *Slot // nil: no job
	Name string
	Key  [16]byte // an idempotency key that the caller is about to look up in Slot

	hash uint32
	job  *Job // the first job with that hash
}

// FetchByName prefetches what a look-up of each job and key reads in the common case.
//
//go:noinline
func FetchByName(wanted []Wanted) (sum uint64) {
	for i := range wanted {
		w := &wanted[i]
		if w.Slot == nil {
			continue
		}
		w.hash = hashOf(w.Name)
		k, h := &w.Slot.keys, mixed(w.Key)
		sum += w.Slot.Jobs.table.Load(w.hash) + k.young.Load(h) + k.old.Load(h)
	}
	for i := range wanted {
		if w := &wanted[i]; w.Slot != nil {
			t := &w.Slot.Jobs.table
			w.job = t.At(t.First(w.hash))
		}
	}
	for i := range wanted {
		if j := wanted[i].job; j != nil {
			sum += uint64(j.lines())
		}
	}
	for i := range wanted {
		if j := wanted[i].job; j != nil && j.text != "" {
			sum += uint64(j.text[0])
		}
	}
	return sum
}

// WantedRun is a live run that the caller is about to look up by Slot and ID.
type WantedRun struct {
	Slot *Slot // nil: no run
	ID   RunID

	run *Run // the first run with the hash of ID
}

// Get looks up the run. It returns nil if there is none.
func (w WantedRun) Get() *Run {
	if w.Slot == nil {
		return nil
	}
	return w.Slot.Runs.Get(w.ID)
}

// FetchByID prefetches what a look-up of each run reads in the common case.
//
//go:noinline
func FetchByID(wanted []WantedRun) (sum uint64) {
	for i := range wanted {
		w := &wanted[i]
		if w.Slot == nil {
			continue
		}
		sum += w.Slot.Runs.table.Load(mixed(w.ID))
	}
	for i := range wanted {
		if w := &wanted[i]; w.Slot != nil {
			t := &w.Slot.Runs.table
			w.run = t.At(t.First(mixed(w.ID)))
		}
	}
	for i := range wanted {
		if r := wanted[i].run; r != nil {
			sum += uint64(r.ID[0])
		}
	}
	return sum
}
