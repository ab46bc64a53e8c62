package notification_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

var update = flag.Bool("update", false, "write the golden files")

var began = time.Date(2026, 3, 2, 2, 30, 0, 0, time.UTC)

// firing has everything that a notification can have, and texts that are markup somewhere.
func firing(l notification.Language) notification.Notification {
	return notification.Notification{
		ID: "n-1", Alert: "a-1", Rule: "failures", App: "shop", Event: "failed", Severity: notification.Critical, State: notification.Firing, Language: l,
		Labels: map[string]string{"job": "nightly_report", "team": "data"}, Count: 4, Since: began, At: began.Add(30 * time.Second),
		Link: "https://wheelwork.example/alerts/a-1",
		Incidents: []notification.Incident{
			{Job: "nightly_report", Run: "0001", Error: "exit status 1\n<!channel> *see* [here](http://evil.example) & `rm`", At: began, Link: "https://wheelwork.example/runs/0001?tab=(log)"},
			{Job: "nightly_report", Run: "0002", Event: "timed_out", At: began.Add(10 * time.Second)},
		},
	}
}

func resolved(l notification.Language) notification.Notification {
	n := firing(l)
	n.ID, n.State, n.Event, n.Incidents, n.At = "n-2", notification.Resolved, "recovered", nil, began.Add(time.Hour)
	return n
}

func messages(l notification.Language) map[string]notification.Message {
	other := firing(l)
	other.ID, other.Alert, other.App, other.Labels, other.Link = "n-3", "a-3", "bank", map[string]string{"host": "h1"}, ""
	return map[string]notification.Message{
		"firing":   notification.Single(firing(l)),
		"resolved": notification.Single(resolved(l)),
		"digest":   notification.Digest([]notification.Notification{firing(l), resolved(l), other}),
	}
}

// TestTexts checks the built-in texts in each language and dialect against files that
// people read.
func TestTexts(t *testing.T) {
	r, err := notification.NewRenderer(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []notification.Language{notification.English, notification.Chinese} {
		for name, m := range messages(l) {
			var b strings.Builder
			add := func(what, text string, err error) {
				if err != nil {
					t.Errorf("%s %s %s: %v", name, l, what, err)
				}
				b.WriteString("== " + what + "\n" + text + "\n")
			}
			title, err := r.Title(m)
			add("title", title, err)
			text, err := r.Text(m)
			add("text", text, err)
			for _, d := range []notification.Dialect{notification.Markdown, notification.Robot, notification.Lark, notification.Slack, notification.HTML} {
				text, err := r.Markdown(m, d)
				add(string(d), text, err)
			}
			html, err := r.HTML(m)
			add("mail", html, err)
			golden(t, filepath.Join("testdata", name+"-"+string(l)+".txt"), b.String())
		}
	}
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

// TestDialectsAreSafe checks that no text of a job begins markup, in any dialect.
func TestDialectsAreSafe(t *testing.T) {
	r, err := notification.NewRenderer(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	bad := map[notification.Dialect][]string{
		notification.Markdown: {"[here](", "\n<!channel>"},
		notification.Robot:    {"[here](", "<!channel>", "<@"},
		notification.Lark:     {"[here](", "<!channel>", "<at"},
		notification.Slack:    {"<!channel>", "<@"},
		notification.HTML:     {"<!channel>", "<@", "& "},
	}
	for d, parts := range bad {
		n := firing(notification.English)
		n.Incidents[0].Error = "[here](http://evil.example) <!channel> <@all> <at id=all></at> & x"
		n.Labels["team"] = "[here](http://evil.example) <!channel>"
		text, err := r.Markdown(notification.Single(n), d)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if strings.Contains(text, p) {
				t.Errorf("%s: the text has %q:\n%s", d, p, text)
			}
		}
	}
	if got := notification.Markdown.Link("details", "javascript:alert(1)"); got != "details" {
		t.Errorf("a link to a script is %q", got)
	}
}

// TestOwnTemplates checks that the templates of an operator replace the built-in texts of
// their language alone.
func TestOwnTemplates(t *testing.T) {
	r, err := notification.NewRenderer(map[notification.Language]notification.Templates{
		"":                   {Markdown: "{{bold .Subject}} {{link .App .Link}}{{range .Incidents}}|{{.Error}}{{end}}"},
		notification.Chinese: {Title: "{{.StateText}}\n{{printf \"%-20s 2026!\" .Subject}}", HTML: "<p title={{.Subject}}>{{.Incidents}}</p>"},
	}, time.FixedZone("CST", 8*3600))
	if err != nil {
		t.Fatal(err)
	}
	m := notification.Single(firing(notification.Chinese))
	if got, err := r.Title(m); err != nil || got != "告警 nightly_report 2026!" {
		t.Errorf("title %q, %v", got, err)
	}
	want := "*nightly_report* <https://wheelwork.example/alerts/a-1|shop>|exit status 1 &lt;!channel&gt; *see* [here](http://evil.example) &amp; `rm`|"
	if got, err := r.Markdown(m, notification.Slack); err != nil || got != want {
		t.Errorf("markdown %q, %v, want %q", got, err, want)
	}
	if got, err := r.HTML(m); err != nil || !strings.HasPrefix(got, "<p title=nightly_report>") || strings.Contains(got, "<!channel>") {
		t.Errorf("html %q, %v", got, err)
	}
	if got, err := r.Text(m); err != nil || !strings.Contains(got, "2026-03-02 10:30:00 CST") {
		t.Errorf("the text has no time in the zone of the channel: %q, %v", got, err)
	}
	if got, err := r.Title(notification.Single(firing(notification.English))); err != nil || got != "[FIRING] nightly_report: failed (4 times)" {
		t.Errorf("title %q, %v", got, err)
	}
}

// TestTemplatesAreBounded checks that a template that costs too much is refused when it is
// declared, in a time that does not depend on it.
func TestTemplatesAreBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		templates notification.Templates
		want      string
	}{
		"steps of a range":       {notification.Templates{Text: "{{range 1000000000}}{{end}}"}, "steps"},
		"steps of ranges":        {notification.Templates{Text: strings.Repeat("{{range 1000}}", 20) + strings.Repeat("{{end}}", 20)}, "steps"},
		"steps of a recursion":   {notification.Templates{Text: `{{define "x"}}{{template "x" .}}{{end}}{{template "x" .}}`}, "steps"},
		"steps in html":          {notification.Templates{HTML: "<p>{{range 1000000000}}{{end}}</p>"}, "steps"},
		"steps of long lists":    {notification.Templates{Text: "{{range 20000}}" + strings.Repeat(`{{if eq (printf "%s" $.Group) ""}}{{end}}`, 300) + "{{end}}"}, "steps"},
		"steps of long texts":    {notification.Templates{Text: `{{$x := printf "%40s" "x"}}{{range 5}}{{$x = printf "%s%s" $x $x}}{{end}}{{range 40000}}{{if eq (cut 9 $x) "y"}}{{end}}{{end}}`}, "steps"},
		"bytes":                  {notification.Templates{Text: "{{range 10000}}0123456789{{end}}"}, "too much"},
		"bytes of a title":       {notification.Templates{Title: strings.Repeat("x", 300)}, "too much"},
		"bytes of printf":        {notification.Templates{Text: `{{printf "%999999d" 1}}`}, "two digits"},
		"bytes of an index":      {notification.Templates{Text: `{{printf "%[1]-999d" 1}}`}, "two digits"},
		"bytes of a star":        {notification.Templates{Text: `{{printf "%*d" 999999 1}}`}, "two digits"},
		"doubled text":           {notification.Templates{Text: `{{$x := "0123456789"}}{{range 40}}{{$x = printf "%s%s" $x $x}}{{end}}{{$x}}`}, "too much"},
		"bytes of the template":  {notification.Templates{Text: strings.Repeat("x", 20_000)}, "limit"},
		"a function that grows":  {notification.Templates{Text: `{{js "\\"}}`}, `"js" is not offered`},
		"a function in a branch": {notification.Templates{Text: `{{if true}}{{else}}{{call .}}{{end}}`}, `"call" is not offered`},
		"printf of all":          {notification.Templates{Text: `{{printf "%v" .}}`}, "no "},
		"a field that is none":   {notification.Templates{Text: `{{.Nothing}}`}, "Nothing"},
		"a wrong type":           {notification.Templates{Text: "{{range .Word.Colon}}{{end}}"}, "range can't iterate"},
		"no template":            {notification.Templates{Text: `{{if}}`}, "missing value"},
		"a script in html":       {notification.Templates{HTML: `<a href={{if .Link}}"x{{end}}>`}, "html"},
	} {
		_, err := notification.NewRenderer(map[notification.Language]notification.Templates{"": tt.templates}, nil)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tt.want)
		}
	}
	if _, err := notification.NewRenderer(map[notification.Language]notification.Templates{"fr": {}}, nil); err == nil {
		t.Error("templates of an unknown language are taken")
	}
}

// TestMissingKey checks that a template that fails at one message does not hold the
// message back.
func TestMissingKey(t *testing.T) {
	r, err := notification.NewRenderer(map[notification.Language]notification.Templates{"": {Title: "{{.Labels.team}}", Text: "{{.Labels.team}}"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := firing(notification.English)
	if got, err := r.Text(notification.Single(n)); err != nil || got != "data" {
		t.Errorf("text %q, %v", got, err)
	}
	delete(n.Labels, "team")
	got, err := r.Text(notification.Single(n))
	if err == nil || !strings.Contains(err.Error(), "team") || !strings.Contains(got, "Rule: failures") {
		t.Errorf("text %q, error %v: want the built-in text and the error", got, err)
	}
	if got, err := r.Title(notification.Single(n)); err == nil || got != "[FIRING] nightly_report: failed (4 times)" {
		t.Errorf("title %q, %v", got, err)
	}
}

// TestDigest checks that a digest has an id that follows from its notifications.
func TestDigest(t *testing.T) {
	a, b := firing(notification.English), resolved(notification.English)
	first := notification.Digest([]notification.Notification{a, b})
	if again := notification.Digest([]notification.Notification{a, b}); again.ID != first.ID || first.ID == "" {
		t.Errorf("ids %q and %q", first.ID, again.ID)
	}
	if other := notification.Digest([]notification.Notification{b, a}); other.ID == first.ID {
		t.Error("another digest has the same id")
	}
	if one := notification.Digest([]notification.Notification{a}); one.ID != a.ID || one.IsDigest() {
		t.Errorf("the digest of one is %q", one.ID)
	}
	if first.State() != notification.Firing || notification.Digest([]notification.Notification{b, b}).State() != notification.Resolved {
		t.Error("the state of a digest is wrong")
	}
	a.Severity, b.Severity = notification.Info, notification.Critical
	if got := notification.Digest([]notification.Notification{a, b}).Severity(); got != notification.Info {
		t.Errorf("the severity is %s: the critical alert has ended", got)
	}
}

// TestTrim checks the bounds of a notification.
func TestTrim(t *testing.T) {
	n := firing(notification.English)
	n.Count = 500
	for range 400 {
		n.Incidents = append(n.Incidents, notification.Incident{Job: strings.Repeat("字", 1000), Error: strings.Repeat("x", 5000), Link: strings.Repeat("x", 5000)})
	}
	for i := range 100 {
		n.Labels[strings.Repeat("l", i+1)] = strings.Repeat("v", 5000)
	}
	got := n.Trim()
	text, err := json.Marshal(got)
	if err != nil || len(text) > 60<<10 {
		t.Errorf("a trimmed notification has %d bytes, %v", len(text), err)
	}
	if len(got.Incidents) != notification.MaxIncidents || len(got.Labels) != notification.MaxLabels || got.Incidents[0].Link != "" {
		t.Errorf("%d incidents, %d labels, link %q", len(got.Incidents), len(got.Labels), got.Incidents[0].Link)
	}
	if len(n.Incidents) != 402 || len(n.Labels) != 102 {
		t.Error("Trim changed its argument")
	}
	if !strings.HasSuffix(got.Incidents[0].Job, "字…") {
		t.Errorf("a character is cut: %q", got.Incidents[0].Job)
	}
}

// TestCheck checks that each required field is named.
func TestCheck(t *testing.T) {
	good := firing(notification.English)
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*notification.Notification){
		"id":       func(n *notification.Notification) { n.ID = "" },
		"alert":    func(n *notification.Notification) { n.Alert = "" },
		"state":    func(n *notification.Notification) { n.State = "" },
		"severity": func(n *notification.Notification) { n.Severity = "fatal" },
		"language": func(n *notification.Notification) { n.Language = "" },
		"count":    func(n *notification.Notification) { n.Count = 1 },
	} {
		n := firing(notification.English)
		change(&n)
		if err := n.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
		if err := notification.Single(n).Check(); err == nil && want != "count" {
			t.Errorf("a message with a wrong %s is taken", want)
		}
	}
	if err := (notification.Message{}).Check(); err == nil {
		t.Error("an empty message is taken")
	}
}

// TestFit checks that a text that is too long loses whole lines, and says how many.
func TestFit(t *testing.T) {
	for _, tt := range []struct {
		limit      int
		text, want string
	}{
		{100, "one\ntwo", "one\ntwo"},
		{24, "one\ntwo\nthree\nfour-is-a-long-line", "one\ntwo\n… and 2 more"},
		{19, "one\ntwo\nthree\nfour-is-long", "one\n… and 3 more"},
		{11, "one-is-too-long\ntwo", "one-is-t…"},
	} {
		if got := notification.Fit(tt.text, tt.limit, notification.English); got != tt.want {
			t.Errorf("Fit(%q, %d) = %q, want %q", tt.text, tt.limit, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		text, limit := rapid.String().Draw(t, "text"), rapid.IntRange(0, 60).Draw(t, "limit")
		for _, got := range []string{notification.Fit(text, limit, notification.Chinese), notification.Cut(text, limit)} {
			if len(got) > limit || !utf8.ValidString(got) {
				t.Errorf("%d bytes of %d: %q", len(got), limit, got)
			}
		}
		if got := notification.FitBy(text, limit, notification.English, utf8.RuneCountInString); utf8.RuneCountInString(got) > limit {
			t.Errorf("%d characters of %d", utf8.RuneCountInString(got), limit)
		}
	})
}

// TestSamples checks that the messages that try a template are valid.
func TestSamples(t *testing.T) {
	for _, l := range []notification.Language{notification.English, notification.Chinese, ""} {
		var errs []error
		for _, m := range notification.Samples(l) {
			errs = append(errs, m.Check())
		}
		if err := errors.Join(errs...); err != nil {
			t.Errorf("%q: %v", l, err)
		}
	}
}
