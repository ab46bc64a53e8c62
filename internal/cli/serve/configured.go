package serve

import (
	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/config"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
)

// configured lets each command take its settings from variables and a file as well, and returns
// the commands.
func (c *commands) configured(all ...*cobra.Command) []*cobra.Command {
	for _, process := range all {
		source := config.Add(process)
		process.PersistentPreRunE = func(cmd *cobra.Command, args []string) error {
			if cmd == process { // not a command below it
				if cmd.Flags().Changed("context") {
					return command.Usage(cmd, "--context is for commands that call a server, and %s takes its settings from --config", cmd.Name())
				}
				c.IgnoreContexts()
				if err := source.Apply(cmd, c.env, all, c.Note); err != nil {
					return err
				}
			}
			return cmd.Root().PersistentPreRunE(cmd, args)
		}
		run := process.RunE
		process.RunE = func(cmd *cobra.Command, args []string) error {
			if !source.Print() || len(args) > 0 {
				c.settings = func() []config.Setting { return source.Settings(cmd) }
				return run(cmd, args)
			}
			return c.PrintAll([]string{"key", "value", "origin"}, output.Each(source.Settings(cmd), func(s config.Setting) output.Record {
				return output.Object(s, func() []output.Cell {
					return []output.Cell{{Text: s.Key}, {Text: s.Value}, {Text: string(s.Origin)}}
				})
			}))
		}
	}
	return all
}
