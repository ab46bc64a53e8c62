package channel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/channel"
	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// platform answers requests in memory.
type platform func(*http.Request) (*http.Response, error)

func (p platform) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return p(req)
}

func respond(status int, body string, header ...string) *http.Response {
	r := &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

// TestAnswers checks what the documented answers of each platform mean.
func TestAnswers(t *testing.T) {
	type row struct {
		status  int
		body    string
		header  []string
		verdict channel.Verdict
		until   time.Duration // from now
		code    string
	}
	minute, tenMinutes := time.Minute, 10*time.Minute
	// What holds for every platform that answers with the status.
	common := []row{
		{503, "busy", nil, channel.Retry, 0, ""},
		{503, "busy", []string{"Retry-After", "7"}, channel.RateLimited, 7 * time.Second, ""},
		{408, "", nil, channel.Retry, 0, ""},
		{403, "", nil, channel.Refused, 0, ""},
		{302, "", []string{"Location", "https://evil.example/"}, channel.Refused, 0, ""},
	}
	robots := []row{
		{200, "<html>", nil, channel.Retry, 0, ""},
		{502, "bad gateway", nil, channel.Retry, 0, ""},
		{429, "", nil, channel.RateLimited, minute, ""},
	}
	feishu := append([]row{
		{200, `{"StatusCode":0,"StatusMessage":"success","code":0,"data":{},"msg":"success"}`, nil, channel.Delivered, 0, ""},
		{200, `{"StatusCode":0,"StatusMessage":"success"}`, nil, channel.Delivered, 0, ""},
		{200, `{"code":11232,"data":{},"msg":"frequency limited psm[lark.oapi.app_platform_runtime]appID[1500]"}`, nil, channel.RateLimited, minute, "11232"},
		{400, `{"code":9499,"msg":"too many request","data":{}}`, []string{"X-Ogw-Ratelimit-Reset", "20"}, channel.RateLimited, 20 * time.Second, "9499"},
		{400, `{"code":9499,"msg":"Bad Request","data":{}}`, nil, channel.Refused, 0, "9499"},
		{200, `{"code":19001,"msg":"param invalid: incoming webhook access token invalid"}`, nil, channel.Refused, 0, "19001"},
		{200, `{"code":19021,"msg":"sign match fail or timestamp is not within one hour from current time"}`, nil, channel.Refused, 0, "19021"},
		{200, `{"code":19024,"msg":"Key Words Not Found"}`, nil, channel.Refused, 0, "19024"},
		{200, `{"code":1,"msg":"what is new"}`, nil, channel.Retry, 0, "1"},
	}, robots...)
	telegram := append([]row{
		{200, `{"ok":true,"result":{"message_id":5}}`, nil, channel.Delivered, 0, ""},
		{429, `{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 35","parameters":{"retry_after":35}}`, nil, channel.RateLimited, 35 * time.Second, "429"},
		{401, `{"ok":false,"error_code":401,"description":"Unauthorized"}`, nil, channel.Refused, 0, "401"},
		{400, `{"ok":false,"error_code":400,"description":"Bad Request: chat not found"}`, nil, channel.Refused, 0, "400"},
		{500, `{"ok":false,"error_code":500,"description":"Internal Server Error"}`, nil, channel.Retry, 0, "500"},
	}, robots...)
	tests := map[channel.Kind][]row{
		channel.KindWebhook: append([]row{
			{204, "", nil, channel.Delivered, 0, ""},
			{410, "", nil, channel.Refused, 0, ""},
			{429, "", []string{"Retry-After", "Mon, 02 Mar 2026 02:33:00 GMT"}, channel.RateLimited, 2 * minute, ""},
			{429, "", []string{"Retry-After", "99999999999999999999"}, channel.RateLimited, 24 * time.Hour, ""},
			{429, "", []string{"Retry-After", "Mon, 02 Mar 2020 02:33:00 GMT"}, channel.RateLimited, minute, ""},
		}, common...),
		channel.KindWeCom: append([]row{
			{200, `{"errcode":0,"errmsg":"ok"}`, nil, channel.Delivered, 0, ""},
			{200, `{"errcode":45009,"errmsg":"api freq out of limit"}`, nil, channel.RateLimited, minute, "45009"},
			{200, `{"errcode":93000,"errmsg":"invalid webhook url"}`, nil, channel.Refused, 0, "93000"},
			{200, `{"errcode":40058,"errmsg":"markdown.content exceed max length 4096"}`, nil, channel.Refused, 0, "40058"},
			{200, `{"errcode":-1,"errmsg":"system busy"}`, nil, channel.Retry, 0, "-1"},
		}, robots...),
		channel.KindDingTalk: append([]row{
			{200, `{"errcode":0,"errmsg":"ok"}`, nil, channel.Delivered, 0, ""},
			{200, `{"errcode":130101,"errmsg":"send too fast, exceed 20 times per minute"}`, nil, channel.RateLimited, tenMinutes, "130101"},
			{200, `{"errcode":410100,"errmsg":"limited"}`, nil, channel.RateLimited, tenMinutes, "410100"},
			{200, `{"errcode":90030,"errmsg":"webhook over limit"}`, nil, channel.RateLimited, time.Hour, "90030"},
			{200, `{"errcode":310000,"errmsg":"sign not match"}`, nil, channel.Refused, 0, "310000"},
			{200, `{"errcode":300005,"errmsg":"token is not exist"}`, nil, channel.Refused, 0, "300005"},
			{200, `{"errcode":-1,"errmsg":"busy"}`, nil, channel.Retry, 0, "-1"},
			{200, `{"errcode":7,"errmsg":"what is new"}`, nil, channel.Retry, 0, "7"},
		}, robots...),
		channel.KindFeishu: feishu, channel.KindLark: feishu,
		channel.KindSlack: append([]row{
			{200, "ok", nil, channel.Delivered, 0, ""},
			{429, "rate_limited", []string{"Retry-After", "30"}, channel.RateLimited, 30 * time.Second, "rate_limited"},
			{400, "invalid_payload", nil, channel.Refused, 0, "invalid_payload"},
			{404, "channel_not_found", nil, channel.Refused, 0, "channel_not_found"},
			{410, "channel_is_archived", nil, channel.Refused, 0, "channel_is_archived"},
			{500, "rollup_error", nil, channel.Retry, 0, "rollup_error"},
		}, common...),
		channel.KindTeams: append([]row{
			{202, "", nil, channel.Delivered, 0, ""},
			{400, `{"error":{"code":"WorkflowTriggerIsNotEnabled","message":"the workflow is off"}}`, nil, channel.Refused, 0, "WorkflowTriggerIsNotEnabled"},
			{429, "", []string{"Retry-After", "5"}, channel.RateLimited, 5 * time.Second, ""},
		}, common...),
		channel.KindDiscord: append([]row{
			{200, `{"id":"123"}`, nil, channel.Delivered, 0, ""},
			{429, `{"message":"You are being rate limited.","retry_after":1.2345,"global":false}`, []string{"Retry-After", "2"}, channel.RateLimited, 1235 * time.Millisecond, ""},
			{404, `{"message":"Unknown Webhook","code":10015}`, nil, channel.Refused, 0, "10015"},
		}, common...),
		channel.KindTelegram: telegram,
		channel.KindPagerDuty: append([]row{
			{202, `{"status":"success","message":"Event processed","dedup_key":"a-1"}`, nil, channel.Delivered, 0, ""},
			{400, `{"status":"invalid event","message":"Event object is invalid","errors":["bad key"]}`, nil, channel.Refused, 0, "invalid event"},
			{429, "", nil, channel.RateLimited, minute, ""},
		}, common...),
		channel.KindCloudEvents: append([]row{
			{202, `{"runs":[]}`, nil, channel.Delivered, 0, ""},
			{400, "no event", nil, channel.Refused, 0, ""},
			{429, "", []string{"Retry-After", "2"}, channel.RateLimited, 2 * time.Second, ""},
		}, common...),
		channel.KindAlertmanager: append([]row{
			{200, "", nil, channel.Delivered, 0, ""},
			{400, `"bad labels"`, nil, channel.Refused, 0, ""},
			{500, `"x"`, nil, channel.Retry, 0, ""},
		}, common...),
	}
	for _, e := range endpoints() {
		if len(tests[e.Kind()]) == 0 {
			t.Errorf("%s has no answers", e.Kind())
		}
		for _, tt := range tests[e.Kind()] {
			c := over(t, e, platform(func(*http.Request) (*http.Response, error) { return respond(tt.status, tt.body, tt.header...), nil }))
			r := c.Send(context.Background(), now, messages(notification.English)["firing"])
			if r.Verdict != tt.verdict || r.Code != tt.code || r.Status != tt.status {
				t.Errorf("%s answers %d %s: %+v, want %s %q", e.Kind(), tt.status, tt.body, r, tt.verdict, tt.code)
			}
			if tt.verdict == channel.RateLimited && r.Until.Sub(now) != tt.until {
				t.Errorf("%s answers %d %s: blocked for %s, want %s", e.Kind(), tt.status, tt.body, r.Until.Sub(now), tt.until)
			}
			if (tt.verdict == channel.Refused || tt.verdict == channel.Retry) && r.Reason == "" {
				t.Errorf("%s answers %d %s: no reason", e.Kind(), tt.status, tt.body)
			}
		}
	}
}

// TestNoSecretInResults checks that neither an error of the network nor an answer that
// repeats the request brings a secret into a result.
func TestNoSecretInResults(t *testing.T) {
	for _, e := range endpoints() {
		for name, p := range map[string]platform{
			"error": func(req *http.Request) (*http.Response, error) {
				return nil, fmt.Errorf("dial: %w", errors.New("refused "+req.URL.String()))
			},
			"echo": func(req *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(req.Body)
				text := strings.ReplaceAll(fmt.Sprintf("%s %v %s", req.URL, req.Header, body), `"`, `'`)
				return respond(500, `{"errcode":1,"errmsg":"`+text+`","code":1,"msg":"`+text+`","message":"`+text+`","ok":false,"error_code":500,"description":"`+text+`","error":{"code":"`+text+`","message":"`+text+`"}}`, "X-Request-Id", text), err
			},
		} {
			r := over(t, e, p).Send(context.Background(), now, messages(notification.English)["firing"])
			if r.Verdict != channel.Retry || r.Reason == "" {
				t.Errorf("%s %s: %+v", e.Kind(), name, r)
			}
			if text := fmt.Sprintf("%+v", r); strings.Contains(text, "secret") || strings.Contains(text, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw") || len(r.Reason) > 500 || len(r.RequestID) > 500 {
				t.Errorf("%s %s: the result has a secret, or is too long: %s", e.Kind(), name, text)
			}
		}
	}
}

// TestRedirects checks that a redirect is followed on the same host, with the method and
// the body, and not to another host.
func TestRedirects(t *testing.T) {
	e := channel.Webhook{URL: "https://hooks.example/a", Secret: hookKey}
	for _, tt := range []struct {
		status   int
		location string
		verdict  channel.Verdict
		requests int
	}{
		{308, "/b", channel.Delivered, 2},
		{307, "https://hooks.example/b", channel.Delivered, 2},
		{302, "/b", channel.Refused, 1}, // a client would send a GET without the body
		{308, "https://evil.example/b", channel.Refused, 1},
		{308, "http://hooks.example/b", channel.Refused, 1},
		{308, "/a", channel.Refused, 4},
	} {
		requests := 0
		c := over(t, e, platform(func(req *http.Request) (*http.Response, error) {
			requests++
			if req.URL.Host != "hooks.example" || req.URL.Scheme != "https" {
				t.Errorf("a request to %s", req.URL)
			}
			if body, err := io.ReadAll(req.Body); err != nil || len(body) == 0 || req.Header.Get("Webhook-Signature") == "" {
				t.Errorf("a request without its body or its signature: %v", err)
			}
			if req.URL.Path == "/b" {
				return respond(200, ""), nil
			}
			return respond(tt.status, "", "Location", tt.location), nil
		}))
		r := c.Send(context.Background(), now, messages(notification.English)["firing"])
		if r.Verdict != tt.verdict || requests != tt.requests {
			t.Errorf("%d to %s: %+v after %d requests, want %s after %d", tt.status, tt.location, r, requests, tt.verdict, tt.requests)
		}
	}
}

// TestAnswerIsBounded checks that an endless answer ends.
func TestAnswerIsBounded(t *testing.T) {
	endless := platform(func(*http.Request) (*http.Response, error) {
		r := respond(400, "")
		r.Body = io.NopCloser(zeros{})
		return r, nil
	})
	r := over(t, endpoints()[0], endless).Send(context.Background(), now, messages(notification.English)["firing"])
	if r.Verdict != channel.Refused || len(r.Reason) > 500 {
		t.Errorf("%+v", r)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestCancelled checks that an attempt ends with its context.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	c := over(t, endpoints()[0], platform(func(*http.Request) (*http.Response, error) { return respond(200, ""), nil }))
	if r := c.Send(ctx, now, messages(notification.English)["firing"]); r.Verdict != channel.Retry {
		t.Errorf("%+v", r)
	}
}

// TestTimeout checks that an attempt ends when a platform does not answer, or does not
// complete its answer.
func TestTimeout(t *testing.T) {
	for name, p := range map[string]platform{
		"no answer": func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		},
		"half an answer": func(req *http.Request) (*http.Response, error) {
			r := respond(200, "")
			r.Body = io.NopCloser(silent{req.Context()})
			return r, nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			r := over(t, endpoints()[0], p).Send(context.Background(), now, messages(notification.English)["firing"])
			if took := time.Since(begin); r.Verdict != channel.Retry || took != channel.Timeout {
				t.Errorf("%s: %+v after %s", name, r, took)
			}
		})
	}
}

// silent is a body that never ends.
type silent struct{ ctx context.Context }

func (s silent) Read([]byte) (int, error) {
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// TestTemplateFails checks that a message is sent with the built-in text when the template
// of the operator fails, and that the result says so.
func TestTemplateFails(t *testing.T) {
	r, err := notification.NewRenderer(map[notification.Language]notification.Templates{"": {Markdown: "{{.Labels.team}}"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var body string
	c, err := channel.Over(&http.Client{Transport: platform(func(req *http.Request) (*http.Response, error) {
		b, err := io.ReadAll(req.Body)
		body = string(b)
		return respond(200, "ok"), err
	})}, channel.Slack{URL: "https://hooks.slack.com/services/x"}, r)
	if err != nil {
		t.Fatal(err)
	}
	got := c.Send(context.Background(), now, messages(notification.English)["firing"])
	if got.Verdict != channel.Delivered || !strings.Contains(got.Note, "team") || !strings.Contains(body, "*Rule*: failures") {
		t.Errorf("%+v\n%s", got, body)
	}
}

// TestKinds checks that every kind has a limit whose windows a usage can hold.
func TestKinds(t *testing.T) {
	seen := map[channel.Kind]bool{channel.KindMail: true, channel.KindCommand: true}
	for _, e := range endpoints() {
		seen[e.Kind()] = true
	}
	for _, k := range channel.Kinds() {
		if !seen[k] {
			t.Errorf("%s has no endpoint in the tests", k)
		}
		for _, w := range channel.LimitOf(k).Windows {
			if w.Count < 1 || w.Count > 100 || w.Per < time.Second || w.Per > time.Minute {
				t.Errorf("%s: %+v", k, w)
			}
		}
	}
}
