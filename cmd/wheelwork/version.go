package main

import (
	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/version"
)

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  arguments(),
		RunE: func(*cobra.Command, []string) error {
			v := version.Message()
			return c.printOne([]string{"version", "go", "commit"}, message(v, func() []cell {
				return []cell{{v.GetVersion(), none}, {v.GetGo(), none}, {v.GetCommit(), none}}
			}))
		},
	}
}
