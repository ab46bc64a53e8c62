package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// senderStub implements the API of events and notes its requests.
type senderStub struct {
	apiv1.EventsClient
	got *apiv1.PublishEventRequest
}

func (s *senderStub) PublishEvent(_ context.Context, req *apiv1.PublishEventRequest, _ ...grpc.CallOption) (*apiv1.PublishEventResponse, error) {
	s.got = req
	return &apiv1.PublishEventResponse{Runs: []string{"r1"}}, nil
}

// TestEventsArePassedOn checks that the API gets the body as it was sent, with the headers of events and
// no others.
func TestEventsArePassedOn(t *testing.T) {
	stub := &senderStub{}
	c := &console{senders: stub, address: func(*http.Request) netip.Addr { return netip.Addr{} }}
	serve := func(body string, header http.Header) *httptest.ResponseRecorder {
		mux := http.NewServeMux()
		mux.HandleFunc(eventsPattern, limited(bound(nil, maxEvents), c.eventsAPI))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/apps/shop/events?source=orders", strings.NewReader(body))
		r.Header = header
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	header := http.Header{"Content-Type": {"text/plain"}, "Ce-Id": {"1"}, "Webhook-Signature": {"v1,x"}, "Authorization": {"Bearer x"}, "Cookie": {"a=b"}}
	w := serve(" {\n} ", header)
	if w.Code != http.StatusAccepted || strings.ReplaceAll(w.Body.String(), " ", "") != `{"runs":["r1"]}` {
		t.Errorf("answer %d %s", w.Code, w.Body)
	}
	if got := stub.got; got.App != "shop" || got.Source != "orders" || string(got.Body) != " {\n} " ||
		len(got.Headers) != 3 || got.Headers["content-type"] != "text/plain" || got.Headers["ce-id"] != "1" || got.Headers["webhook-signature"] != "v1,x" {
		t.Errorf("the API got %v", got)
	}
	if w := serve("", http.Header{"Ce-Id": {"1", "2"}}); w.Code != http.StatusBadRequest {
		t.Errorf("a header that is there twice: %d", w.Code)
	}
	if w := serve(strings.Repeat("x", maxEvents+1), http.Header{}); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %d", w.Code)
	}
}
