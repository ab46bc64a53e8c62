package session

import (
	"log/slog"
	"time"
)

const (
	firstReminder   = 5 * time.Second
	longestReminder = 5 * time.Minute
)

// outage is a time without a server. It logs the reason of the first failed attempt at
// once. While attempts fail, it logs again after intervals that double from firstReminder
// to longestReminder: a wait of hours stays visible and does not fill the log. The zero
// value has not begun.
type outage struct {
	began time.Time
	next  time.Time     // no log line before
	every time.Duration // interval to the line after next
}

// log logs a failed attempt at the time now, if a line is due.
func (o *outage) log(log *slog.Logger, now time.Time, unit string, err error) {
	if now.Before(o.next) {
		return
	}
	attrs := []any{"error", err}
	if unit != "" {
		attrs = append(attrs, "unit", unit)
	}
	if o.began.IsZero() {
		o.began, o.every = now, firstReminder
		log.Warn("no server answers: trying again until one does", attrs...)
	} else {
		o.every = min(2*o.every, longestReminder)
		log.Warn("no server answers yet", append(attrs, "for", now.Sub(o.began).Round(time.Second))...)
	}
	o.next = now.Add(o.every)
}
