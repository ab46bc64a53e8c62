package job

// Fetch reads of some jobs what their rows will be made of. Each is somewhere else in
// memory, and a processor waits for several places as long as for one: who goes
// through many jobs has those fetched together that come next. What it returns means
// nothing.
//
//go:noinline
func Fetch(jobs []*Job) (sum int64) {
	for _, j := range jobs {
		sum += j.NextMs + int64(j.Mark)
	}
	for _, j := range jobs {
		if j.nameLen > 0 {
			sum += int64(*j.text) + j.lastEndMs
		}
	}
	return sum
}

// FetchRuns is [Fetch] for what decides whether runs may be sent.
//
//go:noinline
func FetchRuns(runs []*Run) (sum int64) {
	for _, r := range runs {
		sum += r.PlannedMs + int64(len(r.State)) + int64(r.Mark)
	}
	for _, r := range runs {
		if r.owner != nil {
			sum += r.owner.NextMs + int64(r.owner.Mark)
		}
	}
	return sum
}
