package guest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// TestLogOfEachTask reuses one writer for several tasks, as a call does.
func TestLogOfEachTask(t *testing.T) {
	var l logWriter
	for i, limits := range []runtime.Limits{{LogLines: 2}, {LogLines: 2}, {LogLines: 3}, {LogLines: 2}, {LogLines: 2, LogBytes: 9}} {
		sink := &recorder{}
		if i == 2 {
			l.begin(sink, &runtime.Limits{LogLines: 99}) // a task that logs nothing
		}
		l.begin(sink, &limits)
		for range limits.LogLines {
			l.Write(runtime.LevelInfo, []byte("line\n"))
		}
		l.Write(runtime.LevelInfo, []byte("held"))
		want := int(limits.LogLines)
		if limits.LogBytes > 0 {
			want = 2 // a line, and the message that the rest is dropped
		}
		l.Write(runtime.LevelInfo, []byte(" back\n"))
		if limits.LogBytes == 0 {
			want++ // the message about the limit of lines
		}
		if len(sink.lines) != want || sink.lines[0] != "line" || !strings.HasPrefix(sink.lines[want-1], "log limit of") {
			t.Errorf("task %d with %+v logged %q, want %d lines", i, limits, sink.lines, want)
		}
	}
}

// TestProgressOfEachTask checks that a task's first progress is passed on at once.
func TestProgressOfEachTask(t *testing.T) {
	var p progress
	for range 3 {
		sink := &recorder{}
		p.begin(sink)
		p.flush(Now(), true) // nothing is pending
		p.set(1, 2, []byte("first"))
		p.set(2, 2, []byte("held back"))
		if len(sink.progress) != 1 || sink.progress[0] != (step{1, 2, "first"}) {
			t.Errorf("told %v", sink.progress)
		}
	}
}

func TestLongLinesAreCut(t *testing.T) {
	sink := &recorder{}
	var l logWriter
	l.begin(sink, &runtime.Limits{})
	for range 5 {
		l.Write(runtime.LevelInfo, []byte(strings.Repeat("x", maxLine/2+1)))
	}
	l.Write(runtime.LevelInfo, []byte("\n"+strings.Repeat("y", maxLine+3)+"\nend"))
	l.Flush(runtime.LevelInfo)
	var lens []int
	for _, line := range sink.lines {
		lens = append(lens, len(line))
	}
	if want := fmt.Sprint([]int{maxLine, maxLine, maxLine/2 + 5, maxLine, 3, 3}); fmt.Sprint(lens) != want {
		t.Errorf("lengths %v, want %v", lens, want)
	}
}

// TestProgressIsNotHeldBackBySleep reports progress twice in a row and then sleeps. The
// second report must reach the sink before the sleep, not after it.
func TestProgressIsNotHeldBackBySleep(t *testing.T) {
	sink := &recorder{}
	ctx, cancel := context.WithCancel(context.Background())
	c := NewCall(ctx, &runtime.Task{}, sink, newHost())
	if err := c.acquireSlot(); err != nil {
		t.Fatal(err)
	}
	c.progress.set(1, 3, nil)
	c.progress.set(2, 3, nil)
	cancel()
	func() {
		defer func() { recover() }() // the host ends a sleeping guest by a panic
		c.Sleep(time.Hour)
	}()
	if c.cause != errStopped {
		t.Errorf("sleep ended with %v", c.cause)
	}
	if diff := cmp.Diff([]step{{1, 3, ""}, {2, 3, ""}}, sink.progress, cmp.AllowUnexported(step{})); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}
