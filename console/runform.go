package console

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// The form that runs a job with another input. The text is the input; the fields, if the module has a schema of
// it, change the text as the form of a job does: those that differ from what the page showed.

// runFormView is the form of a run, with the mistakes of its last post.
type runFormView struct {
	Job    *apiv1.Job
	Text   string
	Fields []runField
	NoForm string // key of the text that says why there are no fields
	Error  string // of the server
	Wrong  string // key of the text about the input as a whole
}

// runField is a field with its value.
type runField struct {
	inputField
	Value   string
	Locked  bool   // the value is a list or an object: it is changed in the text
	Mistake string // key of a text; "": none
}

// inputMistakes are the keys of the texts of mistakes.
var inputMistakes = map[error]string{
	errInputRequired: "runform.required", errInputNumber: "runform.number", errInputInteger: "runform.integer",
	errInputChoice: "runform.choice", errInputText: "runform.text",
}

func (c *console) runFormPage(v *visit) error {
	view, err := c.runForm(v)
	if err != nil {
		return err
	}
	view.Text = view.Job.Input
	view.fill(nil)
	return c.show(v, "runform", "jobs", view)
}

// runForm returns the form of a job without values.
func (c *console) runForm(v *visit) (*runFormView, error) {
	if !c.visitor(v).May("jobs.trigger", v.app) {
		return nil, status.Errorf(codes.PermissionDenied, "a run of a job of app %s takes the permission jobs.trigger", v.app)
	}
	j, err := c.jobs.GetJob(v.ctx, &apiv1.GetJobRequest{App: v.app, Name: v.r.PathValue("name")})
	if err != nil {
		return nil, err
	}
	view := &runFormView{Job: j}
	name, version, ok := strings.Cut(j.GetHandler().GetModule(), "@")
	if !ok {
		view.NoForm = "runform.nomodule"
		return view, nil
	}
	m, err := c.modules.GetModule(v.ctx, &apiv1.GetModuleRequest{App: v.app, Name: name, Version: version})
	if err != nil && optional(err) != nil && status.Code(err) != codes.NotFound {
		return nil, err
	}
	handler := cmp.Or(j.GetHandler().GetName(), "main")
	schema := []byte(m.GetInputSchemas()[handler])
	if len(schema) == 0 { // an earlier version of the server has stored the module
		schema = inputSchemaOf(m.GetManifest(), handler)
	}
	for _, f := range inputFieldsOf(schema) {
		view.Fields = append(view.Fields, runField{inputField: f})
	}
	if len(view.Fields) == 0 {
		view.NoForm = "runform.noschema"
	}
	return view, nil
}

// inputSchemaOf returns the schema of the input of a handler; nil: the manifest has none.
func inputSchemaOf(manifest, handler string) []byte {
	var m struct {
		Handlers []struct {
			Name        string          `json:"name"`
			InputSchema json.RawMessage `json:"input_schema"`
		} `json:"handlers"`
	}
	if json.Unmarshal([]byte(manifest), &m) != nil {
		return nil
	}
	for _, h := range m.Handlers {
		if h.Name == handler {
			return h.InputSchema
		}
	}
	return nil
}

// fill sets the values of the fields from the text, and their mistakes. Fields with a mistake keep what the
// visitor has typed.
func (view *runFormView) fill(form url.Values) {
	var members map[string]json.RawMessage
	if strings.TrimSpace(view.Text) != "" && (json.Unmarshal([]byte(view.Text), &members) != nil || members == nil) && len(view.Fields) > 0 {
		view.Wrong = inputMistakes[errInputText]
	}
	for i := range view.Fields {
		f := &view.Fields[i]
		raw, there := members[f.Name]
		text, single := inputText(raw)
		f.Value, f.Locked = text, there && !single
		if f.Mistake != "" && form.Has(formValue+f.Name) {
			f.Value = form.Get(formValue + f.Name)
		}
	}
}

// Shown returns the value of the field in the text, which the next post is compared with.
func (view *runFormView) Shown(name string) string {
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(view.Text), &members) != nil {
		return ""
	}
	text, _ := inputText(members[name])
	return text
}

// takeFields writes the fields that the visitor has changed into the text. It reports whether all are right; a
// run needs those that are required, too.
func (view *runFormView) takeFields(form url.Values, runs bool) bool {
	changed := map[string]string{}
	var fields []inputField
	for _, f := range view.Fields {
		fields = append(fields, f.inputField)
		if form.Has(formValue+f.Name) && formText(form, formValue, f.Name) != formText(form, formShown, f.Name) {
			changed[f.Name] = formText(form, formValue, f.Name)
		}
	}
	var mistakes map[string]error
	if len(changed) > 0 {
		var err error
		if view.Text, mistakes, err = mergeInput(fields, view.Text, changed); err != nil {
			view.Wrong = inputMistakes[errInputText]
			return false
		}
	}
	var members map[string]json.RawMessage
	object := json.Unmarshal([]byte(view.Text), &members) == nil || strings.TrimSpace(view.Text) == ""
	for i := range view.Fields {
		f := &view.Fields[i]
		if err := mistakes[f.Name]; err != nil {
			f.Mistake = inputMistakes[err]
		} else if runs && object && f.Required && members[f.Name] == nil {
			f.Mistake = inputMistakes[errInputRequired]
		}
	}
	return !slices.ContainsFunc(view.Fields, func(f runField) bool { return f.Mistake != "" })
}

// runWithForm handles the form: it runs the job, or shows the text with the fields, or a sample.
func (c *console) runWithForm(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	view, err := c.runForm(v)
	if err != nil {
		return err
	}
	form, do := v.r.PostForm, v.r.PostForm.Get("do")
	view.Text = strings.ReplaceAll(form.Get("input"), "\r\n", "\n") // browsers send CRLF
	again := func(code int) error {
		view.fill(form)
		return c.showStatus(v, code, "runform", "jobs", view)
	}
	if do == "sample" {
		var fields []inputField
		for _, f := range view.Fields {
			fields = append(fields, f.inputField)
		}
		if view.Text, err = sampleInput(fields); err != nil {
			return err
		}
		return again(http.StatusOK)
	}
	right := view.takeFields(form, do == "run")
	if do != "run" {
		return again(http.StatusOK)
	}
	if !right {
		return again(http.StatusUnprocessableEntity)
	}
	req := &apiv1.TriggerJobRequest{App: v.app, Name: view.Job.Name}
	if view.Text != "" {
		req.Input = proto.String(view.Text)
	}
	run, err := c.jobs.TriggerJob(v.ctx, req)
	if status.Code(err) == codes.InvalidArgument {
		view.Error = status.Convert(err).Message()
		return again(http.StatusUnprocessableEntity)
	}
	if err != nil {
		return err
	}
	v.redirect(href("apps", v.app, "runs", run.Id))
	return nil
}

// IsArea reports whether the value needs lines of its own.
func (f runField) IsArea() bool { return f.Type == "string" && strings.Contains(f.Value, "\n") }

// Preset returns the default of the field, for an empty one.
func (f runField) Preset() string {
	text, _ := inputText(f.preset)
	return text
}
