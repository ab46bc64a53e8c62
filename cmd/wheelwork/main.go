// Command wheelwork is the whole of Wheelwork in one binary: the servers, the hosts and
// the command line for people and scripts. See docs/cli.md.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == node.GuardWord {
		// The guard ends with the host that started it, and no sooner. So it ignores the
		// signals that a supervisor or a terminal sends to both processes.
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		process.Guard(os.Stdin)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal stops the command gracefully, and a second one ends the process. A
	// second signal within half a second has no effect, because some supervisors send the
	// first signal twice.
	context.AfterFunc(ctx, func() { time.AfterFunc(500*time.Millisecond, stop) })
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}
