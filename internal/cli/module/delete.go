package module

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) delete() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "delete NAME@VERSION...",
		Short: "Delete the bytes of versions that nothing names",
		Long: `Delete the bytes of versions at once; "module gc" deletes unused ones later. The list
still shows the version, and a push of the same bytes restores it: a version never
gets other bytes. The server refuses to delete a version that a job, an alias, a
script or a live run names, and the error lists them. --force deletes it anyway; its
runs then fail on hosts that have not loaded it.`,
		Args: command.Arguments("NAME@VERSION..."),
	}
	cmd.Flags().BoolVar(&force, "force", false, "also versions that are in use")
	cmd.RunE = c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
		remove := client.DeleteModule
		if force {
			remove = client.ForceDeleteModule
		}
		for _, ref := range args {
			bytes, err := remove(ctx, c.App, ref)
			if err != nil {
				return err
			}
			c.Note("%s: deleted, %s became free", ref, output.Bytes(bytes))
		}
		return nil
	})
	return cmd
}
