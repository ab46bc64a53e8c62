package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// TypeSecret asks a person for a text without showing it. ok is false if standard input is no terminal.
func TypeSecret(cmd *cobra.Command, question string) (text string, ok bool, err error) {
	tty, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(tty.Fd())) {
		return "", false, nil
	}
	before, err := term.MakeRaw(int(tty.Fd()))
	if err != nil {
		return "", true, fmt.Errorf("read without echo: %w", err)
	}
	defer term.Restore(int(tty.Fd()), before) //nolint:errcheck // the shell restores it too
	screen := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{tty, cmd.ErrOrStderr()}, "")
	// In raw mode the terminal turns Ctrl-C into a byte, at which ReadPassword returns io.EOF.
	text, err = Ask(cmd.Context(), func() (string, error) { return screen.ReadPassword(question + ": ") })
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		fmt.Fprint(cmd.ErrOrStderr(), "\r\n") //nolint:errcheck // it ends the line of the question
		return "", true, context.Canceled
	}
	return text, true, err
}

// Secrets reads texts that must not be shown: from a person, or one line each from standard input.
type Secrets struct {
	cmd   *cobra.Command
	lines *bufio.Reader
}

// NewSecrets returns a reader of secrets.
func NewSecrets(cmd *cobra.Command) *Secrets {
	return &Secrets{cmd, bufio.NewReader(io.LimitReader(cmd.InOrStdin(), 64<<10))}
}

// Next returns the next text. question is for a person.
func (s *Secrets) Next(question string) (string, error) {
	if text, ok, err := TypeSecret(s.cmd, question); ok {
		return text, err
	}
	line, err := s.lines.ReadString('\n')
	if err != nil && line == "" {
		if errors.Is(err, io.EOF) {
			return "", Fail("canceled", "%s: standard input has no further line", question)
		}
		return "", fmt.Errorf("%s: %w", question, err)
	}
	for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
		line = line[:len(line)-1]
	}
	return line, nil
}
