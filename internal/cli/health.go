package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
)

// health is the output about a process that answers.
type health struct {
	URL   string `json:"url"`
	State string `json:"state"`
}

func healthCommand(printer *output.Printer, server *connect.Server) *cobra.Command {
	return &cobra.Command{
		Use:   "health",
		Short: "Ask a server or a host whether it works; no token is needed",
		Long: `Ask the process at --url for /livez, without a token: a server at its --listen address,
a host at its --metrics-listen address. The exit code is 0 if it answers, and 1 if not, for
the health checks of containers.`,
		Example: "  wheelwork health --url http://127.0.0.1:9464 --timeout 5s",
		Args:    command.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := server.Deadline(cmd.Context(), connect.DefaultTimeout)
			defer cancel()
			if err := ask(ctx, server); err != nil {
				return err
			}
			h := health{server.URL, "ok"}
			return printer.PrintOne([]string{"url", "state"}, output.Object(h, func() []output.Cell { return []output.Cell{{Text: h.URL}, {Text: h.State}} }))
		},
	}
}

// ask returns an error if the process at the URL does not answer /livez with success.
func ask(ctx context.Context, server *connect.Server) error {
	if err := server.Ready(); err != nil {
		return err
	}
	secure, err := server.TLS()
	if err != nil {
		return err
	}
	url := strings.TrimSuffix(server.URL, "/") + "/livez"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("--url %s: %w", server.URL, err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("the process does not answer: %w", err)
	}
	defer resp.Body.Close() //nolint:errcheck // only the status matters
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s, and a process that works answers 200 OK", url, resp.Status)
	}
	return nil
}
