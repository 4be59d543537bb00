package zaplog

import (
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"go.uber.org/zap/zapcore"
)

// encoder makes attributes of fields. It implements zapcore.ObjectEncoder, so that zap itself
// reads its fields.
type encoder struct{ groups []group } // the last one takes the attributes

func (e *encoder) put(a slog.Attr) {
	g := &e.groups[len(e.groups)-1]
	g.attrs = append(g.attrs, a)
}

// add adds a field. Zap would make texts of stringers and errors.
func (e *encoder) add(f zapcore.Field) {
	text, isText := f.Interface.(fmt.Stringer)
	switch {
	case f.Type == zapcore.StringerType && isText:
		e.put(slog.Any(f.Key, stringer{text}))
	case f.Type == zapcore.ErrorType:
		e.put(slog.Any(f.Key, f.Interface))
	default:
		f.AddTo(e)
	}
}

func (e *encoder) AddObject(key string, object zapcore.ObjectMarshaler) error {
	inner := encoder{groups: []group{{}}}
	err := object.MarshalLogObject(&inner)
	e.put(slog.Attr{Key: key, Value: slog.GroupValue(nest(inner.groups)...)})
	return err
}

func (e *encoder) AddArray(key string, array zapcore.ArrayMarshaler) error {
	values := zapcore.NewMapObjectEncoder()
	err := values.AddArray(key, array)
	e.put(slog.Any(key, values.Fields[key]))
	return err
}

func (e *encoder) AddReflected(key string, value any) error {
	e.put(slog.Any(key, value))
	return nil
}

func (e *encoder) OpenNamespace(key string) { e.groups = append(e.groups, group{name: key}) }

func (e *encoder) AddBinary(key string, value []byte)          { e.put(slog.Any(key, value)) }
func (e *encoder) AddByteString(key string, value []byte)      { e.AddString(key, string(value)) }
func (e *encoder) AddBool(key string, value bool)              { e.put(slog.Bool(key, value)) }
func (e *encoder) AddComplex64(key string, value complex64)    { e.addComplex(key, complex128(value), 64) }
func (e *encoder) AddComplex128(key string, value complex128)  { e.addComplex(key, value, 128) }
func (e *encoder) AddDuration(key string, value time.Duration) { e.put(slog.Duration(key, value)) }
func (e *encoder) AddFloat32(key string, value float32)        { e.AddFloat64(key, float64(value)) }
func (e *encoder) AddFloat64(key string, value float64)        { e.put(slog.Float64(key, value)) }
func (e *encoder) AddInt(key string, value int)                { e.AddInt64(key, int64(value)) }
func (e *encoder) AddInt8(key string, value int8)              { e.AddInt64(key, int64(value)) }
func (e *encoder) AddInt16(key string, value int16)            { e.AddInt64(key, int64(value)) }
func (e *encoder) AddInt32(key string, value int32)            { e.AddInt64(key, int64(value)) }
func (e *encoder) AddInt64(key string, value int64)            { e.put(slog.Int64(key, value)) }
func (e *encoder) AddString(key, value string)                 { e.put(slog.String(key, value)) }
func (e *encoder) AddTime(key string, value time.Time)         { e.put(slog.Time(key, value)) }
func (e *encoder) AddUint(key string, value uint)              { e.AddUint64(key, uint64(value)) }
func (e *encoder) AddUint8(key string, value uint8)            { e.AddUint64(key, uint64(value)) }
func (e *encoder) AddUint16(key string, value uint16)          { e.AddUint64(key, uint64(value)) }
func (e *encoder) AddUint32(key string, value uint32)          { e.AddUint64(key, uint64(value)) }
func (e *encoder) AddUint64(key string, value uint64)          { e.put(slog.Uint64(key, value)) }
func (e *encoder) AddUintptr(key string, value uintptr)        { e.AddUint64(key, uint64(value)) }

// addComplex adds a text: JSON has no such numbers.
func (e *encoder) addComplex(key string, value complex128, bits int) {
	e.AddString(key, strconv.FormatComplex(value, 'g', -1, bits))
}
