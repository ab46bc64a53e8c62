package console

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// limit is a limit of an app beside its use.
type limit struct {
	Name  string // of the field of the form, and of the text limits.NAME
	Used  int64
	Most  int64 // 0: none
	Bytes bool
	Typed string // the visitor's input, or the limit
}

// Percent returns the part of the limit that is used, from 0 to 100.
func (l limit) Percent() int64 {
	if l.Most <= 0 {
		return 0
	}
	return int64(math.Min(100, 100*float64(l.Used)/float64(l.Most)))
}

// limitsView shows the limits of an app.
type limitsView struct {
	Limits  []limit
	Saved   bool
	Refused string
}

// limitsSaved is a notice.
type limitsSaved struct{}

func limitsOf(a *apiv1.App) []limit {
	m := a.GetLimits()
	all := []limit{
		{Name: "jobs", Used: a.Jobs, Most: m.GetJobs()},
		{Name: "queued-runs", Used: a.Live, Most: m.GetQueuedRuns()},
		{Name: "live-runs", Used: a.AtHosts, Most: m.GetLiveRuns()},
		{Name: "bytes", Used: a.Bytes, Most: m.GetBytes(), Bytes: true},
		{Name: "module-bytes", Used: a.ModuleBytes, Most: m.GetModuleBytes(), Bytes: true},
	}
	for i, l := range all {
		switch {
		case l.Most == 0:
		case l.Bytes:
			all[i].Typed = exactSize(l.Most)
		default:
			all[i].Typed = strconv.FormatInt(l.Most, 10)
		}
	}
	return all
}

func (c *console) limitsPage(v *visit) error {
	_, saved := noticeOf[limitsSaved](v)
	return c.showLimits(v, http.StatusOK, limitsView{Saved: saved})
}

func (c *console) showLimits(v *visit, code int, view limitsView) error {
	a, err := c.apps.GetApp(v.ctx, &apiv1.GetAppRequest{Name: v.app})
	if err != nil {
		return err
	}
	view.Limits = limitsOf(a)
	if view.Refused != "" {
		for i, l := range view.Limits {
			view.Limits[i].Typed = v.r.PostForm.Get(l.Name)
		}
	}
	return c.showStatus(v, code, "limits", "overview", view)
}

// setLimits replaces all limits; an empty field means the default.
func (c *console) setLimits(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	m := &apiv1.AppLimits{}
	var err error
	for _, field := range []struct {
		name string
		to   *int64
	}{{"jobs", &m.Jobs}, {"queued-runs", &m.QueuedRuns}, {"live-runs", &m.LiveRuns}, {"bytes", &m.Bytes}, {"module-bytes", &m.ModuleBytes}} {
		n, wrong := parseSize(v.r.PostForm.Get(field.name), strings.HasSuffix(field.name, "bytes"))
		if wrong != nil && err == nil {
			err = status.Errorf(codes.InvalidArgument, "%s: %v", field.name, wrong)
		}
		*field.to = n
	}
	if err == nil {
		_, err = c.apps.SetAppLimits(v.ctx, &apiv1.SetAppLimitsRequest{Name: v.app, Limits: m})
	}
	if why, ok := mendable(err); ok && status.Code(err) != codes.NotFound {
		return c.showLimits(v, http.StatusUnprocessableEntity, limitsView{Refused: why})
	}
	if err != nil {
		return err
	}
	v.redirectWith(href("apps", v.app, "limits"), limitsSaved{})
	return nil
}

// sizeUnits are the units of sizes, the largest first.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

// exactSize writes a size in the largest unit that divides it, as parseSize reads it.
func exactSize(n int64) string {
	for _, u := range sizeUnits {
		if n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// parseSize reads a number, with a unit if it is a size. "" is 0, the default.
func parseSize(s string, unit bool) (int64, error) {
	digits, times := strings.NewReplacer(" ", "", "\u202f", "").Replace(s), int64(1)
	if digits == "" {
		return 0, nil
	}
	if unit {
		for _, u := range sizeUnits {
			if number, ok := strings.CutSuffix(strings.ToLower(digits), strings.ToLower(u.name)); ok {
				digits, times = number, u.bytes
				break
			}
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/times {
		if unit {
			return 0, fmt.Errorf("%.40q is not a size: write it as 512MiB or 16GiB", s)
		}
		return 0, fmt.Errorf("%.40q is not a number", s)
	}
	return n * times, nil
}
