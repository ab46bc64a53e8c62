package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// Input returns the input that an argument stands for: a text, @FILE, or @- for standard
// input. It never returns nil, because an empty input differs from none.
func Input(cmd *cobra.Command, arg string) ([]byte, error) {
	name, isFile := strings.CutPrefix(arg, "@")
	var input []byte
	var err error
	switch {
	case !isFile:
		input = []byte(arg)
	case name == "-":
		input, err = io.ReadAll(cmd.InOrStdin())
	default:
		input, err = os.ReadFile(name)
	}
	if err != nil {
		return nil, fmt.Errorf("read --input: %w", err)
	}
	return slices.Concat([]byte{}, input), nil
}

// Confirm asks a person before a change that cannot be undone. Without the answer "yes" it
// returns an error.
func Confirm(cmd *cobra.Command, question string) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s? Type yes to go on: ", question)
	in := bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 1<<10))
	answer, err := Ask(cmd.Context(), func() (string, error) { return in.ReadString('\n') })
	if strings.TrimSpace(answer) == "yes" {
		return nil
	}
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr()) // the input ended without a line break
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return Fail("canceled", "nothing was done: answer yes, or pass --yes in a script")
}

// Ask calls read, which waits for a line that a person types, and returns early when ctx
// ends. The read itself then lasts until the input or the process ends.
func Ask(ctx context.Context, read func() (string, error)) (string, error) {
	type line struct {
		text string
		err  error
	}
	typed := make(chan line, 1)
	go func() {
		text, err := read()
		typed <- line{text, err}
	}()
	select {
	case l := <-typed:
		return l.text, l.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Size parses a size in the notation of people: a number of bytes, KiB, MiB or GiB.
func Size(text string) (int64, error) {
	n := strings.TrimSpace(text)
	unit := 1.0
	for _, u := range []struct {
		suffix string
		bytes  float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}} {
		if rest, ok := strings.CutSuffix(n, u.suffix); ok {
			n, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(n, 64)
	if err != nil || !(v > 0) || v*unit > math.MaxInt64/2 {
		return 0, errors.New("want a size, as 512KiB, 64MiB or 1GiB")
	}
	return int64(v * unit), nil
}
