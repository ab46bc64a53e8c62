// Command wheelwork is the whole of Wheelwork in one binary: the servers, the hosts and
// the command line for people and scripts. See docs/cli.md.
package main

import (
	"os"

	"github.com/wheelworkhq/wheelwork/internal/cli"
)

func main() { os.Exit(cli.Main()) }
