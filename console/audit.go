package console

import (
	"cmp"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/job/schedule/cron"
)

// auditFilter is the filter of the list, as the address contains it. App is that of the navigation;
// About is the app of the events.
type auditFilter struct {
	Actor, Code, About, Since, Until, Zone, App string
}

func readAuditFilter(q url.Values) auditFilter {
	text := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	return auditFilter{Actor: text("actor"), Code: text("code"), About: text("about"), Since: text("since"), Until: text("until"), Zone: text("zone"), App: text("app")}
}

// Set reports whether the list may hide events.
func (f auditFilter) Set() bool { return f != auditFilter{App: f.App, Zone: f.Zone} }

// Link returns an address with the filter, and with pairs of further parameters.
func (f auditFilter) Link(address string, pairs ...string) string {
	zone := f.Zone
	if f.Since == "" && f.Until == "" {
		zone = ""
	}
	return withQuery(address, append([]string{"app", f.App, "actor", f.Actor, "code", f.Code, "about", f.About, "since", f.Since, "until", f.Until, "zone", zone}, pairs...)...)
}

type auditView struct {
	auditFilter
	Events  []*apiv1.AuditEvent
	Next    string // token of the next page
	Paged   bool   // this is not the first page
	Refused string
}

func (c *console) auditPage(v *visit) error {
	q := v.r.URL.Query()
	view := auditView{auditFilter: readAuditFilter(q), Paged: q.Get("page") != ""}
	view.Zone = cmp.Or(view.Zone, zoneOf(v.r).String())
	req := &apiv1.ListAuditEventsRequest{App: view.About, Actor: view.Actor, Code: view.Code, PageToken: q.Get("page"), PageSize: pageSize}
	zone, err := cron.LoadZone(view.Zone)
	if err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if req.Since, err = optionalTime(view.Since, zone); err == nil {
		req.Until, err = optionalTime(view.Until, zone)
	}
	if err == nil {
		var answer *apiv1.ListAuditEventsResponse
		answer, err = c.audit.ListAuditEvents(v.ctx, req)
		view.Events, view.Next = answer.GetEvents(), answer.GetNextPageToken()
	}
	if status.Code(err) == codes.InvalidArgument {
		view.Refused = status.Convert(err).Message()
		return c.showStatus(v, httpStatus(status.Convert(err)), "audit", "audit", view)
	}
	if err != nil {
		return err
	}
	return c.show(v, "audit", "audit", view)
}

// optionalTime parses the value of a datetime-local input in a zone; "" is no time.
func optionalTime(s string, zone *time.Location) (*timestamppb.Timestamp, error) {
	if s == "" {
		return nil, nil
	}
	t, err := readInputTime(s, zone)
	if err != nil {
		return nil, err
	}
	return timestamppb.New(t), nil
}

// verifyAudit shows the chain of each partition. It changes nothing, and is a POST because the server reads
// its whole audit log.
func (c *console) verifyAudit(v *visit) error {
	answer, err := c.audit.VerifyAudit(v.ctx, &apiv1.VerifyAuditRequest{})
	if err != nil {
		return err
	}
	return c.show(v, "chains", "audit", answer)
}
