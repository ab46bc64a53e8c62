// Package definition has the commands about definitions of every kind: to apply documents, to
// export and edit definitions, to compare them with documents and with their earlier revisions,
// and to bring an earlier one back.
package definition

import (
	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
)

// commands are the commands about definitions.
type commands struct {
	*output.Printer
	*connect.Server
	getenv func(string) string
}

// Commands returns the commands about definitions, and those that bring them to another
// environment.
func Commands(printer *output.Printer, server *connect.Server, getenv func(string) string) []*cobra.Command {
	c := &commands{printer, server, getenv}
	return []*cobra.Command{c.apply(), c.export(), c.edit(), c.history(), c.diff(), c.rollback(), c.plan(), c.promote(), c.drift(), c.sync()}
}
