package objectstores

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/etcdclaims/claims/fencing/objectguard"
)

// S3 is a bucket of Amazon S3, or of a server that speaks its protocol and honours
// If-Match and If-None-Match in PutObject.
//
// The caller needs s3:GetObject and s3:PutObject, and s3:ListBucket, without which
// S3 says 403 of an object that is absent. The client may try again as often as it
// likes; give it a timeout for each request.
type S3 struct {
	Client *s3.Client
	Bucket string
}

var _ objectguard.Store = S3{}

// Read is objectguard.Store's.
func (b S3) Read(ctx context.Context, name string) (data []byte, version string, err error) {
	out, err := b.Client.GetObject(ctx, &s3.GetObjectInput{Bucket: &b.Bucket, Key: &name})
	if err != nil {
		if s3Code(err) == "NoSuchKey" {
			err = fmt.Errorf("%w: %w", objectguard.ErrNotFound, err)
		}
		return nil, "", err
	}
	defer out.Body.Close()
	data, err = io.ReadAll(out.Body)
	return data, aws.ToString(out.ETag), err
}

// Create is objectguard.Store's.
func (b S3) Create(ctx context.Context, name string, data []byte) (version string, err error) {
	return b.put(ctx, &s3.PutObjectInput{Bucket: &b.Bucket, Key: &name, Body: bytes.NewReader(data), IfNoneMatch: aws.String("*")})
}

// Replace is objectguard.Store's.
func (b S3) Replace(ctx context.Context, name string, data []byte, version string) (newVersion string, err error) {
	return b.put(ctx, &s3.PutObjectInput{Bucket: &b.Bucket, Key: &name, Body: bytes.NewReader(data), IfMatch: &version})
}

func (b S3) put(ctx context.Context, in *s3.PutObjectInput) (string, error) {
	var sent counter
	out, err := b.Client.PutObject(ctx, in, sent.count)
	if err == nil {
		return aws.ToString(out.ETag), nil
	}
	var response *awshttp.ResponseError
	if !errors.As(err, &response) {
		return "", err
	}
	switch code := s3Code(err); response.HTTPStatusCode() {
	case http.StatusPreconditionFailed:
		err = fmt.Errorf("%w: %w", objectguard.ErrConflict, err)
	case http.StatusConflict, http.StatusNotFound:
		// Other codes are of the bucket, which is not there or being removed.
		if code == "ConditionalRequestConflict" || code == "NoSuchKey" {
			err = fmt.Errorf("%w: %w", objectguard.ErrConflict, err)
		}
	case http.StatusBadRequest:
		// Among these is RequestTimeout, after which the client tries again.
		if code == "EntityTooLarge" || code == "InvalidRequest" || code == "KeyTooLongError" {
			err = sent.refused(err)
		}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed:
		err = sent.refused(err)
	}
	return "", err
}

// counter counts the requests that one call sends.
type counter struct {
	s3.HTTPClient
	requests int
}

func (c *counter) count(o *s3.Options) {
	c.HTTPClient = o.HTTPClient
	o.HTTPClient = c
}

// refused makes the error of a write that S3 refused. If the client has tried
// before, the refusal answers its last try alone.
func (c *counter) refused(err error) error {
	if c.requests > 1 {
		return fmt.Errorf("the last of %d tries: %w", c.requests, err)
	}
	return fmt.Errorf("%w: %w", objectguard.ErrRefused, err)
}

// Do is s3.HTTPClient's. The client's tries come one after the other.
func (c *counter) Do(r *http.Request) (*http.Response, error) {
	c.requests++
	return c.HTTPClient.Do(r)
}

// s3Code returns S3's own word for the error.
func s3Code(err error) string {
	var api interface{ ErrorCode() string }
	if !errors.As(err, &api) {
		return ""
	}
	return api.ErrorCode()
}
