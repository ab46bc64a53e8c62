package runtime

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
)

// DefaultFileBytes is the quota of a FileGrant whose Bytes are 0.
const DefaultFileBytes = 16 << 20

// Request returns the grant that covers a request of the method to the URL, or nil. It
// checks the URL as written and does not resolve names: the dialer must check the address
// as well.
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

// MethodsFor returns the methods that the grants allow for the URL.
func (g *Grants) MethodsFor(u *url.URL) (methods []string) {
	if g == nil || u == nil {
		return nil
	}
	for _, h := range g.HTTP {
		if h.allowsHost(u) && h.allowsPath(u) {
			methods = append(methods, h.methods()...)
		}
	}
	slices.Sort(methods)
	return slices.Compact(methods)
}

// Bucket reports whether the grants allow reading, or writing, the bucket.
func (g *Grants) Bucket(name string, write bool) bool {
	return g != nil && slices.ContainsFunc(g.KV, func(b Bucket) bool { return b.Name == name && (b.Write || !write) })
}

// Secret reports whether the grants allow reading the secret.
func (g *Grants) Secret(name string) bool { return g != nil && slices.Contains(g.Secrets, name) }

// Target reports whether the grants allow triggering runs of a job. app is the app of the
// job and home the app of the task; an empty app means home.
func (g *Grants) Target(home, app, job string) bool {
	if g == nil || job == "" {
		return false
	}
	if app != "" && app != home {
		return slices.Contains(g.Enqueue, app+"/"+job)
	}
	return slices.Contains(g.Enqueue, "*") || slices.Contains(g.Enqueue, job) || slices.Contains(g.Enqueue, home+"/"+job)
}

// Quota returns the number of bytes that the task may write.
func (f FileGrant) Quota() int64 { return cmp.Or(f.Bytes, DefaultFileBytes) }

// Covers reports whether the grant allows a request of the method to the URL.
func (h HTTPGrant) Covers(method string, u *url.URL) bool {
	return h.allowsMethod(method) && h.allowsHost(u) && h.allowsPath(u)
}

// methods returns the allowed methods; the default is GET and HEAD.
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

// plainHost normalises a host name to the form in grants: lower case, without a trailing
// dot.
func plainHost(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// splitHost splits the host of a grant into name and port. The port is "" if the grant
// has none.
func splitHost(host string) (name, port string) {
	u := url.URL{Host: host}
	return plainHost(u.Hostname()), u.Port()
}

// hostMatches reports whether a name matches a pattern. "*.example.com" matches every
// name below example.com, but not example.com.
func hostMatches(pattern, name string) bool {
	if below, ok := strings.CutPrefix(pattern, "*."); ok {
		return below != "" && strings.HasSuffix(name, "."+below)
	}
	return pattern != "" && pattern == name
}

// allowsPath reports whether the grant covers the path. It refuses every path that
// servers may interpret in different ways.
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

// encodesSlash reports whether an escaped path contains an escaped slash or backslash.
// Some servers treat it as a separator and some do not.
func encodesSlash(escaped string) bool {
	lower := strings.ToLower(escaped)
	return strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c")
}

// ambiguous reports whether a decoded path contains sequences that some servers resolve
// or decode again, and others do not.
func ambiguous(p string) bool {
	lower := strings.ToLower(p)
	for _, s := range []string{"%2e", "%2f", "%5c", "\\", "//", "\x00"} {
		if strings.Contains(lower, s) {
			return true
		}
	}
	return slices.ContainsFunc(strings.Split(p, "/"), func(s string) bool {
		s, _, _ = strings.Cut(s, ";") // some servers treat /..;x/ as /../
		return s == "." || s == ".."
	})
}

// pathUnder reports whether a path equals the prefix or is below it: "/v1" covers "/v1"
// and "/v1/a", but not "/v10".
func pathUnder(prefix, p string) bool {
	rest, ok := strings.CutPrefix(p, prefix)
	return ok && (rest == "" || strings.HasSuffix(prefix, "/") || rest[0] == '/')
}
