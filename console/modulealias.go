package console

import (
	"cmp"
	"errors"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/job"
)

// moduleAlias is an alias with the version that a roll-back goes to.
type moduleAlias struct{ *apiv1.Alias }

// Former returns the version that the alias pointed at before; "": none is known, or the alias
// points at it again.
func (a moduleAlias) Former() string {
	for _, e := range a.Events {
		if e.What == job.AliasSet && e.From != "" && e.From != a.Version {
			return e.From
		}
	}
	return ""
}

// Failures returns the share of failed attempts of the canary, as "12 %".
func (a moduleAlias) Failures() string {
	return percent(a.GetCanary().GetFailed(), a.GetCanary().GetFailed()+a.GetCanary().GetSucceeded())
}

// aliasForm is the form that sets an alias, as the visitor filled it in.
type aliasForm struct {
	Name, Version, Canary, Percent, MinAttempts, MaxFailure, Window string

	WhenReady bool
}

func readAliasForm(f url.Values) aliasForm {
	field := func(name string) string { return strings.TrimSpace(f.Get(name)) }
	return aliasForm{
		field("alias"), field("version"), field("canary"), field("percent"), field("min_attempts"), field("max_failure"), field("window"), f.Get("when_ready") != "",
	}
}

// number reads an optional number of a form.
func number(name, text string) (float64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		return 0, status.Errorf(codes.InvalidArgument, "%s: %.40q is not a number", name, text)
	}
	return n, nil
}

// request returns the call that the form asks for.
func (f aliasForm) request(app, module string) (*apiv1.SetAliasRequest, error) {
	req := &apiv1.SetAliasRequest{App: app, Module: module, Name: f.Name, Version: f.Version, WhenReady: f.WhenReady}
	if f.Canary == "" {
		return req, nil
	}
	percent, err := number("percent", f.Percent)
	if err != nil {
		return nil, err
	}
	most, err := number("max_failure", f.MaxFailure)
	if err != nil {
		return nil, err
	}
	least, err := strconv.ParseInt(cmp.Or(f.MinAttempts, "0"), 10, 32)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "min_attempts: %.40q is not a number of attempts", f.MinAttempts)
	}
	req.Canary = &apiv1.Canary{Version: f.Canary, Percent: percent, MinAttempts: int32(least), MaxFailure: most / 100, Window: f.Window}
	return req, nil
}

// setAlias handles the form that creates or sets an alias.
func (c *console) setAlias(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	form := readAliasForm(v.r.PostForm)
	req, err := form.request(v.app, v.r.PathValue("name"))
	if err == nil {
		_, err = c.modules.SetAlias(v.ctx, req)
	}
	return c.aliasMoved(v, form, err, "alias.done.set", form.Name)
}

// moveAlias handles the buttons of an alias: another share for its canary, the end of the canary,
// its promotion, or the former version again. It does nothing if the alias is another one than
// the visitor saw.
func (c *console) moveAlias(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	f, module, name := v.r.PostForm, v.r.PathValue("name"), v.r.PathValue("alias")
	now, err := c.modules.GetAlias(v.ctx, &apiv1.GetAliasRequest{App: v.app, Module: module, Name: name})
	if err == nil {
		err = revisionMoved("the alias "+name, f.Get("revision"), now.Revision)
	}
	req := &apiv1.SetAliasRequest{App: v.app, Module: module, Name: name}
	done, subject := "", name
	if err == nil {
		done, subject, err = moveRequest(req, now, f)
	}
	if err == nil {
		_, err = c.modules.SetAlias(v.ctx, req)
	}
	return c.aliasMoved(v, aliasForm{}, err, done, subject)
}

// moveRequest completes the request for a button of an alias. It returns the notice of the change.
func moveRequest(req *apiv1.SetAliasRequest, now *apiv1.Alias, f url.Values) (done, subject string, err error) {
	do := f.Get("do")
	if now.Canary == nil && do != "back" {
		return "", "", status.Errorf(codes.FailedPrecondition, "the alias %s has no version on trial", now.Name)
	}
	switch do {
	case "share":
		percent, err := number("percent", f.Get("percent"))
		if err != nil {
			return "", "", err
		}
		k := now.Canary
		req.Canary = &apiv1.Canary{Version: k.Version, Percent: percent, MinAttempts: k.MinAttempts, MaxFailure: k.MaxFailure, Window: k.Window}
		return "alias.done.share", now.Name + " · " + k.Version + " · " + f.Get("percent") + " %", nil
	case "promote":
		req.Version = now.Canary.Version
		return "alias.done.promote", now.Name + " → " + req.Version, nil
	case "end":
		req.EndCanary = true
		return "alias.done.end", now.Name + " → " + now.Version, nil
	case "back":
		if req.Version = (moduleAlias{now}).Former(); req.Version == "" {
			return "", "", status.Errorf(codes.FailedPrecondition, "the alias %s has no former version", now.Name)
		}
		return "alias.done.back", now.Name + " → " + req.Version, nil
	}
	return "", "", status.Errorf(codes.InvalidArgument, "do: %.40q is not share, promote, end or back", do)
}

// aliasMoved answers a form about an alias: with the page of the module and the notice, or with the
// reason of a refusal.
func (c *console) aliasMoved(v *visit, form aliasForm, err error, done, subject string) error {
	if why, ok := mendable(err); ok {
		return c.showModule(v, http.StatusUnprocessableEntity, moduleView{Form: form, Refused: why})
	}
	if err != nil {
		return err
	}
	v.redirectWith(moduleAddress(v.app, v.r.PathValue("name")), accessDone{done, subject})
	return nil
}

func (c *console) deleteAliasPage(v *visit) error {
	module, name := v.r.PathValue("name"), v.r.PathValue("alias")
	if _, err := c.modules.GetAlias(v.ctx, &apiv1.GetAliasRequest{App: v.app, Module: module, Name: name}); err != nil {
		return err
	}
	return c.show(v, "confirm", "modules", confirmView{
		Question: "alias.delete.question", Effect: "alias.delete.effect", Button: "alias.delete.button",
		Subject: module + "@" + name, Back: moduleAddress(v.app, module),
	})
}

// deleteAlias deletes an alias. If jobs name it, the page lists them and asks again; the form of
// that page contains force.
func (c *console) deleteAlias(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	module, name := v.r.PathValue("name"), v.r.PathValue("alias")
	_, err := c.modules.DeleteAlias(v.ctx, &apiv1.DeleteAliasRequest{App: v.app, Module: module, Name: name, Force: v.r.PostForm.Get("force") == "yes"})
	if names := namesOf(err, v.app); len(names) > 0 {
		return c.showStatus(v, http.StatusConflict, "confirm", "modules", confirmView{
			Question: "alias.needed.question", Effect: "alias.needed.effect", Button: "delete.needed.button",
			Subject: module + "@" + name, Back: moduleAddress(v.app, module), Names: names, Force: true,
		})
	}
	if err != nil {
		return err
	}
	v.redirectWith(moduleAddress(v.app, module), accessDone{"alias.done.delete", name})
	return nil
}

// writeGrants writes the document of the form: the present grants, or with a version those and
// what the version requests.
func (view *moduleView) writeGrants(app, version string) error {
	kind, err := document.Find("Grant")
	if err != nil {
		return err
	}
	spec := &apiv1.ModuleGrants{App: app, Module: view.Name, Grants: view.Grants.GetGrants(), Labels: view.Grants.GetLabels()}
	for _, g := range view.Grants.GetVersions() {
		if g.Version == version && version != "" {
			spec.Grants, view.Asked = g.Requested, version
		}
	}
	text, err := document.Marshal(document.Of(kind, spec))
	view.Text = string(text)
	return err
}

// Granted returns what the module may use, as lines.
func (view moduleView) Granted() []string { return capabilities(view.Grants.GetGrants()) }

// setGrants replaces the grants of a module by those of the document in the form.
func (c *console) setGrants(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	name, text := v.r.PathValue("name"), strings.ReplaceAll(v.r.PostForm.Get("text"), "\r\n", "\n") // browsers send CRLF
	spec, problems := readGrants(text, v.app, name)
	if len(problems) == 0 {
		now, err := c.grants.GetGrants(v.ctx, &apiv1.GetGrantsRequest{App: v.app, Module: name})
		if err == nil {
			err = revisionMoved("the grants", v.r.PostForm.Get("revision"), now.Revision)
		}
		if err == nil {
			_, err = c.grants.PutGrants(v.ctx, &apiv1.PutGrantsRequest{Grants: spec})
		}
		why, ok := mendable(err)
		switch {
		case ok:
			problems = []string{why}
		case err != nil:
			return err
		}
	}
	if len(problems) > 0 {
		return c.showModule(v, http.StatusUnprocessableEntity, moduleView{Text: text, Problems: problems})
	}
	v.redirectWith(moduleAddress(v.app, name), accessDone{Key: "grants.done"})
	return nil
}

// readGrants reads the one document of a text, which must be about the module.
func readGrants(text, app, module string) (*apiv1.ModuleGrants, []string) {
	kind, err := document.Find("Grant")
	if err != nil {
		return nil, []string{err.Error()}
	}
	all, err := document.Parse(strings.NewReader(text), document.Options{Kind: kind, Only: true, NoFiles: true})
	var problems document.Problems
	switch {
	case errors.As(err, &problems):
		var lines []string
		for _, p := range problems {
			lines = append(lines, strconv.Itoa(p.At.Line)+": "+p.Text)
		}
		return nil, lines
	case err != nil:
		return nil, []string{err.Error()}
	case len(all) != 1:
		return nil, []string{"want one document, found " + strconv.Itoa(len(all))}
	}
	d := all[0]
	if d.App == "" {
		d.SetApp(app)
	}
	spec := d.Spec.(*apiv1.ModuleGrants)
	if spec.App != app || spec.Module != module {
		return nil, []string{"this page is about module " + module + " of app " + app + ", and the text about module " + spec.Module + " of app " + spec.App}
	}
	return spec, nil
}
