package transport

import (
	"net/http"
	"strings"
)

// pathsOnly refuses requests whose target is not an absolute path (origin-form, RFC 9112, section 3.2.1): no scheme, no
// authority, no "*". net/http parses "x:https://a/v1/about" into a URL whose Opaque part it would write out again as the
// target of a forwarded request.
func pathsOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isPath(r) {
			w.Header().Set("Connection", "close")
			refuse(w, http.StatusBadRequest, kindMalformed, "the target of a request must be a path that begins with /")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isPath(r *http.Request) bool {
	u := r.URL
	return strings.HasPrefix(r.RequestURI, "/") && strings.HasPrefix(u.Path, "/") && u.Opaque == "" && u.Scheme == "" && u.Host == "" && u.User == nil
}
