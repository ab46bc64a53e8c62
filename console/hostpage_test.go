package console

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// hostPages returns the addresses of the pages of hosts, with texts that each must contain.
func hostPages() map[string][]string {
	return map[string][]string{
		"/hosts/host-a":             {"5 of 16 slots in use", "zone=eu-1", "91.0 MiB", "37 %", liveRun, "/hosts/host-a/cordon", "/apps/default/runs?host=host-a"},
		"/hosts/host-a?modules=yes": {"Ready", "410 ms", "/apps/default/modules/totals", "totals@4-rc"},
		"/hosts/host-b":             {"Lost", "node-2"},
		"/hosts/host-a/cordon":      {"Cordon node-1", `name="reason"`, `name="drain"`},
		"/hosts/host-a/uncordon":    {"Uncordon node-1"},
	}
}

// TestHostCordon cordons a host with a reason and ends that. The page has the reason.
func TestHostCordon(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	resp, _ := s.post(t, "/hosts/host-a/cordon", "reason=disk+%E6%8D%A2+%25&drain=yes")
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/hosts/host-a" {
		t.Fatalf("%s to %q", resp.Status, resp.Header.Get("Location"))
	}
	for _, m := range s.fake.asked {
		if r, ok := m.(*apiv1.CordonHostRequest); ok && (!r.Drain || r.Host != "host-a") {
			t.Errorf("the call was %v", r)
		}
	}
	_, body := s.do(t, "GET", "/hosts/host-a", nil)
	for _, want := range []string{"disk 换 %", "· ada", "/hosts/host-a/uncordon", "Cordoned: node-1"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page does not hold %q", want)
		}
	}
	checkPage(t, body)
	s.fake.auditAsked = nil
	if s.do(t, "GET", "/hosts/host-a", nil, "HX-Request", "true"); s.fake.auditAsked != nil {
		t.Error("a refresh reads the audit log")
	}
	s.post(t, "/hosts/host-a/uncordon", "")
	if _, body := s.do(t, "GET", "/hosts/host-a", nil); s.fake.hosts[0].State != "up" || strings.Contains(body, "disk 换 %") {
		t.Errorf("the host is %s", s.fake.hosts[0].State)
	}
}

func TestHostCordonIsRefused(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	resp, body := s.post(t, "/hosts/host-b/cordon", "reason=because")
	if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "host host-b is not connected") || !strings.Contains(body, `value="because"`) {
		t.Errorf("%s\n%s", resp.Status, body)
	}
	checkPage(t, body)
	if resp, body := s.do(t, "GET", "/hosts/none", nil); resp.StatusCode != http.StatusNotFound || !strings.Contains(body, "there is no host") {
		t.Errorf("no host: %s", resp.Status)
	}
}

// TestHostCertificate: the page of a host with a certificate links to its revocation.
func TestHostCertificate(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	const revoke = "/access/machines/host-a/revoke"
	if _, body := s.do(t, "GET", "/hosts/host-a", nil); strings.Contains(body, revoke) {
		t.Error("a host without a certificate has a link to revoke it")
	}
	s.fake.machines[0].Id = "host-a"
	if _, body := s.do(t, "GET", "/hosts/host-a", nil); !strings.Contains(body, revoke) || !strings.Contains(body, "Valid, ends") {
		t.Error("the page has no link to revoke the certificate")
	}
	s.fake.may = []string{"cluster.read", "jobs.read"}
	s2 := newSite(t, s.fake).signIn(t)
	s2.fake.asked = nil
	_, body := s2.do(t, "GET", "/hosts/host-a", nil)
	if strings.Contains(body, revoke) || strings.Contains(body, "/cordon") {
		t.Error("a viewer is offered to change the host")
	}
	for _, m := range s2.fake.asked {
		if _, ok := m.(*apiv1.ListCertificatesRequest); ok {
			t.Error("the page asks for certificates that the visitor may not see")
		}
	}
}

// testHost cordons a host with a reason and ends that, with the keyboard alone, on a narrow screen.
func testHost(t *testing.T, b *browser) {
	b.do(chromedp.EmulateViewport(400, 800))
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	press := pressing(t, b, 400)
	b.visit("/hosts")
	press(`main a[href="/hosts/host-a"]`, "The newest modules of default at this host")
	press(`a[href="/hosts/host-a/cordon"]`, "Reason, for the audit log")
	b.do(chromedp.SendKeys("#h-reason", "new disk"))
	press(`main form button`, "new disk")
	press(`a[href="/hosts/host-a/uncordon"]`, "Uncordon node-1")
	press(`main form button`, "Uncordoned: node-1")
	press(`a[href*="modules=yes"]`, "410 ms")
}
