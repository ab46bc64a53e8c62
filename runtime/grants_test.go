package runtime

import (
	"net/url"
	"testing"
)

func TestHTTPGrantCovers(t *testing.T) {
	for _, tt := range []struct {
		grant  HTTPGrant
		method string
		url    string
		want   bool
	}{
		{HTTPGrant{Host: "a.example"}, "GET", "https://a.example/x", true},
		{HTTPGrant{Host: "a.example"}, "HEAD", "http://A.EXAMPLE.", true},
		{HTTPGrant{Host: "a.example"}, "POST", "https://a.example/x", false},
		{HTTPGrant{Host: "a.example"}, "get", "https://a.example/x", false},
		{HTTPGrant{Host: "a.example", Methods: []string{"POST"}}, "POST", "https://a.example/x", true},
		{HTTPGrant{Host: "a.example", Methods: []string{"POST"}}, "GET", "https://a.example/x", false},
		{HTTPGrant{Host: "a.example"}, "GET", "https://a.example:443/", true},
		{HTTPGrant{Host: "a.example"}, "GET", "http://a.example:443/", true},
		{HTTPGrant{Host: "a.example"}, "GET", "https://a.example:8443/", false},
		{HTTPGrant{Host: "a.example:8443"}, "GET", "https://a.example:8443/", true},
		{HTTPGrant{Host: "a.example:8443"}, "GET", "https://a.example/", false},
		{HTTPGrant{Host: "a.example:80"}, "GET", "http://a.example/", true},
		{HTTPGrant{Host: "a.example:80"}, "GET", "https://a.example/", false},
		{HTTPGrant{Host: "a.example"}, "GET", "https://b.a.example/", false},
		{HTTPGrant{Host: "a.example"}, "GET", "https://xa.example/", false},
		{HTTPGrant{Host: "*.a.example"}, "GET", "https://c.b.a.example/", true},
		{HTTPGrant{Host: "*.a.example"}, "GET", "https://a.example/", false},
		{HTTPGrant{Host: "*.a.example"}, "GET", "https://xa.example/", false},
		{HTTPGrant{Host: "*."}, "GET", "https://x./", false},
		{HTTPGrant{Host: ""}, "GET", "https:///x", false},
		{HTTPGrant{Host: "a.example"}, "GET", "https://a.example@b.example/", false},
		{HTTPGrant{Host: "a.example"}, "GET", "https://u:p@a.example/", false},
		{HTTPGrant{Host: "a.example"}, "GET", "ftp://a.example/", false},
		{HTTPGrant{Host: "a.example"}, "GET", "https:a.example", false},
		{HTTPGrant{Host: "[::1]:80"}, "GET", "http://[::1]/", true},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", "https://a.example/v1", true},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", "https://a.example/v1/x?q=/..", true},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", "https://a.example/v10", false},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1/"}}, "GET", "https://a.example/v1/x", true},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1/"}}, "GET", "https://a.example/v1", false},
		{HTTPGrant{Host: "a.example", Paths: []string{"/"}}, "GET", "https://a.example", true},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", "https://a.example/v1/../admin", false},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", "https://a.example/v1/%2e%2e/admin", false},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", "https://a.example/v1/..%2fadmin", false},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", "https://a.example/v1/%252e%252e/admin", false},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", "https://a.example/v1/..;x/admin", false},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1/x"}}, "GET", "https://a.example/v1%2fx", false},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", "https://a.example/v1/a%2Fb", false},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", "https://a.example/v1/a%20b%C3%A9", true},
		{HTTPGrant{Host: "a.example"}, "GET", "https://a.example/v1%2fx", true},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", `https://a.example/v1/..%5cadmin`, false},
		{HTTPGrant{Host: "a.example", Paths: []string{"/v1"}}, "GET", "https://a.example//v1", false},
	} {
		u, err := url.Parse(tt.url)
		if err != nil {
			t.Fatal(err)
		}
		g := &Grants{HTTP: []HTTPGrant{{Host: "other.example"}, tt.grant}}
		if got := g.Request(tt.method, u) != nil; got != tt.want {
			t.Errorf("%+v covers %s %s: %v, want %v", tt.grant, tt.method, tt.url, got, tt.want)
		}
	}
}

func TestGrantsOfNothing(t *testing.T) {
	u := &url.URL{Scheme: "https", Host: "a.example"}
	for _, g := range []*Grants{nil, {}} {
		if g.Request("GET", u) != nil || g.Bucket("b", false) || g.Secret("s") || g.Target("a", "", "j") {
			t.Errorf("%v allows something", g)
		}
	}
}

func TestGrants(t *testing.T) {
	g := &Grants{KV: []Bucket{{"read", false}, {"both", true}}, Secrets: []string{"S"}, Enqueue: []string{"settle", "other/job"}}
	all := &Grants{Enqueue: []string{"*"}}
	for name, allowed := range map[string]bool{
		"read a bucket":       g.Bucket("read", false),
		"write a bucket":      g.Bucket("both", true),
		"read what it writes": g.Bucket("both", false),
		"a secret":            g.Secret("S"),
		"a job":               g.Target("home", "", "settle"),
		"a job by its app":    g.Target("home", "home", "settle"),
		"a job elsewhere":     g.Target("home", "other", "job"),
		"any job":             all.Target("home", "", "x"),
	} {
		if !allowed {
			t.Errorf("%s is not allowed", name)
		}
	}
	for name, allowed := range map[string]bool{
		"writing what is read only": g.Bucket("read", true),
		"another bucket":            g.Bucket("none", false),
		"another secret":            g.Secret("s"),
		"another job":               g.Target("home", "", "job"),
		"the job of another app":    g.Target("home", "other", "settle"),
		"any job elsewhere":         all.Target("home", "other", "x"),
		"no job":                    all.Target("home", "", ""),
	} {
		if allowed {
			t.Errorf("%s is allowed", name)
		}
	}
}
