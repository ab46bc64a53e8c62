package main

// shot is one picture: a page at a width and in a theme. Its address may have names of
// objects in braces.
type shot struct {
	name    string // of the file, without .png
	address string
	width   int64
	dark    bool
	docs    bool // the documents have it
}

const (
	wide   = 1280
	narrow = 400
)

// page is a page of the console.
type page struct{ name, address string }

// pages has every page that docs/console.md lists.
var pages = []page{
	{"apps", "/apps"},
	{"app-switch", "/switch?app=shop&section=jobs"},
	{"overview", "/apps/shop"},
	{"jobs", "/apps/shop/jobs"},
	{"job", "/apps/shop/jobs/settle-orders"},
	{"job-schedule", "/apps/shop/jobs/settle-orders?tab=schedule"},
	{"job-calendar", "/apps/shop/jobs/settle-orders?tab=calendar"},
	{"job-duration", "/apps/shop/jobs/settle-orders?tab=duration"},
	{"job-definition", "/apps/shop/jobs/settle-orders?tab=definition"},
	{"job-new", "/apps/shop/jobs/new"},
	{"job-edit", "/apps/shop/jobs/settle-orders/edit"},
	{"job-history", "/apps/shop/jobs/settle-orders/history"},
	{"job-compare", "/apps/shop/jobs/settle-orders/history/compare?from=1&to=2"},
	{"job-backfill", "/apps/shop/jobs/settle-orders/backfill"},
	{"runs", "/apps/shop/runs"},
	{"run", "/apps/shop/runs/{settled}"},
	{"run-failed", "/apps/shop/runs/{failed}"},
	{"run-live", "/apps/shop/runs/{live}"},
	{"run-workflow", "/apps/shop/runs/{workflow}"},
	{"run-parts", "/apps/shop/runs/{parts}"},
	{"run-compare", "/apps/shop/runs/{failed}/compare"},
	{"run-again", "/apps/shop/runs/{settled}/rerun"},
	{"errors", "/apps/shop/errors"},
	{"alerts", "/apps/shop/alerts"},
	{"alert-rule", "/apps/shop/alerts/rules/failures"},
	{"alert-channel", "/apps/shop/alerts/channels/on-call"},
	{"schedules", "/apps/shop/schedules"},
	{"calendars", "/apps/shop/calendars"},
	{"calendar", "/apps/shop/calendars/holidays"},
	{"calendar-jobs", "/apps/shop/calendars/holidays/jobs"},
	{"modules", "/apps/shop/modules"},
	{"module", "/apps/shop/modules/pricing"},
	{"module-jobs", "/apps/shop/modules/pricing/jobs"},
	{"script-new", "/apps/shop/scripts"},
	{"collect", "/apps/shop/collect"},
	{"secrets", "/apps/shop/secrets"},
	{"values", "/apps/shop/values"},
	{"bucket", "/apps/shop/values/cursors"},
	{"limits", "/apps/shop/limits"},
	{"operations", "/operations?app=shop"},
	{"operation", "/apps/shop/operations/{operation}"},
	{"bulk-jobs", "/apps/shop/bulk/jobs?owner=growth"},
	{"bulk-runs", "/apps/shop/bulk/runs?state=failed"},
	{"hosts", "/hosts?app=shop"},
	{"host", "/hosts/{host}?app=shop"},
	{"servers", "/cluster?app=shop"},
	{"health", "/health?app=shop"},
	{"queues", "/queues?app=shop"},
	{"dead-letters", "/dead-letters?app=shop"},
	{"access-users", "/access/users?app=shop"},
	{"access-bindings", "/access/bindings?app=shop"},
	{"access-tokens", "/access/tokens?app=shop"},
	{"access-sessions", "/access/sessions?app=shop"},
	{"access-roles", "/access/roles?app=shop"},
	{"access-machines", "/access/machines?app=shop"},
	{"audit", "/audit?app=shop"},
}

// inDocs has the pictures of README.md and docs/console.md.
var inDocs = map[string]bool{
	"overview": true, "jobs": true, "job": true, "run-workflow": true, "run-failed": true, "errors": true, "alerts": true,
	"module": true, "jobs-400": true, "overview-dark": true,
}

// alsoNarrow and alsoDark have the pages with a picture at 400 pixels, and in the dark
// theme.
var (
	alsoNarrow = map[string]bool{
		"overview": true, "jobs": true, "job": true, "runs": true, "run": true, "run-workflow": true, "errors": true, "alerts": true,
		"module": true, "hosts": true, "health": true, "access-tokens": true, "job-edit": true, "calendar": true, "schedules": true,
	}
	alsoDark = map[string]bool{
		"overview": true, "jobs": true, "job": true, "run": true, "run-workflow": true, "run-parts": true, "alerts": true, "module": true,
		"job-calendar": true, "job-duration": true, "health": true, "job-edit": true,
	}
)

func shots() []shot {
	var all []shot
	add := func(s shot) {
		s.docs = inDocs[s.name]
		all = append(all, s)
	}
	for _, p := range pages {
		add(shot{name: p.name, address: p.address, width: wide})
	}
	for _, p := range pages {
		if alsoNarrow[p.name] {
			add(shot{name: p.name + "-400", address: p.address, width: narrow})
		}
	}
	for _, p := range pages {
		if alsoDark[p.name] {
			add(shot{name: p.name + "-dark", address: p.address, width: wide, dark: true})
		}
	}
	return all
}
