package runtime

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// DefaultFileBytes is the quota of a FileGrant that names none.
const DefaultFileBytes = 16 << 20

// Request returns the grant that covers a request of the method to the address,
// or nil. It judges what is written, not what the name resolves to: whoever
// dials looks at the address again.
func (g *Grants) Request(method string, u *url.URL) *HTTPGrant {
	if g == nil || u == nil {
		return nil
	}
	for i := range g.HTTP {
		if g.HTTP[i].Covers(method, u) {
			return &g.HTTP[i]
		}
	}
	return nil
}

// Bucket says whether the bucket may be read, or written.
func (g *Grants) Bucket(name string, write bool) bool {
	return g != nil && slices.ContainsFunc(g.KV, func(b Bucket) bool { return b.Name == name && (b.Write || !write) })
}

// Secret says whether the secret may be read.
func (g *Grants) Secret(name string) bool { return g != nil && slices.Contains(g.Secrets, name) }

// Target says whether runs of a job may be made. app is that of the job, home
// that of the task; "" stands for home.
func (g *Grants) Target(home, app, job string) bool {
	if g == nil || job == "" {
		return false
	}
	if app != "" && app != home {
		return slices.Contains(g.Enqueue, app+"/"+job)
	}
	return slices.Contains(g.Enqueue, "*") || slices.Contains(g.Enqueue, job) || slices.Contains(g.Enqueue, home+"/"+job)
}

// Quota is how many bytes may be written.
func (f FileGrant) Quota() int64 { return cmp.Or(f.Bytes, DefaultFileBytes) }

// Covers says whether the grant allows the method on the address.
func (h HTTPGrant) Covers(method string, u *url.URL) bool {
	return h.allowsMethod(method) && h.allowsHost(u) && h.allowsPath(u)
}

// methods are those that are allowed.
func (h HTTPGrant) methods() []string {
	if len(h.Methods) == 0 {
		return []string{"GET", "HEAD"}
	}
	return h.Methods
}

func (h HTTPGrant) allowsMethod(method string) bool { return slices.Contains(h.methods(), method) }

func (h HTTPGrant) allowsHost(u *url.URL) bool {
	if (u.Scheme != "http" && u.Scheme != "https") || u.User != nil || u.Opaque != "" {
		return false
	}
	name, port := splitHost(h.Host)
	if p := u.Port(); port == "" && p != "" && p != "80" && p != "443" || port != "" && port != cmp.Or(p, defaultPort(u.Scheme)) {
		return false
	}
	return hostMatches(name, plainHost(u.Hostname()))
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

// plainHost is a host's name as grants write it.
func plainHost(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// splitHost parts the host of a grant from its port, "" when it names none.
func splitHost(host string) (name, port string) {
	u := url.URL{Host: host}
	return plainHost(u.Hostname()), u.Port()
}

// hostMatches compares a name with a pattern; "*.example.com" is every name
// below example.com.
func hostMatches(pattern, name string) bool {
	if below, ok := strings.CutPrefix(pattern, "*."); ok {
		return below != "" && strings.HasSuffix(name, "."+below)
	}
	return pattern != "" && pattern == name
}

// allowsPath refuses a path that a server may read as another one.
func (h HTTPGrant) allowsPath(u *url.URL) bool {
	if len(h.Paths) == 0 {
		return true
	}
	p := cmp.Or(u.Path, "/")
	if ambiguous(p) || encodesSlash(u.EscapedPath()) {
		return false
	}
	return slices.ContainsFunc(h.Paths, func(prefix string) bool { return pathUnder(prefix, p) })
}

// encodesSlash says whether a path has a slash in it that is written as another
// character: some servers part the path there, and some do not.
func encodesSlash(escaped string) bool {
	lower := strings.ToLower(escaped)
	return strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c")
}

// ambiguous says whether a decoded path has what servers resolve, or decode
// once more, in different ways.
func ambiguous(p string) bool {
	lower := strings.ToLower(p)
	for _, s := range []string{"%2e", "%2f", "%5c", "\\", "//", "\x00"} {
		if strings.Contains(lower, s) {
			return true
		}
	}
	return slices.ContainsFunc(strings.Split(p, "/"), func(s string) bool {
		s, _, _ = strings.Cut(s, ";") // some servers take /..;x/ for /../
		return s == "." || s == ".."
	})
}

// pathUnder says whether a path is a prefix itself or below it: "/v1" holds
// "/v1" and "/v1/a", not "/v10".
func pathUnder(prefix, p string) bool {
	rest, ok := strings.CutPrefix(p, prefix)
	return ok && (rest == "" || strings.HasSuffix(prefix, "/") || rest[0] == '/')
}
