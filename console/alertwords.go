package console

import (
	"cmp"
	"slices"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// event returns the name of an event of alerts.
func (w words) event(code string) string { return w.known("alerts.event.", code) }

// known returns the text of a code, or the code itself: a newer server may have more codes.
func (w words) known(prefix, code string) string { return cmp.Or(w.texts[prefix+code], code) }

// ruleWhen describes the events that begin an alert of a rule, with their times.
func (w words) ruleWhen(r *apiv1.AlertRule) (string, error) {
	p, t := &phrase{words: w}, r.GetWhen()
	for _, e := range r.Events {
		switch e {
		case "recovered": // ruleHow has it
		case "failed_in_row":
			p.say("alerts.when.failed_in_row", count(max(r.Threshold, 1)))
		case "late_start":
			p.say("alerts.when.late_start", cmp.Or(t.GetLateStart(), "1m"))
		case "not_finished_by":
			p.say("alerts.when.not_finished_by", cmp.Or(t.GetNotFinishedBy(), "00:00"), cmp.Or(r.Zone, "UTC"))
		case "no_success_since":
			p.say("alerts.when.no_success_since", t.GetNoSuccessSince())
		case "running_longer_than":
			p.say("alerts.when.running_longer_than", t.GetRunningLongerThan())
		case "queue_age":
			p.say("alerts.when.queue_age", cmp.Or(t.GetQueueAge(), "5m"))
		case "disk":
			p.say("alerts.when.disk", count(cmp.Or(t.GetDiskFreePercent(), 10)))
		case "certificate_expiry":
			p.say("alerts.when.certificate_expiry", cmp.Or(t.GetCertificateExpiry(), "8h"))
		default:
			p.parts = append(p.parts, w.event(e))
		}
	}
	return p.text()
}

// ruleHow describes how the alerts of a rule are made and told.
func (w words) ruleHow(r *apiv1.AlertRule) (string, error) {
	p := &phrase{words: w}
	switch {
	case slices.Contains(r.Events, "failed_in_row"): // the threshold is in ruleWhen
	case r.Window != "" && r.Threshold > 1:
		p.say("alerts.how.window", count(r.Threshold), r.Window)
	case r.Threshold > 1:
		p.say("alerts.how.threshold", count(r.Threshold))
	}
	if len(r.GroupBy) > 0 {
		by := make([]string, len(r.GroupBy))
		for i, part := range r.GroupBy {
			by[i] = w.known("alerts.group.", part)
			if label, ok := strings.CutPrefix(part, "label:"); ok {
				by[i] = label
			}
		}
		p.names("alerts.how.group", by)
	}
	if wait := cmp.Or(r.Wait, "30s"); isZero(wait) {
		p.say("alerts.how.atonce")
	} else {
		p.say("alerts.how.wait", wait)
	}
	if repeat := cmp.Or(r.Repeat, "4h"); isZero(repeat) {
		p.say("alerts.how.once")
	} else {
		p.say("alerts.how.repeat", repeat)
	}
	if !isZero(r.Silence) {
		p.value("alerts.how.silence", r.Silence)
	}
	if slices.Contains(r.Events, "recovered") {
		p.say("alerts.how.recovered")
	}
	if e := r.Escalate; e != nil {
		p.say("alerts.how.escalate", e.After, strings.Join(e.Channels, ", "))
	}
	p.names("alerts.how.mute", r.Mute)
	return p.text()
}

// isZero reports whether a text is the duration 0.
func isZero(d string) bool { return strings.Trim(d, "0hmsunµ.") == "" }

// selection describes the jobs that a rule selects.
func (w words) selection(s *apiv1.AlertSelection) (string, error) {
	p := &phrase{words: w}
	p.names("alerts.select.jobs", s.GetJobs())
	p.names("alerts.select.labels", pairsOf(s.GetLabels()))
	p.names("alerts.select.owners", s.GetOwners())
	if len(p.parts) == 0 {
		p.say("alerts.select.all")
	}
	return p.text()
}
