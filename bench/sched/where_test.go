package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

func TestStageOf(t *testing.T) {
	const room = "github.com/wheelworkhq/wheelwork/"
	for _, c := range []struct {
		want      string
		functions []string // the innermost first
	}{
		{"accept", []string{"runtime.mallocgc", room + "job.(*Slot).accept", room + "sched.(*loop).accept", room + "sched.(*loop).produce", room + "sched.(*loop).run"}},
		{"collect", []string{"runtime.scanobject", "runtime.gcAssistAlloc", "runtime.mallocgc", room + "sched.(*loop).produce", room + "sched.(*loop).run"}},
		{"end", []string{room + "sched.(*finished).add", room + "sched.(*loop).handleHostMessage", room + "sched.(*loop).drainQueue", room + "sched.(*loop).run"}},
		{"journal", []string{room + "mq.(*Log).Append", room + "sched.(*loop).submit", room + "sched.(*loop).dispatch", room + "sched.(*loop).run"}},
		{"loop", []string{"runtime.lock2", room + "sched.(*loop).drainQueue", room + "sched.(*loop).run"}},
		{"guest", []string{room + "runtime/wasm.(*Engine).Run", room + "host.(*Host).runTask", room + "host/session.(*Worker).execute"}},
		{"host", []string{room + "host/session.(*Worker).next"}},
		{"streams", []string{"internal/runtime/syscall/linux.Syscall6", "google.golang.org/grpc/internal/transport.(*loopyWriter).run"}},
		{"view", []string{"github.com/dgraph-io/badger/v4.(*DB).doWrites.func1"}},
		{asleep, []string{"runtime.futex", "runtime.findRunnable", "runtime.schedule", "runtime.mcall"}},
		{others, []string{"net/http.(*conn).serve"}},
	} {
		if got := stageOf(c.functions); got != c.want {
			t.Errorf("%v is of %q, want %q", c.functions, got, c.want)
		}
	}
}

// TestStagesNameFunctions checks that the functions and types of the stages exist: a name
// that was changed would give its time to another stage.
func TestStagesNameFunctions(t *testing.T) {
	method := regexp.MustCompile(`^wheelwork/(.+)\.\(\*(\w+)\)(?:\.(\w+))?$`)
	for _, s := range stages {
		for _, what := range s.what {
			m := method.FindStringSubmatch(what)
			if m == nil {
				continue
			}
			files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(m[1]), "*.go"))
			if err != nil {
				t.Fatal(err)
			}
			want := regexp.MustCompile(`(?m)^func \(\w+ \*` + m[2] + `\) ` + m[3])
			found := false
			for _, file := range files {
				src, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				found = found || want.Match(src)
			}
			if !found {
				t.Errorf("stage %s: no method of the sources has a name that begins with %s", s.row, what)
			}
		}
	}
}
