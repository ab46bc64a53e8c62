package nameserver

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestJoinTakesNothingFromALiveServer: a rogue server joins with the apps, as a
// standalone server, with the id or with the partitions of a live server. Routes continue
// to lead to the live one.
func TestJoinTakesNothingFromALiveServer(t *testing.T) {
	const honest, rogue = "honest:1", "rogue:1"
	mine := &apiv1.ServerReport{Server: "srv-a", Address: honest, Apps: []string{"shop"}}
	for name, c := range map[string]struct {
		reports []*apiv1.ServerReport // those of the rogue
		code    codes.Code            // code with which its session ends
	}{
		"its app":                          {[]*apiv1.ServerReport{{Server: "srv-evil", Address: rogue, Apps: []string{"shop", "new"}}}, codes.FailedPrecondition},
		"its place":                        {[]*apiv1.ServerReport{{Server: "srv-evil", Address: rogue}}, codes.FailedPrecondition},
		"its id":                           {[]*apiv1.ServerReport{{Server: "srv-a", Address: rogue, Apps: []string{"shop"}}}, codes.AlreadyExists},
		"all partitions":                   {[]*apiv1.ServerReport{{Server: "srv-evil", Address: rogue, AllUnits: []string{"main"}, Units: []*apiv1.UnitReport{{Unit: "main", Epoch: 1 << 40}}}}, codes.FailedPrecondition},
		"its address, then all partitions": {[]*apiv1.ServerReport{{Server: "srv-a", Address: honest}, {Address: honest, AllUnits: []string{"main"}, Units: []*apiv1.UnitReport{{Unit: "main", Epoch: 1 << 40}}}}, codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c2 apiv1.NameserverClient) {
				leave := join(t, c2, mine)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				s, err := c2.Join(ctx)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range c.reports {
					if err := s.Send(r); err != nil {
						t.Fatal(err)
					}
				}
				_, err = s.Recv()
				if err == nil {
					_, err = s.Recv()
				}
				if status.Code(err) != c.code {
					t.Errorf("the rogue's session: %v, want %v", err, c.code)
				}
				time.Sleep(time.Second)
				a, err := c2.Route(ctx, &apiv1.RouteRequest{App: "shop"})
				if err != nil || a.Address != honest {
					t.Errorf("the route of the app leads to %v, %v", a, err)
				}
				leave()
			})
		})
	}
}
