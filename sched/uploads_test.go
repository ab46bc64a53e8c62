package sched_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestUploadsAreRefusedByTheirHead starts more uploads of an app than are admitted, and
// sends only their heads. The surplus one is refused, and those of other apps are not.
func TestUploadsAreRefusedByTheirHead(t *testing.T) {
	simulate(t, func(t *testing.T, _ *world, c *client) {
		begin := func(app, version string) apiv1.Modules_PushModuleClient {
			s, err := c.modules.PushModule(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(&apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Head_{Head: &apiv1.PushModuleRequest_Head{App: app, Name: "m", Version: version}}}); err != nil {
				t.Fatal(err)
			}
			return s
		}
		slow := begin("slow", "1")
		var never apiv1.PushModuleResponse
		if err := slow.RecvMsg(&never); status.Code(err) != codes.DeadlineExceeded { // after a minute of fake time
			t.Errorf("an upload of which nothing comes: %v", err)
		}
		one, two := begin("shop", "1"), begin("shop", "2")
		synctest.Wait()
		three, other := begin("shop", "3"), begin("other", "1")
		if err := three.RecvMsg(&never); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "try again") {
			t.Errorf("one more upload of the app: %v", err)
		}
		for _, s := range []apiv1.Modules_PushModuleClient{two, other, one} {
			if err := s.Send(&apiv1.PushModuleRequest{Part: &apiv1.PushModuleRequest_Chunk{Chunk: []byte("code")}}); err != nil {
				t.Fatal(err)
			}
			if _, err := s.CloseAndRecv(); err != nil {
				t.Errorf("an upload that was admitted: %v", err)
			}
		}
		if _, err := c.tryPush(&apiv1.PushModuleRequest_Head{App: "shop", Name: "m", Version: "3"}, []byte("code")); err != nil {
			t.Errorf("after the others have ended: %v", err)
		}
	})
}
