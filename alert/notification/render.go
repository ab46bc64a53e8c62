package notification

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Templates are the texts of a channel. An empty one means the built-in text.
type Templates struct {
	Title    string // one line, without markup
	Text     string // the body without markup
	Markdown string // the body in the dialect of the platform
	HTML     string // the body of a mail
}

// part is one of the four texts.
type part struct {
	name     string
	template func(Templates) string
	parse    func(name, text string) (program, error)
	html     bool
	limit    int
}

var (
	titlePart    = part{"title", func(t Templates) string { return t.Title }, parseText, false, maxTitle}
	textPart     = part{"text", func(t Templates) string { return t.Text }, parseText, false, maxBody}
	markdownPart = part{"markdown", func(t Templates) string { return t.Markdown }, parseText, false, maxBody}
	htmlPart     = part{"html", func(t Templates) string { return t.HTML }, parseHTML, true, maxHTML}
)

//go:embed templates
var files embed.FS

// builtIn are the texts without templates of an operator. They serve both languages,
// because the words are values.
var builtIn = func() map[string]program {
	out := map[string]program{}
	for _, p := range []part{textPart, markdownPart, htmlPart} {
		text, err := files.ReadFile("templates/" + p.name + ".tmpl")
		if err != nil {
			panic(err)
		}
		if out[p.name], err = p.parse(p.name, string(text)); err != nil {
			panic(err)
		}
	}
	return out
}()

// Renderer makes the texts of messages. It is safe for concurrent use.
type Renderer struct {
	own  map[Language]map[string]program
	zone *time.Location
}

// NewRenderer returns a renderer with the templates of an operator, by language; those of
// the language "" are for every language without its own. zone is that of the times; nil:
// UTC. An error names the template that is wrong: each is tried with a message of each
// state and a digest.
func NewRenderer(own map[Language]Templates, zone *time.Location) (*Renderer, error) {
	r := &Renderer{own: map[Language]map[string]program{}, zone: zone}
	if zone == nil {
		r.zone = time.UTC
	}
	for _, language := range slices.Sorted(maps.Keys(own)) {
		if language != "" && languages[language] == nil {
			return nil, fmt.Errorf("templates for language %q: there is %s and %s", language, English, Chinese)
		}
		r.own[language] = map[string]program{}
		for _, p := range []part{titlePart, textPart, markdownPart, htmlPart} {
			text := p.template(own[language])
			if text == "" {
				continue
			}
			parsed, err := p.parse(p.name, text)
			if err != nil {
				return nil, err
			}
			r.own[language][p.name] = parsed
			for _, m := range Samples(language) {
				view := viewer{wordsOf(m.Language()), Markdown, r.zone}.message(m)
				if _, err := run(parsed, &view, Markdown, p.html, p.limit); err != nil && !strings.Contains(err.Error(), "map has no entry for key") {
					return nil, fmt.Errorf("try the %s: %w", p.name, err)
				}
			}
		}
	}
	return r, nil
}

// Title returns the title of a message, one line without markup. An error is that of the
// operator's template; the title is the built-in one then.
func (r *Renderer) Title(m Message) (string, error) {
	s, ok, err := r.try(titlePart, m, Plain)
	if s = Cut(Plain.Escape(s), maxTitle); ok && s != "" {
		return s, nil
	}
	return Title(m), err
}

// Text returns the body of a message without markup. An error is that of the operator's
// template; the text is the built-in one then.
func (r *Renderer) Text(m Message) (string, error) { return r.body(textPart, m, Plain) }

// Markdown returns the body of a message in a dialect. An error is that of the operator's
// template; the text is the built-in one then.
func (r *Renderer) Markdown(m Message, d Dialect) (string, error) { return r.body(markdownPart, m, d) }

// HTML returns the body of a message for mails. An error is that of the operator's
// template; the text is the built-in one then.
func (r *Renderer) HTML(m Message) (string, error) { return r.body(htmlPart, m, Plain) }

func (r *Renderer) body(p part, m Message, d Dialect) (string, error) {
	s, ok, failed := r.try(p, m, d)
	if ok {
		return tidy(s), nil
	}
	view := r.view(m, d)
	s, err := run(builtIn[p.name], &view, d, p.html, p.limit)
	if err != nil { // too long: the beginning is better than nothing
		s = Cut(s, p.limit)
	}
	return tidy(s), failed
}

// try executes the operator's template, and reports whether there is one and it succeeds.
func (r *Renderer) try(p part, m Message, d Dialect) (string, bool, error) {
	own := r.own[m.Language()][p.name]
	if own == nil {
		own = r.own[""][p.name]
	}
	if own == nil {
		return "", false, nil
	}
	view := r.view(m, d)
	s, err := run(own, &view, d, p.html, p.limit)
	return s, err == nil, err
}

func (r *Renderer) view(m Message, d Dialect) View {
	v := viewer{wordsOf(m.Language()), d, r.zone}.message(m)
	v.Title = d.Escape(Title(m))
	for i := range v.Alerts {
		v.Alerts[i].Title = d.Escape(Cut(Title(Single(m.Notifications[i])), maxLine))
	}
	return v
}

// tidy removes spaces at the ends of lines and more than one empty line in a row.
func tidy(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		line = strings.TrimRight(line, " \t\r\n")
		if line == "" && (len(out) == 0 || out[len(out)-1] == "") {
			continue
		}
		out = append(out, line)
	}
	return strings.TrimRight(strings.Join(out, "\n"), "\n")
}

// Samples returns messages to try templates with and to test a channel: an alert, its end,
// and a digest of both.
func Samples(l Language) []Message {
	if languages[l] == nil {
		l = English
	}
	at := time.Date(2026, 3, 2, 2, 30, 0, 0, time.UTC)
	n := Notification{
		ID: "sample-1", Alert: "sample", Rule: "failures", App: "default", Event: "failed", Severity: Error, State: Firing, Language: l,
		Labels: map[string]string{"job": "nightly"}, Count: 3, Since: at, At: at.Add(30 * time.Second),
		Incidents: []Incident{{Job: "nightly", Run: "sample", Error: "exit status 1", At: at}},
	}
	end := n
	end.ID, end.State, end.Event, end.Incidents, end.At = "sample-2", Resolved, "recovered", nil, at.Add(time.Hour)
	return []Message{Single(n), Single(end), Digest([]Notification{n, end})}
}
