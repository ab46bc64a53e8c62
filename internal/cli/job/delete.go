package job

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/sdk"
)

func (c *commands) delete() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "delete JOB...",
		Short: "Delete jobs; accepted runs continue",
		Long: `Delete jobs. Accepted runs continue. The server refuses to delete a job that another
job depends on, or has as a node of its workflow, and names those jobs: delete or
change them first, or delete all of them in one command. --force deletes the job
anyway; the others stay, and do not run until the job exists again.`,
		Args:              command.Arguments("JOB..."),
		ValidArgsFunction: c.completeJobs,
	}
	cmd.Flags().BoolVar(&force, "force", false, "also jobs that other jobs name")
	cmd.RunE = c.Call(func(ctx context.Context, client *sdk.Client, _ *cobra.Command, args []string) error {
		remove := client.Delete
		if force {
			remove = client.ForceDelete
		}
		return c.printResults(len(args), func(yield func(result) bool) {
			c.deleteJobs(args, func(name string) error { return remove(ctx, c.App, name) }, yield)
		})
	})
	return cmd
}

// deleteJobs deletes jobs. It retries refused jobs as long as other deletions succeed,
// because the deleted jobs may be those that named them.
func (c *commands) deleteJobs(names []string, remove func(name string) error, yield func(result) bool) {
	for left := names; len(left) > 0; {
		var kept []string
		var why []error
		for _, name := range left {
			err := remove(name)
			if errors.Is(err, sdk.ErrPrecondition) {
				kept, why = append(kept, name), append(why, err)
				continue
			}
			if !yield(resultOf(&sdk.Job{App: c.App, Name: name}, sdk.Deleted, err)) {
				return
			}
		}
		if len(kept) == len(left) {
			for i, name := range kept {
				if !yield(resultOf(&sdk.Job{App: c.App, Name: name}, sdk.Deleted, why[i])) {
					return
				}
			}
			return
		}
		left = kept
	}
}
