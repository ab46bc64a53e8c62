package console

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// durationGroups bounds the points of each line of the chart.
	durationGroups = 20
	// durationChart is the width of the chart in its own units; its height is 100.
	durationChart = 1000
)

// durationRuns are the numbers of runs between which the visitor chooses; the first is the default.
func durationRuns() []int { return []int{100, 300, 500} }

// durationView is how long the last runs of a job took that succeeded.
type durationView struct {
	Wanted     int
	All        durations
	Groups     []durations // in order of time, of about as many runs each
	P50, P95   string      // lines of the chart
	P99        string
	Unreadable int32
}

// Choices returns the numbers of runs to choose from.
func (durationView) Choices() []int { return durationRuns() }

// durations are percentiles of the durations of successive runs.
type durations struct {
	From, To           time.Time // planned times of the first and the last run
	Runs               int
	P50, P95, P99, Max time.Duration
}

// Text returns a duration as text.
func (durations) Text(d time.Duration) string { return span(d) }

// percentilesOf returns the percentiles of runs that have started and finished, in order of time.
func percentilesOf(runs []*apiv1.Run) durations {
	d := durations{From: stamp(runs[0].PlannedAt), To: stamp(runs[len(runs)-1].PlannedAt), Runs: len(runs)}
	all := make([]time.Duration, len(runs))
	for i, r := range runs {
		all[i] = max(0, stamp(r.FinishedAt).Sub(stamp(r.StartedAt)))
	}
	slices.Sort(all)
	d.P50, d.P95, d.P99, d.Max = nearest(all, 50), nearest(all, 95), nearest(all, 99), all[len(all)-1]
	return d
}

// nearest returns a percentile by the nearest rank: the smallest value that is at least as large as
// that share of all.
func nearest(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)*percent+99)/100-1]
}

// newDurationView groups runs, the newest first.
func newDurationView(runs []*apiv1.Run, wanted int) *durationView {
	view := &durationView{Wanted: wanted}
	runs = slices.DeleteFunc(slices.Clone(runs), func(r *apiv1.Run) bool { return r.StartedAt == nil || r.FinishedAt == nil })
	if len(runs) == 0 {
		return view
	}
	slices.Reverse(runs)
	view.All = percentilesOf(runs)
	n := min(durationGroups, len(runs))
	for i := range n {
		view.Groups = append(view.Groups, percentilesOf(runs[i*len(runs)/n:(i+1)*len(runs)/n]))
	}
	view.P50 = view.line(func(d durations) time.Duration { return d.P50 })
	view.P95 = view.line(func(d durations) time.Duration { return d.P95 })
	view.P99 = view.line(func(d durations) time.Duration { return d.P99 })
	return view
}

// line draws a value of each group.
func (v *durationView) line(of func(durations) time.Duration) string {
	var b strings.Builder
	for i, g := range v.Groups {
		x := i * durationChart / max(len(v.Groups)-1, 1)
		y := 100 - int(math.Round(98*float64(of(g))/float64(max(v.Highest(), 1))))
		b.WriteString([]string{"M", "L"}[min(i, 1)] + strconv.Itoa(x) + " " + strconv.Itoa(y))
	}
	if len(v.Groups) == 1 { // a line of one point has no length
		b.WriteString("h" + strconv.Itoa(durationChart))
	}
	return b.String()
}

// Highest returns the highest value of the chart.
func (v *durationView) Highest() time.Duration {
	var d time.Duration
	for _, g := range v.Groups {
		d = max(d, g.P99)
	}
	return d
}

// durationTab returns the durations of the last runs of a job.
func (c *console) durationTab(ctx context.Context, v *visit, name string) (*durationView, error) {
	wanted, _ := strconv.Atoi(v.r.URL.Query().Get("runs"))
	if !slices.Contains(durationRuns(), wanted) {
		wanted = durationRuns()[0]
	}
	var runs []*apiv1.Run
	var unreadable int32
	for token := ""; ; {
		answer, err := c.runs.ListRuns(ctx, &apiv1.ListRunsRequest{App: v.app, Job: name, State: "succeeded", PageSize: pageSize, PageToken: token})
		if err != nil {
			return nil, err
		}
		runs, token = append(runs, answer.Runs...), answer.NextPageToken
		unreadable += answer.UnreadableBlocks
		if token == "" || len(runs) >= wanted || len(answer.Runs) == 0 {
			break
		}
	}
	view := newDurationView(runs[:min(len(runs), wanted)], wanted)
	view.Unreadable = unreadable
	return view, nil
}
