package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/runtime/script"
)

// scriptView is the page that creates or edits a script.
type scriptView struct {
	scriptText
	Name   string // of the module; "": the form has it
	New    string // the name in the form
	Base   string // the version that the text was made from; "": none
	Seen   string // the newest version when the text was made; "": none
	Next   string // the version that saving creates
	Alias  string // that saving moves to it; "": none
	Failed string // why a call failed, other than by the text
	Check  scriptCheck
	Trial  scriptTrial

	Versions []string // that can be opened, the newest first, at most pageSize
	Aliases  []*apiv1.Alias
}

// scriptCheck is the result of a check.
type scriptCheck struct {
	Problems []scriptProblem
	Module   *apiv1.Module // as saving would create it; nil while there are problems
	// Missing is the interpreter for which the server refused the script; nil: it has it.
	Missing *script.Interpreter
}

// Capabilities returns what the manifest requests, as lines.
func (c scriptCheck) Capabilities() []string { return capabilities(c.Module.GetRequests()) }

// scriptReview shows what saving a script would change.
type scriptReview struct {
	scriptView
	Changes []textChanges
	Facts   *moduleCompare // of handlers and capabilities; nil: there is no former version
	Moved   *apiv1.Module  // the newest version, if it is newer than the text
	Others  []textChanges  // what that version changed
	Pointer *moduleAlias   // the alias that saving moves; nil: none
}

// Languages returns the languages of scripts.
func (scriptView) Languages() []string { return []string{script.JavaScript, script.Python} }

// Module returns the name of the module that saving writes to.
func (s scriptView) Module() string {
	if s.Name != "" {
		return s.Name
	}
	return s.New
}

// scriptAddress returns the address of the editor of a script; without a name, of a new one.
func scriptAddress(app, name string) string {
	if name == "" {
		return href("apps", app, "scripts")
	}
	return href("apps", app, "scripts", name)
}

// Address returns the address of the page.
func (s scriptView) Address(app string) string { return scriptAddress(app, s.Name) }

// scriptPlace is what an app has of the module of a script.
type scriptPlace struct {
	versions     []*apiv1.Module // the newest first
	aliases      []*apiv1.Alias
	interpreters map[string]bool // digests of those that the app has
}

// newest returns the version that was created last; "": there is none.
func (p scriptPlace) newest() string {
	if len(p.versions) == 0 {
		return ""
	}
	return p.versions[0].Version
}

// find returns a version; nil: there is none.
func (p scriptPlace) find(version string) *apiv1.Module {
	i := slices.IndexFunc(p.versions, func(m *apiv1.Module) bool { return m.Version == version })
	if i < 0 {
		return nil
	}
	return p.versions[i]
}

// editable reports whether the sources of a version can be opened.
func editable(m *apiv1.Module) bool { return m.Interpreter != "" && m.CollectedAt == nil }

// next proposes a version after another one.
func (p scriptPlace) next(version string) string {
	taken := map[string]bool{}
	for _, m := range p.versions {
		taken[m.Version] = true
	}
	for _, a := range p.aliases {
		taken[a.Name] = true
	}
	return nextVersion(version, taken)
}

// scriptPlace reads what an app has of a module. An empty name is that of no module.
func (c *console) scriptPlace(v *visit, name string) (scriptPlace, error) {
	p := scriptPlace{interpreters: map[string]bool{}}
	g, ctx := errgroup.WithContext(v.ctx)
	g.Go(func() error {
		answer, err := c.modules.ListModules(ctx, &apiv1.ListModulesRequest{App: v.app})
		for _, m := range answer.GetModules() {
			if m.Name == name {
				p.versions = append(p.versions, m)
			}
			if _, known := script.ByDigest(m.Digest); known && m.CollectedAt == nil {
				p.interpreters[m.Digest] = true
			}
		}
		return err
	})
	if name != "" {
		g.Go(func() error {
			answer, err := c.modules.ListAliases(ctx, &apiv1.ListAliasesRequest{App: v.app, Module: name})
			p.aliases = answer.GetAliases()
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return p, err
	}
	slices.SortStableFunc(p.versions, func(a, b *apiv1.Module) int { return stamp(b.CreatedAt).Compare(stamp(a.CreatedAt)) })
	return p, nil
}

// mayEditModules returns the error for a visitor without the permission to upload.
func (c *console) mayEditModules(v *visit) error {
	if c.visitor(v).May("modules.write", v.app) {
		return nil
	}
	return status.Errorf(codes.PermissionDenied, "a change of the scripts of app %s takes the permission modules.write", v.app)
}

// newScriptPage shows the editor with the sample of a language.
func (c *console) newScriptPage(v *visit) error {
	if err := c.mayEditModules(v); err != nil {
		return err
	}
	language := v.r.URL.Query().Get("language")
	if language == "" {
		language = script.JavaScript
	}
	text, err := newScript(language)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	return c.openScript(v, &scriptView{scriptText: text, New: "my-script", Next: "1"}, scriptPlace{})
}

// scriptPage shows the editor with the sources of the chosen version, or else of the newest one.
func (c *console) scriptPage(v *visit) error {
	if err := c.mayEditModules(v); err != nil {
		return err
	}
	name, version := v.r.PathValue("name"), v.r.URL.Query().Get("version")
	at, err := c.scriptPlace(v, name)
	if err != nil {
		return err
	}
	base := at.find(version)
	if version == "" {
		if i := slices.IndexFunc(at.versions, editable); i >= 0 {
			base = at.versions[i]
		}
	}
	switch {
	case len(at.versions) == 0:
		return status.Errorf(codes.NotFound, "there is no module %q in app %s", name, v.app)
	case base == nil && version != "":
		return status.Errorf(codes.NotFound, "module %s has no version %.100q", name, version)
	case base == nil || !editable(base):
		return status.Errorf(codes.FailedPrecondition, "module %s has no script to open: it is compiled from another language, or its bytes were deleted", name)
	}
	text, err := c.sourcesOf(v, base)
	if err != nil {
		return err
	}
	return c.openScript(v, &scriptView{scriptText: text, Name: name, Base: base.Version, Seen: at.newest(), Next: at.next(base.Version)}, at)
}

// sourcesOf returns the text of a version.
func (c *console) sourcesOf(v *visit, m *apiv1.Module) (scriptText, error) {
	const most = 8 * maxSources // of the file: it has the sources as JSON, and the SDK
	tooLarge := status.Errorf(codes.FailedPrecondition, "%s@%s has more than %s of sources, which is more than this editor takes: edit it in a project, and upload it with `wheelwork module push`", m.Name, m.Version, byteSize(maxSources))
	if m.Size > most {
		return scriptText{}, tooLarge
	}
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	stream, err := c.modules.DownloadModule(ctx, &apiv1.DownloadModuleRequest{App: v.app, Name: m.Name, Version: m.Version})
	if err != nil {
		return scriptText{}, err
	}
	var code []byte
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return scriptText{}, err
		}
		if code = append(code, part.Data...); len(code) > most {
			return scriptText{}, tooLarge
		}
	}
	text, err := readScript(code)
	if err != nil {
		return text, status.Errorf(codes.FailedPrecondition, "%s@%s cannot be opened: %v", m.Name, m.Version, err)
	}
	total := 0
	for _, f := range text.Files {
		total += len(f.Text)
	}
	if total > maxSources {
		return text, tooLarge
	}
	return text, nil
}

// openScript shows a text in the editor for the first time.
func (c *console) openScript(v *visit, view *scriptView, at scriptPlace) error {
	if _, err := c.checkScript(v, view, at); err != nil {
		return err
	}
	return c.showScript(v, http.StatusOK, view, at)
}

// showScript shows the editor.
func (c *console) showScript(v *visit, code int, view *scriptView, at scriptPlace) error {
	view.Aliases = at.aliases[:min(len(at.aliases), pageSize)]
	for _, m := range at.versions {
		if editable(m) && len(view.Versions) < pageSize {
			view.Versions = append(view.Versions, m.Version)
		}
	}
	return c.showStatus(v, code, "script", "modules", view)
}

// checkScript packs the text and asks the API whether it would accept the module. It returns the
// module; nil if there are problems, which it puts into the view.
func (c *console) checkScript(v *visit, view *scriptView, at scriptPlace) (*apiv1.Module, error) {
	view.Check = scriptCheck{}
	answer, problems, err := c.pushScript(v, view, true)
	if err == nil {
		view.Check.Problems = problems
		view.Check.Module = answer.GetModule()
		return view.Check.Module, nil
	}
	if status.Code(err) == codes.PermissionDenied || !refusal(err) && status.Code(err) != codes.AlreadyExists {
		return nil, err
	}
	c.refuse(view, at, err)
	return nil, nil
}

// refuse puts the refusal of an upload into the view.
func (c *console) refuse(view *scriptView, at scriptPlace, err error) {
	s := status.Convert(err)
	view.Check = scriptCheck{Problems: []scriptProblem{view.problemOf(s.Message())}}
	if s.Code() == codes.AlreadyExists {
		view.Check.Problems[0].Field = "version"
	}
	if known, ok := script.ByLanguage(view.Language); ok && s.Code() == codes.FailedPrecondition && !at.interpreters[known.Digest] {
		view.Check.Missing = &known
	}
}

// pushScript uploads the text as a version, or only checks it.
func (c *console) pushScript(v *visit, view *scriptView, dryRun bool) (*apiv1.PushModuleResponse, []scriptProblem, error) {
	code, manifest, problems := view.pack()
	if len(problems) > 0 {
		return nil, problems, nil
	}
	answer, err := c.push(v.r, v.session.token, &apiv1.PushModuleRequest_Head{
		App: v.app, Name: view.Module(), Version: view.Next, Manifest: manifest, DryRun: dryRun,
	}, bytes.NewReader(code))
	return answer, nil, err
}

// editScript handles the forms of the editor and of its review. It shows the text again after every
// error.
func (c *console) editScript(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	if err := c.mayEditModules(v); err != nil {
		return err
	}
	f := v.r.PostForm
	view := &scriptView{
		scriptText: scriptOf(f), Name: v.r.PathValue("name"), New: strings.TrimSpace(f.Get("name")),
		Base: f.Get("base"), Seen: f.Get("seen"), Next: strings.TrimSpace(f.Get("version")), Alias: f.Get("alias"),
		Trial: scriptTrial{Handler: strings.TrimSpace(f.Get("handler")), Input: strings.ReplaceAll(f.Get("input"), "\r\n", "\n")},
	}
	at, err := c.scriptPlace(v, view.Module())
	if err == nil {
		err = c.scriptStep(v, view, at, f.Get("do"))
	}
	switch {
	case err == nil:
		return nil
	case status.Code(err) == codes.Unauthenticated:
		if err := c.sessions.remove(v.session.key); err != nil {
			c.log.ErrorContext(v.ctx, "an ended session cannot be removed from the storage", "error", err)
		}
		c.keepForLogin(v.w, v.r)
		return nil
	}
	code := httpStatus(status.Convert(err))
	if code >= http.StatusInternalServerError {
		c.log.ErrorContext(v.ctx, "console page failed", "path", v.r.URL.Path, "error", err)
	}
	view.Failed = status.Convert(err).Message()
	return c.showScript(v, code, view, at)
}

// scriptStep does what the visitor wants with the text: changes its list of files, checks it, executes
// it, and goes on to the review or to the upload.
func (c *console) scriptStep(v *visit, view *scriptView, at scriptPlace, do string) error {
	switch which, isRemove := strings.CutPrefix(do, "remove:"); {
	case do == "add":
		view.Files = append(view.Files, scriptFile{})
		return c.showScript(v, http.StatusOK, view, at)
	case do == "try":
		return c.tryScript(v, view, at)
	case isRemove:
		if i, err := strconv.Atoi(which); err == nil {
			view.remove(i)
		}
	}
	goesOn := do == "review" || do == "save"
	code := http.StatusOK // of a page with problems; a check that finds some has succeeded
	if goesOn {
		code = http.StatusUnprocessableEntity
	}
	if view.Name == "" && len(at.versions) > 0 {
		view.Check.Problems = []scriptProblem{{Field: "name", Text: fmt.Sprintf("the module %s exists: choose another name, or edit that module", view.New)}}
		return c.showScript(v, code, view, at)
	}
	review := &scriptReview{scriptView: *view}
	if goesOn && at.newest() != view.Seen {
		return c.scriptMoved(v, review, at)
	}
	m, err := c.checkScript(v, view, at)
	if err != nil {
		return err
	}
	if m == nil || !goesOn {
		return c.showScript(v, code, view, at)
	}
	review.Check = view.Check
	if do == "review" {
		return c.reviewScript(v, http.StatusOK, review, at)
	}
	return c.saveScript(v, review, at)
}

// scriptMoved shows the review of a text beside the version that another caller has uploaded since
// the text was made. Its form then goes on from that version.
func (c *console) scriptMoved(v *visit, review *scriptReview, at scriptPlace) error {
	review.Moved, review.Seen = at.versions[0], at.newest()
	if at.find(review.Next) != nil {
		review.Next = at.next(review.Seen)
	}
	m, err := c.checkScript(v, &review.scriptView, at)
	if err != nil {
		return err
	}
	if m == nil {
		return c.showScript(v, http.StatusConflict, &review.scriptView, at)
	}
	if base := at.find(review.Base); base != nil && editable(base) && editable(review.Moved) {
		before, err := c.sourcesOf(v, base)
		if err != nil {
			return err
		}
		after, err := c.sourcesOf(v, review.Moved)
		if err != nil {
			return err
		}
		review.Others = changesOf(before, after)
		review.Base = review.Moved.Version
	}
	return c.reviewScript(v, http.StatusConflict, review, at)
}

// changesOf compares two texts. The manifest has the name "".
func changesOf(old, next scriptText) []textChanges {
	with := func(s scriptText) map[string]string {
		all := s.sources()
		all[""] = plainManifest(s.Manifest)
		return all
	}
	return compareTexts(with(old), with(next))
}

// reviewScript shows what saving a text would change in the version that it was made from.
func (c *console) reviewScript(v *visit, code int, review *scriptReview, at scriptPlace) error {
	var before scriptText
	if base := at.find(review.Base); base != nil && editable(base) {
		var err error
		if before, err = c.sourcesOf(v, base); err != nil {
			return err
		}
		review.Facts = compareModules(base, review.Check.Module)
	}
	review.Changes = changesOf(before, review.scriptText)
	if review.Alias != "" {
		i := slices.IndexFunc(at.aliases, func(a *apiv1.Alias) bool { return a.Name == review.Alias })
		if i < 0 {
			return status.Errorf(codes.NotFound, "module %s has no alias %.100q", review.Module(), review.Alias)
		}
		review.Pointer = &moduleAlias{at.aliases[i]}
	}
	return c.showStatus(v, code, "scriptreview", "modules", review)
}

// saveScript uploads the text as a version, and moves the alias to it if the visitor chose one and it
// is still the one that the review has shown.
func (c *console) saveScript(v *visit, review *scriptReview, at scriptPlace) error {
	module := review.Module()
	if review.Alias != "" {
		now, err := c.modules.GetAlias(v.ctx, &apiv1.GetAliasRequest{App: v.app, Module: module, Name: review.Alias})
		if err == nil {
			err = revisionMoved("the alias "+review.Alias, v.r.PostForm.Get("alias_revision"), now.Revision)
		}
		if err != nil {
			return err
		}
	}
	answer, _, err := c.pushScript(v, &review.scriptView, false)
	switch {
	case err == nil:
	case status.Code(err) != codes.PermissionDenied && refusal(err) || status.Code(err) == codes.AlreadyExists:
		c.refuse(&review.scriptView, at, err)
		return c.showScript(v, httpStatus(status.Convert(err)), &review.scriptView, at)
	default:
		return err
	}
	done := accessDone{"script.saved", answer.Module.Version}
	if review.Alias != "" {
		done = accessDone{"script.savedalias", answer.Module.Version + " ← " + review.Alias}
		if _, err := c.modules.SetAlias(v.ctx, &apiv1.SetAliasRequest{App: v.app, Module: module, Name: review.Alias, Version: answer.Module.Version}); err != nil {
			done = accessDone{"script.savedonly", answer.Module.Version + ": " + status.Convert(err).Message()}
		}
	}
	v.redirectWith(moduleAddress(v.app, module), done)
	return nil
}
