package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/cli/access"
	"github.com/wheelworkhq/wheelwork/internal/cli/alert"
	"github.com/wheelworkhq/wheelwork/internal/cli/app"
	"github.com/wheelworkhq/wheelwork/internal/cli/backup"
	"github.com/wheelworkhq/wheelwork/internal/cli/bridge"
	"github.com/wheelworkhq/wheelwork/internal/cli/cluster"
	"github.com/wheelworkhq/wheelwork/internal/cli/command"
	"github.com/wheelworkhq/wheelwork/internal/cli/config"
	"github.com/wheelworkhq/wheelwork/internal/cli/connect"
	"github.com/wheelworkhq/wheelwork/internal/cli/cron"
	"github.com/wheelworkhq/wheelwork/internal/cli/definition"
	"github.com/wheelworkhq/wheelwork/internal/cli/describe"
	"github.com/wheelworkhq/wheelwork/internal/cli/event"
	"github.com/wheelworkhq/wheelwork/internal/cli/failure"
	"github.com/wheelworkhq/wheelwork/internal/cli/job"
	"github.com/wheelworkhq/wheelwork/internal/cli/migrate"
	"github.com/wheelworkhq/wheelwork/internal/cli/module"
	"github.com/wheelworkhq/wheelwork/internal/cli/mq"
	"github.com/wheelworkhq/wheelwork/internal/cli/operation"
	"github.com/wheelworkhq/wheelwork/internal/cli/output"
	"github.com/wheelworkhq/wheelwork/internal/cli/run"
	"github.com/wheelworkhq/wheelwork/internal/cli/serve"
	"github.com/wheelworkhq/wheelwork/internal/cli/setup"
	"github.com/wheelworkhq/wheelwork/internal/cli/store"
	"github.com/wheelworkhq/wheelwork/internal/version"
)

// Exit codes. Other tools rely on them.
const (
	exitOK                = 0
	exitFail              = 1 // refused, or a run that did not succeed
	exitUsage             = 2
	exitDiffers           = 2  // of a command that compares
	exitUsageOfComparison = 64 // of such a command
)

// invocation is one command line, with its global flags.
type invocation struct {
	root    *cobra.Command
	printer *output.Printer
	server  *connect.Server
}

// execute executes one command line and returns the exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer, getenv func(string) string) int {
	i := newInvocation(args, in, out, errOut, getenv)
	if cmd, err := i.root.ExecuteContextC(ctx); err != nil {
		if errors.Is(err, command.ErrDiffers) {
			return exitDiffers
		}
		// A wrong flag stops the parser, possibly before it reaches the flag for JSON.
		if output.AsksForJSON(args) {
			i.printer.Format = output.JSON
		}
		code := i.report(err)
		if code == exitUsage && command.ComparesBy(cmd) {
			return exitUsageOfComparison
		}
		return code
	}
	return exitOK
}

func newInvocation(args []string, in io.Reader, out, errOut io.Writer, getenv func(string) string) *invocation {
	root := command.Group("wheelwork", "Run jobs written in any language, on a schedule, on any number of machines")
	root.Long = root.Short + `.

Start everything on this machine with "wheelwork dev". The other commands talk
to a server: name it with --url and --token, with WHEELWORK_URL and WHEELWORK_TOKEN,
or once with "wheelwork context set". Data goes to standard output, everything else to standard error.

Exit codes: 0 done, 1 refused or a run that did not succeed, 2 wrong usage.`
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	root.Version = version.Line()
	root.SetVersionTemplate("wheelwork {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(command.FlagError)

	i := &invocation{root: root, printer: output.New(root, getenv), server: connect.New(root, getenv)}
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := i.printer.Check(cmd); err != nil {
			return err
		}
		return i.server.Check(cmd)
	}
	root.AddCommand(serve.Commands(i.printer, i.server, config.Environment{Get: getenv, Names: variableNames(), Args: args})...)
	root.AddCommand(app.Commands(i.printer, i.server)...)
	root.AddCommand(definition.Commands(i.printer, i.server, getenv)...)
	root.AddCommand(setup.Commands(i.printer, i.server)...)
	root.AddCommand(describe.Commands(i.printer)...)
	root.AddCommand(backup.Commands(i.printer, i.server)...)
	root.AddCommand(access.Commands(i.printer, i.server)...)
	root.AddCommand(
		alert.Command(i.printer, i.server),
		event.Command(i.printer, i.server, getenv),
		job.Command(i.printer, i.server),
		run.Command(i.printer, i.server),
		failure.Command(i.printer, i.server),
		operation.Command(i.printer, i.server),
		migrate.Command(i.printer, getenv),
		module.Command(i.printer, i.server, getenv),
		mq.Command(i.printer, i.server),
		cluster.Command(i.printer, i.server),
		bridge.Command(i.printer, i.server),
		store.Command(i.printer),
		cron.Command(i.printer),
		healthCommand(i.printer, i.server),
		versionCommand(i.printer),
		completionCommand(out),
	)
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Long = "Print the help of a command, as --help after the command does."
			cmd.Run, cmd.RunE = nil, help
		}
	}
	return i
}

// help prints the help of the command that the arguments name.
func help(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return command.Unknown(found, rest[0])
	}
	return found.Help()
}

// variableNames returns the names of the variables of this process.
func variableNames() []string {
	var names []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		names = append(names, name)
	}
	return names
}

// report prints an error and returns the exit code.
func (i *invocation) report(err error) int {
	code, message := i.server.Explain(err)
	p := i.printer
	if p.Format == output.JSON || p.Format == output.JSONL {
		line, _ := json.Marshal(map[string]string{"code": code, "message": message}) // two strings always encode
		fmt.Fprintf(p.Err, "%s\n", line)
	} else {
		fmt.Fprintf(p.Err, "%s %s\n", p.Paint(p.Err, output.Red, "wheelwork:"), output.Printable(message))
	}
	if code == command.CodeUsage {
		return exitUsage
	}
	return exitFail
}
