package rule

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// The events that a rule can list.
const (
	Failed            = "failed"              // a run ended unsuccessfully, retries included
	FailedInRow       = "failed_in_row"       // as many runs of a job in a row as the threshold says
	RetryExhausted    = "retry_exhausted"     // a run with retries used up the last one
	TimedOut          = "timed_out"           // a run took longer than its timeout
	Missed            = "missed"              // a planned time had no run
	LateStart         = "late_start"          // a run started later than it may
	NotFinishedBy     = "not_finished_by"     // a job had no success by a time of day
	NoSuccessSince    = "no_success_since"    // a job had no success for a time
	RunningLongerThan = "running_longer_than" // a run takes longer than expected
	HostLost          = "host_lost"
	CanaryRolledBack  = "canary_rolled_back"
	DeadLetter        = "dead_letter"
	QueueAge          = "queue_age"
	Disk              = "disk"
	CertificateExpiry = "certificate_expiry"
	LimitReached      = "limit_reached"
	SchedulePaused    = "schedule_paused"
	Succeeded         = "succeeded" // a run succeeded
	Recovered         = "recovered" // the resolve message of the rule's other events
)

// Events returns the names of all events, in the order of the documentation.
func Events() []string {
	return []string{
		Failed, FailedInRow, RetryExhausted, TimedOut, Missed, LateStart, NotFinishedBy, NoSuccessSince, RunningLongerThan, Succeeded, Recovered,
		HostLost, CanaryRolledBack, DeadLetter, QueueAge, Disk, CertificateExpiry, LimitReached, SchedulePaused,
	}
}

// Bounds of a rule.
const (
	MaxThreshold = 1000
	MaxTime      = 31 * 24 * time.Hour // of each of its times
	maxList      = 100                 // entries of each of its lists
)

// Defaults of a rule.
const (
	DefaultWait   = 30 * time.Second
	DefaultRepeat = 4 * time.Hour
)

// Rule says which events become alerts and how they are told. A zero time is none.
type Rule struct {
	App      string // to which the rule belongs; "": it is of the whole installation
	Name     string
	Events   []string
	Select   Selection
	Severity notification.Severity // default error
	// Threshold events within Window begin an alert; default 1. Without a window they count however long they take. For
	// failed_in_row it is the number of runs of one job.
	Threshold int
	Window    time.Duration
	// GroupBy has the parts of the key of a group: job, run, host, app, event, or "label:" and the name of a label. Empty: all events
	// of the rule are in one group.
	GroupBy []string
	Wait    time.Duration // from the beginning of an alert to its first notification
	Repeat  time.Duration // between the notifications of an alert that goes on; 0: it is told once
	Silence time.Duration // after a notification of a group, in which its next alerts are not told
	// Escalate tells more channels, if an alert fires so long without an acknowledgement; 0: never.
	Escalate   time.Duration
	EscalateTo []string
	Channels   []string
}

// Selection selects jobs. An event without a job, such as host_lost, is selected by a rule without a selection of jobs,
// labels and owners.
type Selection struct {
	Jobs   []string          // patterns as those of path.Match, "*" for all; empty: all
	Labels map[string]string // that the job has; the value "*" matches each value
	Owners []string          // one of which the job has; empty: any
}

// Subject is what a selection selects by: the job of an event.
type Subject struct {
	App, Job, Owner string
	Labels          map[string]string
}

// Selects reports whether the selection has a job.
func (s *Selection) Selects(x *Subject) bool {
	if x.Job == "" {
		return len(s.Jobs)+len(s.Labels)+len(s.Owners) == 0
	}
	if len(s.Jobs) > 0 && !slices.ContainsFunc(s.Jobs, func(pattern string) bool {
		ok, _ := path.Match(pattern, x.Job) // Check has refused patterns that are malformed
		return ok
	}) {
		return false
	}
	for name, want := range s.Labels {
		if got, ok := x.Labels[name]; !ok || want != "*" && got != want {
			return false
		}
	}
	return len(s.Owners) == 0 || slices.Contains(s.Owners, x.Owner)
}

// Selects reports whether events of a job concern the rule.
func (r *Rule) Selects(x *Subject) bool {
	return (r.App == "" || r.App == x.App) && r.Select.Selects(x)
}

// Lists reports whether the rule lists an event.
func (r *Rule) Lists(event string) bool { return slices.Contains(r.Events, event) }

// EachRun reports whether each run has a group of its own. The end of a run is then an event without an end: no later run
// ends its alert.
func (r *Rule) EachRun() bool { return slices.Contains(r.GroupBy, "run") }

// Check returns an error that names the field that is wrong, and what it may be.
func (r *Rule) Check() error {
	switch {
	case r.Name == "":
		return errors.New("name is missing")
	case len(r.Events) == 0 || len(r.Events) == 1 && r.Events[0] == Recovered:
		return errors.New("events has no event that begins an alert")
	case r.Threshold < 0 || r.Threshold > MaxThreshold:
		return fmt.Errorf("threshold is %d, want 1 to %d", r.Threshold, MaxThreshold)
	case r.Window > 0 && r.Threshold < 2:
		return errors.New("window needs a threshold of 2 or more: one event is an alert at once")
	case r.Severity != "" && !slices.Contains(notification.Severities(), r.Severity):
		return fmt.Errorf("severity is %q, want one of %v", r.Severity, notification.Severities())
	case r.Lists(FailedInRow) && (len(r.Events) > 2 || len(r.Events) == 2 && !r.Lists(Recovered)):
		return errors.New("events has failed_in_row beside others: it counts the runs of one job, so it needs a rule of its own")
	case r.Lists(FailedInRow) && r.Window > 0:
		return errors.New("window is for events that are counted in a time: failed_in_row counts until a run succeeds")
	case r.EachRun() && (r.Lists(Recovered) || r.Lists(FailedInRow)):
		return errors.New("group_by has run, but events has recovered or failed_in_row, which are about several runs: use another rule for them")
	case len(r.Channels) == 0:
		return errors.New("channels is empty: name at least one")
	case (r.Escalate > 0) != (len(r.EscalateTo) > 0):
		return errors.New("escalate needs both a time and channels")
	}
	for i, e := range r.Events {
		switch {
		case !slices.Contains(Events(), e):
			return fmt.Errorf("events has %q, want some of %s", e, strings.Join(Events(), ", "))
		case slices.Contains(r.Events[:i], e):
			return fmt.Errorf("events has %q twice", e)
		}
	}
	for _, pattern := range r.Select.Jobs {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("select.jobs has %q: the pattern is malformed", pattern)
		}
	}
	for _, by := range r.GroupBy {
		if label, ok := strings.CutPrefix(by, "label:"); (!ok || label == "") && !slices.Contains([]string{"job", "run", "host", "app", "event"}, by) {
			return fmt.Errorf("group_by has %q, want job, run, host, app, event or label:NAME", by)
		}
	}
	for name, d := range map[string]time.Duration{"window": r.Window, "wait": r.Wait, "repeat": r.Repeat, "silence": r.Silence, "escalate": r.Escalate} {
		if d < 0 || d > MaxTime {
			return fmt.Errorf("%s is %s, want at most %s", name, d, MaxTime)
		}
	}
	if r.Repeat > 0 && r.Repeat < time.Minute {
		return fmt.Errorf("repeat is %s, want at least 1m, or 0s for never", r.Repeat)
	}
	for name, list := range map[string]int{
		"events": len(r.Events), "channels": len(r.Channels), "group_by": len(r.GroupBy), "select.jobs": len(r.Select.Jobs),
		"select.labels": len(r.Select.Labels), "select.owners": len(r.Select.Owners), "escalate.channels": len(r.EscalateTo),
	} {
		if list > maxList {
			return fmt.Errorf("%s has %d entries, want at most %d", name, list, maxList)
		}
	}
	return nil
}

// Event is what a server has seen.
type Event struct {
	Name string // one of [Events], and not recovered; "" if Ends
	Subject
	Host  string
	Run   string
	Error string
	AtMs  int64 // of the event, Unix
	// About names the subject in trouble: a job, a run, a host or a disk. An event with Ends says that the trouble is over.
	// Without a name the event has no end, such as that of a dead letter.
	About string
	Ends  bool
}

// keySeparator divides the parts of a key. No name contains it.
const keySeparator = "\x1f"

// Key returns the key of the group of an event, and what the group is called.
func (r *Rule) Key(e *Event) (key string, labels map[string]string) {
	labels = make(map[string]string, len(r.GroupBy))
	parts := make([]string, 0, len(r.GroupBy))
	for _, by := range r.GroupBy {
		name, value := by, ""
		switch by {
		case "job":
			value = e.Job
		case "run":
			value = e.Run
		case "host":
			value = e.Host
		case "app":
			value = e.App
		case "event":
			value = e.Name
		default:
			name = strings.TrimPrefix(by, "label:")
			value = e.Labels[name]
		}
		parts = append(parts, value)
		if value != "" {
			labels[name] = value
		}
	}
	return strings.Join(parts, keySeparator), labels
}

func (r *Rule) threshold() int { return max(r.Threshold, 1) }

func (r *Rule) severity() notification.Severity { return cmp.Or(r.Severity, notification.Error) }

// Silence keeps alerts from being told for a time.
type Silence struct {
	ID      string
	Rule    string            // "": all rules
	Labels  map[string]string // of the groups, such as job; empty: all groups
	FromMs  int64             // Unix
	UntilMs int64             // Unix
}

// Covers reports whether the silence is for a group of a rule.
func (s *Silence) Covers(r *Rule, labels map[string]string) bool {
	if s.Rule != "" && s.Rule != r.Name {
		return false
	}
	for name, want := range s.Labels {
		if labels[name] != want {
			return false
		}
	}
	return true
}
