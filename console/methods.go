package console

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// verbs are the HTTP methods of the API.
var verbs = []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete}

// beside are the routes of the console below /api/ that are none of the gateway.
var beside = [][2]string{
	{http.MethodGet, "/api/v1/openapi.json"},
	{http.MethodPut, "/api/v1/apps/{app}/modules/{name}/versions/{version}"},
	{http.MethodPost, "/api/v1/apps/{app}/events"},
}

// methods knows which HTTP methods each path of the API has. The gateway does not tell: it
// is a second mux with the same patterns, and its handlers only report that they match.
type methods struct{ mux *runtime.ServeMux }

func newMethods() (*methods, error) {
	m := &methods{runtime.NewServeMux(
		runtime.WithDisablePathLengthFallback(),
		runtime.WithRoutingErrorHandler(func(context.Context, *runtime.ServeMux, runtime.Marshaler, http.ResponseWriter, *http.Request, int) {}),
	)}
	matches := func(w http.ResponseWriter, _ *http.Request, _ map[string]string) { w.WriteHeader(http.StatusOK) }
	for _, r := range append(served(), beside...) {
		if err := m.mux.HandlePath(r[0], r[1], matches); err != nil {
			return nil, fmt.Errorf("%s %s: %w", r[0], r[1], err)
		}
	}
	return m, nil
}

// served returns the HTTP methods and the patterns of the API's definition.
func served() (routes [][2]string) {
	protoregistry.GlobalFiles.RangeFilesByPackage("wheelwork.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			for k := range f.Services().Get(i).Methods().Len() {
				m := f.Services().Get(i).Methods().Get(k)
				rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
				for i, pattern := range []string{rule.GetGet(), rule.GetPut(), rule.GetPost(), rule.GetDelete()} {
					if pattern != "" {
						routes = append(routes, [2]string{verbs[i], pattern})
					}
				}
			}
		}
		return true
	})
	return routes
}

// of returns the methods that the path of a request has.
func (m *methods) of(r *http.Request) (found []string) {
	for _, verb := range verbs {
		w := &matched{}
		m.mux.ServeHTTP(w, &http.Request{Method: verb, URL: r.URL, Header: http.Header{}})
		if w.yes {
			found = append(found, verb)
		}
	}
	return found
}

// matched records that a handler was found.
type matched struct{ yes bool }

func (*matched) Header() http.Header         { return http.Header{} }
func (*matched) Write(b []byte) (int, error) { return len(b), nil }
func (w *matched) WriteHeader(int)           { w.yes = true }

// refuse answers a request that the gateway has no route for: 405 with the methods of the
// path, or 404.
func (m *methods) refuse(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, code int) {
	found := m.of(r)
	switch {
	case code == http.StatusBadRequest:
		writeAPIError(w, status.Errorf(codes.InvalidArgument, "the path %.200q is wrong: it must begin with /", r.URL.Path))
	case len(found) == 0 || slices.Contains(found, r.Method):
		writeAPIError(w, status.Errorf(codes.NotFound, "the API has no path %.200q: /api/v1/openapi.json describes those that it has", r.URL.Path))
	default:
		w.Header().Set("Allow", strings.Join(found, ", "))
		writeAPIStatus(w, http.StatusMethodNotAllowed, status.Newf(codes.Unimplemented, "this path has no %.20s: use %s", r.Method, strings.Join(found, " or ")))
	}
}
