package definition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// maxTemplate bounds the bytes of the templates of one language.
const maxTemplate = 16 << 10

// ReadChannel checks the definition of a channel as far as that needs no secret. An error
// names the field that is wrong. The message is a copy with the fields that clients set.
func ReadChannel(d *apiv1.AlertChannel) (*apiv1.AlertChannel, error) {
	if d == nil {
		return nil, errors.New("the alert channel is missing")
	}
	m := proto.CloneOf(d)
	m.App, m.UpdatedAt, m.Revision = cmp.Or(m.App, naming.DefaultApp), nil, 0
	if err := checkNames(m); err != nil {
		return nil, err
	}
	if err := checkChannel(m); err != nil {
		return nil, fmt.Errorf("alert channel %s: %w", m.Name, err)
	}
	return m, nil
}

func checkChannel(m *apiv1.AlertChannel) error {
	switch n := len(kindsOf(m)); {
	case n == 0:
		return fmt.Errorf("it has no kind: want one of %s", strings.Join(kindNames(), ", "))
	case n > 1:
		return fmt.Errorf("it has the kinds %s: one channel is of one kind", strings.Join(kindsOf(m), " and "))
	}
	switch notification.Language(m.Language) {
	case "", notification.English, notification.Chinese:
	default:
		return fmt.Errorf("language is %.20q, want en or zh", m.Language)
	}
	if _, err := renderer(m); err != nil {
		return err
	}
	for _, t := range textsOf(m) {
		if err := checkText(t.name, t.text); err != nil {
			return err
		}
	}
	// The form of the rest is checked with secrets that have their form.
	form := proto.CloneOf(m)
	for kind, robot := range robotsOf(form) {
		if (*robot.url == "") == (*robot.from == nil) {
			return fmt.Errorf("%s needs url or url_from", kind)
		}
		if *robot.from != nil {
			*robot.url, *robot.from = "https://example.com", nil
		}
	}
	_, err := Open(context.Background(), form, Edges{Secret: func(context.Context, string) (string, error) { return sample, nil }, Client: &http.Client{}})
	return err
}

// sample has the form of each kind of secret.
const sample = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

func checkText(name string, t *apiv1.AlertText) error {
	switch {
	case t.GetText() != "" && t.GetSecret() != "":
		return fmt.Errorf("%s has both a text and a secret", name)
	case t.GetSecret() != "":
		return naming.Check(name+".secret:", t.GetSecret())
	}
	return nil
}

// named is a field of a channel that may be a secret.
type named struct {
	name string
	text *apiv1.AlertText
}

func textsOf(m *apiv1.AlertChannel) []named {
	all := []named{
		{"webhook.secret", m.GetWebhook().GetSecret()},
		{"cloudevents.secret", m.GetCloudevents().GetSecret()},
		{"telegram.token", m.GetTelegram().GetToken()},
		{"pagerduty.key", m.GetPagerduty().GetKey()},
		{"alertmanager.token", m.GetAlertmanager().GetToken()},
		{"mail.password", m.GetMail().GetPassword()},
	}
	for kind, robot := range robotsOf(m) {
		all = append(all, named{string(kind) + ".secret", robot.secret}, named{string(kind) + ".url_from", *robot.from})
	}
	return slices.DeleteFunc(all, func(n named) bool { return n.text == nil })
}

// SecretsOf returns the names of the secrets that a channel names, sorted.
func SecretsOf(m *apiv1.AlertChannel) []string {
	names := map[string]bool{}
	for _, t := range textsOf(m) {
		if t.text.GetSecret() != "" {
			names[t.text.GetSecret()] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// robot is a robot of a chat, of either message.
type robot struct {
	url    *string
	from   **apiv1.AlertText
	secret *apiv1.AlertText
}

func robotsOf(m *apiv1.AlertChannel) map[channel.Kind]robot {
	all := map[channel.Kind]robot{}
	for kind, r := range map[channel.Kind]*apiv1.AlertRobot{
		channel.KindWeCom: m.Wecom, channel.KindSlack: m.Slack, channel.KindTeams: m.Teams, channel.KindDiscord: m.Discord,
	} {
		if r != nil {
			all[kind] = robot{&r.Url, &r.UrlFrom, nil}
		}
	}
	for kind, r := range map[channel.Kind]*apiv1.AlertSignedRobot{
		channel.KindDingTalk: m.Dingtalk, channel.KindFeishu: m.Feishu, channel.KindLark: m.Lark,
	} {
		if r != nil {
			all[kind] = robot{&r.Url, &r.UrlFrom, r.Secret}
		}
	}
	return all
}

func kindNames() (names []string) {
	for _, k := range channel.Kinds() {
		names = append(names, string(k))
	}
	return names
}

// kindsOf returns the kinds that a channel has, sorted.
func kindsOf(m *apiv1.AlertChannel) (names []string) {
	for kind := range robotsOf(m) {
		names = append(names, string(kind))
	}
	for kind, set := range map[channel.Kind]bool{
		channel.KindWebhook: m.Webhook != nil, channel.KindTelegram: m.Telegram != nil, channel.KindPagerDuty: m.Pagerduty != nil,
		channel.KindAlertmanager: m.Alertmanager != nil, channel.KindMail: m.Mail != nil, channel.KindCommand: m.Command != nil,
		channel.KindCloudEvents: m.Cloudevents != nil,
	} {
		if set {
			names = append(names, string(kind))
		}
	}
	slices.Sort(names)
	return names
}

// KindOf returns the kind of a channel that was checked.
func KindOf(m *apiv1.AlertChannel) channel.Kind {
	if names := kindsOf(m); len(names) > 0 {
		return channel.Kind(names[0])
	}
	return ""
}

// LanguageOf returns the language of the messages of a channel.
func LanguageOf(m *apiv1.AlertChannel) notification.Language {
	return cmp.Or(notification.Language(m.GetLanguage()), notification.English)
}

func renderer(m *apiv1.AlertChannel) (*notification.Renderer, error) {
	own := map[notification.Language]notification.Templates{}
	for language, t := range map[notification.Language]*apiv1.AlertTemplates{
		notification.English: m.GetTemplates().GetEn(), notification.Chinese: m.GetTemplates().GetZh(), "": m.GetTemplates().GetAny(),
	} {
		if t == nil {
			continue
		}
		if len(t.GetTitle())+len(t.GetText())+len(t.GetMarkdown())+len(t.GetHtml()) > maxTemplate {
			return nil, fmt.Errorf("templates.%s has more than %d bytes", cmp.Or(language, "any"), maxTemplate)
		}
		own[language] = notification.Templates{Title: t.GetTitle(), Text: t.GetText(), Markdown: t.GetMarkdown(), HTML: t.GetHtml()}
	}
	in, err := zone(m.Zone)
	if err != nil {
		return nil, err
	}
	r, err := notification.NewRenderer(own, in)
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	return r, nil
}

// Edges are what a channel reaches the world with.
type Edges struct {
	// Secret returns the value of a secret of the app of the channel.
	Secret func(ctx context.Context, name string) (string, error)
	Client *http.Client // guards what may be reached
	// Dial is the guard for mail; nil: there is none.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Commands runs commands of the operator; nil: there are none.
	Commands channel.Runner
}

// Open returns the channel of a definition that was checked.
func Open(ctx context.Context, m *apiv1.AlertChannel, e Edges) (channel.Channel, error) {
	r, err := renderer(m)
	if err != nil {
		return nil, err
	}
	var failed error
	value := func(t *apiv1.AlertText) string {
		if t.GetSecret() == "" {
			return t.GetText()
		}
		v, err := e.Secret(ctx, t.GetSecret())
		failed = cmp.Or(failed, err)
		return strings.TrimRight(v, "\r\n")
	}
	var end channel.Endpoint
	switch kind := KindOf(m); kind {
	case channel.KindWebhook:
		end = channel.Webhook{URL: m.Webhook.Url, Secret: value(m.Webhook.Secret)}
	case channel.KindCloudEvents:
		end = channel.CloudEvents{URL: m.Cloudevents.Url, Secret: value(m.Cloudevents.Secret), Mode: m.Cloudevents.Mode}
	case channel.KindTelegram:
		end = channel.Telegram{URL: m.Telegram.Url, Token: value(m.Telegram.Token), Chat: m.Telegram.Chat, Thread: int(m.Telegram.Thread)}
	case channel.KindPagerDuty:
		end = channel.PagerDuty{URL: m.Pagerduty.Url, Key: value(m.Pagerduty.Key)}
	case channel.KindAlertmanager:
		end = channel.Alertmanager{URL: m.Alertmanager.Url, Token: value(m.Alertmanager.Token)}
	case channel.KindMail:
		mail := channel.Mail{
			URL: m.Mail.Url, Plain: m.Mail.Plain, Username: m.Mail.Username, Password: value(m.Mail.Password), From: m.Mail.From, To: m.Mail.To, ToOwner: m.Mail.ToOwner, Dial: e.Dial,
		}
		if failed != nil {
			return nil, failed
		}
		return channel.NewMail(mail, r)
	case channel.KindCommand:
		return channel.NewCommand(channel.Command{Name: m.Command.Name, App: m.App}, e.Commands, r)
	default:
		robot := robotsOf(m)[kind]
		end = robotOf(kind, cmp.Or(*robot.url, value(*robot.from)), value(robot.secret))
	}
	if failed != nil {
		return nil, failed
	}
	return channel.Over(e.Client, end, r)
}

func robotOf(kind channel.Kind, url, secret string) channel.Endpoint {
	switch kind {
	case channel.KindDingTalk:
		return channel.DingTalk{URL: url, Secret: secret}
	case channel.KindFeishu, channel.KindLark:
		return channel.Feishu{URL: url, Secret: secret, International: kind == channel.KindLark}
	case channel.KindSlack:
		return channel.Slack{URL: url}
	case channel.KindTeams:
		return channel.Teams{URL: url}
	case channel.KindDiscord:
		return channel.Discord{URL: url}
	}
	return channel.WeCom{URL: url}
}
