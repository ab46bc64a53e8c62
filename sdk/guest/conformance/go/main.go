//go:build wasip1

// The conformance handler in Go; see ../README.md for what each case does.
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk/guest"
)

func init() {
	guest.Handle("main", runCase)
	guest.Handle("second", func(ctx guest.Context) error {
		_, err := ctx.Write([]byte("second"))
		return err
	})
}

func main() {}

var cases = map[string]func(ctx guest.Context) error{
	"echo":      echo,
	"params":    params,
	"checksum":  checksum,
	"retryable": func(guest.Context) error { return guest.Retryable("busy", 1500*time.Millisecond, errors.New("try later: é")) },
	"permanent": func(guest.Context) error { return guest.Permanent("bad_input", errors.New("cannot do that")) },
	"logs":      logs,
	"progress":  progress,
	"cancelled": cancelled,
	"clock":     clock,
	"random":    random,
	"sleep":     sleep,
}

func runCase(ctx guest.Context) error {
	name, ok := ctx.Param("CASE")
	if !ok {
		name = "echo"
	}
	run, ok := cases[name]
	if !ok {
		return guest.Permanent("no_case", errors.New(name))
	}
	return run(ctx)
}

func echo(ctx guest.Context) error {
	_, err := ctx.Write(ctx.Input())
	return err
}

func params(ctx guest.Context) error {
	for _, key := range []string{"run_id", "app", "job", "attempt", "max_attempts", "GREETING", "LONG", "missing"} {
		if value, ok := ctx.Param(key); ok {
			fmt.Fprintf(ctx, "%s=%s\n", key, value)
		} else {
			fmt.Fprintf(ctx, "%s!\n", key)
		}
	}
	return nil
}

func checksum(ctx guest.Context) error {
	h := fnv.New32a()
	h.Write(ctx.Input())
	_, err := fmt.Fprintf(ctx, "%08x", h.Sum32())
	return err
}

func logs(ctx guest.Context) error {
	ctx.Log().Debug("fine")
	ctx.Logf("one\ntwo")
	ctx.Log().Warn("beware: ünï")
	ctx.Log().Error("漢字")
	return nil
}

func progress(ctx guest.Context) error {
	ctx.Progress(1, 4, "one of four")
	ctx.Progress(4, 4, "all ✓")
	return nil
}

func cancelled(ctx guest.Context) error {
	ctx.Logf("waiting")
	for !ctx.Cancelled() {
	}
	return guest.ErrCancelled
}

func clock(ctx guest.Context) error {
	_, err := fmt.Fprintf(ctx, "%d", ctx.Now().UnixMilli())
	return err
}

func random(ctx guest.Context) error {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return err
	}
	_, err := fmt.Fprintf(ctx, "%x", b)
	return err
}

func sleep(ctx guest.Context) error {
	time.Sleep(20 * time.Millisecond)
	_, err := ctx.Write([]byte("slept"))
	return err
}
