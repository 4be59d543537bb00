// Httpgate is a shop in two processes, and a stock that both take from, over HTTP.
// One of the shops is frozen right before it writes, and wakes when the other has
// had its turn: the stock refuses the late write. A client that repeats its order
// gets the same answer, and one item.
//
//	go run ./examples/httpgate                        # an etcd of its own
//	go run ./examples/httpgate -endpoints http://localhost:2379
//
// What services need is in service.go; this file freezes and asks.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/admin"
	"github.com/etcdclaims/claims/etcdclaims/work"
	"github.com/etcdclaims/claims/examples/demoetcd"
	"github.com/etcdclaims/claims/middleware"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	endpoints := flag.String("endpoints", "", "etcd to use, as URLs separated by commas (default one in this process)")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, *endpoints, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "httpgate: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, endpoints string, out io.Writer) (err error) {
	at, stop, err := demoetcd.Open(endpoints)
	if err != nil {
		return err
	}
	defer stop()
	etcd, err := demoetcd.Dial(at)
	if err != nil {
		return err
	}
	defer etcd.Close()
	root := "/httpgate/" + rand.Text() + "/"
	defer etcd.Delete(context.WithoutCancel(ctx), root, clientv3.WithPrefix())

	stock, closeStock, err := serve((&Stock{left: map[string]int{"tea": 10}}).Handler())
	if err != nil {
		return err
	}
	defer closeStock()
	wire := &frozen{base: http.DefaultTransport.(*http.Transport).Clone(), at: make(chan struct{}), thaw: make(chan struct{})}
	defer wire.base.CloseIdleConnections()
	var shops []string
	var claims []*etcdclaims.Client
	for i, w := range []http.RoundTripper{wire, wire.base} {
		c, err := etcdclaims.New(etcd, etcdclaims.Config{Prefix: root, Owner: fmt.Sprint("shop ", i+1), Logger: demoetcd.Logger()})
		if err != nil {
			return err
		}
		defer c.Close(context.WithoutCancel(ctx))
		works, err := work.New(c, work.Config{Retention: time.Minute})
		if err != nil {
			return err
		}
		shop, closeShop, err := serve(Shop(c, works, stock, w))
		if err != nil {
			return err
		}
		defer closeShop()
		shops, claims = append(shops, shop), append(claims, c)
	}
	order := func(shop, key string) string { return order(ctx, &http.Client{Transport: wire.base}, shop, key) }
	late := make(chan string)
	go func() { late <- order(shops[0], "first") }()
	select {
	case <-wire.at:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, _ = fmt.Fprintln(out, "shop 1 is frozen, about to write")
	// As its lease would lapse if it were a process that is stopped.
	if err := admin.ForceRelease(ctx, claims[1], "stock/tea", "frozen"); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "shop 2:", order(shops[1], "second"))
	close(wire.thaw)
	_, _ = fmt.Fprintln(out, "shop 1, awake:", <-late)
	_, _ = fmt.Fprintln(out, "the stock answered its late write with status", wire.said)
	_, _ = fmt.Fprintln(out, "ann orders again, at shop 1:", order(shops[0], "first"))
	_, _ = fmt.Fprintln(out, "and once more, at shop 2:", order(shops[1], "first"))
	if wire.said != http.StatusPreconditionFailed {
		return errors.New("the late write was not refused")
	}
	return nil
}

// order orders tea for Ann and returns the shop's answer.
func order(ctx context.Context, via *http.Client, shop, key string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, shop+"/orders/tea", nil)
	if err != nil {
		return err.Error()
	}
	r.Header.Set("X-Customer", "ann")
	r.Header.Set("Idempotency-Key", `"`+key+`"`)
	resp, err := via.Do(r)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var refused *middleware.Problem
	if errors.As(middleware.CheckResponse(resp), &refused) {
		_, reason, _ := strings.Cut(refused.Type, "#")
		return fmt.Sprintf("%d %s: %s", refused.Status, reason, refused.Title)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

// frozen is the network of a process that is stopped after its last look at the
// clock: its first write is sent when it is thawed, whatever has become of it.
type frozen struct {
	base     *http.Transport
	at, thaw chan struct{}
	said     int
}

func (f *frozen) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut || f.said != 0 {
		return f.base.RoundTrip(r)
	}
	close(f.at)
	<-f.thaw
	resp, err := f.base.RoundTrip(r.Clone(context.WithoutCancel(r.Context())))
	if err == nil {
		f.said = resp.StatusCode
	}
	// The shop hears of its loss from etcd and from the stock, in either order. Here
	// etcd comes first, so that each run prints the same.
	<-r.Context().Done()
	return resp, err
}

func serve(h http.Handler) (url string, stop func() error, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), server.Close, nil
}
