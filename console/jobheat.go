package console

import (
	"context"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// heatDays is the number of days of the heat map, and heatRuns bounds the runs that it counts, the
	// newest first.
	heatDays = 366
	heatRuns = 20_000
	// heatCell is the distance of two days in the drawing, of which heatSide is filled.
	heatCell, heatSide = 18, 15
	heatLevels         = 4
)

// heat counts the ended runs of a job by the day of their planned time, in the zone of the viewer. It
// implements source.
type heat struct {
	runs       apiv1.RunsClient
	app, job   string
	token      string
	first      time.Time // noon of the first day
	days       [heatDays]heatDay
	looked     int
	oldest     time.Time // planned time of the oldest run that was looked at
	cut        bool      // heatRuns were looked at, and there are more
	unreadable int32
}

// heatDay has the runs of a day.
type heatDay struct{ ok, bad, skipped int32 }

func newHeat(c *console, app, name string, now time.Time) *heat {
	y, m, d := now.Date()
	return &heat{runs: c.runs, app: app, job: name, first: time.Date(y, m, d-heatDays+1, 12, 0, 0, 0, now.Location())}
}

func (h *heat) step(ctx context.Context, _ time.Time) (bool, error) {
	answer, err := h.runs.ListRuns(ctx, &apiv1.ListRunsRequest{App: h.app, Job: h.job, State: "ended", PageSize: pageSize, PageToken: h.token})
	if err != nil {
		return false, err
	}
	h.token = answer.NextPageToken
	h.unreadable += answer.UnreadableBlocks
	inside := true
	for _, r := range answer.Runs {
		h.looked++
		h.oldest = stamp(r.PlannedAt)
		inside = h.count(r)
	}
	h.cut = inside && h.token != "" && h.looked >= heatRuns
	return !inside || h.token == "" || h.cut, nil
}

func (h *heat) probe(ctx context.Context) error {
	_, err := h.runs.ListRuns(ctx, &apiv1.ListRunsRequest{App: h.app, Job: h.job, State: "ended", PageSize: 1})
	return err
}

// count adds a run, and reports whether it is not older than the map.
func (h *heat) count(r *apiv1.Run) bool {
	i := daysBetween(h.first, stamp(r.PlannedAt).In(h.first.Location()))
	if i < 0 {
		return false
	}
	day := &h.days[min(i, heatDays-1)]
	switch r.State {
	case "succeeded":
		day.ok++
	case "skipped":
		day.skipped++
	default:
		day.bad++
	}
	return true
}

// daysBetween returns the number of dates from that of a to that of b.
func daysBetween(a, b time.Time) int {
	date := func(t time.Time) time.Time {
		y, m, d := t.Date()
		return time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	}
	return int(date(b).Sub(date(a)) / (24 * time.Hour))
}

// heatView is a heat map as the page shows it.
type heatView struct {
	Done       bool
	Looked     int
	Oldest     time.Time
	Cut        bool
	Unreadable int32
	Width      int
	Empty      string   // days without a run
	Good       []string // days without a failure, by their number of runs
	Bad        []string // days with failures, by the share of these
	Labels     []heatLabel
	Months     []heatMonth // with runs, the newest first
	Runs       int64
	Failures   int64
}

// heatLabel is the name of a month above the drawing.
type heatLabel struct {
	X    int
	Text string
}

type heatMonth struct {
	Month                   time.Time
	Runs, Failures, Skipped int64
	Bad                     []heatBadDay // days with failures
}

type heatBadDay struct {
	Day            time.Time
	Runs, Failures int32
}

func (h *heat) view(done bool) *heatView {
	v := &heatView{Done: done, Looked: h.looked, Oldest: h.oldest, Cut: h.cut, Unreadable: h.unreadable}
	var most int32
	for _, d := range h.days {
		most = max(most, d.ok+d.bad)
	}
	var empty strings.Builder
	good, bad := make([]strings.Builder, heatLevels), make([]strings.Builder, heatLevels)
	offset := (int(h.first.Weekday()) + 6) % 7 // weeks begin on Monday
	for i, d := range h.days {
		day := h.first.AddDate(0, 0, i)
		x, y := (offset+i)/7*heatCell, (offset+i)%7*heatCell
		to, n := &empty, d.ok+d.bad
		switch {
		case d.bad > 0:
			to = &bad[level(d.bad, n)]
		case n > 0:
			to = &good[level(n, most)]
		}
		to.WriteString("M" + strconv.Itoa(x) + " " + strconv.Itoa(y) + "h" + strconv.Itoa(heatSide) + "v" + strconv.Itoa(heatSide) + "h-" + strconv.Itoa(heatSide) + "z")
		if day.Day() == 1 {
			v.Labels = append(v.Labels, heatLabel{x, day.Format("01")})
		}
		v.Width = x + heatCell
		v.add(day, d)
	}
	v.Empty = empty.String()
	for i := range heatLevels {
		v.Good, v.Bad = append(v.Good, good[i].String()), append(v.Bad, bad[i].String())
	}
	return v
}

// level returns the quarter of whole in which n is, from 0.
func level(n, whole int32) int { return int((int64(n)*heatLevels - 1) / int64(whole)) }

// add adds a day to its month.
func (v *heatView) add(day time.Time, d heatDay) {
	if d == (heatDay{}) {
		return
	}
	if len(v.Months) == 0 || v.Months[0].Month.Month() != day.Month() || v.Months[0].Month.Year() != day.Year() {
		v.Months = append([]heatMonth{{Month: day}}, v.Months...)
	}
	m := &v.Months[0]
	m.Runs += int64(d.ok + d.bad)
	m.Failures += int64(d.bad)
	m.Skipped += int64(d.skipped)
	v.Runs += int64(d.ok + d.bad)
	v.Failures += int64(d.bad)
	if d.bad > 0 {
		m.Bad = append(m.Bad, heatBadDay{day, d.ok + d.bad, d.bad})
	}
}

// heatTab returns the heat map of a job.
func (c *console) heatTab(v *visit, name string, now time.Time) (view *heatView, err error) {
	begin := func() *heat { return newHeat(c, v.app, name, now) }
	err = advanceSweep(v, "heat "+v.app+" "+name+" "+now.Location().String(), begin, func(h *heat, done bool) { view = h.view(done) })
	return view, err
}
