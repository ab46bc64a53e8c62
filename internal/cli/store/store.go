package store

import (
	"os"
	"path/filepath"

	"github.com/wheelworkhq/wheelwork/node/offline"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/process"
)

// commands are the commands about the store of a stopped server.
type commands struct {
	*output.Printer
}

// Command returns the command "store".
func Command(printer *output.Printer) *cobra.Command {
	c := &commands{printer}
	return command.Group("store", "Rebuild or repair the store of a stopped server", c.rebuild(), c.repair())
}

func (c *commands) rebuild() *cobra.Command {
	var data string
	var accept bool
	cmd := &cobra.Command{
		Use:   "rebuild [DIR]",
		Short: "Rebuild the database of a stopped server from its snapshots",
		Long: `Rebuild the database of a stopped server from its snapshots. The history of runs
stays, and the server reads what the snapshots lack from the journal when it starts.

The command first reads the journal. It changes nothing if snapshots and journal lack
something that the database has: then the database is the only copy. It shows which
records would be lost and what to do instead. With --accept-loss it continues, if a
server can start afterwards.

A server of a cluster has one database for each partition, and their journals are in
etcd. The command requests the rebuild of all of them: the server rebuilds each when
it starts, unless that loses records, and its log shows the result.

The old database is moved to store/quarantine/ in the data directory and is never
deleted. Remove it by hand when the server works.`,
		Example: `  wheelwork store rebuild /var/lib/wheelwork`,
		Args:    command.OptionalArgument("DIR"),
	}
	addData(cmd, &data)
	cmd.Flags().BoolVar(&accept, "accept-loss", false, "continue although records are lost that only the database has")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := readDataArgument(cmd, args, &data); err != nil {
			return err
		}
		if err := hasStore(data); err != nil {
			return err
		}
		shown := c.Transfer("rebuild")
		r, err := offline.RebuildStore(data, accept, shown.Reached)
		shown.End()
		if err != nil {
			return process.InUse(data, err)
		}
		if len(r.Asked) > 0 {
			c.Note("%d databases in %s belong to a cluster, whose journals are in etcd: their server rebuilds each when it starts, unless that loses records, and its log shows the result", len(r.Asked), data)
			return nil
		}
		if r.Last > 0 {
			c.Note("records %d to %d of the journal are lost: they were in the old database alone", r.First, r.Last)
		}
		if r.Quarantine != "" {
			c.Note("the old database is kept in %s", filepath.Join(data, "store", r.Quarantine))
		}
		c.Note("the store in %s is rebuilt; the server reads the rest from the journal when it starts", data)
		return nil
	}
	return cmd
}

func addData(cmd *cobra.Command, data *string) {
	cmd.Flags().StringVar(data, "data", "wheelwork-data", "data `directory` of the server")
}

// readDataArgument takes the data directory from the argument, if there is one.
func readDataArgument(cmd *cobra.Command, args []string, data *string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.Flags().Changed("data"):
		return command.Usage(cmd, "the data directory is given twice, as %q and with --data: give it once", args[0])
	}
	*data = args[0]
	return nil
}

// hasStore refuses a directory that is not that of a server.
func hasStore(data string) error {
	if _, err := os.Stat(filepath.Join(data, "store")); err != nil {
		return command.Fail("not_found", "%s is not the data directory of a server: there is no store in it; name another with --data", data)
	}
	return nil
}
