package etcdclaims_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/claimtest"
	"github.com/etcdclaims/claims/etcdclaims/locks"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/testclaims"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// During a rolling upgrade, clients of a later version put values of a greater
// "v", whose fields may have other shapes, beside clients of this version. A
// client of this version treats such a value as one that it cannot read: it
// neither crashes, nor sends requests without end, nor believes any part of it.
// A field that is added under the same "v" is ignored.
//
// Each test below is about one kind of key.

// A later value, in which every field that this version knows has another shape,
// and one that it could misread.
const (
	laterShapes = `{"v":2,"claim":{"id":"x"},"owner":["future"],"instance":7,"since":12,"kind":"lock","epoch":9,"state":3,"next":"all"}`
	laterMailTo = `{"v":2,"key":%q,"claim":%q,"by":"future","reason":"in a later format"}`
)

// watched returns a client whose every request takes a millisecond, so that time
// passes when it sends them without end.
func (w *world) watched() (*etcdclaims.Client, *claimtest.Host) {
	w.Helper()
	c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
	host.Inject(claimtest.Fault{On: claimtest.Every, Times: -1, DelayReply: time.Millisecond})
	return c, host
}

// calm lets time pass, and fails if the client sends more than some requests a
// second meanwhile.
func (w *world) calm(c *etcdclaims.Client, d time.Duration) {
	w.Helper()
	before := c.Stats().Requests
	time.Sleep(d)
	if n, most := c.Stats().Requests-before, int64(d/sec)*3+10; n > most {
		w.Errorf("%d requests in %v, want %d at most", n, d, most)
	}
}

// put writes a value as a client of another version would, on the lease, and
// returns its revision.
func (w *world) put(key, value string, lease clientv3.LeaseID) int64 {
	w.Helper()
	resp, err := w.Raw.Put(context.Background(), w.Prefix+key, value, clientv3.WithLease(lease))
	if err != nil {
		w.Fatal(err)
	}
	return resp.Header.Revision
}

// lasting returns a lease of a minute.
func (w *world) lasting() clientv3.LeaseID {
	w.Helper()
	l, err := w.Raw.Grant(context.Background(), 60)
	if err != nil {
		w.Fatal(err)
	}
	return l.ID
}

func (w *world) drop(key string) {
	w.Helper()
	if _, err := w.Raw.Delete(context.Background(), w.Prefix+key); err != nil {
		w.Fatal(err)
	}
}

// waitingAs is the etcd key of a place in line, without the prefix.
func waitingAs(key, id string) string {
	sum := sha256.Sum256([]byte(key))
	return "wait/" + hex.EncodeToString(sum[:16]) + "/" + id
}

// A claim in a later format is a claim: the key is held, by nobody that can be
// named.
func TestUpgradeClaim(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"other shapes": laterShapes, "same shapes": `{"v":2,"claim":"c","owner":"future","instance":"i","kind":"lock"}`,
		"kind": `{"v":1,"claim":"c","owner":"future","instance":"i","kind":"of a later version"}`,
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			c, _ := w.watched()
			tryClaim(t, c, "other")
			seen := startWatch(t, c, "k")
			if e := <-seen.events; e.Kind != etcdclaims.Synced {
				t.Errorf("the watch begins with %v", e.Kind)
			}
			w.put("own/k", value, w.lasting())
			if e := seen.next(t, etcdclaims.Claimed, "k"); name != "kind" && e.Info.Owner != "unknown" {
				t.Errorf("watched: %+v", e)
			}
			for _, opt := range []etcdclaims.AcquireOption{etcdclaims.Supersede(), etcdclaims.Reentrant()} {
				_, err := c.TryAcquire(ctx, "k", opt)
				wantIs(t, err, etcdclaims.ErrHeld)
			}
			_, err := c.TryAcquireAll(ctx, []string{"j", "k"})
			wantIs(t, err, etcdclaims.ErrHeld)
			_, err = works(c).TryBegin(ctx, "k")
			wantIs(t, err, etcdclaims.ErrHeld)
			locks := locks.New(c)
			testclaims.Locked(t, locks, "k", "future", time.Minute, false)
			testclaims.Renewed(t, locks, "k", "future", time.Minute, false)
			testclaims.Unlocked(t, locks, "k", "future", false)
			if n, err := locks.ReleaseAll(ctx, "future"); n != 0 || err != nil {
				t.Errorf("released %d locks, %v", n, err)
			}
			if i := lookUp(t, c, "k"); !i.Held || i.Claim == "x" {
				t.Errorf("looked up: %+v", i)
			}
			if got := listed(t, c, "k", nil); len(got) != 1 {
				t.Errorf("listed: %v", got)
			}
			if n, err := c.ReleaseAll(ctx); n != 1 || err != nil {
				t.Errorf("ReleaseAll: %d, %v", n, err)
			}
			done := acquiring(ctx, c, "k")
			w.calm(c, 30*sec)
			if w.get("own/k") != value {
				t.Error("the claim was changed")
			}
			noErr(t, admin.ForceRelease(ctx, c, "k", "test"))
			release(t, w.within(sec, done))
			seen.next(t, etcdclaims.Freed, "k")
		})
	}
}

// What a holder notes in a later format is not shown.
func TestUpgradeNote(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`{"v":2,"seq":1,"text":"unknown encoding"}`, `{"v":2,"seq":"1","text":["a"]}`} {
		virtually(t, func(t *testing.T, w *world) {
			a, b := w.peer(), w.peer()
			cl := tryClaim(t, a, "k")
			w.put("note/k", value, w.Server.Lease(t, w.Own("k")))
			if i := lookUp(t, b, "k"); i.Claim != cl.ID() || i.Note != nil {
				t.Errorf("%s: %+v", value, i)
			}
			if got := listed(t, b, "", nil); len(got) != 1 {
				t.Errorf("%s: %v", value, got)
			}
			release(t, cl)
			w.CloseClean(a, b)
		})
	}
}

// Work whose record is in a later format is neither begun nor done, and its
// record is left as it is. Records beside it are not concerned.
func TestUpgradeRecord(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"other shapes": laterShapes, "done": `{"v":2,"state":"done","result":"eA=="}`, "claimed": `{"v":2,"state":"claimed","attempt":1,"claim":"c"}`,
		"state": `{"v":1,"state":"of a later version","attempt":1,"claim":"c"}`,
	} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			c, _ := w.watched()
			w.put("work/k", value, 0)
			tryBegin(t, c, "beside")
			unread := func(what string, err error) {
				t.Helper()
				if err == nil || errors.Is(err, work.ErrDone) || errors.Is(err, work.ErrDead) || !strings.Contains(err.Error(), "k") {
					t.Errorf("%s: %v", what, err)
				}
			}
			_, err := works(c).TryBegin(ctx, "k")
			unread("TryBegin", err)
			limited, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			began := time.Now()
			_, err = works(c).Begin(limited, "k")
			unread("Begin", err)
			if d := time.Since(began); d > 10*sec {
				t.Errorf("Begin took %v", d)
			}
			_, _, err = works(c).Once(limited, "k", func(context.Context) ([]byte, error) { t.Error("it was run"); return nil, nil })
			unread("Runner.Once", err)
			_, _, err = works(c).Record(ctx, "k")
			unread("Record", err)
			if w.get("work/k") != value || w.get("own/k") != "" {
				t.Errorf("left: %v", w.All())
			}
			w.calm(c, 30*sec)
		})
	}
}

// A place in line in a later format counts: nobody passes it. It cannot be handed
// the key, so the key is freed for it to take.
func TestUpgradePlace(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{"other shapes": laterShapes, "same shapes": `{"v":2,"claim":"x","owner":"future","instance":"i"}`} {
		virtualCase(t, name, func(t *testing.T, w *world) {
			ctx := context.Background()
			a, _ := w.watched()
			b, _ := w.watched()
			held := tryClaim(t, a, "k")
			place := waitingAs("k", "later")
			w.put(place, value, w.lasting())
			done := acquiring(ctx, b, "k")
			time.Sleep(sec)
			before := a.Stats().Requests
			release(t, held)
			if n := a.Stats().Requests - before; n > 10 {
				t.Errorf("the release took %d requests", n)
			}
			if v := w.get("own/k"); v != "" {
				t.Errorf("the key was given to %s", v)
			}
			_, err := a.TryAcquire(ctx, "k")
			wantIs(t, err, etcdclaims.ErrHeld)
			w.calm(b, 30*sec)
			w.drop(place)
			release(t, w.within(5*sec, done))
			w.CloseClean(a, b)
		})
	}
}

// A waiter that a releaser of a later version hands the key to finds out, though
// it cannot read the notice.
func TestUpgradeHandOver(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]string{"other shapes": laterShapes, "same shapes": `{"v":2,"epoch":5,"epochRev":1}`} {
		for _, begins := range []bool{false, true} {
			virtualCase(t, fmt.Sprintf("%s, in line for %v", name, begins), func(t *testing.T, w *world) {
				c, _ := w.watched()
				tryClaim(t, c, "warm")
				w.put("own/k", laterShapes, w.lasting())
				done := acquiring(context.Background(), c, "k")
				wait := 50 * time.Millisecond // before it watches the claim
				if begins {
					wait = 5 * sec
				}
				time.Sleep(wait)
				resp, err := w.Raw.Get(context.Background(), w.Prefix+"wait/", clientv3.WithPrefix())
				noErr(t, err)
				if len(resp.Kvs) != 1 {
					t.Fatalf("%d in line", len(resp.Kvs))
				}
				place := resp.Kvs[0]
				id := string(place.Key[strings.LastIndex(string(place.Key), "/")+1:])
				lease := clientv3.WithLease(clientv3.LeaseID(place.Lease))
				_, err = w.Raw.Txn(context.Background()).Then(
					clientv3.OpPut(w.Own("k"), string(place.Value), lease), clientv3.OpDelete(string(place.Key)),
					clientv3.OpPut(w.Prefix+"session/"+c.Instance()+"/won/"+id, notice, lease)).Commit()
				noErr(t, err)
				cl := w.within(sec, done)
				w.Ours(cl)
				w.calm(c, 30*sec)
				release(t, cl)
				w.CloseClean(c)
			})
		}
	}
}

// A forced release in a later format is not believed, but looked into: the holder
// asks etcd whether it still holds the key.
func TestUpgradeEviction(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{false, true} {
		for _, format := range []string{laterMailTo, `{"v":2,"key":[%q],"claim":{"id":%q}}`} {
			virtualCase(t, fmt.Sprintf("%v, %.12s", gone, format), func(t *testing.T, w *world) {
				c, _ := w.watched()
				cl, other := tryClaim(t, c, "k"), tryClaim(t, c, "other")
				lease := clientv3.WithLease(w.Server.Lease(t, w.Own("k")))
				ops := []clientv3.Op{clientv3.OpPut(w.Prefix+"session/"+c.Instance()+"/evict/"+cl.ID(), fmt.Sprintf(format, "k", cl.ID()), lease)}
				if gone {
					ops = append(ops, clientv3.OpDelete(w.Own("k")))
				}
				_, err := w.Raw.Txn(context.Background()).Then(ops...).Commit()
				noErr(t, err)
				time.Sleep(sec)
				switch err := cl.Check(); {
				case gone && !errors.Is(err, etcdclaims.ErrLost):
					t.Errorf("a second after it was forced from its holder: %v", err)
				case !gone && err != nil:
					t.Errorf("lost by a notice that cannot be read: %v", err)
				}
				noErr(t, other.Check())
				w.calm(c, 30*sec)
				w.CloseClean(c)
			})
		}
	}
}

// A sentinel says what it has to say by being there.
func TestUpgradeSentinel(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, _ := w.watched()
		cl := tryClaim(t, c, "k")
		live := "session/" + c.Instance() + "/live/1"
		w.put(live, laterShapes, w.Server.Lease(t, w.Own("k")))
		w.put("session/"+c.Instance()+"/live/of-a-later-version", laterShapes, 0)
		w.put("session/"+c.Instance()+"/later/1", laterShapes, 0)
		w.calm(c, time.Minute)
		noErr(t, cl.Check())
		w.drop("session/" + c.Instance() + "/live/of-a-later-version")
		w.drop("session/" + c.Instance() + "/later/1")
		time.Sleep(sec)
		noErr(t, cl.Check())
		w.drop(live)
		time.Sleep(250 * time.Millisecond)
		lossOf(t, cl.Err(), etcdclaims.ReasonRevoked)
	})
}

// What makes a late request void does so whatever it says.
func TestUpgradeVoid(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		c, host := w.client(etcdclaims.Config{TTL: 15 * sec})
		tryClaim(t, c, "warm")
		voids := make(chan string, 8)
		arrive := make(chan struct{})
		host.Inject(claimtest.Fault{On: claimtest.Acquire, Hold: arrive, Saw: func(req any) {
			for _, cmp := range req.(*pb.TxnRequest).Compare {
				if name := string(cmp.Key); strings.Contains(name, "/void/") {
					voids <- name
				}
			}
		}})
		done := make(chan claimed, 1)
		go func() {
			cl, err := c.TryAcquire(context.Background(), "k")
			done <- claimed{cl: cl, err: err}
		}()
		var void string
		select {
		case void = <-voids:
		case <-time.After(100 * time.Millisecond):
			t.Fatal("an acquisition without a condition on a void key")
		}
		w.put(strings.TrimPrefix(void, w.Prefix), laterShapes, 0)
		close(arrive)
		if cl := w.within(sec, done); cl.Check() != nil {
			t.Error("not held after it was tried again")
		}
		w.drop(strings.TrimPrefix(void, w.Prefix))
		w.CloseClean(c)
	})
}

// A lock in a later format is somebody's. The index of an owner's locks names
// keys, and is believed in nothing else.
func TestUpgradeLock(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		c, _ := w.watched()
		k := locks.New(c)
		lease := w.lasting()
		sum := sha256.Sum256([]byte("me"))
		index := "lock/" + hex.EncodeToString(sum[:16]) + "/"
		testclaims.Locked(t, k, "mine", "me", time.Minute, true)
		w.put(index+"mine", laterShapes, w.Server.Lease(t, w.Own("mine")))
		later := `{"v":2,"claim":"1","owner":"me","kind":"lock","ttl":60}`
		w.put("own/later", later, lease)
		w.put(index+"later", laterShapes, lease)
		w.put(index+"gone", laterShapes, lease)
		testclaims.Locked(t, k, "later", "me", time.Minute, false)
		testclaims.Renewed(t, k, "later", "me", time.Minute, false)
		testclaims.Unlocked(t, k, "later", "me", false)
		if is, err := k.IsLocked(ctx, "later"); !is || err != nil {
			t.Errorf("locked %v, %v", is, err)
		}
		testclaims.Renewed(t, k, "mine", "me", time.Minute, true)
		if n, err := k.ReleaseAll(ctx, "me"); n != 1 || err != nil {
			t.Errorf("released %d, %v", n, err)
		}
		if w.get("own/later") != later {
			t.Error("a lock in a later format was changed")
		}
	})
}

// An epoch that cannot be read stops everything until it is corrected: no claim
// is granted, and none that is held passes for good.
func TestUpgradeEpoch(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`{"v":2,"epoch":7}`, "7.5", "007"} {
		virtualCase(t, value, func(t *testing.T, w *world) {
			ctx := context.Background()
			c, _ := w.watched()
			cl := tryClaim(t, c, "k")
			w.put("epoch", value, 0)
			if _, err := cl.Txn(ctx).Then(clientv3.OpPut("/effect", "")).Commit(); !errors.Is(err, etcdclaims.ErrLost) {
				t.Errorf("a write: %v", err)
			}
			limited, cancel := context.WithTimeout(ctx, 10*sec)
			defer cancel()
			_, err := c.TryAcquire(limited, "other")
			if err == nil || !strings.Contains(err.Error(), w.Prefix+"epoch") {
				t.Errorf("acquired: %v", err)
			}
			if _, ok, err := locks.New(c).TryAcquire(limited, "other", "me", time.Minute); ok || err == nil {
				t.Errorf("locked: %v, %v", ok, err)
			}
			w.calm(c, 30*sec)
			if cl.Check() == nil {
				t.Error("still held, by its own account")
			}
			w.drop("epoch")
			if _, err := admin.RaiseEpoch(ctx, w.Raw, w.Prefix, 7); err != nil {
				t.Fatal(err)
			}
			eventually(t, "claims are granted again", func() bool {
				time.Sleep(sec)
				_, err := c.TryAcquire(ctx, "again")
				return err == nil
			})
		})
	}
}

// A field that this version does not know is no reason to refuse a value of its
// own version.
func TestUpgradeUnknownFields(t *testing.T) {
	t.Parallel()
	virtually(t, func(t *testing.T, w *world) {
		ctx := context.Background()
		a, ahost := w.watched()
		b, _ := w.watched()
		more := func(key string) { // adds a field to a value
			t.Helper()
			var fields map[string]any
			if err := json.Unmarshal([]byte(w.get(key)), &fields); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			fields["future"] = map[string]any{"shard": 7}
			value, err := json.Marshal(fields)
			noErr(t, err)
			resp, err := w.Raw.Get(ctx, w.Prefix+key)
			noErr(t, err)
			w.put(key, string(value), clientv3.LeaseID(resp.Kvs[0].Lease))
		}
		wk := tryBegin(t, a, "work", etcdclaims.Note([]byte("note")))
		more("note/work")
		if i := lookUp(t, b, "work"); string(i.Note) != "note" {
			t.Errorf("%+v", i)
		}
		more("own/work")
		if i := lookUp(t, b, "work"); i.Claim != wk.ID() || i.Instance != a.Instance() {
			t.Errorf("%+v", i)
		}
		more("work/work")
		if r, ok, err := works(b).Record(ctx, "work"); !ok || err != nil || r.State != work.StateClaimed || r.Claim != wk.ID() {
			t.Errorf("%+v, %v", r, err)
		}
		ahost.Kill()
		time.Sleep(20 * sec)
		if o, err := orphansOf(ctx, b, 0); len(o) != 1 || err != nil {
			t.Errorf("orphans: %v, %v", o, err)
		}
		if again := tryBegin(t, b, "work"); again.Attempt() != 2 {
			t.Errorf("attempt %d", again.Attempt())
		}
		testclaims.Locked(t, locks.New(b), "lock", "me", time.Minute, true)
		more("own/lock")
		testclaims.Renewed(t, locks.New(b), "lock", "me", time.Minute, true)
		testclaims.Unlocked(t, locks.New(b), "lock", "me", true)
	})
}
