package webui_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/queue"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/internal/keyspace"
	"github.com/etcdclaims/claims/internal/testetcd"
	"github.com/etcdclaims/claims/internal/testwork"
	"github.com/etcdclaims/claims/sched"
	"github.com/etcdclaims/claims/sched/calendar"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The overview, the page of a key and the doctor show that this user may not read the work, and do not call it well.
func TestUnreadIsShown(t *testing.T) {
	server := testetcd.Start(t)
	etcd := server.Client(t)
	ctx := context.Background()
	ok := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	owner, err := etcdclaims.New(etcd, etcdclaims.Config{Owner: "a"})
	ok(nil, err)
	job, err := testwork.Of(owner).TryBegin(ctx, "lonely")
	ok(nil, err)
	ok(etcd.Delete(ctx, "/etcdclaims/own/lonely"))
	<-job.Done()
	ok(nil, owner.Close(ctx))
	for _, name := range []string{"root", "app"} {
		ok(etcd.RoleAdd(ctx, name))
		ok(etcd.UserAdd(ctx, name, "secret"))
		ok(etcd.UserGrantRole(ctx, name, name))
	}
	for _, subtree := range []string{"own/", "wait/", "epoch", "note/", "session/"} {
		key := "/etcdclaims/" + subtree
		ok(etcd.RoleGrantPermission(ctx, "app", key, clientv3.GetPrefixRangeEnd(key), clientv3.PermissionType(clientv3.PermRead)))
	}
	ok(etcd.AuthEnable(ctx))
	app, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints(), Username: "app", Password: "secret"})
	ok(nil, err)
	defer app.Close()
	claims, err := etcdclaims.New(app, etcdclaims.Config{Owner: "page"})
	ok(nil, err)
	defer claims.Close(ctx)
	page, err := webui.New(claims, webui.Config{})
	ok(nil, err)
	defer page.Close()
	get := func(where string) string {
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/"+where, nil))
		return spaces.ReplaceAllString(answer.Body.String(), " ")
	}
	if overview := get(""); strings.Contains(overview, "<b>0</b> work orphaned") || !strings.Contains(overview, "<b>?</b> work orphaned") || !strings.Contains(overview, "permission denied") {
		t.Errorf("the overview: %s", overview)
	} else if strings.Contains(overview, "Nothing. This list") || !regexp.MustCompile(`<a href="health">\d+ notes?</a>`).MatchString(overview) {
		t.Errorf("the overview hides that not all was examined: %s", overview)
	}
	if key := get("key?key=lonely"); !strings.Contains(key, "Not all of this can be read: its work is not known: ") || strings.Contains(key, "unreadable") {
		t.Errorf("the key: %s", key)
	}
	if health := get("health"); !strings.Contains(health, "not examined: permission denied") {
		t.Errorf("the doctor: %s", health)
	}
}

// A job that cannot be read hides neither the other jobs of its group nor other groups.
func TestUnreadableJob(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		api, host := w.client("api-7")
		etcd, root := host.Etcd(w.T), api.Prefix()+"sched/"
		for group, jobs := range map[string]int{"billing": 12, "mails": 1} {
			s, err := sched.New(api, sched.Config{Group: group})
			w.ok(err)
			for i := range jobs {
				w.ok(s.Add(sched.Job{
					Name: fmt.Sprintf("%s-%02d", group, i), Schedule: calendar.Must(calendar.Cron("30 2 * * *")),
					Handler: func(context.Context, sched.Tick) error { return nil },
				}))
			}
			ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
			w.ok(s.Run(ctx))
			cancel()
			if group != "billing" {
				continue
			}
			w.ok(s.Pause(w.Context(), "billing-00", ""))
			all, err := etcd.Get(w.Context(), root, clientv3.WithPrefix())
			w.ok(err)
			for _, kv := range all.Kvs {
				if strings.Contains(string(kv.Key), "/now/paused/") {
					_, err := etcd.Put(w.Context(), string(kv.Key), `{"v":99}`) // of a newer version
					w.ok(err)
				}
			}
		}
		w.shows("schedules", "billing-01", "billing-11", "mails-00", `<span class="tag bad">unreadable</span> sched: list the jobs of group`)
		w.shows("", "? jobs overdue", "Not all of this can be read: sched: list the jobs of group &#34;billing&#34;")
		all, err := etcd.Get(w.Context(), root, clientv3.WithPrefix())
		w.ok(err)
		for _, kv := range all.Kvs { // by which no group is known any more, but that of mails
			if strings.Contains(string(kv.Key), "/spec/") && strings.Contains(string(kv.Value), `"billing"`) {
				_, err := etcd.Put(w.Context(), string(kv.Key), `{"v":99}`)
				w.ok(err)
			}
		}
		time.Sleep(time.Minute)
		w.shows("schedules", "mails-00", `<span class="tag bad">unreadable</span> sched: list the groups`)
		w.shows("", "? jobs overdue", "Not all of this can be read: sched: list the groups")
	})
}

// Numbers of the overview are shown as partial if not all is read.
func TestOverviewIsPartial(t *testing.T) {
	virtually(t, webui.Config{}, func(w *world) {
		worker, host := w.client("worker-3")
		etcd, root := host.Etcd(w.T), worker.Prefix()
		fill := func(n int, ops func(i int) []clientv3.Op) {
			for from := 0; from < n; from += 50 {
				var some []clientv3.Op
				for i := from; i < min(from+50, n); i++ {
					some = append(some, ops(i)...)
				}
				_, err := etcd.Txn(w.Context()).Then(some...).Commit()
				w.ok(err)
			}
		}
		w.ok(testwork.Of(worker).TryRun(w.Context(), "done", func(context.Context, *work.Work) error { return nil }))
		done, err := etcd.Get(w.Context(), root+"work/done")
		w.ok(err)
		job, err := testwork.Of(worker).TryBegin(w.Context(), "orphan")
		w.ok(err)
		_, err = etcd.Delete(w.Context(), root+"own/orphan")
		w.ok(err)
		<-job.Done()
		w.shows("", "<b>1</b> work orphaned or dead", "<b>0</b> callers in line")
		fill(5100, func(i int) []clientv3.Op {
			return []clientv3.Op{clientv3.OpPut(fmt.Sprintf("%swork/done/%04d", root, i), string(done.Kvs[0].Value))}
		})
		fill(1001, func(i int) []clientv3.Op {
			key := fmt.Sprintf("k%04d", i)
			return []clientv3.Op{
				clientv3.OpPut(root+"own/"+key, `{"v":1,"owner":"x"}`),
				clientv3.OpPut(root+"wait/"+keyspace.Digest(key)+"/1", `{"v":1,"owner":"y"}`),
			}
		})
		for i := range 200 {
			q, err := queue.New(worker, queue.Config{Name: fmt.Sprintf("q%03d", i)})
			w.ok(err)
			_, err = q.Enqueue(w.Context(), queue.NewItem(nil))
			w.ok(err)
			w.ok(q.Close(w.Context()))
		}
		time.Sleep(time.Minute)
		w.get("") // the claims are watched from now on
		time.Sleep(time.Minute)
		w.shows("", "<b>0&#43;</b> work orphaned or dead", "<b>1\u202f000&#43;</b> callers in line", "<b>0&#43;</b> dead letters")
	})
}
