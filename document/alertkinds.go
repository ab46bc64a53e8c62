package document

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// The values of fields of alerts, as packages rule, notification and channel have them.
var (
	alertEvents = []string{
		"failed", "failed_in_row", "retry_exhausted", "timed_out", "missed", "late_start", "not_finished_by", "no_success_since", "running_longer_than", "succeeded", "recovered",
		"host_lost", "canary_rolled_back", "dead_letter", "queue_age", "disk", "certificate_expiry", "limit_reached", "schedule_paused",
	}
	severities = []string{"critical", "error", "warning", "info"}
	languages  = []string{"en", "zh"}
)

var alertRuleKind = &Kind{
	Name:    "AlertRule",
	Help:    "An alert rule says which events become alerts, and how they are told.",
	message: func() proto.Message { return &apiv1.AlertRule{} },
	identity: func(m proto.Message) (app, name string) {
		r := m.(*apiv1.AlertRule)
		return r.GetApp(), r.GetName()
	},
	Fields: []Field{
		{Path: "app", Type: Text, Default: "default", Help: "The app that the rule belongs to.", Example: "shop"},
		{Path: "name", Type: Text, Required: true, Help: "The identity of the rule in its app: letters, digits, `.`, `_`, `-`, at most 128.", Example: "failures"},
		{Path: "description", Type: Text, Help: "What the rule is for, and what to do.", Example: "call the team on duty"},
		{Path: "labels", Type: Map, Help: "Labels for people and for filters, at most 64.", Example: "{team: money}"},
		{Path: "events", Type: Texts, Required: true, Enum: alertEvents, Help: "What becomes an alert; `recovered` is the resolve message of the others.", Example: "[failed, recovered]"},
		{Path: "select", Type: Object, Help: "The jobs that count; without it all jobs.", Example: "{jobs: [\"bill-*\"]}"},
		{Path: "select.jobs", Type: Texts, Help: "Names, or patterns with `*` and `?`.", Example: "[\"bill-*\"]"},
		{Path: "select.labels", Type: Map, Help: "Labels that a job has; the value `*` is any value.", Example: "{team: money}"},
		{Path: "select.owners", Type: Texts, Help: "Owners, of which a job has one.", Example: "[ann]"},
		{Path: "when", Type: Object, Help: "The times of the events that depend on one.", Example: "{late_start: 5m}"},
		{Path: "when.late_start", Type: Duration, Default: "1m", Help: "For `late_start`: after the planned time.", Example: "5m"},
		{Path: "when.no_success_since", Type: Duration, Help: "For `no_success_since`, which needs it: the longest time without a success.", Example: "26h"},
		{Path: "when.running_longer_than", Type: Duration, Help: "For `running_longer_than`, which needs it.", Example: "1h"},
		{Path: "when.not_finished_by", Type: Text, Default: "00:00", Help: "For `not_finished_by`: a time of day in the zone of the rule.", Example: "\"06:30\""},
		{Path: "when.queue_age", Type: Duration, Default: "5m", Help: "For `queue_age`: the age of the oldest message of a queue.", Example: "10m"},
		{Path: "when.disk_free_percent", Type: Whole, Default: "0", Unit: "percent", Bounds: between(0, 99), Help: "For `disk`: less free space than this is an alert; 0: 10.", Example: "15"},
		{Path: "when.certificate_expiry", Type: Duration, Default: "8h", Help: "For `certificate_expiry`: the time before the end of a certificate.", Example: "72h"},
		{Path: "severity", Type: Text, Default: "error", Enum: severities, Help: "How urgent the alerts are.", Example: "critical"},
		{Path: "threshold", Type: Whole, Default: "0", Unit: "events", Bounds: between(0, 1000), Help: "The number of events that begin an alert, for `failed_in_row` the runs of one job; 0: 1.", Example: "3"},
		{Path: "window", Type: Duration, Default: "0s", Help: "The time in which these events come; 0s: however long they take.", Example: "10m"},
		{Path: "group_by", Type: Texts, Help: "What divides events into groups, each with one alert: `job`, `run`, `host`, `app`, `event` or `label:NAME`; without it all are one group.", Example: "[job]"},
		{Path: "wait", Type: Duration, Default: "30s", Help: "The time from the beginning of an alert to its first notification.", Example: "0s"},
		{Path: "repeat", Type: Duration, Default: "4h", Help: "The time between the notifications of an alert that goes on; 0s: it is told once.", Example: "1h"},
		{Path: "silence", Type: Duration, Default: "0s", Help: "The time after a notification in which further alerts of its group are not told.", Example: "10m"},
		{Path: "escalate", Type: Object, Help: "Further channels for an alert that no person has acknowledged.", Example: "{after: 30m, channels: [pager]}"},
		{Path: "escalate.after", Type: Duration, Required: true, Help: "The time from the beginning of the alert.", Example: "30m"},
		{Path: "escalate.channels", Type: Texts, Required: true, Help: "The channels.", Example: "[pager]"},
		{Path: "channels", Type: Texts, Required: true, Help: "The names of the channels that are told.", Example: "[ops]"},
		{Path: "mute", Type: Texts, Help: "The names of calendars on whose dates nothing is told.", Example: "[holidays]"},
		{Path: "zone", Type: Text, Default: "UTC", Help: "The time zone of `mute` and `when.not_finished_by`.", Example: "Asia/Shanghai"},
		{Path: "language", Type: Text, Enum: languages, Help: "The language of the notifications; by default that of each channel.", Example: "zh"},
	},
	ServerFields: map[string]string{"updated_at": "the time of the last change", "revision": "the number of the last change"},
}

// jobAlertEvents are the events about a job or its runs.
var jobAlertEvents = slices.DeleteFunc(slices.Clone(alertEvents), func(event string) bool {
	return slices.Contains([]string{"host_lost", "canary_rolled_back", "dead_letter", "queue_age", "disk", "certificate_expiry", "limit_reached"}, event)
})

// jobAlertFields are the fields of the alerts of a job: those of a rule that are not about other jobs.
func jobAlertFields() []Field {
	all := []Field{{Path: "alerts", Type: Objects, Help: "What becomes an alert of this job, as an alert rule for it alone, at most 8.", Example: "[{events: [failed, recovered], channels: [ops]}]"}}
	without := []string{"app", "name", "description", "labels", "select", "group_by", "when.queue_age", "when.disk_free_percent", "when.certificate_expiry"}
	for _, f := range alertRuleKind.Fields {
		if slices.ContainsFunc(without, func(path string) bool { return f.Path == path || strings.HasPrefix(f.Path, path+".") }) {
			continue
		}
		if f.Path == "events" {
			f.Enum = jobAlertEvents
		}
		f.Path = "alerts." + f.Path
		f.Help = strings.ReplaceAll(f.Help, " of the rule", " of the alert")
		all = append(all, f)
	}
	return all
}

var alertChannelKind = &Kind{
	Name:    "AlertChannel",
	Help:    "An alert channel is a receiver of notifications, of exactly one kind such as `webhook` or `mail`.",
	message: func() proto.Message { return &apiv1.AlertChannel{} },
	identity: func(m proto.Message) (app, name string) {
		c := m.(*apiv1.AlertChannel)
		return c.GetApp(), c.GetName()
	},
	Fields: concat([]Field{
		{Path: "app", Type: Text, Default: "default", Help: "The app that the channel belongs to, and whose secrets it may name.", Example: "shop"},
		{Path: "name", Type: Text, Required: true, Help: "The identity of the channel in its app: letters, digits, `.`, `_`, `-`, at most 128.", Example: "ops"},
		{Path: "description", Type: Text, Help: "Who reads it.", Example: "the team on duty"},
		{Path: "labels", Type: Map, Help: "Labels for people and for filters, at most 64.", Example: "{team: money}"},
		{Path: "language", Type: Text, Default: "en", Enum: languages, Help: "The language of the messages.", Example: "zh"},
		{Path: "zone", Type: Text, Default: "UTC", Help: "The time zone of the times in messages.", Example: "Asia/Shanghai"},
	},
		[]Field{
			{Path: "webhook", Type: Object, Help: "A webhook that is signed as Standard Webhooks says.", Example: "{url: \"https://example.com/hook\", secret: {secret: hook-key}}"},
			{Path: "webhook.url", Type: Text, Required: true, Help: "The address.", Example: "\"https://example.com/hook\""},
		},
		secretFields("webhook.secret", "The key of the signature: `whsec_` and a key in base64.", true),
		[]Field{
			{Path: "cloudevents", Type: Object, Help: "A receiver of CloudEvents 1.0, signed as Standard Webhooks says.", Example: "{url: \"https://example.com/events\", secret: {secret: event-key}}"},
			{Path: "cloudevents.url", Type: Text, Required: true, Help: "The address.", Example: "\"https://example.com/events\""},
			{Path: "cloudevents.mode", Type: Text, Default: "structured", Enum: []string{"structured", "binary"}, Help: "Where the attributes of an event are: in the body, or in headers.", Example: "binary"},
		},
		secretFields("cloudevents.secret", "The key of the signature: `whsec_` and a key in base64.", true),
		robotFields("wecom", "A robot of a WeCom group.", false),
		robotFields("dingtalk", "A robot of a DingTalk group.", true),
		robotFields("feishu", "A bot of a Feishu group.", true),
		robotFields("lark", "A bot of a Lark group.", true),
		robotFields("slack", "An incoming webhook of Slack.", false),
		robotFields("teams", "A workflow of Microsoft Teams.", false),
		robotFields("discord", "A webhook of Discord.", false),
		[]Field{
			{Path: "telegram", Type: Object, Help: "A bot of Telegram.", Example: "{token: {secret: bot}, chat: \"@ops\"}"},
			{Path: "telegram.url", Type: Text, Help: "The address of the API; by default that of Telegram.", Example: "\"https://api.telegram.org\""},
			{Path: "telegram.chat", Type: Text, Required: true, Help: "The id of the chat, or `@NAME` of a channel.", Example: "\"@ops\""},
			{Path: "telegram.thread", Type: Whole, Bounds: between(0, 1<<31-1), Default: "0", Help: "The thread of a forum; 0: none.", Example: "7"},
		},
		secretFields("telegram.token", "The token of the bot.", true),
		[]Field{
			{Path: "pagerduty", Type: Object, Help: "An integration of PagerDuty, Events API v2.", Example: "{key: {secret: pager}}"},
			{Path: "pagerduty.url", Type: Text, Help: "The address; by default that of PagerDuty.", Example: "\"https://events.pagerduty.com/v2/enqueue\""},
		},
		secretFields("pagerduty.key", "The integration key.", true),
		[]Field{
			{Path: "alertmanager", Type: Object, Help: "An Alertmanager of Prometheus, API v2.", Example: "{url: \"http://alertmanager:9093\"}"},
			{Path: "alertmanager.url", Type: Text, Required: true, Help: "The address, without `/api/v2`.", Example: "\"http://alertmanager:9093\""},
		},
		secretFields("alertmanager.token", "A token that a proxy in front of it wants.", false),
		[]Field{
			{Path: "mail", Type: Object, Help: "Mails.", Example: "{url: \"smtp://mail.example.com\", from: wheelwork@example.com, to: [ops@example.com]}"},
			{Path: "mail.url", Type: Text, Required: true, Help: "The server: `smtp://HOST:587` with STARTTLS or `smtps://HOST:465`.", Example: "\"smtp://mail.example.com\""},
			{Path: "mail.plain", Type: Truth, Default: "false", Help: "Whether to send without TLS if the server offers none; the password is never sent then.", Example: "true"},
			{Path: "mail.username", Type: Text, Help: "The name to sign in with.", Example: "wheelwork"},
			{Path: "mail.from", Type: Text, Required: true, Help: "The sender.", Example: "wheelwork@example.com"},
			{Path: "mail.to", Type: Texts, Required: true, Help: "The recipients, at most 100.", Example: "[ops@example.com]"},
		},
		[]Field{{Path: "mail.to_owner", Type: Truth, Default: "false", Help: "Whether the owners of the jobs of an alert get its mails too, if an owner is a mail address.", Example: "true"}},
		secretFields("mail.password", "The password to sign in with.", false),
		[]Field{
			{Path: "command", Type: Object, Help: "A command that the operator of the server has declared with `--alert-command`.", Example: "{name: page}"},
			{Path: "command.name", Type: Text, Required: true, Help: "Its name.", Example: "page"},
		},
		[]Field{{Path: "templates", Type: Object, Help: "Own texts, by language.", Example: "{en: {title: \"{{.Title}}\"}}"}},
		templateFields("en"), templateFields("zh"), templateFields("any"),
	),
	ServerFields: map[string]string{"updated_at": "the time of the last change", "revision": "the number of the last change"},
}

func concat(lists ...[]Field) (all []Field) { return slices.Concat(lists...) }

// secretFields are the fields of a text that may be a secret.
func secretFields(path, help string, required bool) []Field {
	return []Field{
		{Path: path, Type: Object, Required: required, Help: help, Example: "{secret: alert-key}"},
		{Path: path + ".secret", Type: Text, Help: "The name of a secret of the app that has it.", Example: "alert-key"},
		{Path: path + ".text", Type: Text, Help: "The text itself, which everyone sees that may read channels.", Example: "abc"},
	}
}

// robotFields are the fields of a robot of a chat.
func robotFields(path, help string, signs bool) []Field {
	const address = "\"https://example.com/robot?key=abc\""
	fields := []Field{
		{Path: path, Type: Object, Help: help, Example: "{url: " + address + "}"},
		{Path: path + ".url", Type: Text, Help: "The address of the robot, which has its key.", Example: address},
	}
	fields = append(fields, secretFields(path+".url_from", "The address as a secret, instead of `url`.", false)...)
	if signs {
		return append(fields, secretFields(path+".secret", "The secret with which messages are signed, if the robot wants that.", false)...)
	}
	return fields
}

// templateFields are the own texts of one language.
func templateFields(language string) []Field {
	path, of := "templates."+language, "in "+map[string]string{"en": "English", "zh": "Chinese", "any": "every other language"}[language]
	return []Field{
		{Path: path, Type: Object, Help: "The texts " + of + ".", Example: "{title: \"{{.Title}}\"}"},
		{Path: path + ".title", Type: Text, Help: "One line, without markup.", Example: "\"{{.Title}}\""},
		{Path: path + ".text", Type: Text, Help: "The body without markup.", Example: "\"{{.Title}}\""},
		{Path: path + ".markdown", Type: Text, Help: "The body with the markup of the platform.", Example: "\"{{.Title}}\""},
		{Path: path + ".html", Type: Text, Help: "The body of a mail.", Example: "\"{{.Title}}\""},
	}
}
