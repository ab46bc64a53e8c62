package node_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestConsolePagesOfAServer opens the pages for operators of a server with a host and a module, and makes
// changes there. The pages themselves are tested in console.
func TestConsolePagesOfAServer(t *testing.T) {
	p := dev(t, node.DevConfig{Data: t.TempDir(), Sample: true})
	conn, api := dial(t, p, p.Token)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	read := func(resp *http.Response, err error) (int, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // only read
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	shows := func(code int, body string, want int, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if code != want || !strings.Contains(body, text) {
				t.Fatalf("status %d, want %d with %s in\n%s", code, want, text, body)
			}
		}
	}
	get := func(path string, texts ...string) string {
		t.Helper()
		code, body := read(client.Get(p.URL + path))
		shows(code, body, http.StatusOK, append(texts, "Sign out")...)
		return body
	}
	post := func(path string, form url.Values, want int, texts ...string) {
		t.Helper()
		code, body := read(client.PostForm(p.URL+path, form))
		shows(code, body, want, texts...)
	}
	hidden := func(body, name string) string {
		t.Helper()
		m := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(body)
		if m == nil {
			t.Fatalf("the page has no %s:\n%s", name, body)
		}
		return m[1]
	}
	read(client.Get(p.LoginURL))

	modules, err := apiv1.NewModulesClient(conn).ListModules(api, &apiv1.ListModulesRequest{})
	if err != nil || len(modules.Modules) == 0 {
		t.Fatalf("modules: %v, %v", modules, err)
	}
	m := modules.Modules[0]
	const module = "/apps/default/modules/"
	get(module+m.Name, m.Version, "Hosts that have it ready:")
	get(module+m.Name+"/jobs", "of these use the module:")
	post(module+m.Name+"/aliases", url.Values{"alias": {"prod"}, "version": {m.Version}}, http.StatusOK, "Set: prod", m.Name+"@prod")
	body := get(module+m.Name, "kind: Grant")
	post(module+m.Name+"/grants", url.Values{"revision": {hidden(body, "revision")}, "text": {"kind: Grant\nmodule: " + m.Name + "\ngrants: {secrets: [token]}\n"}}, http.StatusOK, "The grants are set.", "secret token")
	post(module+m.Name+"/versions/"+m.Version+"/delete", nil, http.StatusConflict, "alias "+m.Name+"@prod")
	code, bytes := read(client.Get(p.URL + module + m.Name + "/versions/" + m.Version + "/bytes"))
	if code != http.StatusOK || int64(len(bytes)) != m.Size {
		t.Errorf("the download is %d bytes with status %d, want %d", len(bytes), code, m.Size)
	}

	// A second version, which differs in a section without a meaning, goes on trial, is promoted, and rolled
	// back. It can be collected when the alias is gone.
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, p.URL+"/api/v1/apps/default/modules/"+m.Name+"/versions/next", strings.NewReader(bytes+"\x00\x05\x04test"))
	if err != nil {
		t.Fatal(err)
	}
	put.Header.Set("Authorization", "Bearer "+p.Token)
	if code, body := read(client.Do(put)); code != http.StatusCreated {
		t.Fatalf("push: %d %s", code, body)
	}
	prod := module + m.Name + "/aliases/prod"
	post(module+m.Name+"/aliases", url.Values{"alias": {"prod"}, "version": {m.Version}, "canary": {"next"}, "percent": {"5"}, "max_failure": {"2"}}, http.StatusOK, "Promote next to all runs")
	alias, err := apiv1.NewModulesClient(conn).GetAlias(api, &apiv1.GetAliasRequest{Module: m.Name, Name: "prod"})
	if err != nil || alias.Canary.GetMaxFailure() != 0.02 || alias.Revision < 2 {
		t.Fatalf("the alias is %v, %v", alias, err)
	}
	post(prod, url.Values{"do": {"promote"}, "revision": {"1"}}, http.StatusUnprocessableEntity, "another caller has changed the alias prod meanwhile")
	post(prod, url.Values{"do": {"share"}, "percent": {"50"}, "revision": {strconv.FormatInt(alias.Revision, 10)}}, http.StatusOK, "New share: prod · next · 50 %")
	post(prod, url.Values{"do": {"promote"}}, http.StatusOK, "Promoted: prod → next")
	post(prod, url.Values{"do": {"back"}}, http.StatusOK, "Rolled back: prod → "+m.Version)

	get("/apps/default/collect?age=0s", "Versions that go: 0") // the alias may go back to it
	post(prod+"/delete", nil, http.StatusOK, "Deleted: prod")
	get("/apps/default/collect?age=0s", "Versions that go: 1", m.Name+"@next")
	post("/apps/default/collect", url.Values{"age": {"0s"}}, http.StatusOK, "Collected: 1")

	hosts, err := apiv1.NewClusterClient(conn).ListHosts(api, &apiv1.ListHostsRequest{})
	if err != nil || len(hosts.Hosts) != 1 {
		t.Fatalf("hosts: %v, %v", hosts, err)
	}
	host := "/hosts/" + hosts.Hosts[0].Id
	get(host+"?modules=yes", m.Name+"@"+m.Version)
	post(host+"/cordon", url.Values{"reason": {"a new disk"}}, http.StatusOK, "Cordoned: ", "a new disk")
	get("/health", "Hosts get no new tasks", "The server is ready.")
	post(host+"/uncordon", nil, http.StatusOK, "Uncordoned: ")

	post("/apps/default/secrets", url.Values{"name": {"token"}, "value": {"hidden-text"}}, http.StatusOK, "Set: token · 1", module+m.Name)
	post("/apps/default/secrets/token/delete", nil, http.StatusOK, "Deleted: token")
	value := url.Values{"bucket": {"state"}, "key": {"a/b c"}, "value": {"1"}}
	post("/apps/default/values", value, http.StatusOK, "The value is stored.")
	value.Set("value", "2")
	post("/apps/default/values", value, http.StatusConflict, "Another caller has changed the value meanwhile", ">1</pre>")
	get("/apps/default/values", "1 B", "state")
	get("/apps/default/values/state", "a/b c")

	get("/queues", "journal", "Queues and their consumers")
	get("/queues/messages?log=journal", "Records of journal", "<details>")
	post("/apps", url.Values{"name": {"shop"}, "description": {"orders"}}, http.StatusOK, "Created: shop", "orders")
	post("/apps", url.Values{"name": {"shop"}}, http.StatusUnprocessableEntity, "app shop exists and has settings")
	post("/apps/shop/delete", nil, http.StatusOK, "Deleted: shop")
	post("/apps/default/delete", nil, http.StatusConflict, "Refused:")
	get("/cluster", "keeps its journal on its own disk")
	post("/cluster/split", url.Values{"name": {"default"}, "how": {"all"}}, http.StatusConflict, "Refused:")
}

// TestHostHasTheIDOfItsCertificate: the page of a host finds its certificate by its id.
func TestHostHasTheIDOfItsCertificate(t *testing.T) {
	t.Parallel()
	i := newInstallation(t, nil)
	i.host(node.HostConfig{Data: t.TempDir(), Name: "press", JoinToken: i.token(sdk.NewJoinToken{})})
	reaches(t, spread, "the host is up", func() bool { return len(up(t, i.c)) == 1 })
	hosts, err := i.c.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	joined, err := hostsWithCertificates(t, i.c)
	if err != nil || len(joined) != 1 || joined[0].GetId() != hosts[0].GetId() {
		t.Errorf("the certificates are of %v, the hosts are %v, %v", joined, hosts, err)
	}
}
