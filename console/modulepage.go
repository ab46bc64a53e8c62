package console

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// moduleView is the page of a module: its versions and what belongs to all of them.
type moduleView struct {
	Name     string
	Versions []moduleVersion // the newest first, the first pageSize
	Total    int
	Compare  *moduleCompare // nil: there are no two versions
	Aliases  []moduleAlias
	Form     aliasForm // of a new alias
	Rollout  *apiv1.Rollout
	Grants   *apiv1.ModuleGrants
	Text     string   // of the document in the form of the grants
	Asked    string   // the version whose requests the text has; "": it has the present grants
	Problems []string // why the text of the grants was refused
	Refused  string   // why the form of an alias was refused
	Done     accessDone
}

// moduleVersion is a version with what the grants leave out.
type moduleVersion struct {
	*apiv1.Module
	Requested []string // capabilities that its manifest requests
	Missing   []string // those that are not granted
	Aliases   []string // that point at it, or have it on trial
}

// Stored reports whether the bytes of the version are there.
func (m moduleVersion) Stored() bool { return m.CollectedAt == nil }

// Editable reports whether the version is a script that can be opened.
func (m moduleVersion) Editable() bool { return editable(m.Module) }

// Script reports whether a shown version is a script that can be opened.
func (view moduleView) Script() bool {
	return slices.ContainsFunc(view.Versions, moduleVersion.Editable)
}

// moduleCompare is the difference of two versions.
type moduleCompare struct {
	From, To string
	Parts    []moduleChanges
}

// moduleChanges are the entries of one kind that only one of two versions has.
type moduleChanges struct {
	Name           string // of the text module.diff.NAME
	Removed, Added []string
}

// Differs reports whether the versions differ in an entry.
func (m moduleCompare) Differs() bool {
	return slices.ContainsFunc(m.Parts, func(p moduleChanges) bool { return len(p.Removed)+len(p.Added) > 0 })
}

// capabilities writes grants, or requests for them, as sorted lines.
func capabilities(g *apiv1.Grants) []string {
	var lines []string
	add := func(words ...string) {
		lines = append(lines, strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " "))
	}
	flag := func(on bool, word string) string {
		if on {
			return word
		}
		return ""
	}
	for _, h := range g.GetHttp() {
		methods := h.Methods
		if len(methods) == 0 {
			methods = []string{http.MethodGet, http.MethodHead}
		}
		add("http", strings.Join(methods, ","), h.Host, strings.Join(h.Paths, " "), flag(h.Private, "private"))
	}
	for _, b := range g.GetKv() {
		add("bucket", b.Name, flag(b.Write, "write"))
	}
	for _, s := range g.GetSecrets() {
		add("secret", s)
	}
	for _, j := range g.GetEnqueue() {
		add("enqueue", j)
	}
	for _, f := range g.GetFiles() {
		add("files", f.Mount, flag(f.Dir != "", "dir="+f.Dir), flag(f.Write, "write"), byteSize(cmp.Or(f.Bytes, 16<<20)))
	}
	slices.Sort(lines)
	return lines
}

// without returns the entries of all that others does not have.
func without(all, others []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(others, s) })
}

func compareModules(from, to *apiv1.Module) *moduleCompare {
	part := func(name string, old, next []string) moduleChanges {
		return moduleChanges{name, without(old, next), without(next, old)}
	}
	return &moduleCompare{from.Version, to.Version, []moduleChanges{
		part("capabilities", capabilities(from.Requests), capabilities(to.Requests)),
		part("imports", from.Imports, to.Imports),
		part("handlers", from.Handlers, to.Handlers),
		part("needs", from.Needs, to.Needs),
	}}
}

// moduleAddress returns the address of the page of a module, or of one below it.
func moduleAddress(app, name string, below ...string) string {
	return href(append([]string{"apps", app, "modules", name}, below...)...)
}

func (c *console) modulePage(v *visit) error {
	view := moduleView{}
	view.Done, _ = noticeOf[accessDone](v)
	return c.showModule(v, http.StatusOK, view)
}

// showModule shows the page of a module. After a refused form the view has the reason and the
// visitor's input.
func (c *console) showModule(v *visit, code int, view moduleView) error {
	view.Name = v.r.PathValue("name")
	var versions []*apiv1.Module
	var aliases []*apiv1.Alias
	g, ctx := errgroup.WithContext(v.ctx)
	g.Go(func() error {
		answer, err := c.modules.ListModules(ctx, &apiv1.ListModulesRequest{App: v.app})
		for _, m := range answer.GetModules() {
			if m.Name == view.Name {
				versions = append(versions, m)
			}
		}
		return err
	})
	g.Go(func() error {
		answer, err := c.modules.ListAliases(ctx, &apiv1.ListAliasesRequest{App: v.app, Module: view.Name})
		aliases = answer.GetAliases()
		return err
	})
	g.Go(func() (err error) {
		view.Grants, err = c.grants.GetGrants(ctx, &apiv1.GetGrantsRequest{App: v.app, Module: view.Name})
		return err
	})
	if err := g.Wait(); err != nil {
		return err
	}
	if len(versions) == 0 && view.Grants.UpdatedAt == nil {
		return status.Errorf(codes.NotFound, "there is no module %q in app %s", view.Name, v.app)
	}
	slices.SortStableFunc(versions, func(a, b *apiv1.Module) int { return stamp(b.CreatedAt).Compare(stamp(a.CreatedAt)) })
	view.Total = len(versions)
	for _, m := range versions[:min(len(versions), pageSize)] {
		view.Versions = append(view.Versions, view.version(m, aliases))
	}
	for _, a := range aliases[:min(len(aliases), pageSize)] {
		view.Aliases = append(view.Aliases, moduleAlias{a})
	}
	q := v.r.URL.Query()
	if err := view.chooseCompared(versions, q.Get("from"), q.Get("to")); err != nil {
		return err
	}
	if err := c.rollout(v, &view, versions, q.Get("version")); err != nil {
		return err
	}
	if view.Problems == nil {
		if err := view.writeGrants(v.app, q.Get("grant")); err != nil {
			return err
		}
	}
	return c.showStatus(v, code, "module", "modules", view)
}

func (view *moduleView) version(m *apiv1.Module, aliases []*apiv1.Alias) moduleVersion {
	row := moduleVersion{Module: m, Requested: capabilities(m.Requests)}
	row.Missing = row.Requested
	for _, g := range view.Grants.GetVersions() {
		if g.Version == m.Version {
			row.Missing = without(row.Requested, capabilities(g.Effective))
		}
	}
	for _, a := range aliases {
		if a.Version == m.Version || a.GetCanary().GetVersion() == m.Version {
			row.Aliases = append(row.Aliases, a.Name)
		}
	}
	return row
}

// chooseCompared sets the comparison of the two versions that the address names, or else of the
// newest two.
func (view *moduleView) chooseCompared(versions []*apiv1.Module, from, to string) error {
	if len(versions) < 2 {
		return nil
	}
	find := func(version string) (*apiv1.Module, error) {
		i := slices.IndexFunc(versions, func(m *apiv1.Module) bool { return m.Version == version })
		if i < 0 {
			return nil, status.Errorf(codes.NotFound, "module %s has no version %.100q", view.Name, version)
		}
		return versions[i], nil
	}
	old, err := find(cmp.Or(from, versions[1].Version))
	if err != nil {
		return err
	}
	next, err := find(cmp.Or(to, versions[0].Version))
	if err != nil {
		return err
	}
	view.Compare = compareModules(old, next)
	return nil
}

// rollout sets which hosts have the chosen version ready, or else the newest one that is stored.
func (c *console) rollout(v *visit, view *moduleView, versions []*apiv1.Module, chosen string) error {
	if chosen == "" {
		i := slices.IndexFunc(versions, func(m *apiv1.Module) bool { return m.CollectedAt == nil })
		if i < 0 {
			return nil
		}
		chosen = versions[i].Version
	}
	var err error
	view.Rollout, err = c.modules.GetRollout(v.ctx, &apiv1.GetRolloutRequest{App: v.app, Name: view.Name, Version: chosen})
	return err
}

// ShownHosts returns the first pageSize hosts of the roll-out, those that are not ready before the
// others.
func (view moduleView) ShownHosts() []*apiv1.HostRollout {
	hosts := slices.Clone(view.Rollout.GetByHost())
	rank := func(h *apiv1.HostRollout) int {
		return slices.Index([]string{"failed", "compiling", "pending", "ready"}, h.State)
	}
	slices.SortStableFunc(hosts, func(a, b *apiv1.HostRollout) int { return rank(a) - rank(b) })
	return hosts[:min(len(hosts), pageSize)]
}

// Icon returns the state of a run whose look the state of a roll-out has.
func (moduleView) Icon(state string) string {
	switch state {
	case "ready":
		return "succeeded"
	case "compiling":
		return "running"
	case "failed":
		return "failed"
	}
	return "queued"
}

func (c *console) deleteVersionPage(v *visit) error {
	name, version := v.r.PathValue("name"), v.r.PathValue("version")
	if _, err := c.modules.GetModule(v.ctx, &apiv1.GetModuleRequest{App: v.app, Name: name, Version: version}); err != nil {
		return err
	}
	return c.show(v, "confirm", "modules", confirmView{
		Question: "module.delete.question", Effect: "module.delete.effect", Button: "module.delete.button",
		Subject: name + "@" + version, Back: moduleAddress(v.app, name),
	})
}

// deleteVersion deletes the bytes of a version. If other objects name it, the page lists them and
// asks again; the form of that page contains force.
func (c *console) deleteVersion(v *visit) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	name, version := v.r.PathValue("name"), v.r.PathValue("version")
	answer, err := c.modules.DeleteModule(v.ctx, &apiv1.DeleteModuleRequest{App: v.app, Name: name, Version: version, Force: v.r.PostForm.Get("force") == "yes"})
	if names := namesOf(err, v.app); len(names) > 0 {
		return c.showStatus(v, http.StatusConflict, "confirm", "modules", confirmView{
			Question: "module.needed.question", Effect: "module.needed.effect", Button: "delete.needed.button",
			Subject: name + "@" + version, Back: moduleAddress(v.app, name), Names: names, Force: true,
		})
	}
	if err != nil {
		return err
	}
	v.redirectWith(moduleAddress(v.app, name), accessDone{"module.deleted", version + " · " + byteSize(answer.Bytes)})
	return nil
}

// downloadModule sends the bytes of a version as a file.
func (c *console) downloadModule(v *visit) error {
	name, version := v.r.PathValue("name"), v.r.PathValue("version")
	stream, err := c.modules.DownloadModule(v.ctx, &apiv1.DownloadModuleRequest{App: v.app, Name: name, Version: version})
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		part, err := stream.Recv()
		if err != nil && !errors.Is(err, io.EOF) && first {
			return err // nothing was sent yet, so the error page can still be sent
		}
		if first {
			attachment(v.w, name+"@"+version+".wasm", "application/wasm")
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			c.log.ErrorContext(v.ctx, "a download of a module failed", "module", name, "version", version, "error", err)
			panic(http.ErrAbortHandler) // a browser must not take the part for the whole
		}
		if _, err := v.w.Write(part.Data); err != nil {
			return nil // the browser has disconnected
		}
	}
}

// maxLooks bounds the calls, of pageSize jobs each, with which one page looks for the jobs that name
// a module or a calendar.
const maxLooks = 10

// jobUsersView are the jobs that name a module or a calendar, among the next maxLooks × pageSize of the app.
type jobUsersView struct {
	Name   string
	Jobs   []*apiv1.Job
	Looked int    // jobs of the app that the page looked at
	Next   string // token of the next page
	Paged  bool   // this is not the first page
}

func (c *console) moduleJobsPage(v *visit) error {
	name := v.r.PathValue("name")
	view, err := c.jobsThat(v, func(j *apiv1.Job) bool {
		of, _, _ := strings.Cut(j.GetHandler().GetModule(), "@")
		return of == name
	})
	if err != nil {
		return err
	}
	return c.show(v, "modulejobs", "modules", view)
}

// jobsThat looks for the jobs that a page about an object lists, from the page token of the address on.
func (c *console) jobsThat(v *visit, match func(*apiv1.Job) bool) (jobUsersView, error) {
	q := v.r.URL.Query()
	view := jobUsersView{Name: v.r.PathValue("name"), Next: q.Get("page"), Paged: q.Get("page") != ""}
	for range maxLooks {
		answer, err := c.jobs.ListJobs(v.ctx, &apiv1.ListJobsRequest{App: v.app, PageSize: pageSize, PageToken: view.Next})
		if err != nil {
			return view, err
		}
		for _, j := range answer.Jobs {
			if match(j) {
				view.Jobs = append(view.Jobs, j)
			}
		}
		view.Looked += len(answer.Jobs)
		if view.Next = answer.NextPageToken; view.Next == "" {
			break
		}
	}
	return view, nil
}

// revisionMoved is the error of a form about an object that another caller has changed since the
// page was made.
func revisionMoved(what string, seen string, now int64) error {
	if seen == "" || seen == fmt.Sprint(now) {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "another caller has changed %s meanwhile: its revision is %d, and the page was made from %s. Look at it as it is now, and try again", what, now, seen)
}
