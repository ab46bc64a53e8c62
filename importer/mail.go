package importer

import (
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func number(n int) string { return strconv.Itoa(n) }

// mail is a list of recipients and the jobs whose failures they hear of.
type mail struct {
	to        []string
	channel   string
	jobs      int
	threshold int32
	window    string
	silence   string
}

// maxRecipients is what a channel takes.
const maxRecipients = 100

// tell sends failures of a job to addresses. how changes the rule; nil: each failure.
func (j *job) tell(field string, to []string, how func(*mail)) {
	to = slices.Clone(to)
	for i, a := range to {
		to[i] = strings.TrimSpace(a)
	}
	to = slices.DeleteFunc(to, func(a string) bool { return a == "" })
	slices.Sort(to)
	if to = slices.Compact(to); len(to) == 0 {
		return
	}
	list := strings.Join(to, ", ")
	if j.c.MailServer == "" || j.c.MailFrom == "" {
		j.line(field, Todo, "%s: import again with --mail-server and --mail-from for an alert channel and a rule", list)
		return
	}
	if i := slices.IndexFunc(to, func(a string) bool { return !strings.Contains(a, "@") || strings.ContainsAny(a, " \t\r\n<>") }); i >= 0 {
		j.line(field, Todo, "%q is no address of a mailbox: name a channel for it", to[i])
		if to = slices.Delete(to, i, i+1); len(to) == 0 {
			return
		}
	}
	if len(to) > maxRecipients {
		j.line(field, Changed, "a channel has at most %d recipients", maxRecipients)
		to = to[:maxRecipients]
	}
	m := &mail{to: to}
	if how != nil {
		how(m)
	}
	key := strings.Join(to, " ") + "|" + strconv.Itoa(int(m.threshold)) + m.window + "|" + m.silence
	if known := j.c.mails[key]; known != nil {
		m = known
	} else {
		m.channel = "mail-" + strconv.Itoa(len(j.c.mails)+1)
		j.c.mails[key] = m
	}
	m.jobs++
	j.label(labelAlarm, m.channel)
	j.line(field, Kept, "alert channel %s (%s), alert rule %s", m.channel, list, m.channel)
}

// sendMails makes the channels and the rules.
func (c *conversion) sendMails() {
	for _, m := range c.mails {
		c.document("AlertChannel", &apiv1.AlertChannel{
			Name: m.channel, Labels: map[string]string{labelSource: c.source},
			Mail: &apiv1.AlertMail{Url: c.MailServer, From: c.MailFrom, To: m.to},
		})
		c.document("AlertRule", &apiv1.AlertRule{
			Name: m.channel, Labels: map[string]string{labelSource: c.source}, Events: []string{"failed"},
			Select: &apiv1.AlertSelection{Labels: map[string]string{labelAlarm: m.channel}}, GroupBy: []string{"job"},
			Channels: []string{m.channel}, Threshold: m.threshold, Window: m.window, Silence: m.silence,
		})
	}
}
