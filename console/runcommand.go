package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// maxCopied bounds the input of a command to copy, in bytes. Longer ones do not fit on a command line.
const maxCopied = 8 << 10

// commandView are the commands that start a job again with the input of a run.
type commandView struct {
	CLI, Curl string
	NoInput   bool // the input is too long, or no text: the commands use that of the job
}

// commands returns the commands for a run. origin is the address of the API.
func commands(r *apiv1.Run, origin string, mayRead bool) commandView {
	var view commandView
	cli := []string{"wheelwork", "job", "trigger", r.Job}
	if r.App != naming.DefaultApp {
		cli = append(cli, "--app", r.App)
	}
	body := map[string]string{}
	switch {
	case !mayRead || len(r.InputBytes) > 0 || len(r.Input) > maxCopied || strings.ContainsRune(r.Input, 0):
		view.NoInput = true
	case strings.HasPrefix(r.Input, "@"): // the flag would take it for the name of a file
		view.NoInput = true
	default:
		cli, body["input"] = append(cli, "--input", r.Input), r.Input
	}
	// The shell replaces the variables, so that no command contains a token.
	curl := []string{"curl", "--fail-with-body", "-X", "POST", origin + "/api/v1" + href("apps", r.App, "jobs", r.Job) + ":trigger", "-H", "Content-Type: application/json"}
	var data strings.Builder
	e := json.NewEncoder(&data)
	e.SetEscapeHTML(false)
	_ = e.Encode(body) // a map of texts
	curl = append(curl, "-d", strings.TrimSpace(data.String()))
	view.CLI = shellLine(append(cli, "--wait"))
	view.Curl = shellLine(curl) + ` -H "Authorization: Bearer $WHEELWORK_TOKEN"`
	return view
}

// plainWord is a word that a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:@%+-]+$`)

// shellLine quotes words for a POSIX shell.
func shellLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if !plainWord.MatchString(w) {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		quoted[i] = w
	}
	return strings.Join(quoted, " ")
}

// origin returns the address at which the visitor reaches the console.
func (c *console) origin(r *http.Request) string {
	if c.public != "" {
		return c.public
	}
	u := url.URL{Scheme: "http", Host: r.Host}
	if c.secure {
		u.Scheme = "https"
	}
	return u.String()
}

// rerunView is the form that starts a job again with an edited input.
type rerunView struct {
	Run    *apiv1.Run
	Input  string
	Refuse string // why the input of the run cannot be edited here
	Error  string // the API's reason for a refusal
}

func (c *console) rerunPage(v *visit) error {
	run, err := c.runs.GetRun(v.ctx, &apiv1.GetRunRequest{App: v.app, Id: v.r.PathValue("id")})
	if err != nil {
		return err
	}
	view := rerunView{Run: run, Input: run.Input}
	switch {
	case len(run.InputBytes) > 0:
		view.Refuse = "rerun.binary"
	case len(run.Input) > maxEdited || strings.ContainsRune(run.Input, 0):
		view.Refuse = "rerun.long"
	}
	return c.show(v, "rerun", "runs", view)
}

// rerun triggers the job of a run with the input of the form. A refused input is shown again.
func (c *console) rerun(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	run, err := c.runs.GetRun(v.ctx, &apiv1.GetRunRequest{App: v.app, Id: v.r.PathValue("id")})
	if err != nil {
		return err
	}
	input := strings.ReplaceAll(v.r.PostForm.Get("input"), "\r\n", "\n") // browsers send CRLF
	made, err := c.jobs.TriggerJob(v.ctx, &apiv1.TriggerJobRequest{App: v.app, Name: run.Job, Input: proto.String(input)})
	if status.Code(err) == codes.InvalidArgument {
		return c.showStatus(v, http.StatusUnprocessableEntity, "rerun", "runs", rerunView{Run: run, Input: input, Error: status.Convert(err).Message()})
	}
	if err != nil {
		return err
	}
	v.redirect(href("apps", v.app, "runs", made.Id))
	return nil
}
