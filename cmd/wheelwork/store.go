package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/store"
)

func (c *cli) storeCommand() *cobra.Command {
	return group("store", "Look after the store of a stopped server", c.storeRebuild())
}

func (c *cli) storeRebuild() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use:   "rebuild",
		Short: "Throw the database of a stopped server away and rebuild it from its snapshots",
		Long: `Throw the database of a stopped server away and rebuild it from its snapshots.
The history of runs stays, and what the snapshots do not hold yet is read from
the journal when the server starts: nothing that was acknowledged is lost.`,
		Example: `  wheelwork store rebuild --data /var/lib/wheelwork`,
		Args:    arguments(),
	}
	cmd.Flags().StringVar(&data, "data", "wheelwork-data", "data `directory` of the server")
	cmd.RunE = func(*cobra.Command, []string) error {
		dir := filepath.Join(data, "store")
		if _, err := os.Stat(dir); err != nil {
			return &codedError{"not_found", data + " is not the data directory of a server: there is no store in it; name another with --data"}
		}
		var shown bar
		err := store.Rebuild(dir, func(done, total int64) {
			if shown.shown == nil {
				shown = c.progress(total, "rebuild", true)
			}
			shown.reached(done)
		})
		shown.end()
		if err != nil {
			return err
		}
		c.note("the store in %s is rebuilt; the server reads the rest from the journal when it starts", data)
		return nil
	}
	return cmd
}
