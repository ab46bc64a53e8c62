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
	"github.com/wheelworkhq/wheelwork/job/naming"
)

// maxGrants bounds the entries of each capability.
const maxGrants = 100

// Grants returns the grants of a module, or nil. The caller does not modify them.
func (s *Slot) Grants(module string) *apiv1.ModuleGrants { return s.guests.grants[module] }

// Granted calls fn for each module with grants, in no order.
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
		revise(s, KindGrants, m.Module, s.guests.grants[m.Module], nil)
		delete(s.guests.grants, m.Module)
		return s.changed(fx, rowGrants, m.Module, nil)
	}
	revise(s, KindGrants, m.Module, s.guests.grants[m.Module], m)
	set(&s.guests.grants, m.Module, m)
	return s.changed(fx, rowGrants, m.Module, m)
}

// Nothing reports whether grants allow nothing.
func Nothing(g *apiv1.Grants) bool {
	return len(g.GetHttp())+len(g.GetKv())+len(g.GetSecrets())+len(g.GetEnqueue())+len(g.GetFiles()) == 0
}

// CheckGrants returns an error if grants are invalid, and brings them into the canonical
// order and form.
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
		if err := naming.Check("kv: bucket", b.GetName()); err != nil {
			return err
		}
	}
	for _, name := range g.GetSecrets() {
		if err := naming.Check("secrets: secret", name); err != nil {
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

// HTTPModule is the name to which an app grants the secrets for requests of builtin:http.
// It is not a valid name of a module.
const HTTPModule = "builtin:http"

// CheckGranted checks the name to which g is granted, together with g.
func CheckGranted(module string, g *apiv1.Grants) error {
	if module != HTTPModule {
		return naming.Check("module", module)
	}
	switch {
	case len(g.GetKv())+len(g.GetEnqueue())+len(g.GetFiles()) > 0:
		return fmt.Errorf("%s can be granted only secrets and the servers that receive them", HTTPModule)
	case len(g.GetSecrets()) > 0 && len(g.GetHttp()) == 0:
		return fmt.Errorf("every author of a job decides where %s sends a secret: name the servers that may receive it, as --http 'api.example.com methods=POST'", HTTPModule)
	}
	return nil
}

// HTTPGrants returns the grants of a request of builtin:http: the secrets that the
// request names and that are granted, and the servers that may receive them. It returns
// nil if there are no such secrets.
func HTTPGrants(c *apiv1.HTTPCall, granted *apiv1.Grants) *apiv1.Grants {
	g := &apiv1.Grants{Http: granted.GetHttp()}
	for _, name := range secretsOf(c) {
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
		return fmt.Errorf("%q is not a host: write an IPv6 address in brackets", h.Host)
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

// splitHost splits the host of a grant into its name and its port; "" if it has no port.
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
		app, name = naming.DefaultApp, target
	}
	if err := naming.Check("app", app); err != nil {
		return err
	}
	return naming.Check("job", name)
}

func checkFile(f *apiv1.FileGrant) error {
	switch {
	case f.GetMount() == "" || len(f.Mount) > 1024 || strings.ContainsRune(f.Mount, 0) || slices.Contains(strings.Split(f.Mount, "/"), ".."):
		return fmt.Errorf("mount %q is not a path of a program without .. in it, such as /, . or /tmp", f.Mount)
	case f.Bytes < 0:
		return fmt.Errorf("mount %s: the quota is negative", f.Mount)
	case f.Dir != "":
		return naming.Check("directory", f.Dir)
	}
	return nil
}

// Effective returns the capabilities that are both requested and granted; nil: none.
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

// quota is the number of bytes that may be written to a mount, by default 16 MiB.
func quota(f *apiv1.FileGrant) int64 { return cmp.Or(f.Bytes, 16<<20) }

// bothHTTP returns what two grants have in common; nil: nothing. The host checks requests
// against the result, so both must interpret a grant in the same way.
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
		h.Paths = append(slices.Clone(a.Paths), b.Paths...) // a grant without paths allows all
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

// under reports whether p equals a prefix or is below it: "/v1" covers "/v1" and "/v1/a",
// but not "/v10".
func under(prefix, p string) bool {
	rest, ok := strings.CutPrefix(p, prefix)
	return ok && (rest == "" || strings.HasSuffix(prefix, "/") || rest[0] == '/')
}

// narrowerHost returns the pattern that the other one covers. A pattern without a port
// covers ports 80 and 443 of its names.
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

// holdsHost reports whether the outer pattern covers every name of the inner one.
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

// bothTargets returns the jobs that both lists cover. "*" covers every job of the
// module's own app, whose names have no "app/" in front.
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

// MayEnqueue reports whether the grants of a module in the app home allow it to enqueue
// the job name of app.
func MayEnqueue(g *apiv1.Grants, home, app, name string) bool {
	targets := g.GetEnqueue()
	if slices.Contains(targets, app+"/"+name) {
		return true
	}
	return app == home && (slices.Contains(targets, name) || slices.Contains(targets, "*"))
}

// MayUse reports whether grants allow to read a bucket, or to write to it.
func MayUse(g *apiv1.Grants, bucket string, write bool) bool {
	return slices.ContainsFunc(g.GetKv(), func(b *apiv1.BucketGrant) bool { return b.Name == bucket && (b.Write || !write) })
}

// MayKnow reports whether grants allow to use a secret.
func MayKnow(g *apiv1.Grants, name string) bool { return slices.Contains(g.GetSecrets(), name) }

// EncodeGrants returns grants in the encoding of a task; nil if they allow nothing.
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
