package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/wheelworkhq/wheelwork/internal/version"
)

// Exit codes. Other tools rely on them.
const (
	exitOK    = 0
	exitFail  = 1 // refused, or a run that did not succeed
	exitUsage = 2
)

// cli is one invocation, with its input, outputs and global flags.
type cli struct {
	in       io.Reader
	out, err io.Writer
	getenv   func(string) string

	url, token, ca, app string
	format              string // one of formats
	color               string // auto, always or never
	timeout             time.Duration
}

// run executes one command line and returns the exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer, getenv func(string) string) int {
	c := &cli{in: in, out: out, err: errOut, getenv: getenv}
	root := c.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	if err := root.ExecuteContext(ctx); err != nil {
		// A wrong flag stops the parser, possibly before it reaches the flag for JSON.
		if slices.ContainsFunc(formats()[1:3], func(f string) bool { return asksFor(args, f) }) {
			c.format = formatJSON
		}
		return c.report(err)
	}
	return exitOK
}

// asksFor reports whether a command line selects this output format.
func asksFor(args []string, form string) bool {
	for i, arg := range args {
		switch {
		case arg == "-o"+form, arg == "-o="+form, arg == "--output="+form:
			return true
		case i > 0 && arg == form && (args[i-1] == "-o" || args[i-1] == "--output"):
			return true
		}
	}
	return false
}

func (c *cli) root() *cobra.Command {
	root := group("wheelwork", "Run jobs written in any language, on a schedule, on any number of machines",
		c.devCommand(), c.serverCommand(), c.nameserverCommand(), c.hostCommand(),
		c.appCommand(), c.moduleCommand(), c.pluginCommand(), c.jobCommand(), c.runCommand(), c.calendarCommand(), c.kvCommand(), c.secretCommand(), c.mqCommand(), c.cronCommand(), c.storeCommand(), c.backupCommand(), c.restoreCommand(), c.clusterCommand(), c.tokenCommand(), c.versionCommand(), c.completionCommand(), c.verifierCommand(),
	)
	root.Long = root.Short + `.

Start everything on this machine with "wheelwork dev". The other commands talk
to a server: name it with --url and --token, or with WHEELWORK_URL and
WHEELWORK_TOKEN. Data goes to standard output, everything else to standard error.

Exit codes: 0 done, 1 refused or a run that did not succeed, 2 wrong usage.`
	root.Version = version.String()
	root.SetVersionTemplate("wheelwork {{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usage(cmd, "%s", flagText(err)) })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return c.checkGlobals(cmd) }

	env := func(name, fallback string) string {
		if v := c.getenv(name); v != "" {
			return v
		}
		return fallback
	}
	flags := root.PersistentFlags()
	flags.StringVar(&c.url, "url", env("WHEELWORK_URL", defaultURL), "address of the server, or WHEELWORK_URL")
	flags.StringVar(&c.token, "token", "", "what the server knows you by, or WHEELWORK_TOKEN") // help would print a default
	flags.StringVar(&c.ca, "ca-cert", env("WHEELWORK_CA_CERT", ""), "PEM `file` with the authority that signed the server's certificate, or WHEELWORK_CA_CERT (default the system's)")
	flags.StringVar(&c.app, "app", env("WHEELWORK_APP", "default"), "the app that jobs, runs and modules belong to, or WHEELWORK_APP")
	flags.StringVarP(&c.format, "output", "o", formatTable, "`form` of the output: "+strings.Join(formats(), ", "))
	flags.StringVar(&c.color, "color", "auto", "colours: auto, always, never; NO_COLOR turns auto off")
	flags.DurationVar(&c.timeout, "timeout", 0, "give up after this long, as 30s or 5m (default 30s for calls, none for what waits)")
	complete(root, "output", formats()...)
	complete(root, "color", "auto", "always", "never")
	return root
}

func (c *cli) checkGlobals(cmd *cobra.Command) error {
	if !slices.Contains(formats(), c.format) {
		return usage(cmd, "there is no output form %q: want one of %s", c.format, strings.Join(formats(), ", "))
	}
	if !slices.Contains([]string{"auto", "always", "never"}, c.color) {
		return usage(cmd, "--color %q: want auto, always or never", c.color)
	}
	if c.timeout < 0 {
		return usage(cmd, "--timeout %v: want a positive duration", c.timeout)
	}
	if c.token == "" {
		c.token = c.getenv("WHEELWORK_TOKEN")
	}
	return nil
}

// group returns a command that only contains other commands.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, SuggestionsMinimumDistance: 2}
	g.AddCommand(commands...)
	g.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return unknownCommand(cmd, args[0])
		case !cmd.HasParent():
			return cmd.Help()
		}
		var names []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
		}
		return usage(cmd, "%s needs a command: %s", cmd.CommandPath(), strings.Join(names, ", "))
	}
	return g
}

func unknownCommand(cmd *cobra.Command, name string) error {
	if near := cmd.SuggestionsFor(name); len(near) > 0 {
		// People mistype the middle and the end of a word more often than its beginning.
		slices.SortStableFunc(near, func(a, b string) int { return commonPrefix(b, name) - commonPrefix(a, name) })
		return usage(cmd, "there is no command %q: did you mean %q?", cmd.CommandPath()+" "+name, cmd.CommandPath()+" "+near[0])
	}
	return usage(cmd, "there is no command %q", cmd.CommandPath()+" "+name)
}

func commonPrefix(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// arguments requires exactly the named arguments; a last name that ends in "..." stands
// for one or more.
func arguments(names ...string) cobra.PositionalArgs {
	more := len(names) > 0 && strings.HasSuffix(names[len(names)-1], "...")
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage(cmd, "%s is missing", names[len(args)])
		case len(args) > len(names) && !more:
			return usage(cmd, "unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// flagText rewrites the error of a flag for people. The errors for durations come from
// Go's package time and do not explain units.
func flagText(err error) string {
	if before, _, ok := strings.Cut(err.Error(), ": time: "); ok {
		return before + ": want a number with its unit, as 500ms, 30s or 5m"
	}
	return err.Error()
}

// complete sets the values of a flag for completion in the shell.
func complete(cmd *cobra.Command, flag string, values ...string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(fmt.Sprintf("complete --%s of %s: %v", flag, cmd.Name(), err)) // the flag is misspelt in this program
	}
}
