package definition

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/alert/rule"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job"
	"github.com/wheelworkhq/wheelwork/job/naming"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// Defaults of the times of events.
const (
	DefaultLateStart = time.Minute
	DefaultQueueAge  = 5 * time.Minute
	DefaultDiskFree  = 10 // percent
	DefaultExpiry    = 8 * time.Hour
)

// maxMute bounds the calendars of a rule.
const maxMute = 16

// Rule is a rule with the times of its events.
type Rule struct {
	rule.Rule
	Times
	Mute     []string              // names of calendars
	Zone     *time.Location        // of Mute and NotFinishedBy
	Language notification.Language // "": that of each channel
	Job      string                // whose document has it; "": it is a document of its own
}

// Times are the times of the events that depend on one.
type Times struct {
	LateStart         time.Duration
	NoSuccessSince    time.Duration
	RunningLongerThan time.Duration
	NotFinishedBy     time.Duration // since midnight
	QueueAge          time.Duration
	DiskFree          int // percent
	CertificateExpiry time.Duration
}

// ReadRule checks the definition of a rule. An error names the field that is wrong. The
// message is a copy with the fields that clients set.
func ReadRule(d *apiv1.AlertRule) (*apiv1.AlertRule, *Rule, error) {
	if d == nil {
		return nil, nil, errors.New("the alert rule is missing")
	}
	m := proto.CloneOf(d)
	m.App, m.UpdatedAt, m.Revision = cmp.Or(m.App, naming.DefaultApp), nil, 0
	if err := checkNames(m); err != nil {
		return nil, nil, err
	}
	r, err := read(m)
	if err != nil {
		return nil, nil, fmt.Errorf("alert rule %s: %w", m.Name, err)
	}
	return m, r, nil
}

// read checks a rule whose names were checked.
func read(m *apiv1.AlertRule) (*Rule, error) {
	r := &Rule{
		Rule: rule.Rule{
			App: m.App, Name: m.Name, Events: m.Events, Severity: notification.Severity(m.Severity), Threshold: int(m.Threshold), GroupBy: m.GroupBy,
			Select:   rule.Selection{Jobs: m.GetSelect().GetJobs(), Labels: m.GetSelect().GetLabels(), Owners: m.GetSelect().GetOwners()},
			Channels: m.Channels, EscalateTo: m.GetEscalate().GetChannels(),
		},
		Mute: m.Mute, Language: notification.Language(m.Language),
	}
	return r, cmp.Or(r.readTimes(m), r.readLists(m), r.Check(), r.checkWhen())
}

// checkNames checks what all definitions have.
func checkNames(d interface {
	GetApp() string
	GetName() string
	GetDescription() string
	GetLabels() map[string]string
},
) error {
	if err := cmp.Or(naming.Check("app", d.GetApp()), naming.Check("name", d.GetName()), job.CheckLabels(d.GetLabels())); err != nil {
		return err
	}
	if len(d.GetDescription()) > 4096 {
		return errors.New("description is longer than 4096 bytes")
	}
	return nil
}

func (r *Rule) readTimes(m *apiv1.AlertRule) error {
	when := m.GetWhen()
	for _, f := range []struct {
		name, text  string
		to          *time.Duration
		unset, most time.Duration
		zero        bool // 0 is a value
	}{
		{"window", m.Window, &r.Window, 0, rule.MaxTime, true},
		{"wait", m.Wait, &r.Wait, rule.DefaultWait, rule.MaxTime, true},
		{"repeat", m.Repeat, &r.Repeat, rule.DefaultRepeat, rule.MaxTime, true},
		{"silence", m.Silence, &r.Silence, 0, rule.MaxTime, true},
		{"escalate.after", m.GetEscalate().GetAfter(), &r.Escalate, 0, rule.MaxTime, true},
		{"when.late_start", when.GetLateStart(), &r.LateStart, DefaultLateStart, rule.MaxTime, false},
		{"when.no_success_since", when.GetNoSuccessSince(), &r.NoSuccessSince, 0, 366 * 24 * time.Hour, false},
		{"when.running_longer_than", when.GetRunningLongerThan(), &r.RunningLongerThan, 0, rule.MaxTime, false},
		{"when.queue_age", when.GetQueueAge(), &r.QueueAge, DefaultQueueAge, rule.MaxTime, false},
		{"when.certificate_expiry", when.GetCertificateExpiry(), &r.CertificateExpiry, DefaultExpiry, 366 * 24 * time.Hour, false},
	} {
		if *f.to = f.unset; f.text == "" {
			continue
		}
		v, err := time.ParseDuration(f.text)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %.40q is not a duration: write it as 30s, 5m or 1h30m", f.name, f.text)
		case v < 0 || v > f.most:
			return fmt.Errorf("%s is %s, want at most %s", f.name, f.text, f.most)
		case v == 0 && !f.zero, v%time.Millisecond != 0:
			return fmt.Errorf("%s is %s, want whole milliseconds above 0", f.name, f.text)
		}
		*f.to = v
	}
	r.DiskFree = cmp.Or(int(when.GetDiskFreePercent()), DefaultDiskFree)
	if r.DiskFree < 1 || r.DiskFree > 99 {
		return fmt.Errorf("when.disk_free_percent is %d, want 1 to 99", r.DiskFree)
	}
	if text := when.GetNotFinishedBy(); text != "" {
		at, err := time.Parse("15:04", text)
		if err != nil {
			return fmt.Errorf("when.not_finished_by: %.40q is not a time of day: write it as 06:30", text)
		}
		r.NotFinishedBy = time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
	}
	return nil
}

func (r *Rule) readLists(m *apiv1.AlertRule) error {
	var err error
	if r.Zone, err = zone(m.Zone); err != nil {
		return err
	}
	switch r.Language {
	case "", notification.English, notification.Chinese:
	default:
		return fmt.Errorf("language is %.20q, want en or zh", m.Language)
	}
	if len(m.Mute) > maxMute {
		return fmt.Errorf("mute has %d calendars, want at most %d", len(m.Mute), maxMute)
	}
	for _, list := range []struct {
		what  string
		names []string
	}{{"mute", m.Mute}, {"channels", m.Channels}, {"escalate.channels", r.EscalateTo}} {
		for _, name := range list.names {
			if err := naming.Check(list.what+":", name); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkWhen checks that an event that needs a time has one, and that a time has its event.
func (r *Rule) checkWhen() error {
	for _, f := range []struct {
		event string
		set   bool
	}{
		{rule.NoSuccessSince, r.NoSuccessSince > 0},
		{rule.RunningLongerThan, r.RunningLongerThan > 0},
	} {
		if r.Lists(f.event) && !f.set {
			return fmt.Errorf("when.%s is missing: the event %s needs it", f.event, f.event)
		}
		if !r.Lists(f.event) && f.set {
			return fmt.Errorf("when.%s is set, but events does not list %s", f.event, f.event)
		}
	}
	return nil
}

// Watches reports whether the rule lists an event that comes with a time and not with a change.
func (r *Rule) Watches() bool {
	return slices.ContainsFunc([]string{rule.NoSuccessSince, rule.NotFinishedBy}, r.Lists)
}

// zone returns the time zone with a name; "" is UTC.
func zone(name string) (*time.Location, error) {
	z, err := cron.LoadZone(name)
	if err != nil {
		return nil, fmt.Errorf("zone: %w", err)
	}
	return z, nil
}
