package serve

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

// missing are the reasons why a process must not run on a system without what Unix has.
var missing = map[string]string{
	"dev":        "it could not lock its data directory, nor bound the processes that it starts",
	"server":     "it could not lock its data directory, nor bound the processes that verify uploads",
	"host":       "it could not lock its data directory, nor end the processes that it starts",
	"nameserver": "it could not check that other users cannot read its token",
}

// refuseSystem makes a command refuse to run on a system on which its process cannot hold
// its guarantees. The other commands work there.
func refuseSystem(cmd *cobra.Command, system string) {
	switch system {
	case "linux", "darwin", "freebsd", "netbsd", "openbsd", "dragonfly", "illumos", "solaris", "aix":
		return
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return fmt.Errorf("wheelwork %s does not run on %s: %s; run it on Linux, macOS or FreeBSD, and use the other commands from here", cmd.Name(), system, missing[cmd.Name()])
	}
}

// onlyHere returns the commands, each with [refuseSystem] for this system.
func onlyHere(commands ...*cobra.Command) []*cobra.Command {
	for _, cmd := range commands {
		refuseSystem(cmd, runtime.GOOS)
	}
	return commands
}
