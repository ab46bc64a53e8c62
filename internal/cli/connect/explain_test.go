package connect

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// TestTokenOfAWorker checks that the error names the token that people need.
func TestTokenOfAWorker(t *testing.T) {
	refused := &sdk.Error{Code: codes.PermissionDenied, Message: "list jobs: the token's role worker lacks the permission jobs.read: programs use a token of `wheelwork token create`"}
	code, message := New(&cobra.Command{}, func(string) string { return "" }).Explain(refused)
	if code != "permission_denied" || !strings.HasSuffix(message, "token create`; pass a token with --token or WHEELWORK_TOKEN") {
		t.Errorf("%s: %s", code, message)
	}
}
