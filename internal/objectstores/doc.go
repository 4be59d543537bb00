// Package objectstores has stores for fencing/objectguard, tested on servers in
// the test's own process: S3 for aws-sdk-go-v2, GCS for
// cloud.google.com/go/storage. Each is one file that imports nothing of this
// package: take the one you need into your own code. They are not published,
// so that nobody who guards objects links the clients of all clouds.
package objectstores
