package job

// Fetch prefetches the fields of jobs that their rows contain. It skips nil.
func Fetch(jobs []*Job) { readJobs(jobs) }

// FetchRuns prefetches runs as [EachRun] does. It skips nil.
func FetchRuns(runs []*Run) { readRuns(runs) }

// FetchByName prefetches what a look-up of each job and key reads.
func FetchByName(wanted []Wanted) { readWanted(wanted) }

// WantedRun is a live run that the caller is about to look up by Slot and ID.
type WantedRun struct {
	Slot *Slot // nil: no run
	ID   RunID
}

// Get looks up the run. It returns nil if there is none.
func (w WantedRun) Get() *Run {
	if w.Slot == nil {
		return nil
	}
	return w.Slot.Runs.Get(w.ID)
}

// FetchByID prefetches what a look-up of each run reads.
func FetchByID(wanted []WantedRun) {
	for _, w := range wanted {
		readRunLookups([]runLookup{{slot: w.Slot, id: w.ID}})
	}
}
