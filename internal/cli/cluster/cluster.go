// Package cluster has the commands that begin, grow and look after a cluster of servers.
package cluster

import (
	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
)

// commands are the commands about a cluster.
type commands struct {
	*output.Printer
	*connect.Server
}

// Command returns the command "cluster".
func Command(printer *output.Printer, server *connect.Server) *cobra.Command {
	c := &commands{printer, server}
	return command.Group("cluster", "Start, extend and manage a cluster of servers",
		c.up(), c.initialize(), c.members(), c.remove(),
		c.status(), c.drain(), c.undrain(), c.move(), c.split(), c.merge())
}
