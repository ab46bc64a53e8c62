package console

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime/script"
)

// scriptTrial is the part of the editor that executes the text.
type scriptTrial struct {
	Handler, Input string // fields of the form
	Problems       []scriptProblem
	Result         *apiv1.TryScriptResponse // nil: nothing was executed
	At             *scriptProblem           // the line of the text at which the handler failed; nil: not known
}

// Icon returns the state of a run whose look the outcome has.
func (t scriptTrial) Icon() string {
	switch outcome := t.Result.GetOutcome(); outcome {
	case "succeeded", "timed_out", "stopped":
		return outcome
	}
	return "failed"
}

// Output returns the output as a text; bytes that are none are shown as in the page of a run.
func (t scriptTrial) Output() payload {
	return newPayload(t.Result.GetOutput(), t.Result.GetOutputBytes())
}

// tryScript executes the text in the sandbox of the server, and shows the result beside the text.
// It stores nothing.
func (c *console) tryScript(v *visit, view *scriptView, at scriptPlace) error {
	code, manifest, problems := view.pack()
	if len(problems) > 0 {
		view.Trial.Problems = problems
		return c.showScript(v, http.StatusOK, view, at)
	}
	var err error
	view.Trial.Result, err = c.modules.TryScript(v.ctx, &apiv1.TryScriptRequest{
		App: v.app, Name: view.Module(), Code: code, Manifest: manifest, Handler: view.Trial.Handler, Input: view.Trial.Input,
	})
	switch {
	case err == nil:
		view.Trial.At = view.failedAt(view.Trial.Result)
	case status.Code(err) != codes.PermissionDenied && refusal(err):
		view.Trial.Problems = []scriptProblem{view.problemOf(status.Convert(err).Message())}
	default:
		return err
	}
	return c.showScript(v, http.StatusOK, view, at)
}

// frames finds the file and the line of a frame in a stack of JavaScript, and in one of Python.
var frames = regexp.MustCompile(`\(([^():]+):(\d+)(?::\d+)?\)|File "(?:/app/)?([^"]+)", line (\d+)`)

// failedAt returns the innermost line of the text in the stack of a failure; nil: there is none.
func (s scriptText) failedAt(r *apiv1.TryScriptResponse) *scriptProblem {
	if r.GetOutcome() == "succeeded" {
		return nil
	}
	var stack strings.Builder
	stack.WriteString(r.GetTrace() + "\n")
	for _, line := range r.GetLog() {
		if line.Level == "error" {
			stack.WriteString(line.Text + "\n")
		}
	}
	var found *scriptProblem
	for _, m := range frames.FindAllStringSubmatch(stack.String(), -1) {
		name := m[1] + m[3]
		for i, f := range s.Files {
			if f.Name != name {
				continue
			}
			line, _ := strconv.Atoi(m[2] + m[4])
			found = &scriptProblem{Field: fileText(i), Name: name, Line: line}
			if s.Language == script.JavaScript { // its stacks begin with the innermost frame, those of Python end with it
				return found
			}
		}
	}
	return found
}
