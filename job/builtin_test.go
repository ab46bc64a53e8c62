package job

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func TestCheckBuiltin(t *testing.T) {
	call := func(change func(*apiv1.HTTPCall)) *apiv1.Handler {
		c := &apiv1.HTTPCall{Url: "https://api.example.com/orders/${input.id}?q=${json(input.q)}"}
		change(c)
		return &apiv1.Handler{Name: "builtin:http", Http: c}
	}
	for _, tt := range []struct {
		h    *apiv1.Handler
		want string // part of the error; "": none
	}{
		{call(func(*apiv1.HTTPCall) {}), ""},
		{call(func(c *apiv1.HTTPCall) {
			c.Method, c.Headers, c.Body, c.Expect, c.Timeout = "post", map[string]string{"X-Id": "${input}"}, "{$${}", []string{"2xx", "404", "301-302"}, "1m"
		}), ""},
		{&apiv1.Handler{Name: "builtin:http"}, "handler.http.url is missing"},
		{call(func(c *apiv1.HTTPCall) { c.Method = "BREW" }), "is not one of GET"},
		{call(func(c *apiv1.HTTPCall) { c.Url = "${input}" }), "reference in its scheme or host"},
		{call(func(c *apiv1.HTTPCall) { c.Url = "https://${input.host}/" }), "reference in its scheme or host"},
		{call(func(c *apiv1.HTTPCall) { c.Url = "https://api.example.com${input}" }), "reference in its scheme or host"},
		{call(func(c *apiv1.HTTPCall) { c.Url = "file:///etc/passwd" }), "is not an address"},
		{call(func(c *apiv1.HTTPCall) { c.Url = "https:///path" }), "is not an address"},
		{call(func(c *apiv1.HTTPCall) { c.Url = "https://a:b@example.com/" }), "name or a password"},
		{call(func(c *apiv1.HTTPCall) { c.Url = "https://example.com/" + strings.Repeat("x", maxURL) }), "longer than"},
		{call(func(c *apiv1.HTTPCall) { c.Url = "https://example.com/${nodes.a.output}" }), "refers to a node of a workflow"},
		{call(func(c *apiv1.HTTPCall) {
			c.Headers, c.Body = map[string]string{"Authorization": "Bearer ${secret.api-token}"}, "${json(secret.a.b_c)}${secret.x}"
		}), ""},
		{call(func(c *apiv1.HTTPCall) { c.Url = "https://example.com/?key=${secret.x}" }), "names a secret, but logs contain addresses"},
		{call(func(c *apiv1.HTTPCall) { c.Url = "https://example.com/${ json(secret.x) }" }), "handler.http.url"},
		{call(func(c *apiv1.HTTPCall) { c.Body = "${secret.}" }), "the secret in ${secret.} is missing"},
		{call(func(c *apiv1.HTTPCall) { c.Body = "${secret.a b}" }), "is not a name"},
		{call(func(c *apiv1.HTTPCall) { c.Headers = map[string]string{"A": "${secret}"} }), "handler.http.headers"},
		{call(func(c *apiv1.HTTPCall) { c.Headers = map[string]string{"A B": "x"} }), "is not the name of a header"},
		{call(func(c *apiv1.HTTPCall) { c.Headers = map[string]string{"A": "x\r\nB: y"} }), "line break"},
		{call(func(c *apiv1.HTTPCall) { c.Headers = map[string]string{"A": "${input"} }), "no closing bracket"},
		{call(func(c *apiv1.HTTPCall) { c.Body = "${output}" }), "handler.http.body"},
		{call(func(c *apiv1.HTTPCall) { c.Body = strings.Repeat("x", MaxInput+1) }), "the limit is"},
		{call(func(c *apiv1.HTTPCall) { c.Expect = []string{"ok"} }), "is not a status"},
		{call(func(c *apiv1.HTTPCall) { c.Expect = []string{"299-200"} }), "is not a status"},
		{call(func(c *apiv1.HTTPCall) { c.Expect = []string{"0200"} }), "is not a status"},
		{call(func(c *apiv1.HTTPCall) { c.Expect = []string{"6xx"} }), "is not a status"},
		{call(func(c *apiv1.HTTPCall) { c.Timeout = "25h" }), "is not a duration"},
		{&apiv1.Handler{Name: "builtin:exec", Command: "backup"}, ""},
		{&apiv1.Handler{Name: "builtin:exec"}, "handler.command is missing"},
		{&apiv1.Handler{Name: "builtin:exec", Command: "/bin/sh -c x"}, "is not a name"},
		{&apiv1.Handler{Name: "plugin:a/b"}, ""},
		{&apiv1.Handler{Name: "plugin:a/b", Command: "x"}, "goes with the handler builtin:exec only"},
		{&apiv1.Handler{Module: "m@1", Http: &apiv1.HTTPCall{}}, "goes with the handler builtin:http only"},
		{&apiv1.Handler{Module: "m@1", Command: "x"}, "goes with the handler builtin:exec only"},
	} {
		err := Validate(&apiv1.Job{Name: "j", Handler: tt.h})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v: %v", tt.h, err)
		}
	}
}

func TestNeedsOfCommands(t *testing.T) {
	for want, h := range map[string]*apiv1.Handler{
		"builtin:http":        {Name: "builtin:http", Http: &apiv1.HTTPCall{}},
		"builtin:exec/backup": {Name: "builtin:exec", Command: "backup"},
		"plugin:images":       {Name: "plugin:images/resize"},
	} {
		if got := needsOf(&apiv1.Job{Handler: h}); got != want {
			t.Errorf("%v needs %q, want %q", h, got, want)
		}
	}
	a := NewAbilities([]string{"wasi-p1", "builtin:exec", "builtin:exec/backup"})
	if !a.Has("builtin:exec/backup", "shop") || a.Has("builtin:exec/restore", "shop") || a.Has("builtin:http", "shop") || !a.Has("", "shop") {
		t.Errorf("abilities: %+v", a)
	}
}

func TestFillRequest(t *testing.T) {
	const input = `{"id":"a/b?c&d","n":7,"name":"O'Neill \"x\"","o":{"k":[1]},"dots":"..","line":"a\r\nB: c"}`
	for _, tt := range []struct {
		name string
		call *apiv1.HTTPCall
		in   string
		want Request
		err  string
	}{
		{"default", &apiv1.HTTPCall{Url: "https://a.example/x"}, "", Request{Method: "GET", URL: "https://a.example/x"}, ""},
		{"with an input", &apiv1.HTTPCall{Url: "https://a.example/x"}, "hi", Request{Method: "POST", URL: "https://a.example/x", Body: []byte("hi")}, ""},
		{"get has no body of itself", &apiv1.HTTPCall{Method: "GET", Url: "https://a.example/${input}"}, "h i", Request{Method: "GET", URL: "https://a.example/h%20i"}, ""},
		{
			"escaped", &apiv1.HTTPCall{Method: "DELETE", Url: "https://a.example/${input.id}/${input.n}?q=${input.name}#f", Body: "x"}, input,
			Request{Method: "DELETE", URL: "https://a.example/a%2Fb%3Fc%26d/7?q=O%27Neill%20%22x%22#f", Body: []byte("x")},
			"",
		},
		{
			"texts", &apiv1.HTTPCall{Url: "https://a.example/", Headers: map[string]string{"X": "n=${input.n}"}, Body: `{"name":${json(input.name)},"o":${input.o},"c":"$${"}`}, input,
			Request{Method: "POST", URL: "https://a.example/", Headers: map[string]string{"X": "n=7"}, Body: []byte(`{"name":"O'Neill \"x\"","o":{"k":[1]},"c":"${"}`)},
			"",
		},
		{"no such field", &apiv1.HTTPCall{Url: "https://a.example/", Body: "${input.zip}"}, input, Request{}, "body: "},
		{"no JSON", &apiv1.HTTPCall{Url: "https://a.example/", Body: "${input.zip}"}, "plain", Request{}, "body: "},
		{"climbs", &apiv1.HTTPCall{Url: "https://a.example/x/${input.dots}/y"}, input, Request{}, "change the path of the address"},
		{"empty segment", &apiv1.HTTPCall{Url: "https://a.example/x/${input}/y"}, "", Request{}, "change the path of the address"},
		{"a header is smuggled in", &apiv1.HTTPCall{Url: "https://a.example/", Headers: map[string]string{"X": "${input.line}"}}, input, Request{}, "line break"},
		{"never checked", &apiv1.HTTPCall{Url: "https://${input}/"}, "evil.example", Request{}, "reference in its scheme or host"},
		{"nothing", nil, "", Request{}, "is not an address"},
	} {
		got, err := FillRequest(tt.call, []byte(tt.in), noSecret)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %+v, %v", tt.name, got, err)
			}
			continue
		}
		if err != nil || got.Method != tt.want.Method || got.URL != tt.want.URL || string(got.Body) != string(tt.want.Body) ||
			len(tt.want.Headers) > 0 && !maps.Equal(got.Headers, tt.want.Headers) || got.Timeout != 30*time.Second || !slices.Equal(got.Expect, [][2]int{{200, 299}}) {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
}

// TestFillSecrets checks that secrets are only where the definition has them, and never
// in an error.
func TestFillSecrets(t *testing.T) {
	values := map[string]string{"token": "t0k${secret.other}", "quoted": `a"b`, "broken": "l1ne\nbreak"}
	var asked []string
	find := func(name string) ([]byte, error) {
		asked = append(asked, name)
		if v, ok := values[name]; ok {
			return []byte(v), nil
		}
		return nil, errors.New("there is none")
	}
	c := &apiv1.HTTPCall{
		Url: "https://a.example/${input.id}", Body: `{"k":${json(secret.quoted)},"in":${json(input.text)},"plain":"$${secret.token}"}`,
		Headers: map[string]string{"Authorization": "Bearer ${secret.token}", "X-Input": "${input.text}", "X-Two": "${secret.quoted}${secret.token}"},
	}
	if got := secretsOf(c); !slices.Equal(got, []string{"quoted", "token"}) {
		t.Errorf("it names %q", got)
	}
	r, err := FillRequest(c, []byte(`{"id":"${secret.token}","text":"${secret.token} {{secret:token}}"}`), find)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Authorization": "Bearer t0k${secret.other}", "X-Input": "${secret.token} {{secret:token}}", "X-Two": `a"bt0k${secret.other}`}
	if !maps.Equal(r.Headers, want) || !slices.Equal(r.Secret, []string{"Authorization", "X-Two"}) || !r.SecretBody {
		t.Errorf("headers %q, of which %q and the body (%v) hold secrets", r.Headers, r.Secret, r.SecretBody)
	}
	if want := `{"k":"a\"b","in":"${secret.token} {{secret:token}}","plain":"${secret.token}"}`; string(r.Body) != want || r.URL != "https://a.example/%24%7Bsecret.token%7D" {
		t.Errorf("body %s, address %s", r.Body, r.URL)
	}
	if !slices.Equal(asked, []string{"token", "quoted", "token", "quoted"}) {
		t.Errorf("asked for %q", asked)
	}
	for _, c := range []*apiv1.HTTPCall{
		{Url: "https://a.example/", Body: "${secret.none}"},
		{Url: "https://a.example/", Headers: map[string]string{"X": "${secret.broken}"}},
		{Url: "https://a.example/?${secret.token}"},
	} {
		if r, err := FillRequest(c, nil, find); err == nil || strings.Contains(err.Error(), "l1ne") || strings.Contains(err.Error(), "t0k") {
			t.Errorf("%v: %+v, %v", c, r, err)
		}
	}
	var missing *SecretError
	if _, err := FillRequest(&apiv1.HTTPCall{Url: "https://a.example/", Body: "${secret.none}"}, nil, find); !errors.As(err, &missing) || missing.Name != "none" {
		t.Errorf("a secret that is not there: %v", err)
	}
	if r, err := FillRequest(&apiv1.HTTPCall{Url: "https://a.example/"}, []byte("${secret.token}"), find); err != nil || r.SecretBody || string(r.Body) != "${secret.token}" {
		t.Errorf("an input that looks like one: %+v, %v", r, err)
	}
}

// TestGrantsOfRequests checks that a request gets only secrets that it names and that are
// granted, and goes only to servers that are granted.
func TestGrantsOfRequests(t *testing.T) {
	c := &apiv1.HTTPCall{Url: "https://a.example/", Body: "${secret.a}${secret.b}"}
	hosts := []*apiv1.HttpGrant{{Host: "a.example", Methods: []string{"POST"}}}
	for _, tt := range []struct {
		given *apiv1.Grants
		want  []string
	}{
		{nil, nil},
		{&apiv1.Grants{Http: hosts}, nil},
		{&apiv1.Grants{Http: hosts, Secrets: []string{"c"}}, nil},
		{&apiv1.Grants{Http: hosts, Secrets: []string{"b", "c"}}, []string{"b"}},
		{&apiv1.Grants{Http: hosts, Secrets: []string{"a", "b", "c"}}, []string{"a", "b"}},
	} {
		g := HTTPGrants(c, tt.given)
		if !slices.Equal(g.GetSecrets(), tt.want) || len(tt.want) > 0 != (len(g.GetHttp()) == 1) {
			t.Errorf("granted %v: %v", tt.given, g)
		}
	}
	for _, tt := range []struct {
		module string
		g      *apiv1.Grants
		want   string
	}{
		{"totals", &apiv1.Grants{Secrets: []string{"a"}}, ""},
		{HTTPModule, nil, ""},
		{HTTPModule, &apiv1.Grants{Http: hosts, Secrets: []string{"a"}}, ""},
		{HTTPModule, &apiv1.Grants{Secrets: []string{"a"}}, "name the servers"},
		{HTTPModule, &apiv1.Grants{Http: hosts, Enqueue: []string{"*"}}, "only secrets"},
		{"builtin:exec", nil, "is not a name"},
	} {
		if err := CheckGranted(tt.module, tt.g); tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s is granted %v: %v", tt.module, tt.g, err)
		}
	}
}

func noSecret(string) ([]byte, error) { return nil, errors.New("there is none") }

// FuzzFillRequest checks that no input changes the server to which the request goes.
func FuzzFillRequest(f *testing.F) {
	f.Add("https://a.example/${input}?x=${input}", "../../@evil.example#\\")
	f.Add("https://a.example?x=${json(input)}", "\x00\xff")
	f.Add("https://a.example/${input.a}/${input.b.c}", `{"a":"../x","b":{"c":"@b.example"}}`)
	f.Fuzz(func(t *testing.T, address, input string) {
		r, err := FillRequest(&apiv1.HTTPCall{Url: address}, []byte(input), noSecret)
		if err != nil {
			return
		}
		host := func(s string) string {
			_, rest, _ := strings.Cut(s, "://")
			return rest[:max(0, strings.IndexAny(rest+"/", "/?#"))]
		}
		if host(r.URL) != host(address) {
			t.Errorf("%q with %q leads to %q", address, input, r.URL)
		}
	})
}
