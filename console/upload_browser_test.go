package console

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// testUpload sends a module with its progress: the visitor stops it while the server checks it, and sends it
// again. A refusal keeps the fields and the file.
func testUpload(t *testing.T, b *browser) {
	good, bad := filepath.Join(t.TempDir(), "good.wasm"), filepath.Join(t.TempDir(), "bad.wasm")
	for file, text := range map[string]string{good: "\x00asm" + strings.Repeat("x", 300<<10-4), bad: "no module"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.mu.Lock()
	b.refusal = "status of 422"
	b.mu.Unlock()
	checks, release, stopped := make(chan struct{}, 1), make(chan struct{}), make(chan struct{}, 1)
	b.site.fake.check = func(ctx context.Context) error {
		checks <- struct{}{}
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			stopped <- struct{}{}
			return ctx.Err()
		}
	}
	defer func() { b.site.fake.check = nil }()
	b.do(chromedp.EmulateViewport(400, 800))
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	b.visit("/apps/default/modules")
	b.do(chromedp.SendKeys(`input[name=name]`, "big"), chromedp.SendKeys(`input[name=version]`, "1"), chromedp.SetUploadFiles(`input[type=file]`, []string{bad}))
	send := func() {
		t.Helper()
		evaluate[bool](b, `document.querySelector("form[enctype] button.primary").focus(), true`)
		b.do(chromedp.KeyEvent("\r"))
	}
	kept := func(when string) {
		t.Helper()
		if !evaluate[bool](b, `(f => f.elements.name.value === "big" && f.elements.version.value === "1" && f.elements.file.files.length === 1 && !f.dataset.sent)(document.querySelector("form[enctype]"))`) {
			t.Errorf("%s the form has lost something", when)
		}
	}
	send()
	b.until(`document.activeElement.getAttribute("role") === "alert" && document.activeElement.textContent.includes("not WebAssembly")`)
	kept("after a refusal")
	b.accessible()

	b.do(chromedp.SetUploadFiles(`input[type=file]`, []string{good}))
	send()
	<-checks
	b.until(`document.querySelector("[data-upload] [role=status]").textContent === "Checking…"`)
	if text := evaluate[string](b, `document.querySelector("[data-upload] .sent").textContent`); !strings.Contains(text, "300.") || !strings.HasSuffix(text, "KiB") || !strings.Contains(text, " / ") {
		t.Errorf("the progress reads %q", text)
	}
	b.accessible()
	b.shot("upload")
	send() // the form is sent once
	b.do(chromedp.Click(`[data-upload] button`))
	b.until(`document.querySelector("[data-upload] [role=status]").textContent.startsWith("Stopped.")`)
	<-stopped
	kept("after it was stopped")
	if wide := evaluate[int](b, `document.documentElement.scrollWidth`); wide > 400 {
		t.Errorf("the page is %d pixels wide", wide)
	}

	send()
	<-checks
	close(release)
	b.until(`document.readyState === "complete" && document.querySelector("main .alert.ok") !== null && document.body.textContent.includes("big")`)
	if got := b.here(); got != "/apps/default/modules" {
		t.Errorf("the upload led to %s", got)
	}
}
