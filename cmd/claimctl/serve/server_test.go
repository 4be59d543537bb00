package serve

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/etcdclaims/claims/etcdclaims"
	"github.com/etcdclaims/claims/middleware"
)

// withoutEtcd returns a server on a client that excludes nobody.
func withoutEtcd(t *testing.T, cfg Config) *Server {
	t.Helper()
	claims, err := etcdclaims.NewPassthrough(etcdclaims.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Claims = claims
	return New(cfg)
}

// send sends a request, which may be changed before.
func send(s *Server, method, path, body string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body))
	if change != nil {
		change(r)
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, r)
	return rec
}

// is reports whether the answer is a problem of the kind.
func is(t *testing.T, rec *httptest.ResponseRecorder, want kind) {
	t.Helper()
	var p middleware.Problem
	err := json.Unmarshal(rec.Body.Bytes(), &p)
	if err != nil || rec.Code != want.status || p.Type != want.typ() || p.Detail == "" ||
		rec.Header().Get("Content-Type") != "application/problem+json" ||
		(rec.Header().Get("Retry-After") != "") != (want.retry > 0) {
		t.Errorf("status %d, %s, want %s", rec.Code, rec.Body, want.code)
	}
}

// Neither a page in a browser nor a name that was made to lead here reaches the server, nor anybody without the token.
func TestPermitted(t *testing.T) {
	s := withoutEtcd(t, Config{Token: "secret"})
	authorized := func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") }
	for _, host := range []string{"localhost", "localhost:8379", "127.0.0.1:8379", "127.0.0.9", "[::1]:8379", "[::1]"} {
		rec := send(s, "GET", "/v1/openapi.json", "", func(r *http.Request) { authorized(r); r.Host = host })
		if rec.Code != http.StatusOK || rec.Header().Get("Content-Type") != "application/json" {
			t.Errorf("host %q: %d %s", host, rec.Code, rec.Body)
		}
	}
	for name, tt := range map[string]struct {
		change func(*http.Request)
		want   kind
	}{
		"no token":      {func(r *http.Request) { r.Header.Del("Authorization") }, unauthorized},
		"another token": {func(r *http.Request) { r.Header.Set("Authorization", "Bearer secre") }, unauthorized},
		"basic":         {func(r *http.Request) { r.SetBasicAuth("secret", "secret") }, unauthorized},
		"rebound name":  {func(r *http.Request) { r.Host = "evil.example:8379" }, forbidden},
		"other address": {func(r *http.Request) { r.Host = "10.0.0.1:8379" }, forbidden},
		"no host":       {func(r *http.Request) { r.Host = "" }, forbidden},
		"origin":        {func(r *http.Request) { r.Header.Set("Origin", "http://localhost:8379") }, forbidden},
		"fetch":         {func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") }, forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			for _, path := range []string{"/v1/openapi.json", "/healthz", "/nothing"} {
				is(t, send(s, "GET", path, "", func(r *http.Request) { authorized(r); tt.change(r) }), tt.want)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	s := withoutEtcd(t, Config{MaxHeld: 3, MaxWaiting: 1})
	for _, tt := range []struct {
		method, path, body string
		want               kind
	}{
		{"GET", "/v1/claims", "", notFound},
		{"GET", "/v1/claims/a", "", notFound},
		{"POST", "/v1/claims/a/txn", "{}", notFound},
		{"POST", "/v1/claims", "", badRequest},
		{"POST", "/v1/claims", `{"key":"k"`, badRequest},
		{"POST", "/v1/claims", `{"key":"k"}{}`, badRequest},
		{"POST", "/v1/claims", `{"key":"k","lifetime":1}`, badRequest},
		{"POST", "/v1/claims", `{"key":"k","ttl_ms":999}`, badRequest},
		{"POST", "/v1/claims", `{"key":"k","ttl_ms":60001}`, badRequest},
		{"POST", "/v1/claims", `{"key":"k","ttl_ms":1500.5}`, badRequest},
		{"POST", "/v1/claims", `{"key":"k","wait_ms":-1}`, badRequest},
		{"POST", "/v1/claims", `{"key":"k","wait_ms":3600001}`, badRequest},
		{"POST", "/v1/claims", `{"key":"k","slots":-1}`, badRequest},
		{"POST", "/v1/claims", `{"key":"k","slots":2,"shared":true}`, badRequest},
		{"POST", "/v1/claims", `{"key":"k","id":"k"}`, badRequest},
		{"POST", "/v1/claims", `{"key":"` + strings.Repeat("k", smallBody) + `"}`, tooLarge},
		{"POST", "/v1/queues/q/items", `{}`, badRequest},
		{"POST", "/v1/queues/q/items", `{"payload":1,"payload_base64":"AA=="}`, badRequest},
		{"POST", "/v1/queues/q/items", `{"payload_base64":"%"}`, badRequest},
		{"POST", "/v1/queues/q/items", `{"payload":1,"delay_ms":-1}`, badRequest},
		{"POST", "/v1/queues/q/claim", `{"max":65}`, badRequest},
		{"POST", "/v1/queues/q/claim", `{"max":4}`, limit},
		{"POST", "/v1/queues/q/deliveries/d/complete", `{}`, notFound},
		{"POST", "/v1/queues/q/deliveries/d/complete", `{"put":[{"key":"","value":""}]}`, badRequest},
	} {
		is(t, send(s, tt.method, tt.path, tt.body, nil), tt.want)
	}
	if n := s.leases.held; n != 0 {
		t.Errorf("%d places are left taken", n)
	}
	s.waiting <- struct{}{}
	is(t, send(s, "POST", "/v1/claims", `{"key":"k"}`, nil), limit)
}

func TestWrites(t *testing.T) {
	claims := withoutEtcd(t, Config{}).cfg.Claims
	for body, want := range map[string]bool{
		`{}`: true,
		`{"put":[{"key":"/a","value":""},{"key":"/b","value_base64":"/w=="}],"delete":["/c"]}`: true,
		`{"put":[{"key":"/a"}]}`:                                    false,
		`{"put":[{"key":"/a","value":"","value_base64":""}]}`:       false,
		`{"put":[{"key":"/a","value":""}],"delete":["/a"]}`:         false,
		`{"delete":[""]}`:                                           false,
		`{"delete":["/etcdclaims/own/k"]}`:                          false,
		`{"delete":["` + strings.Repeat(`x","`, maxWrites) + `y"]}`: false,
	} {
		var ws writes
		if err := json.Unmarshal([]byte(body), &ws); err != nil {
			t.Fatal(err)
		}
		ops, err := ws.ops(claims)
		if (err == nil) != want || want && len(ops) != len(ws.Put)+len(ws.Delete) {
			t.Errorf("%.80s: %d operations, %v", body, len(ops), err)
		}
	}
}

func TestAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:0": true, "[::1]:80": true, "127.1.2.3:1": true,
		"0.0.0.0:80": false, "[::]:80": false, ":80": false, "10.0.0.1:80": false,
		"localhost:80": false, "127.0.0.1": false, "example.org:80": false,
	} {
		if err := checkLoopback(address); (err == nil) != want {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// A socket is its user's alone, replaces that of a dead server only, and is removed at the end.
func TestSocket(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("sockets have no modes there")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "s.sock")
	first, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if first.Addr().String() != path {
		t.Errorf("the address is %v", first.Addr())
	}
	if _, err := listenUnix(path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second server: %v", err)
	}
	dead := first.(*socket)
	if err := errors.Join(dead.Listener.Close(), dead.lock.Close()); err != nil { // as the system does after a kill
		t.Fatal(err)
	}
	second, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if err := second.Close(); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) != 1 || left[0] != path+".lock" {
		t.Errorf("left: %v, %v", left, err)
	}
	other, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := listenUnix(path); err == nil {
		t.Error("a socket was replaced whose process may live")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(path); err == nil {
		t.Error("a file was replaced")
	}
}

// A refusal removes no file beside what is there, and makes none.
func TestSocketRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "flake")
	lock := path + ".lock"
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, there := range []bool{false, true} {
		if there {
			if err := os.WriteFile(lock, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := listenUnix(path); err == nil || !strings.Contains(err.Error(), "not a socket") {
			t.Error(err)
		}
		if _, err := os.Stat(lock); (err == nil) != there {
			t.Errorf("the lock file was there: %v; now: %v", there, err)
		}
	}
}

// Of servers that start at one instant one listens, and the others are refused, whatever was there before.
func TestSocketAtOnce(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no locks there that end with a process")
	}
	path := filepath.Join(t.TempDir(), "s.sock")
	for round := range 100 {
		var wg sync.WaitGroup
		var listening [8]net.Listener
		var refused [8]error
		for i := range listening {
			wg.Go(func() { listening[i], refused[i] = listenUnix(path) })
		}
		wg.Wait()
		var is net.Listener
		for i, l := range listening {
			switch {
			case l != nil && is != nil:
				t.Fatalf("round %d: two servers listen", round)
			case l != nil:
				is = l
			case !strings.Contains(refused[i].Error(), "another process listens there"):
				t.Fatal(refused[i])
			}
		}
		if is == nil {
			t.Fatalf("round %d: no server listens: %v", round, refused)
		}
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if round%2 == 0 { // ends, and leaves no socket
			_ = is.Close()
			continue
		}
		dead := is.(*socket) // is killed, and leaves its files
		_, _ = dead.Listener.Close(), dead.lock.Close()
	}
}

// Flags that are wrong are refused before anything is sent.
func TestFlags(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	t.Setenv(tokenVariable, "")
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                                   "use --socket or --tcp",
		"--socket s --tcp 127.0.0.1:0":       "exclude each other",
		"--tcp 127.0.0.1:0":                  "needs a token",
		"--tcp 0.0.0.0:80 --token-file T":    "other hosts",
		"--tcp 127.0.0.1:0 --token-file T/x": "--token-file",
		"--socket s --max-ttl 500ms":         "--max-ttl",
		"--socket s --max-held 0":            "--max-held",
		"--socket s more":                    "got the argument",
		"--tcp 127.0.0.1:0 --token-file T":   "",
	} {
		cmd := Command("", nil, nil)
		words := strings.Fields(strings.ReplaceAll(args, "T", token))
		if err := cmd.ParseFlags(words); err != nil {
			t.Fatal(err)
		}
		err := cmd.ValidateArgs(cmd.Flags().Args())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}
