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
		Short: "Drop the bytes of versions that nothing names",
		Long: `Drop the bytes of versions at once; "module gc" does so later with what nothing
names. What is known of a version stays in the list, and pushing the same bytes
brings it back: a version never comes to mean others. One that a job, an alias, a
script or a live run names is kept, and the refusal says what these are. --force
drops it all the same; what runs it then fails on hosts that have not loaded it.`,
		Args: command.Arguments("NAME@VERSION..."),
	}
	cmd.Flags().BoolVar(&force, "force", false, "also versions that something names")
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
