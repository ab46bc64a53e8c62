package channel

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// Slack is an incoming webhook of Slack. Source: Slack developer documents, Sending messages
// using incoming webhooks, Block Kit reference and Rate limits.
type Slack struct {
	URL string // with the key of the webhook
}

// Kind returns KindSlack.
func (Slack) Kind() Kind { return KindSlack }

// Check returns an error that names the field that is wrong.
func (s Slack) Check() error { return checkURL(s.URL) }

func (s Slack) secrets() []string { return secretsOf(s.URL) }

const (
	slackHeader  = 150 // characters of a header block
	slackSection = 3000
	slackText    = 4 * slackSection // characters of all sections
)

type slackObject struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type slackBlock struct {
	Type string      `json:"type"`
	Text slackObject `json:"text"`
}

func (s Slack) request(_ time.Time, t *texts) (*http.Request, error) {
	title := t.title()
	body := struct {
		Text   string       `json:"text"` // of the notification on a screen
		Blocks []slackBlock `json:"blocks"`
	}{Text: notification.Slack.Escape(title)}
	header := notification.FitBy(title, slackHeader, t.message.Language(), units)
	body.Blocks = append(body.Blocks, slackBlock{"header", slackObject{"plain_text", header}})
	for _, part := range parts(t.fit(t.markdown(notification.Slack), slackText, units), slackSection) {
		body.Blocks = append(body.Blocks, slackBlock{"section", slackObject{"mrkdwn", part}})
	}
	return post(s.URL, body)
}

// units counts as platforms do that count characters in UTF-16.
func units(s string) int { return len(utf16.Encode([]rune(s))) }

// parts divides a text into parts of whole lines with at most limit units.
func parts(text string, limit int) []string {
	var out []string
	part := ""
	for line := range strings.SplitSeq(text, "\n") {
		for units(line) > limit {
			line = notification.Cut(line, len(line)/2)
		}
		switch joined := part + "\n" + line; {
		case part == "":
			part = line
		case units(joined) <= limit:
			part = joined
		default:
			out, part = append(out, part), line
		}
	}
	if part != "" {
		out = append(out, part)
	}
	return out
}

// slackWord is the form of the words for errors, such as invalid_payload.
var slackWord = regexp.MustCompile(`^[a-z]+(_[a-z]+)+$`)

// read relies on the status: 200, and for errors 400, 403, 404 and 410 with a word as the
// body, and 429.
func (s Slack) read(now time.Time, a answer) Result {
	r := a.byStatus(now)
	if word := strings.TrimSpace(string(a.body)); a.status != http.StatusOK && slackWord.MatchString(word) {
		r.Code = word
	}
	return r
}

// Teams is a workflow of Microsoft Teams with the trigger for webhook requests. Source:
// Microsoft Learn, Create and send messages (Teams webhooks), Adaptive Cards schema, and
// Microsoft Teams connector (limits).
type Teams struct {
	URL string // with the signature of the workflow
}

// Kind returns KindTeams.
func (Teams) Kind() Kind { return KindTeams }

// Check returns an error that names the field that is wrong.
func (m Teams) Check() error { return checkURL(m.URL) }

func (m Teams) secrets() []string { return secretsOf(m.URL) }

// teamsBytes bounds the text of a card; a message has about 28 KB at most.
const teamsBytes = 18_000

type teamsBlock struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Size   string `json:"size,omitempty"`
	Weight string `json:"weight,omitempty"`
	Color  string `json:"color,omitempty"`
	Wrap   bool   `json:"wrap"`
}

type teamsAction struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

type teamsCard struct {
	Schema  string        `json:"$schema"`
	Type    string        `json:"type"`
	Version string        `json:"version"`
	Teams   teamsWidth    `json:"msteams"`
	Body    []teamsBlock  `json:"body"`
	Actions []teamsAction `json:"actions,omitempty"`
}

type teamsWidth struct {
	Width string `json:"width"`
}

type teamsAttachment struct {
	Type    string    `json:"contentType"`
	URL     *string   `json:"contentUrl"`
	Content teamsCard `json:"content"`
}

func (m Teams) request(_ time.Time, t *texts) (*http.Request, error) {
	const d = notification.Markdown
	breaks := func(s string) string { return strings.ReplaceAll(s, "\n", "\n\n") } // a single break is none in a card
	text := breaks(t.fit(t.markdown(d), teamsBytes, func(s string) int { return jsonSize(breaks(s)) }))
	card := teamsCard{
		Schema: "http://adaptivecards.io/schemas/adaptive-card.json", Type: "AdaptiveCard", Version: "1.4", Teams: teamsWidth{"Full"},
		Body: []teamsBlock{
			{Type: "TextBlock", Text: d.Escape(t.title()), Size: "Medium", Weight: "Bolder", Wrap: true, Color: colour(t.message, map[notification.Severity]string{
				notification.Critical: "Attention", notification.Error: "Attention", notification.Warning: "Warning", notification.Info: "Accent",
			}, "Good")},
			{Type: "TextBlock", Text: text, Wrap: true},
		},
	}
	if link := t.message.Link(); strings.HasPrefix(link, "http") {
		title := "Details"
		if t.message.Language() == notification.Chinese {
			title = "详情"
		}
		card.Actions = []teamsAction{{"Action.OpenUrl", title, link}}
	}
	return post(m.URL, struct {
		Type        string            `json:"type"`
		Attachments []teamsAttachment `json:"attachments"`
	}{"message", []teamsAttachment{{Type: "application/vnd.microsoft.card.adaptive", Content: card}}})
}

// read relies on the status: 202 when the workflow has started, 400 when it is turned off
// or deleted, 401 for a wrong signature.
func (m Teams) read(now time.Time, a answer) Result {
	r := a.byStatus(now)
	var x struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(a.body, &x) == nil && x.Error.Code != "" && r.Verdict != Delivered {
		r.Code, r.Reason = x.Error.Code, x.Error.Message
	}
	return r
}

// Discord is a webhook of a Discord channel. Source: Discord developer documents, Webhook
// resource (Execute webhook), Embed limits and Rate limits.
type Discord struct {
	URL string // with the token of the webhook
}

// Kind returns KindDiscord.
func (Discord) Kind() Kind { return KindDiscord }

// Check returns an error that names the field that is wrong.
func (d Discord) Check() error { return checkURL(d.URL) }

func (d Discord) secrets() []string { return secretsOf(d.URL) }

const (
	discordTitle       = 256 // characters of the title of an embed
	discordDescription = 4096
)

type discordEmbed struct {
	Title       string `json:"title"`
	Description string `json:"description"`
	URL         string `json:"url,omitempty"`
	Colour      int    `json:"color"`
}

type discordMentions struct {
	Parse []string `json:"parse"`
}

func (d Discord) request(_ time.Time, t *texts) (*http.Request, error) {
	embed := discordEmbed{
		Title:       notification.FitBy(notification.Markdown.Escape(t.title()), discordTitle, t.message.Language(), units),
		Description: t.fit(t.markdown(notification.Markdown), discordDescription, units),
		Colour: colour(t.message, map[notification.Severity]int{
			notification.Critical: 0xcf222e, notification.Error: 0xcf222e, notification.Warning: 0xbf8700, notification.Info: 0x0969da,
		}, 0x1a7f37),
	}
	if link := t.message.Link(); strings.HasPrefix(link, "http") {
		embed.URL = link
	}
	req, err := post(d.URL, struct {
		Embeds   []discordEmbed  `json:"embeds"`
		Mentions discordMentions `json:"allowed_mentions"`
	}{[]discordEmbed{embed}, discordMentions{[]string{}}})
	if err != nil {
		return nil, err
	}
	// Without wait the answer comes before the message is stored.
	query := req.URL.Query()
	query.Set("wait", "true")
	req.URL.RawQuery = query.Encode()
	return req, nil
}

func (d Discord) read(now time.Time, a answer) Result {
	r := a.byStatus(now)
	var x struct {
		ID         string   `json:"id"`
		Code       int      `json:"code"`
		Message    string   `json:"message"`
		RetryAfter *float64 `json:"retry_after"` // seconds
	}
	if json.Unmarshal(a.body, &x) != nil {
		return r
	}
	if r.Verdict == Delivered {
		r.RequestID = x.ID
		return r
	}
	if x.Code != 0 {
		r.Code = strconv.Itoa(x.Code)
	}
	if x.Message != "" {
		r.Reason = x.Message
	}
	if r.Verdict == RateLimited && x.RetryAfter != nil && *x.RetryAfter >= 0 {
		r.Until = after(now, *x.RetryAfter)
	}
	return r
}

// Telegram is a chat to which a bot of Telegram writes. Source: Telegram Bot API, Making
// requests, sendMessage, Formatting options and ResponseParameters; Bots FAQ for the limits.
type Telegram struct {
	URL    string // default https://api.telegram.org
	Token  string // of the bot
	Chat   string // id of the chat, or @name of a channel
	Thread int    // of a forum; 0: none
}

const telegramURL = "https://api.telegram.org"

// Kind returns KindTelegram.
func (Telegram) Kind() Kind { return KindTelegram }

// Check returns an error that names the field that is wrong.
func (g Telegram) Check() error {
	switch {
	case g.Token == "" || strings.ContainsAny(g.Token, "/?# \n"):
		return errors.New("token is missing or malformed")
	case g.Chat == "":
		return errors.New("chat is missing")
	case g.URL == "":
		return nil
	}
	return checkURL(g.URL)
}

func (g Telegram) secrets() []string { return append(secretsOf(g.URL), g.Token) }

const telegramText = 4096 // characters after the markup is read; this counts the markup too

type telegramPreview struct {
	Disabled bool `json:"is_disabled"`
}

func (g Telegram) request(_ time.Time, t *texts) (*http.Request, error) {
	const d = notification.HTML
	text := d.Bold(d.Escape(t.title())) + "\n" + t.markdown(d)
	address := strings.TrimSuffix(g.URL, "/")
	if address == "" {
		address = telegramURL
	}
	return post(address+"/bot"+url.PathEscape(g.Token)+"/sendMessage", struct {
		Chat    string          `json:"chat_id"`
		Thread  int             `json:"message_thread_id,omitempty"`
		Text    string          `json:"text"`
		Mode    string          `json:"parse_mode"`
		Preview telegramPreview `json:"link_preview_options"`
	}{g.Chat, g.Thread, t.fit(text, telegramText, units), "HTML", telegramPreview{true}})
}

func (g Telegram) read(now time.Time, a answer) Result {
	var x struct {
		OK          *bool  `json:"ok"`
		Code        int    `json:"error_code"`
		Description string `json:"description"`
		Result      struct {
			ID int64 `json:"message_id"`
		} `json:"result"`
		Parameters struct {
			RetryAfter float64 `json:"retry_after"` // seconds
		} `json:"parameters"`
	}
	if json.Unmarshal(a.body, &x) != nil || x.OK == nil {
		return a.unknown(now)
	}
	if *x.OK {
		return Result{Verdict: Delivered, RequestID: strconv.FormatInt(x.Result.ID, 10)}
	}
	r := answer{status: x.Code, header: a.header}.byStatus(now)
	if r.Verdict == Delivered {
		r.Verdict = Retry
	}
	r.Code, r.Reason = strconv.Itoa(x.Code), x.Description
	if r.Verdict == RateLimited && x.Parameters.RetryAfter > 0 {
		r.Until = after(now, x.Parameters.RetryAfter)
	}
	return r
}
