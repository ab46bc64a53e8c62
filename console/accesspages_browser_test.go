package console

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// testGiveAccess creates a user, gives it a role, and makes and revokes a token, with the keyboard alone.
func testGiveAccess(t *testing.T, b *browser) {
	focus := func(selector string) {
		evaluate[bool](b, `document.querySelector(`+"`"+selector+"`"+`).focus(), true`)
	}
	enter := func(selector, text string) {
		focus(selector)
		b.do(chromedp.KeyEvent(text))
	}
	press := func(selector, shows string) {
		focus(selector)
		b.do(chromedp.KeyEvent("\r"))
		b.until(`document.readyState === "complete" && document.body.textContent.includes("` + shows + `")`)
		b.accessible()
	}
	b.visit("/access/users")
	enter("#u-name", "grace")
	press("#u-name", oncePassword)
	if here := evaluate[string](b, `location.href`); strings.Contains(here, oncePassword) {
		t.Errorf("the address has the password: %s", here)
	}
	b.shot("secret-password")
	press(`main a[href="/access/bindings"]`, "Add a binding")
	enter("#b-principal", "grace")
	enter("#s-role", "operator")
	press(`form[action="/access/bindings"] button`, "Added: grace · operator · app:default")
	press(`.tabs a[href="/access/tokens"]`, "Create a token")
	enter("#t-name", "nightly")
	press(`form[action="/access/tokens"] button`, onceToken)
	b.shot("secret-token")
	press(`main a.button`, "nightly")
	press(`a[href="/access/tokens/tok-new/revoke"]`, "Revoke the token tok-new")
	press(`main form button`, "Revoked: tok-new")
	if evaluate[bool](b, `document.body.textContent.includes("nightly")`) {
		t.Error("the revoked token is listed")
	}
}

// testLetMachinesJoin makes a join token, renames a machine and revokes its certificate and the token, with the
// keyboard alone, on a narrow screen.
func testLetMachinesJoin(t *testing.T, b *browser) {
	b.do(chromedp.EmulateViewport(400, 800))
	defer b.do(chromedp.EmulateViewport(1440, 1000))
	fits := func() {
		if wide := evaluate[int](b, `document.documentElement.scrollWidth`); wide > 400 {
			t.Errorf("%s is %d pixels wide", evaluate[string](b, `location.pathname`), wide)
		}
	}
	press := func(selector, shows string) {
		evaluate[bool](b, `document.querySelector(`+"`"+selector+"`"+`).focus(), true`)
		b.do(chromedp.KeyEvent("\r"))
		b.until(`document.readyState === "complete" && document.body.textContent.includes("` + shows + `")`)
		b.accessible()
		fits()
	}
	b.visit("/access/machines")
	fits()
	evaluate[bool](b, `document.querySelector("#j-labels").focus(), true`)
	b.do(chromedp.KeyEvent("zone=c"))
	press("#j-labels", "--join-token "+onceJoin)
	press(`main a.button`, "join-new")
	press(`a[href="/access/machines/host-1/rename"]`, "Rename press-1?")
	evaluate[bool](b, `document.querySelector("#m-name").select(), true`)
	b.do(chromedp.KeyEvent("south"))
	press("#m-name", "Renamed: south")
	press(`a[href="/access/machines/host-1/revoke"]`, "Revoke the certificate of south")
	press(`main form button`, "Revoked: south")
	press(`a[href="/access/join-tokens/join-new/revoke"]`, "Revoke the join token join-new?")
	press(`main form button`, "Revoked: join-new")
	if evaluate[bool](b, `[...document.querySelectorAll("main td")].some(x => x.textContent.includes("host-1") || x.textContent.includes("join-new"))`) {
		t.Error("the revoked machine or token is listed")
	}
}
