package job

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/wheelworkhq/wheelwork/internal/wire/fields"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// Filter selects jobs. The zero value selects all.
type Filter struct {
	Contains string            // part of the name; upper and lower case are equal
	Labels   map[string]string // the job has all of these
	Owner    string
	Module   string // of the handler: NAME, NAME@VERSION or NAME@ALIAS
	Schedule string // one of [ScheduleKinds]
	Paused   *bool  // nil: both
	Failing  bool   // the last run neither succeeded nor was skipped
}

// Any reports whether the filter selects all jobs.
func (f *Filter) Any() bool {
	return f.Contains == "" && len(f.Labels) == 0 && f.Owner == "" && f.Module == "" && f.Schedule == "" && f.Paused == nil && !f.Failing
}

// Keeps reports whether the filter selects a job. It does not decode the definition.
func (f *Filter) Keeps(j *Job) bool {
	shape := j.kind.shape
	return (f.Contains == "" || strings.Contains(strings.ToLower(j.Name()), strings.ToLower(f.Contains))) &&
		HasLabels(shape.Labels, f.Labels) &&
		(f.Owner == "" || shape.Owner == f.Owner) &&
		(f.Module == "" || inModule(shape.Handler.GetModule(), f.Module)) &&
		(f.Schedule == "" || j.spec().scheduleKind() == f.Schedule) &&
		(f.Paused == nil || shape.Paused == *f.Paused) &&
		(!f.Failing || j.Failing())
}

// inModule reports whether a handler's module, as name@version, is the wanted one.
func inModule(module, wanted string) bool {
	name, _, _ := strings.Cut(module, "@")
	return module == wanted || name == wanted
}

// Failing reports whether the last run that ended neither succeeded nor was skipped.
func (j *Job) Failing() bool {
	s := j.lastState()
	return s != "" && s != Succeeded && s != Skipped
}

// scheduleKinds has the kinds of schedules at the numbers of their fields.
var scheduleKinds = [...]string{
	fields.ScheduleCron: "cron", fields.ScheduleEvery: "every", fields.ScheduleDelay: "delay",
	fields.ScheduleAt: "at", fields.ScheduleAfter: "after", fields.ScheduleDaily: "daily",
}

// ScheduleKinds returns the kinds of schedules. A job that runs only when it is triggered has the
// kind "none".
func ScheduleKinds() []string {
	return []string{"cron", "every", "delay", "at", "after", "daily", "none"}
}

// scheduleKind returns the kind of the schedule.
func (sp spec) scheduleKind() string {
	for b := sp.schedule(); b != ""; {
		var n uint64
		if n, _, b = cut(b); n < uint64(len(scheduleKinds)) && scheduleKinds[n] != "" {
			return scheduleKinds[n]
		}
	}
	return "none"
}

// Order is the order of a list of jobs.
type Order string

// The orders of a list of jobs. Jobs without the time come last.
const (
	ByName     Order = ""
	ByLastRun  Order = "last_run"  // by the end of the last run, latest first
	ByNextTime Order = "next_time" // by the next planned time, earliest first
)

// OrderOf returns an order by its name; "" and "name" are [ByName].
func OrderOf(name string) (Order, error) {
	switch o := Order(name); o {
	case ByName, "name":
		return ByName, nil
	case ByLastRun, ByNextTime:
		return o, nil
	}
	return ByName, fmt.Errorf("there is no order %q: want name, last_run or next_time", name)
}

// timeDigits is the length of a time in a position.
const timeDigits = 16

// Position returns the position of a job in a list: positions sort as the jobs of the list do. The times
// are in Unix milliseconds; 0: the job has none.
func (o Order) Position(name string, lastEndMs, nextMs int64) string {
	key := ^uint64(0)
	switch {
	case o == ByName:
		return name
	case o == ByLastRun && lastEndMs != 0:
		key = ^uint64(lastEndMs)
	case o == ByNextTime && nextMs != 0:
		key = uint64(nextMs)
	}
	var number [8]byte
	binary.BigEndian.PutUint64(number[:], key)
	b := make([]byte, 0, timeDigits+naming.MaxName)
	return string(append(hex.AppendEncode(b, number[:]), name...))
}

// NameAt returns the name of the job at a position; "" if it is none.
func (o Order) NameAt(position string) string {
	if o == ByName {
		return position
	}
	return position[min(timeDigits, len(position)):]
}
