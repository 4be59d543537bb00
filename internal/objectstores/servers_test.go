package objectstores_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/fencing/objectguard"
	"github.com/etcdclaims/claims/fencing/objectguard/storetest"
	"github.com/etcdclaims/claims/internal/objectstores"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/googleapis/gax-go/v2"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"go.uber.org/goleak"
	"google.golang.org/api/option"
)

func TestMain(m *testing.M) {
	// The client of GCS counts metrics in a goroutine that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("go.opencensus.io/stats/view.(*worker).start"))
}

const bucket = "guarded"

// cutting is a server of which one write in so many is cut off: its request before
// it was carried out, or its reply after.
type cutting struct {
	http.Handler
	oneIn int
	cut   *atomic.Int64
}

func (c cutting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.oneIn == 0 || !isWrite(r) || rand.IntN(c.oneIn) > 0 {
		c.Handler.ServeHTTP(w, r)
		return
	}
	c.cut.Add(1)
	if rand.IntN(2) == 0 {
		c.Handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	panic(http.ErrAbortHandler)
}

func isWrite(r *http.Request) bool {
	return r.Method == http.MethodPut && strings.Count(r.URL.Path, "/") > 1 || r.Method == http.MethodPost
}

func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = nil
	server.Start()
	t.Cleanup(server.Close)
	return server
}

// newS3 starts a server and returns its bucket.
func newS3(t *testing.T, oneIn int, cut *atomic.Int64) objectstores.S3 {
	t.Helper()
	return s3On(t, cutting{gofakes3.New(s3mem.New()).Server(), oneIn, cut})
}

func s3On(t *testing.T, h http.Handler) objectstores.S3 {
	t.Helper()
	server := serve(t, h)
	client := s3.New(s3.Options{
		BaseEndpoint: &server.URL,
		Region:       "us-east-1",
		UsePathStyle: true,
		HTTPClient:   server.Client(),
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "secret"}, nil
		}),
		// The client tries thrice, as it does unless told otherwise, but sooner.
		Retryer: retry.NewStandard(func(o *retry.StandardOptions) {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return time.Millisecond, nil })
			o.RateLimiter = noLimit{}
		}),
	})
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
		t.Fatal(err)
	}
	return objectstores.S3{Client: client, Bucket: bucket}
}

// noLimit lets the client try again however often it did.
type noLimit struct{}

func (noLimit) GetToken(context.Context, uint) (func() error, error) {
	return func() error { return nil }, nil
}
func (noLimit) AddTokens(uint) error { return nil }

// newGCS starts a server and returns its bucket.
func newGCS(t *testing.T, oneIn int, cut *atomic.Int64) objectstores.GCS {
	t.Helper()
	return gcsOn(t, cutting{newGCSServer(t), oneIn, cut})
}

func newGCSServer(t *testing.T) http.Handler {
	t.Helper()
	fake, err := fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, Writer: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Stop)
	fake.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: bucket})
	return fake.HTTPHandler()
}

func gcsOn(t *testing.T, h http.Handler) objectstores.GCS {
	t.Helper()
	server := serve(t, h)
	client, err := storage.NewClient(t.Context(), option.WithEndpoint(server.URL+"/storage/v1/"), option.WithoutAuthentication(),
		option.WithHTTPClient(server.Client()), storage.WithJSONReads(), storage.WithDisabledClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	client.SetRetry(storage.WithBackoff(gax.Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond}))
	return objectstores.GCS{Bucket: client.Bucket(bucket)}
}

// servers are what the stores are tested on.
var servers = map[string]func(t *testing.T, oneIn int, cut *atomic.Int64) objectguard.Store{
	"S3":  func(t *testing.T, oneIn int, cut *atomic.Int64) objectguard.Store { return newS3(t, oneIn, cut) },
	"GCS": func(t *testing.T, oneIn int, cut *atomic.Int64) objectguard.Store { return newGCS(t, oneIn, cut) },
}

func TestStores(t *testing.T) {
	for name, open := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.TestStore(t, func(t *testing.T) objectguard.Store { return open(t, 0, nil) })
		})
	}
}

// The clients send again what was cut off, conditional or not, and are told of a
// conflict with themselves.
func TestGuardsWithCuts(t *testing.T) {
	for name, open := range servers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cut atomic.Int64
			t.Run("", func(t *testing.T) {
				storetest.TestGuards(t, func(t *testing.T) objectguard.Store { return open(t, 8, &cut) })
			})
			if cut.Load() == 0 {
				t.Error("nothing was cut off: this tests nothing")
			}
			t.Logf("%d writes were cut off", cut.Load())
		})
	}
}

// lostThenDenied carries the next write out without a reply, and denies the tries
// that follow: keys are rotated, a policy is changed, or a clock jumps between two
// tries of the client's own.
type lostThenDenied struct {
	http.Handler
	tries  atomic.Int32 // counted from 1 on, once it is armed
	denial string
}

func (l *lostThenDenied) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !isWrite(r) || l.tries.Load() == 0 {
		l.Handler.ServeHTTP(w, r)
		return
	}
	if l.tries.Add(1) == 2 {
		l.Handler.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, l.denial)
}

// A refusal of the client's second try says nothing of its first.
func TestDeniedAfterALostReply(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, l *lostThenDenied) objectguard.Store{
		"S3": func(t *testing.T, l *lostThenDenied) objectguard.Store {
			l.Handler, l.denial = gofakes3.New(s3mem.New()).Server(), "<Error><Code>AccessDenied</Code></Error>"
			return s3On(t, l)
		},
		"GCS": func(t *testing.T, l *lostThenDenied) objectguard.Store {
			l.Handler, l.denial = newGCSServer(t), `{"error":{"code":403}}`
			return gcsOn(t, l)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := new(lostThenDenied)
			o, err := objectguard.New(open(t, l), "state")
			if err != nil {
				t.Fatal(err)
			}
			token := fencing.Token{Key: "k", Fence: 7}
			if err := o.Write(t.Context(), token, []byte("before")); err != nil {
				t.Fatal(err)
			}
			l.tries.Store(1)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			err = o.Write(ctx, token, []byte("after"))
			if !errors.Is(err, fencing.ErrUnknown) || errors.Is(err, objectguard.ErrRefused) {
				t.Errorf("%v, want an unknown outcome", err)
			}
			if now, _, err := o.Read(t.Context()); err != nil || string(now) != "after" {
				t.Errorf("it was not carried out, which tests nothing: %q, %v", now, err)
			}
			// What is refused at once was not done, and the error says so.
			if err := o.Write(ctx, token, []byte("denied")); !errors.Is(err, objectguard.ErrRefused) || errors.Is(err, fencing.ErrUnknown) {
				t.Errorf("denied at once: %v", err)
			}
		})
	}
}

// Why the fence is not in the metadata: S3's ETag is of the content alone, and an
// owner that was shut out by metadata writes with an If-Match that still holds.
func TestMetadataGuardsNothing(t *testing.T) {
	b := newS3(t, 0, nil)
	put := func(fence, data string, match *string) (*s3.PutObjectOutput, error) {
		return b.Client.PutObject(t.Context(), &s3.PutObjectInput{
			Bucket: &b.Bucket, Key: aws.String("state"), Body: strings.NewReader(data), IfMatch: match, Metadata: map[string]string{"fence": fence},
		})
	}
	first, err := put("33", "a", nil)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := put("34", "a", first.ETag)
	if err != nil {
		t.Fatal(err)
	}
	if *sealed.ETag != *first.ETag {
		t.Fatalf("the ETag was %s and is %s: the fence could be in the metadata", *first.ETag, *sealed.ETag)
	}
	if _, err := put("33", "late", first.ETag); err != nil {
		t.Errorf("the late write was refused, as it should be but cannot: %v", err)
	}

	// In the content it can.
	o, err := objectguard.New(b, "guarded")
	if err != nil {
		t.Fatal(err)
	}
	older, newer := fencing.Token{Key: "k", Fence: 33}, fencing.Token{Key: "k", Fence: 34}
	if err := o.Write(t.Context(), older, []byte("a")); err != nil {
		t.Fatal(err)
	}
	_, etag, err := b.Read(t.Context(), "guarded")
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Admit(t.Context(), newer); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Replace(t.Context(), "guarded", []byte("late"), etag); !errors.Is(err, objectguard.ErrConflict) {
		t.Errorf("the late write: %v, want a conflict", err)
	}
}

// What S3 and GCS answer, and the servers above never do.
func TestAnswers(t *testing.T) {
	for _, test := range []struct {
		status int
		s3     string // S3's code
		want   map[string]error
	}{
		{http.StatusPreconditionFailed, "PreconditionFailed", map[string]error{"S3": objectguard.ErrConflict, "GCS": objectguard.ErrConflict}},
		{http.StatusConflict, "ConditionalRequestConflict", map[string]error{"S3": objectguard.ErrConflict}},
		{http.StatusConflict, "OperationAborted", nil},
		{http.StatusNotFound, "NoSuchKey", map[string]error{"S3": objectguard.ErrConflict, "GCS": objectguard.ErrRefused}},
		{http.StatusNotFound, "NoSuchBucket", map[string]error{"GCS": objectguard.ErrRefused}},
		{http.StatusForbidden, "AccessDenied", map[string]error{"S3": objectguard.ErrRefused, "GCS": objectguard.ErrRefused}},
		{http.StatusBadRequest, "EntityTooLarge", map[string]error{"S3": objectguard.ErrRefused, "GCS": objectguard.ErrRefused}},
		{http.StatusBadRequest, "RequestTimeout", map[string]error{"GCS": objectguard.ErrRefused}},
		{http.StatusInternalServerError, "InternalError", nil},
		{http.StatusServiceUnavailable, "SlowDown", nil},
	} {
		t.Run(test.s3, func(t *testing.T) {
			answer := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(test.status)
				if r.Method == http.MethodPut {
					_, _ = io.WriteString(w, "<Error><Code>"+test.s3+"</Code></Error>")
				}
			}))
			aws3 := newS3(t, 0, nil)
			options := aws3.Client.Options()
			options.BaseEndpoint, options.HTTPClient = &answer.URL, answer.Client()
			google, err := storage.NewClient(t.Context(), option.WithEndpoint(answer.URL+"/storage/v1/"), option.WithoutAuthentication(),
				option.WithHTTPClient(answer.Client()), storage.WithDisabledClientMetrics())
			if err != nil {
				t.Fatal(err)
			}
			defer google.Close()
			google.SetRetry(storage.WithPolicy(storage.RetryNever))
			for name, store := range map[string]objectguard.Store{
				"S3":  objectstores.S3{Client: s3.New(options), Bucket: bucket},
				"GCS": objectstores.GCS{Bucket: google.Bucket(bucket)},
			} {
				_, err := store.Replace(t.Context(), "state", bytes.Repeat([]byte("x"), 100), "1")
				if err == nil {
					t.Errorf("%s: no error", name)
				}
				for _, sentinel := range []error{objectguard.ErrConflict, objectguard.ErrRefused, objectguard.ErrNotFound} {
					if want := test.want[name] == sentinel; errors.Is(err, sentinel) != want {
						t.Errorf("%s: %v matches %q: %v, want %v", name, err, sentinel, !want, want)
					}
				}
			}
		})
	}
	if _, err := (objectstores.GCS{}).Replace(t.Context(), "state", nil, "0"); !errors.Is(err, objectguard.ErrRefused) {
		t.Errorf("generation 0 would be no condition: %v", err)
	}
}
