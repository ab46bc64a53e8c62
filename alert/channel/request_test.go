package channel_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
	"github.com/wheelworkhq/wheelwork/internal/webhook"
)

var update = flag.Bool("update", false, "write the golden files")

var (
	began = time.Date(2026, 3, 2, 2, 30, 0, 0, time.UTC)
	now   = began.Add(time.Minute)
)

// hookKey is the key of the tests: "whsec_" and 24 bytes in base64.
const hookKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func firing(l notification.Language) notification.Notification {
	return notification.Notification{
		ID: "n-1", Alert: "a-1", Rule: "failures", App: "shop", Event: "failed", Severity: notification.Error, State: notification.Firing, Language: l,
		Labels: map[string]string{"job": "nightly", "cost.centre": "42"}, Count: 3, Since: began, At: began.Add(30 * time.Second),
		Link: "https://wheelwork.example/alerts/a-1",
		Incidents: []notification.Incident{
			{Job: "nightly", Run: "0001", Error: "exit status 1 <@all> & \"more\"", At: began, Link: "https://wheelwork.example/runs/0001"},
			{Job: "nightly", Run: "0002", Event: "timed_out", At: began.Add(10 * time.Second)},
		},
	}
}

func resolved(l notification.Language) notification.Notification {
	n := firing(l)
	n.ID, n.State, n.Event, n.Incidents, n.At = "n-2", notification.Resolved, "recovered", nil, began.Add(time.Hour)
	return n
}

func messages(l notification.Language) map[string]notification.Message {
	other := resolved(l)
	other.Alert, other.Labels = "a-2", map[string]string{"job": "hourly"}
	return map[string]notification.Message{
		"firing": notification.Single(firing(l)), "resolved": notification.Single(resolved(l)),
		"digest": notification.Digest([]notification.Notification{firing(l), other}),
	}
}

// endpoints has one of each kind that takes HTTP requests, with a secret in each place that
// a kind has.
func endpoints() []channel.Endpoint {
	return []channel.Endpoint{
		channel.Webhook{URL: "https://hooks.example/hook/secret-path-of-hook", Secret: hookKey},
		channel.CloudEvents{URL: "https://events.example/in/secret-path-of-events", Secret: hookKey},
		channel.WeCom{URL: "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=secret-key-of-wecom"},
		channel.DingTalk{URL: "https://oapi.dingtalk.com/robot/send?access_token=secret-token-of-dingtalk", Secret: "SECsecret-of-dingtalk"},
		channel.Feishu{URL: "https://open.feishu.cn/open-apis/bot/v2/hook/secret-token-of-feishu", Secret: "secret-of-feishu"},
		channel.Feishu{URL: "https://open.larksuite.com/open-apis/bot/v2/hook/secret-token-of-lark", Secret: "secret-of-lark", International: true},
		channel.Slack{URL: "https://hooks.slack.com/services/T000/B000/secret-token-of-slack"},
		channel.Teams{URL: "https://example.logic.azure.com/workflows/secret-id-of-teams/triggers/manual/paths/invoke?api-version=2016-06-01&sig=secret-sig-of-teams"},
		channel.Discord{URL: "https://discord.com/api/webhooks/1/secret-token-of-discord"},
		channel.Telegram{Token: "1:secret-token-of-telegram", Chat: "-100200", Thread: 7},
		channel.PagerDuty{Key: "secret-key-of-pagerduty"},
		channel.Alertmanager{URL: "http://alertmanager.example:9093/prefix/", Token: "secret-token-of-alertmanager"},
	}
}

func renderer(t testing.TB) *notification.Renderer {
	t.Helper()
	r, err := notification.NewRenderer(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func over(t testing.TB, e channel.Endpoint, rt http.RoundTripper) *channel.HTTP {
	t.Helper()
	c, err := channel.Over(&http.Client{Transport: rt}, e, renderer(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRequests checks the request of each kind, state and language against files that were
// compared with the documents of the platforms.
func TestRequests(t *testing.T) {
	for _, e := range endpoints() {
		c := over(t, e, nil)
		for _, l := range []notification.Language{notification.English, notification.Chinese} {
			for name, m := range messages(l) {
				req, err := c.Request(now, m)
				if e.Kind() == channel.KindPagerDuty && m.IsDigest() {
					if err == nil {
						t.Error("PagerDuty takes a digest")
					}
					continue
				}
				if err != nil {
					t.Errorf("%s %s %s: %v", e.Kind(), name, l, err)
					continue
				}
				golden(t, filepath.Join("testdata", string(e.Kind()), name+"-"+string(l)+".http"), dump(t, req))
			}
		}
	}
}

// dump writes a request as a person reads it. The length is that of the body as it is sent.
func dump(t *testing.T, req *http.Request) string {
	t.Helper()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(body)) != req.ContentLength {
		t.Errorf("the body has %d bytes, the length is %d", len(body), req.ContentLength)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s\nContent-Length: %d\n", req.Method, req.URL, req.ContentLength)
	for _, name := range slices.Sorted(maps.Keys(req.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(req.Header[name], ", "))
	}
	b.WriteString("\n")
	if err := json.Indent(&b, body, "", "  "); err != nil {
		t.Errorf("the body is no JSON: %v", err)
	}
	return b.String() + "\n"
}

func golden(t *testing.T, file, have string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), have); diff != "" {
		t.Errorf("%s (-want +have), -update writes it:\n%s", file, diff)
	}
}

// TestWebhookSignature checks the signature against the example of the reference library of
// Standard Webhooks.
func TestWebhookSignature(t *testing.T) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(hookKey, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	h := webhook.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`), key, key)
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if h.Signature != want+" "+want {
		t.Errorf("signature %s, want %s twice", h.Signature, want)
	}
	if h.ID != "msg_p5jXN8AQM9LWM0D4loKWxJek" || h.Timestamp != "1614265330" {
		t.Errorf("headers %v", h)
	}
}

// TestRobotSignatures checks the signatures against values that openssl made:
//
//	printf '1772418660000\nSECsecret-of-dingtalk' | openssl dgst -sha256 -hmac SECsecret-of-dingtalk -binary | base64
//	printf '' | openssl dgst -sha256 -hmac "$(printf '1772418660\nsecret-of-feishu')" -binary | base64
func TestRobotSignatures(t *testing.T) {
	for _, e := range endpoints() {
		req, err := over(t, e, nil).Request(now, messages(notification.English)["firing"])
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind() {
		case channel.KindDingTalk:
			q := req.URL.Query()
			if q.Get("timestamp") != "1772418660000" || q.Get("sign") != dingtalkSign || q.Get("access_token") != "secret-token-of-dingtalk" {
				t.Errorf("query %v", q)
			}
		case channel.KindFeishu:
			var x struct{ Timestamp, Sign string }
			if err := json.NewDecoder(req.Body).Decode(&x); err != nil || x.Timestamp != "1772418660" || x.Sign != feishuSign {
				t.Errorf("%+v, %v", x, err)
			}
		}
	}
}

// TestSizes checks that the largest message is within the bounds of each platform, and that
// a digest of as many notifications as the limit folds names each of them.
func TestSizes(t *testing.T) {
	for _, e := range endpoints() {
		c := over(t, e, nil)
		n := firing(notification.Chinese)
		n.Count = 1000
		for range 400 {
			n.Incidents = append(n.Incidents, notification.Incident{
				Job: strings.Repeat("任务\"", 100), Run: strings.Repeat("r", 500), Error: strings.Repeat("<错误&>\\", 400), At: began, Link: "https://wheelwork.example/" + strings.Repeat("(", 1500),
			})
		}
		checkSize(t, c, notification.Single(n))
		fold := channel.LimitOf(e.Kind()).Fold
		if fold == 0 {
			continue
		}
		var list []notification.Notification
		for i := range fold {
			one := firing(notification.Chinese)
			one.ID, one.Alert = fmt.Sprintf("n-%03d", i), fmt.Sprintf("a-%03d", i)
			one.Labels = map[string]string{"job": fmt.Sprintf("job-%03d-%s", i, strings.Repeat("长", 40))}
			one.Link = "https://wheelwork.example/alerts/" + strings.Repeat("0", 64)
			one.Incidents = []notification.Incident{{Job: "x", Error: strings.Repeat("<错误&>", 40), At: began}}
			list = append(list, one)
		}
		body := checkSize(t, c, notification.Digest(list))
		for i := range fold {
			if name := fmt.Sprintf("job-%03d", i); !strings.Contains(body, name) {
				t.Errorf("%s: a digest of %d does not name %s", e.Kind(), fold, name)
				break
			}
		}
	}
}

func checkSize(t *testing.T, c *channel.HTTP, m notification.Message) string {
	t.Helper()
	req, err := c.Request(now, m)
	if err != nil {
		t.Fatalf("%s: %v", c.Kind(), err)
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		t.Fatal(err)
	}
	limit := map[channel.Kind]int{
		channel.KindDingTalk: 20_000, channel.KindFeishu: 20_000, channel.KindLark: 20_000, channel.KindTeams: 28_000, channel.KindPagerDuty: 512_000,
	}[c.Kind()]
	if limit > 0 && len(body) > limit {
		t.Errorf("%s: a request of %d bytes, the limit is %d", c.Kind(), len(body), limit)
	}
	var x struct {
		Markdown struct{ Content string }
		Text     string
		Blocks   []struct{ Text struct{ Text string } }
		Embeds   []struct{ Title, Description string }
	}
	if c.Kind() != channel.KindAlertmanager {
		if err := json.Unmarshal(body, &x); err != nil {
			// The field text is an object in no kind that this test reads.
			t.Logf("%s: %v", c.Kind(), err)
		}
	}
	if got := len(x.Markdown.Content); got > 4096 {
		t.Errorf("%s: %d bytes of content", c.Kind(), got)
	}
	if got := len([]rune(x.Text)); c.Kind() == channel.KindTelegram && got > 4096 {
		t.Errorf("%s: %d characters", c.Kind(), got)
	}
	for i, block := range x.Blocks {
		if got := len([]rune(block.Text.Text)); got > 3000 || i == 0 && got > 150 {
			t.Errorf("%s: block %d has %d characters", c.Kind(), i, got)
		}
	}
	for _, embed := range x.Embeds {
		if len([]rune(embed.Title)) > 256 || len([]rune(embed.Description)) > 4096 {
			t.Errorf("%s: an embed of %d and %d characters", c.Kind(), len([]rune(embed.Title)), len([]rune(embed.Description)))
		}
	}
	return string(body)
}

// TestChecks checks that each wrong field is refused before a message needs the channel,
// with an error that does not repeat a secret.
func TestChecks(t *testing.T) {
	for want, e := range map[string]channel.Endpoint{
		"url is missing":                channel.Slack{},
		"url is malformed":              channel.WeCom{URL: "ftp://s3cr3t"},
		"url has a fragment":            channel.Discord{URL: "https://s3cr3t/#s3cr3t"},
		"secret is missing":             channel.Webhook{URL: "https://hooks.example"},
		"secret is malformed":           channel.Webhook{URL: "https://hooks.example", Secret: "whsec_s3cr3t!"},
		"a key of 3 bytes":              channel.Webhook{URL: "https://hooks.example", Secret: "whsec_AAAA"},
		"token is missing or malformed": channel.Telegram{Token: "1:s3cr3t/x", Chat: "1"},
		"chat is missing":               channel.Telegram{Token: "1:s3cr3t"},
		"key is missing":                channel.PagerDuty{},
		"life is negative":              channel.Alertmanager{URL: "http://am", Life: -1},
		"token has a line break":        channel.Alertmanager{URL: "http://am", Token: "s3cr3t\n"},
	} {
		_, err := channel.Over(http.DefaultClient, e, renderer(t))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
	r := over(t, endpoints()[0], nil).Send(context.Background(), now, notification.Message{})
	if r.Verdict != channel.Refused {
		t.Errorf("an empty message: %+v", r)
	}
}

const (
	dingtalkSign = "doOx+4pheigLhZdzhXhOPM1V4MY2nu1vfpjrc5uOM1o="
	feishuSign   = "HP5/qrfpvDfsOFO1CDktOZCpRx38pGt79BB8WKZRZKo="
)
