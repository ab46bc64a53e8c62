package openapi

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// comment returns the text of the comment at a declaration: above it, or behind it.
// Paragraphs stay apart.
func comment(d protoreflect.Descriptor) string {
	at := d.ParentFile().SourceLocations().ByDescriptor(d)
	text := at.LeadingComments
	if text == "" {
		text = at.TrailingComments
	}
	var paragraphs []string
	for paragraph := range strings.SplitSeq(strings.ReplaceAll(text, "\n \n", "\n\n"), "\n\n") {
		if p := strings.Join(strings.Fields(paragraph), " "); p != "" {
			paragraphs = append(paragraphs, p)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

// sentences splits the comment of a method into a summary, its first sentence without the
// name of the method, and the rest.
func sentences(method, text string) (summary, rest string) {
	text = capital(strings.TrimPrefix(text, method+" "))
	end := strings.Index(text, ". ")
	if next := strings.Index(text, ".\n"); next >= 0 && (end < 0 || next < end) {
		end = next
	}
	if end < 0 {
		return strings.TrimSuffix(text, "."), ""
	}
	return text[:end], strings.TrimSpace(text[end+1:])
}

func capital(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToUpper(r)) + s[size:]
}
