package zaplog_test

import (
	"log/slog"
	"os"
	"time"

	"github.com/etcdclaims/claims/etcdclaims/zaplog"
	"go.uber.org/zap"
)

// What a client logs goes to the program's own handler.
func ExampleFromSlog() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	claims := zaplog.FromSlog(logger.With("service", "billing")) // for etcdclaims.Config.Logger
	claims.Warn("claim lost", zap.String("key", "invoice/42"), zap.Int64("fence", 7), zap.Duration("held", time.Minute))
	// Output: level=WARN msg="claim lost" service=billing key=invoice/42 fence=7 held=1m0s
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
