package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
)

func completionCommand(out io.Writer) *cobra.Command {
	shell := func(name, load string, write func(root *cobra.Command) error) *cobra.Command {
		return &cobra.Command{
			Use:     name,
			Short:   "Print the completion script for " + name,
			Example: "  " + load,
			Args:    command.Arguments(),
			RunE:    func(cmd *cobra.Command, _ []string) error { return write(cmd.Root()) },
		}
	}
	return command.Group("completion", "Print a script that completes commands in a shell",
		shell("bash", "source <(wheelwork completion bash)", func(root *cobra.Command) error { return root.GenBashCompletionV2(out, true) }),
		shell("zsh", "source <(wheelwork completion zsh)", func(root *cobra.Command) error { return root.GenZshCompletion(out) }),
		shell("fish", "wheelwork completion fish | source", func(root *cobra.Command) error { return root.GenFishCompletion(out, true) }),
		shell("powershell", "wheelwork completion powershell | Out-String | Invoke-Expression", func(root *cobra.Command) error { return root.GenPowerShellCompletionWithDesc(out) }),
	)
}
