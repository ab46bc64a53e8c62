package document

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
)

// TestSubscription compares a subscription with the documents that it stands for.
func TestSubscription(t *testing.T) {
	const short = `
kind: subscription
app: shop
name: warehouse
labels: {team: money}
events: [failed]
select: {jobs: ["import-*"]}
url: https://example.com/events
mode: binary
secret: {secret: event-key}
`
	const long = `
kind: AlertChannel
app: shop
name: warehouse
labels: {team: money}
cloudevents: {url: https://example.com/events, mode: binary, secret: {secret: event-key}}
---
kind: AlertRule
app: shop
name: warehouse
labels: {team: money}
events: [failed]
select: {jobs: ["import-*"]}
severity: info
group_by: [run]
wait: 0s
repeat: 0s
channels: [warehouse]
`
	compareDocuments(t, short, long)
	compareDocuments(t, `{"kind": "Subscription", "name": "w", "url": "https://example.com", "secret": {"text": "whsec_YQ=="}, "mode": null}`, `
{kind: AlertChannel, name: w, cloudevents: {url: https://example.com, secret: {text: whsec_YQ==}}}
---
{kind: AlertRule, name: w, events: [succeeded, failed, timed_out], severity: info, group_by: [run], wait: 0s, repeat: 0s, channels: [w]}
`)
}

func compareDocuments(t *testing.T, short, long string) {
	t.Helper()
	got, err := Parse(strings.NewReader(short), Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse(strings.NewReader(long), Options{})
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d documents, want %d: %v", len(got), len(want), err)
	}
	for i := range want {
		if got[i].Kind != want[i].Kind || got[i].App != want[i].App || got[i].Name != want[i].Name || !proto.Equal(got[i].Spec, want[i].Spec) {
			t.Errorf("%s %v\nwant %s %v", got[i], got[i].Spec, want[i], want[i].Spec)
		}
	}
}

// TestSubscriptionRefused reads subscriptions with mistakes. Each is reported once, where it is.
func TestSubscriptionRefused(t *testing.T) {
	const start = "kind: Subscription\nname: w\n"
	const end = "url: https://example.com\nsecret: {secret: key}\n"
	for source, want := range map[string]string{
		start + "url: https://example.com\n":               "f.yaml:1:1: secret is missing",
		start + "secret: {secret: key}\n":                  "f.yaml:1:1: url is missing",
		"kind: Subscription\n" + end:                       "f.yaml:1:1: name is missing",
		start + end + "address: x\n":                       `f.yaml:5:1: unknown field "address": want one of app, description, events, labels, mode, name, secret, select, url`,
		start + end + "urls: x\n":                          `f.yaml:5:1: unknown field "urls": did you mean "url"?`,
		start + end + "url: https://example.org\n":         "f.yaml:5:1: url is set twice",
		start + end + "events: [host_lost]\n":              `f.yaml:5:10: events: "host_lost" is not the end of a run: want one of succeeded, failed, retry_exhausted, timed_out`,
		start + end + "labels: 7\n":                        `f.yaml:5:9: labels: want names with values, found "7"`,
		start + end + "select: {job: a}\n":                 `f.yaml:5:10: unknown field "select.job": did you mean "jobs"?`,
		start + end + "mode: odd\nselect: {jobs: [[a]]}\n": "f.yaml:5:7: ",
	} {
		_, err := Parse(strings.NewReader(source), Options{File: "f.yaml"})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Count(err.Error(), want) != 1 {
			t.Errorf("%v, want %s\n%s", err, want, source)
		}
	}
	for _, k := range []*Kind{nil, jobKind, alertRuleKind} {
		if _, err := Parse(strings.NewReader(start+end), Options{Kind: k, Only: true}); err == nil || !strings.Contains(err.Error(), "kind is Subscription: want documents of the kind") {
			t.Errorf("with one kind only: %v", err)
		}
	}
	if _, err := Find("Subscription"); err == nil || !strings.Contains(err.Error(), "alertchannel and an alertrule") {
		t.Errorf("Find: %v", err)
	}
}
