package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/node"
)

// gateName is the hidden command that a server starts to verify an upload.
const gateName = "upload-gate"

// gate returns the command line that starts this program as the upload verifier of a
// server.
func gate() node.Gate {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	return node.Gate{Command: []string{exe, gateName}}
}

func (c *cli) gateCommand() *cobra.Command {
	return &cobra.Command{
		Use:    gateName,
		Short:  "Look at an upload; a server starts this by itself",
		Hidden: true,
		Args:   arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return node.GateChild(cmd.Context(), c.in, c.out, os.NewFile(3, "alive"))
		},
	}
}
