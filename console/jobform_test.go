package console

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// formPost returns what a browser sends of the form of a text, after a visitor changed some fields.
func formPost(text string, changed ...string) url.Values {
	form := url.Values{}
	for _, f := range jobFormOf(text, false).Fields {
		form.Set(formShown+f.Path, f.Value)
		if !f.Locked {
			form.Set(formValue+f.Path, f.Value)
		}
	}
	for i := 0; i+1 < len(changed); i += 2 {
		form.Set(formValue+changed[i], changed[i+1])
	}
	return form
}

// TestFormOfJob changes a job by its form. Only the changed fields of the text change.
func TestFormOfJob(t *testing.T) {
	const text = "# of the ledger\nname: a\nhandler: {module: totals@1, args: [x]}\nschedule: {cron: \"0 2 * * *\", zone: UTC}\n"
	for name, c := range map[string]struct {
		text    string
		changed []string
		want    string
	}{
		"nothing":              {text, nil, text},
		"a field":              {text, []string{"owner", "ada"}, text + "owner: ada\n"},
		"the same kind":        {text, []string{whenField, "0 3 * * *"}, strings.Replace(text, `"0 2 * * *"`, "0 3 * * *", 1)},
		"another kind":         {text, []string{kindField, "every"}, strings.Replace(text, `cron: "0 2 * * *", zone: UTC`, "zone: UTC, every: 30s", 1)},
		"another kind, a time": {text, []string{kindField, "every", whenField, "5m"}, strings.Replace(text, `cron: "0 2 * * *", zone: UTC`, "zone: UTC, every: 5m", 1)},
		"no schedule":          {text, []string{kindField, ""}, strings.SplitAfter(text, "[x]}\n")[0]},
		"a first schedule":     {"name: a\n", []string{kindField, "cron"}, "name: a\nschedule:\n  cron: 30 2 * * *\n"},
		"a daily one stays":    {"name: a\nschedule: {daily: {from: \"09:00\"}}\n", []string{"owner", "ada"}, "name: a\nschedule: {daily: {from: \"09:00\"}}\nowner: ada\n"},
		"unknown kind":         {text, []string{kindField, "handler"}, text},
		"an input of lines":    {"name: a\n", []string{"input", "a\r\nb"}, "name: a\ninput: |-\n  a\n  b\n"},
		"text without a form":  {"- a", []string{"owner", "ada"}, "- a"},
	} {
		t.Run(name, func(t *testing.T) {
			form := formPost(c.text, c.changed...)
			after := takeOver(c.text, form)
			if after != c.want {
				t.Errorf("the text became\n%s\nwant\n%s", after, c.want)
			}
			if again := takeOver(after, formPost(after)); again != after {
				t.Errorf("a post without a change made\n%s\nof\n%s", again, after)
			}
		})
	}
	// Both sides have changed since the page was shown: neither change is lost.
	form := formPost(text, "timeout", "10m")
	if got := takeOver(text+"owner: ada\n", form); got != text+"owner: ada\ntimeout: 10m\n" {
		t.Errorf("with a change on each side the text became\n%s", got)
	}
}

// TestFormWithoutScripts changes a job by its form and goes straight to the review.
func TestFormWithoutScripts(t *testing.T) {
	s := newSite(t, newFake().populate()).signIn(t)
	const text = "name: a\nhandler: {module: totals@1}\n"
	form := formPost(text, "timeout", "7m", kindField, "every", whenField, "5m")
	more := []string{}
	for k := range form {
		more = append(more, k, form.Get(k))
	}
	_, body := s.step(t, newPage, "review", text, more...)
	for _, want := range []string{"timeout", "7m", "schedule.every", "5m"} {
		if !strings.Contains(body, want) {
			t.Errorf("the review lacks %q", want)
		}
	}
	_, body = s.step(t, newPage, "check", "name: [")
	if !strings.Contains(body, "The form comes back when the text can be read") {
		t.Error("a text that cannot be read does not say that it has no form")
	}
	_, body = s.step(t, newPage, "check", "name: a\nhandler: {module: totals@1}\nowner: &x ada\n")
	if !strings.Contains(body, "Change it in the text") {
		t.Error("a value that the form cannot change is not marked")
	}
}

// testJobForm changes the form with the keyboard and then the text, on a wide and a narrow screen. Each follows the other.
func testJobForm(t *testing.T, b *browser) {
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	text := func(condition string) { t.Helper(); b.until(`document.getElementById("yaml").value` + condition) }
	for _, width := range []int{1440, 400} {
		b.do(chromedp.EmulateViewport(int64(width), 900))
		b.visit(newPage)
		evaluate[bool](b, `document.getElementById("form-timeout").focus(), true`)
		b.do(chromedp.KeyEvent("7m\t"))
		text(`.includes("timeout: 7m")`)
		b.until(`document.activeElement.id === "form-retry-max"`)
		b.do(chromedp.KeyEvent("4\t"))
		text(`.includes("max: 4")`)
		text(`.includes("timeout: 7m")`)
		if n := evaluate[int](b, `document.querySelectorAll("#jobform").length`); n != 1 {
			t.Errorf("the page has %d forms after a change", n)
		}
		b.shot("jobform-" + strconv.Itoa(width))
		b.accessible()
		if wide := evaluate[int](b, `document.documentElement.scrollWidth`); wide > width {
			t.Errorf("the editor is %d pixels wide on a screen of %d", wide, width)
		}
		evaluate[bool](b, `(e => { e.focus(); e.select(); return true; })(document.getElementById("yaml"))`)
		b.do(chromedp.KeyEvent("name: typed\rhandler: {module: totals@1}\rowner: ada\r"))
		b.until(`document.getElementById("form-owner").value === "ada" && document.getElementById("form-timeout").value === ""`)
		b.until(`document.activeElement.id === "yaml"`)
		text(`.startsWith("name: typed")`)
	}
}
