package doctor

import (
	"strings"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// warnings collects what a client logs.
type warnings struct {
	mu    sync.Mutex
	lines []string
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lines
}

func (w *warnings) logger() *zap.Logger {
	encoder := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "msg", ConsoleSeparator: " "})
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(w), zapcore.WarnLevel))
}

// Write takes one line of the log.
func (w *warnings) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, strings.TrimSpace(string(line)))
	return len(line), nil
}
