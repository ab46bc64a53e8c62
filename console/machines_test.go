package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestJoinTokenIsShownOnce makes join tokens: the answer shows the text, for a host with the line to paste.
func TestJoinTokenIsShownOnce(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	resp, body := s.post(t, "/access/machines", "kind=host&apps=shop,+billing&labels=zone%3Da,gpu%3D&executors=modules+plugin:*&ttl=24h&uses=20")
	line := "wheelwork host --server " + strings.TrimPrefix(s.URL, "http://") + " --join-token " + onceJoin
	for _, want := range []string{line, ">" + onceJoin + "<", "join-new", "shop, billing", "modules, plugin:*", `<span class="tag">zone=a</span>`, ">20<"} {
		if resp.StatusCode != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: there is no %q", resp.Status, want)
		}
	}
	if got := resp.Header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
	for name, values := range resp.Header {
		if strings.Contains(strings.Join(values, " "), onceJoin) {
			t.Errorf("the header %s has the token", name)
		}
	}
	checkPage(t, body)
	q := asked1[*apiv1.CreateJoinTokenRequest](t, s.fake)
	if q.Kind != "host" || !slices.Equal(q.Apps, []string{"shop", "billing"}) || fmt.Sprint(q.Labels) != "map[gpu: zone:a]" || !slices.Equal(q.Executors, []string{"modules", "plugin:*"}) || q.Ttl != "24h" || q.Uses != 20 {
		t.Errorf("the form asks for %v", q)
	}
	resp, body = s.post(t, "/access/machines", "kind=server&uses=")
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, onceJoin) || !strings.Contains(body, "wheelwork server --cluster") || !strings.Contains(body, "--join-server "+strings.TrimPrefix(s.URL, "http://")) {
		t.Errorf("a token for a server: %s\n%s", resp.Status, body)
	}
	if q := asked1[*apiv1.CreateJoinTokenRequest](t, s.fake); q.Kind != "server" || q.Uses != 1 || q.Apps != nil {
		t.Errorf("the form asks for %v", q)
	}
	for path := range accessPages() {
		if _, body := s.do(t, "GET", path, nil); strings.Contains(body, onceJoin) {
			t.Errorf("%s shows the join token", path)
		}
	}
	if s.logged.Len() > 0 {
		t.Errorf("logged: %s", s.logged)
	}
}

// TestServerAddress names the port with which a host dials the server.
func TestServerAddress(t *testing.T) {
	for _, tt := range []struct {
		host   string
		secure bool
		want   string
	}{
		{"wheel.example:7700", true, "wheel.example:7700"},
		{"wheel.example", true, "wheel.example:443"},
		{"wheel.example", false, "wheel.example:80"},
		{"[2001:db8::1]", true, "[2001:db8::1]:443"},
		{"[2001:db8::1]:7700", true, "[2001:db8::1]:7700"},
	} {
		r := httptest.NewRequest("POST", "/access/machines", nil)
		r.Host = tt.host
		if got := (&console{secure: tt.secure}).serverAddress(r); got != tt.want {
			t.Errorf("%s, secure %t: %s, want %s", tt.host, tt.secure, got, tt.want)
		}
	}
}

// TestMachineForms sends each form of the page that redirects. The next page confirms it once.
func TestMachineForms(t *testing.T) {
	f := newFake().populate()
	s := newSite(t, f).signIn(t)
	for _, tt := range []struct{ path, form, want string }{
		{"/access/machines/host-1/rename?app=billing", "name=+south+", "Renamed: south"},
		{"/access/machines/host-2/revoke", "", "Revoked: press-2"},
		{"/access/machines/srv-3/revoke", "", "Revoked: north"},
		{"/access/join-tokens/join-1/revoke", "", "Revoked: join-1"},
	} {
		resp, body := s.post(t, tt.path, tt.form)
		to := resp.Header.Get("Location")
		if resp.StatusCode != http.StatusSeeOther || strings.Contains(tt.path, "billing") != strings.Contains(to, "billing") {
			t.Errorf("POST %s: %s to %s\n%s", tt.path, resp.Status, to, body)
			continue
		}
		if _, body = s.do(t, "GET", to, nil); !strings.Contains(body, tt.want) {
			t.Errorf("after POST %s there is no %q", tt.path, tt.want)
		}
		checkPage(t, body)
		if _, body = s.do(t, "GET", to, nil); strings.Contains(body, tt.want) {
			t.Errorf("a reload repeats %q", tt.want)
		}
	}
	if len(f.machines) != 1 || f.machines[0].Name != "south" || len(f.joins) != 1 {
		t.Errorf("the machines are %v, the join tokens %v", f.machines, f.joins)
	}
}

// TestRefusedMachineForms sends forms that the page or the API refuses: the reason is beside the form, with the
// input.
func TestRefusedMachineForms(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	check := func(path, form, reason, kept string) {
		t.Helper()
		resp, body := s.post(t, path, form)
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, reason) || !strings.Contains(body, kept) || !strings.Contains(body, `role="alert"`) || strings.Contains(body, "rpc error") {
			t.Errorf("POST %s %s: %s\n%s", path, form, resp.Status, body)
		}
		checkPage(t, body)
	}
	check("/access/machines", "kind=host&labels=gpu", "write NAME=VALUE", `value="gpu"`)
	check("/access/machines", "kind=host&labels=%3Da", "write NAME=VALUE", `value="=a"`)
	check("/access/machines", "kind=host&uses=0", "write 1 or more", `value="0"`)
	check("/access/machines", "kind=host&uses=many", "write 1 or more", `value="many"`)
	check("/access/machines", "kind=server&apps=shop", "a server serves all apps", `value="server" selected`)
	check("/access/machines/host-1/rename", "name=", "the name is empty", `name="name" value=""`)
	s.fake.plain = true
	check("/access/machines", "kind=host&ttl=2h", "because it serves without TLS", `value="2h"`)
	for _, path := range []string{"/access/machines/press-1/rename", "/access/machines/press-1/revoke", "/access/machines/host-0/revoke"} {
		if resp, _ := s.do(t, "GET", path, nil); resp.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s: %s", path, resp.Status)
		}
		if resp, _ := s.post(t, path, "name=x"); resp.StatusCode != http.StatusNotFound {
			t.Errorf("POST %s: %s", path, resp.Status)
		}
	}
	if len(s.fake.machines) != 3 || len(s.fake.joins) != 2 {
		t.Error("a refused form changed something")
	}
}

// TestMachinesAreOffered shows the page to an auditor, which gets no form, and to a visitor with access.read in
// one app, which gets no link to it.
func TestMachinesAreOffered(t *testing.T) {
	for _, tt := range []struct {
		scope string
		may   []string
		page  string
		wants map[string]bool
	}{
		{"cluster", []string{"access.read"}, "/access/machines", map[string]bool{"press-1": true, "join-1": true, "/rename": false, "/revoke": false, `name="uses"`: false, `href="/access/machines"`: true}},
		{"cluster", []string{"access.read", "cluster.operate"}, "/access/machines", map[string]bool{"/host-1/rename": true, "/host-1/revoke": true, "/join-1/revoke": true, `name="uses"`: true}},
		{"app:default", []string{"access.read"}, "/access/roles", map[string]bool{`href="/access/machines"`: false, `href="/access/sessions"`: true}},
	} {
		s := newSite(t, newFake().populate())
		s.fake.may, s.fake.scope = tt.may, tt.scope
		s.signIn(t)
		_, body := s.do(t, "GET", tt.page, nil)
		for text, want := range tt.wants {
			if strings.Contains(body, text) != want {
				t.Errorf("%v in %s: %q is on %s: %t", tt.may, tt.scope, text, tt.page, !want)
			}
		}
	}
}

// TestManyMachines shows the first ones, and those before the others that need attention.
func TestManyMachines(t *testing.T) {
	f := newFake().populate()
	for i := range 3 * pageSize {
		f.machines = slices.Insert(f.machines, 0, &apiv1.Certificate{Id: fmt.Sprintf("host-a%04d", i), Kind: "host", Name: fmt.Sprintf("a%04d", i), RenewedAt: timestamppb.Now(), ExpiresAt: timestamppb.New(time.Now().Add(time.Hour))})
	}
	_, body := newSite(t, f).signIn(t).do(t, "GET", "/access/machines", nil)
	last := -1
	for _, name := range []string{"north", "press-2", "a0000", "a0001"} {
		at := strings.Index(body, `<b class="break">`+name)
		if at <= last {
			t.Errorf("%s is at %d, after %d", name, at, last)
		}
		last = at
	}
	if want := fmt.Sprintf("The first %d of %d", pageSize, 3*pageSize+3); !strings.Contains(body, want) || strings.Count(body, `<b class="break">`) != pageSize {
		t.Errorf("there is no %q, or another number of rows: %d", want, strings.Count(body, `<b class="break">`))
	}
}

// TestCertificateState: a certificate is marked when less than a fifth of its life is left, when it has ended, and when
// its server was revoked.
func TestCertificateState(t *testing.T) {
	renewed := time.Unix(1_800_000_000, 0)
	m := &apiv1.Certificate{RenewedAt: timestamppb.New(renewed), ExpiresAt: timestamppb.New(renewed.Add(10 * time.Hour))}
	for after, want := range map[time.Duration]string{
		0: certificateValid, 8 * time.Hour: certificateValid, 8*time.Hour + 1: certificateEnds, 10*time.Hour - 1: certificateEnds, 10 * time.Hour: certificateEnded, 90 * time.Hour: certificateEnded,
	} {
		if got := certificateState(m, renewed.Add(after)); got != want {
			t.Errorf("after %v: %s, want %s", after, got, want)
		}
	}
	m = &apiv1.Certificate{Kind: "server", RenewedAt: timestamppb.New(renewed), ExpiresAt: timestamppb.New(renewed.Add(24 * time.Hour)), RevokedAt: timestamppb.New(renewed)}
	if got := certificateState(m, renewed); got != certificateRevoked {
		t.Errorf("a revoked server is %s", got)
	}
}
