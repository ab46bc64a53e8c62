package console

import (
	"context"
	"net/http/httptest"
	"testing"
)

// TestHostNamesAfterAnAbort: a request that the browser aborts does not leave the session without
// names.
func TestHostNamesAfterAnAbort(t *testing.T) {
	s := newSite(t, newFake().populate())
	r := httptest.NewRequest("GET", "/palette", nil)
	v := &visit{r: r, session: &session{token: goodToken}, app: "default"}
	aborted, abort := context.WithCancel(s.c.withToken(r, goodToken))
	abort()
	v.ctx = aborted
	if names := s.c.hostNames(v); len(names) != 0 {
		t.Fatalf("an aborted call has the names %v", names)
	}
	v.ctx = s.c.withToken(r, goodToken)
	if names := s.c.hostNames(v); names["host-b"] != "node-2" {
		t.Errorf("the next call has the names %v", names)
	}
}
