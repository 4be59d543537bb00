package databases_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/etcdclaims/claims/fencing"
)

// BenchmarkAdmit measures a transaction that changes one row, with Admit and
// without, in ten rounds in which both take turns, each goroutine with a row and
// a key of its own. It prints the medians of both rates, and of the rounds' ratios.
func BenchmarkAdmit(b *testing.B) {
	for _, w := range ways {
		if !slices.Contains([]string{"sqlite immediate", "postgres by pgx", "mariadb", "mariadb interpolates"}, w.name) {
			continue
		}
		for _, goroutines := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", w.name, goroutines), func(b *testing.B) { benchmarkAdmit(b, w, goroutines) })
		}
	}
}

func benchmarkAdmit(b *testing.B, w way, goroutines int) {
	db := w.create(b)
	db.SetMaxIdleConns(goroutines)
	db.SetMaxOpenConns(goroutines)
	db.must(b, "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)")
	for i := range goroutines {
		db.must(b, "INSERT INTO accounts VALUES (?, 0)", i)
	}
	update := db.placeholders("UPDATE accounts SET balance = balance + 1 WHERE id = ?")
	once := func(ctx context.Context, i int, guarded bool) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if guarded {
			if err := db.guard.Admit(ctx, tx, fencing.Token{Key: fmt.Sprintf("account/%d", i), Fence: 1 << 40}); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, update, i); err != nil {
			return err
		}
		return tx.Commit()
	}
	rate := func(count int, guarded bool) float64 {
		var left atomic.Int64
		left.Store(int64(count))
		var wg sync.WaitGroup
		began := time.Now()
		for i := range goroutines {
			wg.Go(func() {
				for left.Add(-1) >= 0 {
					if err := once(b.Context(), i, guarded); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return float64(count) / time.Since(began).Seconds()
	}
	rate(4*goroutines, true) // connects, and makes the marks
	const rounds = 10
	count := max(b.N/rounds, goroutines)
	var plain, guarded, ratios []float64
	b.ResetTimer()
	for i := range rounds {
		var p, g float64
		if i%2 == 0 {
			p, g = rate(count, false), rate(count, true)
		} else {
			g, p = rate(count, true), rate(count, false)
		}
		plain, guarded, ratios = append(plain, p), append(guarded, g), append(ratios, g/p)
	}
	b.ReportMetric(median(plain), "plain/s")
	b.ReportMetric(median(guarded), "guarded/s")
	b.ReportMetric(median(ratios), "ratio")
}

func median(all []float64) float64 {
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
