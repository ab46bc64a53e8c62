package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// auditOf returns the events that a query selects, the newest first.
func auditOf(t *testing.T, c *sdk.Client, q sdk.AuditQuery) (all []*sdk.AuditEvent) {
	t.Helper()
	for e, err := range c.AuditEvents(t.Context(), q) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// TestRefusalsAreEvents makes many refused calls. They become few events with counts, which name the
// caller, its address and the method.
func TestRefusalsAreEvents(t *testing.T) {
	t.Parallel()
	p := launch(t, func(ctx context.Context, ready func(node.Ready)) error {
		return node.Server(ctx, node.RecordsRefusals(node.ServerConfig{Data: t.TempDir(), Listen: "127.0.0.1:0", Ready: ready}, 50*time.Millisecond))
	})
	admin, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: p.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close() //nolint:errcheck // a test's
	made, err := admin.CreateToken(t.Context(), "ci", "viewer", sdk.AppScope("shop"), "")
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]error{made.Token: sdk.ErrDenied, "wrong": sdk.ErrUnauthenticated} {
		c, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: token})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // a test's
		for range 20 {
			if _, err := c.Job(t.Context(), "bank", "j"); !errors.Is(err, want) {
				t.Errorf("with %.6s: %v", token, err)
			}
		}
	}
	count := func(code, actor string) (n int64, events []*sdk.AuditEvent) {
		events = auditOf(t, admin, sdk.AuditQuery{Code: code, Actor: actor})
		for _, e := range events {
			n += e.GetCount()
		}
		return n, events
	}
	reaches(t, spread, "the refusals are in the audit log", func() bool {
		denied, _ := count("call.denied", "ci")
		unknown, _ := count("call.unauthenticated", "")
		return denied == 20 && unknown == 20
	})
	_, events := count("call.denied", "ci")
	e := events[0]
	if len(events) > 10 || e.GetOutcome() != "denied" || e.GetObject() != "Jobs/GetJob" || e.GetAddress() != "127.0.0.1" || e.GetToken() != made.GetId() || e.GetKind() != "service" || !strings.Contains(e.GetMessage(), "jobs.read") {
		t.Errorf("%d events, the last one is %v", len(events), e)
	}
}

// TestAuditInCluster changes definitions in apps of two servers through either server, and lists and
// verifies the events of both.
func TestAuditInCluster(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	apps := w.place(c, "a")
	var names []string
	for _, app := range apps {
		names = append(names, app)
	}
	const jobs = 60
	for i := range jobs {
		at := []string{"a", "b"}[i%2]
		if _, err := w.as(adminToken, at).Apply(t.Context(), &sdk.Job{App: names[i/2%2], Name: fmt.Sprint("j", i), Handler: &sdk.Handler{Name: "native:none"}}); err != nil {
			t.Fatal(err)
		}
	}
	auditor, err := c.CreateToken(t.Context(), "looks", "auditor", sdk.AppScope(names[0]), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"a", "b"} {
		all := auditOf(t, w.as(adminToken, at), sdk.AuditQuery{Code: "job.created"})
		seen := map[string]int{}
		for i, e := range all {
			seen[e.GetApp()+"/"+e.GetObject()]++
			if e.GetAddress() != "127.0.0.1" || e.GetActor() != "admin" {
				t.Errorf("%v", e)
			}
			if i > 0 && e.GetTime().AsTime().After(all[i-1].GetTime().AsTime()) {
				t.Errorf("event %d is newer than the one before", i)
			}
		}
		if len(seen) != jobs || len(all) != jobs {
			t.Errorf("%d events of %d jobs at %s, want %d", len(all), len(seen), at, jobs)
		}
		reaches(t, spread, "the auditor of one app sees its events", func() bool {
			who := w.as(auditor.Token, at)
			if _, err := who.WhoAmI(t.Context()); err != nil {
				return false
			}
			own := auditOf(t, who, sdk.AuditQuery{})
			for _, e := range own {
				if e.GetApp() != names[0] {
					t.Errorf("an auditor of %s sees %v", names[0], e)
				}
			}
			return len(own) >= jobs/2
		})
		if _, err := w.as(auditor.Token, at).VerifyAudit(t.Context()); !errors.Is(err, sdk.ErrDenied) {
			t.Errorf("an auditor of one app verifies the cluster: %v", err)
		}
		chains, err := w.as(adminToken, at).VerifyAudit(t.Context())
		if err != nil || len(chains) != 2 || !chains[0].GetOk() || !chains[1].GetOk() || chains[0].GetPartition() != "main" || chains[0].GetEvents() == 0 || chains[1].GetEvents() == 0 {
			t.Errorf("%v, %v", chains, err)
		}
	}
}

// TestAuditAnchors changes jobs of a partition, whose end the other server notes. A log that does not
// contain the noted end is found through either server, and is accepted by an administrator alone.
func TestAuditAnchors(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2)
	w.audit = 50 * time.Millisecond
	w.start("a")
	w.start("b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	apps := w.place(c, "a")
	for i := range 20 {
		for _, app := range apps {
			if _, err := c.Apply(t.Context(), &sdk.Job{App: app, Name: fmt.Sprint("j", i), Handler: &sdk.Handler{Name: "native:none"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	verified := func(at string) map[string]*sdk.AuditChain {
		t.Helper()
		all := map[string]*sdk.AuditChain{}
		chains, err := w.as(adminToken, at).VerifyAudit(t.Context())
		if err != nil || len(chains) != 2 {
			t.Fatal(chains, err)
		}
		for _, x := range chains {
			all[x.GetPartition()] = x
		}
		return all
	}
	kept := func() *sdk.AuditAnchor {
		t.Helper()
		all, err := w.as(adminToken, "b").AuditAnchors(t.Context())
		if err != nil || len(all) > 1 {
			t.Fatal(all, err)
		}
		if len(all) == 0 {
			return nil
		}
		return all[0]
	}
	reaches(t, spread, "the end of the log is noted", func() bool {
		a := kept()
		return a != nil && a.GetSequence() >= 20 && a.GetHead() == verified("b")[a.GetPartition()].GetHead()
	})
	noted := kept()
	part := noted.GetPartition()
	if part == "main" || !noted.GetTime().IsValid() {
		t.Errorf("%v", noted)
	}

	// The log grows on, and contains the noted end.
	for app := range apps {
		if _, err := c.Pause(t.Context(), apps[app], "j1"); err != nil {
			t.Fatal(err)
		}
	}
	reaches(t, spread, "the next end is noted", func() bool { return kept().GetSequence() > noted.GetSequence() })
	for _, at := range []string{"a", "b"} {
		for name, x := range verified(at) {
			if !x.GetOk() {
				t.Errorf("%s at %s: %v", name, at, x)
			}
		}
	}

	// Another end takes its place, as if the log had been replaced. A caller cannot do that.
	conn, asServer := dial(t, w.all["a"], memberToken)
	other := &apiv1.AuditAnchor{Partition: part, Sequence: 1_000_000, Head: strings.Repeat("ab", 32)}
	_, asAdmin := dial(t, w.all["a"], adminToken)
	if _, err := apiv1.NewAuditClient(conn).AnchorAudit(asAdmin, &apiv1.AnchorAuditRequest{Anchor: other, Former: kept()}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an administrator moves an anchor: %v", err)
	}
	reaches(t, spread, "the end is replaced", func() bool {
		r, err := apiv1.NewAuditClient(conn).AnchorAudit(asServer, &apiv1.AnchorAuditRequest{Anchor: other, Former: kept()})
		return err == nil && r.Stored.Sequence == other.Sequence
	})
	for _, at := range []string{"a", "b"} {
		for name, x := range verified(at) {
			if x.GetOk() != (name != part) || name == part && (x.GetBrokenAt() != x.GetLast()+1 || !strings.Contains(x.GetProblem(), "anchored at event 1000000")) {
				t.Errorf("%s at %s: %v", name, at, x)
			}
		}
	}
	if _, err := c.Pause(t.Context(), apps[part], "j2"); err != nil {
		t.Fatal(err)
	}
	if a := kept(); a.GetSequence() != other.Sequence {
		t.Errorf("the owner replaced an end that its log does not contain: %v", a)
	}
	if err := w.as(adminToken, "b").AcceptAudit(t.Context(), part); err != nil {
		t.Fatal(err)
	}
	reaches(t, spread, "the log is accepted", func() bool { a := kept(); return a != nil && verified("a")[part].GetOk() })
	accepted := auditOf(t, c, sdk.AuditQuery{Code: "audit.accepted"})
	if len(accepted) != 1 || accepted[0].GetObject() != part || accepted[0].GetActor() != "admin" {
		t.Errorf("%v", accepted)
	}
}

// TestCallsAreEvents signs in to the console, makes a backup and cordons a host: what no partition records
// has events too.
func TestCallsAreEvents(t *testing.T) {
	t.Parallel()
	p := dev(t, node.DevConfig{Data: t.TempDir()})
	c, err := sdk.Dial(t.Context(), p.URL, sdk.Options{Token: p.Token})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // a test's
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for token, want := range map[string]int{p.Token: http.StatusSeeOther, "wrong": http.StatusUnauthorized} {
		resp, err := browser.PostForm(p.URL+"/login", url.Values{"token": {token}})
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close() //nolint:errcheck // not needed
		if resp.StatusCode != want {
			t.Errorf("sign-in with %.5s: %s", token, resp.Status)
		}
	}
	if err := backUp(t.Context(), c, io.Discard); err != nil {
		t.Fatal(err)
	}
	hosts, err := c.Hosts(t.Context())
	if err != nil || len(hosts) != 1 {
		t.Fatal(hosts, err)
	}
	if _, err := c.CordonHost(t.Context(), hosts[0].GetId(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UncordonHost(t.Context(), hosts[0].GetId()); err != nil {
		t.Fatal(err)
	}
	for code, object := range map[string]string{"session.started": "console", "cluster.backup": "", "host.cordoned": hosts[0].GetName(), "host.uncordoned": hosts[0].GetName()} {
		events := auditOf(t, c, sdk.AuditQuery{Code: code})
		if len(events) != 1 || events[0].GetActor() != "admin" || events[0].GetAddress() != "127.0.0.1" || events[0].GetObject() != object || events[0].GetApp() != "" {
			t.Errorf("%s: %v", code, events)
		}
	}
}

// TestCordonInCluster cordons a host that works for partitions of two servers, and drains a server. The
// events name the caller, whichever server made them.
func TestCordonInCluster(t *testing.T) {
	t.Parallel()
	w := newSeveral(t, 2, "a", "b")
	c := w.client("a", "b")
	w.untilBothOwn(c)
	w.host("h", "a", "b")
	for _, at := range []string{"a", "b"} {
		reaches(t, spread, "the host is connected", func() bool {
			hosts, err := w.as(adminToken, at).Hosts(t.Context())
			return err == nil && len(hosts) == 1 && strings.Contains(hosts[0].GetServer(), ", ")
		})
		if h, err := w.as(adminToken, at).CordonHost(t.Context(), "h", false); err != nil || h.GetState() != "cordoned" {
			t.Fatalf("cordoned at %s: %v, %v", at, h, err)
		}
		if h, err := w.as(adminToken, at).UncordonHost(t.Context(), "h"); err != nil || h.GetState() != "up" {
			t.Fatalf("uncordoned at %s: %v, %v", at, h, err)
		}
	}
	for _, e := range auditOf(t, c, sdk.AuditQuery{Code: "host.cordoned"}) {
		if e.GetActor() != "admin" || e.GetObject() != "h" || e.GetAddress() != "127.0.0.1" {
			t.Errorf("%v", e)
		}
	}
	if n := len(auditOf(t, c, sdk.AuditQuery{Code: "host."})); n != 8 { // of each partition one
		t.Errorf("%d events of 4 calls in 2 partitions", n)
	}
}
