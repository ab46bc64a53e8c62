package console

import (
	"html"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const orderSchema = `{"type": "object", "required": ["order"], "properties": {
	"order": {"type": "integer", "description": "the number of the order"},
	"country": {"enum": ["DE", "FR"]},
	"note": {"type": "string", "default": "none"}}}`

// withSchema lets the module of the job totals have a schema of its input.
func withSchema(f *fakeAPI) *fakeAPI {
	m := &apiv1.Module{App: "default", Name: "totals", Version: "1", InputSchemas: map[string]string{"other": "true", "main": orderSchema}}
	f.modules = slices.DeleteFunc(slices.Clone(f.modules), func(x *apiv1.Module) bool { return x.Name == m.Name && x.Version == m.Version })
	f.modules = append(f.modules, m)
	return f
}

// TestRunForm runs a job by the fields of its input. A mistake is next to its field, and the typed value stays.
func TestRunForm(t *testing.T) {
	f := newFake().populate()
	withSchema(f)
	f.jobs = append(f.jobs, &apiv1.Job{App: "default", Name: "zz-call", Handler: &apiv1.Handler{Name: "builtin:http"}})
	s := newSite(t, f).signIn(t)
	const page = "/apps/default/jobs/totals/run-form"
	_, body := s.do(t, "GET", page, nil)
	for _, want := range []string{"the number of the order", `name="f.order"`, "<option>DE</option>", `placeholder="none"`, "required", "Sample input"} {
		if !strings.Contains(body, want) {
			t.Errorf("the form has no %q", want)
		}
	}
	checkPage(t, body)
	post := func(do, text string, values ...string) (*http.Response, string) {
		t.Helper()
		form := url.Values{"do": {do}, "input": {text}}
		for i := 0; i+1 < len(values); i += 2 {
			form.Set("f."+values[i], values[i+1])
			form.Set("was."+values[i], "")
		}
		resp, body := s.post(t, page, form.Encode())
		if resp.StatusCode != http.StatusSeeOther {
			checkPage(t, body)
		}
		return resp, html.UnescapeString(body)
	}
	for name, c := range map[string]struct {
		do, text string
		values   []string
		code     int
		wants    []string
	}{
		"required":         {"run", "", []string{"note", "x"}, http.StatusUnprocessableEntity, []string{"A value is required.", `value="x"`}},
		"required of text": {"run", `{"note": "x"}`, nil, http.StatusUnprocessableEntity, []string{"A value is required."}},
		"no number":        {"run", "", []string{"order", "many"}, http.StatusUnprocessableEntity, []string{"Enter a whole number", `value="many"`}},
		"no choice":        {"take", "", []string{"country", "XX"}, http.StatusOK, []string{"Choose one of the values."}},
		"taken":            {"take", `{"extra": [1, 12345678901234567890]}`, []string{"order", "7"}, http.StatusOK, []string{`"order": 7`, "12345678901234567890"}},
		"a sample":         {"sample", "", nil, http.StatusOK, []string{`"order": 0`, `"note": "none"`, `"country": "DE"`}},
		"no object":        {"run", "text", []string{"order", "7"}, http.StatusUnprocessableEntity, []string{"The input is not a JSON object"}},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := post(c.do, c.text, c.values...)
			if resp.StatusCode != c.code {
				t.Errorf("%s", resp.Status)
			}
			for _, want := range c.wants {
				if !strings.Contains(body, want) {
					t.Errorf("no %q in\n%s", want, body)
				}
			}
		})
	}
	resp, _ := post("run", "{\r\n \"note\": \"n\"}", "order", "7", "country", "FR")
	if resp.StatusCode != http.StatusSeeOther || !strings.Contains(resp.Header.Get("Location"), "/runs/") {
		t.Errorf("a run answers %s", resp.Status)
	}
	want := "{\n  \"country\": \"FR\",\n  \"note\": \"n\",\n  \"order\": 7\n}"
	if _, got := s.do(t, "GET", resp.Header.Get("Location")+"/input", nil); got != want {
		t.Errorf("the run has the input %s", got)
	}
	_, body = s.do(t, "GET", "/apps/default/jobs/zz-call/run-form", nil)
	if !strings.Contains(body, "write the text") {
		t.Error("a job without a schema does not say so")
	}
}

func TestSchemaInAManifest(t *testing.T) {
	const manifest = `{"handlers": [{"name": "other", "input_schema": true}, {"name": "main", "input_schema": {"type": "object"}}]}`
	if got := string(inputSchemaOf(manifest, "main")); got != `{"type": "object"}` {
		t.Errorf("the schema is %s", got)
	}
	if got := inputSchemaOf("{", "main"); got != nil {
		t.Errorf("no manifest has the schema %s", got)
	}
}
