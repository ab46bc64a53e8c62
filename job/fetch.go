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
		if j != nil && j.text != "" {
			sum += int64(j.text[0])
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

// Wanted is a job that is about to be looked up: Slot and Name say which.
type Wanted struct {
	Slot *Slot // nil: none
	Name string
	Key  [16]byte // an idempotency key that will be looked for in the slot

	at  place
	job *Job
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
		w.at, w.job = 0, nil
		if t := &w.Slot.Jobs; len(t.places) > 0 {
			w.at = t.places[t.places.home(hashOf(w.Name))]
		}
		k, h := &w.Slot.keys, mixed(w.Key)
		for _, x := range [...]*index{&k.young, &k.old} {
			if len(x.places) > 0 {
				sum += x.places[x.home(h)]
			}
		}
	}
	for i := range wanted {
		if w := &wanted[i]; w.Slot != nil && w.at != 0 {
			w.job = w.Slot.Jobs.list[w.at.number()]
		}
	}
	for i := range wanted {
		if j := wanted[i].job; j != nil {
			sum += uint64(j.NextMs + j.lastEndMs)
		}
	}
	for i := range wanted {
		if j := wanted[i].job; j != nil && j.text != "" {
			sum += uint64(j.text[0])
		}
	}
	return sum
}
