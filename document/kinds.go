package document

import (
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

var calendarKind = &Kind{
	Name:    "Calendar",
	Help:    "A calendar is a named set of dates, which schedules include or exclude.",
	message: func() proto.Message { return &apiv1.Calendar{} },
	identity: func(m proto.Message) (app, name string) {
		c := m.(*apiv1.Calendar)
		return c.GetApp(), c.GetName()
	},
	Fields: []Field{
		{Path: "app", Type: Text, Default: "default", Help: "The app that the calendar belongs to.", Example: "shop"},
		{Path: "name", Type: Text, Required: true, Help: "The identity of the calendar in its app: letters, digits, `.`, `_`, `-`, at most 128.", Example: "holidays"},
		{Path: "description", Type: Text, Help: "What the calendar is for.", Example: "public holidays"},
		{Path: "labels", Type: Map, Help: "Labels for people and for filters, at most 64.", Example: "{team: money}"},
		{Path: "dates", Type: Texts, Help: "Dates, or ranges with both ends, at most 10 000.", Example: "[2026-12-24/2026-12-26, 2027-01-01]"},
		{Path: "yearly", Type: Texts, Help: "Months and days, every year.", Example: "[\"05-01\"]"},
		{Path: "days", Type: Texts, Enum: weekdays, Help: "Days of every week.", Example: "[sat, sun]"},
		{Path: "ics", Type: Text, Help: "An iCalendar file whose all-day events are added to the dates.", Example: "\"BEGIN:VCALENDAR\\r\\nEND:VCALENDAR\\r\\n\""},
	},
	ServerFields: map[string]string{"updated_at": "the time of the last change", "revision": "the number of the last change"},
}

var aliasKind = &Kind{
	Name:    "Alias",
	Help:    "An alias is a name of a module that points at a version and can be moved.",
	message: func() proto.Message { return &apiv1.Alias{} },
	identity: func(m proto.Message) (app, name string) {
		a := m.(*apiv1.Alias)
		if a.GetModule() == "" || a.GetName() == "" {
			return a.GetApp(), ""
		}
		return a.GetApp(), a.GetModule() + "@" + a.GetName()
	},
	Fields: []Field{
		{Path: "app", Type: Text, Default: "default", Help: "The app that the module belongs to.", Example: "shop"},
		{Path: "module", Type: Text, Required: true, Help: "The module, without a version.", Example: "totals"},
		{Path: "name", Type: Text, Required: true, Help: "The name of the alias, unique for the module.", Example: "prod"},
		{Path: "version", Type: Text, Required: true, Help: "The version that the alias points at.", Example: "\"3\""},
		{Path: "labels", Type: Map, Help: "Labels for people and for filters, at most 64.", Example: "{team: money}"},
		{Path: "canary", Type: Object, Help: "Another version that gets a share of the runs on trial.", Example: "{version: \"4\", percent: 5}"},
		{Path: "canary.version", Type: Text, Required: true, Help: "The version on trial.", Example: "\"4\""},
		{Path: "canary.percent", Type: Number, Required: true, Unit: "percent", Bounds: between(0, 100), Help: "The share of the runs, above 0 and below 100.", Example: "5"},
		{Path: "canary.min_attempts", Type: Whole, Default: "20", Unit: "attempts", Bounds: between(0, million), Help: "The server decides nothing before this many attempts of the version have ended.", Example: "50"},
		{Path: "canary.max_failure", Type: Number, Default: "0.1", Bounds: between(0, 1), Help: "The server rolls back when a larger share of the attempts has failed.", Example: "0.02"},
		{Path: "canary.window", Type: Duration, Default: "10m", Help: "The period whose attempts count, 1m to 24h.", Example: "15m"},
	},
	ServerFields: map[string]string{
		"events":            "the last changes",
		"updated_at":        "the time of the last change",
		"revision":          "the number of the last change",
		"jobs":              "counts the jobs that name the alias",
		"canary.started_at": "the time of the start of the trial",
		"canary.succeeded":  "counts attempts",
		"canary.failed":     "counts attempts",
	},
}

var grantKind = &Kind{
	Name:    "Grant",
	Help:    "A grant allows a module to use values, secrets, other jobs, the network and files of its app.",
	message: func() proto.Message { return &apiv1.ModuleGrants{} },
	identity: func(m proto.Message) (app, name string) {
		g := m.(*apiv1.ModuleGrants)
		return g.GetApp(), g.GetModule()
	},
	Fields: []Field{
		{Path: "app", Type: Text, Default: "default", Help: "The app that the module belongs to.", Example: "shop"},
		{Path: "module", Type: Text, Required: true, Help: "The module, without a version, or `builtin:http`.", Example: "totals"},
		{Path: "labels", Type: Map, Help: "Labels for people and for filters, at most 64.", Example: "{team: money}"},
		{Path: "grants", Type: Object, Help: "All that is granted: what the document leaves out is revoked.", Example: "{secrets: [api-token]}"},
		{Path: "grants.http", Type: Objects, Help: "The servers that the module may send requests to.", Example: "[{host: api.example.com}]"},
		{Path: "grants.http.host", Type: Text, Required: true, Help: "The host, as `api.example.com` or `*.example.com`, with a port if it is neither 80 nor 443.", Example: "api.example.com"},
		{Path: "grants.http.methods", Type: Texts, Default: "[GET, HEAD]", Help: "The methods.", Example: "[POST]"},
		{Path: "grants.http.paths", Type: Texts, Help: "Prefixes of the paths; without any all paths.", Example: "[/in/]"},
		{Path: "grants.http.private", Type: Truth, Default: "false", Help: "Whether the name may have a private or a loopback address.", Example: "true"},
		{Path: "grants.kv", Type: Objects, Help: "The buckets of values that the module may use.", Example: "[{name: state, write: true}]"},
		{Path: "grants.kv.name", Type: Text, Required: true, Help: "The bucket.", Example: "state"},
		{Path: "grants.kv.write", Type: Truth, Default: "false", Help: "Whether the module may change values.", Example: "true"},
		{Path: "grants.secrets", Type: Texts, Help: "The names of secrets that the module may read.", Example: "[api-token]"},
		{Path: "grants.enqueue", Type: Texts, Help: "The jobs that the module may trigger: `JOB`, `APP/JOB`, or `*` for every job of the app.", Example: "[settle]"},
		{Path: "grants.files", Type: Objects, Help: "The directories that the module may use.", Example: "[{mount: /tmp, write: true}]"},
		{Path: "grants.files.mount", Type: Text, Required: true, Help: "The path that the handler sees.", Example: "/tmp"},
		{Path: "grants.files.dir", Type: Text, Help: "A directory that the operator of the host has named; without it an empty one in memory.", Example: "exports"},
		{Path: "grants.files.write", Type: Truth, Default: "false", Help: "Whether the handler may write.", Example: "true"},
		{Path: "grants.files.bytes", Type: Whole, Default: "0", Unit: "bytes", Bounds: between(0, 1<<62), Help: "The most written bytes; 0: 16 MiB.", Example: "1048576"},
	},
	ServerFields: map[string]string{
		"updated_at": "the time of the last change",
		"revision":   "the number of the last change",
		"versions":   "what the manifests of the module's versions request",
	},
}

var appKind = &Kind{
	Name:    "App",
	Help:    "An app is a tenant: jobs, modules, runs, secrets and values belong to exactly one.",
	message: func() proto.Message { return &apiv1.App{} },
	identity: func(m proto.Message) (app, name string) {
		a := m.(*apiv1.App)
		return a.GetName(), a.GetName()
	},
	Fields: []Field{
		{Path: "name", Type: Text, Required: true, Help: "The name of the app: letters, digits, `.`, `_`, `-`, at most 128.", Example: "shop"},
		{Path: "description", Type: Text, Help: "What the app is for.", Example: "orders and bills"},
		{Path: "rate", Type: Object, Help: "Limits how often all jobs of the app together start.", Example: "{max: 100, per: 1s}"},
		{Path: "rate.max", Type: Whole, Required: true, Unit: "starts", Bounds: between(1, million), Help: "The most starts in the period.", Example: "100"},
		{Path: "rate.per", Type: Duration, Default: "1s", Help: "The period.", Example: "1m"},
		{Path: "weight", Type: Whole, Default: "0", Bounds: between(0, 1000), Help: "The share of the hosts' time beside other apps that need hosts; 0: 1.", Example: "3"},
		{Path: "kv_bytes", Type: Whole, Default: "0", Unit: "bytes", Bounds: between(0, 1<<62), Help: "The most bytes of the keys and values of the app; 0: 64 MiB.", Example: "134217728"},
		{Path: "retain_runs", Type: Duration, Help: "How long ended runs stay, at least 1m; by default as the server says.", Example: "2160h"},
		{Path: "retain_logs", Type: Duration, Help: "How long lines of runs stay, at least 1m; by default as the server says.", Example: "24h"},
		{Path: "revision_bytes", Type: Whole, Default: "0", Unit: "bytes", Bounds: between(0, 1<<62), Help: "The most bytes on disk of the revisions of the app's definitions, at least 65536; 0: 256 MiB.", Example: "67108864"},
		{Path: "enqueue_from", Type: Texts, Help: "The apps whose handlers may trigger jobs of this one, if a grant allows it.", Example: "[billing]"},
		{Path: "require_signed", Type: Truth, Default: "false", Help: "Whether only modules with a signature of a trusted key are accepted and run.", Example: "true"},
		{Path: "trusted_keys", Type: Texts, Help: "The public keys whose signatures count, at most 64.", Example: "[\"ed25519:O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik=\"]"},
	},
	ServerFields: map[string]string{
		"updated_at": "the time of the last change",
		"revision":   "the number of the last change",
		"jobs":       "counts the jobs of the app",
		"live":       "counts runs",
		"deleted_at": "the time of the last deletion",
		"limits":     "what the app may take, which `app limits` changes", "at_hosts": "the runs that hosts have",
		"bytes": "the bytes of its definitions and inputs", "module_bytes": "the bytes of its modules",
		"pause": "that it starts nothing now, which `app pause` changes",
	},
}
