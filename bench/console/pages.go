package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/bench/internal/report"
)

// page is one page of the console. Its address may have names of objects in braces.
type page struct{ name, address string }

var pages = []page{
	{"apps", "/apps"},
	{"overview", "/apps/default"},
	{"jobs", "/apps/default/jobs"},
	{"jobs/search", "/apps/default/jobs?q=1234"},
	{"jobs/label", "/apps/default/jobs?label=team%3Ddata&owner=data"},
	{"jobs/last-run", "/apps/default/jobs?sort=last_run"},
	{"jobs/failing", "/apps/default/jobs?failing=yes"},
	{"job", "/apps/default/jobs/{job}"},
	{"job/failing", "/apps/default/jobs/{failing}"},
	{"job/schedule", "/apps/default/jobs/{job}?tab=schedule"},
	{"job/calendar", "/apps/default/jobs/{job}?tab=calendar"},
	{"job/duration", "/apps/default/jobs/{job}?tab=duration"},
	{"job/definition", "/apps/default/jobs/{job}?tab=definition"},
	{"job/edit", "/apps/default/jobs/{job}/edit"},
	{"job/history", "/apps/default/jobs/{job}/history"},
	{"job/backfill", "/apps/default/jobs/{job}/backfill"},
	{"job/new", "/apps/default/jobs/new"},
	{"runs", "/apps/default/runs"},
	{"runs/failed", "/apps/default/runs?state=failed"},
	{"runs/job", "/apps/default/runs?job={job}"},
	{"runs/module", "/apps/default/runs?module=trivial"},
	{"runs/error", "/apps/default/runs?error=ledger"},
	{"run", "/apps/default/runs/{run}"},
	{"run/failed", "/apps/default/runs/{failed}"},
	{"run/compare", "/apps/default/runs/{failed}/compare"},
	{"errors", "/apps/default/errors"},
	{"alerts", "/apps/default/alerts"},
	{"alerts/rule", "/apps/default/alerts/rules/failures"},
	{"alerts/channel", "/apps/default/alerts/channels/ops"},
	{"schedules", "/apps/default/schedules"},
	{"calendars", "/apps/default/calendars"},
	{"calendar", "/apps/default/calendars/holidays"},
	{"calendar/jobs", "/apps/default/calendars/holidays/jobs"},
	{"modules", "/apps/default/modules"},
	{"module", "/apps/default/modules/trivial"},
	{"module/jobs", "/apps/default/modules/trivial/jobs"},
	{"script/new", "/apps/default/scripts"},
	{"collect", "/apps/default/collect"},
	{"secrets", "/apps/default/secrets"},
	{"values", "/apps/default/values"},
	{"bucket", "/apps/default/values/cursors"},
	{"limits", "/apps/default/limits"},
	{"bulk/jobs", "/apps/default/bulk/jobs?q=1234"},
	{"bulk/runs", "/apps/default/bulk/runs?state=failed"},
	{"operations", "/operations"},
	{"operation", "/apps/default/operations/{operation}"},
	{"hosts", "/hosts"},
	{"host", "/hosts/{host}"},
	{"cluster", "/cluster"},
	{"health", "/health"},
	{"queues", "/queues"},
	{"dead-letters", "/dead-letters"},
	{"access/users", "/access/users"},
	{"access/bindings", "/access/bindings"},
	{"access/tokens", "/access/tokens"},
	{"access/sessions", "/access/sessions"},
	{"access/roles", "/access/roles"},
	{"access/machines", "/access/machines"},
	{"audit", "/audit"},
}

// The rows of the worst pages.
const (
	worstTime    = "worst/p99"
	worstLoad    = "worst/load"
	worstRefresh = "worst/refresh"
)

func timeRow(p page) string    { return "p99/" + p.name }
func loadRow(p page) string    { return "load/" + p.name }
func refreshRow(p page) string { return "refresh/" + p.name }

func pageRows() []string {
	rows := []string{worstTime, worstLoad, worstRefresh}
	for _, p := range pages {
		rows = append(rows, timeRow(p), loadRow(p), refreshRow(p))
	}
	return rows
}

// of returns the address of a page with the names of objects.
func (w world) of(p page) string {
	return strings.NewReplacer("{job}", w.job, "{failing}", w.failing, "{run}", w.run, "{failed}", w.failed, "{host}", w.host, "{operation}", w.operation).Replace(p.address)
}

// browser is a client of the console with a session. It keeps one connection.
type browser struct {
	*http.Client
	url string
}

// signIn starts a session.
func (b *bench) signIn(ctx context.Context) (*browser, error) {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	// The body has to stay compressed, because its length is measured.
	br := &browser{url: b.dev.URL, Client: &http.Client{Jar: jar, Transport: &http.Transport{DisableCompression: true}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, br.url+"/login", strings.NewReader(url.Values{"token": {b.dev.Token}}.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := br.Do(req)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || strings.HasPrefix(resp.Request.URL.Path, "/login")) {
		err = fmt.Errorf("sign in to the console: %s at %s", resp.Status, resp.Request.URL.Path)
	}
	return br, cmp.Or(err, resp.Body.Close())
}

// get fetches a page or a file. It returns the bytes as they were sent, the text, and the
// time from the request to the last byte.
func (br *browser) get(ctx context.Context, address string) (sent, text []byte, took time.Duration, err error) {
	return br.request(ctx, address, nil)
}

// refresh fetches a page as its script does, which names the content that the page has.
// tag is of the last refresh; "": there was none. The result is the tag of this one, and
// its body as it was sent.
func (br *browser) refresh(ctx context.Context, address, tag string) (next string, sent []byte, took time.Duration, err error) {
	h := http.Header{"Hx-Request": {"true"}, "Hx-Target": {"fresh"}}
	if tag != "" {
		h.Set("If-None-Match", tag)
	}
	sent, _, took, err = br.request(ctx, address, h)
	return h.Get("Etag"), sent, took, err
}

// request is get with some headers. With headers it sets Etag in them to that of the
// answer.
func (br *browser) request(ctx context.Context, address string, headers http.Header) (sent, text []byte, took time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, br.url+address, http.NoBody)
	if err != nil {
		return nil, nil, 0, err
	}
	req.Header.Set("Accept-Encoding", "gzip")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	maps.Copy(req.Header, headers)
	begin := time.Now()
	resp, err := br.Do(req)
	if err != nil {
		return nil, nil, 0, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read
	sent, err = io.ReadAll(resp.Body)
	took = time.Since(begin)
	if err != nil {
		return nil, nil, 0, err
	}
	same := headers != nil && resp.StatusCode == http.StatusNotModified
	if !same && resp.StatusCode != http.StatusOK || strings.HasPrefix(resp.Request.URL.Path, "/login") {
		return nil, nil, 0, fmt.Errorf("GET %s: %s at %s", address, resp.Status, resp.Request.URL)
	}
	if headers != nil {
		headers.Set("Etag", resp.Header.Get("ETag"))
	}
	text = sent
	if resp.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(bytes.NewReader(sent))
		if err != nil {
			return nil, nil, 0, fmt.Errorf("GET %s: %w", address, err)
		}
		if text, err = io.ReadAll(z); err != nil {
			return nil, nil, 0, fmt.Errorf("GET %s: %w", address, err)
		}
	}
	return sent, text, took, nil
}

// measurePages measures each page: its time, its first load and its refresh.
func (b *bench) measurePages(ctx context.Context) error {
	br, err := b.signIn(ctx)
	if err != nil {
		return err
	}
	var all []measured
	for _, p := range pages {
		if !b.wants(timeRow(p), loadRow(p), refreshRow(p), worstTime, worstLoad, worstRefresh) {
			continue
		}
		m := measured{page: p}
		if m.load, m.files, m.fresh, err = br.load(ctx, b.world.of(p)); err != nil {
			return err
		}
		all = append(all, m)
	}
	b.note("read %d pages: %d times each", len(all), b.size.rounds)
	told := time.Now()
	for round := range b.size.rounds {
		if time.Since(told) > 10*time.Second {
			told = time.Now()
			b.note("read the pages: %d of %d times", round, b.size.rounds)
		}
		for i := range all {
			_, _, took, err := br.get(ctx, b.world.of(all[i].page))
			if err != nil {
				return err
			}
			all[i].took = append(all[i].took, took)
		}
	}
	for i := range all {
		slices.Sort(all[i].took)
	}
	if err := b.refresh(ctx, br, all); err != nil {
		return err
	}
	b.reportPages(all)
	return nil
}

// interval is the usual one between two refreshes of a page.
const interval = 3 * time.Second

// refresh refreshes each page twice, and measures the second one.
func (b *bench) refresh(ctx context.Context, br *browser, all []measured) error {
	tags := make([]string, len(all))
	for _, last := range []bool{false, true} {
		for i := range all {
			m := &all[i]
			if m.fresh == "" {
				continue
			}
			tag, sent, _, err := br.refresh(ctx, m.fresh, tags[i])
			if err != nil {
				return err
			}
			tags[i], m.refresh = tag, len(sent)
		}
		if last {
			break
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// measured has the figures of a page.
type measured struct {
	page
	took    []time.Duration // ascending
	load    int             // bytes of the first load
	files   int             // files in it
	fresh   string          // address of a refresh; "": the page is not refreshed
	refresh int             // bytes of a refresh
}

// The goals of the console.
var (
	timeGoal    = report.AtMost(100) // ms
	loadGoal    = report.AtMost(200) // kB
	refreshGoal = report.AtMost(10)  // kB
)

func (b *bench) reportPages(all []measured) {
	worst := func(row string, of func(measured) float64, unit string, goal *report.Goal) {
		m := slices.MaxFunc(all, func(x, y measured) int { return cmp.Compare(of(x), of(y)) })
		b.report.Add(row, of(m), unit, goal)
		b.report.Note(fmt.Sprintf("%s, of %d pages with %d jobs and %d runs", m.name, len(all), b.size.jobs, b.size.runs+b.size.failures))
	}
	p99 := func(m measured) float64 { return quantile(m.took, 0.99) }
	load := func(m measured) float64 { return float64(m.load) / 1000 }
	refresh := func(m measured) float64 { return float64(m.refresh) / 1000 }
	worst(worstTime, p99, "ms", timeGoal)
	worst(worstLoad, load, "kB", loadGoal)
	worst(worstRefresh, refresh, "kB", refreshGoal)
	for _, m := range all {
		b.report.Add(timeRow(m.page), p99(m), "ms", timeGoal)
		b.report.Note(fmt.Sprintf("p50 %.3g ms", quantile(m.took, 0.5)))
	}
	for _, m := range all {
		b.report.Add(loadRow(m.page), load(m), "kB", loadGoal)
		b.report.Note(fmt.Sprintf("%d files", m.files))
	}
	for _, m := range all {
		if m.fresh != "" { // the page refreshes itself
			b.report.Add(refreshRow(m.page), refresh(m), "kB", refreshGoal)
		}
	}
}

var (
	fileOf   = regexp.MustCompile(`(?:src|href)="(/static/[^"#]+)`)
	importOf = regexp.MustCompile(`(?:from |import\()"\./([\w.-]+)"`)
	freshOf  = regexp.MustCompile(`id="fresh"[^>]* hx-get="([^"]+)"`)
)

// load fetches a page with its files, as a browser with an empty cache. It returns the
// bytes that were sent, the number of files with the page, and the address of a refresh.
func (br *browser) load(ctx context.Context, address string) (n, files int, fresh string, err error) {
	sent, text, _, err := br.get(ctx, address)
	if err != nil {
		return 0, 0, "", err
	}
	n, files = len(sent), 1
	if m := freshOf.FindSubmatch(text); m != nil {
		fresh = strings.ReplaceAll(string(m[1]), "&amp;", "&")
	}
	var open []string
	seen := map[string]bool{}
	add := func(file string) {
		if !seen[file] {
			seen[file] = true
			open = append(open, file)
		}
	}
	for _, m := range fileOf.FindAllSubmatch(text, -1) {
		add(strings.ReplaceAll(string(m[1]), "&amp;", "&"))
	}
	for len(open) > 0 {
		file := open[0]
		open = open[1:]
		sent, text, _, err := br.get(ctx, file)
		if err != nil {
			return 0, 0, "", err
		}
		n, files = n+len(sent), files+1
		name, _, _ := strings.Cut(file, "?")
		if path.Ext(name) == ".js" {
			for _, m := range importOf.FindAllSubmatch(text, -1) {
				add(path.Dir(name) + "/" + string(m[1]))
			}
		}
	}
	return n, files, fresh, nil
}

// quantile returns the q-quantile of ascending durations in ms: the smallest that at least
// a share q of them does not exceed.
func quantile(ascending []time.Duration, q float64) float64 {
	i := max(int(math.Ceil(q*float64(len(ascending))))-1, 0)
	return float64(ascending[i].Microseconds()) / 1000
}
