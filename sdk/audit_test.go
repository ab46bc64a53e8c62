package sdk_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// auditPages is a server that returns one page of the audit log.
type auditPages struct {
	apiv1.UnimplementedClusterServer
	apiv1.UnimplementedAuditServer
	asked *apiv1.ListAuditEventsRequest
	page  *apiv1.ListAuditEventsResponse
}

func (*auditPages) GetVersion(context.Context, *apiv1.GetVersionRequest) (*apiv1.Version, error) {
	return &apiv1.Version{}, nil
}

func (a *auditPages) ListAuditEvents(_ context.Context, r *apiv1.ListAuditEventsRequest) (*apiv1.ListAuditEventsResponse, error) {
	a.asked = r
	return a.page, nil
}

// TestAuditEventsAfter reads pages with the oldest events first. A server with an older version, which
// ignores the order, makes it fail: its first page would be taken to be the oldest.
func TestAuditEventsAfter(t *testing.T) {
	server := &auditPages{}
	g, lis := grpc.NewServer(), memconn.Listen(1<<16)
	defer g.Stop()
	apiv1.RegisterClusterServer(g, server)
	apiv1.RegisterAuditServer(g, server)
	go g.Serve(lis) //nolint:errcheck // ends with Stop
	client, err := sdk.Dial(t.Context(), "http://127.0.0.1:1", sdk.Options{
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	events := func(sequences ...uint64) (all []*apiv1.AuditEvent) {
		for _, n := range sequences {
			all = append(all, &apiv1.AuditEvent{Partition: "main", Sequence: n})
		}
		return append(all, &apiv1.AuditEvent{Partition: "main.1", Sequence: 1})
	}
	for _, tt := range []struct {
		page *apiv1.ListAuditEventsResponse
		ok   bool
	}{
		{&apiv1.ListAuditEventsResponse{Events: events(3, 4, 7), NextPageToken: "next", More: true, Gaps: []*apiv1.AuditGap{{Partition: "main", First: 5, Last: 6}}}, true},
		{&apiv1.ListAuditEventsResponse{NextPageToken: "next"}, true},
		{&apiv1.ListAuditEventsResponse{Events: events(7, 4, 3), NextPageToken: "next"}, false},
		{&apiv1.ListAuditEventsResponse{Events: events(3, 3), NextPageToken: "next"}, false},
		{&apiv1.ListAuditEventsResponse{Events: events(3)}, false},
		{&apiv1.ListAuditEventsResponse{}, false},
	} {
		server.page = tt.page
		page, err := client.AuditEventsAfter(t.Context(), sdk.AuditQuery{App: "shop"}, "last", 9)
		if q := server.asked; !q.OldestFirst || q.PageToken != "last" || q.PageSize != 9 || q.App != "shop" {
			t.Errorf("the request is %v", q)
		}
		switch {
		case !tt.ok && !errors.Is(err, sdk.ErrPrecondition):
			t.Errorf("%v: %v", tt.page, err)
		case tt.ok && (err != nil || page.After != "next" || page.More != tt.page.More || len(page.Events) != len(tt.page.Events) || len(page.Gaps) != len(tt.page.Gaps)):
			t.Errorf("%v: %v, %v", tt.page, page, err)
		}
	}
}
