package definition

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/alert/rule"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Preview returns what a channel would send at a time for an example of an event. It opens no secret:
// an example takes the place of each, so the signature of a preview is that of no key.
func Preview(d *apiv1.AlertChannel, event string, language notification.Language, now time.Time) (channel.Preview, error) {
	event = cmp.Or(event, rule.Failed)
	if !slices.Contains(Events(), event) {
		return channel.Preview{}, fmt.Errorf("event is %.40q, want one of %s", event, strings.Join(Events(), ", "))
	}
	switch language {
	case "", notification.English, notification.Chinese:
	default:
		return channel.Preview{}, fmt.Errorf("language is %.20q, want en or zh", language)
	}
	m := proto.CloneOf(d)
	address := ""
	for _, t := range textsOf(m) {
		if strings.HasSuffix(t.name, ".url_from") {
			address = t.text.GetSecret()
		}
		t.text.Text, t.text.Secret = sample, ""
	}
	for _, robot := range robotsOf(m) {
		if *robot.from != nil {
			*robot.url, *robot.from = sampleURL, nil
		}
	}
	c, err := Open(context.Background(), m, Edges{Client: &http.Client{}})
	if err != nil {
		return channel.Preview{}, err
	}
	x := notification.Samples(cmp.Or(language, LanguageOf(m)))[0].Notifications[0]
	x.Event, x.App, x.At, x.Since = event, m.App, now, now
	for i := range x.Incidents {
		x.Incidents[i].At = now
	}
	x.Owners = []string{"owner@example.com"}
	if event == rule.Recovered {
		x.State, x.Event = notification.Resolved, rule.Failed
	}
	p, err := c.(channel.Previewer).Preview(now, notification.Single(x))
	if err != nil {
		return p, err
	}
	for _, text := range []*string{&p.URL, &p.Body, &p.Note} {
		*text = strings.ReplaceAll(*text, sample, "[hidden]")
	}
	for name, value := range p.Headers {
		p.Headers[name] = strings.ReplaceAll(value, sample, "[hidden]")
	}
	if rest, ok := strings.CutPrefix(p.URL, sampleURL); ok && address != "" {
		p.URL = "{secret: " + address + "}" + rest
	}
	return p, nil
}

// sampleURL takes the place of an address that is a secret.
const sampleURL = "https://secret.invalid"

// Events returns the events that a rule can list, and an example can have.
func Events() []string { return rule.Events() }
