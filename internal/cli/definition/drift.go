package definition

import (
	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
)

func (c *commands) drift() *cobra.Command {
	p := planning{commands: c, withoutChecks: true}
	cmd := &cobra.Command{
		Use:   "drift -f DIR",
		Short: "Show how an environment differs from its documents",
		Long: `Show how the definitions of an environment differ from documents, with the overlay of the
environment: what was changed, deleted or added there by other means. Definitions that no document
names count too; with --owner only those with the label ` + ownerLabel + ` of that name.

Exit codes: 0 no difference, 2 differences, 1 an error, 64 wrong usage.`,
		Example: `  wheelwork drift -f definitions --to prod
  wheelwork drift -f definitions --to prod --owner shop-team`,
		Args:        command.Arguments(),
		Annotations: command.Compares,
	}
	p.sourceFlags(cmd)
	p.targetFlags(cmd)
	cmd.Flags().StringVar(&p.owner, "owner", "", "of what no document names, count the definitions with the label "+ownerLabel+" of this `name` alone")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := p.check(cmd); err != nil {
			return err
		}
		ctx, cancel := p.Deadline(cmd.Context(), 0)
		defer cancel()
		plan, err := p.make(ctx, cmd)
		if err != nil {
			return err
		}
		defer p.close()
		if p.Format == output.Table {
			err = p.show(plan)
		} else {
			err = plan.Write(p.Out)
		}
		if err == nil && len(plan.Changes)+len(plan.Kept) > 0 {
			return command.ErrDiffers
		}
		return err
	}
	return cmd
}
