package console

import (
	"net/url"
	"slices"
	"strings"

	"github.com/wheelworkhq/wheelwork/document"
)

// The form beside the text of a job has some of its fields. The text is the only state: a post has
// the value of each field and the one that the page showed, and those that differ are written into
// the text. So a visitor may change both before the next step, with or without scripts.

// The names of values of the form: a prefix and the path of a field.
const (
	formValue = "f."   // as the visitor left it
	formShown = "was." // as the page showed it
)

// The two fields of the form that are not a field of the document.
const (
	kindField = "schedule" // the field in schedule that is set, "" without a schedule
	whenField = "when"     // its value
)

// scheduleKinds are the fields of a schedule of which a job has one.
var scheduleKinds = []string{"cron", "every", "delay", "at", "after", "daily"}

// formFields are the paths in the order of the form; a field of the schedule comes after its kind.
var formFields = []string{
	"name", "description", "owner", "handler.module", "handler.name", kindField, whenField, "schedule.zone",
	"input", "timeout", "retry.max", "retry.first", "overlap.policy", "misfire.policy", "paused",
}

// formView is the form of a job; Why says why a text has none.
type formView struct {
	Fields []formField
	Why    string
}

// formField is a field as the form shows it.
type formField struct {
	Path    string
	Value   string
	Locked  bool     // the text has a value that the form cannot show
	Choices []string // the values of a choice; nil: any text
	Default string   // of a choice
	Example string
}

// ID is the id of the field in the page.
func (f formField) ID() string {
	return "form-" + strings.NewReplacer(".", "-", "_", "-").Replace(f.Path)
}

// jobFormOf returns the form of a text. A job that exists keeps its name.
func jobFormOf(text string, exists bool) formView {
	kind, err := document.Find(document.DefaultKind)
	if err != nil {
		return formView{Why: err.Error()}
	}
	e, err := document.Edit(kind, text)
	if err != nil {
		return formView{Why: err.Error()}
	}
	var view formView
	for _, path := range formFields {
		if path == "name" && exists {
			continue
		}
		view.Fields = append(view.Fields, jobFieldOf(kind, e, path))
	}
	return view
}

func jobFieldOf(kind *document.Kind, e *document.Editor, path string) formField {
	f := formField{Path: path}
	switch path {
	case kindField:
		f.Choices = slices.Clone(scheduleKinds[:len(scheduleKinds)-1])
		if f.Value = scheduleKind(e); f.Value == "daily" { // a choice of a text that has it alone
			f.Choices = append(f.Choices, f.Value)
		}
		_, f.Locked = e.Get("schedule")
		f.Locked = f.Locked && e.Has("schedule") && f.Value == "" // a schedule that is no object
		return f
	case whenField:
		of := scheduleKind(e)
		if of == "" {
			return f
		}
		value, ok := e.Get("schedule." + of)
		f.Value, f.Locked, f.Example = value, !ok, kind.Field("schedule."+of).Example
		return f
	}
	value, ok := e.Get(path)
	known := kind.Field(path)
	f.Value, f.Locked, f.Choices, f.Default, f.Example = value, !ok, known.Enum, known.Default, strings.Trim(known.Example, `"'`)
	if path == "input" && e.Has("input_bytes") {
		f.Locked = true
	}
	return f
}

// scheduleKind returns the field of the schedule that says when the job runs; "": none.
func scheduleKind(e *document.Editor) string {
	for _, k := range scheduleKinds {
		if e.Has("schedule." + k) {
			return k
		}
	}
	return ""
}

// takeOver returns the text with the fields that the visitor has changed in the form.
func takeOver(text string, form url.Values) string {
	kind, err := document.Find(document.DefaultKind)
	if err != nil {
		return text
	}
	e, err := document.Edit(kind, text)
	if err != nil {
		return text // the page says why, and shows no form
	}
	changed := func(path string) bool {
		return form.Has(formShown+path) && formText(form, formValue, path) != formText(form, formShown, path)
	}
	for _, path := range formFields {
		switch {
		case path == whenField || !changed(path) && (path != kindField || !changed(whenField)):
		case path == kindField:
			setSchedule(kind, e, formText(form, formValue, kindField), formText(form, formValue, whenField), changed(whenField))
		default:
			e.Set(path, formText(form, formValue, path))
		}
	}
	after, err := e.Text()
	if err != nil {
		return text
	}
	return after
}

// formText returns a value of a form; browsers send CRLF.
func formText(form url.Values, prefix, path string) string {
	return strings.ReplaceAll(form.Get(prefix+path), "\r\n", "\n")
}

// setSchedule changes when a job runs. Another kind without another value begins with an example,
// because the value of the former kind is none of the new one.
func setSchedule(kind *document.Kind, e *document.Editor, to, when string, given bool) {
	if to == "" {
		e.Remove("schedule")
		return
	}
	of := kind.Field("schedule." + to)
	if of == nil || to == "daily" {
		return
	}
	if before := scheduleKind(e); !given && before != to || when == "" {
		when = strings.Trim(of.Example, `"'`)
	}
	e.Set("schedule."+to, when)
	for _, k := range scheduleKinds {
		if k != to {
			e.Remove("schedule." + k)
		}
	}
}
