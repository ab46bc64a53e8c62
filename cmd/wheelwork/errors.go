package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// usageError reports a mistake in the command line itself.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usage(cmd *cobra.Command, format string, args ...any) error {
	return &usageError{fmt.Sprintf(format, args...) + fmt.Sprintf("; see \"%s --help\"", cmd.CommandPath())}
}

// codedError is a failure with its own code for machines.
type codedError struct {
	code, message string
}

func (e *codedError) Error() string { return e.message }

// report prints an error and returns the exit code.
func (c *cli) report(err error) int {
	code, message := c.explain(err)
	if c.format == formatJSON || c.format == formatJSONL {
		line, _ := json.Marshal(map[string]string{"code": code, "message": message}) // two strings always encode
		fmt.Fprintf(c.err, "%s\n", line)
	} else {
		fmt.Fprintf(c.err, "%s %s\n", c.paint(c.err, red, "wheelwork:"), printable(message))
	}
	if code == "usage" {
		return exitUsage
	}
	return exitFail
}

// explain converts an error to a code for machines and one sentence for people: what
// failed, why, what to do.
func (c *cli) explain(err error) (code, message string) {
	var (
		wrong   *usageError
		coded   *codedError
		refused *sdk.Error
	)
	switch {
	case errors.As(err, &wrong):
		return "usage", err.Error()
	case errors.As(err, &coded):
		return coded.code, err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline_exceeded", fmt.Sprintf("%s: no answer in time: allow more with --timeout", strings.TrimSuffix(err.Error(), ": "+context.DeadlineExceeded.Error()))
	case errors.Is(err, context.Canceled):
		return "canceled", "interrupted"
	case errors.Is(err, sdk.ErrUnauthenticated) && c.token == "":
		return "unauthenticated", c.url + " asks for a token: pass the one in the file token of the server's data directory with --token or WHEELWORK_TOKEN"
	case errors.Is(err, sdk.ErrUnauthenticated):
		return "unauthenticated", "the token was refused by " + c.url + ": pass the one in the file token of the server's data directory with --token or WHEELWORK_TOKEN"
	case errors.Is(err, sdk.ErrUnavailable) && strings.Contains(err.Error(), "first record does not look like a TLS handshake"):
		return "unavailable", c.url + " answers without TLS: name it with http:// in --url or WHEELWORK_URL"
	case errors.Is(err, sdk.ErrDenied) && strings.Contains(err.Error(), "role worker lacks"):
		return "permission_denied", err.Error() + ": that token is for workers; pass the one in the file token of the server's data directory with --token or WHEELWORK_TOKEN"
	case errors.Is(err, sdk.ErrUnavailable) && strings.Contains(c.url, ","):
		return "unavailable", strings.TrimPrefix(err.Error(), "dial: ") + "; when a server of a cluster is lost another one takes over after about four seconds: try again, and if that does not help look at the servers with \"wheelwork cluster status\", or name others with --url"
	case errors.Is(err, sdk.ErrUnavailable):
		return "unavailable", strings.TrimPrefix(err.Error(), "dial: ") + "; start a server with \"wheelwork dev\" or name another with --url or WHEELWORK_URL"
	case errors.As(err, &refused) && refused.Message == "unknown service wheelwork.v1.Cluster":
		return "unimplemented", c.url + " is not a server: name the --listen address of a server, not that of a nameserver or of etcd, with --url or WHEELWORK_URL"
	case errors.As(err, &refused):
		return snake(refused.Code.String()), err.Error()
	}
	return "failed", err.Error()
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
