package cli

import (
	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/version"
)

func versionCommand(printer *output.Printer) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program, and the commit that it was built from",
		Args:  command.Arguments(),
		RunE: func(*cobra.Command, []string) error {
			v := version.Message()
			return printer.PrintOne([]string{"version", "commit", "date", "go"}, output.Message(v, func() []output.Cell {
				return []output.Cell{{Text: v.GetVersion()}, {Text: v.GetCommit()}, {Text: v.GetDate()}, {Text: v.GetGo()}}
			}))
		},
	}
}
