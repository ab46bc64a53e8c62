package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/wheelworkhq/wheelwork/node"
	"github.com/wheelworkhq/wheelwork/runtime/process"
)

// Main executes the command line of the process and returns its exit code.
func Main() int {
	if len(os.Args) == 2 && os.Args[1] == node.GuardWord {
		// The guard ends with the host that started it, and no sooner. So it ignores the
		// signals that a supervisor or a terminal sends to both processes.
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		process.Guard(os.Stdin)
		return exitOK
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal stops the command gracefully, and a second one ends the process. A
	// second signal within half a second has no effect, because some supervisors send the
	// first signal twice.
	context.AfterFunc(ctx, func() { time.AfterFunc(500*time.Millisecond, stop) })
	return execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv)
}
