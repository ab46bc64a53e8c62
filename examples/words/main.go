//go:build wasip1

// Words counts words by map and reduce. Its first part splits the input into lines and
// maps them. Each further part counts the words of one line. The last part adds the
// counts, updates the total in the bucket "words" and enqueues a run of the job
// "words-report", which reads a secret.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/wheelworkhq/wheelwork/sdk/guest"
)

func init() {
	guest.Handle("main", count)
	guest.Handle("sum", sum)
	guest.Handle("report", report)
	guest.Describe(`{
		"handlers": [{"name": "main"}, {"name": "sum"}, {"name": "report"}],
		"capabilities": {"kv": ["words"], "secrets": ["words-token"], "enqueue": ["words-report"]}
	}`)
}

func main() {}

// count is the handler of all parts except the last.
func count(ctx guest.Context) error {
	role, _ := ctx.Param("role")
	if role != "root" {
		_, err := fmt.Fprint(ctx, len(strings.Fields(string(ctx.Input()))))
		return err
	}
	var lines [][]byte
	for line := range bytes.Lines(ctx.Input()) {
		lines = append(lines, bytes.TrimSpace(line))
	}
	ctx.Logf("mapping %d lines", len(lines))
	return ctx.Map(lines...)
}

// sum is the handler of the part that reduces. Its input has a line of JSON for each
// earlier part.
func sum(ctx guest.Context) error {
	// The checkpoint says that an earlier attempt has updated the total. An attempt that
	// ends between the two writes adds to the total twice.
	out, err := ctx.Checkpoint()
	if errors.Is(err, guest.ErrNoEntry) {
		out, err = update(ctx)
	}
	if err != nil {
		return err
	}
	// A repeated attempt gets the run that the first one has enqueued.
	if _, err := ctx.Enqueue(guest.Submit{Job: "words-report", Input: out}); err != nil {
		return err
	}
	_, err = ctx.Write(out)
	return err
}

// update adds the counts to the total and returns a line about them.
func update(ctx guest.Context) ([]byte, error) {
	total, lines, err := add(ctx.Input())
	if err != nil {
		return nil, guest.Permanent("bad_input", err)
	}
	if err := keep(ctx.Bucket("words"), total); err != nil {
		return nil, err
	}
	out := fmt.Appendf(nil, "%d words in %d lines\n", total, lines)
	return out, ctx.SetCheckpoint(out)
}

func add(input []byte) (total, lines int, err error) {
	scan := bufio.NewScanner(bytes.NewReader(input))
	scan.Buffer(nil, len(input)+1)
	for scan.Scan() {
		var part struct {
			Part   int    `json:"part"`
			Output string `json:"output"`
		}
		if err := json.Unmarshal(scan.Bytes(), &part); err != nil {
			return 0, 0, err
		}
		if part.Part == 0 { // the part that mapped the others
			continue
		}
		n, err := strconv.Atoi(part.Output)
		if err != nil {
			return 0, 0, fmt.Errorf("part %d: %w", part.Part, err)
		}
		total += n
		lines++
	}
	return total, lines, scan.Err()
}

// keep adds n to the total of all runs by compare-and-swap. If another run changed the
// total meanwhile, it reads the new total and tries again.
func keep(words guest.Bucket, n int) error {
	for {
		total := 0
		value, version, err := words.Get("total")
		if err == nil {
			total, err = strconv.Atoi(string(value))
		} else if errors.Is(err, guest.ErrNoEntry) {
			version, err = 0, nil
		}
		if err != nil {
			return err
		}
		_, err = words.Swap("total", strconv.AppendInt(nil, int64(total+n), 10), version)
		if !errors.Is(err, guest.ErrConflict) {
			return err
		}
	}
}

// report logs its input and the secret.
func report(ctx guest.Context) error {
	token, err := ctx.Secret("words-token")
	if err != nil {
		return guest.Permanent("no_token", err)
	}
	ctx.Logf("reporting %s with the token %s", bytes.TrimSpace(ctx.Input()), token)
	_, err = ctx.Write(ctx.Input())
	return err
}
