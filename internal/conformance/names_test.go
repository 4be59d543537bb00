package conformance_test

import (
	googleuuid "github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type (
	uuid   = googleuuid.UUID
	client = clientv3.Client
)
