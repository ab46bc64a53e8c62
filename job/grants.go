package job

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// maxGrants bounds the entries of each kind.
const maxGrants = 100

// Grants returns what a module was granted, or nil. It is not to be written to.
func (s *Slot) Grants(module string) *apiv1.ModuleGrants { return s.guests.grants[module] }

// Granted calls fn for each module that was granted something, in no order.
func (s *Slot) Granted(fn func(*apiv1.ModuleGrants)) {
	for _, m := range s.guests.grants {
		fn(m)
	}
}

func (s *Slot) putGrants(m *apiv1.ModuleGrants, fx []Effect) []Effect {
	if Nothing(m.Grants) {
		if s.guests.grants[m.Module] == nil {
			return fx
		}
		delete(s.guests.grants, m.Module)
		return s.changed(fx, rowGrants, m.Module, nil)
	}
	set(&s.guests.grants, m.Module, m)
	return s.changed(fx, rowGrants, m.Module, m)
}

// Nothing reports whether grants allow nothing.
func Nothing(g *apiv1.Grants) bool {
	return len(g.GetHttp())+len(g.GetKv())+len(g.GetSecrets())+len(g.GetEnqueue())+len(g.GetFiles()) == 0
}

// CheckGrants says what is wrong with grants, and puts them into the one order
// and form that equal grants have.
func CheckGrants(g *apiv1.Grants) error {
	for _, n := range []struct {
		name string
		n    int
	}{{"http", len(g.GetHttp())}, {"kv", len(g.GetKv())}, {"secrets", len(g.GetSecrets())}, {"enqueue", len(g.GetEnqueue())}, {"files", len(g.GetFiles())}} {
		if n.n > maxGrants {
			return fmt.Errorf("%s has %d entries, the limit is %d", n.name, n.n, maxGrants)
		}
	}
	for _, h := range g.GetHttp() {
		if err := checkHTTPGrant(h); err != nil {
			return fmt.Errorf("http: %w", err)
		}
	}
	for _, b := range g.GetKv() {
		if err := CheckName("kv: bucket", b.GetName()); err != nil {
			return err
		}
	}
	for _, name := range g.GetSecrets() {
		if err := CheckName("secrets: secret", name); err != nil {
			return err
		}
	}
	for _, target := range g.GetEnqueue() {
		if err := checkTarget(target); err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
	}
	for _, f := range g.GetFiles() {
		if err := checkFile(f); err != nil {
			return fmt.Errorf("files: %w", err)
		}
	}
	if g == nil {
		return nil
	}
	byText := func(a, b string) int { return cmp.Compare(a, b) }
	slices.SortStableFunc(g.Http, func(a, b *apiv1.HttpGrant) int { return byText(a.Host, b.Host) })
	slices.SortStableFunc(g.Kv, func(a, b *apiv1.BucketGrant) int { return byText(a.Name, b.Name) })
	slices.SortFunc(g.Secrets, byText)
	slices.SortFunc(g.Enqueue, byText)
	slices.SortStableFunc(g.Files, func(a, b *apiv1.FileGrant) int { return byText(a.Mount, b.Mount) })
	g.Secrets, g.Enqueue = slices.Compact(g.Secrets), slices.Compact(g.Enqueue)
	return nil
}

// HTTPModule is the name under which an app grants what requests of builtin:http
// may be filled with. It cannot be that of a module.
const HTTPModule = "builtin:http"

// CheckGranted says what is wrong with the name that something is granted to.
func CheckGranted(module string, g *apiv1.Grants) error {
	if module != HTTPModule {
		return CheckName("module", module)
	}
	switch {
	case len(g.GetKv())+len(g.GetEnqueue())+len(g.GetFiles()) > 0:
		return fmt.Errorf("%s can be granted secrets and the servers that they may be sent to, and nothing else", HTTPModule)
	case len(g.GetSecrets()) > 0 && len(g.GetHttp()) == 0:
		return fmt.Errorf("whoever may define jobs decides where %s sends a secret: name the servers that may get it, as --http 'api.example.com methods=POST'", HTTPModule)
	}
	return nil
}

// HTTPGrants are what a request of builtin:http may be filled with: the secrets
// that it names and that were granted, and to whom they may be sent.
func HTTPGrants(c *apiv1.HTTPCall, granted *apiv1.Grants) *apiv1.Grants {
	g := &apiv1.Grants{Http: granted.GetHttp()}
	for _, name := range SecretsOf(c) {
		if MayKnow(granted, name) {
			g.Secrets = append(g.Secrets, name)
		}
	}
	if len(g.Secrets) == 0 {
		return nil
	}
	return g
}

func checkHTTPGrant(h *apiv1.HttpGrant) error {
	h.Host = strings.ToLower(h.GetHost())
	name, port := splitHost(h.Host)
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case port != "" && (err != nil || n == 0):
		return fmt.Errorf("host %q: %q is not a port", h.Host, port)
	case name == "" || len(name) > 253 || strings.ContainsAny(strings.TrimPrefix(name, "*."), "*/@?# %\\"):
		return fmt.Errorf("%q is not a host: write api.example.com, *.example.com or api.example.com:8443", h.Host)
	case strings.Contains(name, ":") && !isIPv6(name):
		return fmt.Errorf("%q is not a host: an IPv6 address stands in brackets", h.Host)
	}
	if len(h.Methods) > maxGrants || len(h.Paths) > maxGrants {
		return fmt.Errorf("host %s has more than %d methods or paths", h.Host, maxGrants)
	}
	for i, m := range h.Methods {
		if m == "" || len(m) > 20 || strings.ContainsFunc(m, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') }) {
			return fmt.Errorf("host %s: %q is not a method", h.Host, m)
		}
		h.Methods[i] = strings.ToUpper(m)
	}
	slices.Sort(h.Methods)
	h.Methods = slices.Compact(h.Methods)
	for _, p := range h.Paths {
		if !strings.HasPrefix(p, "/") || len(p) > 1024 {
			return fmt.Errorf("host %s: path %q does not begin with a slash", h.Host, p)
		}
	}
	return nil
}

func isIPv6(name string) bool {
	a, err := netip.ParseAddr(name)
	return err == nil && a.Is6()
}

// splitHost parts the host of a grant from its port, "" when it names none.
func splitHost(host string) (name, port string) {
	u := url.URL{Host: host}
	return strings.TrimSuffix(u.Hostname(), "."), u.Port()
}

func checkTarget(target string) error {
	if target == "*" {
		return nil
	}
	app, name, ok := strings.Cut(target, "/")
	if !ok {
		app, name = DefaultApp, target
	}
	if err := CheckName("app", app); err != nil {
		return err
	}
	return CheckName("job", name)
}

func checkFile(f *apiv1.FileGrant) error {
	switch {
	case !strings.HasPrefix(f.GetMount(), "/") || len(f.Mount) > 1024 || strings.ContainsRune(f.Mount, 0) || slices.Contains(strings.Split(f.Mount, "/"), ".."):
		return fmt.Errorf("mount %q is not a path from the root, as /tmp", f.Mount)
	case f.Bytes < 0:
		return fmt.Errorf("mount %s: the quota is negative", f.Mount)
	case f.Dir != "":
		return CheckName("directory", f.Dir)
	}
	return nil
}

// Effective returns what was both asked for and granted; nil: nothing.
func Effective(requested, granted *apiv1.Grants) *apiv1.Grants {
	e := &apiv1.Grants{}
	for _, r := range requested.GetHttp() {
		for _, g := range granted.GetHttp() {
			if h := bothHTTP(r, g); h != nil {
				e.Http = append(e.Http, h)
			}
		}
	}
	for _, r := range requested.GetKv() {
		for _, g := range granted.GetKv() {
			if r.Name == g.Name {
				e.Kv = append(e.Kv, &apiv1.BucketGrant{Name: r.Name, Write: r.Write && g.Write})
			}
		}
	}
	for _, name := range requested.GetSecrets() {
		if slices.Contains(granted.GetSecrets(), name) {
			e.Secrets = append(e.Secrets, name)
		}
	}
	e.Enqueue = bothTargets(requested.GetEnqueue(), granted.GetEnqueue())
	for _, r := range requested.GetFiles() {
		for _, g := range granted.GetFiles() {
			if r.Mount == g.Mount {
				f := &apiv1.FileGrant{Mount: r.Mount, Dir: g.Dir, Write: r.Write && g.Write, Bytes: min(quota(r), quota(g))}
				e.Files = append(e.Files, f)
			}
		}
	}
	if Nothing(e) {
		return nil
	}
	return e
}

// quota is what may be written to a mount.
func quota(f *apiv1.FileGrant) int64 { return cmp.Or(f.Bytes, 16<<20) }

// bothHTTP returns what two grants have in common; nil: nothing. It means the
// same as the host does, which holds a request against what it returns.
func bothHTTP(a, b *apiv1.HttpGrant) *apiv1.HttpGrant {
	h := &apiv1.HttpGrant{Private: a.Private && b.Private}
	ok := false
	if h.Host, ok = narrowerHost(a.Host, b.Host); !ok {
		return nil
	}
	for _, m := range methodsOf(a) {
		if slices.Contains(methodsOf(b), m) {
			h.Methods = append(h.Methods, m)
		}
	}
	if len(h.Methods) == 0 {
		return nil // an empty list would allow GET
	}
	if len(a.Paths) == 0 || len(b.Paths) == 0 {
		h.Paths = append(slices.Clone(a.Paths), b.Paths...) // one of them allows all
		return h
	}
	for _, p := range a.Paths {
		for _, q := range b.Paths {
			switch {
			case under(q, p):
				h.Paths = append(h.Paths, p)
			case under(p, q):
				h.Paths = append(h.Paths, q)
			}
		}
	}
	if len(h.Paths) == 0 {
		return nil // an empty list would allow all
	}
	return h
}

// under reports whether a path is a prefix itself or below it: "/v1" holds "/v1"
// and "/v1/a", not "/v10".
func under(prefix, p string) bool {
	rest, ok := strings.CutPrefix(p, prefix)
	return ok && (rest == "" || strings.HasSuffix(prefix, "/") || rest[0] == '/')
}

// narrowerHost returns the one of two patterns that the other one holds. Without
// a port a pattern holds the ports 80 and 443 of its names.
func narrowerHost(a, b string) (string, bool) {
	an, ap := splitHost(a)
	bn, bp := splitHost(b)
	port := ap
	switch {
	case ap == bp:
	case ap == "" && (bp == "80" || bp == "443"):
		port = bp
	case bp == "" && (ap == "80" || ap == "443"):
	default:
		return "", false
	}
	name := an
	switch {
	case an == bn || holdsHost(bn, an):
	case holdsHost(an, bn):
		name = bn
	default:
		return "", false
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if port != "" {
		name += ":" + port
	}
	return name, true
}

// holdsHost reports whether every name of the inner pattern is one of the outer.
func holdsHost(outer, inner string) bool {
	suffix, wild := strings.CutPrefix(outer, "*")
	return wild && strings.HasSuffix(inner, suffix) && inner != outer
}

func methodsOf(h *apiv1.HttpGrant) []string {
	if len(h.Methods) == 0 {
		return []string{"GET", "HEAD"}
	}
	return h.Methods
}

// bothTargets returns the jobs that both lists name. "*" holds every job of the
// app, which is written without it.
func bothTargets(a, b []string) []string {
	var both []string
	for _, pair := range [][2][]string{{a, b}, {b, a}} {
		for _, t := range pair[0] {
			if slices.Contains(pair[1], t) || !strings.Contains(t, "/") && slices.Contains(pair[1], "*") {
				both = append(both, t)
			}
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}

// MayEnqueue reports whether grants allow a module of the app home to enqueue a
// job of app.
func MayEnqueue(g *apiv1.Grants, home, app, name string) bool {
	targets := g.GetEnqueue()
	if slices.Contains(targets, app+"/"+name) {
		return true
	}
	return app == home && (slices.Contains(targets, name) || slices.Contains(targets, "*"))
}

// MayUse reports whether grants allow reading a bucket, or writing to it.
func MayUse(g *apiv1.Grants, bucket string, write bool) bool {
	return slices.ContainsFunc(g.GetKv(), func(b *apiv1.BucketGrant) bool { return b.Name == bucket && (b.Write || !write) })
}

// MayKnow reports whether grants allow a secret.
func MayKnow(g *apiv1.Grants, name string) bool { return slices.Contains(g.GetSecrets(), name) }

// EncodeGrants returns grants as a task carries them; nil: nothing.
func EncodeGrants(g *apiv1.Grants) []byte {
	if Nothing(g) {
		return nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(g)
	if err != nil {
		panic("job: grants that were checked do not encode: " + err.Error())
	}
	return b
}
