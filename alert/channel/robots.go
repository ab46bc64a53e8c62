package channel

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// WeCom is a group robot of WeCom. Source: WeCom developer centre, 群机器人配置说明 (path
// 91770) and 全局错误码.
type WeCom struct {
	URL string // with the key of the robot
}

// Kind returns KindWeCom.
func (WeCom) Kind() Kind { return KindWeCom }

// Check returns an error that names the field that is wrong.
func (w WeCom) Check() error { return checkURL(w.URL) }

func (w WeCom) secrets() []string { return secretsOf(w.URL) }

// wecomBytes bounds the content of a markdown message, in bytes of UTF-8.
const wecomBytes = 4096

func (w WeCom) request(_ time.Time, t *texts) (*http.Request, error) {
	const d = notification.Robot
	content := "### " + d.Escape(t.title()) + "\n" + t.markdown(d)
	type markdown struct {
		Content string `json:"content"`
	}
	return post(w.URL, struct {
		Type     string   `json:"msgtype"`
		Markdown markdown `json:"markdown"`
	}{"markdown", markdown{t.fit(content, wecomBytes, bytesOf)}})
}

func bytesOf(s string) int { return len(s) }

// robotAnswer is what WeCom and DingTalk answer, with the status 200 also for errors.
type robotAnswer struct {
	Code    *int   `json:"errcode"`
	Message string `json:"errmsg"`
}

func (w WeCom) read(now time.Time, a answer) Result {
	var x robotAnswer
	if json.Unmarshal(a.body, &x) != nil || x.Code == nil {
		return a.unknown(now)
	}
	r := Result{Code: strconv.Itoa(*x.Code), Reason: x.Message}
	switch code := *x.Code; {
	case code == 0:
		return Result{Verdict: Delivered}
	case code == 45009 || code == 45033: // calls in a time, calls at a time
		r.Verdict, r.Until = RateLimited, now.Add(pause)
	case code/1000 == 93, code/1000 == 40, code/1000 == 44, code == 45002: // the robot, the parameters, no content, too long
		r.Verdict = Refused
	default:
		r.Verdict = Retry
	}
	return r
}

// unknown reads an answer that is not in the form of the platform: a proxy or a page. The
// status alone does not say that the platform has the message.
func (a answer) unknown(now time.Time) Result {
	r := a.byStatus(now)
	if r.Verdict == Delivered {
		return Result{Verdict: Retry, Reason: "the answer is not in the form of the platform"}
	}
	return r
}

// DingTalk is a custom robot of a DingTalk group. Source: DingTalk open platform,
// 自定义机器人接入, 自定义机器人安全设置 and 服务端错误码.
type DingTalk struct {
	URL    string // with the token of the robot
	Secret string // of the setting 加签, begins with SEC; "": the robot checks keywords or addresses
}

// Kind returns KindDingTalk.
func (DingTalk) Kind() Kind { return KindDingTalk }

// Check returns an error that names the field that is wrong.
func (d DingTalk) Check() error { return checkURL(d.URL) }

func (d DingTalk) secrets() []string { return append(secretsOf(d.URL), d.Secret) }

const (
	dingtalkBytes = 18_000           // of the text; a message has at most 20 000
	dingtalkBlock = 10 * time.Minute // after more than 20 messages in a minute
)

func (d DingTalk) request(now time.Time, t *texts) (*http.Request, error) {
	const dialect = notification.Robot
	title := t.title()
	// A single line break is none in this markdown.
	breaks := func(s string) string { return strings.ReplaceAll(s, "\n", "\n\n") }
	text := t.fit("### "+dialect.Escape(title)+"\n"+t.markdown(dialect), dingtalkBytes, func(s string) int { return jsonSize(breaks(s)) })
	type markdown struct {
		Title string `json:"title"`
		Text  string `json:"text"`
	}
	req, err := post(d.URL, struct {
		Type     string   `json:"msgtype"`
		Markdown markdown `json:"markdown"`
	}{"markdown", markdown{title, breaks(text)}})
	if err != nil || d.Secret == "" {
		return req, err
	}
	// The key is the secret, and the text is the time in milliseconds and the secret.
	timestamp := strconv.FormatInt(now.UnixMilli(), 10)
	sum := sign(d.Secret, timestamp+"\n"+d.Secret)
	query := "timestamp=" + timestamp + "&sign=" + url.QueryEscape(sum)
	if req.URL.RawQuery != "" {
		query = req.URL.RawQuery + "&" + query
	}
	req.URL.RawQuery = query
	return req, nil
}

// sign returns the HMAC-SHA256 of a text in base64.
func sign(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func (d DingTalk) read(now time.Time, a answer) Result {
	var x robotAnswer
	if json.Unmarshal(a.body, &x) != nil || x.Code == nil {
		return a.unknown(now)
	}
	r := Result{Code: strconv.Itoa(*x.Code), Reason: x.Message}
	switch code := *x.Code; {
	case code == 0:
		return Result{Verdict: Delivered}
	case code == 130101 || code == 410100 || strings.Contains(x.Message, "too fast"):
		r.Verdict, r.Until = RateLimited, now.Add(dingtalkBlock)
	case code == 90030: // the robot has used up its messages of the day
		r.Verdict, r.Until = RateLimited, now.Add(time.Hour)
	case code == 310000, // keyword, signature or address
		code == 300001, code == 300005, code == 400101, code == 400102, code == 400106, code == 400013, // token, robot or group
		code == 40035, code == 43004, code == 400105, code == 460101: // parameter, content type, kind, too long
		r.Verdict = Refused
	default:
		r.Verdict = Retry
	}
	return r
}

// Feishu is a custom bot of a Feishu group, and with International of a Lark group. Source:
// Feishu open platform, 自定义机器人使用指南 / Custom bot usage guide, and 富文本组件 / Rich text component (JSON 1.0).
type Feishu struct {
	URL           string // with the token of the bot
	Secret        string // of the setting 签名校验; "": the bot checks keywords or addresses
	International bool   // the bot is of Lark
}

// Kind returns KindFeishu or KindLark.
func (f Feishu) Kind() Kind {
	if f.International {
		return KindLark
	}
	return KindFeishu
}

// Check returns an error that names the field that is wrong.
func (f Feishu) Check() error { return checkURL(f.URL) }

func (f Feishu) secrets() []string { return append(secretsOf(f.URL), f.Secret) }

// feishuBytes bounds the text of a card; a request has at most 20 KB.
const feishuBytes = 16_000

type larkText struct {
	Tag     string `json:"tag"`
	Content string `json:"content"`
}

type larkCard struct {
	Config struct {
		Wide bool `json:"wide_screen_mode"`
	} `json:"config"`
	Header struct {
		Title    larkText `json:"title"`
		Template string   `json:"template"`
	} `json:"header"`
	Elements []larkText `json:"elements"`
}

func (f Feishu) request(now time.Time, t *texts) (*http.Request, error) {
	body := struct {
		Timestamp string   `json:"timestamp,omitempty"`
		Sign      string   `json:"sign,omitempty"`
		Type      string   `json:"msg_type"`
		Card      larkCard `json:"card"`
	}{Type: "interactive"}
	if f.Secret != "" {
		// The key is the time in seconds and the secret, and the text is empty.
		body.Timestamp = strconv.FormatInt(now.Unix(), 10)
		body.Sign = sign(body.Timestamp+"\n"+f.Secret, "")
	}
	body.Card.Config.Wide = true
	body.Card.Header.Title = larkText{"plain_text", t.title()}
	body.Card.Header.Template = colour(t.message, map[notification.Severity]string{
		notification.Critical: "red", notification.Error: "red", notification.Warning: "orange", notification.Info: "blue",
	}, "green")
	text := t.fit(t.markdown(notification.Lark), feishuBytes, jsonSize)
	body.Card.Elements = []larkText{{"markdown", text}} // a text of lark_md has no lists
	return post(f.URL, body)
}

// colour returns the colour of a message: of its severity, or the one for an end.
func colour[T any](m notification.Message, severities map[notification.Severity]T, resolved T) T {
	if m.State() == notification.Resolved {
		return resolved
	}
	return severities[m.Severity()]
}

func (f Feishu) read(now time.Time, a answer) Result {
	var x struct {
		Code    *int   `json:"code"`
		Message string `json:"msg"`
		// The form of earlier versions.
		OldCode    *int   `json:"StatusCode"`
		OldMessage string `json:"StatusMessage"`
	}
	if json.Unmarshal(a.body, &x) != nil || x.Code == nil && x.OldCode == nil {
		return a.unknown(now)
	}
	if x.Code == nil {
		x.Code, x.Message = x.OldCode, x.OldMessage
	}
	r := Result{Code: strconv.Itoa(*x.Code), Reason: cmp.Or(x.Message, x.OldMessage)}
	switch code := *x.Code; {
	case code == 0:
		return Result{Verdict: Delivered}
	case code == 11232, strings.Contains(strings.ToLower(x.Message), "too many request"), a.status == http.StatusTooManyRequests:
		r.Verdict, r.Until = RateLimited, now.Add(pause)
		if seconds, err := strconv.Atoi(a.header.Get("X-Ogw-Ratelimit-Reset")); err == nil && seconds > 0 {
			r.Until = after(now, float64(seconds))
		}
	case code == 9499, code/1000 == 19: // a malformed body; the bot, its token, signature, keyword or address
		r.Verdict = Refused
	default:
		r.Verdict = Retry
	}
	return r
}
