package etcdguard

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/fencing"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Holder says under which conditions writes are carried out. *etcdclaims.Claim
// and *etcdclaims.Work are such; Bearer makes one of a token.
//
// If it also has the method Err() error, as claims do, nothing is sent once that
// is not nil; and if it has Remaining() time.Duration, no request goes on for
// longer.
type Holder interface {
	// Token returns the token in whose name writes are made.
	Token() fencing.Token
	// Held returns conditions that hold as long as the token is the newest of
	// its key.
	Held() []clientv3.Cmp
}

// epochShift is where a fence has its epoch.
const epochShift = 47

// bearer is who was sent a token.
type bearer struct {
	prefix string
	token  fencing.Token
}

// Bearer is the Holder of a token that arrived with a request, of a claim made
// by clients whose Config.Prefix is this; "" stands for the default,
// "/etcdclaims/". The claim must be held still when a write is carried out: one
// that was released since is refused, like one that has a newer owner.
//
// A claim's own Held compares its lease, too, which a token does not tell. The
// difference shows after a snapshot was restored that rewound etcd's revisions:
// then only raising the epoch (etcdclaims.RaiseEpoch) refuses tokens from before.
func Bearer(prefix string, t fencing.Token) Holder {
	if prefix == "" {
		prefix = "/etcdclaims/"
	}
	return bearer{prefix: prefix, token: t}
}

// Token returns the token.
func (b bearer) Token() fencing.Token { return b.token }

// Err says what is wrong with the prefix, if it cannot be one.
func (b bearer) Err() error {
	if !strings.HasSuffix(b.prefix, "/") {
		return fmt.Errorf("etcdguard: prefix %q of a bearer's claims must end in a slash, as Config.Prefix does", b.prefix)
	}
	return nil
}

// Held compares the revision of the claim and the epoch.
func (b bearer) Held() []clientv3.Cmp {
	own, epoch := b.prefix+"own/"+b.token.Key, b.prefix+"epoch"
	cmps := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(own), "=", b.token.Fence&(1<<epochShift-1)),
		clientv3.Compare(clientv3.CreateRevision(epoch), "=", 0),
	}
	if e := b.token.Fence >> epochShift; e > 0 {
		cmps[1] = clientv3.Compare(clientv3.Value(epoch), "=", strconv.FormatInt(e, 10))
	}
	return cmps
}
