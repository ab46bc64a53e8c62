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
		{"accept", []string{"runtime.mallocgc", room + "job.(*Slot).accept", room + "sched/core.(*Commands).TriggerJob", room + "sched/core.(*Commands).Produce", room + "sched/core.(*Loop).Run"}},
		{"collect", []string{"runtime.scanobject", "runtime.gcAssistAlloc", "runtime.mallocgc", room + "sched/core.(*Commands).Produce", room + "sched/core.(*Loop).Run"}},
		{"end", []string{room + "sched/core.(*resultBatch).add", room + "sched/core.(*Sessions).HandleHostMessage", room + "sched/core.(*Loop).runFor", room + "sched/core.(*Loop).Run"}},
		{"journal", []string{room + "mq.(*Log).Append", room + "sched/core.(*committer).submit", room + "sched/core.(*dispatcher).dispatch", room + "sched/core.(*Loop).Run"}},
		{"loop", []string{"runtime.lock2", room + "sched/core.(*Loop).runFor", room + "sched/core.(*Loop).Run"}},
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
