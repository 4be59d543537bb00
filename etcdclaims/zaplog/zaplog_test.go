package zaplog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/netip"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/zaplog"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kept is a handler that keeps what it gets.
type kept struct {
	level   slog.Level
	records []slog.Record
}

func (k *kept) Enabled(_ context.Context, l slog.Level) bool { return l >= k.level }

func (k *kept) Handle(_ context.Context, r slog.Record) error {
	k.records = append(k.records, r)
	return nil
}

func (k *kept) WithAttrs([]slog.Attr) slog.Handler { return k }
func (k *kept) WithGroup(string) slog.Handler      { return k }

// attr returns the only attribute of the only record.
func (k *kept) attr(t *testing.T) (only slog.Attr) {
	t.Helper()
	if len(k.records) != 1 || k.records[0].NumAttrs() != 1 {
		t.Fatalf("got %v", k.records)
	}
	k.records[0].Attrs(func(a slog.Attr) bool { only = a; return true })
	k.records = nil
	return only
}

// written returns what a logger writes in JSON, without the time.
func written(t *testing.T, log func(*zap.Logger)) string {
	t.Helper()
	var out bytes.Buffer
	log(zaplog.FromSlog(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))))
	return strings.TrimSpace(out.String())
}

type point struct{ x, y int }

func (p point) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddInt("x", p.x)
	enc.OpenNamespace("more")
	enc.AddInt("y", p.y)
	return nil
}

// both is an error that has String, too.
type both struct{}

func (both) Error() string  { return "as an error" }
func (both) String() string { return "as a stringer" }

// asked counts how often its text is asked for.
type asked struct{ times *int }

func (a asked) String() string { *a.times++; return "text" }

func TestKindsOfFields(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("east", 3600))
	failure := fmt.Errorf("wrapped: %w", errors.ErrUnsupported)
	for _, test := range []struct {
		field zap.Field
		kind  slog.Kind
		want  any
	}{
		{zap.Bool("k", true), slog.KindBool, true},
		{zap.Duration("k", 3*time.Second), slog.KindDuration, 3 * time.Second},
		{zap.Float32("k", 0.5), slog.KindFloat64, 0.5},
		{zap.Float64("k", math.Pi), slog.KindFloat64, math.Pi},
		{zap.Int("k", -1), slog.KindInt64, int64(-1)},
		{zap.Int8("k", -8), slog.KindInt64, int64(-8)},
		{zap.Int16("k", -16), slog.KindInt64, int64(-16)},
		{zap.Int32("k", -32), slog.KindInt64, int64(-32)},
		{zap.Int64("k", math.MinInt64), slog.KindInt64, int64(math.MinInt64)},
		{zap.Uint("k", 1), slog.KindUint64, uint64(1)},
		{zap.Uint8("k", 255), slog.KindUint64, uint64(255)},
		{zap.Uint16("k", 65535), slog.KindUint64, uint64(65535)},
		{zap.Uint32("k", math.MaxUint32), slog.KindUint64, uint64(math.MaxUint32)},
		{zap.Uint64("k", math.MaxUint64), slog.KindUint64, uint64(math.MaxUint64)},
		{zap.Uintptr("k", 7), slog.KindUint64, uint64(7)},
		{zap.String("k", "text"), slog.KindString, "text"},
		{zap.ByteString("k", []byte("text")), slog.KindString, "text"},
		{zap.Binary("k", []byte{1, 2}), slog.KindAny, []byte{1, 2}},
		{zap.Complex128("k", 1+2i), slog.KindString, "(1+2i)"},
		{zap.Complex64("k", 0.1i), slog.KindString, "(0+0.1i)"},
		{zap.NamedError("k", failure), slog.KindAny, failure},
		{zap.NamedError("k", both{}), slog.KindAny, both{}},
		{zap.Any("k", []netip.Addr{{}}), slog.KindAny, []netip.Addr{{}}},
		{zap.Strings("k", []string{"a", "b"}), slog.KindAny, []any{"a", "b"}},
		{zap.Object("k", point{1, 2}), slog.KindGroup, []slog.Attr{slog.Int("x", 1), slog.Group("more", "y", 2)}},
		{zap.Inline(point{1, 2}), slog.KindInt64, nil},
	} {
		k := &kept{}
		logger := zaplog.FromSlog(slog.New(k))
		if test.want == nil { // inline: the fields of the object are those of the entry
			logger.Info("m", test.field)
			if k.records[0].NumAttrs() != 2 {
				t.Errorf("%v: got %v", test.field, k.records[0])
			}
			continue
		}
		logger.Info("m", test.field)
		got := k.attr(t)
		if got.Key != "k" || got.Value.Kind() != test.kind || !reflect.DeepEqual(got.Value.Any(), test.want) {
			t.Errorf("%v: got %v of kind %v", test.field, got, got.Value.Kind())
		}
	}
	for _, late := range []time.Time{at, time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)} { // beyond what fits into nanoseconds
		k := &kept{}
		zaplog.FromSlog(slog.New(k)).Info("m", zap.Time("k", late))
		if got := k.attr(t); got.Value.Kind() != slog.KindTime || !got.Value.Time().Equal(late) {
			t.Errorf("got %v, want %v", got, late)
		}
	}
	k := &kept{}
	zaplog.FromSlog(slog.New(k)).Info("m", zap.Error(nil), zap.Skip())
	if n := k.records[0].NumAttrs(); n != 0 {
		t.Errorf("fields without a value became %d attributes", n)
	}
}

// A stringer is asked when a handler writes it, and not otherwise.
func TestStringersAreLazy(t *testing.T) {
	times := 0
	k := &kept{}
	logger := zaplog.FromSlog(slog.New(k))
	logger.Debug("m", zap.Stringer("k", asked{&times}))
	logger.Info("m", zap.Stringer("k", asked{&times}))
	got := k.attr(t)
	if times != 0 || got.Value.Kind() != slog.KindLogValuer {
		t.Fatalf("asked %d times for a %v", times, got.Value.Kind())
	}
	if text := got.Value.Resolve(); text.String() != "text" || times != 1 {
		t.Errorf("got %v after %d times", text, times)
	}
	var none *asked
	if got := written(t, func(l *zap.Logger) { l.Info("m", zap.Stringer("k", none)) }); !strings.Contains(got, `"k":"<nil>"`) {
		t.Errorf("a nil pointer is written as %s", got)
	}
}

func TestLevels(t *testing.T) {
	want := map[zapcore.Level]slog.Level{
		zapcore.DebugLevel: slog.LevelDebug, zapcore.InfoLevel: slog.LevelInfo, zapcore.WarnLevel: slog.LevelWarn, zapcore.ErrorLevel: slog.LevelError,
		zapcore.DPanicLevel: slog.LevelError + 4, zapcore.PanicLevel: slog.LevelError + 8, zapcore.FatalLevel: slog.LevelError + 12,
	}
	for _, least := range slices.Sorted(maps.Keys(want)) {
		k := &kept{level: want[least]}
		logger := zaplog.FromSlog(slog.New(k))
		for level := range want {
			if logger.Core().Enabled(level) != (level >= least) || logger.With(zap.Int("a", 1)).Core().Enabled(level) != (level >= least) {
				t.Errorf("a handler from %v on: %v is wrong", want[least], level)
			}
			if level > zapcore.DPanicLevel {
				continue
			}
			k.records = nil
			logger.Log(level, "m")
			if written := len(k.records) == 1; written != (level >= least) || written && k.records[0].Level != want[level] {
				t.Errorf("a handler from %v on: %v wrote %v", want[least], level, k.records)
			}
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Error("Panic did not panic")
				}
			}()
			k.records = nil
			logger.Panic("m")
		}()
		if len(k.records) == 1 != (zapcore.PanicLevel >= least) {
			t.Errorf("a handler from %v on: Panic wrote %v", want[least], k.records)
		}
	}
}

// The logger's name stands outside of namespaces, and a child's fields do not reach its siblings.
func TestNamesAndNamespaces(t *testing.T) {
	for _, test := range []struct {
		log  func(*zap.Logger)
		want string
	}{
		{func(l *zap.Logger) { l.Named("a").Named("b").Warn("m", zap.Int("x", 1)) }, `{"level":"WARN","msg":"m","logger":"a.b","x":1}`},
		{func(l *zap.Logger) {
			l.With(zap.Int("x", 1), zap.Namespace("n"), zap.Int("y", 2)).Named("a").Info("m", zap.Int("z", 3), zap.Namespace("o"), zap.Int("v", 4))
		}, `{"level":"INFO","msg":"m","x":1,"logger":"a","n":{"y":2,"z":3,"o":{"v":4}}}`},
		{func(l *zap.Logger) {
			l.With(zap.Namespace("n")).With(zap.Int("x", 1)).With(zap.Namespace("o")).Info("m", zap.Int("y", 2))
		}, `{"level":"INFO","msg":"m","n":{"x":1,"o":{"y":2}}}`},
		{func(l *zap.Logger) { l.Info("m", zap.Namespace("n")) }, `{"level":"INFO","msg":"m"}`},
		{func(l *zap.Logger) { l.WithLazy(zap.Int("x", 1)).Info("m") }, `{"level":"INFO","msg":"m","x":1}`},
		{func(l *zap.Logger) { l.Info("m", zap.Error(errors.New("e")), zap.Duration("d", 1)) }, `{"level":"INFO","msg":"m","error":"e","d":1}`},
		{func(l *zap.Logger) { l.Info("m", zap.Errors("es", []error{errors.New("e")})) }, `{"level":"INFO","msg":"m","es":[{"error":"e"}]}`},
		{func(l *zap.Logger) { l.Sugar().Infow("m", "k", point{1, 2}) }, `{"level":"INFO","msg":"m","k":{"x":1,"more":{"y":2}}}`},
	} {
		if got := written(t, test.log); got != test.want {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
	}
	var lines []string
	for line := range strings.Lines(written(t, func(l *zap.Logger) {
		parent := l.With(zap.Namespace("n"), zap.Int("a", 0), zap.Int("b", 0), zap.Int("c", 0))
		one, two := parent.With(zap.Int("child", 1)), parent.With(zap.Int("child", 2))
		one.Info("m")
		two.Info("m")
		parent.Info("m")
	})) {
		lines = append(lines, line[strings.Index(line, `"c"`):len(strings.TrimSpace(line))])
	}
	if got, want := strings.Join(lines, " "), `"c":0,"child":1}} "c":0,"child":2}} "c":0}}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// The source is the line that logged, also in a child and with a skipped caller.
func TestSource(t *testing.T) {
	k := &kept{}
	logger := zaplog.FromSlog(slog.New(k))
	_, file, line, _ := runtime.Caller(0)
	logger.Info("m")
	logger.With(zap.Int("a", 1)).Named("n").Info("m")
	logger.Sugar().Info("m")
	func() { logger.WithOptions(zap.AddCallerSkip(1)).Info("m") }()
	for i, r := range k.records {
		if s := r.Source(); filepath.Base(s.File) != filepath.Base(file) || s.Line != line+1+i {
			t.Errorf("record %d is of %s:%d, want line %d", i, s.File, s.Line, line+1+i)
		}
	}
	k.records = nil
	logger.WithOptions(zap.WithCaller(false), zap.AddStacktrace(zap.ErrorLevel)).Error("m")
	if a := k.records[0].PC; a != 0 {
		t.Errorf("a source although there is no caller: %v", a)
	}
	if a := k.text(t, "stacktrace"); !strings.Contains(a, "TestSource") {
		t.Errorf("the stack trace is %q", a)
	}
}

// text returns the text of an attribute of the only record.
func (k *kept) text(t *testing.T, key string) (text string) {
	t.Helper()
	k.records[0].Attrs(func(a slog.Attr) bool {
		if a.Key == key {
			text = a.Value.String()
		}
		return text == ""
	})
	return text
}

// What a handler refuses is reported to zap, which writes it to its error output.
func TestHandlerError(t *testing.T) {
	var errs bytes.Buffer
	logger := zaplog.FromSlog(slog.New(slog.NewTextHandler(full{}, nil))).WithOptions(zap.ErrorOutput(zapcore.AddSync(&errs)))
	logger.Info("m")
	if !strings.Contains(errs.String(), "disk full") {
		t.Errorf("the error output has %q", errs.String())
	}
	if err := logger.Sync(); err != nil {
		t.Error(err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestNilIsTheDefault(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	k := &kept{}
	slog.SetDefault(slog.New(k))
	zaplog.FromSlog(nil).Info("m")
	if len(k.records) != 1 {
		t.Errorf("the default logger got %v", k.records)
	}
}

// through is a slog.Handler that passes records by way of zap. So the contract of handlers can be
// tested on the way from zap to slog: a handler behind it must still keep it.
type through struct{ logger *zap.Logger }

func (h through) Enabled(_ context.Context, l slog.Level) bool {
	return h.logger.Core().Enabled(zapcore.Level(l / 4))
}

func (h through) Handle(_ context.Context, r slog.Record) error {
	var fs []zap.Field
	r.Attrs(func(a slog.Attr) bool { fs = append(fs, field(a)...); return true })
	return h.logger.Core().Write(zapcore.Entry{Time: r.Time, Level: zapcore.Level(r.Level / 4), Message: r.Message}, fs)
}

func (h through) WithAttrs(attrs []slog.Attr) slog.Handler {
	var fs []zap.Field
	for _, a := range attrs {
		fs = append(fs, field(a)...)
	}
	return through{h.logger.With(fs...)}
}

func (h through) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return through{h.logger.With(zap.Namespace(name))}
}

// object is a group as an object of zap.
type object []slog.Attr

func (o object) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	for _, a := range o {
		for _, f := range field(a) {
			f.AddTo(enc)
		}
	}
	return nil
}

func field(a slog.Attr) []zap.Field {
	a.Value = a.Value.Resolve()
	switch {
	case a.Equal(slog.Attr{}):
		return nil
	case a.Value.Kind() != slog.KindGroup:
		return []zap.Field{zap.Any(a.Key, a.Value.Any())}
	case a.Key == "":
		return []zap.Field{zap.Inline(object(a.Value.Group()))}
	}
	return []zap.Field{zap.Object(a.Key, object(a.Value.Group()))}
}

func TestHandlersBehindKeepTheirContract(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return through{zaplog.FromSlog(slog.New(slog.NewJSONHandler(&out, nil)))}
	}, func(t *testing.T) map[string]any {
		m := map[string]any{}
		if err := json.Unmarshal(out.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	})
}
