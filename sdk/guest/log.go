//go:build wasip1

package guest

import (
	"bytes"
	"context"
	"log/slog"
)

// logHandler writes records as text without the time, which the host adds.
type logHandler struct {
	attrs  []slog.Attr
	groups []string
}

func (logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h logHandler) Handle(_ context.Context, r slog.Record) error {
	var line bytes.Buffer
	line.WriteString(r.Message)
	rest := slog.NewRecord(r.Time, r.Level, "", 0)
	r.Attrs(func(a slog.Attr) bool {
		rest.AddAttrs(a)
		return true
	})
	if len(h.attrs) > 0 || rest.NumAttrs() > 0 {
		line.WriteByte(' ')
		if err := h.text(&line).Handle(context.Background(), rest); err != nil {
			return err
		}
	}
	writeLog(r.Level, bytes.TrimRight(line.Bytes(), "\n"))
	return nil
}

// text formats attributes only: the host gets time, level and message separately.
func (h logHandler) text(w *bytes.Buffer) slog.Handler {
	var text slog.Handler = slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
				return slog.Attr{}
			}
			return a
		},
	})
	text = text.WithAttrs(h.attrs)
	for _, g := range h.groups {
		text = text.WithGroup(g)
	}
	return text
}

func (h logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	qualified := attrs
	for i := len(h.groups) - 1; i >= 0; i-- {
		args := make([]any, len(qualified))
		for j, a := range qualified {
			args[j] = a
		}
		qualified = []slog.Attr{slog.Group(h.groups[i], args...)}
	}
	h.attrs = append(h.attrs[:len(h.attrs):len(h.attrs)], qualified...)
	return h
}

func (h logHandler) WithGroup(name string) slog.Handler {
	h.groups = append(h.groups[:len(h.groups):len(h.groups)], name)
	return h
}

func writeLog(level slog.Level, line []byte) {
	logLine(hostLevel(level), address(line), length(line))
}

// hostLevel maps slog's levels to the host's: 0 debug, 1 info, 2 warn, 3 error.
func hostLevel(level slog.Level) int32 {
	switch {
	case level < slog.LevelInfo:
		return 0
	case level < slog.LevelWarn:
		return 1
	case level < slog.LevelError:
		return 2
	}
	return 3
}
