package objectstores

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"cloud.google.com/go/storage"
	"github.com/etcdclaims/claims/fencing/objectguard"
	"google.golang.org/api/googleapi"
)

// GCS is a bucket of Google Cloud Storage. A version is an object's generation.
//
// The caller needs storage.objects.get, .create and .delete, which overwriting
// takes, and storage.objects.list, without which GCS says 403 of an object that is
// absent. The client may try again as often as it likes. It does so until ctx
// ends, so ctx must have a deadline.
type GCS struct {
	Bucket *storage.BucketHandle
}

var _ objectguard.Store = GCS{}

// Read is objectguard.Store's.
func (b GCS) Read(ctx context.Context, name string) (data []byte, version string, err error) {
	in, err := b.Bucket.Object(name).NewReader(ctx)
	if err != nil {
		if errors.Is(err, storage.ErrObjectNotExist) {
			err = fmt.Errorf("%w: %w", objectguard.ErrNotFound, err)
		}
		return nil, "", err
	}
	defer in.Close()
	data, err = io.ReadAll(in)
	return data, strconv.FormatInt(in.Attrs.Generation, 10), err
}

// Create is objectguard.Store's.
func (b GCS) Create(ctx context.Context, name string, data []byte) (version string, err error) {
	return b.put(ctx, name, data, storage.Conditions{DoesNotExist: true})
}

// Replace is objectguard.Store's.
func (b GCS) Replace(ctx context.Context, name string, data []byte, version string) (newVersion string, err error) {
	generation, err := strconv.ParseInt(version, 10, 64)
	if err != nil || generation == 0 { // 0 would be no condition
		return "", fmt.Errorf("%w: %q is no generation", objectguard.ErrRefused, version)
	}
	return b.put(ctx, name, data, storage.Conditions{GenerationMatch: generation})
}

func (b GCS) put(ctx context.Context, name string, data []byte, only storage.Conditions) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()          // if it was not written in full nothing of it is kept
	var failed atomic.Int32 // requests
	out := b.Bucket.Object(name).If(only).Retryer(storage.WithErrorFunc(func(err error) bool {
		failed.Add(1)
		return storage.ShouldRetry(err)
	})).NewWriter(ctx)
	if len(data) < out.ChunkSize {
		out.ChunkSize = 0 // one request
	}
	_, err := out.Write(data)
	if err == nil {
		if err = out.Close(); err == nil {
			return strconv.FormatInt(out.Attrs().Generation, 10), nil
		}
	}
	var response *googleapi.Error
	if errors.As(err, &response) {
		switch response.Code {
		case http.StatusPreconditionFailed:
			err = fmt.Errorf("%w: %w", objectguard.ErrConflict, err)
		case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound: // of the bucket
			// If the client has tried before, this answers its last try alone.
			if failed.Load() <= 1 {
				err = fmt.Errorf("%w: %w", objectguard.ErrRefused, err)
			}
		}
	}
	return "", err
}
