package simulation

import (
	"cmp"
	"strings"
)

// names are the keys in etcd of places in line and of shared claims that stand, with the keys that they would have if
// their names were their claims'. Clients use the names of earlier ones again, and the judge tells claims apart by keys.
type names map[string]string

// nameByClaim gives all changes of such keys the keys by their claims.
func nameByClaim(changes []change) {
	stand := names{}
	for i := range changes {
		if i > 0 && changes[i].era != changes[i-1].era { // what stands is what stood in the snapshot
			clear(stand)
			for _, before := range changes[:i] {
				if !before.undone {
					stand.of(before)
				}
			}
		}
		changes[i].key = stand.of(changes[i])
	}
}

// of takes in a change, and returns the key by its claim. What is put in the place of another keeps that one's: the
// judge finds it.
func (n names) of(c change) string {
	key := c.name
	name := strings.TrimPrefix(key, sharedPrefix)
	if strings.HasPrefix(key, prefix+"wait/") {
		name = strings.TrimPrefix(key[strings.LastIndexByte(key, '/')+1:], "~")
	} else if name == key {
		return key
	}
	by := n[key]
	switch claim := c.holder().Claim; {
	case c.deleted:
		delete(n, key)
	case by == "" && claim != "":
		by = strings.TrimSuffix(key, name) + claim
		n[key] = by
	}
	return cmp.Or(by, key)
}
