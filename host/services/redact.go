package services

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// leastRedacted is the length of the shortest secret that is taken out of a
	// text: a shorter one is in too many words.
	leastRedacted = 4
	// leastForm is the length of the shortest line, encoded form and rest of a
	// secret that is taken out: it is not the secret itself, and what is shorter
	// may well be something else.
	leastForm = 8
)

// redacted stands in a text in the place of a secret.
var redacted = []byte("[secret]")

// forms are how a secret may stand in a text, the longest first: one may hold
// another.
type forms [][]byte

// formsOf returns how a secret is likely to stand in a text by accident: as it is,
// a line of it, as a part of a text in base64 or hexadecimal, and with the escapes
// of JSON, of addresses and of HTML. It returns nothing for what is too short.
func formsOf(secret []byte) forms {
	var f forms
	add := func(form []byte, least int) {
		if len(form) >= least && !slices.ContainsFunc(f, func(o []byte) bool { return bytes.Equal(o, form) }) {
			f = append(f, form)
		}
	}
	escaped := func(form string) {
		if form != string(secret) {
			add([]byte(form), leastForm)
		}
	}
	if len(secret) < leastRedacted {
		return nil
	}
	add(bytes.Clone(secret), leastRedacted)
	add(bytes.TrimSpace(bytes.Clone(secret)), leastRedacted) // a log has lines: the last line break is never in one
	if lines := bytes.Split(secret, []byte{'\n'}); len(lines) > 1 {
		for _, line := range lines {
			if line = bytes.TrimSpace(line); !bytes.HasPrefix(line, []byte("-----")) { // that is the same in every key
				add(bytes.Clone(line), leastForm)
			}
		}
	}
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		add([]byte(e.EncodeToString(secret)), leastForm)
		add([]byte(e.WithPadding(base64.NoPadding).EncodeToString(secret)), leastForm)
		for before := range 3 {
			add(within(e, secret, before), leastForm)
		}
	}
	digits := hex.EncodeToString(secret)
	add([]byte(digits), leastForm)
	add([]byte(strings.ToUpper(digits)), leastForm)
	text := string(secret)
	escaped(url.QueryEscape(text))
	escaped(url.PathEscape(text))
	escaped(html.EscapeString(text))
	escaped(inJSON(text, true))
	escaped(inJSON(text, false))
	escaped(inside(strconv.Quote(text)))
	escaped(inside(strconv.QuoteToASCII(text)))
	f.sort()
	return f
}

// within returns what is the same of a secret in the base64 of every text that
// holds it behind as many bytes as that, of three.
func within(e *base64.Encoding, secret []byte, before int) []byte {
	all := e.EncodeToString(append(make([]byte, before, before+len(secret)), secret...))
	first, last := (8*before+5)/6, 8*(before+len(secret))/6
	return []byte(all)[first:max(first, last)]
}

// inJSON is a text as it stands between the quotes of JSON.
func inJSON(text string, html bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if err := e.Encode(text); err != nil {
		return text // there is no text without a JSON
	}
	return inside(strings.TrimSuffix(b.String(), "\n"))
}

// inside is what stands between quotes.
func inside(quoted string) string { return quoted[1 : len(quoted)-1] }

func (f forms) sort() {
	slices.SortStableFunc(f, func(a, b []byte) int { return cmp.Compare(len(b), len(a)) })
}

// and returns the forms of both.
func (f forms) and(more forms) forms {
	all := slices.Clone(f)
	for _, form := range more {
		if !slices.ContainsFunc(all, func(o []byte) bool { return bytes.Equal(o, form) }) {
			all = append(all, form)
		}
	}
	all.sort()
	return all
}

// takeOut puts a mark into the place of each form, and of a beginning or an end of
// one that is cut off at an end of the text: texts have limits. It returns text
// itself when there is nothing.
func (f forms) takeOut(text []byte) []byte {
	for _, form := range f {
		if bytes.Contains(text, form) {
			text = bytes.ReplaceAll(text, form, redacted)
		}
	}
	for _, form := range f {
		text = cutOff(text, form)
	}
	return text
}

// cutTries bounds the work for a text that is made of nothing but beginnings.
const cutTries = 64

// cutOff takes the beginning of a form off the end of a text, and the end of one
// off its beginning.
func cutOff(text, form []byte) []byte {
	if len(form) <= leastForm || len(text) < leastForm {
		return text
	}
	head, tail := form[:leastForm], form[len(form)-leastForm:]
	for at, tries := max(0, len(text)-len(form)+1), 0; at+leastForm <= len(text) && tries < cutTries; at, tries = at+1, tries+1 {
		i := bytes.Index(text[at:], head)
		if i < 0 {
			break
		}
		if at += i; bytes.HasPrefix(form, text[at:]) {
			text = append(slices.Clip(text[:at]), redacted...)
			break
		}
	}
	for end, tries := min(len(text), len(form)-1), 0; end >= leastForm && tries < cutTries; end, tries = end-1, tries+1 {
		i := bytes.LastIndex(text[:end], tail)
		if i < 0 {
			break
		}
		if end = i + leastForm; bytes.HasSuffix(form, text[:end]) {
			return append(slices.Clone(redacted), text[end:]...)
		}
	}
	return text
}
