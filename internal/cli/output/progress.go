package output

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Bar is a progress bar on standard error, shown only on terminals.
type Bar struct{ shown *progressbar.ProgressBar }

// Progress starts a bar for a total in bytes or in pieces.
func (p *Printer) Progress(total int64, what string, bytes bool) Bar {
	if !IsTerminal(p.Err) {
		return Bar{}
	}
	return Bar{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(p.Err),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(bytes),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionThrottle(65*time.Millisecond),
		progressbar.OptionEnableColorCodes(false),
		progressbar.OptionClearOnFinish(),
	)}
}

// Reached moves the bar. Errors of drawing do not matter.
func (b Bar) Reached(n int64) {
	if b.shown != nil {
		_ = b.shown.Set64(n)
	}
}

// End removes the bar.
func (b Bar) End() {
	if b.shown != nil {
		_ = b.shown.Finish()
	}
}

// Transfer is a progress bar in bytes that starts when the total is known.
type Transfer struct {
	printer *Printer
	what    string
	bar     Bar
}

// Transfer returns a bar that the first call of Reached starts.
func (p *Printer) Transfer(what string) *Transfer {
	return &Transfer{printer: p, what: what}
}

// Reached moves the bar, and ends it at the total.
func (t *Transfer) Reached(done, total int64) {
	if t.bar.shown == nil {
		t.bar = t.printer.Progress(total, t.what, true)
	}
	t.bar.Reached(done)
	if done >= total {
		t.bar.End()
	}
}

// End removes the bar.
func (t *Transfer) End() { t.bar.End() }

// Status shows a line on standard error that the next one overwrites, only on terminals.
func (p *Printer) Status(line string) {
	if IsTerminal(p.Err) {
		fmt.Fprintf(p.Err, "\r\x1b[K%s", Printable(line))
	}
}

// ClearStatus removes the line of Status.
func (p *Printer) ClearStatus() {
	if IsTerminal(p.Err) {
		fmt.Fprint(p.Err, "\r\x1b[K")
	}
}
