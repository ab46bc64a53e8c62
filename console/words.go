package console

import (
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/reason"
	"github.com/wheelworkhq/wheelwork/job/schedule"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// words describes values in one language.
type words struct {
	lang  string
	texts catalogue
	loc   *time.Location // of the visitor
}

// schedule describes when a job runs.
func (w words) schedule(j *apiv1.Job) (string, error) {
	s := j.GetSchedule()
	p := &phrase{words: w}
	switch {
	case s.GetCron() != "":
		p.parts = append(p.parts, w.cron(j))
	case s.GetEvery() != "":
		p.say("schedule.every", s.Every)
	case s.GetDelay() != "":
		p.say("schedule.delay", s.Delay)
	case s.GetAt() != "":
		p.say("schedule.at", s.At)
	case s.GetAfter() != "":
		p.say("schedule.after", s.After)
	case s.GetDaily() != nil:
		p.daily(s.Daily, s.Zone)
	case len(j.GetDependency().GetJobs()) > 0:
		p.say("schedule.dependency")
	case j.GetTrigger() != nil:
		p.say("schedule.event")
	default:
		p.say("schedule.manual")
	}
	p.bounds(s)
	return p.text()
}

// cron describes a cron expression and its zone. An expression that this version cannot
// parse is shown as it is.
func (w words) cron(j *apiv1.Job) string {
	s := j.GetSchedule()
	loc, err := cron.LoadZone(s.Zone)
	if err != nil {
		return s.Cron + " " + s.Zone
	}
	c, err := cron.Parse(s.Cron, loc, cron.Options{Seed: j.App + "/" + j.Name})
	if err != nil {
		return s.Cron + " " + s.Zone
	}
	return c.Explain(w.lang)
}

// upcoming returns the next planned times of a job after now, at most n. For a paused job
// they are the times that it would have if it were resumed now. For a job with a limited
// number of planned times it returns only the next one, because the console does not know
// how many times it has planned.
func upcoming(j *apiv1.Job, calendars schedule.Calendars, now time.Time, n int) []time.Time {
	plan, err := schedule.NewPlan(j, calendars)
	if err != nil || j.GetNextAt() == nil && !j.GetPaused() {
		return nil
	}
	if j.GetSchedule().GetMaxRuns() > 0 {
		n = 1
	}
	next, ok := plan.First(now)
	if j.GetNextAt() != nil {
		next, ok = stamp(j.NextAt).In(plan.Location()), true
		plan = plan.Anchor(next)
	}
	if ok && next.Before(now) {
		next, ok = plan.After(now)
	}
	var times []time.Time
	for ; ok && len(times) < n; next, ok = plan.After(next) {
		times = append(times, next)
	}
	return times
}

// state returns the name of a run's state.
func (w words) state(s string) (string, error) {
	if s == "" {
		return w.texts.text("state.none")
	}
	if t, ok := w.texts["state."+s]; ok {
		return t, nil
	}
	return s, nil // a newer server may have more states
}

// trigger returns the name of a run's trigger.
func (w words) trigger(s string) (string, error) {
	if t, ok := w.texts["trigger."+s]; ok {
		return t, nil
	}
	return s, nil // a newer server may have more triggers
}

// scope describes where a role holds.
func (w words) scope(s string) (string, error) {
	if s == "cluster" {
		return w.texts.text("scope.cluster")
	}
	if app, ok := strings.CutPrefix(s, "app:"); ok {
		return w.texts.text("scope.in.app", app)
	}
	if prefix, ok := strings.CutPrefix(s, "app-prefix:"); ok {
		return w.texts.text("scope.in.prefix", prefix)
	}
	return s, nil // a newer server may have more scopes
}

// reason returns the name of an HTTP status.
func (w words) reason(code int) string {
	if t, ok := w.texts["http."+strconv.Itoa(code)]; ok {
		return t
	}
	return http.StatusText(code)
}

// why returns the sentence of a reason: in the language of the visitor, or as the server wrote
// it if this version does not know the reason.
func (w words) why(r *apiv1.Reason, english string) string {
	text, ok := reason.Sentence(func(key string) (string, bool) { t, ok := w.texts["why."+key]; return t, ok }, r.GetCode(), r.GetValues())
	if !ok {
		return english
	}
	return text
}

// relative describes the time from now to t.
func (w words) relative(t, now time.Time) string {
	if t.IsZero() {
		return "–"
	}
	d := now.Sub(t)
	key := "ago"
	if d < 0 {
		d, key = -d, "in"
	}
	n, unit := scale(d)
	text, err := w.texts.text("time."+key+"."+unit, n)
	if err != nil {
		return w.clock(t)
	}
	return text
}

// scale rounds a duration to the unit that people would use for it.
func scale(d time.Duration) (n int, unit string) {
	switch {
	case d < time.Second:
		return 0, "now"
	case d < time.Minute:
		return int(d / time.Second), "s"
	case d < time.Hour:
		return int(d / time.Minute), "m"
	case d < 48*time.Hour:
		return int(d / time.Hour), "h"
	}
	return int(d / (24 * time.Hour)), "d"
}

func stamp(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

// clock formats an instant in full.
func clock(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.Format("2006-01-02 15:04:05.000 MST")
}

// took returns the duration between two times; without the second one until now, and "–"
// without the first.
func took(from, to *timestamppb.Timestamp, now time.Time) string {
	if from == nil {
		return "–"
	}
	if to != nil {
		now = to.AsTime()
	}
	return span(now.Sub(from.AsTime()))
}

// span formats a duration with about three digits.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0s" // clocks of two machines may differ
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	text := d.Round(time.Second).String()
	if short, whole := strings.CutSuffix(text, "m0s"); whole { // 30m0s
		text = strings.TrimSuffix(short+"m", "h0m") // 1h0m
		if text != short+"m" {
			text += "h"
		}
	}
	return text
}

func milliseconds(ms float64) string { return span(time.Duration(ms * float64(time.Millisecond))) }

// count formats an integer with thousands separators.
func count(n any) string {
	s := fmt.Sprintf("%d", n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

func byteSize(n int64) string {
	const step = 1024
	if n < step {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n), 0
	for f >= step && unit < 5 {
		f, unit = f/step, unit+1
	}
	return strconv.FormatFloat(f, 'f', 1, 64) + " " + []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}[unit]
}

// percent formats part of whole, "–" when whole is 0. It rounds down: 100 % means all.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "–"
	}
	return strconv.FormatFloat(math.Floor(1000*float64(part)/float64(whole))/10, 'f', -1, 64) + " %"
}

// shorten returns the first n characters of a text, and a mark if it was longer.
func shorten(n int, s string) string {
	s = showNUL(s)
	i := 0
	for at := range s {
		if i == n {
			return s[:at] + "…"
		}
		i++
	}
	return s
}

func shortDigest(d string) string {
	hex := strings.TrimPrefix(d, "sha256:")
	return hex[:min(12, len(hex))]
}

// withQuery appends pairs of keys and values to an address and omits empty values.
func withQuery(address string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return address
	}
	return address + "?" + q.Encode()
}
