package console

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// Config holds the dependencies and settings of a console. Conn is required; the other
// fields have defaults.
type Config struct {
	// Conn reaches the API. Authentication must run on it: the console adds the caller's
	// token as authorization metadata and decides nothing itself. The console does not
	// close it.
	Conn *grpc.ClientConn
	// Banner names the kind of installation beside the logo, for example "dev". Default:
	// none.
	Banner string
	// Version is shown at the foot of each page and in the OpenAPI document. Default: none.
	Version string
	// Secure means that browsers connect over TLS. Then cookies are not sent over plain
	// HTTP, and browsers are told to keep using TLS. Default: false.
	Secure bool
	// PublicURL is the origin at which browsers reach the console, as https://wheel.example, if a proxy
	// may send requests on with another host. Requests from it are of this site, and with https
	// browsers connect over TLS, whatever Secure says. Default: the host of each request.
	PublicURL string
	// MaxBody returns the bound of the body of a request to the API, in bytes, except for
	// uploads of modules. It is called for each request. Default: 4 MiB.
	MaxBody func() int64
	// MaxModule returns the bound of the bytes of an upload; 0 means the default. It is called
	// for each upload. Default: 64 MiB.
	MaxModule func() int64
	// Admit decides from the headers alone whether the body of a request to the API is
	// read. Otherwise it returns a gRPC status with the reason. Default: every body is
	// read.
	Admit func(*http.Request) error
	// Codes sign in browsers that open /login?code=CODE. Default: none.
	Codes *Codes
	// Sessions keeps signed-in browsers over a restart. Default: a restart signs them out.
	Sessions Storage
	// Address returns the address of the client of a request; sign-ins of each address are
	// limited. Default: the address of the connection.
	Address func(*http.Request) netip.Addr
	// Setup makes the first administrator for a visitor of /setup?code=CODE. nil: there is no such
	// page.
	Setup *Setup
	// Provider signs visitors in at an OpenID provider. nil: they sign in here alone.
	Provider *Provider
	// Proxy signs in the visitors that an authenticating proxy names. nil: there is none.
	Proxy *Proxy
	// SignedIn is called when a visitor has signed in with a token. nil: it is not.
	SignedIn func(token string, from netip.Addr)
	// Logger receives the errors of the server side. Default: slog.Default().
	Logger *slog.Logger
}

// console is the handler's shared state. It is immutable after New, except for the
// sessions and the attempts to sign in, which synchronize themselves.
type console struct {
	banner  string
	version string
	secure  bool
	public  string                      // origin; "": that of each request
	foreign *http.CrossOriginProtection // refuses changes from other sites
	log     *slog.Logger
	maxBody func() int64
	maxFile func() int64 // of a module
	admit   func(*http.Request) error

	jobs       apiv1.JobsClient
	revisions  apiv1.RevisionsClient
	runs       apiv1.RunsClient
	dates      apiv1.CalendarsClient
	modules    apiv1.ModulesClient
	grants     apiv1.ModuleAccessClient
	values     apiv1.ValuesClient
	secrets    apiv1.SecretsClient
	cluster    apiv1.ClusterClient
	queues     apiv1.QueuesClient
	apps       apiv1.AppsClient
	access     apiv1.AccessClient
	audit      apiv1.AuditClient
	members    apiv1.MembershipClient
	machines   apiv1.MachinesClient
	backups    apiv1.BackupsClient
	alerts     apiv1.AlertsClient
	senders    apiv1.EventsClient // of events
	changes    apiv1.ChangeSetsClient
	health     grpc_health_v1.HealthClient
	operations apiv1.OperationsClient

	sessions *sessions
	codes    *Codes
	setup    *Setup
	provider *Provider
	proxy    *Proxy
	attempts attempts
	named    budget[string] // sign-ins of the visitors of the proxy
	address  func(*http.Request) netip.Addr
	signed   func(token string, from netip.Addr) // nil: it is not called
	views    *views
	assets   *assets
	gateway  http.Handler
}

// Console is the handler of the console and of the HTTP/JSON API. It is safe for
// concurrent use.
type Console struct {
	http.Handler
	c *console
}

// SignedIn reports whether a request comes from a signed-in browser.
func (c *Console) SignedIn(r *http.Request) bool { return c.c.sessions.get(r, c.c.cookieName()) != nil }

// New returns a console. It starts no goroutine that outlives a request.
func New(cfg Config) (*Console, error) {
	c, err := newConsole(cfg)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	return &Console{c.handler(), c}, nil
}

func newConsole(cfg Config) (*console, error) {
	if cfg.Conn == nil {
		return nil, errors.New("Config.Conn is missing: the console needs a connection to the API")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Admit == nil {
		cfg.Admit = func(*http.Request) error { return nil }
	}
	if cfg.Address == nil {
		cfg.Address = remoteAddress
	}
	if cfg.Codes == nil {
		cfg.Codes = NewCodes()
	}
	foreign := http.NewCrossOriginProtection()
	if cfg.PublicURL != "" {
		if err := foreign.AddTrustedOrigin(cfg.PublicURL); err != nil {
			return nil, fmt.Errorf("Config.PublicURL: %w", err)
		}
	}
	assets, err := loadAssets(cfg.Version)
	if err != nil {
		return nil, err
	}
	views, err := loadViews(assets)
	if err != nil {
		return nil, err
	}
	gateway, err := newGateway(cfg.Conn, cfg.Address)
	if err != nil {
		return nil, err
	}
	return &console{
		banner:     cfg.Banner,
		version:    cfg.Version,
		secure:     cfg.Secure || strings.HasPrefix(cfg.PublicURL, "https://"),
		public:     cfg.PublicURL,
		foreign:    foreign,
		log:        cfg.Logger,
		maxBody:    bound(cfg.MaxBody, 4<<20),
		maxFile:    bound(cfg.MaxModule, maxModule),
		admit:      cfg.Admit,
		jobs:       apiv1.NewJobsClient(cfg.Conn),
		revisions:  apiv1.NewRevisionsClient(cfg.Conn),
		runs:       apiv1.NewRunsClient(cfg.Conn),
		dates:      apiv1.NewCalendarsClient(cfg.Conn),
		modules:    apiv1.NewModulesClient(cfg.Conn),
		grants:     apiv1.NewModuleAccessClient(cfg.Conn),
		values:     apiv1.NewValuesClient(cfg.Conn),
		secrets:    apiv1.NewSecretsClient(cfg.Conn),
		cluster:    apiv1.NewClusterClient(cfg.Conn),
		queues:     apiv1.NewQueuesClient(cfg.Conn),
		operations: apiv1.NewOperationsClient(cfg.Conn),
		apps:       apiv1.NewAppsClient(cfg.Conn),
		access:     apiv1.NewAccessClient(cfg.Conn),
		audit:      apiv1.NewAuditClient(cfg.Conn),
		members:    apiv1.NewMembershipClient(cfg.Conn),
		machines:   apiv1.NewMachinesClient(cfg.Conn),
		backups:    apiv1.NewBackupsClient(cfg.Conn),
		alerts:     apiv1.NewAlertsClient(cfg.Conn),
		senders:    apiv1.NewEventsClient(cfg.Conn),
		changes:    apiv1.NewChangeSetsClient(cfg.Conn),
		health:     grpc_health_v1.NewHealthClient(cfg.Conn),
		sessions:   newSessions(cfg.Sessions, cfg.Logger),
		codes:      cfg.Codes, setup: cfg.Setup, provider: cfg.Provider, proxy: cfg.Proxy,
		address: cfg.Address,
		signed:  cfg.SignedIn,
		views:   views,
		assets:  assets,
		gateway: gateway,
	}, nil
}

// route is one entry of the mux. Exactly one of open and page is set.
type route struct {
	pattern string
	open    http.HandlerFunc   // needs no session; a handler that needs a token lets the API check it
	page    func(*visit) error // for browsers with a session; others are redirected to /login
	body    func() int64       // limit of the request's body in bytes; nil: maxForm
}

// jobPattern is the pattern of the page of a job.
const jobPattern = "GET /apps/{app}/jobs/{name}"

// routes lists every route. A test walks it: a route that is not open must refuse
// requests without a session.
func (c *console) routes() []route {
	return []route{
		{pattern: "GET /livez", open: c.livez},
		{pattern: "GET /readyz", open: c.readyz},
		{pattern: "GET /static/", open: c.assets.serve},
		{pattern: "GET /favicon.ico", open: c.assets.favicon},
		{pattern: "GET /login", open: c.direct(c.loginPage)},
		{pattern: "POST /login", open: c.direct(c.login), body: bound(nil, maxLogin)},
		{pattern: "GET /login/provider", open: c.direct(c.toProvider)},
		{pattern: "GET /login/callback", open: c.direct(c.fromProvider)},
		{pattern: "GET /login/leave", open: c.leaveProvider},
		{pattern: "GET /login/command", page: c.approvePage},
		{pattern: "POST /login/command", page: c.approve},
		{pattern: "GET /setup", open: c.setupPage},
		{pattern: "POST /setup", open: c.makeAdmin, body: bound(nil, maxLogin)},
		{pattern: "POST /preferences", open: c.preferences},
		{pattern: "GET /api/v1/openapi.json", open: c.assets.openapi},
		{pattern: "GET /schemas/{file}", open: c.assets.schema},
		{pattern: uploadPattern, open: c.admitted(c.uploadAPI), body: c.maxFile},
		{pattern: eventsPattern, open: c.eventsAPI, body: bound(nil, maxEvents)}, // the API verifies its signature
		{pattern: "POST /api/v1/sessions", open: onlyJSON(c.gateway.ServeHTTP)},  // a sign-in has no token yet
		{pattern: "POST /api/v1/logins:claim", open: onlyJSON(c.gateway.ServeHTTP)},
		{pattern: "/api/", open: c.admitted(onlyJSON(c.gateway.ServeHTTP)), body: c.maxBody},

		{pattern: "POST /logout", page: c.logout},
		{pattern: "GET /{$}", page: c.toApp("")},
		{pattern: "GET /apps", page: c.appsPage},
		{pattern: "POST /apps", page: c.createApp},
		{pattern: "GET /overview", page: c.toApp("")},
		{pattern: "GET /jobs", page: c.toApp("jobs")},
		{pattern: "GET /jobs/{name}", page: c.toApp("jobs", "name")},
		{pattern: "GET /runs", page: c.toApp("runs")},
		{pattern: "GET /runs/{id}", page: c.toApp("runs", "id")},
		{pattern: "GET /calendars", page: c.toApp("calendars")},
		{pattern: "GET /calendars/{name}", page: c.toApp("calendars", "name")},
		{pattern: "GET /modules", page: c.toApp("modules")},
		{pattern: "GET /alerts", page: c.alertsPage},
		{pattern: "GET /events", page: c.events},
		{pattern: "GET /palette", page: c.palettePage},
		{pattern: "GET /switch", page: c.switchPage},
		{pattern: "GET /hosts", page: c.hostsPage},
		{pattern: "GET /hosts/{id}", page: c.hostPage},
		{pattern: "GET /hosts/{id}/cordon", page: c.cordonHostPage},
		{pattern: "POST /hosts/{id}/cordon", page: c.cordonHost},
		{pattern: "GET /hosts/{id}/uncordon", page: c.uncordonHostPage},
		{pattern: "POST /hosts/{id}/uncordon", page: c.uncordonHost},
		{pattern: "GET /cluster", page: c.clusterPage},
		{pattern: "GET /cluster/servers/{id}/drain", page: c.drainServerPage},
		{pattern: "POST /cluster/servers/{id}/drain", page: c.drainServer},
		{pattern: "GET /cluster/servers/{id}/undrain", page: c.undrainServerPage},
		{pattern: "POST /cluster/servers/{id}/undrain", page: c.undrainServer},
		{pattern: "GET /cluster/units/{unit}/move", page: c.moveUnitPage},
		{pattern: "POST /cluster/units/{unit}/move", page: c.moveUnit},
		{pattern: "GET /cluster/split", page: c.splitAppPage},
		{pattern: "POST /cluster/split", page: c.splitApp},
		{pattern: "GET /cluster/apps/{name}/merge", page: c.mergeAppPage},
		{pattern: "POST /cluster/apps/{name}/merge", page: c.mergeApp},

		{pattern: "GET /cluster/backup", page: c.backUpPage},
		{pattern: "POST /cluster/backup", page: c.backUp},
		{pattern: "GET /health", page: c.healthPage},
		{pattern: "GET /queues", page: c.queuesPage},
		{pattern: "GET /operations", page: c.operationsPage},
		{pattern: "GET /queues/messages", page: c.messagesPage},
		{pattern: "GET /dead-letters", page: c.deadPage},
		{pattern: "POST /dead-letters/replay", page: c.replayDead},
		{pattern: "GET /dead-letters/drop", page: c.dropDeadPage},
		{pattern: "POST /dead-letters/drop", page: c.dropDead},
		{pattern: "GET /dead-letters/{id}", page: c.deadLetterPage},
		{pattern: "POST /dead-letters/{id}/edit", page: c.editDead},
		{pattern: "POST /dead-letters/{id}/replay", page: c.replayDead},
		{pattern: "GET /dead-letters/{id}/drop", page: c.dropDeadPage},
		{pattern: "POST /dead-letters/{id}/drop", page: c.dropDead},

		{pattern: "GET /access", page: c.usersPage},
		{pattern: "GET /access/users", page: c.usersPage},
		{pattern: "POST /access/users", page: c.createUser},
		{pattern: "GET /access/users/{name}/reset", page: c.resetPasswordPage},
		{pattern: "POST /access/users/{name}/reset", page: c.resetPassword},
		{pattern: "GET /access/users/{name}/disable", page: c.disableUserPage},
		{pattern: "POST /access/users/{name}/disable", page: c.disableUser},
		{pattern: "POST /access/users/{name}/enable", page: c.enableUser},
		{pattern: "GET /access/bindings", page: c.bindingsPage},
		{pattern: "POST /access/bindings", page: c.addBinding},
		{pattern: "GET /access/bindings/{id}/remove", page: c.removeBindingPage},
		{pattern: "POST /access/bindings/{id}/remove", page: c.removeBinding},
		{pattern: "GET /access/tokens", page: c.tokensPage},
		{pattern: "POST /access/tokens", page: c.createToken},
		{pattern: "GET /access/tokens/{id}/rotate", page: c.rotateTokenPage},
		{pattern: "POST /access/tokens/{id}/rotate", page: c.rotateToken},
		{pattern: "GET /access/tokens/{id}/revoke", page: c.revokeTokenPage},
		{pattern: "POST /access/tokens/{id}/revoke", page: c.revokeToken},
		{pattern: "GET /access/sessions", page: c.sessionsPage},
		{pattern: "POST /access/sessions/{id}/end", page: c.endSession},
		{pattern: "GET /access/machines", page: c.machinesPage},
		{pattern: "POST /access/machines", page: c.createJoinToken},
		{pattern: "GET /access/machines/{id}/rename", page: c.renameMachinePage},
		{pattern: "POST /access/machines/{id}/rename", page: c.renameMachine},
		{pattern: "GET /access/machines/{id}/revoke", page: c.revokeMachinePage},
		{pattern: "POST /access/machines/{id}/revoke", page: c.revokeMachine},
		{pattern: "GET /access/join-tokens/{id}/revoke", page: c.revokeJoinTokenPage},
		{pattern: "POST /access/join-tokens/{id}/revoke", page: c.revokeJoinToken},
		{pattern: "GET /access/roles", page: c.rolesPage},
		{pattern: "GET /audit", page: c.auditPage},
		{pattern: "POST /audit/verify", page: c.verifyAudit},

		{pattern: "GET /apps/{app}", page: c.overviewPage},
		{pattern: "GET /apps/{app}/delete", page: c.deleteAppPage},
		{pattern: "POST /apps/{app}/delete", page: c.deleteApp},
		{pattern: "GET /apps/{app}/limits", page: c.limitsPage},
		{pattern: "POST /apps/{app}/limits", page: c.setLimits},
		{pattern: "GET /apps/{app}/pause", page: c.pausePage},
		{pattern: "POST /apps/{app}/pause", page: c.pauseApp},
		{pattern: "POST /apps/{app}/resume", page: c.resumeApp},
		{pattern: "GET /apps/{app}/jobs", page: c.jobsPage},
		{pattern: "GET /apps/{app}/jobs/new", page: c.newJobPage},
		{pattern: "POST /apps/{app}/jobs/new", page: c.editJob, body: bound(nil, maxEditor)},
		{pattern: jobPattern, page: c.jobPage},
		{pattern: "GET /apps/{app}/jobs/{name}/edit", page: c.editJobPage},
		{pattern: "POST /apps/{app}/jobs/{name}/edit", page: c.editJob, body: bound(nil, maxEditor)},
		{pattern: "GET /apps/{app}/jobs/{name}/run-form", page: c.runFormPage},
		{pattern: "POST /apps/{app}/jobs/{name}/run-form", page: c.runWithForm},
		{pattern: "POST /apps/{app}/jobs/{name}/run", page: c.runJob},
		{pattern: "POST /apps/{app}/jobs/{name}/pause", page: c.pauseJob},
		{pattern: "POST /apps/{app}/jobs/{name}/resume", page: c.resumeJob},
		{pattern: "GET /apps/{app}/jobs/{name}/pause", page: c.pauseJobPage},
		{pattern: "POST /apps/{app}/jobs/{name}/skip", page: c.skipNext},
		{pattern: "GET /apps/{app}/jobs/{name}/backfill", page: c.backfillPage},
		{pattern: "POST /apps/{app}/jobs/{name}/backfill", page: c.backfill},
		{pattern: "GET /apps/{app}/jobs/{name}/delete", page: c.deleteJobPage},
		{pattern: "POST /apps/{app}/jobs/{name}/delete", page: c.deleteJob},
		{pattern: "GET /apps/{app}/jobs/{name}/history", page: c.historyPage},
		{pattern: "GET /apps/{app}/jobs/{name}/history/compare", page: c.comparePage},
		{pattern: "GET /apps/{app}/jobs/{name}/history/{number}/rollback", page: c.rollbackPage},
		{pattern: "POST /apps/{app}/jobs/{name}/history/{number}/rollback", page: c.rollback},
		{pattern: "GET /apps/{app}/errors", page: c.errorsPage},
		{pattern: "GET /apps/{app}/errors/{fingerprint}/mark", page: c.markErrorPage},
		{pattern: "POST /apps/{app}/errors/{fingerprint}/mark", page: c.markError},
		{pattern: "GET /apps/{app}/schedules", page: c.schedulesPage},
		{pattern: "GET /apps/{app}/runs", page: c.runsPage},
		{pattern: "GET /apps/{app}/runs/export", page: c.exportRuns},
		{pattern: "GET /apps/{app}/runs/{id}", page: c.runPage},
		{pattern: "GET /apps/{app}/runs/{id}/events", page: c.runEvents},
		{pattern: "GET /apps/{app}/runs/{id}/log", page: c.runLog},
		{pattern: "GET /apps/{app}/runs/{id}/input", page: c.runInput},
		{pattern: "GET /apps/{app}/runs/{id}/output", page: c.runOutput},
		{pattern: "GET /apps/{app}/runs/{id}/cancel", page: c.cancelRunPage},
		{pattern: "POST /apps/{app}/runs/{id}/cancel", page: c.cancelRun},
		{pattern: "GET /apps/{app}/runs/{id}/retry", page: c.retryPage},
		{pattern: "POST /apps/{app}/runs/{id}/retry", page: c.retryRun},
		{pattern: "GET /apps/{app}/runs/{id}/delete", page: func(v *visit) error { return c.deleteRunPage(v, "rundelete") }},
		{pattern: "POST /apps/{app}/runs/{id}/delete", page: func(v *visit) error { return c.deleteRun(v, false) }},
		{pattern: "GET /apps/{app}/runs/{id}/purge", page: func(v *visit) error { return c.deleteRunPage(v, "purge") }},
		{pattern: "POST /apps/{app}/runs/{id}/purge", page: func(v *visit) error { return c.deleteRun(v, true) }},
		{pattern: "GET /apps/{app}/runs/{id}/rerun", page: c.rerunPage},
		{pattern: "POST /apps/{app}/runs/{id}/rerun", page: c.rerun},
		{pattern: "GET /apps/{app}/runs/{id}/compare", page: c.compareRunPage},
		{pattern: "GET /apps/{app}/alerts", page: c.alertsPage},
		{pattern: "POST /apps/{app}/alerts/firing/{id}/acknowledge", page: c.acknowledgeAlert},
		{pattern: "POST /apps/{app}/alerts/silences", page: c.createSilence},
		{pattern: "POST /apps/{app}/alerts/silences/{id}/end", page: c.endSilence},
		{pattern: "POST /apps/{app}/alerts/channels/{name}/test", page: c.testChannel},
		{pattern: "POST /apps/{app}/alerts/deliveries/{id}/retry", page: c.retryDelivery},
		{pattern: "GET /apps/{app}/alerts/rules", page: ofKind(alertRules, c.alertDocumentPage)},
		{pattern: "POST /apps/{app}/alerts/rules", page: ofKind(alertRules, c.editAlertDocument), body: bound(nil, maxEditor)},
		{pattern: "GET /apps/{app}/alerts/rules/{name}", page: ofKind(alertRules, c.alertDocumentPage)},
		{pattern: "POST /apps/{app}/alerts/rules/{name}", page: ofKind(alertRules, c.editAlertDocument), body: bound(nil, maxEditor)},
		{pattern: "GET /apps/{app}/alerts/rules/{name}/delete", page: ofKind(alertRules, c.deleteAlertDocumentPage)},
		{pattern: "POST /apps/{app}/alerts/rules/{name}/delete", page: ofKind(alertRules, c.deleteAlertDocument)},
		{pattern: "GET /apps/{app}/alerts/channels", page: ofKind(alertChannels, c.alertDocumentPage)},
		{pattern: "POST /apps/{app}/alerts/channels", page: ofKind(alertChannels, c.editAlertDocument), body: bound(nil, maxEditor)},
		{pattern: "GET /apps/{app}/alerts/channels/{name}", page: ofKind(alertChannels, c.alertDocumentPage)},
		{pattern: "POST /apps/{app}/alerts/channels/{name}", page: ofKind(alertChannels, c.editAlertDocument), body: bound(nil, maxEditor)},
		{pattern: "GET /apps/{app}/alerts/channels/{name}/delete", page: ofKind(alertChannels, c.deleteAlertDocumentPage)},
		{pattern: "POST /apps/{app}/alerts/channels/{name}/delete", page: ofKind(alertChannels, c.deleteAlertDocument)},

		{pattern: "GET /apps/{app}/bulk/runs", page: c.bulkPage(true)},
		{pattern: "POST /apps/{app}/bulk/runs", page: c.startBulk(true)},
		{pattern: "GET /apps/{app}/bulk/jobs", page: c.bulkPage(false)},
		{pattern: "POST /apps/{app}/bulk/jobs", page: c.startBulk(false)},
		{pattern: "GET /apps/{app}/operations/{id}", page: c.operationPage},
		{pattern: "POST /apps/{app}/operations/{id}/cancel", page: c.cancelOperation},
		{pattern: "GET /apps/{app}/calendars", page: c.calendarsPage},
		{pattern: "POST /apps/{app}/calendars", page: c.putCalendar, body: bound(nil, maxCalendar)},
		{pattern: "GET /apps/{app}/calendars/{name}", page: c.calendarPage},
		{pattern: "GET /apps/{app}/calendars/{name}/jobs", page: c.calendarJobsPage},
		{pattern: "GET /apps/{app}/calendars/{name}/delete", page: c.deleteCalendarPage},
		{pattern: "POST /apps/{app}/calendars/{name}/delete", page: c.deleteCalendar},
		{pattern: "GET /apps/{app}/modules", page: c.modulesPage},
		{pattern: "POST /apps/{app}/modules", page: c.uploadForm, body: func() int64 { return c.maxFile() + 2*maxField }},
		{pattern: "GET /apps/{app}/collect", page: c.collectPage},
		{pattern: "POST /apps/{app}/collect", page: c.collect},
		{pattern: "GET /apps/{app}/modules/{name}", page: c.modulePage},
		{pattern: "GET /apps/{app}/modules/{name}/jobs", page: c.moduleJobsPage},
		{pattern: "POST /apps/{app}/modules/{name}/grants", page: c.setGrants},
		{pattern: "POST /apps/{app}/modules/{name}/aliases", page: c.setAlias},
		{pattern: "POST /apps/{app}/modules/{name}/aliases/{alias}", page: c.moveAlias},
		{pattern: "GET /apps/{app}/modules/{name}/aliases/{alias}/delete", page: c.deleteAliasPage},
		{pattern: "POST /apps/{app}/modules/{name}/aliases/{alias}/delete", page: c.deleteAlias},
		{pattern: "GET /apps/{app}/modules/{name}/versions/{version}/bytes", page: c.downloadModule},
		{pattern: "GET /apps/{app}/modules/{name}/versions/{version}/delete", page: c.deleteVersionPage},
		{pattern: "POST /apps/{app}/modules/{name}/versions/{version}/delete", page: c.deleteVersion},
		{pattern: "GET /apps/{app}/scripts", page: c.newScriptPage},
		{pattern: "POST /apps/{app}/scripts", page: c.editScript, body: bound(nil, maxEditor)},
		{pattern: "GET /apps/{app}/scripts/{name}", page: c.scriptPage},
		{pattern: "POST /apps/{app}/scripts/{name}", page: c.editScript, body: bound(nil, maxEditor)},
		{pattern: "GET /apps/{app}/secrets", page: c.secretsPage},
		{pattern: "POST /apps/{app}/secrets", page: c.setSecret},
		{pattern: "GET /apps/{app}/secrets/{name}/delete", page: c.deleteSecretPage},
		{pattern: "POST /apps/{app}/secrets/{name}/delete", page: c.deleteSecret},
		{pattern: "GET /apps/{app}/values", page: c.bucketsPage},
		{pattern: "POST /apps/{app}/values", page: c.putValue},
		{pattern: "GET /apps/{app}/values/{bucket}", page: c.bucketPage},
		{pattern: "GET /apps/{app}/values/{bucket}/value", page: c.valuePage},
		{pattern: "GET /apps/{app}/values/{bucket}/bytes", page: c.valueDownload},
		{pattern: "GET /apps/{app}/values/{bucket}/delete", page: c.deleteValuePage},
		{pattern: "POST /apps/{app}/values/{bucket}/delete", page: c.deleteValue},
		{pattern: "/", page: c.nothingHere},
	}
}

func (c *console) handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range c.routes() {
		if r.page != nil {
			r.open = c.signedIn(r.page)
		}
		mux.HandleFunc(r.pattern, limited(bound(r.body, maxForm), r.open))
	}
	return c.protect(c.foreign.Handler(plainPaths(mux)))
}

// csp allows only files of this origin and nothing inline. htmx works under it because
// layout.html switches off its style element and its eval.
const csp = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// protect sets the security headers of every response, also of errors.
func (c *console) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", csp)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer, forms over plain HTTP have the origin "null" and are refused
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if c.secure {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}
