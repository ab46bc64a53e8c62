package console

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	typeJSON = "application/json"
	typeForm = "application/x-www-form-urlencoded"
)

// onlyJSON refuses bodies that are not JSON. A body may come without a type, and with that
// of a form if it is an object: `curl -d` sends this type when it is given no other.
func onlyJSON(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
			next(w, r)
			return
		}
		sent := r.Header.Get("Content-Type")
		kind, _, err := mime.ParseMediaType(sent)
		switch {
		case sent == "":
		case err == nil && (kind == typeJSON || strings.HasSuffix(kind, "+json")):
		case err == nil && kind == typeForm && beginsObject(r):
		default:
			if over := tooLarge(r); over != nil {
				writeTooLarge(w, r, over)
				return
			}
			writeAPIStatus(w, http.StatusUnsupportedMediaType, status.Newf(codes.InvalidArgument,
				"the body has the type %.80q, and the API reads JSON: send a JSON object with the header Content-Type: %s", sent, typeJSON))
			return
		}
		r.Header.Set("Content-Type", typeJSON) // nothing behind this parses a form
		next(w, r)
	}
}

// beginsObject reports whether the body of a request is empty or begins as a JSON object.
// It reads no further than that.
func beginsObject(r *http.Request) bool {
	b, ok := r.Body.(*body)
	if !ok {
		return false
	}
	const spaces = 1024 // a body that begins with more of them is not for people
	buffered := bufio.NewReaderSize(b.ReadCloser, spaces)
	b.ReadCloser = readCloser{buffered, b.ReadCloser}
	for n := 1; n <= spaces; n++ {
		start, err := buffered.Peek(n)
		if err != nil {
			return errors.Is(err, io.EOF) // nothing but spaces
		}
		switch start[n-1] {
		case ' ', '\t', '\r', '\n':
		default:
			return start[n-1] == '{'
		}
	}
	return false
}

// readCloser reads through a buffer and closes the body below it.
type readCloser struct {
	io.Reader
	io.Closer
}
