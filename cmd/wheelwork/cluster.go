package main

import "github.com/spf13/cobra"

// clusterCommand holds the commands about several servers.
func (c *cli) clusterCommand() *cobra.Command {
	return group("cluster", "Look after several servers: who there is, who owns what",
		c.clusterStatus(), c.clusterDrain(), c.clusterUndrain(), c.clusterMove())
}
