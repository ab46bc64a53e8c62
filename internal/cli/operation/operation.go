// Package operation has the commands that show and stop operations: changes of many runs or
// jobs that a server carries out.
package operation

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/bulk"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/sdk"
)

// commands are the commands about operations.
type commands struct {
	*output.Printer
	*connect.Server
}

// Command returns the command "operation".
func Command(printer *output.Printer, server *connect.Server) *cobra.Command {
	c := &commands{printer, server}
	return command.Group("operation", "Show and stop changes of many runs or jobs that the server carries out", c.list(), c.get(), c.cancel())
}

func (c *commands) list() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the operations that run, and those that ended in the last 24 hours",
		Args:  command.Arguments(),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, _ []string) error {
			var ops []*sdk.Operation
			var err error
			if all {
				ops, err = client.AllOperations(ctx)
			} else {
				ops, err = client.Operations(ctx, c.App)
			}
			if err != nil {
				return err
			}
			return c.PrintAll(bulk.OperationColumns(), func(yield func(output.Record, error) bool) {
				for op := range slices.Values(ops) {
					if !yield(bulk.OperationRecord(op), nil) {
						return
					}
				}
			})
		}),
	}
	cmd.Flags().BoolVar(&all, "all-apps", false, "of all apps that you may see")
	return cmd
}

func (c *commands) get() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Show the progress of an operation, and the changes that were refused",
		Args:  command.Arguments("ID"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			return c.print(client.Operation(ctx, c.App, args[0]))
		}),
	}
}

func (c *commands) cancel() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel ID",
		Short: "Stop an operation; what it has changed stays changed",
		Args:  command.Arguments("ID"),
		RunE: c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
			return c.print(client.CancelOperation(ctx, c.App, args[0]))
		}),
	}
}

func (c *commands) print(op *sdk.Operation, err error) error {
	if err != nil {
		return err
	}
	return c.PrintOne(bulk.OperationColumns(), bulk.OperationRecord(op))
}
