package databases_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/sqlguard"
)

// cutter is a connection that breaks at the commit: before it is sent, or once
// the server has answered, so that it is carried out.
type cutter struct {
	net.Conn
	carryOut bool
	cut      *atomic.Bool
	sent     atomic.Bool
}

func (c *cutter) Write(b []byte) (int, error) {
	commit := bytes.HasSuffix(bytes.ToLower(bytes.TrimRight(b, "\x00")), []byte("commit"))
	if commit && c.cut.CompareAndSwap(false, true) {
		if !c.carryOut {
			return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
		}
		c.sent.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *cutter) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.sent.Load() {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Close(), err)
	}
	return n, err
}

func TestCommitWithoutReply(t *testing.T) {
	for _, carryOut := range []bool{false, true} {
		for _, name := range []string{"postgres by pgx", "mariadb"} {
			t.Run(name, func(t *testing.T) {
				for _, w := range ways {
					if w.name == name {
						commitWithoutReply(t, w.create(t), carryOut)
					}
				}
			})
		}
	}
}

func commitWithoutReply(t *testing.T, db *database, carryOut bool) {
	t.Helper()
	var cut atomic.Bool
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &cutter{Conn: conn, carryOut: carryOut, cut: &cut}, err
	}
	var pool *sql.DB
	var err error
	if db.dialect == sqlguard.MySQL {
		pool, err = openMySQL(db.dsn, dial)
	} else {
		cfg := *db.config
		cfg.DialFunc = dial
		pool = stdlib.OpenDB(cfg)
	}
	gate := db.guard.Gate(opened(t, pool, err))
	if err := gate.Admit(t.Context(), fencing.Token{Key: "k", Fence: 2}); !errors.Is(err, fencing.ErrUnknown) || errors.Is(err, fencing.ErrStale) {
		t.Fatal(err)
	}
	if err := db.guard.Gate(db.DB).Admit(t.Context(), fencing.Token{Key: "k", Fence: 1}); stale(err, 2) != carryOut {
		t.Errorf("carried out: %v; %v", carryOut, err)
	}
	if err := gate.Admit(t.Context(), fencing.Token{Key: "k", Fence: 2}); err != nil {
		t.Error(err)
	}
}
