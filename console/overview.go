package console

import (
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// pageSize bounds every list: no page requests more entries.
const pageSize = 50

type overviewView struct {
	*apiv1.Overview
	Chart  chart
	Recent []*apiv1.Run
	Failed []*apiv1.Run
	Alerts int             // that fire, at most as many as the API lists
	Pause  *apiv1.AppPause // nil: the app is not paused

	Unreadable int32 // damaged blocks of the history that were passed over for these
}

// Executing returns the number of runs whose handlers run, as far as hosts have told.
func (v overviewView) Executing() int64 {
	return v.GetRunning() - v.GetDispatched() - v.GetSleeping()
}

// DiskUsed returns the used share of the disk as text.
func (v overviewView) DiskUsed() string {
	d := v.GetDisk()
	return percent(d.GetTotalBytes()-d.GetFreeBytes(), d.GetTotalBytes())
}

// Ended returns the number of all runs that have ended.
func (v overviewView) Ended() int64 { return v.SucceededTotal + v.FailedTotal }

func (c *console) overviewPage(v *visit) error {
	const few = 8
	var view overviewView
	g, ctx := errgroup.WithContext(v.ctx)
	g.Go(func() (err error) {
		view.Overview, err = c.cluster.GetOverview(ctx, &apiv1.GetOverviewRequest{App: v.app})
		return err
	})
	g.Go(func() (err error) {
		view.Pause, err = c.pauseOf(ctx, v.app)
		return err
	})
	runs := func(to **apiv1.ListRunsResponse, state string) func() error {
		return func() (err error) {
			*to, err = c.runs.ListRuns(ctx, &apiv1.ListRunsRequest{App: v.app, State: state, PageSize: few})
			return err
		}
	}
	if c.visitor(v).May("alerts.read", v.app) {
		g.Go(func() error {
			firing, err := c.firing(ctx, v.app)
			view.Alerts = len(firing)
			return err
		})
	}
	var recent, failed *apiv1.ListRunsResponse
	g.Go(runs(&recent, ""))
	g.Go(runs(&failed, "unsuccessful"))
	if err := g.Wait(); err != nil {
		return err
	}
	view.Recent, view.Failed = recent.Runs, failed.Runs
	view.Unreadable = max(recent.UnreadableBlocks, failed.UnreadableBlocks)
	view.Chart = newChart(view.Minutes)
	return c.show(v, "overview", "overview", view)
}

// chart shows the runs that ended in each minute as bars. Positions are percentages of
// the drawing, so that it fits any width without a script.
type chart struct {
	Bars              []bar
	Max               int64 // the tallest bar
	Succeeded, Failed int64 // sum of all bars
	From, To          *timestamppb.Timestamp
}

type bar struct {
	X, Width   float64 // percent of the width
	OKY, OKH   float64 // succeeded, percent of the height
	BadY, BadH float64 // other ends, drawn above the succeeded part
	*apiv1.Minute
}

func newChart(minutes []*apiv1.Minute) chart {
	var ch chart
	for _, m := range minutes {
		ch.Succeeded += m.Succeeded
		ch.Failed += m.Failed
		ch.Max = max(ch.Max, m.Succeeded+m.Failed)
	}
	if len(minutes) == 0 {
		return ch
	}
	ch.From, ch.To = minutes[0].Start, minutes[len(minutes)-1].Start
	slot := 100 / float64(len(minutes))
	for i, m := range minutes {
		b := bar{X: slot * float64(i), Width: slot * 0.72, Minute: m, OKY: 100, BadY: 100}
		if ch.Max > 0 {
			b.OKH = 100 * float64(m.Succeeded) / float64(ch.Max)
			b.BadH = 100 * float64(m.Failed) / float64(ch.Max)
			b.OKY = 100 - b.OKH
			b.BadY = b.OKY - b.BadH
		}
		ch.Bars = append(ch.Bars, b)
	}
	return ch
}

// hostsPage lists the hosts of all apps, because a host does not belong to one app.
func (c *console) hostsPage(v *visit) error {
	answer, err := c.cluster.ListHosts(v.ctx, &apiv1.ListHostsRequest{})
	if err != nil {
		return err
	}
	hosts := answer.Hosts
	return c.show(v, "hosts", "hosts", hostsView{Hosts: hosts[:min(len(hosts), pageSize)], Total: len(hosts)})
}

type hostsView struct {
	Hosts []*apiv1.Host // the first pageSize
	Total int
}

// Load returns the used share of a host's execution slots, 0 to 100.
func (hostsView) Load(h *apiv1.Host) int32 {
	if h.Slots <= 0 {
		return 0
	}
	return min(100, 100*h.Running/h.Slots)
}

// CPU returns the host's processor use in percent.
func (hostsView) CPU(h *apiv1.Host) int { return int(100*h.Cpu + 0.5) }
