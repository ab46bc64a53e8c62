package node_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
	"github.com/wheelworkhq/wheelwork/modules"
	"github.com/wheelworkhq/wheelwork/node"
)

// executable returns how many bytes of the process's memory hold machine code that is in
// no file, which is that of compiled modules.
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

// said is a log handler that signals each occurrence of a line.
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
		default: // it was signalled before
		}
	}
	return nil
}

func (s said) WithAttrs([]slog.Attr) slog.Handler { return s }

// TestCollectedModulesGiveTheirMemoryBack: a host loads modules that are collected one
// after the other. Their machine code and their bytes must be gone from the host, and a
// module that is pushed again must be loaded again.
func TestCollectedModulesGiveTheirMemoryBack(t *testing.T) {
	dir := t.TempDir()
	names := []string{"args", "count", "exit", "files", "host", "init", "memory", "random"}
	log := said{slog.DiscardHandler, "a module that nothing refers to was removed", make(chan struct{}, len(names))}
	p := dev(t, node.DevConfig{Data: dir, Logger: slog.New(log)})
	conn, ctx := dial(t, p, p.Token)
	mods := apiv1.NewModulesClient(conn)
	digests := map[string]string{}
	load := func(name string) {
		t.Helper()
		code, err := os.ReadFile(filepath.Join("..", "runtime", "wasm", "testdata", name+".wasm"))
		if err != nil {
			t.Fatal(err)
		}
		digests[name] = modules.Digest(code)
		if err := push(t, ctx, conn, name, "1", code); err != nil {
			t.Fatal(err)
		}
		for { // until the host has loaded the pushed module
			r, err := mods.GetRollout(ctx, &apiv1.GetRolloutRequest{Name: name, Version: "1"})
			if err != nil {
				t.Fatal(err)
			}
			if r.Complete {
				return
			}
			if len(r.ByHost) == 1 && r.ByHost[0].State == "failed" {
				t.Fatalf("%s: %v", name, r)
			}
		}
	}
	before := executable(t)
	for _, name := range names {
		load(name)
		resp, err := mods.CollectModules(ctx, &apiv1.CollectModulesRequest{OlderThan: "0s"})
		if err != nil || len(resp.Collected) != 1 {
			t.Fatalf("collect: %v, %v", resp, err)
		}
		select {
		case <-log.came:
		case <-time.After(20 * time.Second):
			t.Fatalf("the host did not learn that %s was collected", name)
		}
	}
	store, err := modules.Open(filepath.Join(dir, "host", "modules"))
	if err != nil {
		t.Fatal(err)
	}
	for name, digest := range digests {
		if store.Has(digest) {
			t.Errorf("the host still has the bytes of %s", name)
		}
	}
	after := executable(t)
	for _, name := range names {
		load(name)
	}
	all := executable(t)
	if after > before+(all-before)/2 {
		t.Errorf("machine code: %d bytes before, %d with all modules, %d when all were collected", before, all, after)
	}
}
