// Package middleware adds claims and fences to what a service already has: HTTP
// handlers, HTTP clients, and functions.
//
//	mux.Handle("POST /orders/{id}", middleware.Exclusive(claims, middleware.PathKey("orders/{id}"), middleware.Config{})(handler))
//	client := &http.Client{Transport: &middleware.Transport{}}
//	mux.Handle("PUT /stock/{id}", middleware.Gate(gate, middleware.PathKey("stock/{id}"), middleware.Config{})(handler))
//
// [Exclusive] runs one request per order id at a time, across all processes.
// [Transport] adds the fence of the handler's claim to the requests that the handler
// makes. [Gate] refuses requests of former owners on the receiving side.
//
// [Once] answers a repeated request, which has the same Idempotency-Key, with the
// response to the first one. [Func] does for functions what Exclusive does for handlers.
// [Singleton] keeps one leader running.
//
// # What is not guaranteed
//
// If a process is suspended past the deadline of its claim, its handler may
// overlap with another one. No lock can prevent that. The handler's context ends, the
// client gets an error or a broken connection, and fenced writes are refused. Effects
// without a fence are not undone. Call fencing.Check with the
// handler's context immediately before each effect, and fence the effect.
//
// [Gate] is only an early reject: a request that it has admitted can still reach the data
// after a newer one. [Once] carries out a repeated request again in two cases: the process
// died between its effect and the transaction that stores the response, or the request
// failed with a response that is not stored: 500 or above, 408, 425, 429, or another 4xx with Retry-After.
// Deaths and panics count as attempts, of which there are at most
// work.Config.MaxAttempts. With work.AtMostOnce a request is not carried out
// again after the process died during an attempt. After a panic it still is.
//
// # Failing closed
//
// If anything goes wrong before the wrapped handler or function is called, it is
// not called. That includes an unknown outcome of the acquisition, which is answered with 503:
// no claim remains. Only a request whose handler was called gets 504. If it panics or calls
// runtime.Goexit, the claim is released, and the panic or Goexit continues. If the claim
// was lost, a Problem response (RFC 9457) replaces the handler's response. A response that
// was already begun is cut off, so that it does not look complete.
//
// # Without etcd
//
// The package does not import etcd. It takes claims as the interfaces [Claims]
// and [Works], which *etcdclaims.Client and *work.Runner implement. With a client of
// etcdclaims.NewPassthrough, wrappers that claim return their argument unchanged, at no cost:
// nothing is exclusive, and no fence is sent. [Gate] would refuse every request of such a program, since
// none has a fence: leave its handler unwrapped. With a nil client the wrappers refuse every call: its error was ignored.
//
// # Concurrency
//
// Everything that the package returns is safe for concurrent use, except the
// response writers. These are as safe as the ones that they wrap.
package middleware
