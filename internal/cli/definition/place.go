package definition

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/document"
	"github.com/wheelworkhq/wheelwork/environment"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// place is an environment: a server and an app on it.
type place struct {
	server  *connect.Server
	client  *sdk.Client
	overlay *environment.Overlay // nil: it has none
}

// serverOf returns the server of an environment; "": the one that the command line names.
func (c *commands) serverOf(name string) (*connect.Server, error) {
	if name == "" {
		return c.Server, nil
	}
	return c.Environment(name)
}

// place connects to an environment. file is that of its overlay; "": the one of its context.
func (c *commands) place(ctx context.Context, name, file string) (*place, error) {
	s, err := c.serverOf(name)
	if err != nil {
		return nil, err
	}
	p := &place{server: s}
	if file == "" {
		file = s.Overlay()
	}
	if file != "" {
		if p.overlay, err = readOverlay(file); err != nil {
			return nil, err
		}
	}
	p.client, err = s.Dial(ctx)
	return p, s.In(err)
}

func (p *place) close() { p.client.Close() } //nolint:errcheck // every answer has come

func readOverlay(file string) (*environment.Overlay, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read the overlay: %w", err)
	}
	defer f.Close() //nolint:errcheck // only read
	o, err := environment.ReadOverlay(f)
	if err != nil {
		return nil, fmt.Errorf("read the overlay %s: %w", file, err)
	}
	return o, nil
}

// definitions reads all definitions of the environment. It leaves out the kinds that the caller may
// not read, which are in unread.
func (p *place) definitions(ctx context.Context) (all []*document.Document, unread []*document.Kind, err error) {
	for _, k := range document.Kinds() {
		list, err := readAll(ctx, p.client, k, p.server.App)
		switch {
		case errors.Is(err, sdk.ErrDenied) && k.Name != document.DefaultKind:
			unread = append(unread, k)
		case err != nil:
			return nil, nil, p.server.In(err)
		}
		all = append(all, list...)
	}
	return all, unread, nil
}

// mayCopy refuses a source whose server hides the inputs of jobs from the caller: a copy would erase
// them.
func (p *place) mayCopy(ctx context.Context) error {
	who, err := p.client.WhoAmI(ctx)
	if err != nil {
		return p.server.In(err)
	}
	if !slices.Contains(who.GetPermissions(), "payload.read") && !slices.Contains(who.GetPermissions(), "jobs.write") {
		return command.Fail("permission_denied", "environment %s: the caller may not see the inputs of jobs, so a copy would be without them: use a token with the permission payload.read there, as an operator has", p.server.Name())
	}
	return nil
}

// noServerFlags refuses flags about one server in a command line that names environments.
func noServerFlags(cmd *cobra.Command) error {
	for _, name := range []string{"url", "token", "token-file", "ca-cert", "app", "context"} {
		if cmd.Flags().Changed(name) {
			return command.Usage(cmd, "--%s and --to: the environment has its server, token and app; \"wheelwork context set\" changes them", name)
		}
	}
	return nil
}
