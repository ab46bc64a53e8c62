package command

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{"512": 512, "512B": 512, "1.5KiB": 1536, " 64 MiB ": 64 << 20, "1GiB": 1 << 30, "0": 0, "-1KiB": 0, "1TiB": 0, "NaN": 0, "1e300GiB": 0, "": 0} {
		if got, err := Size(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("Size(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

// TestConfirm: only the word yes confirms, and the question goes to standard error.
func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"yes\n": true, " yes \n": true, "yes": true, "y\n": false, "no\n": false, "": false} {
		var out, errOut strings.Builder
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		cmd.SetIn(strings.NewReader(answer))
		cmd.SetOut(&out)
		cmd.SetErr(&errOut)
		err := Confirm(cmd, "Delete it")
		var failure *Failure
		if (err == nil) != want || err != nil && (!errors.As(err, &failure) || failure.Code != "canceled") {
			t.Errorf("the answer %q: %v, want confirmed %v", answer, err, want)
		}
		if !strings.HasPrefix(errOut.String(), "Delete it? Type yes to go on: ") || out.Len() > 0 {
			t.Errorf("the answer %q: standard error %q, standard output %q", answer, errOut.String(), out.String())
		}
	}
}

// TestConfirmInterrupted interrupts a question that gets no answer.
func TestConfirmInterrupted(t *testing.T) {
	in, typing := io.Pipe()
	defer typing.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	asked := writerFunc(func(p []byte) (int, error) {
		interrupt()
		return len(p), nil
	})
	cmd := &cobra.Command{}
	cmd.SetContext(ctx)
	cmd.SetIn(in)
	cmd.SetErr(asked)
	if err := Confirm(cmd, "Delete it"); !errors.Is(err, context.Canceled) {
		t.Errorf("the interrupted question: %v, want %v", err, context.Canceled)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
