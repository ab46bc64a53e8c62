// Command wheelwork is the whole of Wheelwork in one binary: the servers, the
// hosts and the command line that people and scripts use. See docs/cli.md.
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
		// It ends with the host that started it, and no sooner: not with the signals
		// that a supervisor or a terminal sends to both.
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		process.Guard(os.Stdin)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the command in order. A second ends the process, but
	// not within half a second: some supervisors send the first one twice.
	context.AfterFunc(ctx, func() { time.AfterFunc(500*time.Millisecond, stop) })
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}
