// Package errorkind tells errors of one kind from others: it replaces in a message what differs
// each time, and makes a fingerprint of the rest.
package errorkind

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The marks that replace what differs between errors of one kind.
const (
	anyText    = "‹text›"
	anyAddress = "‹address›"
	anyID      = "‹id›"
	anyNumber  = "‹n›"
)

const (
	// MaxBytes bounds the bytes of a message that tell its kind. Messages are up to 1 MiB long.
	MaxBytes = 512
	// shortestID is the number of hex digits from which a word is an id, and shortestMixed that of
	// letters and digits.
	shortestID    = 8
	shortestMixed = 16
)

// Fingerprint identifies the kind of a run's error: its job, its code and its message without what
// differs each time, as [Of] returns it.
func Fingerprint(job, code, kind string) string {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s\x00%s\x00%s", job, code, kind)
	return fmt.Sprintf("%016x", h.Sum64())
}

// Valid reports whether a text has the form of a fingerprint.
func Valid(fingerprint string) bool {
	return len(fingerprint) == 16 && strings.Trim(fingerprint, "0123456789abcdef") == ""
}

// Of returns a message with marks for quoted parts, addresses, ids and numbers, so that
// messages of one kind are equal. It reads the first MaxBytes bytes.
func Of(message string) string {
	if len(message) > MaxBytes {
		message = strings.ToValidUTF8(message[:MaxBytes], "")
	}
	var b strings.Builder
	for rest := strings.TrimSpace(message); rest != ""; {
		if quoted := quotedPart(rest); quoted > 0 {
			b.WriteString(anyText)
			rest = rest[quoted:]
			continue
		}
		r, size := utf8.DecodeRuneInString(rest)
		if unicode.IsSpace(r) {
			b.WriteByte(' ')
			rest = strings.TrimLeftFunc(rest, unicode.IsSpace)
			continue
		}
		end := wordEnd(rest, size)
		writeWord(&b, rest[:end])
		rest = rest[end:]
	}
	return b.String()
}

// quotes maps opening quotes to closing ones.
var quotes = map[rune]string{'"': `"`, '\'': "'", '`': "`", '“': "”", '‘': "’", '«': "»", '「': "」"}

// quotedPart returns the length of the quoted part with which a text begins; 0: it begins with none.
func quotedPart(s string) int {
	r, size := utf8.DecodeRuneInString(s)
	closing, ok := quotes[r]
	if !ok {
		return 0
	}
	end := strings.Index(s[size:], closing)
	if end < 0 {
		return 0
	}
	return size + end + len(closing)
}

// wordEnd returns the end of the word with which a text begins: up to a space, or a quote that does
// not follow a letter as in "isn't". The word has at least first bytes.
func wordEnd(s string, first int) int {
	last, _ := utf8.DecodeRuneInString(s)
	for i, r := range s[first:] {
		_, quote := quotes[r]
		if unicode.IsSpace(r) || quote && (r != '\'' || !unicode.IsLetter(last)) {
			return first + i
		}
		last = r
	}
	return len(s)
}

// punctuation surrounds words and is no part of an address.
const punctuation = "()[]{}<>,;:!?.="

func writeWord(b *strings.Builder, word string) {
	core := strings.TrimRight(word, ".,;:!?")
	if _, err := netip.ParseAddrPort(core); err == nil { // [::1]:80 begins with punctuation
		b.WriteString(anyAddress + word[len(core):])
		return
	}
	core = strings.TrimLeft(word, punctuation)
	before := word[:len(word)-len(core)]
	core = strings.TrimRight(core, punctuation)
	after := word[len(before)+len(core):]
	name, value, assigned := strings.Cut(core, "=")
	b.WriteString(before)
	switch {
	case isAddress(core):
		b.WriteString(anyAddress)
	case assigned && isAddress(value):
		writeNumbers(b, name)
		b.WriteString("=" + anyAddress)
	default:
		writeNumbers(b, core)
	}
	b.WriteString(after)
}

// isAddress reports whether a word is a URL, a mail address, an IP address or a host with a port.
func isAddress(word string) bool {
	if scheme, rest, ok := strings.Cut(word, "://"); ok {
		return scheme != "" && rest != ""
	}
	if user, host, ok := strings.Cut(word, "@"); ok {
		return user != "" && strings.Contains(host, ".")
	}
	if !strings.ContainsAny(word, ".:") {
		return false
	}
	if _, err := netip.ParseAddr(word); err == nil {
		return true
	}
	if _, err := netip.ParseAddrPort(word); err == nil {
		return true
	}
	host, port, ok := strings.Cut(word, ":")
	return ok && len(port) >= 2 && len(port) <= 5 && strings.Trim(port, "0123456789") == "" && isHost(host)
}

// sourceFiles are the ends of names that have the form of a host and come before the number of a line.
var sourceFiles = []string{"c", "cc", "cpp", "go", "java", "js", "kt", "php", "py", "rb", "rs", "ts", "wasm", "wat", "yaml"}

func isHost(name string) bool {
	if name == "localhost" {
		return true
	}
	dot := strings.LastIndexByte(name, '.')
	return dot > 0 && !strings.ContainsAny(name, "/\\") && !slices.Contains(sourceFiles, name[dot+1:])
}

// writeNumbers writes a word with marks for its ids and numbers.
func writeNumbers(b *strings.Builder, word string) {
	for word != "" {
		if isUUID(word) {
			b.WriteString(anyID)
			word = word[uuidLength:]
			continue
		}
		n := strings.IndexFunc(word, func(r rune) bool { return !isAlphanumeric(r) })
		if n < 0 {
			n = len(word)
		}
		if n == 0 {
			_, size := utf8.DecodeRuneInString(word)
			b.WriteString(word[:size])
			word = word[size:]
			continue
		}
		if isID(word[:n]) {
			b.WriteString(anyID)
		} else {
			n = writeDigits(b, word, n)
		}
		word = word[n:]
	}
}

// writeDigits writes the first n bytes of a word with marks for its numbers. It returns how much it
// has read, which is more when a number has a fraction.
func writeDigits(b *strings.Builder, word string, n int) int {
	for i := 0; i < n; {
		if !isDigit(word[i]) {
			b.WriteByte(word[i])
			i++
			continue
		}
		for i < len(word) && (isDigit(word[i]) || (word[i] == '.' || word[i] == ',') && i+1 < len(word) && isDigit(word[i+1])) {
			i++
		}
		b.WriteString(anyNumber)
		if i > n {
			return i
		}
	}
	return n
}

const uuidLength = 36

// isUUID reports whether a word begins with a UUID, as 550e8400-e29b-41d4-a716-446655440000.
func isUUID(word string) bool {
	if len(word) < uuidLength {
		return false
	}
	for i := range uuidLength {
		if dash := i == 8 || i == 13 || i == 18 || i == 23; dash != (word[i] == '-') || !dash && !isHex(word[i]) {
			return false
		}
	}
	return true
}

// isID reports whether a word of letters and digits is an id: hex digits, or long and mixed. A
// number is none.
func isID(word string) bool {
	digits, hex := 0, 0
	for i := range len(word) {
		if isDigit(word[i]) {
			digits++
		}
		if isHex(word[i]) {
			hex++
		}
	}
	switch {
	case strings.HasPrefix(word, "0x") && len(word) > 2:
		return hex == len(word)-1
	case digits == 0 || digits == len(word):
		return false
	case hex == len(word):
		return len(word) >= shortestID
	}
	return digits >= 3 && len(word) >= shortestMixed
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }

func isAlphanumeric(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}
