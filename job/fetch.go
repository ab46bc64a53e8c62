package job

// What a loop is about to look at of many jobs and runs is somewhere else in
// memory for each of them, and a processor waits for several places as long as
// for one. So whoever goes through many has those fetched together that come
// next: each function here reads one byte of each line of memory that will be
// needed, of all that are given, before it comes to the next line. What it
// returns means nothing.

// Fetch reads of jobs what their rows are made of; nil is none.
//
//go:noinline
func Fetch(jobs []*Job) (sum int64) {
	for _, j := range jobs {
		if j != nil {
			sum += j.NextMs + j.lastEndMs
		}
	}
	for _, j := range jobs {
		if j != nil && j.nameLen > 0 {
			sum += int64(*j.text)
		}
	}
	return sum
}

// FetchRuns reads of runs and their jobs what decides whether they may be sent,
// and what their end changes; nil is none.
//
//go:noinline
func FetchRuns(runs []*Run) (sum int64) {
	for _, r := range runs {
		if r != nil {
			sum += r.PlannedMs + int64(len(r.Error)) + int64(r.Mark)
		}
	}
	for _, r := range runs {
		if r != nil && r.owner != nil {
			sum += r.owner.NextMs + r.owner.lastEndMs
		}
	}
	for _, r := range runs {
		if r != nil && len(r.Job) > 0 {
			sum += int64(r.Job[0])
		}
	}
	return sum
}

// Near returns the job that stands where one of that name would be looked for
// first: most often it is that one. It is for who fetches it.
func (t *Jobs) Near(name string) *Job {
	if t.n == 0 {
		return nil
	}
	return t.places[t.home(name)]
}

// FetchKey reads where an idempotency key would be looked for first.
func (s *Slot) FetchKey(hash [16]byte) uint64 {
	x := &s.keys.young
	if len(x.places) == 0 {
		return 0
	}
	return x.places[x.home(mixed(hash))]
}
