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
	if err := c.Backup(t.Context(), io.Discard); err != nil {
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
