package document

import (
	"math"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// between returns the bounds of a number.
func between(least, most float64) *Bounds { return &Bounds{least, most} }

const million = 1_000_000

var jobKind = &Kind{
	Name:    "Job",
	Help:    "A job defines what runs, when, and how failures are handled.",
	message: func() proto.Message { return &apiv1.Job{} },
	identity: func(m proto.Message) (app, name string) {
		j := m.(*apiv1.Job)
		return j.GetApp(), j.GetName()
	},
	Fields: concat([]Field{
		{Path: "app", Type: Text, Default: "default", Help: "The app that the job belongs to.", Example: "shop"},
		{Path: "name", Type: Text, Required: true, Help: "The identity of the job in its app: letters, digits, `.`, `_`, `-`, at most 128.", Example: "nightly-totals"},
		{Path: "description", Type: Text, Help: "What the job is for, at most 4096 bytes.", Example: "totals of the day"},
		{Path: "owner", Type: Text, Help: "The user or the group that is responsible for the job, at most 128 bytes.", Example: "ada"},
		{Path: "labels", Type: Map, Help: "Labels for people and for filters, at most 64; a run keeps those that its job had when it was accepted.", Example: "{team: money}"},
		{Path: "paused", Type: Truth, Default: "false", Help: "Whether the schedule and the dependency start no runs; without the field a job that exists stays as it is.", Example: "true"},

		{Path: "handler", Type: Object, Help: "The code that runs; a job has a handler or a workflow.", Example: "{module: totals@1}"},
		{Path: "handler.module", Type: Text, Help: "The module that has the handler, as `name@version` or `name@alias`.", Example: "totals@1"},
		{Path: "handler.name", Type: Text, Default: "main", Help: "The entry of the module; without a module `native:NAME`, `plugin:NAME/HANDLER` or `builtin:NAME`.", Example: "main"},
		{Path: "handler.args", Type: Texts, Help: "The arguments of a WASI command, or of a command that hosts allow.", Example: "[--verbose]"},
		{Path: "handler.env", Type: Map, Help: "The environment of a WASI command, or of a command that hosts allow.", Example: "{REGION: eu}"},
		{Path: "handler.command", Type: Text, Help: "The name of a command that hosts allow, for `builtin:exec`.", Example: "pg-dump"},
		{Path: "handler.http", Type: Object, Help: "The request of `builtin:http`.", Example: "{url: \"https://api.example.com/orders\"}"},
		{Path: "handler.http.method", Type: Text, Help: "The method; by default POST with a body or an input, otherwise GET.", Example: "POST"},
		{Path: "handler.http.url", Type: Text, Required: true, Help: "The URL, whose inserted values are escaped; the host must not contain references.", Example: "\"https://api.example.com/orders\""},
		{Path: "handler.http.headers", Type: Map, Help: "Headers of the request; Content-Type is application/json unless it is set here.", Example: "{Accept: text/csv}"},
		{Path: "handler.http.body", Type: Text, Help: "The body; by default the input unchanged.", Example: "'{\"run\": \"${run.id}\"}'"},
		{Path: "handler.http.expect", Type: Texts, Default: "[2xx]", Help: "The statuses of success, as `200`, `200-204` or `2xx`.", Example: "[\"200-204\"]"},
		{Path: "handler.http.timeout", Type: Duration, Default: "30s", Help: "The longest time to the end of the response; after it the run can be retried.", Example: "10s"},

		{Path: "workflow", Type: Object, Help: "A graph of other jobs, which run in order, instead of a handler.", Example: "{nodes: [{name: load, job: load-orders}]}"},
		{Path: "workflow.nodes", Type: Objects, Required: true, Help: "The nodes of the graph, 1 to 1000.", Example: "[{name: load, job: load-orders}]"},
		{Path: "workflow.nodes.name", Type: Text, Required: true, Help: "The name of the node, unique in the workflow: letters, digits, `_` and `-`, at most 64.", Example: "load"},
		{Path: "workflow.nodes.job", Type: Text, Required: true, Help: "A job of the app, which may be a workflow itself.", Example: "load-orders"},
		{Path: "workflow.nodes.after", Type: Texts, Help: "The nodes that must end first; without any the node starts at once.", Example: "[load]"},
		{Path: "workflow.nodes.when", Type: Text, Default: "success", Help: "Whether the node runs: `success`, `failure`, `end`, or a condition on earlier nodes.", Example: "nodes.load.output.total > 100"},
		{Path: "workflow.nodes.input", Type: Text, Help: "The input of the run, with references; by default the input of the node's job.", Example: "\"${nodes.load.output}\""},
		{Path: "workflow.nodes.optional", Type: Truth, Default: "false", Help: "Whether a failure of the node fails neither the workflow nor the nodes after it.", Example: "true"},

		{Path: "schedule", Type: Object, Help: "When the job runs; without a schedule it runs when it is triggered.", Example: "{cron: \"30 2 * * *\", zone: Europe/Berlin}"},
		{Path: "schedule.cron", Type: Text, Help: "The times of an expression with 5 (Unix), 6 or 7 (Quartz) fields.", Example: "\"30 2 * * *\""},
		{Path: "schedule.zone", Type: Text, Default: "UTC", Help: "The IANA name of the time zone of `cron`, `daily` and the dates of calendars.", Example: "Europe/Berlin"},
		{Path: "schedule.every", Type: Duration, Help: "A fixed rate, 10 ms to 366 days, from the moment it was set, or from `from`.", Example: "30s"},
		{Path: "schedule.delay", Type: Duration, Help: "The time from the end of one run to the start of the next.", Example: "30s"},
		{Path: "schedule.at", Type: Instant, Help: "Once, at an instant.", Example: "2030-01-01T00:00:00Z"},
		{Path: "schedule.after", Type: Duration, Help: "Once, this long after the schedule was set.", Example: "90m"},
		{Path: "schedule.daily", Type: Object, Present: true, Help: "Each day between two times of day.", Example: "{from: \"09:00\", until: \"17:30\", every: 15m}"},
		{Path: "schedule.daily.from", Type: Text, Default: "00:00", Help: "The first time of day.", Example: "\"09:00\""},
		{Path: "schedule.daily.until", Type: Text, Default: "23:59:59", Help: "The last time of day; one before `from` is on the next day.", Example: "\"17:30\""},
		{Path: "schedule.daily.every", Type: Duration, Default: "24h", Help: "The time between two runs; 24h means once, at `from`.", Example: "15m"},
		{Path: "schedule.daily.days", Type: Texts, Enum: weekdays, Help: "The days of the week; without any all days.", Example: "[mon, fri]"},
		{Path: "schedule.from", Type: Instant, Help: "No planned time is before this instant.", Example: "2030-01-01T00:00:00Z"},
		{Path: "schedule.until", Type: Instant, Help: "No planned time is at or after this instant.", Example: "2031-01-01T00:00:00Z"},
		{Path: "schedule.max_runs", Type: Whole, Default: "0", Unit: "planned runs", Bounds: between(0, 1<<62), Help: "The schedule ends after this many planned runs, whatever their outcome; 0: no bound.", Example: "1000"},
		{Path: "schedule.jitter", Type: Duration, Help: "Spreads many jobs: all times of the job move by the same amount, 0 up to this, which is derived from its name.", Example: "5m"},
		{Path: "schedule.include", Type: Texts, Help: "Calendars, at most 32: planned times are only on dates that one of them holds.", Example: "[workdays]"},
		{Path: "schedule.exclude", Type: Texts, Help: "Calendars, at most 32: no planned time is on their dates.", Example: "[holidays]"},
		{Path: "schedule.gap", Type: Text, Default: "shift", Enum: []string{"shift", "skip"}, Help: "What happens to a cron time that a clock change skips.", Example: "skip"},
		{Path: "schedule.fold", Type: Text, Default: "first", Enum: []string{"first", "second", "both"}, Help: "What happens to a cron time that a clock change repeats.", Example: "both"},

		{Path: "input", Type: Text, Help: "The input of a run as text, at most 64 KiB.", Example: "'{\"region\":\"eu\"}'"},
		{Path: "input_bytes", Type: Bytes, Help: "The input of a run that is not text, at most 64 KiB.", Example: "/wA="},
		{Path: "inputFile", Type: Text, Local: true, Help: "The path of a file, from the folder of the document, whose bytes become the input.", Example: "orders.csv"},

		{Path: "timeout", Type: Duration, Help: "Bounds one attempt, at most 30 days and by default 1h; of a workflow the whole run, by default without a bound.", Example: "10m"},
		{Path: "limits", Type: Object, Help: "Bounds of one attempt of a handler in a module; the smallest of these, the manifest's and the host's applies.", Example: "{memory_bytes: 67108864}"},
		{Path: "limits.memory_bytes", Type: Whole, Default: "0", Unit: "bytes", Bounds: between(0, 4<<30), Help: "The linear memory, 64 KiB to 4 GiB; 0: that of the manifest, or 256 MiB.", Example: "67108864"},
		{Path: "limits.fuel", Type: Whole, Default: "0", Unit: "instructions, about", Bounds: between(0, 1<<62), Help: "An attempt that uses it up fails without a retry; 0: that of the manifest, or no limit.", Example: "5000000000"},

		{Path: "retry", Type: Object, Help: "When a failed attempt is retried; without the field never.", Example: "{max: 3, first: 5s}"},
		{Path: "retry.max", Type: Whole, Default: "0", Unit: "retries", Bounds: between(0, 100), Help: "The retries after the first attempt.", Example: "3"},
		{Path: "retry.backoff", Type: Text, Default: "exponential", Enum: []string{"exponential", "fixed"}, Help: "How the wait grows from one retry to the next.", Example: "fixed"},
		{Path: "retry.first", Type: Duration, Default: "1s", Help: "The wait before the first retry.", Example: "5s"},
		{Path: "retry.limit", Type: Duration, Default: "1m", Help: "The longest wait.", Example: "10m"},
		{Path: "retry.jitter", Type: Number, Default: "0", Bounds: between(0, 1), Help: "The share by which each wait may be shorter, so that runs that failed together do not retry together.", Example: "0.5"},

		{Path: "misfire", Type: Object, Help: "Which times that passed while no server could start the run become runs.", Example: "{policy: skip}"},
		{Path: "misfire.policy", Type: Text, Default: "fire_once", Enum: []string{"fire_once", "skip", "fire_all"}, Help: "One run for all missed times, none, or one for each.", Example: "skip"},
		{Path: "misfire.max", Type: Whole, Default: "0", Unit: "runs", Bounds: between(0, 10_000), Help: "With `fire_all` at most this many, the newest; 0: 100.", Example: "10"},
		{Path: "misfire.window", Type: Duration, Help: "With `fire_all` only times within this period, by default 24h.", Example: "6h"},
		{Path: "misfire.threshold", Type: Duration, Help: "A delay up to this is no misfire; by default 1m with `skip` and `fire_all`, and none with `fire_once`.", Example: "5m"},

		{Path: "overlap", Type: Object, Help: "What happens to a run that becomes due while another run of the job is live.", Example: "{policy: queue}"},
		{Path: "overlap.policy", Type: Text, Default: "parallel", Enum: []string{"parallel", "queue", "discard", "cover"}, Help: "Both run, the new one waits, the new one is skipped, or the live one is stopped first.", Example: "queue"},
		{Path: "overlap.limit", Type: Whole, Default: "0", Unit: "runs", Bounds: between(0, million), Help: "With `parallel` the most runs at once, with `queue` the most that wait; 0: no limit.", Example: "5"},

		{Path: "deadline", Type: Duration, Help: "The longest wait from the planned time to the first start; a run that waits longer is missed.", Example: "1h"},
		{Path: "priority", Type: Whole, Default: "0", Bounds: between(-10, 10), Help: "Among the waiting runs of an app, those with a higher priority start first.", Example: "5"},
		{Path: "rate", Type: Object, Help: "Limits how often the job starts.", Example: "{max: 2, per: 1s}"},
		{Path: "rate.max", Type: Whole, Required: true, Unit: "starts", Bounds: between(1, million), Help: "The most starts in the period.", Example: "2"},
		{Path: "rate.per", Type: Duration, Default: "1s", Help: "The period.", Example: "1m"},

		{Path: "routing", Type: Object, Help: "The choice of a host among those that serve the app and have room.", Example: "{strategy: hash, key: input}"},
		{Path: "routing.strategy", Type: Text, Default: "least_loaded", Enum: []string{"least_loaded", "first", "last", "round_robin", "random", "hash", "lfu", "lru", "failover", "busy_transfer"}, Help: "How the host is chosen.", Example: "round_robin"},
		{Path: "routing.key", Type: Text, Default: "job", Enum: []string{"job", "input", "run"}, Help: "The text that `hash` hashes: the same one goes to the same host.", Example: "input"},
		{Path: "routing.hosts", Type: Texts, Help: "Only these hosts, by id or name.", Example: "[h1]"},
		{Path: "routing.labels", Type: Texts, Help: "Conditions on the labels of hosts, which must all hold: `zone=a`, `zone!=a`, `zone in (a, b)`, `zone notin (a, b)`, `gpu`, `!gpu`.", Example: "[zone=eu, \"!gpu\"]"},
		{Path: "routing.max_hosts", Type: Whole, Default: "0", Unit: "hosts", Bounds: between(0, math.MaxInt32), Help: "At most this many hosts run the job at once; 0: no limit.", Example: "2"},
		{Path: "routing.min_free_cpu", Type: Number, Default: "0", Bounds: between(0, 1), Help: "The least idle share of the processors of the host.", Example: "0.25"},
		{Path: "routing.max_memory_bytes", Type: Whole, Default: "0", Unit: "bytes", Bounds: between(0, 1<<64), Help: "The process of the host must use less than this; 0: no limit.", Example: "1073741824"},
		{Path: "routing.min_free_slots", Type: Whole, Default: "0", Unit: "slots", Bounds: between(0, math.MaxInt32), Help: "The least number of free slots of the host.", Example: "1"},

		{Path: "fanout", Type: Object, Help: "Divides one run into many parts, which are runs of their own.", Example: "{mode: shards, shards: 8}"},
		{Path: "fanout.mode", Type: Text, Required: true, Enum: []string{"broadcast", "shards", "map", "map_reduce"}, Help: "One part for each host, this many parts, or parts that the handler adds, with or without one that gets their outputs.", Example: "shards"},
		{Path: "fanout.shards", Type: Whole, Default: "0", Unit: "parts", Bounds: between(0, 10_000), Help: "The number of parts, 1 to 10000, for `shards`.", Example: "8"},
		{Path: "fanout.reduce", Type: Text, Help: "The handler of the last part, for `map_reduce`; by default that of the job.", Example: "sum"},
		{Path: "fanout.max_parts", Type: Whole, Default: "0", Unit: "parts", Bounds: between(0, million), Help: "At most this many parts, for `map` and `map_reduce`; 0: 1000000.", Example: "1000"},
		{Path: "fanout.max_depth", Type: Whole, Default: "0", Unit: "levels", Bounds: between(0, 64), Help: "How far parts may add parts, for `map` and `map_reduce`: 1 means that only the first one may; 0: 8.", Example: "1"},

		{Path: "dependency", Type: Object, Help: "Starts a run when runs of other jobs of the app have ended.", Example: "{jobs: [load-orders]}"},
		{Path: "dependency.jobs", Type: Texts, Required: true, Help: "The other jobs.", Example: "[load-orders]"},
		{Path: "dependency.on", Type: Text, Default: "success", Enum: []string{"success", "failure", "end"}, Help: "Which ends count.", Example: "end"},
		{Path: "dependency.need", Type: Text, Default: "all", Enum: []string{"all", "any"}, Help: "Whether every job must have such an end since the last run, or each such end starts a run.", Example: "any"},
		{Path: "dependency.pass_output", Type: Truth, Default: "false", Help: "Whether the output of the run that completed the dependency becomes the input.", Example: "true"},

		{Path: "trigger", Type: Object, Help: "Starts a run for each event that fits; the event is the input.", Example: "{event: com.example.order.paid}"},
		{Path: "trigger.event", Type: Text, Required: true, Help: "The type of the events.", Example: "com.example.order.paid"},
		{Path: "trigger.source", Type: Text, Help: "Only events that come by this event source.", Example: "shop"},
		{Path: "trigger.match", Type: Map, Help: "Conditions, which must all hold, at most 16: an attribute of the event or a path into its data, and the whole value or the beginning of a text and `*`.", Example: "{data.country: DE, subject: \"order-*\"}"},
	}, jobAlertFields(), []Field{
		{Path: "etag", Type: Text, Help: "The version of the definition that the document was made from: the job changes only while it has this one.", Example: "00c0ffee00c0ffee"},
	}),
	ServerFields: map[string]string{
		"revision":   "counts the changes of the definition",
		"created_at": "the time of the first change",
		"updated_at": "the time of the last change",
		"created_by": "the caller of the first change",
		"changed_by": "the caller of the last change",
		"pause":      "why and until when the job is paused, as the caller that paused it says",
		"next_at":    "follows from the schedule",
		"next_why":   "follows from the schedule",
		"digest":     "of the module's version",
		"stats":      "counts runs",
		"needs":      "of the module's version",
	},
}

var weekdays = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}
