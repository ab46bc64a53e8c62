package notification_test

import (
	"testing"
	"time"

	"github.com/wheelworkhq/wheelwork/alert/notification"
)

// FuzzTemplates looks for a template that stops the renderer, or costs it more than its
// bounds.
func FuzzTemplates(f *testing.F) {
	for _, s := range []string{
		"", "{{.Title}}", "{{range .Incidents}}{{.Error}}{{else}}-{{end}}", "{{with .Labels.job}}{{bold .}}{{end}}",
		`{{define "x"}}{{template "x" .}}{{end}}{{template "x" .}}`, `{{range 1000000}}{{range 1000000}}{{end}}{{end}}`,
		`{{$x := "a"}}{{range 100}}{{$x = printf "%s%s" $x $x}}{{end}}`, `<a href="{{.Link}}" {{if .More}}title={{.More}}{{end}}>{{cut 5 .Title}}</a>`,
		`<script>var x = {{.Incidents}};</script>`, `{{printf "%[2]*[1]d" 1 2}}`, `{{slice .Title 0 3}}{{index .Labels "job"}}`, `{{range .Alerts}}{{break}}{{end}}`,
		`{{block "b" .}}{{.App}}{{end}}`, `{{/* comment */}}`, `{{link .Subject .Link}}`, `{{.Word.Rule}}{{.}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		begin := time.Now()
		for _, own := range []notification.Templates{{Title: text}, {Text: text}, {Markdown: text}, {HTML: text}} {
			r, err := notification.NewRenderer(map[notification.Language]notification.Templates{"": own}, nil)
			if err != nil {
				continue
			}
			for _, m := range messages(notification.Chinese) {
				for _, render := range []func() (string, error){
					func() (string, error) { return r.Title(m) },
					func() (string, error) { return r.Text(m) },
					func() (string, error) { return r.Markdown(m, notification.Lark) },
					func() (string, error) { return r.HTML(m) },
				} {
					if s, _ := render(); len(s) > 256<<10 { // an error has the built-in text with it
						t.Errorf("%d bytes", len(s))
					}
				}
			}
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
