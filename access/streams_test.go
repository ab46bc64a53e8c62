package access_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/wheelworkhq/wheelwork/access"
	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestStreamLimits opens streams up to the limits of an app and of a caller, and one more after
// one has ended.
func TestStreamLimits(t *testing.T) {
	i := newIssuer(t)
	i.guard.SetStreamLimits(access.StreamLimits{PerApp: 2, PerCaller: 3})
	viewer, other := i.token("operator", "cluster"), i.token("viewer", "cluster")
	// open opens a stream, and returns the function that ends it.
	open := func(token, method string, first proto.Message) (end func(), err error) {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token))
		if err := i.guard.Check(ctx, method); err != nil {
			t.Fatal(err)
		}
		leave, began, ended := make(chan struct{}), make(chan error, 1), make(chan struct{})
		go func() {
			defer close(ended)
			err := i.guard.Stream(nil, &fakeStream{ctx: ctx, messages: []proto.Message{first}}, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, s grpc.ServerStream) error {
				m := dynamic(t, methodOf(t, method).Input()).New().Interface()
				if err := s.RecvMsg(m); err != nil {
					return err
				}
				began <- nil
				<-leave
				return nil
			})
			if err != nil {
				began <- err
			}
		}()
		if err := <-began; err != nil {
			<-ended
			return nil, err
		}
		return func() { close(leave); <-ended }, nil
	}
	must := func(token, app string) func() {
		t.Helper()
		end, err := open(token, apiv1.Runs_WatchRun_FullMethodName, &apiv1.WatchRunRequest{App: app})
		if err != nil {
			t.Fatal(err)
		}
		return end
	}
	refused := func(token, app, want string) {
		t.Helper()
		_, err := open(token, apiv1.Runs_WatchRun_FullMethodName, &apiv1.WatchRunRequest{App: app})
		if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	first, second := must(viewer, "shop"), must(viewer, "shop")
	refused(viewer, "shop", "app shop has 2 streams open")
	refused(other, "shop", "--max-streams-per-app")
	third := must(viewer, "bank")
	refused(viewer, "mail", "p-operator")
	must(other, "mail")() // the limit of one caller is not that of another
	first()
	must(viewer, "shop")()
	must(other, "shop")()
	second()
	third()
}
