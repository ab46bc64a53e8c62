package notification

import (
	"strings"
	"unicode/utf8"
)

// Dialect is the markup that a platform reads. All values of a notification are made
// harmless for it before a template sees them: the error of a job must not mention a
// whole group or hide a link.
type Dialect string

// Dialects of the platforms.
const (
	// Plain has no markup.
	Plain Dialect = "plain"
	// Markdown is CommonMark with backslash escapes: Discord and Teams.
	Markdown Dialect = "markdown"
	// Robot is the markdown of the robots of WeCom and DingTalk. They document no escapes.
	// Characters that begin markup are replaced with full-width ones.
	Robot Dialect = "robot"
	// Lark is the markdown of the cards of Feishu and Lark, with numeric entities as escapes.
	Lark Dialect = "lark"
	// Slack is Slack's mrkdwn.
	Slack Dialect = "slack"
	// HTML is the HTML of Telegram: b, a and code, and four entities.
	HTML Dialect = "html"
)

var escapes = map[Dialect]*strings.Replacer{
	Plain: strings.NewReplacer(),
	Markdown: strings.NewReplacer(`\`, `\\`, "`", "\\`", `*`, `\*`, `_`, `\_`, `~`, `\~`, `|`, `\|`,
		`[`, `\[`, `]`, `\]`, `<`, `\<`, `>`, `\>`),
	Robot: strings.NewReplacer("`", "｀", `*`, `＊`, `[`, `［`, `]`, `］`, `<`, `＜`, `>`, `＞`),
	Lark: strings.NewReplacer(`&`, `&#38;`, `<`, `&#60;`, `>`, `&#62;`, `*`, `&#42;`, `_`, `&#95;`, `~`, `&#126;`,
		`[`, `&#91;`, `]`, `&#93;`, "`", `&#96;`, `#`, `&#35;`, `\`, `&#92;`),
	Slack: strings.NewReplacer(`&`, `&amp;`, `<`, `&lt;`, `>`, `&gt;`),
	HTML:  strings.NewReplacer(`&`, `&amp;`, `<`, `&lt;`, `>`, `&gt;`, `"`, `&quot;`),
}

// Escape makes a text harmless in the dialect, as one line.
func (d Dialect) Escape(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := escapes[d]; r != nil {
		return r.Replace(s)
	}
	return s
}

// Bold marks a text that is escaped.
func (d Dialect) Bold(s string) string {
	switch {
	case s == "":
		return ""
	case d == Slack:
		return "*" + s + "*"
	case d == HTML:
		return "<b>" + s + "</b>"
	case d == Plain:
		return s
	}
	return "**" + s + "**"
}

// inLink keeps an address from ending the markup around it.
var inLink = strings.NewReplacer(" ", "%20", "(", "%28", ")", "%29", "<", "%3C", ">", "%3E", "|", "%7C", `"`, "%22", "\n", "", "\r", "")

// Link makes a link of a text that is escaped. Without an address it is the text, and with
// one that is not http or https too.
func (d Dialect) Link(text, address string) string {
	if !strings.HasPrefix(address, "https://") && !strings.HasPrefix(address, "http://") {
		return text
	}
	address = inLink.Replace(address)
	switch d {
	case Plain:
		return text + " " + address
	case Slack:
		return "<" + strings.ReplaceAll(address, "&", "&amp;") + "|" + text + ">"
	case HTML:
		return `<a href="` + strings.ReplaceAll(address, "&", "&amp;") + `">` + text + "</a>"
	}
	return "[" + text + "](" + address + ")"
}

// Cut returns the beginning of a text, at most n bytes of it with the mark of the cut, and
// no part of a character. Bytes that are not UTF-8 are replaced.
func Cut(s string, n int) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= n {
		return s
	}
	const mark = "…"
	if n < len(mark) {
		return ""
	}
	end := n - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}

// Fit returns whole lines of a text, at most limit bytes of them, and a last line that says
// how many were left out. Markup is within a line, so none is left open. Only a first line
// that is too long is cut.
func Fit(text string, limit int, language Language) string {
	return FitBy(text, limit, language, func(s string) int { return len(s) })
}

// FitBy is [Fit] for a platform that counts something else than bytes.
func FitBy(text string, limit int, language Language, size func(string) int) string {
	text = strings.ToValidUTF8(text, "�")
	if size(text) <= limit {
		return text
	}
	lines := strings.Split(text, "\n")
	for kept := len(lines) - 1; kept > 0; kept-- {
		out := strings.Join(lines[:kept], "\n") + "\n" + leftOut(language, len(lines)-kept)
		if size(out) <= limit {
			return out
		}
	}
	cut := Cut(lines[0], limit)
	for size(cut) > limit {
		cut = Cut(cut, len(cut)-1)
	}
	return cut
}
