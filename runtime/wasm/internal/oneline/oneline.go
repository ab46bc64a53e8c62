// Package oneline makes one printable line of texts that come from guests, from modules and
// from the engine, because log lines and results have one line for each message.
package oneline

import (
	"cmp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// First returns the first line of a text, or "unknown" if the text is empty.
func First(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return cmp.Or(strings.TrimSpace(line), "unknown")
}

// Valid returns the first line of a guest's text as valid UTF-8, or "" if the text is
// empty.
func Valid(s string) string {
	if s = strings.TrimSpace(s); s == "" {
		return ""
	}
	return strings.ToValidUTF8(First(s), "\uFFFD")
}

// maxPrintable is the length in bytes from which Printable truncates a text.
const maxPrintable = 600

// Printable replaces control characters and truncates long texts.
func Printable(s string) string {
	if len(s) > maxPrintable {
		s = s[:maxPrintable] + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}
