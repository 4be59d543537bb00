// Package admin is for operators: the past and the present of keys, and calls that take them from
// their holders. The functions take a client, whose user needs the permissions in docs/permissions.md. They
// may be called from several goroutines.
//
// Errors are those of package etcdclaims, such as ErrUnknown. A nil client refuses every
// call with ErrNoClient.
package admin

import (
	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/internal/core"
)

// client is a client, and what it does for this package.
type client struct {
	core.Client
	claims *etcdclaims.Client
}

func of(claims *etcdclaims.Client) client { return client{core.Of(claims), claims} }
