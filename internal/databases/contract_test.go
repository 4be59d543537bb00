package databases_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/fencetest"
)

func TestContract(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			fencetest.TestGate(t, func(t *testing.T) fencetest.Subject { return w.create(t).subject(t) })
		})
	}
}

func (db *database) subject(*testing.T) fencetest.Subject {
	return fencetest.Subject{
		Gate:    db.guard.Gate(db.DB),
		Restart: func(t *testing.T) fencing.Gate { return db.guard.Gate(db.reopen(t)) },
		Write:   db.write,
		Effects: db.effects,
		Crash:   db.crash,
	}
}

// crash ends a transaction in its middle: the connection is killed, or where there
// is none the process.
func (db *database) crash(ctx context.Context, t fencing.Token, effect string) error {
	if !db.server {
		return db.dieInTransaction(ctx, t, effect)
	}
	tx, err := db.begin(ctx, sql.LevelDefault)
	if err != nil {
		return err
	}
	if err := db.admitAndInsert(ctx, tx, t, effect); err != nil {
		tx.rollback()
		return err
	}
	tx.vanish()
	return nil
}
