//go:build wasip1

// The conformance handler in Go; see ../README.md for the behaviour in each case.
package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"time"

	"github.com/wheelworkhq/wheelwork/sdk/guest"
)

func init() {
	guest.HandleBatch("main", runCase)
	guest.Handle("second", func(ctx guest.Context) error {
		_, err := ctx.Write([]byte("second"))
		return err
	})
}

func main() {}

var cases = map[string]func(ctx guest.Context) error{
	"echo":     echo,
	"params":   params,
	"checksum": checksum,
	"retryable": func(guest.Context) error {
		return guest.Retryable("busy", 1500*time.Millisecond, errors.New("try later: é"))
	},
	"permanent": func(guest.Context) error { return guest.Permanent("bad_input", errors.New("cannot do that")) },
	"logs":      logs,
	"progress":  progress,
	"cancelled": cancelled,
	"clock":     clock,
	"random":    random,
	"sleep":     sleep,

	"checkpoint": checkpoint,
	"kv":         kv,
	"enqueue":    enqueue,
	"map":        func(ctx guest.Context) error { return ctx.Map([]byte("a"), nil, []byte("ccc")) },
	"secret":     secret,
	"http":       send,
	"metric":     metric,
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
	ctx.Sleep(20 * time.Millisecond)
	_, err := ctx.Write([]byte("slept"))
	return err
}

func checkpoint(ctx guest.Context) error {
	left, err := ctx.Checkpoint()
	if errors.Is(err, guest.ErrNoEntry) {
		if err := ctx.SetCheckpoint([]byte("step 1")); err != nil {
			return err
		}
		return guest.Retryable("again", 0, errors.New("the first attempt stops here"))
	}
	if err != nil {
		return err
	}
	_, err = ctx.Write(left)
	return err
}

// explain writes the host's answer.
func explain(ctx guest.Context, err error) {
	switch {
	case err == nil:
	case errors.Is(err, guest.ErrNoEntry):
		fmt.Fprintln(ctx, "no entry")
	case errors.Is(err, guest.ErrConflict):
		fmt.Fprintln(ctx, "conflict")
	case errors.Is(err, guest.ErrNotGranted):
		fmt.Fprintln(ctx, "not granted")
	default:
		fmt.Fprintln(ctx, "error", err)
	}
}

func kv(ctx guest.Context) error {
	state := ctx.Bucket("state")
	show := func() {
		value, version, err := state.Get("k")
		switch {
		case err != nil:
			explain(ctx, err)
		case version == 0:
			fmt.Fprintf(ctx, "%s without a version\n", value)
		default:
			fmt.Fprintf(ctx, "%s\n", value)
		}
	}
	show()
	first, err := state.Put("k", []byte("one"))
	explain(ctx, err)
	show()
	_, err = state.Swap("k", []byte("two"), first)
	explain(ctx, err)
	_, err = state.Swap("k", []byte("three"), first)
	explain(ctx, err)
	show()
	explain(ctx, state.Delete("k", guest.AnyVersion))
	show()
	_, err = ctx.Bucket("other").Put("k", []byte("x"))
	explain(ctx, err)
	return nil
}

func enqueue(ctx guest.Context) error {
	id, err := ctx.Enqueue(guest.Submit{Job: "next", Input: []byte("hello")})
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(ctx, id)
	return err
}

func secret(ctx guest.Context) error {
	value, err := ctx.Secret("token")
	explain(ctx, err)
	_, err = ctx.Write(value)
	return err
}

func send(ctx guest.Context) error {
	answer, err := ctx.Send(guest.Request{
		Method: "POST", URL: string(ctx.Input()), Header: map[string][]string{"X-Case": {"http"}}, Body: []byte("ping"),
	})
	if err != nil {
		explain(ctx, err)
		return nil
	}
	defer answer.Body.Close()
	fmt.Fprintf(ctx, "{\"status\":%d\n", answer.Status)
	_, err = io.Copy(ctx, answer.Body)
	return err
}

func metric(ctx guest.Context) error {
	return errors.Join(ctx.Count("orders", 2.5), ctx.Gauge("load", 0.25), ctx.Record("size", 7))
}
