package etcdguard

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/keyspace"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Holder provides the conditions under which writes are carried out.
// *etcdclaims.Claim and *work.Work implement it, and Bearer returns one for
// a token.
//
// A Holder may have two more methods, as claims do. Once Err() error returns an
// error, nothing more is sent. Remaining() time.Duration limits how long each
// request may take.
type Holder interface {
	// Token returns the token that the writes are made under.
	Token() fencing.Token
	// Guard returns conditions that hold while the token is the newest of its key.
	Guard() []clientv3.Cmp
}

// bearer is the Holder of a token that arrived with a request.
type bearer struct {
	prefix string
	token  fencing.Token
}

// Bearer returns the Holder of a token that arrived with a request. prefix is the
// Config.Prefix of the client that made the claim; "" means the default,
// "/etcdclaims/".
//
// A write is carried out only if the claim is still held. It is refused if the
// claim was released, as well as if there is a newer owner.
//
// A claim's own Held also compares its lease, which a token does not contain. The
// difference matters after a restore from a snapshot that rewound etcd's
// revisions. Then tokens from before the restore are refused only once the epoch
// was raised (admin.RaiseEpoch of package etcdclaims/admin).
func Bearer(prefix string, t fencing.Token) Holder {
	if prefix == "" {
		prefix = keyspace.DefaultPrefix
	}
	return bearer{prefix: prefix, token: t}
}

// Token returns the token.
func (b bearer) Token() fencing.Token { return b.token }

// Err returns why the prefix or the token cannot be used, or nil.
func (b bearer) Err() error {
	if keyspace.Revision(b.token.Fence) == 0 {
		// etcd reports revision 0 for an absent key.
		return fmt.Errorf("etcdguard: %w: no claim has fence %d", fencing.ErrMalformed, b.token.Fence)
	}
	if !strings.HasSuffix(b.prefix, "/") {
		return fmt.Errorf("etcdguard: prefix %q of a bearer's claims must end in a slash, as Config.Prefix does", b.prefix)
	}
	return nil
}

// Held compares the revision of the claim and the epoch.
func (b bearer) Guard() []clientv3.Cmp {
	own, epoch := keyspace.Own(b.prefix, b.token.Key), keyspace.EpochKey(b.prefix)
	cmps := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(own), "=", keyspace.Revision(b.token.Fence)),
		clientv3.Compare(clientv3.CreateRevision(epoch), "=", 0),
	}
	if e := keyspace.Epoch(b.token.Fence); e > 0 {
		cmps[1] = clientv3.Compare(clientv3.Value(epoch), "=", strconv.FormatInt(e, 10))
	}
	return cmps
}
