package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/node/offline"
)

func (c *cli) storeCommand() *cobra.Command {
	return group("store", "Look after the store of a stopped server", c.storeRebuild(), c.storeRepair())
}

func (c *cli) storeRebuild() *cobra.Command {
	var data string
	var accept bool
	cmd := &cobra.Command{
		Use:   "rebuild [DIR]",
		Short: "Make the database of a stopped server again from its snapshots",
		Long: `Make the database of a stopped server again from its snapshots. The history of
runs stays, and what the snapshots do not hold yet the server reads from the
journal when it starts.

It first reads the journal, and changes nothing when snapshots and journal do not
hold all that the database does: then the database is the only copy. It says which
records would be lost and what to do instead. With --accept-loss it goes on, if a
server starts afterwards.

The server of a cluster has one database for each unit of the cluster, and their
journals are in etcd. The command asks for all of them: the server makes each again
when it starts, if nothing is lost by that, and its log says what it did.

The old database is moved to store/quarantine/ in the data directory and is never
deleted. Remove it by hand when the server works.`,
		Example: `  wheelwork store rebuild /var/lib/wheelwork`,
		Args:    dataArgument,
	}
	addData(cmd, &data)
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "go on although records are lost that the database alone holds")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := readDataArgument(cmd, args, &data); err != nil {
			return err
		}
		if err := hasStore(data); err != nil {
			return err
		}
		var shown bar
		r, err := offline.RebuildStore(data, accept, func(done, total int64) {
			if shown.shown == nil {
				shown = c.progress(total, "rebuild", true)
			}
			shown.reached(done)
		})
		shown.end()
		if err != nil {
			return inUse(data, err)
		}
		if len(r.Asked) > 0 {
			c.note("%d databases in %s belong to a cluster, whose journals are in etcd: their server makes each again when it starts, if nothing is lost by that, and its log says what it did", len(r.Asked), data)
			return nil
		}
		if r.Last > 0 {
			c.note("records %d to %d of the journal are lost: they were in the old database alone", r.First, r.Last)
		}
		if r.Quarantine != "" {
			c.note("the old database is kept in %s", filepath.Join(data, "store", r.Quarantine))
		}
		c.note("the store in %s is rebuilt; the server reads the rest from the journal when it starts", data)
		return nil
	}
	return cmd
}

func addData(cmd *cobra.Command, data *string) {
	cmd.Flags().StringVar(data, "data", "wheelwork-data", "data `directory` of the server")
}

// dataArgument accepts the data directory as the only argument.
func dataArgument(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage(cmd, "unexpected argument %q", args[1])
	}
	return nil
}

// readDataArgument takes the data directory from the argument, if there is one.
func readDataArgument(cmd *cobra.Command, args []string, data *string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.Flags().Changed("data"):
		return usage(cmd, "the data directory is given twice, as %q and with --data: give it once", args[0])
	}
	*data = args[0]
	return nil
}

// hasStore refuses a directory that is not that of a server.
func hasStore(data string) error {
	if _, err := os.Stat(filepath.Join(data, "store")); err != nil {
		return &codedError{"not_found", fmt.Sprintf("%s is not the data directory of a server: there is no store in it; name another with --data", data)}
	}
	return nil
}
