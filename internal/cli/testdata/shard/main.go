// Shard counts its share of the lines of its input: every N-th line in a run with N
// parts. It fails if one of them is "bad".
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
)

func main() {
	number := func(name string) int {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			os.Exit(65)
		}
		return n
	}
	part, parts, planned := number("WHEELWORK_PART"), max(number("WHEELWORK_PARTS"), 1), number("WHEELWORK_PLANNED_AT_MS")
	mine := 0
	for lines, n := bufio.NewScanner(os.Stdin), 0; lines.Scan(); n++ {
		if n%parts != part {
			continue
		}
		if mine++; lines.Text() == "bad" {
			fmt.Fprintln(os.Stderr, "line", n, "is bad")
			os.Exit(65)
		}
	}
	fmt.Printf("part %d of %d planned %d: %d lines\n", part, parts, planned, mine)
}
