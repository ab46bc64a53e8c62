package output

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// Pad fills a text with spaces up to a width in terminal columns.
func Pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-displayWidth(s), 0))
}

// displayWidth returns the width of a text in terminal columns: two for East Asian
// characters and emoji, none for combining marks.
func displayWidth(s string) int {
	width := 0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case r >= 0x1100 && (r <= 0x115f || r >= 0x2e80 && r <= 0xa4cf || r >= 0xac00 && r <= 0xd7a3 ||
			r >= 0xf900 && r <= 0xfaff || r >= 0xfe30 && r <= 0xfe6f || r >= 0xff00 && r <= 0xff60 ||
			r >= 0xffe0 && r <= 0xffe6 || r >= 0x1f300 && r <= 0x1faff || r >= 0x20000 && r <= 0x3fffd):
			width += 2
		default:
			width++
		}
	}
	return width
}

// Printable replaces control characters with a visible form: a log line or a description
// must not control the reader's terminal.
func Printable(s string) string {
	if IsPrintable(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if steers(r) {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// IsPrintable reports whether a text is valid and has no control characters.
func IsPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, steers)
}

// steers reports whether a character may control a terminal.
func steers(r rune) bool { return r != '\n' && r != '\t' && unicode.IsControl(r) }

// Time formats a time in the zone of the machine; "" for none.
func Time(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Local().Format(time.RFC3339)
}

// Bytes formats a size for people.
func Bytes(n int64) string {
	size, units := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; size >= 1024 && i < len(units)-1; i++ {
		size /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", size, units[i])
}

// Payload returns a text unchanged, and otherwise the number of bytes.
func Payload(text string, raw []byte) string {
	if len(raw) > 0 {
		return fmt.Sprintf("(%d bytes that are not text)", len(raw))
	}
	return text
}

// Rate formats a bound on starts; "" for none.
func Rate(starts int32, per string) string {
	if starts == 0 {
		return ""
	}
	return fmt.Sprintf("at most %d starts in %s", starts, cmp.Or(per, "1s"))
}
