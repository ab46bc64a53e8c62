package sdk_test

import (
	"context"
	"net"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/internal/memconn"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// pagedRuns is a server whose runs end between two pages of a list.
type pagedRuns struct {
	apiv1.UnimplementedClusterServer
	apiv1.UnimplementedRunsServer
	pages map[string]*apiv1.ListRunsResponse // by token
}

func (p *pagedRuns) GetVersion(context.Context, *apiv1.GetVersionRequest) (*apiv1.Version, error) {
	return &apiv1.Version{}, nil
}

func (p *pagedRuns) ListRuns(_ context.Context, r *apiv1.ListRunsRequest) (*apiv1.ListRunsResponse, error) {
	return p.pages[r.GetPageToken()], nil
}

// TestRunsAreListedOnce checks that a run which was live on one page and has ended on a
// later one is in the list once, in each reading of the list.
func TestRunsAreListedOnce(t *testing.T) {
	live := func(id string) *apiv1.Run { return &apiv1.Run{Id: id, State: "queued"} }
	ended := func(id string) *apiv1.Run {
		return &apiv1.Run{Id: id, State: "succeeded", FinishedAt: timestamppb.Now()}
	}
	server := &pagedRuns{pages: map[string]*apiv1.ListRunsResponse{
		"":  {Runs: []*apiv1.Run{live("d"), live("c")}, NextPageToken: "2"},
		"2": {Runs: []*apiv1.Run{live("b"), ended("d")}, NextPageToken: "3"},
		"3": {Runs: []*apiv1.Run{ended("b"), ended("c"), ended("a")}},
	}}
	g, lis := grpc.NewServer(), memconn.Listen(1<<16)
	defer g.Stop()
	apiv1.RegisterClusterServer(g, server)
	apiv1.RegisterRunsServer(g, server)
	go g.Serve(lis) //nolint:errcheck // ends with Stop
	client, err := sdk.Dial(t.Context(), "http://127.0.0.1:1", sdk.Options{
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() //nolint:errcheck // every answer has come
	list := client.Runs(t.Context(), sdk.RunQuery{})
	for range 2 {
		var got []string
		for run, err := range list {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, run.GetId()+" "+run.GetState())
		}
		if want := []string{"d queued", "c queued", "b queued", "a succeeded"}; !slices.Equal(got, want) {
			t.Errorf("listed %q, want %q", got, want)
		}
	}
}
