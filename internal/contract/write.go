package contract

import (
	"context"
	"math"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/txn"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// tokenIn returns the token that a context carries, if it does.
func tokenIn(ctx context.Context) fencing.Token {
	token, _ := fencing.FromContext(ctx)
	return token
}

// writes makes every kind of guarded write, with the names x, y and z, and
// returns the error of the last.
func (t *trial) writes(claim *etcdclaims.Claim) error {
	t.Helper()
	_, _ = claim.Txn(t.ctx).Then(t.put("x", "1")).Commit()
	_, _ = claim.Txn(t.ctx).If(t.absent("there")).Then(t.put("y", "1")).Commit()
	_, err := claim.Txn(t.ctx).If(clientv3.Compare(clientv3.Version(t.data+"there"), ">", 0)).Else(t.put("z", "1")).Commit()
	return err
}

// unwritten wants none of them to have stored anything.
func (t *trial) unwritten() {
	t.Helper()
	for _, name := range []string{"x", "y", "z"} {
		if got := t.stored(name); got != "" {
			t.Errorf("a write that was refused has stored %q under %s", got, name)
		}
	}
}

var writeCases = []Case{
	{"an owner's writes pass", func(t *trial) {
		claim := t.try(t.client(etcdclaims.Config{}), "k")
		resp, err := claim.Txn(t.ctx).If(t.absent("x")).Then(t.put("x", "1")).Else(t.put("y", "1")).Commit()
		t.ok(err)
		if !resp.Succeeded || t.stored("x") != "1" || t.stored("y") != "" {
			t.Errorf("succeeded: %v, x is %q, y is %q", resp.Succeeded, t.stored("x"), t.stored("y"))
		}
		// Its own condition fails, the claim's does not.
		var otherwise txn.Ops
		otherwise.Add(t.put("y", "2"))
		x := otherwise.Add(clientv3.OpGet(t.data + "x"))
		resp, err = claim.Txn(t.ctx).If(t.absent("x")).Then(t.put("x", "2")).Else(otherwise...).Commit()
		t.ok(err)
		if resp.Succeeded || t.stored("x") != "1" || t.stored("y") != "2" {
			t.Errorf("succeeded: %v, x is %q, y is %q", resp.Succeeded, t.stored("x"), t.stored("y"))
		}
		if n := len(resp.Responses); n != len(otherwise) || string(txn.ReplyIn(resp).First(x).GetValue()) != "1" {
			t.Errorf("the responses are %v", resp.Responses)
		}
	}},

	{"writes after a release are refused", func(t *trial) {
		claim := t.try(t.client(etcdclaims.Config{}), "k")
		t.ok(claim.Release(t.ctx))
		t.is(t.writes(claim), etcdclaims.ErrReleased)
		t.unwritten()
	}},

	{"writes after the loss of a lease are refused", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		t.revoke(b, "k")
		t.is(t.writes(claim), etcdclaims.ErrLost)
		t.unwritten()
		t.is(claim.Check(), etcdclaims.ErrLost) // having been refused, it knows
		t.is(t.writes(claim), etcdclaims.ErrLost)
		t.unwritten()
	}},

	{"writes under an outlived fence are refused", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		t.remove("k")
		now := t.try(b, "k")
		t.is(t.writes(claim), etcdclaims.ErrLost)
		t.unwritten()
		t.lost(claim, etcdclaims.ReasonSuperseded)
		t.ok(now.Check())
	}},

	{"writes under a fence that nobody has are refused", func(t *trial) {
		claim := t.try(t.client(etcdclaims.Config{}), "k")
		t.remove("k")
		t.is(t.writes(claim), etcdclaims.ErrLost)
		t.unwritten()
		t.lost(claim, etcdclaims.ReasonDeleted)
	}},

	{"a release under an outlived fence frees nothing", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		t.remove("k")
		now := t.try(b, "k")
		t.is(claim.Release(t.ctx), etcdclaims.ErrLost)
		if info := t.refused(a, "k"); info.Fence != now.Fence() {
			t.Errorf("fence %d became %d", now.Fence(), info.Fence)
		}
		t.ok(now.Renew(t.ctx))
	}},

	{"a renewal under an outlived fence brings nothing back", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		t.remove("k")
		now := t.try(b, "k")
		t.is(claim.Renew(t.ctx), etcdclaims.ErrLost)
		t.lost(claim, etcdclaims.ReasonSuperseded)
		t.ok(now.Renew(t.ctx))
		t.ok(now.Release(t.ctx))
		t.is(claim.Check(), etcdclaims.ErrLost) // though nobody has it now
		t.is(t.writes(claim), etcdclaims.ErrLost)
		t.unwritten()
	}},

	{"writes are guarded by conditions of one's own", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		resp, err := t.raw.Txn(t.ctx).If(claim.Guard()...).Then(t.put("x", "1")).Commit()
		t.ok(err)
		if !resp.Succeeded {
			t.Error("an owner's write was refused")
		}
		t.remove("k")
		t.try(b, "k")
		resp, err = t.raw.Txn(t.ctx).If(claim.Guard()...).Then(t.put("x", "2")).Commit()
		t.ok(err)
		if resp.Succeeded || t.stored("x") != "1" {
			t.Errorf("the write of one who lost the key passed: x is %q", t.stored("x"))
		}
	}},

	{"conditions of one term are not those of the next", func(t *trial) {
		c := t.client(etcdclaims.Config{})
		old := t.try(c, "k")
		t.ok(old.Release(t.ctx))
		now := t.try(c, "k") // by the same client, on the same lease
		for claim, want := range map[*etcdclaims.Claim]bool{old: false, now: true} {
			resp, err := t.raw.Txn(t.ctx).If(claim.Guard()...).Then(t.put("x", "1")).Commit()
			t.ok(err)
			if resp.Succeeded != want {
				t.Errorf("%v, where %v holds, writes: %v", claim.Token(), now.Token(), resp.Succeeded)
			}
		}
	}},

	{"etcd is asked who owns", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		owns := func(claim *etcdclaims.Claim, want bool) {
			t.Helper()
			for _, c := range []*etcdclaims.Client{a, b} {
				if got, err := c.Owns(t.ctx, claim.Token()); err != nil || got != want {
					t.Errorf("%v owns: %v, %v, want %v", claim.Token(), got, err, want)
				}
			}
			if got, err := claim.Owns(t.ctx); err != nil || got != want {
				t.Errorf("%v is owned: %v, %v, want %v", claim.Token(), got, err, want)
			}
		}
		claim := t.try(a, "k")
		owns(claim, true)
		t.remove("k")
		owns(claim, false)
		t.is(claim.Check(), etcdclaims.ErrLost) // having asked, it knows
		owns(t.try(b, "k"), true)
		owns(claim, false)
		if ok, err := b.Owns(t.ctx, fencing.Token{Key: "nothing", Fence: 1}); ok || err != nil {
			t.Errorf("a free key is owned: %v, %v", ok, err)
		}
	}},

	{"notes are seen and go with the claim", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		note := func(want string) {
			t.Helper()
			if got := string(t.lookup(b, "k").Note); got != want {
				t.Errorf("the note is %q, want %q", got, want)
			}
		}
		claim := t.try(a, "k", etcdclaims.Note([]byte("begun")))
		note("begun")
		for _, text := range []string{"half", "", "done \x00\xff"} {
			t.ok(claim.Note(t.ctx, []byte(text)))
			note(text)
		}
		t.ok(claim.Release(t.ctx))
		t.try(b, "k")
		note("")
		t.is(claim.Note(t.ctx, []byte("late")), etcdclaims.ErrReleased)
		note("")
	}},

	{"notes of one who lost the key are refused", func(t *trial) {
		a, b := t.pair(etcdclaims.Config{})
		claim := t.try(a, "k")
		t.remove("k")
		t.try(b, "k", etcdclaims.Note([]byte("b's")))
		t.is(claim.Note(t.ctx, []byte("a's")), etcdclaims.ErrLost)
		if got := string(t.lookup(b, "k").Note); got != "b's" {
			t.Errorf("the note is %q", got)
		}
	}},

	{"a claim knows how long it lasts", func(t *trial) {
		claim := t.try(t.client(etcdclaims.Config{}), "k")
		t.ok(claim.Check())
		t.ok(claim.Err())
		t.ok(claim.Context().Err())
		// Less than the lease lasts by etcd's account: that is the margin.
		if d := claim.Remaining(); d <= 0 || d > etcdclaims.DefaultTTL-time.Second {
			t.Errorf("%v remain of %v", d, etcdclaims.DefaultTTL)
		}
		if d := time.Until(claim.Deadline()) - claim.Remaining(); math.Abs(d.Seconds()) > 1 {
			t.Errorf("the deadline and what remains differ by %v", d)
		}
		before := claim.Deadline()
		time.Sleep(100 * time.Millisecond)
		t.ok(claim.Renew(t.ctx))
		if !claim.Deadline().After(before) {
			t.Errorf("the deadline went from %v to %v", before, claim.Deadline())
		}
	}},

	{"a released claim is over", func(t *trial) {
		claim := t.try(t.client(etcdclaims.Config{}), "k")
		t.ok(claim.Release(t.ctx))
		t.wait(claim.Done(), "the claim is over")
		for _, err := range []error{claim.Err(), claim.Check(), context.Cause(claim.Context()), claim.Renew(t.ctx)} {
			t.is(err, etcdclaims.ErrReleased)
		}
		if d := claim.Remaining(); d != 0 || claim.Deadline().After(time.Now()) {
			t.Errorf("%v remain, until %v", d, claim.Deadline())
		}
		t.ok(claim.Release(t.ctx)) // once more
	}},
}
