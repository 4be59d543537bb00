package serve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/fencing"
	"github.com/etcdclaims/claims/internal/clock"
	"go.uber.org/zap"
	"go.yaml.in/yaml/v3"
)

const (
	requestTime = 10 * time.Second // of requests to etcd, apart from waiting
	bodyTime    = 10 * time.Second // in which a body must have arrived
	smallBody   = 128 << 10
	largeBody   = 2 << 20
	maxRunning  = 256 // requests that call etcd and do not wait
)

// Config configures a Server.
type Config struct {
	// Claims holds what programs hold. It is required.
	Claims *etcdclaims.Client
	// Token must be sent by each request. Default: none is needed.
	Token string
	// MaxTTL is the longest ttl of a lease. Default: 1 min.
	MaxTTL time.Duration
	// MaxHeld is how many claims and items may be held. Default: 4,096.
	MaxHeld int
	// MaxWaiting is how many requests may wait in line, or watch. Default: 4,096.
	MaxWaiting int
	// Logger receives the ends of leases whose programs did not end them. Default: none.
	Logger *zap.Logger
}

// Server answers the requests of programs. It is an http.Handler. It is safe for concurrent use.
type Server struct {
	cfg              Config
	clock            clock.Clock
	mux              *http.ServeMux
	leases           *leases
	queues           queues
	running, waiting chan struct{}
}

// New returns a server. It does no I/O. Zero fields of cfg mean their defaults.
func New(cfg Config) *Server {
	cfg.MaxTTL = cmp.Or(cfg.MaxTTL, time.Minute)
	cfg.MaxHeld = cmp.Or(cfg.MaxHeld, 4096)
	cfg.MaxWaiting = cmp.Or(cfg.MaxWaiting, 4096)
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	s := &Server{
		cfg:     cfg,
		clock:   clock.For(cfg.Claims.Etcd()),
		mux:     http.NewServeMux(),
		running: make(chan struct{}, maxRunning),
		waiting: make(chan struct{}, cfg.MaxWaiting),
	}
	s.leases = newLeases(s.clock, cfg.MaxHeld, func(l *lease, why error) {
		cfg.Logger.Warn("lease ended", zap.String("id", l.id), zap.Stringer("token", l.is.Token()), zap.Error(why))
	})
	s.queues.open = map[string]*openQueue{}
	for _, rt := range routes {
		s.mux.HandleFunc(rt.method+" "+rt.path, s.handler(rt))
	}
	s.mux.HandleFunc("/", s.handler(route{serve: func(*Server, http.ResponseWriter, *http.Request) error {
		return refused{notFound, "There is no such method and path; GET /v1/openapi.json describes all."}
	}}))
	return s
}

// A load is what a request takes of the server.
type load int

const (
	quick load = iota // no more than its connection; so heartbeats are never refused
	calls             // etcd
	waits             // in line, or watches
)

// A route is a kind of request.
type route struct {
	method, path string
	load         load
	serve        func(*Server, http.ResponseWriter, *http.Request) error
}

var routes = []route{
	{"POST", "/v1/claims", waits, (*Server).postClaim},
	{"GET", "/v1/claims/{id}", quick, (*Server).getClaim},
	{"DELETE", "/v1/claims/{id}", calls, (*Server).deleteClaim},
	{"POST", "/v1/claims/{id}/heartbeat", quick, (*Server).heartbeatClaim},
	{"POST", "/v1/claims/{id}/owns", calls, (*Server).ownsClaim},
	{"POST", "/v1/claims/{id}/txn", calls, (*Server).txnClaim},
	{"GET", "/v1/claims/{id}/watch", waits, (*Server).watchClaim},
	{"POST", "/v1/admit", calls, (*Server).admit},
	{"POST", "/v1/queues/{queue}/items", calls, (*Server).postItem},
	{"POST", "/v1/queues/{queue}/claim", waits, (*Server).claimItems},
	{"POST", "/v1/queues/{queue}/deliveries/{id}/heartbeat", quick, (*Server).heartbeatItem},
	{"POST", "/v1/queues/{queue}/deliveries/{id}/complete", calls, (*Server).completeItem},
	{"POST", "/v1/queues/{queue}/deliveries/{id}/fail", calls, (*Server).failItem},
	{"POST", "/v1/queues/{queue}/deliveries/{id}/snooze", calls, (*Server).snoozeItem},
	{"POST", "/v1/queues/{queue}/deliveries/{id}/release", calls, (*Server).releaseItem},
	{"GET", "/v1/openapi.json", quick, (*Server).getDocument},
	{"GET", "/healthz", quick, (*Server).health},
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// Stop refuses requests that acquire anything, and prolongs no lease. It returns when all have
// ended, which takes Config.MaxTTL at most: nothing is taken from a program that was
// promised to have it. When ctx ends, all leases are ended and given up at once.
func (s *Server) Stop(ctx context.Context) { s.leases.stop(ctx) }

// handler returns the handler of a route, which answers with a problem after an error.
func (s *Server) handler(rt route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(time.Time{}) // of an earlier answer
		if r.Body != http.NoBody {
			_ = control.SetReadDeadline(time.Now().Add(bodyTime)) // of whoever reads it, net/http too
		}
		err := s.permit(r)
		if err == nil {
			err = s.admitted(rt, w, r)
		}
		if err != nil {
			problem(err).ServeHTTP(w, r)
		}
	}
}

// admitted serves a permitted request, unless too many of its load are under way.
func (s *Server) admitted(rt route, w http.ResponseWriter, r *http.Request) error {
	if rt.load == quick {
		return rt.serve(s, w, r)
	}
	busy := s.running
	if rt.load == waits {
		busy = s.waiting
	}
	select {
	case busy <- struct{}{}:
		defer func() { <-busy }()
		return rt.serve(s, w, r)
	default:
		return refused{limit, fmt.Sprintf("%d such requests are under way.", cap(busy))}
	}
}

// lease returns the lease of a name, unless the request has the fencing token of another one: an
// id alone does not prove that the program is the one that holds it.
func (s *Server) lease(r *http.Request, name string) (*lease, error) {
	l, err := s.leases.find(name)
	sent := strings.Join(r.Header.Values(fencing.Header), ", ")
	if err != nil || sent == "" {
		return l, err
	}
	token, err := fencing.Parse(sent)
	switch {
	case err != nil:
		return nil, err
	case token != l.is.Token():
		return nil, refused{stale, "The lease has another token."}
	}
	return l, nil
}

// permit refuses requests without the token, and those of pages in browsers: they name where
// they come from, or the host whose name an attacker resolved to this one.
func (s *Server) permit(r *http.Request) error {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = strings.Trim(r.Host, "[]")
	}
	addr, err := netip.ParseAddr(host)
	switch {
	case host != "localhost" && (err != nil || !addr.IsLoopback()):
		return refused{forbidden, fmt.Sprintf("Host must be localhost or a loopback address, not %.80q.", r.Host)}
	case r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "":
		return refused{forbidden, "A browser has sent the request."}
	case s.cfg.Token == "":
		return nil
	}
	sent, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	got, want := sha256.Sum256([]byte(sent)), sha256.Sum256([]byte(s.cfg.Token))
	if subtle.ConstantTimeCompare(got[:], want[:]) == 0 {
		return refused{unauthorized, "Send it as Authorization: Bearer TOKEN."}
	}
	return nil
}

// decode reads the body of a request. An empty one is {}.
func decode(w http.ResponseWriter, r *http.Request, most int64, into any) error {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil { // read on to the end, from where on the server notices that the program is gone
		if _, err = d.Token(); err == nil {
			return refused{badRequest, "The body has more than one JSON value."}
		}
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // a test's recorder has none
	var large *http.MaxBytesError
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case errors.As(err, &large):
		return fmt.Errorf("the body has more than %d bytes: %w", most, large)
	}
	return refused{badRequest, "The body is not the JSON of the request: " + err.Error()}
}

// answer sends a value as JSON.
func answer(w http.ResponseWriter, status int, v any) error {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(bodyTime)) // the program may be stopped
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the program is gone if this fails
	return nil
}

// calling returns a context for requests to etcd. They are finished even if the program is gone.
func calling(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), requestTime)
}

// milliseconds returns the duration of a field. Zero means or.
func milliseconds(name string, ms int64, or, least, most time.Duration) (time.Duration, error) {
	if ms == 0 {
		return or, nil
	}
	if ms < least.Milliseconds() || ms > most.Milliseconds() {
		detail := fmt.Sprintf("%s must be from %d to %d.", name, least.Milliseconds(), most.Milliseconds())
		return 0, refused{badRequest, detail}
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// ttl returns the ttl of a lease.
func (s *Server) ttl(ms int64) (time.Duration, error) {
	return milliseconds("ttl_ms", ms, min(etcdclaims.DefaultTTL, s.cfg.MaxTTL), time.Second, s.cfg.MaxTTL)
}

// healthView is the answer of /healthz.
type healthView struct {
	Leases   int   `json:"leases"`
	MarginMS int64 `json:"margin_ms"`
}

// health answers whether etcd can be reached.
func (s *Server) health(w http.ResponseWriter, r *http.Request) error {
	h, err := s.cfg.Claims.Health(r.Context())
	if err != nil {
		return err
	}
	s.leases.mu.Lock()
	held, stopped := s.leases.held, s.leases.stopped
	s.leases.mu.Unlock()
	if stopped {
		return refused{stopping, "Leases are not prolonged any more."}
	}
	return answer(w, http.StatusOK, healthView{held, h.Margin.Milliseconds()})
}

//go:embed openapi.yaml
var document []byte

// documentJSON returns the OpenAPI document.
var documentJSON = sync.OnceValues(func() ([]byte, error) {
	var v map[string]any
	if err := yaml.Unmarshal(document, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
})

func (s *Server) getDocument(w http.ResponseWriter, _ *http.Request) error {
	text, err := documentJSON()
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, json.RawMessage(text))
}
