package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// shownHostRuns bounds the runs on the page of a host.
	shownHostRuns = 20
	// shownHostModules bounds the versions whose state at a host a page asks for: each is a call.
	shownHostModules = 10
	// readCordons bounds the audit events that a page reads to find why a host was cordoned.
	readCordons = 50
)

// hostView is the page of a host.
type hostView struct {
	*apiv1.Host
	Runs        []*apiv1.Run // live runs of the app of the visit, at most shownHostRuns
	Unreadable  int32
	MoreRuns    bool
	Certificate *apiv1.Certificate // nil: it has none, or the visitor may not see it
	Ends        string             // the state of the certificate
	Cordon      *apiv1.AuditEvent  // the order that cordoned it; nil: it is not cordoned, or the order is not known
	Asked       bool               // the visitor has asked for the modules
	Modules     []hostModule       // of the app of the visit
	Done        accessDone
}

// hostModule is a version with its state at the host.
type hostModule struct {
	*apiv1.Module
	At *apiv1.HostRollout // nil: the host does not serve the app
}

// Load returns the used share of the execution slots, 0 to 100.
func (h hostView) Load() int32 { return hostsView{}.Load(h.Host) }

// Percent returns the use of the processors, in percent.
func (h hostView) Percent() int { return hostsView{}.CPU(h.Host) }

// Cordoned reports whether an operator keeps tasks from the host.
func (h hostView) Cordoned() bool { return h.State == "cordoned" }

// Icon returns the state of a run whose look the state of a module has.
func (hostView) Icon(state string) string { return moduleView{}.Icon(state) }

// host returns the host that the address names.
func (c *console) host(v *visit) (*apiv1.Host, error) {
	answer, err := c.cluster.ListHosts(v.ctx, &apiv1.ListHostsRequest{})
	if err != nil {
		return nil, err
	}
	id := v.r.PathValue("id")
	for _, h := range answer.Hosts {
		if h.Id == id {
			return h, nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "there is no host %.100q: it has not been connected lately", id)
}

func (c *console) hostPage(v *visit) error {
	h, err := c.host(v)
	if err != nil {
		return err
	}
	view := hostView{Host: h, Asked: v.r.URL.Query().Get("modules") != ""}
	view.Done, _ = noticeOf[accessDone](v)
	x, cordoned := c.visitor(v), view.Cordoned() // a method of the view reads all of it, so none is called below
	g, ctx := errgroup.WithContext(v.ctx)
	if x.May("runs.read", v.app) {
		g.Go(func() error {
			answer, err := c.runs.ListRuns(ctx, &apiv1.ListRunsRequest{App: v.app, Host: h.Id, State: "live", PageSize: shownHostRuns})
			view.Runs, view.Unreadable, view.MoreRuns = answer.GetRuns(), answer.GetUnreadableBlocks(), answer.GetNextPageToken() != ""
			return err
		})
	}
	if x.May("access.read", "") {
		g.Go(func() (err error) {
			view.Certificate, err = c.hostCertificate(ctx, h.Id)
			if view.Certificate != nil {
				view.Ends = certificateState(view.Certificate, time.Now())
			}
			return err
		})
	}
	if cordoned && byPerson(v.r) && x.May("audit.read", "") { // the log may be long: not at each refresh
		g.Go(func() (err error) {
			view.Cordon, err = c.cordonOf(ctx, h.Name)
			return err
		})
	}
	if view.Asked && x.May("modules.read", v.app) {
		g.Go(func() (err error) {
			view.Modules, err = c.hostModules(ctx, v.app, h.Id)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return c.show(v, "host", "hosts", view)
}

// hostCertificate returns the certificate of a host; nil: it has none.
func (c *console) hostCertificate(ctx context.Context, id string) (*apiv1.Certificate, error) {
	answer, err := c.machines.ListCertificates(ctx, &apiv1.ListCertificatesRequest{})
	if err != nil {
		return nil, err
	}
	for _, m := range answer.Certificates {
		if m.Kind == "host" && m.Id == id {
			return m, nil
		}
	}
	return nil, nil
}

// cordonOf returns the last order about a host, if it is among the last orders about all hosts and
// cordoned it. The event has the reason and the caller.
func (c *console) cordonOf(ctx context.Context, name string) (*apiv1.AuditEvent, error) {
	answer, err := c.audit.ListAuditEvents(ctx, &apiv1.ListAuditEventsRequest{Code: "host.", PageSize: readCordons})
	if err != nil {
		return nil, err
	}
	for _, e := range answer.Events {
		if e.Object == name && e.Outcome == "ok" && strings.HasSuffix(e.Code, "cordoned") {
			if e.Code == "host.cordoned" {
				return e, nil
			}
			return nil, nil
		}
	}
	return nil, nil
}

// hostModules returns the newest stored versions of an app with their states at a host.
func (c *console) hostModules(ctx context.Context, app, host string) ([]hostModule, error) {
	answer, err := c.modules.ListModules(ctx, &apiv1.ListModulesRequest{App: app})
	if err != nil {
		return nil, err
	}
	stored := slices.DeleteFunc(slices.Clone(answer.Modules), func(m *apiv1.Module) bool { return m.CollectedAt != nil })
	slices.SortStableFunc(stored, func(a, b *apiv1.Module) int { return stamp(b.CreatedAt).Compare(stamp(a.CreatedAt)) })
	rows := make([]hostModule, min(len(stored), shownHostModules))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for i := range rows {
		rows[i].Module = stored[i]
		g.Go(func() error {
			answer, err := c.modules.GetRollout(ctx, &apiv1.GetRolloutRequest{App: app, Name: stored[i].Name, Version: stored[i].Version})
			for _, h := range answer.GetByHost() {
				if h.Host == host {
					rows[i].At = h
				}
			}
			return err
		})
	}
	return rows, g.Wait()
}

// cordonView asks for the reason of a cordon, or of its end.
type cordonView struct {
	*apiv1.Host
	On              bool // the host gets a cordon
	Drain           bool
	Reason, Refused string
}

func (c *console) cordonHostPage(v *visit) error   { return c.askCordon(v, true) }
func (c *console) uncordonHostPage(v *visit) error { return c.askCordon(v, false) }

func (c *console) askCordon(v *visit, on bool) error {
	h, err := c.host(v)
	if err != nil {
		return err
	}
	return c.show(v, "cordon", "hosts", cordonView{Host: h, On: on})
}

func (c *console) cordonHost(v *visit) error   { return c.setCordon(v, true) }
func (c *console) uncordonHost(v *visit) error { return c.setCordon(v, false) }

// setCordon cordons a host or ends that. The reason becomes the note of the call, which its audit
// event has.
func (c *console) setCordon(v *visit, on bool) error {
	if err := v.parseForm(); err != nil {
		return err
	}
	h, err := c.host(v)
	if err != nil {
		return err
	}
	view := cordonView{Host: h, On: on, Drain: v.r.PostForm.Get("drain") != "", Reason: strings.TrimSpace(v.r.PostForm.Get("reason"))}
	ctx, done := v.ctx, "host.uncordoned"
	if view.Reason != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "wheelwork-note", url.PathEscape(view.Reason))
	}
	if on {
		done = "host.cordoned"
		_, err = c.cluster.CordonHost(ctx, &apiv1.CordonHostRequest{Host: h.Id, Drain: view.Drain})
	} else {
		_, err = c.cluster.UncordonHost(ctx, &apiv1.UncordonHostRequest{Host: h.Id})
	}
	if why, ok := mendable(err); ok && status.Code(err) != codes.PermissionDenied {
		view.Refused = why
		return c.showStatus(v, http.StatusUnprocessableEntity, "cordon", "hosts", view)
	}
	if err != nil {
		return err
	}
	v.redirectWith(inApp(href("hosts", h.Id), v.app), accessDone{done, h.Name})
	return nil
}
