package process

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/runtime"
)

// cut returns the lines that Lines emits when the parts are written one after another.
func cut(parts ...string) []string {
	var got []string
	l := Lines{Emit: func(line []byte) { got = append(got, string(line)) }}
	for _, p := range parts {
		if n, err := l.Write([]byte(p)); n != len(p) || err != nil {
			got = append(got, fmt.Sprintf("wrote %d, %v", n, err))
		}
	}
	l.Flush()
	return got
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	for _, tt := range []struct{ parts, want []string }{
		{nil, nil},
		{[]string{"a\nb"}, []string{"a", "b"}},
		{[]string{"a", "b\n", "\n\n", "c\r\n"}, []string{"ab", "c"}},
		{[]string{long + "y\nz\n"}, []string{long, "y", "z"}},
		{[]string{long + "\nz"}, []string{long, "z"}},
		{[]string{long[:10], long + long}, []string{long, long, long[:10]}},
	} {
		if got := cut(tt.parts...); !slices.Equal(got, tt.want) {
			t.Errorf("%.40q: got %.60q", tt.parts, got)
		}
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\r\n\nc"), 3)
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		if at < 0 || at > len(data) {
			at = len(data) / 2
		}
		var want []string
		for _, line := range bytes.Split(data, []byte("\n")) {
			for len(line) >= MaxLine {
				want = append(want, string(bytes.TrimSuffix(line[:MaxLine], []byte("\r"))))
				line = line[MaxLine:]
			}
			if line = bytes.TrimSuffix(line, []byte("\r")); len(line) > 0 {
				want = append(want, string(line))
			}
		}
		if got := cut(string(data[:at]), string(data[at:])); !slices.Equal(got, want) {
			t.Errorf("%q cut at %d: got %q, want %q", data, at, got, want)
		}
	})
}

// kept is a sink that records lines.
type kept []string

func (k *kept) Log(level runtime.Level, line []byte) {
	*k = append(*k, fmt.Sprintf("%d %s", level, line))
}
func (*kept) Progress(int64, int64, string) {}

func TestBudget(t *testing.T) {
	var got kept
	b := NewBudget(10)
	for _, line := range []string{"1234", "5678", "", "9"} {
		b.Log(&got, runtime.LevelInfo, []byte(line))
	}
	want := []string{"1 1234", "1 5678", "2 log limit of 10 bytes reached: the rest is dropped"}
	if !slices.Equal(got, want) || !b.Full() {
		t.Errorf("got %q", got)
	}
	var unset Budget
	got = nil
	unset.Log(&got, runtime.LevelInfo, make([]byte, defaultLogBytes-1))
	unset.Log(&got, runtime.LevelInfo, nil)
	if len(got) != 2 || !unset.Full() {
		t.Errorf("the default is not 1 MiB: %d lines", len(got))
	}
}

func TestLastWords(t *testing.T) {
	for _, tt := range []struct {
		lines []string
		want  string
	}{
		{nil, ""},
		{[]string{"one", "two", "  "}, "two"},
		{[]string{"one", "panic: boom", "goroutine 1"}, "panic: boom"},
		{[]string{"bad \xff byte"}, "bad \uFFFD byte"},
		{[]string{strings.Repeat("y", 2*maxWords)}, strings.Repeat("y", maxWords)},
	} {
		var w LastWords
		for _, line := range tt.lines {
			w.Note([]byte(line))
		}
		if w.String() != tt.want {
			t.Errorf("%.40q: got %.40q", tt.lines, w.String())
		}
	}
}
