package job

import (
	"cmp"
	"fmt"
	"net"
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
		if err := checkHTTP(h); err != nil {
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

func checkHTTP(h *apiv1.HttpGrant) error {
	h.Host = strings.ToLower(h.GetHost())
	name, port := splitHost(h.Host)
	switch n, err := strconv.ParseUint(port, 10, 16); {
	case port != "" && (err != nil || n == 0):
		return fmt.Errorf("host %q: %q is not a port", h.Host, port)
	case name == "" || len(name) > 253 || strings.ContainsAny(strings.TrimPrefix(name, "*."), "*/@?# %\\"):
		return fmt.Errorf("%q is not a host: write api.example.com, *.example.com or api.example.com:8443", h.Host)
	case strings.Contains(name, ":") && net.ParseIP(strings.Trim(name, "[]")) == nil:
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

func splitHost(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return host, ""
}

func checkTarget(target string) error {
	app, name, ok := strings.Cut(target, "/")
	if !ok {
		app, name = DefaultApp, target
	}
	if err := CheckName("app", app); err != nil {
		return err
	}
	if name == "*" {
		return nil
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

// bothHTTP returns what two grants have in common; nil: nothing.
func bothHTTP(a, b *apiv1.HttpGrant) *apiv1.HttpGrant {
	h := &apiv1.HttpGrant{Private: a.Private && b.Private}
	switch {
	case a.Host == b.Host || within(a.Host, b.Host):
		h.Host = a.Host
	case within(b.Host, a.Host):
		h.Host = b.Host
	default:
		return nil
	}
	for _, m := range methods(a) {
		if slices.Contains(methods(b), m) {
			h.Methods = append(h.Methods, m)
		}
	}
	if len(h.Methods) == 0 {
		return nil
	}
	if len(a.Paths) == 0 || len(b.Paths) == 0 {
		h.Paths = append(slices.Clone(a.Paths), b.Paths...) // one of them allows all
		return h
	}
	for _, p := range a.Paths {
		for _, q := range b.Paths {
			switch {
			case strings.HasPrefix(p, q):
				h.Paths = append(h.Paths, p)
			case strings.HasPrefix(q, p):
				h.Paths = append(h.Paths, q)
			}
		}
	}
	if len(h.Paths) == 0 {
		return nil // no path at all, which an empty list would not say
	}
	return h
}

// within reports whether every host that the pattern a means is one of the
// pattern b.
func within(a, b string) bool {
	an, ap := splitHost(a)
	bn, bp := splitHost(b)
	suffix, wild := strings.CutPrefix(bn, "*")
	return wild && ap == bp && strings.HasSuffix(an, suffix) && an != bn
}

func methods(h *apiv1.HttpGrant) []string {
	if len(h.Methods) == 0 {
		return []string{"GET", "HEAD"}
	}
	return h.Methods
}

// bothTargets returns the jobs that both lists name.
func bothTargets(a, b []string) []string {
	var both []string
	for _, x := range a {
		for _, y := range b {
			switch {
			case x == y || covers(y, x):
				both = append(both, x)
			case covers(x, y):
				both = append(both, y)
			}
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}

// covers reports whether the pattern means the job: "*" every one of the app,
// "other/*" every one of that.
func covers(pattern, target string) bool {
	app, isAll := strings.CutSuffix(pattern, "*")
	rest, ok := strings.CutPrefix(target, app)
	return isAll && ok && !strings.Contains(rest, "/")
}

// MayEnqueue reports whether grants allow a module of the app home to enqueue a
// job of app.
func MayEnqueue(g *apiv1.Grants, home, app, name string) bool {
	full := app + "/" + name
	for _, target := range g.GetEnqueue() {
		if !strings.Contains(target, "/") {
			target = home + "/" + target
		}
		if target == full || covers(target, full) {
			return true
		}
	}
	return false
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
