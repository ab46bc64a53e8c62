package console

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

const (
	zoneCookie        = "wheelwork_zone"         // the visitor's choice
	browserZoneCookie = "wheelwork_browser_zone" // set by console.js
)

// zoneChoices are the zones that the navigation offers without a script; the script offers
// all that the browser knows.
func zoneChoices(chosen string) []string {
	zones := []string{
		"UTC", "Africa/Cairo", "Africa/Johannesburg", "Africa/Lagos", "America/Chicago", "America/Denver", "America/Los_Angeles", "America/New_York",
		"America/Sao_Paulo", "America/Toronto", "Asia/Dubai", "Asia/Hong_Kong", "Asia/Jakarta", "Asia/Kolkata", "Asia/Seoul", "Asia/Shanghai", "Asia/Singapore",
		"Asia/Taipei", "Asia/Tokyo", "Australia/Sydney", "Europe/Berlin", "Europe/Istanbul", "Europe/London", "Europe/Moscow", "Europe/Paris", "Pacific/Auckland",
	}
	if chosen != "" && !slices.Contains(zones, chosen) {
		zones = append(zones, chosen)
	}
	return zones
}

// viewerZone is the zone in which a visitor reads and enters times.
type viewerZone struct {
	*time.Location
	chosen string // "": the browser's, or UTC while it is unknown
}

func zoneOf(r *http.Request) viewerZone {
	for _, name := range []string{zoneCookie, browserZoneCookie} {
		k, err := r.Cookie(name)
		if err != nil || k.Value == "" {
			continue
		}
		loc, err := cron.LoadZone(k.Value)
		switch {
		case err != nil:
		case name == zoneCookie:
			return viewerZone{loc, k.Value}
		default:
			return viewerZone{loc, ""}
		}
	}
	return viewerZone{time.UTC, ""}
}

// weekday returns the short name of a day of the week.
func (w words) weekday(t time.Time) (string, error) {
	return w.texts.text("day." + strings.ToLower(t.Weekday().String()[:3]))
}

// instant is a time with its day of the week, to the second, in the zone of the visitor.
func (w words) instant(t time.Time) (string, error) {
	t = t.In(w.loc)
	day, err := w.weekday(t)
	return day + " " + t.Format("2006-01-02 15:04:05 MST"), err
}

// duration puts the units of a duration into the language of the page.
func (w words) duration(d string) string {
	if w.lang != "zh" {
		return d
	}
	return strings.NewReplacer("ms", " 毫秒", "µs", " 微秒", "ns", " 纳秒", "h", " 小时 ", "m", " 分 ", "s", " 秒").Replace(d)
}

func (w words) clock(t time.Time) string {
	if t.IsZero() {
		return clock(t)
	}
	return clock(t.In(w.loc))
}

// timeOfDay is the time of day with milliseconds.
func (w words) timeOfDay(t time.Time) string { return t.In(w.loc).Format("15:04:05.000") }
