package scenarios_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/group"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	mostReply = 16 << 10 // bytes that the reading client accepts
	manyKeys  = 60       // of about 1 KB each
)

// many is an etcd in which each list is larger than the reader accepts at once.
type many struct {
	*testing.T
	etcd           *clientv3.Client
	writer, reader *etcdclaims.Client
	queue          *queue.Queue // of the reader
	sched          *sched.Scheduler
}

// put puts values of 1 KB.
func (m *many) put(lease clientv3.LeaseID, key func(i int) string) {
	value, _ := json.Marshal(map[string]any{"v": 1, "name": "x", "owner": strings.Repeat("o", 1000)})
	for i := range manyKeys {
		if _, err := m.etcd.Put(m.Context(), key(i), string(value), clientv3.WithLease(lease)); err != nil {
			m.Fatal(err)
		}
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
		return v
	}
}

func newMany(t *testing.T) *many {
	server := testetcd.Start(t, testetcd.NoSync())
	m := &many{T: t, etcd: server.Client(t)}
	open := func(etcd *clientv3.Client) *etcdclaims.Client {
		c := must[*etcdclaims.Client](t)(etcdclaims.New(etcd, etcdclaims.Config{}))
		t.Cleanup(func() { _ = c.Close(t.Context()) })
		return c
	}
	m.writer = open(m.etcd)
	m.reader = open(testetcd.NewClient(t, clientv3.Config{Endpoints: server.Endpoints(), MaxCallRecvMsgSize: mostReply}))
	m.queue = must[*queue.Queue](t)(queue.New(m.reader, queue.Config{Name: "q"}))
	m.sched = must[*sched.Scheduler](t)(sched.New(m.reader, sched.Config{Group: "default"}))
	t.Cleanup(func() { _ = m.queue.Close(t.Context()) })
	m.fillClaims()
	m.fillQueue()
	m.fillRest()
	return m
}

func (m *many) fillClaims() {
	var keys []string
	for i := range manyKeys {
		keys = append(keys, fmt.Sprint("k/", i))
	}
	held, errs := m.writer.TryAcquireEach(m.Context(), keys)
	for i, claim := range held {
		if errs[i] != nil {
			m.Fatal(errs[i])
		}
		if err := claim.Note(m.Context(), []byte(strings.Repeat("n", 1000))); err != nil {
			m.Fatal(err)
		}
		_, _, err := testwork.Of(m.writer).Once(m.Context(), fmt.Sprint("work/", i), func(context.Context) ([]byte, error) { return make([]byte, 1000), nil })
		if err != nil {
			m.Fatal(err)
		}
		if _, err := m.writer.TryAcquire(m.Context(), "slots", etcdclaims.Slots(manyKeys)); err != nil {
			m.Fatal(err)
		}
	}
	lease := must[*clientv3.LeaseGrantResponse](m.T)(m.etcd.Grant(m.Context(), 600)).ID
	prefix := m.writer.Prefix()
	m.put(lease, func(i int) string { return fmt.Sprintf("%ssession/x%d/live/1", prefix, i) })
	m.put(lease, func(i int) string { return fmt.Sprintf("%swait/%s/w%d", prefix, keyspace.Digest("k/0"), i) })
	m.put(lease, func(i int) string { return fmt.Sprintf("%swait/%s/w", prefix, keyspace.Digest(fmt.Sprint("line/", i))) })
}

func (m *many) fillQueue() {
	q := must[*queue.Queue](m.T)(queue.New(m.writer, queue.Config{Name: "q"}))
	m.Cleanup(func() { _ = q.Close(m.Context()) })
	var items []queue.Item
	for range 3 * manyKeys {
		items = append(items, queue.NewItem(nil))
	}
	must[int](m.T)(q.EnqueueAll(m.Context(), items))
	for range 2 {
		b := must[queue.Batch](m.T)(q.TryClaim(m.Context(), manyKeys))
		for i, l := range b.Deliveries {
			if i%2 == 0 {
				if err := l.Discard(m.Context(), strings.Repeat("d", 500)); err != nil {
					m.Fatal(err)
				}
			}
		}
	}
}

func (m *many) fillRest() {
	payload, _ := json.Marshal(strings.Repeat("p", 1000))
	for i := range manyKeys {
		must[int64](m.T)(m.sched.Define(m.Context(), sched.Definition{
			Name: fmt.Sprint("job-", i), Kind: "kind", Schedule: "@every 1h", Payload: payload,
		}))
	}
	_, err := group.Join(m.Context(), m.writer, group.Config{Group: "g", Partitions: 1}, func(ctx context.Context, _ int, _ *etcdclaims.Claim) error {
		<-ctx.Done()
		return nil
	})
	if err != nil {
		m.Fatal(err)
	}
	var jobs, members string
	for _, kv := range must[*clientv3.GetResponse](m.T)(m.etcd.Get(m.Context(), m.writer.Prefix(), clientv3.WithPrefix(), clientv3.WithKeysOnly())).Kvs {
		before, _, ok := strings.Cut(string(kv.Key), "/def/")
		if ok && strings.HasPrefix(string(kv.Key), m.writer.Prefix()+"sched/") {
			jobs = before
		}
		if before, ok = strings.CutSuffix(string(kv.Key), "/spec"); ok && strings.HasPrefix(string(kv.Key), m.writer.Prefix()+"group/") {
			members = before
		}
	}
	m.put(0, func(i int) string { return fmt.Sprintf("%s/past/%s/%020d-x", jobs, keyspace.Digest("job-0"), i) })
	m.put(0, func(i int) string { return fmt.Sprintf("%s/away/x%d", members, i) })
}

func count[T any](all iter.Seq2[T, error]) (n int, err error) {
	for _, err := range all {
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// manyReads are all public reads of many values, with how many values each has to return.
var manyReads = map[string]struct {
	want int
	read func(ctx context.Context, m *many) (int, error)
}{
	"Client.List":    {manyKeys, func(ctx context.Context, m *many) (int, error) { return count(m.reader.List(ctx, "k/")) }},
	"Runner.Records": {manyKeys, func(ctx context.Context, m *many) (int, error) { return count(testwork.Of(m.reader).Records(ctx, "")) }},
	"Runner.Orphans": {0, func(ctx context.Context, m *many) (int, error) { return count(testwork.Of(m.reader).Orphans(ctx, "")) }},
	"admin.Sessions": {manyKeys, func(ctx context.Context, m *many) (int, error) {
		n, err := count(admin.Sessions(ctx, m.reader))
		return min(n, manyKeys), err
	}},
	"admin.Actions": {0, func(ctx context.Context, m *many) (int, error) {
		all, err := admin.Actions(ctx, m.reader, manyKeys, time.Time{})
		return len(all), err
	}},
	"admin.Line": {manyKeys, func(ctx context.Context, m *many) (int, error) {
		line, err := admin.Line(ctx, m.reader, "k/0")
		return len(line), err
	}},
	"admin.Lines": {manyKeys, func(ctx context.Context, m *many) (int, error) {
		var keys []string
		for i := range manyKeys {
			keys = append(keys, fmt.Sprint("line/", i))
		}
		return count(admin.Lines(ctx, m.reader, keys))
	}},
	"Client.Lookup": {manyKeys, func(ctx context.Context, m *many) (int, error) {
		i, err := m.reader.Lookup(ctx, "slots")
		return int(i.Taken), err
	}},
	"admin.History": {1, func(ctx context.Context, m *many) (int, error) {
		h, err := admin.History(ctx, m.reader, "k/0")
		return len(h.Terms), err
	}},
	"Client.Watch": {manyKeys, func(ctx context.Context, m *many) (n int, err error) {
		for _, err := range m.reader.Watch(ctx, "k/") {
			if n++; err != nil || n == manyKeys {
				return n, err
			}
		}
		return n, nil
	}},
	"Queue.Waiting":     {manyKeys, func(ctx context.Context, m *many) (int, error) { return count(m.queue.Waiting(ctx)) }},
	"Queue.DeadLetters": {manyKeys, func(ctx context.Context, m *many) (int, error) { return count(m.queue.DeadLetters(ctx)) }},
	"Queue.Taken":       {manyKeys, func(ctx context.Context, m *many) (int, error) { return count(m.queue.Taken(ctx)) }},
	"queue.Names":       {1, func(ctx context.Context, m *many) (int, error) { return count(queue.Names(ctx, m.reader)) }},
	"queue.Active":      {1, func(ctx context.Context, m *many) (int, error) { return count(queue.Active(ctx, m.reader)) }},
	"group.Names":       {1, func(ctx context.Context, m *many) (int, error) { return count(group.Names(ctx, m.reader)) }},
	"group.Read": {manyKeys + 1, func(ctx context.Context, m *many) (int, error) {
		s, err := group.Read(ctx, m.reader, "g")
		return len(s.Members), err
	}},
	"Scheduler.Definitions": {manyKeys, func(ctx context.Context, m *many) (int, error) { return count(m.sched.Definitions(ctx)) }},
	"Scheduler.Jobs":        {manyKeys, func(ctx context.Context, m *many) (int, error) { return count(m.sched.Jobs(ctx)) }},
	"Scheduler.History":     {manyKeys, func(ctx context.Context, m *many) (int, error) { return count(m.sched.History(ctx, "job-0")) }},
	"sched.Groups":          {0, func(ctx context.Context, m *many) (int, error) { return count(sched.Groups(ctx, m.reader)) }},
}

// A client that accepts replies of 16 KiB reads every list that is larger.
func TestManyValuesUnderAReplyLimit(t *testing.T) {
	t.Parallel()
	m := newMany(t)
	for name, tt := range manyReads {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if n, err := tt.read(ctx, m); err != nil || n != tt.want {
				t.Errorf("%d values, %v, want %d", n, err, tt.want)
			}
		})
	}
}

// Every exported function with a context that returns a sequence or a slice is in that table, or here
// because it does not list what is in etcd.
func TestEveryReadOfManyValuesIsTried(t *testing.T) {
	t.Parallel()
	others := strings.Fields(`host.Pages Client.TryAcquireEach Client.TryAcquireAll Runner.TryOnce Runner.Once Queue.Watch
		View.Watch built.Pages Scheduler.PausedJobs`)
	for dir, name := range map[string]string{
		"../../etcdclaims": "etcdclaims", "../../etcdclaims/work": "work", "../../etcdclaims/admin": "admin", "../../etcdclaims/locks": "locks",
		"../../etcdclaims/queue": "queue", "../../etcdclaims/group": "group", "../../sched": "sched",
	} {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || !f.Name.IsExported() || !returnsMany(f.Type) {
					continue
				}
				full := name + "." + f.Name.Name
				if f.Recv != nil {
					full = receiver(f) + "." + f.Name.Name
				}
				if _, ok := manyReads[full]; !ok && !slices.Contains(others, full) {
					t.Errorf("%s is not tried", full)
				}
			}
		}
	}
}

func receiver(f *ast.FuncDecl) string {
	typ := f.Recv.List[0].Type
	if p, ok := typ.(*ast.StarExpr); ok {
		typ = p.X
	}
	return fmt.Sprint(typ)
}

// returnsMany reports whether a function takes a context and returns a sequence or a slice.
func returnsMany(f *ast.FuncType) bool {
	if f.Results == nil || len(f.Params.List) == 0 {
		return false
	}
	sel, ok := f.Params.List[0].Type.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Context" {
		return false
	}
	for _, r := range f.Results.List {
		typ := r.Type
		switch x := typ.(type) {
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.ArrayType:
			return true
		}
		if s, ok := typ.(*ast.SelectorExpr); ok && strings.HasPrefix(s.Sel.Name, "Seq") {
			return true
		}
	}
	return false
}
