// Package clusters is a protocol that spreads claims over several etcd clusters, for
// when one etcd is not enough. It is not published: its tests show that the protocol
// is right, and docs/scale.md says what it would cost.
//
// Keys belong to families. All claims of a family are in one cluster, its home, under
// a prefix of the family's own. Rendezvous hashing says where a family ought to be.
// Where it is, the clusters themselves record, so processes that know different lists
// of clusters never claim a key twice.
//
// # The record
//
// Each cluster has at most one record of a family: its generation, and whether the
// family is here or has moved to another cluster. The generation is also the epoch
// of the family's claims in that cluster, or lower. Three transactions write it:
//
//   - Birth, in the cluster that rendezvous hashing over the founders chooses: if there
//     is no record, the family is here. The list of founders never changes.
//   - Seal, at home: if the family is here, it has moved to one named cluster, with the
//     next generation. The same transaction raises the epoch, which ends all claims.
//   - Open, in the named cluster: if the record there is older than the seal, the
//     family is here, with the seal's generation. The same transaction raises the epoch
//     to that generation at least.
//
// An acquisition has the condition that the record is the one that was read.
//
// # Why it is right
//
// Only a seal makes a new generation, only the home can be sealed, and a seal names
// one cluster. So each generation has one home. A seal precedes the opening that it
// permits, and no claim of the old home can write or be acquired after the seal. So at
// any moment the claims of one cluster at most are good. Every epoch that was in use
// before is lower than the generation of the seal, so each fence is greater than all
// before it, in whichever cluster it was made.
//
// All three can be sent again after a lost reply, and by any process that finds the
// family half moved.
package clusters
