package job

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// This file describes the policies of a job for its table. A policy with its default is
// "", which a table omits.

// list joins the texts that are not empty.
func list(separator string, parts ...string) string {
	var there []string
	for _, p := range parts {
		if p != "" {
			there = append(there, p)
		}
	}
	return strings.Join(there, separator)
}

// with formats a value; "" if the value is empty.
func with(form, value string) string {
	if value == "" {
		return ""
	}
	return fmt.Sprintf(form, value)
}

// number formats a number; "" if it is 0.
func number[T int32 | int64 | uint64 | float64](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// limitsText describes the limits of a job's handler.
func limitsText(l *sdk.Limits) string {
	memory := ""
	if l.GetMemoryBytes() > 0 {
		memory = output.Bytes(l.GetMemoryBytes()) + " of memory"
	}
	return list(", ", memory, with("%s units of fuel", number(l.GetFuel())))
}

func scheduleText(job *sdk.Job) string {
	s := job.GetSchedule()
	var kind string
	switch {
	case s.GetCron() != "":
		kind = s.GetCron() + " " + cmp.Or(s.GetZone(), "UTC")
	case s.GetEvery() != "":
		kind = "every " + s.GetEvery()
	case s.GetDelay() != "":
		kind = s.GetDelay() + " after the end of the last run"
	case s.GetAt() != "":
		kind = "at " + s.GetAt()
	case s.GetAfter() != "":
		kind = "once, " + s.GetAfter() + " after it was set"
	case s.GetDaily() != nil:
		kind = dailyText(s.GetDaily()) + " " + cmp.Or(s.GetZone(), "UTC")
	case len(job.GetDependency().GetJobs()) > 0:
		return "after " + strings.Join(job.GetDependency().GetJobs(), ", ")
	default:
		return "manual"
	}
	return list(", ", kind,
		with("from %s", s.GetFrom()), with("until %s", s.GetUntil()), with("at most %s times", number(s.GetMaxRuns())),
		with("jitter %s", s.GetJitter()),
		with("only on %s", strings.Join(s.GetInclude(), " or ")), with("not on %s", strings.Join(s.GetExclude(), " or ")))
}

func dailyText(d *sdk.Daily) string {
	span := "daily at " + cmp.Or(d.GetFrom(), "00:00")
	if d.GetEvery() != "" {
		span = fmt.Sprintf("daily %s to %s every %s", cmp.Or(d.GetFrom(), "00:00"), cmp.Or(d.GetUntil(), "23:59:59"), d.GetEvery())
	}
	return list(" ", span, with("on %s", strings.Join(d.GetDays(), ", ")))
}

func retryText(r *sdk.Retry) string {
	if r.GetMax() == 0 {
		return ""
	}
	text := fmt.Sprintf("%d, %s from %s to %s", r.GetMax(), cmp.Or(r.GetBackoff(), "exponential"), cmp.Or(r.GetFirst(), "1s"), cmp.Or(r.GetLimit(), "1m"))
	if j := r.GetJitter(); j != 0 {
		text += fmt.Sprintf(", up to %s %% shorter", strconv.FormatFloat(100*j, 'g', 4, 64))
	}
	return text
}

func misfireText(m *sdk.Misfire) string {
	if m == nil {
		return ""
	}
	text := cmp.Or(m.GetPolicy(), "fire_once")
	if m.GetPolicy() == "fire_all" {
		text += fmt.Sprintf(", at most %s of the last %s", cmp.Or(number(m.GetMax()), "100"), cmp.Or(m.GetWindow(), "24h"))
	}
	return list(", ", text, with("when later than %s", m.GetThreshold()))
}

func overlapText(o *sdk.Overlap) string {
	policy := cmp.Or(o.GetPolicy(), "parallel")
	switch {
	case o.GetLimit() > 0 && policy == "queue":
		return fmt.Sprintf("queue, at most %d wait", o.GetLimit())
	case o.GetLimit() > 0:
		return fmt.Sprintf("%s, at most %d at once", policy, o.GetLimit())
	case policy == "parallel":
		return ""
	}
	return policy
}

func priorityText(p int32) string { return number(p) }

func routingText(r *sdk.Routing) string {
	if r == nil {
		return ""
	}
	strategy := cmp.Or(r.GetStrategy(), "least_loaded")
	if strategy == "hash" {
		strategy += " of the " + cmp.Or(r.GetKey(), "job")
	}
	memory := ""
	if n := r.GetMaxMemoryBytes(); n > 0 {
		memory = "memory below " + output.Bytes(int64(min(n, 1<<63-1)))
	}
	cpu := ""
	if share := r.GetMinFreeCpu(); share > 0 {
		cpu = fmt.Sprintf("%s %% of the CPU free", strconv.FormatFloat(100*share, 'g', 4, 64))
	}
	return list("\n", strategy,
		with("hosts %s", strings.Join(r.GetHosts(), ", ")), with("labels %s", strings.Join(r.GetLabels(), ", ")),
		with("at most %s hosts at once", number(r.GetMaxHosts())), cpu, memory, with("%s slots free", number(r.GetMinFreeSlots())))
}

func fanoutText(f *sdk.Fanout) string {
	switch f.GetMode() {
	case "broadcast":
		return "broadcast: a part on each host"
	case "shards":
		return fmt.Sprintf("%d shards", f.GetShards())
	}
	return f.GetMode()
}

func dependencyText(d *sdk.Dependency) string {
	if len(d.GetJobs()) == 0 {
		return ""
	}
	text := fmt.Sprintf("%s of %s, on %s", cmp.Or(d.GetNeed(), "all"), strings.Join(d.GetJobs(), ", "), cmp.Or(d.GetOn(), "success"))
	if d.GetPassOutput() {
		text += "; the output is the input"
	}
	return text
}

func triggerText(t *sdk.EventTrigger) string {
	if t == nil {
		return ""
	}
	text := t.GetEvent()
	if t.GetSource() != "" {
		text += " from " + t.GetSource()
	}
	for _, path := range slices.Sorted(maps.Keys(t.GetMatch())) {
		text += fmt.Sprintf("; %s is %s", path, t.GetMatch()[path])
	}
	return text
}
