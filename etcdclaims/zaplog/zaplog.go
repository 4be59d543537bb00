// Package zaplog gives programs that log by log/slog the logger that the configurations of
// this module take:
//
//	etcdclaims.Config{Logger: zaplog.FromSlog(slog.Default())}
package zaplog

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// FromSlog returns a logger that passes each entry to the handler of the slog.Logger. Nil
// means slog.Default, as it is now.
//
// The handler decides which levels are enabled. Zap's levels become slog's of the same name;
// DPanic, Panic and Fatal are 4, 8 and 12 above Error. Fields keep their types: a duration
// is a duration, an error is the error itself, an object or a namespace is a group, and a
// zap.Stringer is a slog.LogValuer. An array is a slice. The name of a Named logger is the
// attribute "logger", a stack trace of zap is "stacktrace". The source is the line that
// logged. The handler gets a context without values.
func FromSlog(to *slog.Logger) *zap.Logger {
	if to == nil {
		to = slog.Default()
	}
	return zap.New(&core{handler: to.Handler(), groups: []group{{}}}, zap.AddCaller())
}

// core writes the entries of zap to a handler.
type core struct {
	handler slog.Handler // has the attributes of With before the first namespace
	// groups are the open namespaces with the attributes of With in them, outermost first.
	// The first group stands for none, and is empty. They are not opened in the handler, where
	// they would take in the logger's name.
	groups []group
}

// group is an open namespace.
type group struct {
	name  string
	attrs []slog.Attr
}

// level spaces zap's levels, which are next to each other, as slog does.
func level(l zapcore.Level) slog.Level { return slog.Level(l) * (slog.LevelWarn - slog.LevelInfo) }

// Enabled implements zapcore.Core.
func (c *core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), level(l))
}

// With implements zapcore.Core.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	handler, groups := c.handler, c.with(fields)
	if outer := groups[0].attrs; len(outer) > 0 {
		handler, groups[0].attrs = handler.WithAttrs(outer), nil
	}
	return &core{handler: handler, groups: groups}
}

// with returns the groups with the fields in them.
func (c *core) with(fields []zapcore.Field) []group {
	e := encoder{groups: slices.Clone(c.groups)}
	for i := range e.groups {
		e.groups[i].attrs = slices.Clip(e.groups[i].attrs) // those of c must not change
	}
	for _, f := range fields {
		e.add(f)
	}
	return e.groups
}

// Check implements zapcore.Core.
func (c *core) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return to.AddCore(e, c)
	}
	return to
}

// Write implements zapcore.Core.
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	pc := e.Caller.PC
	if e.Caller.Defined {
		pc++ // zap has that of the call, slog wants that of the return
	}
	r := slog.NewRecord(e.Time, level(e.Level), e.Message, pc)
	if e.LoggerName != "" {
		r.AddAttrs(slog.String("logger", e.LoggerName))
	}
	r.AddAttrs(nest(c.with(fields))...)
	if e.Stack != "" {
		r.AddAttrs(slog.String("stacktrace", e.Stack))
	}
	return c.handler.Handle(context.Background(), r)
}

// Sync implements zapcore.Core. A handler has no buffer that could be flushed.
func (c *core) Sync() error { return nil }

// nest puts each group into the one before it, and returns the attributes of the outermost.
func nest(groups []group) []slog.Attr {
	attrs := groups[len(groups)-1].attrs
	for i := len(groups) - 1; i > 0; i-- {
		attrs = append(groups[i-1].attrs, slog.Attr{Key: groups[i].name, Value: slog.GroupValue(attrs...)})
	}
	return attrs
}

// stringer is a fmt.Stringer that is called only if a handler writes it.
type stringer struct{ fmt.Stringer }

// LogValue implements slog.LogValuer. As zap does, it writes a nil pointer whose String
// panics as "<nil>".
func (s stringer) LogValue() (text slog.Value) {
	defer func() {
		if v := reflect.ValueOf(s.Stringer); v.Kind() == reflect.Pointer && v.IsNil() && recover() != nil {
			text = slog.StringValue("<nil>")
		}
	}()
	return slog.StringValue(s.String())
}
