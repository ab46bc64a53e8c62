package etcd

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// bridge returns a zap logger for etcd that writes to log. Messages of etcd at the level
// info are of level debug here: to the operator of a scheduler they are details.
func bridge(log *slog.Logger) *zap.Logger { return zap.New(&core{log: log}) }

type core struct {
	log   *slog.Logger
	quiet *atomic.Bool // true while the member closes: its messages are dropped then; nil: not the logger of a member
}

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
	return &core{c.log.With(attributes(fields)...), c.quiet}
}

func (c *core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// usual are warnings that do not help an operator: they are about intended settings, or
// about attempts that are repeated.
var usual = []string{
	"retrying of unary invoker failed",
	"Running http and grpc server on single port. This is not recommended for production.",
	"simple token is not cryptographically signed",
}

func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	if c.quiet != nil && c.quiet.Load() || slices.Contains(usual, e.Message) {
		return nil
	}
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
