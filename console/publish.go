package console

import (
	"io"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

const (
	// eventsPattern is the route of events to the API.
	eventsPattern = "POST /api/v1/apps/{app}/events"
	// maxEvents bounds the body of a request with events. The API has the same bound.
	maxEvents = 256 << 10
)

// eventsAPI passes events on to the API: the signed body, and the headers with its content type and
// signature. The signature is the authorization, so there is no token. The status is 202: runs were accepted,
// and have not ended.
func (c *console) eventsAPI(w http.ResponseWriter, r *http.Request) {
	if over := tooLarge(r); over != nil {
		writeTooLarge(w, r, over)
		return
	}
	body, err := io.ReadAll(r.Body)
	if over := tooLarge(r); over != nil {
		writeTooLarge(w, r, over)
		return
	}
	if err != nil {
		writeAPIError(w, status.Error(codes.InvalidArgument, "the body of the request ends too early"))
		return
	}
	headers, err := eventHeaders(r.Header)
	if err != nil {
		writeAPIError(w, err)
		return
	}
	ctx := metadata.AppendToOutgoingContext(r.Context(), clientHeader, c.address(r).String())
	for _, name := range []string{"traceparent", "tracestate"} {
		if v := r.Header.Get(name); v != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, name, v)
		}
	}
	answer, err := c.senders.PublishEvent(ctx, &apiv1.PublishEventRequest{App: r.PathValue("app"), Source: r.URL.Query().Get("source"), Body: body, Headers: headers})
	if err != nil {
		writeAPIError(w, err)
		return
	}
	text, err := jsonForm().Marshal(answer)
	if err != nil {
		writeAPIError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(text)
}

// eventHeaders returns the headers that belong to events, by names in lower case.
func eventHeaders(all http.Header) (map[string]string, error) {
	headers := map[string]string{}
	for name, values := range all {
		name = strings.ToLower(name)
		if name != "content-type" && !strings.HasPrefix(name, "ce-") && !strings.HasPrefix(name, "webhook-") {
			continue
		}
		if len(values) > 1 {
			return nil, status.Errorf(codes.InvalidArgument, "the header %.60s is there %d times: send it once", name, len(values))
		}
		headers[name] = strings.ToValidUTF8(values[0], "\uFFFD")
	}
	return headers, nil
}
