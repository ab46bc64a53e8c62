package etcd

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// bridge lets etcd, which logs with zap, log where everything else does. What
// etcd calls information is detail to the operator of a scheduler.
func bridge(log *slog.Logger) *zap.Logger { return zap.New(&core{log}) }

type core struct{ log *slog.Logger }

func level(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}

func (c *core) Enabled(l zapcore.Level) bool { return c.log.Enabled(context.Background(), level(l)) }

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{c.log.With(attributes(fields)...)}
}

func (c *core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.log.Log(context.Background(), level(e.Level), "etcd: "+e.Message, attributes(fields)...)
	return nil
}

func (c *core) Sync() error { return nil }

func attributes(fields []zapcore.Field) []any {
	m := zapcore.NewMapObjectEncoder()
	var out []any
	for _, f := range fields {
		f.AddTo(m)
	}
	for _, k := range slices.Sorted(maps.Keys(m.Fields)) {
		out = append(out, slog.Any(k, m.Fields[k]))
	}
	return out
}
