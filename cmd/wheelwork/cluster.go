package main

import "github.com/spf13/cobra"

// clusterCommand groups the commands about several servers.
func (c *cli) clusterCommand() *cobra.Command {
	return group("cluster", "Begin, grow and look after a cluster of servers",
		c.clusterUp(), c.clusterInit(), c.clusterMembers(), c.clusterRemove(),
		c.clusterStatus(), c.clusterDrain(), c.clusterUndrain(), c.clusterMove(), c.clusterSplit(), c.clusterMerge())
}
