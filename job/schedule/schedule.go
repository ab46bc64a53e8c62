package schedule

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// Limits of a schedule.
const (
	MinInterval  = 10 * time.Millisecond
	MaxInterval  = 366 * 24 * time.Hour
	MaxJitter    = 24 * time.Hour // a jitter is shorter than this
	MaxCalendars = 32             // calendars in include, and as many in exclude
)

// ErrNoTime reports that a schedule has no future planned time: [Plan.First] found none.
var ErrNoTime = errors.New("schedule has no future planned time: change what it plans, or its from, until, max_runs, include or exclude, " +
	"or leave the schedule out and trigger the job")

// Calendars returns the compiled calendar with a name; nil: it does not exist.
type Calendars func(name string) *Calendar

// Plan is the compiled schedule of a definition. It is immutable, pure and safe for
// concurrent use. Its zero value plans nothing.
//
// Planned times are whole milliseconds. All times of a job move by the same shift, which
// follows from its jitter and its name. from bounds the times before the shift and until
// after it, so no planned time is outside these bounds. The dates of calendars apply
// before the shift, in the schedule's zone. For a cron line they apply to the date that
// its fields name, even if a clock change moves the time to another date.
type Plan struct {
	times    times // nil: delay, after, or no schedule
	delay    time.Duration
	after    time.Duration
	at       time.Time // zero unless the schedule fires at one fixed time
	from     time.Time // zero: no bound
	until    time.Time // zero: no bound
	shift    time.Duration
	maxRuns  int64 // 0: no bound
	location *time.Location
}

// NewPlan compiles the schedule of a definition. An error is one sentence. calendars may
// be nil if the schedule names none. NewPlan ignores paused, and does not check that
// there is a future time: see [Plan.First].
func NewPlan(d *apiv1.Job, calendars Calendars) (Plan, error) {
	s := d.GetSchedule()
	if s == nil {
		return Plan{}, nil
	}
	if err := checkFields(s); err != nil {
		return Plan{}, err
	}
	var on dates
	var err error
	if on.include, err = find(calendars, "include", s.Include); err != nil {
		return Plan{}, err
	}
	if on.exclude, err = find(calendars, "exclude", s.Exclude); err != nil {
		return Plan{}, err
	}
	return readPlan(d, on)
}

func find(calendars Calendars, field string, names []string) ([]*Calendar, error) {
	var found []*Calendar
	for _, name := range names {
		var c *Calendar
		if calendars != nil {
			c = calendars(name)
		}
		if c == nil {
			return nil, fmt.Errorf("schedule.%s: calendar %q does not exist: create it first", field, name)
		}
		found = append(found, c)
	}
	return found, nil
}

// Check checks everything except that the calendars exist. It drops an empty
// schedule.
func Check(d *apiv1.Job) error {
	s := d.Schedule
	if s == nil {
		return nil
	}
	if err := checkFields(s); err != nil {
		return err
	}
	if kinds(s) == 0 {
		d.Schedule = nil
		return nil
	}
	_, err := readPlan(d, dates{})
	return err
}

func kinds(s *apiv1.Schedule) int {
	n := 0
	for _, v := range []string{s.Cron, s.Every, s.Delay, s.At, s.After} {
		if v != "" {
			n++
		}
	}
	if s.Daily != nil {
		n++
	}
	return n
}

// checkFields reports fields that do not go together.
func checkFields(s *apiv1.Schedule) error {
	calendars := len(s.Include)+len(s.Exclude) > 0
	switch n := kinds(s); {
	case n > 1:
		return fmt.Errorf("schedule: cron, every, delay, at, after and daily exclude each other: use one")
	case n == 0:
		if field := firstSet(s); field != "" {
			return fmt.Errorf("schedule.%s needs a kind of schedule: add cron, every, delay, at, after or daily", field)
		}
		return nil
	case s.Zone != "" && s.Cron == "" && s.Daily == nil && !calendars:
		return fmt.Errorf("schedule.zone goes with schedule.cron, schedule.daily or calendars only: leave it out")
	case s.Gap != "" && s.Cron == "":
		return fmt.Errorf("schedule.gap goes with schedule.cron only: leave it out")
	case s.Fold != "" && s.Cron == "":
		return fmt.Errorf("schedule.fold goes with schedule.cron only: leave it out")
	case s.MaxRuns < 0:
		return fmt.Errorf("schedule.max_runs is %d: write 1 or more, or leave it out for no limit", s.MaxRuns)
	case calendars && s.Delay+s.After != "":
		return fmt.Errorf("schedule.include and schedule.exclude go with cron, every, at and daily only: leave them out")
	}
	if err := checkCalendars("include", s.Include); err != nil {
		return err
	}
	return checkCalendars("exclude", s.Exclude)
}

// firstSet returns the name of a field that is set besides the kinds; "": none.
func firstSet(s *apiv1.Schedule) string {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"zone", s.Zone != ""},
		{"from", s.From != ""},
		{"until", s.Until != ""},
		{"max_runs", s.MaxRuns != 0},
		{"jitter", s.Jitter != ""},
		{"include", len(s.Include) > 0},
		{"exclude", len(s.Exclude) > 0},
		{"gap", s.Gap != ""},
		{"fold", s.Fold != ""},
	} {
		if f.set {
			return f.name
		}
	}
	return ""
}

func checkCalendars(field string, names []string) error {
	if len(names) > MaxCalendars {
		return fmt.Errorf("schedule.%s names %d calendars, the limit is %d: put their dates into one", field, len(names), MaxCalendars)
	}
	for i, name := range names {
		if err := naming.Check("schedule."+field, name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return fmt.Errorf("schedule.%s names %s twice: once is enough", field, name)
		}
	}
	return nil
}

// readPlan compiles a schedule that checkFields has accepted.
func readPlan(d *apiv1.Job, on dates) (Plan, error) {
	s := d.Schedule
	var p Plan
	var err error
	if p.location, err = cron.LoadZone(s.Zone); err != nil {
		return p, fmt.Errorf("schedule.zone: %w", err)
	}
	if p.from, err = moment("schedule.from", s.From); err != nil {
		return p, err
	}
	if p.until, err = moment("schedule.until", s.Until); err != nil {
		return p, err
	}
	if !p.until.IsZero() && !p.until.After(p.from) {
		return p, fmt.Errorf("schedule.until %s is not after schedule.from %s: write a later time", s.Until, s.From)
	}
	jitter, err := ParseDuration("schedule.jitter", s.Jitter, 0, MaxJitter-time.Millisecond)
	if err != nil {
		return p, err
	}
	p.shift = shift(d.App+"/"+d.Name, jitter)
	p.maxRuns = s.MaxRuns
	return p, p.readKind(d, on)
}

func (p *Plan) readKind(d *apiv1.Job, on dates) (err error) {
	s := d.Schedule
	switch {
	case s.Cron != "":
		p.times, err = readCron(d, p.location, on)
	case s.Every != "":
		var step time.Duration
		step, err = ParseDuration("schedule.every", s.Every, MinInterval, MaxInterval)
		e := every{step: step.Milliseconds(), dates: on, loc: p.location}
		if !p.from.IsZero() {
			e.anchor, e.anchored = p.from.UnixMilli(), true
		}
		p.times = e
	case s.Delay != "":
		p.delay, err = ParseDuration("schedule.delay", s.Delay, MinInterval, MaxInterval)
	case s.At != "":
		p.at, err = moment("schedule.at", s.At)
		if s.Zone == "" {
			p.location = p.at.Location() // the date is in the zone of the given time
		}
		p.times = single{p.at.In(p.location)}
		if !on.has(civilDayOf(p.at.In(p.location))) {
			p.times = never{}
		}
	case s.After != "":
		p.after, err = ParseDuration("schedule.after", s.After, time.Millisecond, MaxInterval)
	case s.Daily != nil:
		p.times, err = readDaily(s.Daily, p.location, on)
	}
	return err
}

func readCron(d *apiv1.Job, loc *time.Location, on dates) (times, error) {
	s := d.Schedule
	gap, fold := cron.GapPolicy(s.Gap), cron.FoldPolicy(s.Fold)
	if !slices.Contains([]cron.GapPolicy{"", cron.GapShift, cron.GapSkip}, gap) {
		return nil, fmt.Errorf("schedule.gap: %q is not a policy: write shift or skip", s.Gap)
	}
	if !slices.Contains([]cron.FoldPolicy{"", cron.FoldFirst, cron.FoldSecond, cron.FoldBoth}, fold) {
		return nil, fmt.Errorf("schedule.fold: %q is not a policy: write first, second or both", s.Fold)
	}
	c, err := cron.Parse(s.Cron, loc, cron.Options{Seed: d.App + "/" + d.Name, Gap: gap, Fold: fold})
	if err != nil {
		return nil, fmt.Errorf("schedule.cron: %w", err)
	}
	if !on.empty() {
		c = c.On(on.month)
	}
	return c, nil
}

func readDaily(s *apiv1.Daily, loc *time.Location, on dates) (times, error) {
	from, err := timeOfDay("schedule.daily.from", s.From, 0)
	if err != nil {
		return nil, err
	}
	until, err := timeOfDay("schedule.daily.until", s.Until, dayLength-time.Second)
	if err != nil {
		return nil, err
	}
	step := dayLength
	if s.Every != "" {
		if step, err = ParseDuration("schedule.daily.every", s.Every, MinInterval, dayLength); err != nil {
			return nil, err
		}
	}
	weekdays, err := readWeekdays("schedule.daily.days", s.Days)
	if err != nil {
		return nil, err
	}
	if len(s.Days) == 0 {
		weekdays = 1<<7 - 1
	}
	length := until - from
	if length < 0 {
		length += dayLength
	}
	return daily{from: from, length: length, step: step.Milliseconds(), weekly: spread(weekdays), dates: on, loc: loc}, nil
}

func timeOfDay(field, s string, byDefault time.Duration) (time.Duration, error) {
	if s == "" {
		return byDefault, nil
	}
	for _, form := range []string{"15:04", time.TimeOnly} {
		if t, err := time.Parse(form, s); err == nil && len(s) == len(form) && t.Nanosecond() == 0 {
			return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute + time.Duration(t.Second())*time.Second, nil
		}
	}
	return 0, fmt.Errorf("%s: %q is not a time of day: write it as 09:00 or 09:00:00, up to 23:59:59", field, s)
}

// moment reads an instant and rounds it up to a millisecond; "" is the zero time.
func moment(field, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() < 1970 {
		return time.Time{}, fmt.Errorf("%s: %q is not a time of 1970 or later: write it as 2026-01-31T08:00:00+08:00", field, s)
	}
	return time.UnixMilli(ceilMilli(t)).In(t.Location()), nil
}

// ParseDuration reads a duration, which must be whole milliseconds; "" is 0.
func ParseDuration(field, s string, shortest, longest time.Duration) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	v, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%s: %q is not a duration: write it as 500ms, 30s, 5m or 1h30m", field, s)
	case v < shortest:
		return 0, fmt.Errorf("%s is %s, the shortest is %s", field, s, short(shortest))
	case v > longest:
		return 0, fmt.Errorf("%s is %s, the longest is %s", field, s, short(longest))
	case v%time.Millisecond != 0:
		return 0, fmt.Errorf("%s is %s: write whole milliseconds", field, s)
	}
	return v, nil
}

// CheckInterval checks a duration outside a schedule.
func CheckInterval(field, s string) error {
	_, err := ParseDuration(field, s, MinInterval, MaxInterval)
	return err
}

// short formats a limit for a message.
func short(d time.Duration) string {
	if days := d / dayLength; days > 1 {
		return fmt.Sprintf("%d days", days)
	}
	return strings.TrimSuffix(d.String(), "0m0s")
}

// shift returns by how much the times of a job move: at least 0 and less than the jitter.
// It is deterministic, and part of the persistent behaviour: a change of this function
// would move every job.
func shift(job string, jitter time.Duration) time.Duration {
	if jitter == 0 {
		return 0
	}
	sum := sha256.Sum256([]byte("jitter\x00" + job))
	return time.Duration(binary.BigEndian.Uint64(sum[:])%uint64(jitter.Milliseconds())) * time.Millisecond
}

// Location returns the zone of the schedule and of its planned times.
func (p Plan) Location() *time.Location {
	if p.location == nil {
		return time.UTC
	}
	return p.location
}

// Anchor returns the plan of a job that has planned t. It only changes a fixed rate
// without from, which counts from its earlier planned times.
func (p Plan) Anchor(t time.Time) Plan {
	if e, ok := p.times.(every); ok && !e.anchored {
		e.anchor, e.anchored = t.Add(-p.shift).UnixMilli(), true
		p.times = e
	}
	return p
}

// First returns the first planned time after now of a schedule that is set now. It does
// not check how many times remain: see [Plan.Left].
func (p Plan) First(now time.Time) (time.Time, bool) {
	now = time.UnixMilli(ceilMilli(now))
	switch {
	case p.delay > 0:
		return p.AfterEnd(now)
	case p.after > 0:
		return p.bound(now.Add(p.after))
	}
	if e, ok := p.times.(every); ok && !e.anchored {
		now = now.Add(p.shift) // the first time is a whole interval plus the shift after now
	}
	return p.After(now)
}

// AfterEnd returns the planned time of a delay schedule after a run that ended at the
// given time; false for other schedules.
func (p Plan) AfterEnd(end time.Time) (time.Time, bool) {
	if p.delay == 0 {
		return time.Time{}, false
	}
	t := time.UnixMilli(ceilMilli(end)).Add(p.delay)
	if t.Before(p.from) {
		t = p.from
	}
	return p.bound(t)
}

// bound adds the shift to a time and reports whether the result may be planned.
func (p Plan) bound(t time.Time) (time.Time, bool) {
	shifted := t.Add(p.shift)
	if t.Before(p.from) || !p.until.IsZero() && !shifted.Before(p.until) || shifted.UnixMilli() > lastTime {
		return time.Time{}, false
	}
	return shifted.In(p.location), true
}

// After returns the first planned time strictly after t, regardless of the current time.
// A fixed rate without from and without [Plan.Anchor] counts from t. A delay and an after
// have no such time, because they follow an event. The search ends 400 years after t.
//
// It takes about a microsecond. With a calendar, each month without a time costs a
// fraction of a microsecond: After finds a time within ten years in 20 µs, and finds out
// in less than a millisecond that there is none. It takes up to about ten milliseconds
// for a fixed rate of more than a day, or a span over midnight, if its dates are always
// excluded.
func (p Plan) After(t time.Time) (time.Time, bool) {
	if p.times == nil {
		return time.Time{}, false
	}
	base := t.Add(-p.shift)
	if base.Before(p.from) {
		base = p.from.Add(-1)
	}
	next, ok := p.Anchor(t).times.Next(base)
	if !ok {
		return time.Time{}, false
	}
	return p.bound(next)
}

// Between returns the planned times t with from <= t < until in order, at most limit of
// them, and reports whether there are more. It ignores the maximum number of runs. A
// fixed rate without from and without [Plan.Anchor] begins at from.
func (p Plan) Between(from, until time.Time, limit int) (times []time.Time, more bool) {
	from = time.UnixMilli(ceilMilli(from))
	p = p.Anchor(from)
	for t, ok := p.After(from.Add(-1)); ok && t.Before(until); t, ok = p.After(t) {
		if len(times) >= limit {
			return times, true
		}
		times = append(times, t)
	}
	return times, false
}

// Count counts the planned times t with from <= t < until, without listing them. Like [Plan.Between] it ignores the
// maximum number of runs, and a fixed rate without from and without [Plan.Anchor] begins at from.
func (p Plan) Count(from, until time.Time) int64 {
	from = time.UnixMilli(ceilMilli(from))
	return p.Anchor(from).count(from, until)
}

// Left returns how many planned times remain for a job that has planned so many:
// [math.MaxInt64] without a limit, 0 if its schedule has ended.
func (p Plan) Left(planned int64) int64 {
	if p.maxRuns == 0 {
		return math.MaxInt64
	}
	return max(p.maxRuns-planned, 0)
}

// Once returns the one fixed time of a schedule, and whether it has one.
func (p Plan) Once() (time.Time, bool) {
	if p.at.IsZero() {
		return time.Time{}, false
	}
	return p.at.Add(p.shift), true
}

// count counts the planned times t with from <= t < to.
func (p Plan) count(from, to time.Time) int64 {
	if p.times == nil {
		return 0
	}
	if !p.until.IsZero() && to.After(p.until) {
		to = p.until
	}
	from, to = from.Add(-p.shift), to.Add(-p.shift)
	if from.Before(p.from) {
		from = p.from
	}
	if !from.Before(to) {
		return 0
	}
	return p.times.Count(from, to)
}

// Duration reads a duration of a checked definition; 0 if there is none.
func Duration(s string) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0
	}
	return d
}
