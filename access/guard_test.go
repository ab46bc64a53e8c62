package access

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// TestRefusalNamesTheFile checks that a refusal names the file with the token that the
// method needs.
func TestRefusalNamesTheFile(t *testing.T) {
	g := New()
	g.Allow("the-administrator", Admin)
	g.Allow("a-worker-program", Worker)
	for _, tt := range []struct {
		method, token string
		code          codes.Code
		want          string
	}{
		{apiv1.Worker_Work_FullMethodName, "wrong", codes.Unauthenticated, "the token was refused: it is not one of this server; a worker uses the one in the file host-token of the server's data directory"},
		{apiv1.Nameserver_Watch_FullMethodName, "the-administrator", codes.PermissionDenied, "the token's role admin lacks the permission work: a worker uses the one in the file host-token"},
		{apiv1.Worker_Work_FullMethodName, "", codes.Unauthenticated, "a token is needed: a worker uses the one in the file host-token"},
		{apiv1.Jobs_ListJobs_FullMethodName, "wrong", codes.Unauthenticated, "people and their programs use the one in the file token of the server's data directory"},
		{apiv1.Jobs_ListJobs_FullMethodName, "a-worker-program", codes.PermissionDenied, "lacks the permission jobs.read: people and their programs use the one in the file token of"},
		{apiv1.Nameserver_Join_FullMethodName, "the-administrator", codes.PermissionDenied, "(--server-token-file)"},
	} {
		ctx := t.Context()
		if tt.token != "" {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+tt.token))
		}
		if err := g.Check(ctx, tt.method); status.Code(err) != tt.code || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s with %q: %v, want %q", tt.method, tt.token, err, tt.want)
		}
	}
}
