package connect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// Explain converts an error to a code for machines and one sentence for people: what
// failed, why, what to do.
func (s *Server) Explain(err error) (code, message string) {
	var (
		failure *command.Failure
		refused *sdk.Error
	)
	switch {
	case errors.As(err, &failure):
		return failure.Code, err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline_exceeded", fmt.Sprintf("%s: no answer in time: allow more with --timeout", strings.TrimSuffix(err.Error(), ": "+context.DeadlineExceeded.Error()))
	case errors.Is(err, context.Canceled):
		return "canceled", "interrupted"
	case errors.Is(err, sdk.ErrUnauthenticated) && strings.Contains(err.Error(), "sign in: "):
		return "unauthenticated", err.Error()
	case errors.Is(err, sdk.ErrUnauthenticated) && s.used("token").Source == FromSession:
		return "unauthenticated", "the session at " + s.URL + " has ended: sign in with \"wheelwork login\""
	case errors.Is(err, sdk.ErrUnauthenticated) && s.used("token").Value == "":
		return "unauthenticated", s.URL + " asks for a token: sign in with \"wheelwork login\", or pass the one in the file token of the server's data directory with --token or WHEELWORK_TOKEN"
	case errors.Is(err, sdk.ErrUnauthenticated) && s.used("token").Source == FromContext:
		return "unauthenticated", "the token of context " + s.chosen.name + " was refused by " + s.URL + ": name the file of another with \"wheelwork context set " + s.chosen.name + " --token-file FILE\", or pass it with --token"
	case errors.Is(err, sdk.ErrUnauthenticated):
		return "unauthenticated", "the token was refused by " + s.URL + ": sign in with \"wheelwork login\", or pass another token with --token or WHEELWORK_TOKEN"
	case errors.Is(err, sdk.ErrUnavailable) && strings.Contains(err.Error(), "first record does not look like a TLS handshake"):
		return "unavailable", s.URL + " answers without TLS: name it with http:// in --url or WHEELWORK_URL"
	case errors.Is(err, sdk.ErrDenied) && strings.Contains(err.Error(), "the token's role ") && strings.Contains(err.Error(), " lacks the permission "):
		return "permission_denied", err.Error() + "; pass a token with --token or WHEELWORK_TOKEN"
	case errors.Is(err, sdk.ErrUnavailable) && strings.Contains(s.URL, ","):
		return "unavailable", strings.TrimPrefix(err.Error(), "dial: ") + "; when a server of a cluster is lost another one takes over after about four seconds: try again, and if that does not help look at the servers with \"wheelwork cluster status\", or name others with --url"
	case errors.Is(err, sdk.ErrUnavailable):
		return "unavailable", strings.TrimPrefix(err.Error(), "dial: ") + "; start a server with \"wheelwork dev\" or name another with --url or WHEELWORK_URL" + s.inContext()
	case errors.As(err, &refused) && refused.Message == "unknown service wheelwork.v1.Cluster":
		return "unimplemented", s.URL + " is not a server: name the --listen address of a server, not that of a nameserver or of etcd, with --url or WHEELWORK_URL"
	case errors.As(err, &refused):
		return snake(refused.Code.String()), err.Error()
	}
	return "failed", err.Error()
}

// inContext is the end of a sentence about a URL that comes from a context.
func (s *Server) inContext() string {
	if from := s.used("url"); from.Source == FromContext {
		return " (this one is that of context " + from.Name + ")"
	}
	return ""
}

// snake converts "NotFound" to "not_found".
func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
