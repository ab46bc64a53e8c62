package job

import (
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule"
)

// Retention is how long the ended runs of an app stay, and the lines of its runs. 0: as
// the server says.
type Retention struct{ Runs, Logs time.Duration }

// The bounds of a retention.
const (
	MinRetention = time.Minute
	MaxRetention = 100 * 366 * 24 * time.Hour
)

// RetentionOf returns the retention in the settings of an app, or an error that names the
// field which is wrong.
func RetentionOf(m *apiv1.App) (r Retention, err error) {
	for _, f := range []struct {
		name, text string
		to         *time.Duration
	}{{"retain_runs", m.GetRetainRuns(), &r.Runs}, {"retain_logs", m.GetRetainLogs(), &r.Logs}} {
		if f.text == "" {
			continue
		}
		if *f.to, err = schedule.ParseDuration(f.name, f.text, MinRetention, MaxRetention); err != nil {
			return Retention{}, err
		}
	}
	return r, nil
}
