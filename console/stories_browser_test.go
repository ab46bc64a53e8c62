package console

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// person uses the console in one way: with a mouse on a wide screen, in English, or with the keyboard on a
// narrow screen, in Chinese.
type person struct {
	*browser
	keyboard bool
	lang     string
	width    int64
}

// tell goes through a story in both ways, with a fake of its own each time. It begins at the overview.
func tell(t *testing.T, populate func(*fakeAPI), story func(*person)) {
	t.Helper()
	if testing.Short() {
		t.Skip("it goes through a story twice in a browser: not with -short")
	}
	b := newBrowser(t, nil)
	for _, way := range []person{{lang: "en", width: 1280}, {keyboard: true, lang: "zh", width: 400}} {
		b.sub(way.lang, func(t *testing.T, b *browser) {
			f := newFake()
			populate(f)
			b.site = newSite(t, f)
			defer b.do(chromedp.Navigate("about:blank")) // ends the streams of the site
			p := &way
			p.browser = b
			b.do(chromedp.EmulateViewport(way.width, 900))
			b.visit("/login")
			evaluate[bool](b, `document.cookie = "wheelwork_lang=`+way.lang+`; path=/", true`)
			b.visit("/login?code=" + b.site.c.codes.Issue(goodToken))
			p.at("/apps/default")
			b.refreshOften()
			story(p)
			p.fits()
			p.refresh()
			p.accessible()
			p.shot("story-" + strings.ReplaceAll(t.Name(), "/", "-"))
		})
	}
}

// at waits for the page with a path, in the language of the person.
func (p *person) at(path string) {
	p.t.Helper()
	p.until(`location.pathname === "` + path + `" && document.readyState === "complete" && document.documentElement.lang === "` + p.lang + `"`)
}

// fits fails if something is wider than the screen.
func (p *person) fits() {
	p.t.Helper()
	if wide := evaluate[int64](p.browser, `document.documentElement.scrollWidth`); wide > p.width {
		p.t.Errorf("%s is %d pixels wide on a screen of %d", p.here(), wide, p.width)
	}
}

// focus gives the focus to an element by a click, or without a mouse to one that the tab key reaches.
func (p *person) focus(selector string) {
	p.t.Helper()
	if !p.keyboard {
		p.do(chromedp.Click(selector))
		return
	}
	if !evaluate[bool](p.browser, "(e => { if (!e?.checkVisibility({visibilityProperty: true}) || e.tabIndex < 0) return false; e.focus(); return document.activeElement === e; })(document.querySelector(`"+selector+"`))") {
		p.t.Fatalf("the tab key does not reach %s at %s", selector, p.here())
	}
}

// use clicks a link or a button, or presses Enter on it.
func (p *person) use(selector string) {
	p.t.Helper()
	p.until("document.querySelector(`" + selector + "`) !== null")
	p.focus(selector)
	if p.keyboard {
		p.do(chromedp.KeyEvent(kb.Enter))
	}
}

// mark checks a box or chooses one of several.
func (p *person) mark(selector string) {
	p.t.Helper()
	p.focus(selector)
	if p.keyboard {
		p.do(chromedp.KeyEvent(" "))
	}
	p.until("document.querySelector(`" + selector + "`).checked")
}

// fill replaces the text of a field.
func (p *person) fill(selector, text string) {
	p.t.Helper()
	p.focus(selector)
	evaluate[bool](p.browser, `document.activeElement.select(), true`)
	p.do(chromedp.KeyEvent(strings.ReplaceAll(text, "\n", "\r")))
}

// pick chooses an entry of a list by the arrow keys.
func (p *person) pick(selector, value string) {
	p.t.Helper()
	evaluate[bool](p.browser, "document.querySelector(`"+selector+"`).focus(), true")
	for range 60 {
		if evaluate[bool](p.browser, "document.querySelector(`"+selector+"`).value === `"+value+"`") {
			return
		}
		p.do(chromedp.KeyEvent(kb.ArrowDown))
	}
	p.t.Fatalf("%s has no entry %s", selector, value)
}

// section opens a page by the navigation, which is behind a button on a narrow screen.
func (p *person) section(path string) {
	p.t.Helper()
	link := `nav a[href="` + path + `"]`
	if p.keyboard {
		p.use(".menubutton")
		p.until("document.querySelector(`" + link + "`).checkVisibility({visibilityProperty: true})")
	}
	p.use(link)
	p.at(path)
	p.fits()
}

// filters opens the filters of a list, which are behind a button on a narrow screen.
func (p *person) filters() {
	p.t.Helper()
	if p.keyboard {
		p.use(".filterbutton")
		p.until(`document.querySelector(":popover-open") !== null`)
	}
}

// done waits for the note that says what was done.
func (p *person) done() {
	p.t.Helper()
	p.until(`document.readyState === "complete" && document.querySelector("main .alert.ok[role=status]") !== null`)
}

// has waits for an element.
func (p *person) has(selector string) {
	p.t.Helper()
	p.until("document.readyState === `complete` && document.querySelector(`" + selector + "`) !== null")
}

// operation returns the newest operation.
func (f *fakeAPI) operation() *apiv1.Operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.operations[0]
}

func everything(f *fakeAPI) { f.populate() }

// TestStoryFirstJob: an app without jobs gets one, which runs.
func TestStoryFirstJob(t *testing.T) {
	tell(t, func(*fakeAPI) {}, func(p *person) {
		p.section("/apps/default/jobs")
		p.use(`.empty a[href$="/jobs/new"]`)
		p.at(newPage)
		p.fill("#yaml", "name: first\nhandler: {module: totals@1}\nschedule: {cron: '0 2 * * *', zone: Asia/Shanghai}\n")
		p.until(`document.querySelectorAll("#check .times li").length === 5`)
		p.use(`button[value=review]`)
		p.has(`#r-note`)
		p.fill("#r-note", "nightly")
		p.use(`button[value=save]`)
		p.at("/apps/default/jobs/first")
		p.done()
		p.use(`.actions form[action$="/run"] button`)
		p.until(`location.pathname.startsWith("/apps/default/runs/01TRIG") && document.readyState === "complete"`)
		run := strings.TrimPrefix(p.here(), "/apps/default/runs/")
		p.site.fake.appendLog(run, "info", "begun")
		p.until(`document.querySelector("#log")?.textContent.includes("begun")`)
		p.site.fake.finish(run, "succeeded")
		p.has(`#runstate .s-succeeded`)
	})
}

// TestStoryEdit: a job is changed after a look at the difference, and the change is rolled back.
func TestStoryEdit(t *testing.T) {
	tell(t, everything, func(p *person) {
		p.section("/apps/default/jobs")
		p.use(`#job-totals a[href$="/jobs/totals"]`)
		p.at("/apps/default/jobs/totals")
		p.use(`.actions a[href$="/edit"]`)
		p.at(editPage)
		evaluate[bool](p.browser, `(f => (f.focus(), f.setSelectionRange(f.value.length, f.value.length), true))(document.getElementById("yaml"))`)
		p.do(chromedp.KeyEvent("deadline: 10m\r"))
		p.use(`button[value=review]`)
		p.has(`#r-note`)
		if !evaluate[bool](p.browser, `[...document.querySelectorAll(".changes ins")].some((e) => e.textContent === "10m")`) {
			p.t.Error("the review does not show the change")
		}
		p.fill("#r-note", "start soon")
		p.use(`button[value=save]`)
		p.at("/apps/default/jobs/totals")
		p.done()
		if got := p.site.fake.job("totals").Deadline; got != "10m" {
			p.t.Fatalf("the deadline is %q", got)
		}
		p.use(`.actions a[href$="/history"]`)
		p.at("/apps/default/jobs/totals/history")
		p.until(`document.querySelector(".revisions > li .note")?.textContent === "start soon"`)
		p.use(`.revisions > li:nth-child(2) a[href$="/rollback"]`)
		p.has(`main form button.primary`)
		p.use(`main form button.primary`)
		p.at("/apps/default/jobs/totals/history")
		p.done()
		if got := p.site.fake.job("totals").Deadline; got != "" {
			p.t.Errorf("after the roll-back the deadline is %q", got)
		}
	})
}

// TestStoryReplay: the failures of last night are one entry of the errors, and all of them are retried.
func TestStoryReplay(t *testing.T) {
	tell(t, func(f *fakeAPI) {
		f.failures(30, "charge", "exit", "invoice %d is unknown", 9*time.Hour)
		f.failures(2, "close", "exit", "period %d is locked", time.Hour)
	}, func(p *person) {
		p.section("/apps/default/errors")
		p.until(`document.querySelector("main tbody tr b").textContent === "30"`)
		p.use(`main tbody tr a[href*="/bulk/runs"]`)
		p.at("/apps/default/bulk/runs")
		p.mark(`input[value="runs.retry"]`)
		p.use(`form.bulk .row button`)
		p.has(`form[method=post] input[name=key]`)
		p.use(`main form[method=post] button.primary`)
		p.has(`#h-progress`)
		op := p.site.fake.operation()
		if q := op.Request; q.Kind != "runs.retry" || q.Runs.GetJob() != "charge" || q.Runs.GetState() != "failed" || q.Runs.GetSince() == nil {
			p.t.Errorf("the operation is %v", q)
		}
		p.site.fake.change(func() { op.State, op.Done, op.Total, op.EndedAt = "done", 30, proto.Int64(30), timestamppb.Now() })
		p.until(`document.querySelector("#fresh .tiles b").textContent === "30" && !document.querySelector("#fresh").hasAttribute("hx-get")`)
	})
}

// TestStoryLog: a log is read further up while it grows, and then followed again.
func TestStoryLog(t *testing.T) {
	const lines = 600
	tell(t, func(f *fakeAPI) {
		f.populate()
		for i := range lines {
			f.appendLog(liveRun, "info", fmt.Sprintf("row %d", i))
		}
	}, func(p *person) {
		p.section("/apps/default/runs")
		p.use(`#fresh a[href$="` + liveRun + `"]`)
		p.at("/apps/default/runs/" + liveRun)
		const atEnd = `(l => l.scrollHeight - l.scrollTop - l.clientHeight < 8)(document.getElementById("log"))`
		p.until(fmt.Sprintf(`document.getElementById("L%d") !== null && `, lines+2) + atEnd)
		evaluate[bool](p.browser, `document.getElementById("log").scrollIntoView(), true`)
		if p.keyboard {
			p.focus("#log")
			p.do(chromedp.KeyEvent(kb.PageUp), chromedp.KeyEvent(kb.PageUp))
		} else {
			at := evaluate[[]float64](p.browser, `(r => [r.left + 200, r.top + 100])(document.getElementById("log").getBoundingClientRect())`)
			p.do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseWheel, at[0], at[1], func(e *input.DispatchMouseEventParams) { e.DeltaX, e.DeltaY = 1, -600 }))
		}
		p.until(`document.getElementById("follow").getAttribute("aria-pressed") === "false"`)
		const reading = `(l => [...l.querySelectorAll("p[id]")].find((e) => e.getBoundingClientRect().top >= l.getBoundingClientRect().top).id)(document.getElementById("log"))`
		still := evaluate[string](p.browser, `new Promise((done) => { let last = ""; (function look() { const now = `+reading+`; if (now === last) done(now); else { last = now; setTimeout(look, 200); } })(); })`)
		for range 25 {
			p.site.fake.appendLog(liveRun, "info", "new")
		}
		p.until(`document.getElementById("follow").textContent.includes("25")`)
		if now := evaluate[string](p.browser, reading); now != still {
			p.t.Errorf("the reader was at %s and is at %s", still, now)
		}
		p.use("#follow")
		p.until(atEnd)
		p.site.fake.appendLog(liveRun, "info", "the last")
		p.until(`document.querySelector("#log p:last-child").textContent.includes("the last") && ` + atEnd)
	})
}

// TestStoryBulkCancel: all live runs of a selection are cancelled, and the operation is stopped half way.
func TestStoryBulkCancel(t *testing.T) {
	tell(t, everything, func(p *person) {
		before := len(p.site.fake.operations)
		p.section("/apps/default/runs")
		p.filters()
		p.pick("#f-state", "live")
		p.use("#filters > button")
		p.until(`new URLSearchParams(location.search).get("state") === "live" && document.readyState === "complete"`)
		p.use(`.actions a[href*="/bulk/runs"]`)
		p.at("/apps/default/bulk/runs")
		p.mark(`input[value="runs.cancel"]`)
		p.fill("#b-note", "wrong price list")
		p.use(`form.bulk .row button`)
		p.has(`form[method=post] button.danger`)
		if after := len(p.site.fake.operations); after != before {
			p.t.Fatalf("the preview has started an operation: %d, before it %d", after, before)
		}
		p.fits()
		p.use(`main form[method=post] button.danger`)
		p.has(`#h-progress`)
		op := p.site.fake.operation()
		if q := op.Request; q.Kind != "runs.cancel" || q.Runs.GetState() != "live" || q.Note != "wrong price list" {
			p.t.Errorf("the operation is %v", q)
		}
		p.site.fake.change(func() { op.Done, op.Total = 400, proto.Int64(1000) })
		p.until(`document.querySelector("#fresh .tiles b").textContent === "400"`)
		p.use(`.actions form[action$="/cancel"] button`)
		p.until(`document.readyState === "complete" && document.querySelector("#h-progress") !== null && document.querySelector('form[action$="/cancel"]') === null`)
		if p.site.fake.operation().State != "cancelled" {
			p.t.Error("the operation goes on")
		}
	})
}

// TestStoryWorkflow: the failed node of a workflow is found in the drawing, its job is mended, and the
// workflow is resumed without the node that had succeeded.
func TestStoryWorkflow(t *testing.T) {
	const workflow = "01WRKF0000000000000000000G"
	tell(t, func(f *fakeAPI) {
		f.populate()
		nodes, states := nodesFrom("read", "check<read", "report<check")
		states[0].State, states[0].Run, states[1].State, states[1].Run, states[2].State = "succeeded", doneRun, "failed", failedRun, "skipped"
		now := timestamppb.Now()
		f.jobs = append(f.jobs, &apiv1.Job{App: "default", Name: "daily", Workflow: &apiv1.Workflow{Nodes: nodes}})
		f.runs = append([]*apiv1.Run{{Id: workflow, App: "default", Job: "daily", State: "failed", Trigger: "manual", PlannedAt: now, FinishedAt: now, Error: "node check failed", Nodes: states}}, f.runs...)
	}, func(p *person) {
		p.section("/apps/default/runs")
		p.use(`#fresh a[href$="` + workflow + `"]`)
		p.at("/apps/default/runs/" + workflow)
		if got := evaluate[string](p.browser, `[...document.querySelectorAll(".graph .node")].map((n) => n.id + " " + n.classList[1]).join()`); got != "graph-read s-succeeded,graph-check s-failed,graph-report s-skipped" {
			p.t.Fatalf("the drawing has %s", got)
		}
		p.use("#graph-check")
		p.at("/apps/default/runs/" + failedRun)
		p.has("#h-error")
		p.use(`.crumbs a[href$="/jobs/totals"]`)
		p.at("/apps/default/jobs/totals")
		p.use(`.actions a[href$="/edit"]`)
		p.at(editPage)
		evaluate[bool](p.browser, `(f => (f.focus(), f.setSelectionRange(f.value.length, f.value.length), true))(document.getElementById("yaml"))`)
		p.do(chromedp.KeyEvent("priority: 3\r"))
		p.use(`button[value=review]`)
		p.has(`button[value=save]`)
		p.use(`button[value=save]`)
		p.at("/apps/default/jobs/totals")
		p.done()

		p.section("/apps/default/runs")
		p.use(`#fresh a[href$="` + workflow + `"]`)
		p.at("/apps/default/runs/" + workflow)
		p.use(`.actions form[action$="/retry"] button`)
		p.until(`location.pathname.startsWith("/apps/default/runs/01RETR") && document.readyState === "complete"`)
		p.has(`#node-read .tag`) // the node is taken over
		p.has(`#graph-check:not(.s-succeeded)`)
		run := strings.TrimPrefix(p.here(), "/apps/default/runs/")
		p.site.fake.change(func() {
			for _, n := range p.site.fake.run(run).Nodes[1:] {
				n.State, n.Run = "succeeded", doneRun
			}
		})
		p.site.fake.finish(run, "succeeded")
		p.has(`#runstate .s-succeeded`)
		p.has(`#graph-report.s-succeeded`)
	})
}

// TestStoryModule: a second version is uploaded, gets a share of the runs, then all of them, and is rolled
// back.
func TestStoryModule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.wasm")
	if err := os.WriteFile(file, []byte("\x00asm\x01\x00\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	tell(t, func(f *fakeAPI) {
		f.populate()
		f.aliases = []*apiv1.Alias{{App: "default", Module: "report", Name: "prod", Version: "2.1", Jobs: 1, Revision: 2}}
	}, func(p *person) {
		prod := func() *apiv1.Alias {
			p.site.fake.mu.Lock()
			defer p.site.fake.mu.Unlock()
			_, a := p.site.fake.alias("report", "prod")
			return a
		}
		p.section("/apps/default/modules")
		p.fill("#u-name", "report")
		p.fill("#u-version", "3")
		p.do(chromedp.SetUploadFiles("#u-file", []string{file}))
		p.use(`form[enctype="multipart/form-data"] button:not([hidden])`)
		p.done()
		p.use(`main a[href="/apps/default/modules/report"]`)
		p.at("/apps/default/modules/report")
		p.use(`section[aria-labelledby=h-aliases] > details summary`)
		p.fill("#a-name", "prod")
		p.pick("#a-version", "2.1")
		p.pick("#a-canary", "3")
		p.fill("#a-percent", "10")
		p.use(`form[action$="/aliases"] button`)
		p.done()
		if a := prod(); a.Version != "2.1" || a.Canary.GetVersion() != "3" || a.Canary.GetPercent() != 10 {
			p.t.Fatalf("the alias is %v", a)
		}
		p.use(`button[value=promote]`)
		p.until(`document.readyState === "complete" && document.querySelector("button[value=promote]") === null && document.querySelector("main .alert.ok") !== null`)
		if a := prod(); a.Version != "3" || a.Canary != nil {
			p.t.Fatalf("after the promotion the alias is %v", a)
		}
		p.use(`button[value=back]`)
		p.until(`document.readyState === "complete" && document.querySelector("main .alert.ok")?.textContent.includes("2.1")`)
		if a := prod(); a.Version != "2.1" {
			p.t.Errorf("after the roll-back the alias is %v", a)
		}
	})
}

// TestStoryScript: a script is changed, a mistake in it is mended, and it is tried before it is saved.
func TestStoryScript(t *testing.T) {
	tell(t, everything, func(p *person) {
		p.section("/apps/default/modules")
		p.use(`main a[href="/apps/default/modules/late-fees"]`)
		p.at("/apps/default/modules/late-fees")
		p.use(`.actions a[href$="/scripts/late-fees"]`)
		p.at(lateFeesPage)
		evaluate[bool](p.browser, `(f => { f.focus(); f.setSelectionRange(0, 0); return true; })(document.getElementById("file-0"))`)
		p.do(chromedp.KeyEvent("let a = (;\r"))
		p.until(`document.querySelector("#check a[data-line]")?.textContent === "main.js:1"`)
		p.use("#check a[data-line]")
		p.until(`document.activeElement.id === "file-0"`)
		p.do(chromedp.KeyEvent("// mended"))
		p.until(`document.querySelector("#check a[data-line]") === null && document.querySelector("#h-check") !== null`)
		p.fill("#input", "Ada")
		p.use("button[value=try]")
		p.until(`document.querySelector("#trial .code")?.textContent === ":Ada"`)
		p.use("button[value=review]")
		p.until(`document.querySelector(".difflines ins")?.textContent === "// mended" && document.readyState === "complete"`)
		p.use("button[value=save]")
		p.at("/apps/default/modules/late-fees")
		p.done()
	})
}

// TestStoryMaintenance: the jobs that a maintenance window would hit are listed, and the one that must not
// run then is paused.
func TestStoryMaintenance(t *testing.T) {
	tell(t, func(f *fakeAPI) {
		for name, cron := range map[string]string{"import": "*/10 * * * *", "noon": "0 12 * * *", "night": "0 2 * * *"} {
			f.jobs = append(f.jobs, &apiv1.Job{App: "default", Name: name, Schedule: &apiv1.Schedule{Cron: cron}})
		}
		slices.SortFunc(f.jobs, func(a, b *apiv1.Job) int { return strings.Compare(a.Name, b.Name) })
	}, func(p *person) {
		window := func() string {
			p.t.Helper()
			for id, value := range map[string]string{"w-from": "2037-03-09T11:00", "w-to": "2037-03-09T12:30"} {
				p.focus("#" + id)
				evaluate[bool](p.browser, `document.getElementById("`+id+`").value = "`+value+`", true`) // the keys of this field depend on the system
			}
			p.use("form.filters button")
			p.until(`new URLSearchParams(location.search).get("to") === "2037-03-09T12:30" && document.readyState === "complete"`)
			return evaluate[string](p.browser, `[...document.querySelectorAll("tr[id^=plan-]")].map((r) => r.id + " " + r.querySelector("td.n").textContent.trim()).sort().join()`)
		}
		p.section("/apps/default/schedules")
		if got := window(); got != "plan-import 9,plan-noon 1" {
			p.t.Fatalf("the window hits %s", got)
		}
		p.use(`#plan-import a`)
		p.at("/apps/default/jobs/import")
		p.use(`.actions a[href$="/pause"]`)
		p.at("/apps/default/jobs/import/pause")
		p.use(`form[action$="/pause"] button.primary`)
		p.has(`.actions form[action$="/resume"]`)
		p.section("/apps/default/schedules")
		if got := window(); got != "plan-noon 1" {
			p.t.Errorf("with the job paused the window hits %s", got)
		}
	})
}

// TestStoryDeadLetter: the command in a dead letter is mended and replayed.
func TestStoryDeadLetter(t *testing.T) {
	tell(t, everything, func(p *person) {
		p.section("/dead-letters")
		p.use(`#letter-1 a[href^="/dead-letters/1"]`)
		p.at("/dead-letters/1")
		p.fill("#text", `{"command":{"trigger":{"app":"default","name":"report"}},"at_ms":"1"}`)
		p.use(`form[action^="/dead-letters/1/edit"] button`)
		p.done()
		if text := p.site.fake.letters[0].Text; !strings.Contains(text, `"report"`) {
			p.t.Fatalf("the body is %s", text)
		}
		p.use(`form[action^="/dead-letters/1/replay"] button`)
		p.at("/dead-letters")
		p.done()
		if left := p.site.fake.left(); left != "2" {
			p.t.Errorf("the dead letters %s are left", left)
		}
	})
}

// TestStoryDrain: a host is drained for a repair, and takes tasks again.
func TestStoryDrain(t *testing.T) {
	tell(t, everything, func(p *person) {
		p.section("/hosts")
		p.use(`main a[href="/hosts/host-a"]`)
		p.at("/hosts/host-a")
		p.use(`.actions a[href^="/hosts/host-a/cordon"]`)
		p.at("/hosts/host-a/cordon")
		p.fill("#h-reason", "new disk")
		p.mark(`input[name=drain]`)
		p.use(`main form button`)
		p.at("/hosts/host-a")
		p.until(`document.querySelector(".alert.warn")?.textContent.includes("new disk")`)
		p.site.fake.mu.Lock()
		drained := slices.ContainsFunc(p.site.fake.asked, func(m proto.Message) bool {
			r, ok := m.(*apiv1.CordonHostRequest)
			return ok && r.Host == "host-a" && r.Drain
		})
		p.site.fake.mu.Unlock()
		if !drained {
			p.t.Fatal("the host keeps what it has not started")
		}
		p.use(`.actions a[href^="/hosts/host-a/uncordon"]`)
		p.at("/hosts/host-a/uncordon")
		p.use(`main form button`)
		p.at("/hosts/host-a")
		p.done()
		p.until(`document.querySelector(".alert.warn") === null`)
	})
}

// TestStoryViewer: a member of the team with the role viewer sees the jobs, the runs, the modules and the hosts,
// is offered no change of them, and is refused one that it makes all the same.
func TestStoryViewer(t *testing.T) {
	tell(t, func(f *fakeAPI) {
		f.populate()
		f.may = []string{"jobs.read", "runs.read", "logs.read", "modules.read", "definitions.read", "revisions.read", "hosts.read", "cluster.read", "alerts.read"}
		f.strict = true
	}, func(p *person) {
		p.refusal = "status of 403"
		offered := `[...document.querySelectorAll("main form[method=post]:not([action='/preferences']), main a.danger, main a[href$='/edit'], main a[href$='/new'], main a[href*='/bulk/'], main input[type=file]")].map((e) => e.outerHTML.slice(0, 120)).join("\n")`
		p.section("/apps/default/jobs")
		for _, link := range []string{`#job-totals a[href$="/jobs/totals"]`, `#fresh a[href$="` + failedRun + `"]`} {
			p.use(link)
			p.until(`document.readyState === "complete" && document.querySelector(".crumbs") !== null`)
			if got := evaluate[string](p.browser, offered); got != "" {
				p.t.Errorf("%s offers a viewer\n%s", p.here(), got)
			}
		}
		p.has(`#h-error`)
		for _, path := range []string{"/apps/default/modules", "/hosts", "/apps/default/alerts", "/apps/default/jobs"} {
			p.section(path)
			if got := evaluate[string](p.browser, offered); got != "" {
				p.t.Errorf("%s offers a viewer\n%s", path, got)
			}
		}
		jobs := len(p.site.fake.jobs)
		for _, path := range []string{"/apps/default/jobs/totals/run", "/apps/default/jobs/totals/delete", "/apps/default/jobs/totals/pause", "/apps/default/runs/" + liveRun + "/cancel"} {
			if code := evaluate[int](p.browser, `fetch("`+path+`", {method: "POST"}).then((r) => r.status)`); code != 403 {
				p.t.Errorf("a change by %s: %d, want 403", path, code)
			}
		}
		if n := len(p.site.fake.jobs); n != jobs || p.site.fake.job("totals").GetPaused() {
			p.t.Error("a refused change was made")
		}
		p.visit(newPage)
		p.has(`main`)
		if evaluate[bool](p.browser, `document.getElementById("yaml") !== null`) {
			p.t.Error("a viewer can type a new job")
		}
	})
}
