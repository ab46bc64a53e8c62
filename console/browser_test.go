package console

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/testkit"
)

//go:embed testdata/axe/axe.min.js
var axe string

// browser is one tab with a watch on its console: every error on a page, including
// violations of the content policy, fails the test.
type browser struct {
	t    *testing.T
	ctx  context.Context
	site *site

	mu         sync.Mutex
	complaints []string
	refusal    string // part of an error that a test causes on purpose; empty: none
}

// sharedBrowser is the one process of a browser that the tests of this package use. Each test has cookies and
// a storage of its own in it.
var sharedBrowser = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // no browser is not a failure of it
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.Env("TZ=UTC"), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1440, 1000),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, endProcess := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, endSession := chromedp.NewContext(ctx)
	endBrowser = func() { endSession(); endProcess() }
	return ctx, chromedp.Do(ctx)
})

var endBrowser = func() {}

func TestMain(m *testing.M) {
	code := m.Run()
	endBrowser()
	os.Exit(code)
}

func newBrowser(t *testing.T, s *site) *browser {
	t.Helper()
	ctx, err := sharedBrowser()
	if err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	if ctx == nil {
		testkit.Lacks(t, "no browser: chromium is not on the PATH")
	}
	ctx, cancel := chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	ctx, cancel = context.WithTimeout(ctx, 8*time.Minute)
	t.Cleanup(cancel)
	return openTab(t, s, ctx)
}

// tab opens another tab of the same browser.
func (b *browser) tab() *browser { return b.tabOf(b.t) }

// tabOf opens a tab for a part of the test.
func (b *browser) tabOf(t *testing.T) *browser {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	return openTab(t, b.site, ctx)
}

func openTab(t *testing.T, s *site, ctx context.Context) *browser {
	t.Helper()
	b := &browser{t: t, ctx: ctx, site: s}
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == "debug" { // advice, for example on forms with passwords
				continue
			}
			b.mu.Lock()
			if b.refusal != "" && strings.Contains(m.Text, b.refusal) {
				b.mu.Unlock()
				continue
			}
			b.complaints = append(b.complaints, fmt.Sprintf("%s: %s (%s:%d)", m.Type, m.Text, m.URL, m.Line))
			b.mu.Unlock()
		}
	}()
	t.Cleanup(b.quiet)
	b.do(chromedp.EmulateViewport(1440, 1000))
	return b
}

// sub runs a subtest in the same tab.
func (b *browser) sub(name string, part func(*testing.T, *browser)) {
	whole := b.t
	whole.Run(name, func(t *testing.T) {
		b.t = t
		defer func() { b.t = whole }()
		part(t, b)
		b.quiet()
	})
}

// quiet fails the test for every error so far.
func (b *browser) quiet() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("the browser's console: %s", c)
	}
	b.complaints = nil
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// signIn fills in the form of the login page.
func (b *browser) signIn() {
	b.t.Helper()
	b.do(chromedp.SendKeys("#token", goodToken), chromedp.Click("button.primary"))
}

func (b *browser) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.site.URL + path))
}

func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return v
}

// until waits for a condition in the page, also across navigation to the page.
func (b *browser) until(condition string) {
	b.t.Helper()
	expression := `new Promise(done => {
		const limit = performance.now() + 15000;
		(function look() {
			let held = false;
			try { held = ` + condition + `; } catch { /* the page is not there yet */ }
			if (held) done(true);
			else if (performance.now() > limit) done(false);
			else setTimeout(look, 20);
		})();
	})`
	for {
		held, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](expression, chromedp.EvalAwaitPromise))
		switch {
		case err != nil && b.ctx.Err() == nil && strings.Contains(err.Error(), "(-32000)"):
			continue // the page of the promise is gone; check the next page
		case err != nil:
			b.t.Fatalf("%s: %v", condition, err)
		case !held:
			b.t.Fatalf("%s: not within 15 s, at %s", condition, b.here())
		}
		return
	}
}

// here returns the page's address without the origin.
func (b *browser) here() string {
	return evaluate[string](b, `location.pathname + location.search`)
}

func (b *browser) scheme(name string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// shot saves a screenshot for people when CONSOLE_SHOTS names a folder.
func (b *browser) shot(name string) {
	dir := os.Getenv("CONSOLE_SHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// accessible runs axe on the page and fails for serious or critical findings.
func (b *browser) accessible() {
	b.t.Helper()
	b.check(`{resultTypes: ["violations"], preload: false}`)
}

// accessibleInBothThemes runs axe on the page in the light theme, and in the dark one the rule that
// depends on colours.
func (b *browser) accessibleInBothThemes() {
	b.t.Helper()
	b.scheme("light")
	b.accessible()
	b.scheme("dark")
	b.check(`{resultTypes: ["violations"], preload: false, runOnly: ["color-contrast"]}`)
}

// refresh makes the page refresh itself, and waits until it has.
func (b *browser) refresh() {
	b.t.Helper()
	evaluate[bool](b, `new Promise((done) => {
		if (!document.getElementById("fresh")?.hasAttribute("hx-get")) { done(true); return; }
		document.addEventListener("htmx:afterSettle", () => done(true), {once: true});
		document.addEventListener("htmx:afterRequest", (e) => { if (e.detail.xhr.status === 304) done(true); }); // nothing has changed
		htmx.trigger(document.body, "refresh");
	})`)
}

// refreshOften makes the pages that are opened from now on refresh themselves every second.
func (b *browser) refreshOften() {
	b.t.Helper()
	evaluate[bool](b, `localStorage.setItem("interval", "1"), true`)
}

// check runs axe with options.
func (b *browser) check(options string) {
	b.t.Helper()
	if !evaluate[bool](b, `"axe" in window`) {
		evaluate[bool](b, axe+"\n;true")
	}
	found := evaluate[[]string](b, `axe.run(document, `+options+`).then(r =>
		r.violations.filter(v => v.impact === "serious" || v.impact === "critical")
			.map(v => v.impact + " " + v.id + ": " + v.help + "\n  " + v.nodes.slice(0, 5).map(n => n.html.slice(0, 160) + " " + (n.any[0]?.message ?? "")).join("\n  ")))`)
	for _, f := range found {
		b.t.Errorf("%s: %s", b.here(), f)
	}
}

func TestBrowser(t *testing.T) {
	s := newSite(t, newFake().populate())
	b := newBrowser(t, s)

	b.visit("/apps/default/jobs")
	if got := b.here(); got != "/login?next=%2Fapps%2Fdefault%2Fjobs" {
		t.Fatalf("without a session the browser is at %s", got)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		b.accessible()
		b.shot("login-" + scheme)
	}
	b.signIn()
	b.until(`location.pathname === "/apps/default/jobs" && document.readyState === "complete"`)
	b.refreshOften()

	t.Run("pages", func(t *testing.T) {
		paths := slices.Sorted(maps.Keys(pages()))
		const tabs = 2
		for i := range tabs {
			t.Run(fmt.Sprint("tab", i), func(t *testing.T) {
				t.Parallel()
				tab := b.tabOf(t)
				for j := i; j < len(paths); j += tabs {
					tab.visit(paths[j])
					tab.refresh()
					tab.accessibleInBothThemes()
					name := strings.Trim(strings.NewReplacer("/", "_", "?", "_").Replace(paths[j]), "_")
					for _, scheme := range []string{"light", "dark"} {
						tab.scheme(scheme)
						tab.shot(name + "-" + scheme)
					}
				}
			})
		}
	})
	b.quiet()

	b.sub("theme", testTheme)
	b.sub("run now and live log", testLiveLog)
	b.sub("long log", testLongLog)
	b.sub("refresh", testRefresh)
	b.sub("a refresh keeps the place", testRefreshKeepsPlace)
	b.sub("a refresh keeps typed text", testRefreshKeepsText)
	b.sub("keyboard", testKeyboard)
	b.sub("roll back by keyboard", testRollBackByKeyboard)
	b.sub("edit a job with a conflict by keyboard", testEditJob)
	b.sub("change a job by its form and its text", testJobForm)
	b.sub("refused upload", testRefusedUpload)
	b.sub("upload", testUpload)
	b.sub("give access by keyboard", testGiveAccess)
	b.sub("let machines join by keyboard", testLetMachinesJoin)
	b.sub("move a module by keyboard", testModule)
	b.sub("cordon a host by keyboard", testHost)
	b.sub("values and secrets by keyboard", testValue)
	b.sub("peek at messages by keyboard", testQueues)
	b.sub("answer an alert by keyboard", testAlerts)
	b.sub("create and delete an app by keyboard", testApps)
	b.sub("change the cluster by keyboard", testCluster)
}

// testRollBackByKeyboard goes from the page of a job to an earlier revision and back to the
// history, with the keyboard alone.
func testRollBackByKeyboard(t *testing.T, b *browser) {
	press := func(selector string) {
		evaluate[bool](b, `document.querySelector('`+selector+`').focus(), document.activeElement.matches('`+selector+`')`)
		b.do(chromedp.KeyEvent("\r"))
	}
	b.visit("/apps/default/jobs/totals")
	press(`.actions a[href$="/history"]`)
	b.until(`location.pathname === "/apps/default/jobs/totals/history" && document.readyState === "complete"`)
	press(`#r4 a[href$="/4/rollback"]`)
	b.until(`location.pathname.endsWith("/4/rollback") && document.readyState === "complete"`)
	b.do(chromedp.SendKeys("#r-note", "too slow"))
	press(`main button.primary`)
	b.until(`location.pathname === "/apps/default/jobs/totals/history" && document.readyState === "complete" && document.querySelector("main .alert.ok[role=status]") !== null`)
	if text := evaluate[string](b, `document.querySelector(".revisions > li").textContent`); !strings.Contains(text, "rolled back to 4") || !strings.Contains(text, "too slow") {
		t.Errorf("the newest revision reads %s", text)
	}
	b.accessible()
}

// testRefusedUpload uploads a file that is not a module, from a form at the end of a long
// page. The reason must be visible and have the focus.
func testRefusedUpload(t *testing.T, b *browser) {
	file := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(file, []byte("not a module"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	b.refusal = "status of 422"
	b.mu.Unlock()
	b.do(chromedp.EmulateViewport(390, 500))
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	b.visit("/apps/default/modules")
	b.do(chromedp.SendKeys(`input[name=name]`, "notes"), chromedp.SendKeys(`input[name=version]`, "1"), chromedp.SetUploadFiles(`input[type=file]`, []string{file}))
	evaluate[bool](b, `document.querySelector("input[type=file]").form.requestSubmit(), true`)
	b.until(`document.readyState === "complete" && document.activeElement.getAttribute("role") === "alert"`)
	if !evaluate[bool](b, `(r => r.top >= 0 && r.bottom <= innerHeight)(document.activeElement.getBoundingClientRect())`) {
		t.Error("the reason of the refusal is out of view")
	}
}

func testTheme(t *testing.T, b *browser) {
	b.scheme("light")
	b.visit("/hosts")
	background := func() string { return evaluate[string](b, `getComputedStyle(document.body).backgroundColor`) }
	light := background()
	b.do(chromedp.Click(`button[name=theme][value=dark]`))
	b.until(`document.documentElement.dataset.theme === "dark" && document.readyState === "complete"`)
	if dark := background(); dark == light {
		t.Errorf("dark mode has the background of light mode, %s", dark)
	}
	if got := b.here(); got != "/hosts" {
		t.Errorf("the switch led to %s", got)
	}
	b.do(chromedp.Click(`button[name=theme][value=system]`))
	b.until(`document.documentElement.dataset.theme === "system"`)
}

func testLiveLog(t *testing.T, b *browser) {
	b.visit("/apps/default/jobs/totals")
	b.do(chromedp.Click(`.actions button.primary`))
	b.until(`location.pathname.startsWith("/apps/default/runs/01TRIG") && document.readyState === "complete"`)
	run := strings.TrimPrefix(b.here(), "/apps/default/runs/")

	for i := range 3 {
		b.site.fake.appendLog(run, "info", fmt.Sprintf("line %d %s", i, evil))
		b.until(fmt.Sprintf(`document.querySelectorAll("#log p").length === %d`, i+1))
	}
	if n := evaluate[int](b, `document.querySelectorAll("#log script").length`); n != 0 {
		t.Errorf("%d script elements in the log", n)
	}
	if text := evaluate[string](b, `document.querySelector("#L2 span:last-child").textContent`); text != "line 2 "+evil {
		t.Errorf("the line reads %q", text)
	}
	b.site.fake.finish(run, "succeeded")
	b.until(`document.querySelector("#runstate .s-succeeded") !== null`)
	b.until(`document.getElementById("announce").textContent === "Succeeded"`)
	if n := evaluate[int](b, `document.querySelectorAll("#log p").length`); n != 3 {
		t.Errorf("%d lines at the end, want 3", n)
	}
}

func testLongLog(t *testing.T, b *browser) {
	const lines = 12_000
	for i := range lines {
		b.site.fake.appendLog(liveRun, "debug", fmt.Sprintf("row %d", i))
	}
	b.visit("/apps/default/runs/" + liveRun)
	b.until(fmt.Sprintf(`document.getElementById("L%d") !== null`, lines+2))
	if n := evaluate[int](b, `document.querySelectorAll("#log p").length`); n > 5000 {
		t.Errorf("%d lines in the page, want at most 5000", n)
	}
	b.until(`(l => l.scrollHeight - l.scrollTop - l.clientHeight < 8)(document.getElementById("log"))`)

	// After scrolling up, a visitor keeps the position while lines arrive.
	evaluate[bool](b, `document.getElementById("log").scrollTop -= 3000, true`)
	b.until(`document.getElementById("follow").getAttribute("aria-pressed") === "false"`)
	const reading = `(l => document.elementFromPoint(l.getBoundingClientRect().left + 200, l.getBoundingClientRect().top + 60)?.closest("p")?.id)(document.getElementById("log"))`
	evaluate[bool](b, `document.getElementById("log").scrollIntoView(), true`)
	before := evaluate[string](b, reading)
	for range 40 {
		b.site.fake.appendLog(liveRun, "info", "new")
	}
	b.until(fmt.Sprintf(`document.getElementById("L%d") !== null`, lines+42))
	b.until(`document.getElementById("follow").textContent.startsWith("40 new lines")`)
	if after := evaluate[string](b, reading); before == "" || after != before {
		t.Errorf("the text moved: %q was under the eyes, now %q", before, after)
	}
	b.shot("log")
	b.do(chromedp.Click("#follow"))
	b.until(`(l => l.scrollHeight - l.scrollTop - l.clientHeight < 8)(document.getElementById("log"))`)
}

func testRefresh(t *testing.T, b *browser) {
	b.visit("/apps/default/jobs?prefix=late")
	b.site.fake.change(func() {
		b.site.fake.jobs = append(b.site.fake.jobs, newFake().populate().jobs[2])
		b.site.fake.jobs[len(b.site.fake.jobs)-1].Name = "late-comer"
	})
	b.until(`document.querySelector("#fresh table")?.textContent.includes("late-comer")`)
	b.do(chromedp.Click("#live"))
	b.until(`document.getElementById("live").textContent.includes("Paused")`)
	b.do(chromedp.Click("#live"))
	if text := evaluate[string](b, `document.getElementById("live").textContent`); text != "Live" {
		t.Errorf("the switch reads %q", text)
	}
}

// testRefreshKeepsPlace inserts a row above the one with the focus, on a narrow screen
// whose table is scrolled sideways.
func testRefreshKeepsPlace(t *testing.T, b *browser) {
	b.do(chromedp.EmulateViewport(720, 844))
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	b.visit("/apps/default/jobs")
	evaluate[bool](b, `document.querySelector('#fresh a[href$="/jobs/totals"]').focus(), document.querySelector("#fresh .scroll").scrollTo(120, 0), true`)
	evaluate[bool](b, `window.kept = document.activeElement, true`)
	b.site.fake.change(func() {
		early := newFake().populate().jobs[2]
		early.Name = "early-bird"
		b.site.fake.jobs = append([]*apiv1.Job{early}, b.site.fake.jobs...)
	})
	b.until(`document.querySelector("#fresh table")?.textContent.includes("early-bird")`)
	if !evaluate[bool](b, `document.activeElement === window.kept && window.kept.isConnected && window.kept.textContent === "totals"`) {
		t.Errorf("the focus is at %q", evaluate[string](b, `document.activeElement.textContent`))
	}
	if left := evaluate[int](b, `document.querySelector("#fresh .scroll").scrollLeft`); left != 120 {
		t.Errorf("the table is scrolled to %d, want 120", left)
	}
}

// testRefreshKeepsText checks what a refresh could overwrite on a page: the scroll position
// inside a box, typed text, and an opened box.
func testRefreshKeepsText(t *testing.T, b *browser) {
	run := b.site.fake.runs[slices.IndexFunc(b.site.fake.runs, func(r *apiv1.Run) bool { return r.Id == liveRun })]
	b.site.fake.change(func() { run.Input = strings.Repeat("a line of the input\n", 200) })
	b.visit("/apps/default/runs/" + liveRun)
	evaluate[bool](b, `document.querySelector("#fresh section[aria-labelledby=h-input] .code").scrollTo(0, 77), true`)
	b.site.fake.change(func() { run.Progress.Message = "reading further" })
	b.until(`document.getElementById("fresh").textContent.includes("reading further")`)
	if top := evaluate[int](b, `document.querySelector("#fresh section[aria-labelledby=h-input] .code").scrollTop`); top != 77 {
		t.Errorf("the input is scrolled to %d, want 77", top)
	}
	got := evaluate[string](b, `(() => {
		const page = (n) => '<div id="morphed">' + n + '<input name="a" value=""><select><option>x<option>y</select><details><summary>s</summary>d</details></div>';
		const parse = (html) => new DOMParser().parseFromString(html, "text/html").getElementById("morphed");
		document.getElementById("main").append(parse(page(1)));
		const box = document.getElementById("morphed");
		box.querySelector("input").value = "typed";
		box.querySelector("select").selectedIndex = 1;
		box.querySelector("details").open = true;
		Idiomorph.morph(box, parse(page(2)), {morphStyle: "outerHTML"});
		return [box.firstChild.textContent, box.querySelector("input").value, box.querySelector("select").value, box.querySelector("details").open].join();
	})()`)
	if got != "2,typed,y,true" {
		t.Errorf("after a morph: %s", got)
	}
}

// TestTabsShareOneStream opens more run pages than a browser opens connections. All of them
// load and show new lines. A hidden tab gives its stream to another one, and shows the lines
// that came meanwhile when it is visible again.
func TestTabsShareOneStream(t *testing.T) {
	s := newSite(t, newFake().populate())
	b := newBrowser(t, s)
	b.visit("/apps/default/runs/" + liveRun)
	b.signIn()
	const ready = `location.pathname.startsWith("/apps/default/runs/") && document.readyState === "complete"`
	b.until(ready)
	tabs := []*browser{b}
	for range 7 {
		other := b.tab()
		other.visit("/apps/default/runs/" + liveRun)
		other.until(ready)
		tabs = append(tabs, other)
	}
	// Another page loads, although eight tabs follow a run.
	list := b.tab()
	list.visit("/apps/default/jobs")
	list.until(`location.pathname === "/apps/default/jobs" && document.readyState === "complete"`)

	lines := 3
	appendLine := func() string {
		s.fake.appendLog(liveRun, "info", fmt.Sprintf("line %d", lines))
		lines++
		return fmt.Sprintf(`document.querySelectorAll("#log p").length === %d && document.querySelector("#log p:last-child span:last-child").textContent === "line %d"`, lines, lines-1)
	}
	shown := appendLine()
	for _, tab := range tabs {
		tab.until(shown)
	}
	s.fake.untilFollowed(t, 1)

	const show = `(hidden => { Object.defineProperty(document, "hidden", {value: hidden, configurable: true}); document.dispatchEvent(new Event("visibilitychange")); return true; })`
	for _, tab := range tabs[:4] { // among them the first tab, which has the stream
		evaluate[bool](tab, show+`(true)`)
	}
	shown = appendLine()
	for _, tab := range tabs[4:] {
		tab.until(shown)
	}
	if n := evaluate[int](b, `document.querySelectorAll("#log p").length`); n != lines-1 {
		t.Errorf("a hidden tab has %d lines, want %d", n, lines-1)
	}
	shown = appendLine()
	for _, tab := range tabs[4:] {
		evaluate[bool](tab, show+`(true)`)
	}
	s.fake.untilFollowed(t, 0)
	for _, tab := range tabs {
		evaluate[bool](tab, show+`(false)`)
	}
	for _, tab := range tabs {
		tab.until(shown)
	}
	s.fake.finish(liveRun, "succeeded")
	for _, tab := range tabs {
		tab.until(`document.querySelector("#runstate .s-succeeded") !== null`)
		if got := evaluate[string](tab, `[...document.querySelectorAll("#log p")].map((p) => p.id).join()`); got != "L0,L1,L2,L3,L4,L5" {
			t.Errorf("a tab shows the lines %s", got)
		}
	}
}

// TestInvisibleCharacters shows hostile texts in a page and in a log. Every invisible
// character has a label, changes the order of nothing, and is part of a copy.
func TestInvisibleCharacters(t *testing.T) {
	const hostile = "evil\u202eexe.\u2066live\x1b[2J\x00\u200b\x7f\u0085end"
	s := newSite(t, newFake().populate())
	s.fake.change(func() {
		s.fake.run(liveRun).Progress.Message = hostile
		s.fake.run(liveRun).Input = hostile
	})
	s.fake.appendLog(liveRun, "info", hostile)
	b := newBrowser(t, s)
	b.visit("/apps/default/runs/" + liveRun)
	b.signIn()
	b.until(`document.getElementById("L3") !== null`)
	for selector, want := range map[string]string{
		"#L3 span:last-child":                       hostile,
		"section[aria-labelledby=h-progress] .hint": "evil\u202eexe.\u2066live\u241b[2J\ufffd\u200b\u2421\u0085end",
		"section[aria-labelledby=h-input] .code":    "evil\u202eexe.\u2066live\u241b[2J\u2400\u200b\u2421\u0085end",
	} {
		if got := evaluate[string](b, `document.querySelector("`+selector+`").textContent`); got != want {
			t.Errorf("%s has the text %q, want %q", selector, got, want)
		}
	}
	if got := evaluate[string](b, `[...document.querySelectorAll("#L3 .ctl")].map((m) => m.dataset.mark).join(" ")`); got != "RLO LRI ESC NUL ZWSP DEL U+0085" {
		t.Errorf("the labels are %s", got)
	}
	if got := evaluate[string](b, `[...document.querySelectorAll("section[aria-labelledby=h-input] .ctl")].map((m) => m.dataset.mark).join(" ")`); got != "RLO LRI ESC NUL ZWSP DEL U+0085" {
		t.Errorf("the labels in the input are %s", got)
	}
	// "exe" begins to the right of "evil", although U+202E precedes it.
	const order = `(p => { const at = (s) => { const n = [...p.childNodes].find((n) => n.textContent.startsWith(s)); const r = document.createRange(); r.selectNode(n); return r.getBoundingClientRect().left; }; return at("evil") < at("exe.") && at("exe.") < at("live"); })(document.querySelector("#L3 span:last-child"))`
	if !evaluate[bool](b, order) {
		t.Error("the text is reordered")
	}
	b.accessible()
	b.shot("invisible")
	// The script and marks.go agree on every character.
	names := evaluate[[]string](b, `import("/static/marks.js").then((m) => [...Array(0x10000).keys()].map((c) => {
		const e = document.createElement("p");
		m.append(e, String.fromCharCode(c));
		return e.querySelector("bdi")?.dataset.mark ?? "";
	}))`)
	for r, name := range names {
		if name != label(rune(r)) {
			t.Errorf("U+%04X: the script says %q, the page %q", r, name, label(rune(r)))
		}
	}
}

func testKeyboard(t *testing.T, b *browser) {
	b.visit("/apps/default/jobs")
	if !evaluate[bool](b, `(s => [...s.querySelectorAll("*")].every((e) => e.getBoundingClientRect().right <= s.getBoundingClientRect().right + 1))(document.querySelector(".side"))`) {
		t.Error("the side bar is wider than its place")
	}
	b.do(chromedp.KeyEvent("\t"))
	if text := evaluate[string](b, `document.activeElement.textContent`); text != "Skip to content" {
		t.Errorf("the first stop of the tab key is %q", text)
	}
	b.do(chromedp.KeyEvent("/"))
	if id := evaluate[string](b, `document.activeElement.id`); id != "q" {
		t.Errorf("the slash key leads to %q", id)
	}
}

// TestNarrow visits pages on a phone, in Chinese.
func TestNarrow(t *testing.T) {
	b := newBrowser(t, newSite(t, withSchema(newFake().populate())))
	b.visit("/apps/default")
	b.signIn()
	b.until(`location.pathname === "/apps/default" && document.readyState === "complete"`)
	b.do(chromedp.EmulateViewport(390, 844))
	b.visit("/hosts")
	b.do(chromedp.Click(`.menubutton`), chromedp.Click(`button[name=lang][value=zh]`))
	b.until(`document.documentElement.lang === "zh" && document.readyState === "complete"`)
	for _, path := range []string{"/apps/default", "/apps/default/jobs/totals", "/apps/default/jobs/totals?tab=access", "/apps/default/jobs/totals/pause", "/apps/default/jobs/totals/run-form", "/apps/default/jobs/totals/history", "/apps/default/jobs/totals/history/compare?from=3&to=23", "/apps/default/jobs/totals/history/3/rollback", "/apps/default/jobs/former/history", "/apps/default/jobs/new", "/apps/default/jobs/totals/edit", "/apps/default/runs", "/apps/default/runs?error=amount", "/apps/default/errors", "/apps/default/errors?show=ignored", "/apps/default/errors/fedcba9876543210/mark", "/apps/default/runs/" + failedRun, "/apps/default/runs/" + failedRun + "/compare", "/apps/default/runs/" + doneRun + "/rerun", "/apps/default/runs/" + doneRun + "/retry", "/apps/default/modules", "/apps/default/modules/totals", "/apps/default/modules/totals/jobs", "/apps/default/alerts", "/apps/default/alerts/rules/failures", "/apps/default/alerts/channels", "/apps/default/schedules", "/apps/default/schedules?day=2027-10-31", "/apps/default/calendars", "/apps/default/calendars/weekend", "/apps/default/secrets", "/apps/default/values", "/apps/default/values/state", "/apps/default/values/state/value?key=lines", "/queues", "/queues/messages?topic=commands", "/apps", "/apps/default/collect", "/health", "/cluster", "/cluster/split", "/cluster/units/main.2/move", "/hosts", "/hosts/host-a", "/hosts/host-a/cordon", "/access/users", "/access/bindings", "/access/tokens", "/access/tokens/tok-1/rotate", "/access/sessions", "/access/roles", "/audit", "/apps/default/limits", "/apps/default/pause"} {
		b.visit(path)
		if wide := evaluate[int](b, `document.documentElement.scrollWidth`); wide > 390 {
			t.Errorf("%s is %d pixels wide on a screen of 390", path, wide)
		}
		if narrowest := evaluate[float64](b, `Math.min(...[...document.querySelectorAll(".timeline td:last-child, td .why")].map(e => e.offsetWidth), 390)`); narrowest < 160 {
			t.Errorf("%s has a text of %v pixels for each line", path, narrowest)
		}
		if n := evaluate[int](b, `[...document.querySelectorAll(".filters label[for]")].filter(l => l.getBoundingClientRect().left > document.getElementById(l.htmlFor).getBoundingClientRect().left + 1).length`); n > 0 {
			t.Errorf("%s has %d labels behind their fields", path, n)
		}
		if small := evaluate[string](b, `[...document.querySelectorAll("a, button, select, summary, input:not([type=hidden])")].filter((e) => {
			const r = e.getBoundingClientRect();
			return e.checkVisibility({visibilityProperty: true}) && r.height > 0 && (r.height < 23.9 || r.width < 23.9) && !e.closest("label") && !e.matches(".skip, p a, .alert a, [type=checkbox]");
		}).map((e) => e.outerHTML.slice(0, 100)).join("\n")`); small != "" {
			t.Errorf("%s has targets under 24 pixels:\n%s", path, small)
		}
		b.accessible()
		b.shot("narrow" + strings.ReplaceAll(path, "/", "_"))
	}
	b.visit("/apps/default/runs")
	if y := evaluate[float64](b, `document.querySelector("#fresh tbody tr").getBoundingClientRect().top`); y > 300 {
		t.Errorf("the first run is at %v pixels", y)
	}
	// The header folds: its menu and the filters open by keyboard, and Escape closes them.
	for _, button := range []string{".menubutton", ".filterbutton"} {
		evaluate[bool](b, `document.querySelector("`+button+`").focus(), true`)
		b.do(chromedp.KeyEvent("\r"))
		b.until(`document.querySelector(":popover-open") !== null`)
		b.accessible()
		b.shot("open" + button)
		b.do(chromedp.KeyEvent("\u001b"))
		b.until(`document.querySelector(":popover-open") === null && document.activeElement.matches("` + button + `")`)
	}
	b.do(chromedp.KeyEvent("/"))
	b.until(`document.activeElement.id === "f-job"`)
	b.do(chromedp.EmulateViewport(1440, 1000))
	b.visit("/apps/default")
	b.shot("zh-overview")
}
