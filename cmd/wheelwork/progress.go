package main

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/wheelworkhq/wheelwork/sdk"
)

// note prints a message to standard error, separate from the data.
func (c *cli) note(format string, args ...any) {
	fmt.Fprintln(c.err, printable(fmt.Sprintf(format, args...)))
}

// bar is a progress bar on standard error, shown only on terminals.
type bar struct{ shown *progressbar.ProgressBar }

// progress starts a bar for a total in bytes or in pieces.
func (c *cli) progress(total int64, what string, bytes bool) bar {
	if !terminal(c.err) {
		return bar{}
	}
	return bar{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(c.err),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(bytes),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(65*time.Millisecond),
		progressbar.OptionEnableColorCodes(false),
		progressbar.OptionClearOnFinish(),
	)}
}

// reached moves the bar. Errors of drawing do not matter.
func (b bar) reached(n int64) {
	if b.shown != nil {
		_ = b.shown.Set64(n)
	}
}

func (b bar) end() {
	if b.shown != nil {
		_ = b.shown.Finish()
	}
}

// follow shows the state of a run in one line, which it overwrites.
func (c *cli) follow(run *sdk.Run) {
	if !terminal(c.err) {
		return
	}
	line := fmt.Sprintf("%s %s, attempt %d of %d", run.GetId(), run.GetState(), run.GetAttempt(), run.GetMaxAttempts())
	if run.GetParts() > 0 && run.GetParent() == "" {
		line = fmt.Sprintf("%s %s, %d of %d parts have ended", run.GetId(), run.GetState(), run.GetPartsSucceeded()+run.GetPartsFailed(), run.GetParts())
	}
	if p := run.GetProgress(); p != nil {
		line += fmt.Sprintf(", %d", p.GetDone())
		if p.GetTotal() > 0 {
			line += fmt.Sprintf(" of %d", p.GetTotal())
		}
		line += " " + p.GetMessage()
	}
	fmt.Fprintf(c.err, "\r\x1b[K%s", printable(line))
}

// followed removes that line.
func (c *cli) followed() {
	if terminal(c.err) {
		fmt.Fprint(c.err, "\r\x1b[K")
	}
}
