package console

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	maxPaletteRows = 8               // of each group of the palette
	maxPaletteText = 200             // bytes of the text; no name is longer
	paletteWait    = 3 * time.Second // of the calls of one request, which the visitor's next key replaces
	runIDLength    = 26
)

// paletteView is the answer to a text in the palette.
type paletteView struct {
	Groups  []paletteGroup
	Missing bool // a call failed, so results may be missing
}

// Total returns the number of the results.
func (p paletteView) Total() int {
	n := 0
	for _, g := range p.Groups {
		n += len(g.Rows)
	}
	return n
}

type paletteGroup struct {
	Title string // key of the text
	Rows  []paletteRow
}

// paletteRow is one result: a page to open, or a form to send.
type paletteRow struct {
	Text    string
	Hint    string // beside the text; "": none
	Icon    string
	Address string
	Post    bool // the address takes a form without fields
}

// palettePage answers a text in the palette with a fragment: the objects of the app with that name, and the
// pages and commands that the visitor's permissions allow. One request makes at most five calls.
func (c *console) palettePage(v *visit) error {
	q := v.r.URL.Query().Get("q")
	q = strings.TrimSpace(strings.ToValidUTF8(q[:min(len(q), maxPaletteText)], "")) // the API refuses half a character
	f := frame{App: v.app, Session: true, Visitor: c.visitor(v)}
	var view paletteView
	if q != "" {
		found, err := c.findNamed(v, f, q)
		if err != nil {
			return err
		}
		view = found
	}
	texts := c.views.texts[c.language(v.r)]
	for _, g := range []struct {
		title string
		rows  []paletteEntry
	}{{"palette.pages", palettePages(f)}, {"palette.commands", paletteCommands(f)}} {
		group := paletteGroup{Title: g.title}
		for _, e := range g.rows {
			text, err := texts.text(e.text)
			if err != nil {
				return err
			}
			if e.allowed && (holds(text, q) || holds(e.word, q)) {
				group.Rows = append(group.Rows, paletteRow{Text: text, Icon: e.icon, Address: e.address})
			}
		}
		view.add(group)
	}
	f.Data = view
	c.render(v.w, v.r, http.StatusOK, "palette", f)
	return nil
}

// add appends a group that has rows.
func (p *paletteView) add(g paletteGroup) {
	if len(g.Rows) > 0 {
		p.Groups = append(p.Groups, g)
	}
}

// holds reports whether a text contains another one in any case.
func holds(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

// paletteEntry is a page or a command of the palette.
type paletteEntry struct {
	text    string // key
	word    string // that finds it in each language
	icon    string
	address string
	allowed bool
}

// sectionLink is an entry of the navigation.
type sectionLink struct {
	Name, Key, Address string // Key is the letter that leads to it after g
}

// Text returns the key of the entry's text.
func (s sectionLink) Text() string { return "nav." + s.Name }

// Sections returns the entries of the navigation that the visitor sees, in its order.
func (f frame) Sections() []sectionLink {
	servers, queues := f.Visitor.May("cluster.read", ""), f.Visitor.May("queues.read", "")
	var links []sectionLink
	for _, s := range []struct {
		name, key string
		seen      bool
	}{
		{"overview", "o", true},
		{"jobs", "j", true},
		{"runs", "r", true},
		{"errors", "e", f.May("runs.read")},
		{"alerts", "l", f.May("alerts.read")},
		{"schedules", "s", true},
		{"calendars", "c", true},
		{"modules", "m", true},
		{"secrets", "k", f.May("secrets.read")},
		{"values", "v", f.May("kv.read")},
		{"apps", "a", true},
		{"operations", "b", true},
		{"hosts", "h", true},
		{"cluster", "n", servers},
		{"health", "y", servers},
		{"queues", "q", queues},
		{"deadletters", "d", queues},
		{"access", "u", f.Visitor.Somewhere("access.read")},
		{"audit", "t", f.Visitor.Somewhere("audit.read")},
	} {
		if s.seen {
			links = append(links, sectionLink{s.name, s.key, sectionAddress(f.App, s.name)})
		}
	}
	return links
}

// palettePages returns the pages of the navigation, in its order, and some below them.
func palettePages(f frame) []paletteEntry {
	pages := []paletteEntry{}
	for _, s := range f.Sections() {
		pages = append(pages, paletteEntry{s.Text(), s.Name, s.Name, s.Address, true})
	}
	return append(pages,
		paletteEntry{"pause.title", "pause", "apps", href("apps", f.App, "pause"), f.May("jobs.operate")},
		paletteEntry{"limits.title", "limits", "apps", href("apps", f.App, "limits"), true},
		paletteEntry{"access.tokens", "tokens", "access", f.Global("/access/tokens"), f.Visitor.Somewhere("access.read")},
		paletteEntry{"access.machines", "machines", "hosts", f.Global("/access/machines"), f.Visitor.May("cluster.read", "")},
		paletteEntry{"access.roles", "roles", "access", f.Global("/access/roles"), f.Visitor.Somewhere("access.read")},
		paletteEntry{"sessions.mine", "sessions", "access", f.Global("/access/sessions"), true},
	)
}

// paletteCommands returns the commands that need no object.
func paletteCommands(f frame) []paletteEntry {
	return []paletteEntry{
		{"editor.new", "new job", "jobs", href("apps", f.App, "jobs", "new"), f.May("jobs.write")},
		{"upload.title", "upload push module", "modules", href("apps", f.App, "modules") + "#h-upload", f.May("modules.write")},
		{"palette.failed", "failed runs", "failed", withQuery(href("apps", f.App, "runs"), "state", "failed"), f.May("runs.read")},
		{"palette.live", "live runs", "running", withQuery(href("apps", f.App, "runs"), "state", "live"), f.May("runs.read")},
	}
}

// findNamed returns the objects that a text names: jobs by prefix, a run by its id, modules, hosts
// and apps by a part of the name. A part that the API refuses is left out.
func (c *console) findNamed(v *visit, f frame, q string) (paletteView, error) {
	ctx, cancel := context.WithTimeout(v.ctx, paletteWait)
	defer cancel()
	var view paletteView
	var jobs, runs, modules, hosts, apps []paletteRow
	var acts []paletteRow
	var mu sync.Mutex
	g := errgroup.Group{}
	find := func(allowed bool, call func() error) {
		if !allowed {
			return
		}
		g.Go(func() error {
			switch err := call(); status.Code(err) {
			case codes.OK, codes.NotFound, codes.PermissionDenied, codes.InvalidArgument:
				return nil
			case codes.Unauthenticated, codes.Canceled:
				return err
			default:
				c.log.WarnContext(v.ctx, "a part of the palette failed", "error", err)
				mu.Lock()
				defer mu.Unlock()
				view.Missing = true
				return nil
			}
		})
	}
	find(f.May("jobs.read"), func() error {
		answer, err := c.jobs.ListJobs(ctx, &apiv1.ListJobsRequest{App: v.app, Prefix: q, PageSize: maxPaletteRows})
		for _, j := range answer.GetJobs() {
			jobs = append(jobs, paletteRow{Text: j.Name, Icon: "jobs", Address: jobAddress(v.app, j.Name)})
		}
		if len(jobs) > 0 {
			acts = jobCommands(f, answer.Jobs[0])
		}
		return err
	})
	find(f.May("runs.read") && isRunID(q), func() error {
		run, err := c.runs.GetRun(ctx, &apiv1.GetRunRequest{App: v.app, Id: strings.ToUpper(q)})
		if err == nil {
			runs = append(runs, paletteRow{Text: run.Id, Hint: run.Job, Icon: "runs", Address: href("apps", v.app, "runs", run.Id)})
		}
		return err
	})
	find(f.May("modules.read"), func() error {
		answer, err := c.modules.ListModules(ctx, &apiv1.ListModulesRequest{App: v.app})
		seen := map[string]bool{} // a module has a row for each version
		for _, m := range answer.GetModules() {
			if holds(m.Name, q) && !seen[m.Name] {
				seen[m.Name] = true
				modules = append(modules, paletteRow{Text: m.Name, Icon: "modules", Address: moduleAddress(v.app, m.Name)})
			}
		}
		return err
	})
	find(f.Visitor.Somewhere("cluster.read"), func() error {
		for id, name := range c.hostNames(v) {
			if holds(name, q) || holds(id, q) {
				hosts = append(hosts, paletteRow{Text: name, Hint: id, Icon: "hosts", Address: f.Global(href("hosts", id))})
			}
		}
		slices.SortFunc(hosts, func(a, b paletteRow) int { return strings.Compare(a.Text+"\x00"+a.Hint, b.Text+"\x00"+b.Hint) })
		return nil
	})
	find(true, func() error {
		answer, err := c.apps.ListApps(ctx, &apiv1.ListAppsRequest{})
		for _, a := range answer.GetApps() {
			if holds(a.Name, q) {
				apps = append(apps, paletteRow{Text: a.Name, Icon: "apps", Address: href("apps", a.Name)})
			}
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return paletteView{}, err
	}
	for _, group := range []paletteGroup{
		{"nav.jobs", jobs}, {"nav.runs", runs}, {"palette.firstjob", acts}, {"nav.modules", modules}, {"nav.hosts", hosts}, {"nav.apps", apps},
	} {
		group.Rows = group.Rows[:min(len(group.Rows), maxPaletteRows)]
		view.add(group)
	}
	return view, nil
}

// isRunID reports whether a text may be the id of a run.
func isRunID(q string) bool {
	return len(q) == runIDLength && !strings.ContainsFunc(q, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// jobCommands returns what the visitor may do with a job. Only the first one acts at once; the others
// open a page. Their texts are keys.
func jobCommands(f frame, j *apiv1.Job) []paletteRow {
	at := href("apps", f.App, "jobs", j.Name)
	var rows []paletteRow
	add := func(allowed bool, text, icon, below string, post bool) {
		if allowed {
			rows = append(rows, paletteRow{Text: text, Hint: j.Name, Icon: icon, Address: at + below, Post: post})
		}
	}
	add(f.May("jobs.trigger"), "job.run", "runs", "/run", true)
	add(f.May("jobs.write"), "job.editbutton", "jobs", "/edit", false)
	add(f.May("revisions.read"), "history.title", "jobs", "/history", false)
	add(f.May("jobs.operate") && j.Schedule != nil, "job.backfill", "calendars", "/backfill", false)
	add(f.May("jobs.write"), "job.delete", "jobs", "/delete", false)
	return rows
}
