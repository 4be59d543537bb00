// Package middleware puts claims and fences around what a service has already:
// HTTP handlers, HTTP clients, and functions.
//
//	mux.Handle("POST /orders/{id}", middleware.Exclusive(claims, middleware.PathKey("orders/{id}"), middleware.ExclusiveConfig{})(handler))
//	client := &http.Client{Transport: &middleware.Transport{}}
//	mux.Handle("PUT /stock/{id}", middleware.Gate(gate, middleware.PathKey("stock/{id}"), middleware.GateConfig{})(handler))
//
// The first runs one request per order at a time, in however many processes; the
// second sends the fence along with what such a request asks of others; the third
// refuses there what comes from an owner that is late. [Once] answers a repeated
// request with the response that the first one got, [Func] does for functions
// what Exclusive does for handlers, and [Singleton] keeps one leader running.
//
// # What is not guaranteed
//
// A handler that runs under a claim may overlap with another's for a moment if
// its process is stopped past the claim's deadline: no lock can do better. Its
// context ends, its response is not sent as a success, and what it wrote with its
// fence is refused, but what it did without a fence is done. Call fencing.Check
// with its context right before each effect, and fence the effect.
//
// A [Gate] apart from the write that it protects is an early reject, and no more.
// [Once] repeats a request whose process died between the effect and the record.
//
// # Failing closed
//
// Whatever goes wrong on the way, an unknown outcome included, the wrapped handler
// or function is not called. A panic, and Goexit, in it give the claim up and go
// on. A response of a handler whose claim was lost is replaced by a problem (RFC
// 9457), or cut off so that nobody takes it for whole.
//
// # Without etcd
//
// The package knows no etcd: it takes claims as the interfaces [Claims] and
// [Works], which *etcdclaims.Client implements, a nil one too. Where that is
// nil or a passthrough, or a gate is nil, a wrapper returns what it was given, at
// no cost; no fence is sent then.
//
// # Concurrency
//
// All that the package returns is safe for concurrent use, but for the response
// writers, which are as safe as those that they wrap.
package middleware
