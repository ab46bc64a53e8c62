//go:build wasip1

// Progress is a handler that works through a number of steps, logs them and reports
// progress. The input is the number of steps, 10 by default. The job's environment may
// set STEP_MS, the time of one step in milliseconds.
package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk/guest"
)

const (
	defaultSteps = 10
	maxSteps     = 1_000_000
)

func init() { guest.Handle("main", work) }

func main() {}

func work(ctx guest.Context) error {
	steps, err := parseSteps(string(ctx.Input()))
	if err != nil {
		return guest.Permanent("bad_input", err)
	}
	pause := stepTime(ctx)
	attempt, _ := ctx.Param("attempt")
	ctx.Log().Info("starting", "steps", steps, "attempt", attempt)
	for i := range steps {
		if ctx.Cancelled() {
			ctx.Log().Warn("stopping early", "done", i)
			return guest.ErrCancelled
		}
		ctx.Progress(int64(i), int64(steps), fmt.Sprintf("step %d of %d", i+1, steps))
		time.Sleep(pause)
		ctx.Log().Debug("step done", "step", i+1)
	}
	ctx.Progress(int64(steps), int64(steps), "all steps done")
	ctx.Log().Info("done")
	_, err = fmt.Fprintf(ctx, "%d steps done\n", steps)
	return err
}

func parseSteps(input string) (int, error) {
	input = strings.TrimSpace(input)
	if input == "" {
		return defaultSteps, nil
	}
	n, err := strconv.Atoi(input)
	if err != nil || n < 0 || n > maxSteps {
		return 0, fmt.Errorf("the input must be a number of steps from 0 to %d, not %.40q", maxSteps, input)
	}
	return n, nil
}

// stepTime reads STEP_MS; without it a step takes no time.
func stepTime(ctx guest.Context) time.Duration {
	text, _ := ctx.Param("STEP_MS")
	ms, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}
