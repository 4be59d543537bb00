package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/etcdclaims/webui"
	"github.com/etcdclaims/claims/sched/ical"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// page is the live page of the etcd.
type page struct {
	listener net.Listener // nil if there is none
	claims   *etcdclaims.Client
	handler  *webui.Handler
	server   *http.Server
	done     chan struct{} // closed when the server has ended
}

// servePage serves the page at an address, and nothing if it is empty. Whoever can
// reach it may do everything: it is for one's own machine.
func servePage(etcd *clientv3.Client, listen string) (*page, error) {
	if listen == "" {
		return &page{}, nil
	}
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("serve the page: %w", err)
	}
	p := &page{listener: l, done: make(chan struct{})}
	p.claims, err = etcdclaims.New(etcd, etcdclaims.Config{Owner: "page"})
	if err == nil {
		p.handler, err = webui.New(p.claims, webui.Config{
			Title:  "development",
			Access: func(*http.Request, webui.Operation) error { return nil },
			Redact: func(_ webui.Field, value string) string { return value },
			ICal:   ical.ParseText,
		})
	}
	if err != nil {
		_ = l.Close() // the error is what matters
		return nil, fmt.Errorf("serve the page: %w", err)
	}
	p.server = &http.Server{Handler: p.handler, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(l) // until it is closed
	}()
	return p, nil
}

func (p *page) url() string {
	if p.listener == nil {
		return ""
	}
	return "http://" + p.listener.Addr().String() + "/"
}

func (p *page) close() {
	if p.listener == nil {
		return
	}
	p.handler.Close()
	_ = p.server.Close()
	<-p.done
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = p.claims.Close(ctx) // it holds nothing
}
