package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/wheelworkhq/wheelwork/job"
)

// languages returns the languages of the catalogue; the first is the default.
func languages() []string { return []string{"en", "zh"} }

// views holds the parsed pages, one set for each language and zone, because the functions
// that put values into words are bound to them.
type views struct {
	assets *assets
	texts  map[string]catalogue // by language

	mu    sync.Mutex
	utc   map[string]pageSet  // by language; those that were shown
	zones map[zoneKey]pageSet // at most maxZones
}

// pageSet holds the parsed pages by name.
type pageSet map[string]*template.Template

type zoneKey struct{ lang, zone string }

// maxZones bounds the sets of pages for zones other than UTC.
const maxZones = 24

// catalogue maps keys to texts, which may contain verbs of fmt.
type catalogue map[string]string

// text returns the text of a key. A missing key is an error, which the tests detect, so
// that no visitor sees a bare key.
func (c catalogue) text(key string, args ...any) (string, error) {
	t, ok := c[key]
	if !ok {
		return "", fmt.Errorf("no text %q in the catalogue", key)
	}
	if len(args) == 0 {
		return t, nil
	}
	return fmt.Sprintf(t, args...), nil
}

func loadCatalogue(lang string) (catalogue, error) {
	b, err := embedded.ReadFile("assets/locale/" + lang + ".json")
	if err != nil {
		return nil, err
	}
	var c catalogue
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, fmt.Errorf("read the %s catalogue: %w", lang, err)
	}
	return c, nil
}

func loadViews(a *assets) (*views, error) {
	v := &views{assets: a, texts: map[string]catalogue{}, utc: map[string]pageSet{}, zones: map[zoneKey]pageSet{}}
	for _, lang := range languages() {
		texts, err := loadCatalogue(lang)
		if err != nil {
			return nil, err
		}
		v.texts[lang] = texts
	}
	return v, nil
}

// in returns the pages for a language and a zone. They are parsed at their first use: the pages
// of a language take 3 MB, which a server without visitors need not have. A test renders every
// page, so that a mistake in one is found there.
func (v *views) in(lang string, loc *time.Location) (pageSet, error) {
	key := zoneKey{lang, loc.String()}
	v.mu.Lock()
	defer v.mu.Unlock()
	if found := v.utc[lang]; found != nil && loc == time.UTC {
		return found, nil
	}
	if found := v.zones[key]; found != nil {
		return found, nil
	}
	parsed, err := parsePages(words{lang, v.texts[lang], loc}, v.assets)
	if err != nil {
		return nil, err
	}
	if loc == time.UTC {
		v.utc[lang] = parsed
		return parsed, nil
	}
	if len(v.zones) == maxZones {
		for old := range v.zones { // any of them: it is parsed again when it is needed
			delete(v.zones, old)
			break
		}
	}
	v.zones[key] = parsed
	return parsed, nil
}

func parsePages(w words, a *assets) (pageSet, error) {
	const layout, parts = "assets/templates/layout.html", "assets/templates/parts.html"
	base, err := template.New("layout.html").Funcs(functions(w, a)).ParseFS(embedded, layout, parts)
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(embedded, "assets/templates/*.html")
	if err != nil {
		return nil, err
	}
	parsed := pageSet{}
	for _, name := range names {
		if name == layout || name == parts {
			continue
		}
		page, err := base.Clone()
		if err != nil {
			return nil, err
		}
		if page, err = page.ParseFS(embedded, name); err != nil {
			return nil, err
		}
		parsed[strings.TrimSuffix(path.Base(name), ".html")] = page
	}
	return parsed, nil
}

func functions(w words, a *assets) template.FuncMap {
	return template.FuncMap{
		"t":         w.texts.text,
		"asset":     a.address,
		"link":      href,
		"joblink":   jobAddress,
		"query":     withQuery,
		"schedule":  w.schedule,
		"ago":       func(t *timestamppb.Timestamp) string { return w.relative(stamp(t), time.Now()) },
		"iso":       func(t *timestamppb.Timestamp) string { return stamp(t).Format(time.RFC3339Nano) },
		"clock":     func(t *timestamppb.Timestamp) string { return w.clock(stamp(t)) },
		"weekday":   w.weekday,
		"instant":   w.instant,
		"lasted":    w.duration,
		"span":      func(d time.Duration) string { return w.duration(span(d)) },
		"timeOfDay": w.timeOfDay,
		"zone":      w.loc.String,
		"zones":     zoneChoices,
		"isoTime":   func(t time.Time) string { return t.Format(time.RFC3339Nano) },
		"relative":  func(t time.Time) string { return w.relative(t, time.Now()) },
		"count":     count,
		"bytes":     byteSize,
		"ms":        func(ms float64) string { return w.duration(milliseconds(ms)) },
		"took":      func(from, to *timestamppb.Timestamp) string { return w.duration(took(from, to, time.Now())) },
		"percent":   percent,
		"section":   sectionAddress,
		"reason":    w.reason,
		"why":       w.why,
		"short":     shorten,
		"visible":   showNUL,
		"digest":    shortDigest,
		"terminal":  func(s string) bool { return job.State(s).Terminal() },
		"state":     w.state,
		"trigger":   w.trigger,
		"policies":  w.policies,
		"did":       w.did,
		"program":   w.program,
		"scope":     w.scope,
		"event":     w.event,
		"known":     w.known,
		"rulewhen":  w.ruleWhen,
		"rulehow":   w.ruleHow,
		"selection": w.selection,
		"list":      func(s ...string) []string { return s },
		"tuple":     func(values ...any) []any { return values },
		"join":      strings.Join,
	}
}

func (v *views) knows(lang string) bool { return v.texts[lang] != nil }

// frame is the layout's data around the data of a page.
type frame struct {
	App     string
	Apps    []string                 // that the visitor sees, at most maxApps
	unknown bool                     // there is no such app
	hosts   func() map[string]string // names of hosts by id
	Section string                   // the current entry of the navigation
	Session bool                     // whether a visitor is signed in
	Visitor visitor                  // of the session
	Data    any

	// Filled in by render.
	Lang, Theme, Banner, Version string
	Here                         string // this page's address, to return to
	ZoneChoice                   string // "": the browser's
	Reload                       bool   // the page may be fetched again, when the browser's zone is another one
}

// Global returns an address without an app in its path, with the app as a parameter.
func (f frame) Global(address string) string { return inApp(address, f.App) }

// May reports whether the page offers what takes a permission in its app.
func (f frame) May(permission string) bool { return f.Visitor.May(permission, f.App) }

// MayReplay reports whether the page offers to edit and replay dead letters, whose commands change
// and start jobs.
func (f frame) MayReplay() bool {
	return f.Visitor.May("queues.operate", "") && f.Visitor.May("jobs.write", "") && f.Visitor.May("jobs.trigger", "")
}

// HostName returns the name of a host, or its id when it has none or is gone.
func (f frame) HostName(id string) string {
	if f.hosts != nil {
		return cmp.Or(f.hosts()[id], id)
	}
	return id
}

// language returns the visitor's choice, otherwise the first of the browser's preferred
// languages that the catalogue has, otherwise English.
func (c *console) language(r *http.Request) string {
	if k, err := r.Cookie("wheelwork_lang"); err == nil && c.views.knows(k.Value) {
		return k.Value
	}
	for wish := range strings.SplitSeq(r.Header.Get("Accept-Language"), ",") {
		tag, _, _ := strings.Cut(strings.TrimSpace(wish), ";")
		base, _, _ := strings.Cut(strings.ToLower(tag), "-")
		if c.views.knows(base) {
			return base
		}
	}
	return languages()[0]
}

func theme(r *http.Request) string {
	if k, err := r.Cookie("wheelwork_theme"); err == nil && knownTheme(k.Value) {
		return k.Value
	}
	return "system"
}

// refreshes reports whether a page refreshes itself. Then it needs only its main part, and
// nothing when that is as the page has it.
func refreshes(r *http.Request) bool {
	return r.Method == http.MethodGet && r.Header.Get("HX-Request") != "" && r.Header.Get("HX-Target") == "fresh"
}

// render writes a page. It builds the page in memory first, so that a page that fails
// half-way is never sent.
func (c *console) render(w http.ResponseWriter, r *http.Request, code int, name string, f frame) {
	f.Lang, f.Theme, f.Banner, f.Version = c.language(r), theme(r), c.banner, c.version
	f.Here = "/"
	if r.Method == http.MethodGet && (r.URL.Path == "/login/command" || !strings.HasPrefix(r.URL.Path, "/login")) { // a login link contains a code
		f.Here = r.URL.RequestURI()
	}
	zone := viewerZone{time.UTC, ""}
	if f.Session {
		zone = zoneOf(r)
	}
	f.ZoneChoice = zone.chosen
	f.Reload = f.Session && zone.chosen == "" && r.Method == http.MethodGet
	var b bytes.Buffer
	refresh := code == http.StatusOK && refreshes(r)
	views, err := c.views.in(f.Lang, zone.Location)
	switch {
	case err != nil:
	case refresh:
		err = views[name].ExecuteTemplate(&b, "refresh", f)
	default:
		err = views[name].Execute(&b, f)
	}
	if err != nil {
		c.log.ErrorContext(r.Context(), "render page", "page", name, "error", err)
		http.Error(w, "this page could not be built; the server's log says why", http.StatusInternalServerError)
		return
	}
	page := markInvisible(b.Bytes())
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", f.Lang)
	h.Add("Vary", "Cookie, Accept-Language, Accept-Encoding, Sec-Fetch-Site")
	if refresh {
		sum := sha256.Sum256(page)
		tag := `"` + hex.EncodeToString(sum[:12]) + `"`
		h.Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if len(page) >= minCompressed && c.mayCompress(r) {
		h.Set("Content-Encoding", "gzip")
		page = compressed(page, gzip.BestSpeed)
	}
	h.Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(code)
	_, _ = w.Write(page)
}
