package protocol_test

import "testing"

// Operations of the holder are carried out with its release or not at all, and if that can be known, it is.
func TestEndingWithOps(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]endCase{
		// new and learning
		"left, with operations": {
			with: with(puts),
			story: "w, left, resumes, arrives | " +
				"UNSETTLED+, send, RELEASED",
		},
		"a reader, with operations": {
			mode: shared, with: with(puts),
			story: "begins, arrives | " +
				"send+, RELEASED record left",
		},
		"operations enqueue local waiters": {with: with(puts), story: "begins, arrives | send+, RELEASED"},

		// leaving
		"operations, final": {with: with(puts), story: "begins, final | send+, STAYS"},
		"operations, final, waiter": {
			with: both(with(puts), knows),
			story: "w, begins, final, final | " +
				"send to w+, send, STAYS",
		},
		"operations, final, sent": {
			with: with(puts),
			story: "begins, loses, resumes, final | " +
				"send+, pause+, send, UNSETTLED",
		},
		"operations, time up":       {with: with(puts), story: "begins, passing, time up | send+, pause, STAYS"},
		"operations, time up, sent": {with: with(puts), story: "begins, loses, time up | send+, pause+, UNSETTLED"},
		"operations, waiter's lease": {
			with: both(with(puts), knows),
			story: "w, begins, no lease, arrives | " +
				"send to w+, send, RELEASED",
		},
		"operations, a lease is gone": {
			with: with(puts),
			story: "begins, no lease, session lives | " +
				"send+, ask, STAYS",
		},

		// asking
		"a lease is gone, sent": {
			with: with(puts),
			story: "begins, loses, resumes, no lease, session lives | " +
				"send+, pause+, send, ask, UNSETTLED",
		},
		"the session's lease": {
			with: with(puts),
			story: "begins, no lease, session gone | " +
				"send+, ask, LOST with its session",
		},
		"the session's lease, sent": {
			with: with(puts),
			story: "begins, loses, resumes, no lease, session gone | " +
				"send+, pause+, send, ask, LOST with its session unsure",
		},

		// reading
		"operations, other line": {
			with: with(puts),
			story: "w, begins, arrives, arrives, arrives | " +
				"send+, read, send to w, RELEASED to w",
		},
		"operations, deleted": {
			with: with(puts),
			story: "begins, deleted, arrives, arrives | " +
				"send+, read, LOST deleted",
		},
		"operations, another epoch": {
			with: with(puts),
			story: "begins, epoch, arrives, arrives | " +
				"send+, read, LOST epoch raised",
		},
		"operations, no record": {
			mode: slots, with: with(puts),
			story: "begins, record deleted, arrives, arrives | " +
				"send+, read, LOST record deleted",
		},
		"operations, epoch, sent": {
			with: with(puts),
			story: "begins, loses, epoch, resumes, arrives, arrives | " +
				"send+, pause+, send, read, LOST epoch raised unsure",
		},
		"operations, no reason": {with: with(puts), story: "w, begins, arrives, final | send+, read, STAYS"},
		"operations, no reason, now": {
			with: with(puts),
			story: "w, begins, arrives, passing, time up | " +
				"send+, read, pause, STAYS",
		},
		"operations, no reason, to w": {
			with: both(with(puts), knows),
			story: "w, begins, w leaves, arrives, final, arrives | " +
				"send to w+, read, send, RELEASED",
		},

		// proving
		"carried out, and seen": {
			with: with(puts),
			story: "begins, loses reply, resumes, arrives, arrives, arrives | " +
				"send+, pause+, send, read, read, RELEASED before",
		},
		"handed over, and seen": {
			with: both(with(puts), knows),
			story: "w, begins, loses reply, resumes, arrives, arrives, arrives | " +
				"send to w+, pause+, send to w, read, read, RELEASED before",
		},
		"put by another": {
			with: with(puts),
			story: "begins, loses, deleted, /x, resumes, arrives, arrives, arrives | " +
				"send+, pause+, send, read, read, LOST deleted unsure",
		},
		"put by another, no reply lost": {
			with: with(puts),
			story: "begins, deleted, /x, arrives, arrives, arrives | " +
				"send+, read, read, LOST deleted unsure",
		},
		"carried out twice": {
			with: with(puts),
			story: "begins, arrives twice, arrives, arrives | " +
				"send+, read, read, RELEASED before",
		},
		"carried out twice, too long ago to be seen": {
			with: with(puts),
			story: "begins, arrives twice, arrives, compacted | " +
				"send+, read, read, LOST deleted unsure",
		},
		"carried out twice, key deleted": {
			with: both(with(deletes), has),
			story: "begins, arrives twice, arrives | " +
				"send+, read, LOST deleted unsure",
		},
		"not put": {
			with: with(puts),
			story: "begins, loses, deleted, resumes, arrives, arrives | " +
				"send+, pause+, send, read, LOST deleted unsure",
		},
		"too long ago to be seen": {
			with: with(puts),
			story: "begins, loses reply, resumes, arrives, arrives, compacted | " +
				"send+, pause+, send, read, read, LOST deleted unsure",
		},
		"the proof passes": {
			with: with(puts),
			story: "begins, loses reply, resumes, arrives, arrives, passing, resumes, arrives, arrives, arrives | " +
				"send+, pause+, send, read, read, pause, send, read, read, RELEASED before",
		},
		"the proof cannot be had": {
			with: with(puts),
			story: "begins, loses reply, resumes, arrives, arrives, final | " +
				"send+, pause+, send, read, read, UNSETTLED",
		},
		"carried out, key deleted": {
			with: both(with(deletes), has),
			story: "begins, loses reply, resumes, arrives, arrives | " +
				"send+, pause+, send, read, RELEASED before",
		},
		"not carried out, key there": {
			with: both(with(deletes), has),
			story: "begins, loses, deleted, resumes, arrives, arrives | " +
				"send+, pause+, send, read, LOST deleted unsure",
		},
		"without a proof": {
			with: with(unseen),
			story: "begins, loses reply, resumes, arrives, arrives | " +
				"send+, pause+, send, read, LOST deleted unsure",
		},

		// unsettled, settling, deleting, undoing
		"settled": {
			with: with(puts),
			story: "begins, loses, time up, resumes, arrives | " +
				"send+, pause+, UNSETTLED, send, RELEASED",
		},
		"settled later": {
			with: with(puts),
			story: "begins, loses, time up, resumes, loses, resumes, passing, resumes, arrives | " +
				"send+, pause+, UNSETTLED, send, UNSETTLED, send, UNSETTLED, send, RELEASED",
		},
		"settled without its operations": {
			with: with(puts),
			story: "begins, loses, time up, resumes, final, arrives | " +
				"send+, pause+, UNSETTLED, send, send, RELEASED",
		},
		"settled before": {
			with: with(puts),
			story: "begins, loses reply, time up, resumes, arrives, arrives | " +
				"send+, pause+, UNSETTLED, send, send, RELEASED before",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.run(t)
		})
	}
}
