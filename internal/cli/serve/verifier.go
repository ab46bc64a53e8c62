package serve

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/verifier"
	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/runtime/wasm"
)

// verifierName is the hidden command that a server starts to verify an upload.
const verifierName = "upload-gate"

// verifierConfig returns the command line that starts this program as the upload verifier of a
// server.
func verifierConfig(limits wasm.UploadLimits, mode node.Sandbox) verifier.Config {
	exe, err := os.Executable()
	if err != nil {
		exe = os.Args[0]
	}
	return verifier.Config{Command: []string{exe, verifierName}, Limits: limits, Sandbox: mode}
}

// addUploads adds the flags with the limits of an upload. The returned function reads them. The
// bounds of the verifier's time and memory are fixed, so larger limits cannot make an upload
// more costly than those.
func addUploads(cmd *cobra.Command, limits *wasm.UploadLimits) func(*cobra.Command) error {
	flags, most, usual := cmd.Flags(), wasm.MaxUploadLimits(), wasm.DefaultUploadLimits()
	size := flags.String("upload-size", "64MiB", "largest module that may be uploaded, as `SIZE`")
	body := flags.String("upload-body", "4MiB", "largest function of a module, as `SIZE`")
	flags.IntVar(&limits.Functions, "upload-functions", usual.Functions, "`number` of functions that a module may have")
	flags.IntVar(&limits.Locals, "upload-locals", usual.Locals, "`number` of locals that one function may have")
	return func(cmd *cobra.Command) error {
		for _, s := range []struct {
			flag, text string
			to         *int64
			most       int64
		}{{"upload-size", *size, &limits.ModuleBytes, most.ModuleBytes}, {"upload-body", *body, &limits.BodyBytes, most.BodyBytes}} {
			n, err := command.Size(s.text)
			if err != nil || n > s.most {
				return command.Usage(cmd, "--%s %q: want a size of at most %dMiB, which hosts accept", s.flag, s.text, s.most>>20)
			}
			*s.to = n
		}
		for _, n := range []struct {
			flag       string
			have, most int
		}{{"upload-functions", limits.Functions, most.Functions}, {"upload-locals", limits.Locals, most.Locals}} {
			if n.have < 1 || n.have > n.most {
				return command.Usage(cmd, "--%s %d: want 1 to %d, which hosts accept", n.flag, n.have, n.most)
			}
		}
		return nil
	}
}

func verifierCommand() *cobra.Command {
	return &cobra.Command{
		Use:    verifierName,
		Short:  "Verify an upload; a server starts this command itself",
		Hidden: true,
		Args:   command.Arguments(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return verifier.Child(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), os.NewFile(3, "alive"))
		},
	}
}
