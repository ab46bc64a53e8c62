package services

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"html"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// leastRedacted is the length in bytes of the shortest secret that is removed from a
	// text: shorter ones occur in too many words.
	leastRedacted = 4
	// leastForm is the length in bytes of the shortest line, encoded form and cut-off
	// part of a secret that is removed. These are not the secret itself, and a shorter
	// one may well be unrelated text.
	leastForm = 8
)

// redacted replaces a secret in a text.
var redacted = []byte("[secret]")

// forms are the byte sequences in which secrets may occur in a text. They are never
// changed in place.
type forms struct {
	plain   [][]byte // secrets and their lines, without encoding; also searched behind escapes
	encoded [][]byte // in base64, hexadecimal and percent escapes
}

// formsOf returns the forms in which a secret is likely to occur in a text by accident;
// none if the secret is too short.
func formsOf(secret []byte) (f forms) {
	if len(secret) < leastRedacted {
		return f
	}
	plain := func(form []byte, least int) { f.plain = withForm(f.plain, form, least) }
	plain(bytes.Clone(secret), leastRedacted)
	plain(bytes.TrimSpace(bytes.Clone(secret)), leastRedacted) // log lines lack the final line break of a secret
	if lines := bytes.Split(secret, []byte{'\n'}); len(lines) > 1 {
		for _, line := range lines {
			if line = bytes.TrimSpace(line); !bytes.HasPrefix(line, []byte("-----")) { // such lines are the same in every key
				plain(bytes.Clone(line), leastForm)
			}
		}
	}
	encoded := func(form string) { f.encoded = withForm(f.encoded, []byte(form), leastForm) }
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		encoded(e.EncodeToString(secret))
		encoded(e.WithPadding(base64.NoPadding).EncodeToString(secret))
		for before := range 3 {
			encoded(within(e, secret, before))
		}
	}
	// A text with "%" before the secret would hide its beginning from the decoder of
	// percent escapes, so the usual spellings are searched as they are too.
	for _, form := range []string{url.QueryEscape(string(secret)), url.PathEscape(string(secret))} {
		if form != string(secret) {
			encoded(form)
		}
	}
	digits := hex.EncodeToString(secret)
	encoded(digits)
	encoded(strings.ToUpper(digits))
	return f
}

// withForm adds a form, unless it is already present or too short.
func withForm(to [][]byte, form []byte, least int) [][]byte {
	if len(form) < least || slices.ContainsFunc(to, func(o []byte) bool { return bytes.Equal(o, form) }) {
		return to
	}
	return append(to, form)
}

// within returns the characters that the base64 of every text has in common if the text
// contains the secret after before bytes, modulo 3.
func within(e *base64.Encoding, secret []byte, before int) string {
	all := e.EncodeToString(append(make([]byte, before, before+len(secret)), secret...))
	first, last := (8*before+5)/6, 8*(before+len(secret))/6
	return all[first:max(first, last)]
}

func (f forms) none() bool { return len(f.plain) == 0 }

// and returns the forms of both f and more.
func (f forms) and(more forms) forms {
	all := forms{slices.Clone(f.plain), slices.Clone(f.encoded)}
	for _, form := range more.plain {
		all.plain = withForm(all.plain, form, 0)
	}
	for _, form := range more.encoded {
		all.encoded = withForm(all.encoded, form, 0)
	}
	return all
}

// takeOut replaces each form in a text by redacted, and also a form that an end of the
// text cuts off, because texts have a maximum length. It returns text itself if it
// contains none.
func (f forms) takeOut(text []byte) []byte {
	var found []span
	for _, list := range [][][]byte{f.plain, f.encoded} {
		for _, form := range list {
			found = appendSpans(found, text, form)
		}
	}
	for _, e := range escapes {
		plain, from, ok := e.decode(text)
		if !ok {
			continue
		}
		for _, form := range f.plain {
			for _, s := range appendSpans(nil, plain, form) {
				found = append(found, span{from[s.start], from[s.end]})
			}
		}
	}
	if len(found) == 0 {
		return text
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end)) })
	out := make([]byte, 0, len(text))
	at := 0 // text[:at] is in out
	for _, s := range found {
		if s.start >= at {
			out = append(append(out, text[at:s.start]...), redacted...)
		}
		at = max(at, s.end)
	}
	return append(out, text[at:]...)
}

// A span is a part of a text.
type span struct{ start, end int }

// appendSpans appends the spans in which a form occurs in a text, whole or cut off by an
// end of the text.
func appendSpans(to []span, text, form []byte) []span {
	for at := 0; ; {
		i := bytes.Index(text[at:], form)
		if i < 0 {
			break
		}
		at += i + len(form)
		to = append(to, span{at - len(form), at})
	}
	return appendCutOff(to, text, form)
}

// cutTries bounds the work for a text that consists of nothing but beginnings of a form.
const cutTries = 64

// appendCutOff appends the end of the text if it is the beginning of a form, and the
// beginning of the text if it is the end of a form.
func appendCutOff(to []span, text, form []byte) []span {
	if len(form) <= leastForm || len(text) < leastForm {
		return to
	}
	head, tail := form[:leastForm], form[len(form)-leastForm:]
	for at, tries := max(0, len(text)-len(form)+1), 0; at+leastForm <= len(text) && tries < cutTries; at, tries = at+1, tries+1 {
		i := bytes.Index(text[at:], head)
		if i < 0 {
			break
		}
		if at += i; bytes.HasPrefix(form, text[at:]) {
			to = append(to, span{at, len(text)})
			break
		}
	}
	for end, tries := min(len(text), len(form)-1), 0; end >= leastForm && tries < cutTries; end, tries = end-1, tries+1 {
		i := bytes.LastIndex(text[:end], tail)
		if i < 0 {
			break
		}
		if end = i + leastForm; bytes.HasSuffix(form, text[:end]) {
			return append(to, span{0, end})
		}
	}
	return to
}

// An escape is an encoding of one character as several.
type escape struct {
	marks string // the characters with which it begins
	// read decodes the escape at the beginning of the text and returns its length; 0: it
	// is no escape.
	read func(text []byte) (plain []byte, n int)
}

// escapes are those of URLs, without and with + for a space, of string literals of
// programming languages and JSON, and of HTML.
var escapes = []escape{{"%", readPercent}, {"%+", readForm}, {`\`, readBackslash}, {"&", readEntity}}

// decode decodes the escapes in a text. from is the index in the text for each byte of
// plain, and for its end. ok is false if the text has no escape.
func (e escape) decode(text []byte) (plain []byte, from []int, ok bool) {
	if !bytes.ContainsAny(text, e.marks) {
		return nil, nil, false
	}
	for at := 0; at < len(text); {
		said, n := text[at:at+1], 1
		if strings.IndexByte(e.marks, text[at]) >= 0 {
			if p, size := e.read(text[at:]); size > 0 {
				said, n, ok = p, size, true
			}
		}
		for range said {
			from = append(from, at)
		}
		plain = append(plain, said...)
		at += n
	}
	return plain, append(from, len(text)), ok
}

func readPercent(text []byte) ([]byte, int) {
	if len(text) < 3 {
		return nil, 0
	}
	return number(text[1:3], 3, func(v uint64) []byte { return []byte{byte(v)} })
}

func readForm(text []byte) ([]byte, int) {
	if text[0] == '+' {
		return []byte{' '}, 1
	}
	return readPercent(text)
}

// number parses hexadecimal digits.
func number(digits []byte, n int, as func(uint64) []byte) ([]byte, int) {
	v, err := strconv.ParseUint(string(digits), 16, 32)
	if err != nil {
		return nil, 0
	}
	return as(v), n
}

func character(v uint64) []byte { return utf8.AppendRune(nil, rune(v)) }

// plainEscapes are pairs: the letter after a backslash, and its meaning.
const plainEscapes = "n\nt\tr\rb\bf\fa\av\v0\x00\"\"''\\\\//``"

func readBackslash(text []byte) ([]byte, int) {
	if len(text) < 2 {
		return nil, 0
	}
	digits := func(n int, as func(uint64) []byte) ([]byte, int) {
		if len(text) < 2+n {
			return nil, 0
		}
		return number(text[2:2+n], 2+n, as)
	}
	switch text[1] {
	case 'x':
		return digits(2, func(v uint64) []byte { return []byte{byte(v)} })
	case 'U':
		return digits(8, character)
	case 'u':
		if end := bytes.IndexByte(text, '}'); len(text) > 2 && text[2] == '{' && end > 3 && end < 12 {
			return number(text[3:end], end+1, character)
		}
		if first, err := strconv.ParseUint(string(text[2:min(6, len(text))]), 16, 32); err == nil && utf16.IsSurrogate(rune(first)) && len(text) >= 12 && string(text[6:8]) == `\u` {
			if second, err := strconv.ParseUint(string(text[8:12]), 16, 32); err == nil {
				return character(uint64(utf16.DecodeRune(rune(first), rune(second)))), 12
			}
		}
		return digits(4, character)
	}
	for i := 0; i < len(plainEscapes); i += 2 {
		if plainEscapes[i] == text[1] {
			return []byte{plainEscapes[i+1]}, 2
		}
	}
	return nil, 0
}

// longestEntity is the length of the longest entity in common use; longer ones exist.
const longestEntity = 12

func readEntity(text []byte) ([]byte, int) {
	end := bytes.IndexByte(text[:min(len(text), longestEntity)], ';')
	if end < 0 {
		return nil, 0
	}
	if plain := html.UnescapeString(string(text[:end+1])); plain != string(text[:end+1]) {
		return []byte(plain), end + 1
	}
	return nil, 0
}
