package middleware

import "net/http"

// serve calls a handler with r, a copy of the request outer with another context
// or body. net/http removes the temporary files of a parsed form when the request
// ends, but only those of its own request. So serve removes the files of the
// copy.
func serve(next http.Handler, w http.ResponseWriter, r, outer *http.Request) {
	defer removeFiles(r, outer)
	next.ServeHTTP(w, r)
}

// removeFiles removes the temporary files of the form of a copied request, unless
// it shares the form with the original request.
func removeFiles(r, outer *http.Request) {
	if r.MultipartForm != nil && r.MultipartForm != outer.MultipartForm {
		_ = r.MultipartForm.RemoveAll() // as net/http does
	}
}
