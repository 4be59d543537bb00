//go:build tools

package testetcd

// The module must keep requiring what the etcd binary is built from.
import _ "go.etcd.io/etcd/server/v3/etcdmain"
