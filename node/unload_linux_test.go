package node_test

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/examples/greet"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/node"
)

// executable is how much memory of the process holds machine code that is in no
// file: what modules were compiled to.
func executable(t *testing.T) (bytes uint64) {
	t.Helper()
	runtime.GC() // the engine frees code when nothing refers to it
	runtime.GC()
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 5 || !strings.Contains(fields[1], "x") {
			continue
		}
		from, to, _ := strings.Cut(fields[0], "-")
		a, err1 := strconv.ParseUint(from, 16, 64)
		b, err2 := strconv.ParseUint(to, 16, 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		bytes += b - a
	}
	return bytes
}

// said waits for a line of the log.
type said struct {
	slog.Handler
	line string
	came chan struct{}
}

func (s said) Enabled(context.Context, slog.Level) bool { return true }

func (s said) Handle(_ context.Context, r slog.Record) error {
	if r.Message == s.line {
		select {
		case s.came <- struct{}{}:
		default: // it came before
		}
	}
	return nil
}

func (s said) WithAttrs([]slog.Attr) slog.Handler { return s }

// TestCollectedModulesGiveTheirMemoryBack runs a job of a module, collects the
// module, and wants its machine code, its bytes and its name to be gone from the
// host, and the module to run when it is pushed again.
func TestCollectedModulesGiveTheirMemoryBack(t *testing.T) {
	dir := t.TempDir()
	log := said{slog.DiscardHandler, "a module that nothing refers to was removed", make(chan struct{}, 1)}
	p := dev(t, node.DevConfig{Data: dir, Logger: slog.New(log)})
	conn, ctx := dial(t, p, p.Token)
	code := greet.Module
	jobs := apiv1.NewJobsClient(conn)
	run := func() {
		t.Helper()
		if err := push(t, ctx, conn, "greet", "1", code); err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.ApplyJob(ctx, &apiv1.ApplyJobRequest{Job: greetJob()}); err != nil {
			t.Fatal(err)
		}
		r, err := jobs.TriggerJob(ctx, &apiv1.TriggerJobRequest{Name: "hello"})
		if err != nil {
			t.Fatal(err)
		}
		if r = await(t, ctx, conn, r.Id); r.State != "succeeded" {
			t.Fatalf("the run: %v", r)
		}
		if _, err := jobs.DeleteJob(ctx, &apiv1.DeleteJobRequest{Name: "hello"}); err != nil {
			t.Fatal(err)
		}
	}
	before := executable(t)
	run()
	loaded := executable(t)
	if loaded <= before {
		t.Fatalf("a compiled module took %d bytes of machine code beside %d", loaded-before, before)
	}
	resp, err := apiv1.NewModulesClient(conn).CollectModules(ctx, &apiv1.CollectModulesRequest{OlderThan: "0s"})
	if err != nil || len(resp.Collected) != 1 {
		t.Fatalf("collect: %v, %v", resp, err)
	}
	select {
	case <-log.came:
	case <-time.After(20 * time.Second):
		t.Fatal("the host did not hear of it")
	}
	if after := executable(t); after >= loaded || after-before > (loaded-before)/10 {
		t.Errorf("machine code: %d bytes before, %d with the module, %d without", before, loaded, after)
	}
	store, err := modules.Open(filepath.Join(dir, "host", "modules"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(modules.Digest(code)); !errors.Is(err, modules.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the host still has the bytes: %v", err)
	}
	run()
}
