package definition_test

import (
	"strings"
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/definition"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// channels are one of each kind, with the word "hush" in each key.
func channels() map[string]*apiv1.AlertChannel {
	key, from := &apiv1.AlertText{Secret: "robot-key"}, &apiv1.AlertText{Secret: "robot-url"}
	text := &apiv1.AlertText{Text: "hush-hush"}
	return map[string]*apiv1.AlertChannel{
		"webhook":      {Webhook: &apiv1.AlertWebhook{Url: "https://example.com/hook?token=hush", Secret: key}},
		"cloudevents":  {Cloudevents: &apiv1.AlertCloudEvents{Url: "https://example.com/events?token=hush", Secret: key, Mode: "binary"}},
		"wecom":        {Wecom: &apiv1.AlertRobot{Url: "https://example.com/send?key=hush"}},
		"dingtalk":     {Dingtalk: &apiv1.AlertSignedRobot{UrlFrom: from, Secret: key}},
		"feishu":       {Feishu: &apiv1.AlertSignedRobot{Url: "https://example.com/hook/hush-with-many-letters", Secret: text}},
		"lark":         {Lark: &apiv1.AlertSignedRobot{UrlFrom: from}},
		"slack":        {Slack: &apiv1.AlertRobot{UrlFrom: from}},
		"teams":        {Teams: &apiv1.AlertRobot{UrlFrom: from}},
		"discord":      {Discord: &apiv1.AlertRobot{UrlFrom: from}},
		"telegram":     {Telegram: &apiv1.AlertTelegram{Token: text, Chat: "@ops"}},
		"pagerduty":    {Pagerduty: &apiv1.AlertPagerDuty{Key: text}},
		"alertmanager": {Alertmanager: &apiv1.AlertManager{Url: "http://127.0.0.1:9093", Token: text}},
		"mail":         {Mail: &apiv1.AlertMail{Url: "smtp://mail.example.com", Username: "ops", Password: text, From: "ops@example.com", To: []string{"ann@example.com"}}},
		"command":      {Command: &apiv1.AlertCommand{Name: "page"}},
	}
}

// TestPreview: each kind shows its message in both languages, without a key.
func TestPreview(t *testing.T) {
	at := time.Date(2026, 3, 2, 2, 30, 0, 0, time.UTC)
	for kind, d := range channels() {
		d.App, d.Name = "shop", "ops"
		for language, want := range map[notification.Language]string{notification.English: "disk almost full", notification.Chinese: "磁盘空间不足"} {
			p, err := definition.Preview(d, "disk", language, at)
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			all := p.Title + p.URL + p.Body + p.HTML + p.Note
			for name, value := range p.Headers {
				all += name + value
			}
			if !strings.Contains(p.Title, want) || kind != "mail" && kind != "cloudevents" && !strings.Contains(p.Body, want) || p.Body == "" {
				t.Errorf("%s in %s: %q\n%s", kind, language, p.Title, p.Body)
			}
			if strings.Contains(all, "hush") || strings.Contains(all, "whsec_") || strings.Contains(all, "secret.invalid") {
				t.Errorf("%s shows a key: %s", kind, all)
			}
			if d.GetSlack() != nil && p.URL != "{secret: robot-url}" {
				t.Errorf("%s: %s %s", kind, p.Method, p.URL)
			}
		}
		p, err := definition.Preview(d, "recovered", "", at)
		if err != nil || !strings.Contains(p.Title, "RESOLVED") {
			t.Errorf("%s resolves: %q, %v", kind, p.Title, err)
		}
	}
	for _, wrong := range [][2]string{{"fails", "en"}, {"failed", "de"}} {
		if _, err := definition.Preview(channels()["slack"], wrong[0], notification.Language(wrong[1]), at); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%v: %v", wrong, err)
		}
	}
}

// TestPreviewOfTemplates: a preview has the texts of the channel, and says why one is not used.
func TestPreviewOfTemplates(t *testing.T) {
	d := channels()["slack"]
	d.Templates = &apiv1.AlertTexts{Zh: &apiv1.AlertTemplates{Title: "我的 {{.Subject}}"}, En: &apiv1.AlertTemplates{Title: `{{if eq .Event "disk"}}{{index .Alerts 7}}{{end}}mine`}}
	p, err := definition.Preview(d, "failed", notification.Chinese, time.Now())
	if err != nil || p.Title != "我的 nightly" || p.Note != "" {
		t.Errorf("%q, %q, %v", p.Title, p.Note, err)
	}
	p, err = definition.Preview(d, "disk", notification.English, time.Now())
	if err != nil || !strings.Contains(p.Title, "FIRING") || !strings.Contains(p.Note, "the built-in text was sent") {
		t.Errorf("%q, %q, %v", p.Title, p.Note, err)
	}
}
