package guest

import "github.com/wheelworkhq/wheelwork/runtime"

// SetInput sets the standard input of a command.
func (c *Call) SetInput(input []byte) { c.stdin = input }

// ReadInput reads from the standard input of a command and returns the number of bytes; 0
// is the end.
func (c *Call) ReadInput(p []byte) int {
	n := copy(p, c.stdin)
	c.stdin = c.stdin[n:]
	c.Work(n)
	return n
}

// WriteOutput appends to the output. It ends the guest when the output exceeds its limit,
// because a truncated output is useless.
func (c *Call) WriteOutput(b []byte) {
	if len(b) > c.outputLimit-len(c.output) {
		c.end(errOutputLimit)
	}
	if c.batch != nil && c.output == nil && len(b) <= smallOutput {
		c.output = c.batch.room(len(b))
	}
	c.output = append(c.output, b...)
}

// Output returns the output that the guest has written.
func (c *Call) Output() []byte { return c.output }

// HasOutput reports whether the guest may write output.
func (c *Call) HasOutput() bool { return c.phase == describing || c.HasTask() }

// WriteLog adds a part of a stream to the log.
func (c *Call) WriteLog(p []byte) {
	c.Work(len(p))
	c.log.Write(runtime.LevelInfo, p)
	c.pace()
}

// LogLines adds whole lines to the log.
func (c *Call) LogLines(level runtime.Level, p []byte) {
	c.log.Flush(runtime.LevelInfo)
	c.log.Write(level, p)
	c.log.Flush(level)
	c.pace()
}

// pace delays a guest that logs faster than its log rate.
func (c *Call) pace() {
	if wait := c.log.wait(); wait > 0 {
		c.Sleep(wait)
	}
}

// SetProgress reports the progress of the task.
func (c *Call) SetProgress(done, total int64, message []byte) { c.progress.set(done, total, message) }

// Fail stores the guest's report, which counts when the handler returns a failure.
func (c *Call) Fail(f Failure) { c.failure = &f }
