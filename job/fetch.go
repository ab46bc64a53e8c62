package job

// What a loop is about to look at of many jobs and runs is somewhere else in
// memory for each of them, and a processor waits for several places as long as
// for one. So whoever goes through many has those fetched together that come
// next: each function here reads one byte of each line of memory that will be
// needed, of all that are given, before it comes to what they refer to. What it
// returns means nothing.

// Fetch reads of jobs what their rows are made of; nil is none.
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

// lines reads a byte of each line that a job lies in, which may begin anywhere in
// one: no two of them are more than 64 bytes apart.
func (j *Job) lines() int64 { return int64(len(j.text)) + j.Planned + int64(j.etag[0]) }

// lines reads a byte of each line that a run lies in.
func (r *Run) lines() int64 {
	return int64(r.ID[0]) + r.PlannedMs + int64(r.Attempt) + int64(len(r.Output)) + int64(len(r.Error)) + int64(r.Revision) +
		int64(r.Mark) + r.first[0].FinishedMs + int64(len(r.spec.own))
}

// FetchRuns reads of runs and their jobs what decides whether they may be sent,
// and what their end changes; nil is none.
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

// Wanted is a job that is about to be looked up: Slot and Name say which.
type Wanted struct {
	Slot *Slot // nil: none
	Name string
	Key  [16]byte // an idempotency key that will be looked for in the slot

	hash uint32
	job  *Job // the first of that hash
}

// FetchByName reads what looking up will read, most often.
//
//go:noinline
func FetchByName(wanted []Wanted) (sum uint64) {
	for i := range wanted {
		w := &wanted[i]
		if w.Slot == nil {
			continue
		}
		w.hash = hashOf(w.Name)
		if t := w.Slot.Jobs.index; len(t) > 0 {
			sum += uint64(t[t.start(w.hash)])
		}
		k, h := &w.Slot.keys, mixed(w.Key)
		for _, x := range [...]*keyIndex{&k.young, &k.old} {
			if len(x.cells) > 0 {
				sum += x.cells[x.start(h)]
			}
		}
	}
	for i := range wanted {
		if w := &wanted[i]; w.Slot != nil {
			w.job = w.Slot.Jobs.at(w.Slot.Jobs.index.first(w.hash))
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

// WantedRun is a live run that is about to be looked up.
type WantedRun struct {
	Slot *Slot // nil: none
	ID   RunID

	run *Run // the first of its hash
}

// Get returns the run, or nil.
func (w WantedRun) Get() *Run {
	if w.Slot == nil {
		return nil
	}
	return w.Slot.Runs.Get(w.ID)
}

// FetchByID reads what looking up will read.
//
//go:noinline
func FetchByID(wanted []WantedRun) (sum uint64) {
	for i := range wanted {
		w := &wanted[i]
		if w.Slot == nil {
			continue
		}
		if t := w.Slot.Runs.index; len(t) > 0 {
			sum += uint64(t[t.start(runHash(w.ID))])
		}
	}
	for i := range wanted {
		if w := &wanted[i]; w.Slot != nil {
			w.run = w.Slot.Runs.at(w.Slot.Runs.index.first(runHash(w.ID)))
		}
	}
	for i := range wanted {
		if r := wanted[i].run; r != nil {
			sum += uint64(r.ID[0])
		}
	}
	return sum
}
