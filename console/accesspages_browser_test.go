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
