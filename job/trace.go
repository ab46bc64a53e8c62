package job

import (
	"strings"
)

// maxTraceState bounds the tracestate that a run keeps; the W3C recommendation asks for at
// least this much.
const maxTraceState = 512

// traceParentLen is the length of a traceparent: version, trace, span and flags.
const traceParentLen = 2 + 1 + 32 + 1 + 16 + 1 + 2

// TraceText joins the two headers of a W3C trace context to the text that a run keeps:
// traceparent and, if there is a tracestate, a space and tracestate. It returns "" if
// parent is invalid, and omits a state that is invalid or longer than 512 bytes. The result
// shares no memory with the arguments.
func TraceText(parent, state string) string {
	switch {
	case !isTraceParent(parent):
		return ""
	case state == "" || !isTraceState(state):
		return strings.Clone(parent)
	}
	return parent + " " + state
}

// SplitTrace returns the two headers in a text of [TraceText].
func SplitTrace(text string) (parent, state string) {
	if len(text) <= traceParentLen {
		return text, ""
	}
	return text[:traceParentLen], text[traceParentLen+1:]
}

func isTraceParent(s string) bool {
	if len(s) != traceParentLen {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case i == 2 || i == 35 || i == 52:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return s[:2] != "ff" && strings.Trim(s[3:35], "0") != "" && strings.Trim(s[36:52], "0") != ""
}

// isTraceState accepts printable ASCII: what the entries mean is between tracing systems.
func isTraceState(s string) bool {
	return len(s) <= maxTraceState && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
