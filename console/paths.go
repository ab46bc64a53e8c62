package console

import (
	"net/http"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// plainPaths refuses API paths with an empty segment or a segment "." or "..". The mux
// would redirect to another path, which clients follow. So a change of the job ".." would
// become a change of something else.
func plainPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, isAPI := strings.CutPrefix(r.URL.EscapedPath(), "/api/"); isAPI {
			segments := strings.Split(rest, "/")
			empty := slices.Index(segments, "")
			if empty >= 0 && empty < len(segments)-1 || slices.Contains(segments, ".") || slices.Contains(segments, "..") {
				writeAPIError(w, status.Error(codes.InvalidArgument, `the path has a segment that is empty, "." or "..": none of these is a name`))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
