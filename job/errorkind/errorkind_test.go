package errorkind

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestOf(t *testing.T) {
	for message, want := range map[string]string{
		"":                                            "",
		"gateway answered 401: no signature":          "gateway answered ‹n›: no signature",
		"  two \n lines\t here ":                      "two lines here",
		"took 1.5s of 30s":                            "took ‹n›s of ‹n›s",
		"1,204 rows":                                  "‹n› rows",
		"exit status -3":                              "exit status -‹n›",
		`job "totals" has no handler 'main'`:          "job ‹text› has no handler ‹text›",
		"`a b` and “c” and 「d」":                       "‹text› and ‹text› and ‹text›",
		"it isn't open and can't be":                  "it isn't open and can't be",
		`an "open quote`:                              `an "open quote`,
		"dial tcp 10.0.0.9:5432: refused":             "dial tcp ‹address›: refused",
		"dial tcp [::1]:80: refused":                  "dial tcp ‹address›: refused",
		"dial db-1.example.com:5432 failed":           "dial ‹address› failed",
		"localhost:80 is closed":                      "‹address› is closed",
		"no route to fe80::1":                         "no route to ‹address›",
		"get https://x.example/a?b=1: timeout":        "get ‹address›: timeout",
		"peer=192.168.0.1 is gone":                    "peer=‹address› is gone",
		"mail to ada@example.com bounced":             "mail to ‹address› bounced",
		"main.go:42: nil":                             "main.go:‹n›: nil",
		"at main.go:1042":                             "at main.go:‹n›",
		"order 550e8400-e29b-41d4-a716-446655440000.": "order ‹id›.",
		"key/550e8400-e29b-41d4-a716-446655440000/x":  "key/‹id›/x",
		"commit deadbeef1 is unknown":                 "commit ‹id› is unknown",
		"pointer 0xc000123":                           "pointer ‹id›",
		"run 01JDW3N8Q2T5V7X9Z1B3D5F7H9 is gone":      "run ‹id› is gone",
		"the decade is defaced":                       "the decade is defaced",
		"sha256 and utf8":                             "sha‹n› and utf‹n›",
		"INV-2026-118203 is paid":                     "INV-‹n›-‹n› is paid",
		"第 17 行不是数字":                                  "第 ‹n› 行不是数字",
		"第17行":                                        "第‹n›行",
	} {
		if got := Of(message); got != want {
			t.Errorf("Of(%q) = %q, want %q", message, got, want)
		}
	}
}

func TestIsBounded(t *testing.T) {
	kind := Of(strings.Repeat("数", 1<<18))
	if len(kind) > MaxBytes || !utf8.ValidString(kind) {
		t.Errorf("%d bytes, want at most %d of UTF-8", len(kind), MaxBytes)
	}
}

func TestFingerprint(t *testing.T) {
	type failure struct{ job, code, message string }
	of := func(f failure) string { return Fingerprint(f.job, f.code, Of(f.message)) }
	first := failure{"totals", "exit", "line 17"}
	if !Valid(of(first)) {
		t.Errorf("%q is not valid", of(first))
	}
	if of(first) != of(failure{"totals", "exit", "line 4"}) {
		t.Error("two errors of one kind have two fingerprints")
	}
	for _, other := range []failure{
		{"report", "exit", "line 17"},
		{"totals", "trap", "line 17"},
		{"totals", "exit", "row 17"},
		{"totals", "exi", "t line 17"},
	} {
		if of(first) == of(other) {
			t.Errorf("%v has the fingerprint of %v", other, first)
		}
	}
	for _, bad := range []string{"", "0123", "0123456789ABCDEF", "0123456789abcdef0", "0123456789abcde/"} {
		if Valid(bad) {
			t.Errorf("%q is valid", bad)
		}
	}
}

func FuzzOf(f *testing.F) {
	f.Add(`dial "x" 10.0.0.1:80 0xff é`)
	f.Fuzz(func(t *testing.T, message string) {
		if kind := Of(message); utf8.ValidString(message) && !utf8.ValidString(kind) {
			t.Errorf("%q became %q, which is no UTF-8", message, kind)
		}
	})
}
