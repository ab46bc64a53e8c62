package worker

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

func aResult(n byte) *apiv1.TaskResult {
	return &apiv1.TaskResult{Run: append(make([]byte, 15), n), App: "a", Attempt: 1, Output: bytes.Repeat([]byte{n}, int(n))}
}

func open(t *testing.T, dir string) (*spool, []byte) {
	t.Helper()
	s, err := openSpool(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := s.Kept()
	if err != nil {
		t.Fatal(err)
	}
	var ns []byte
	for _, r := range kept {
		if !proto.Equal(r, aResult(r.Run[15])) {
			t.Fatalf("another result came back: %v", r)
		}
		ns = append(ns, r.Run[15])
	}
	slices.Sort(ns)
	return s, ns
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestSpoolKeepsUntilForgotten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "results")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s, kept := open(t, dir)
	if kept != nil {
		t.Fatalf("a new spool holds %v", kept)
	}
	check(s.Keep([]*apiv1.TaskResult{aResult(1), aResult(2)}))
	check(s.Keep([]*apiv1.TaskResult{aResult(3)}))
	check(s.Forget(aResult(3)))
	check(s.Forget(aResult(1)))
	check(s.Forget(aResult(1)))
	check(s.Forget(aResult(9)))
	if names := files(t, dir); len(names) != 1 {
		t.Fatalf("files: %q", names)
	}

	// An acknowledged result that shares a file with an unacknowledged one comes back;
	// incomplete files do not.
	check(os.WriteFile(filepath.Join(dir, tempPrefix+"1"), []byte("half"), 0o600))
	check(os.WriteFile(filepath.Join(dir, "notes"), []byte("of somebody"), 0o600))
	s, kept = open(t, dir)
	if !slices.Equal(kept, []byte{1, 2}) {
		t.Fatalf("it holds %v", kept)
	}
	check(s.Keep([]*apiv1.TaskResult{aResult(4)}))
	s, kept = open(t, dir)
	if !slices.Equal(kept, []byte{1, 2, 4}) {
		t.Fatalf("it holds %v", kept)
	}
	for _, n := range kept {
		check(s.Forget(aResult(n)))
	}
	if names := files(t, dir); !slices.Equal(names, []string{"notes"}) {
		t.Fatalf("files: %q", names)
	}
}

// TestSpoolSurvivesDamage damages a file in many ways. The spool must open, return only
// results that were stored in it, and lose no result before the damage.
func TestSpoolSurvivesDamage(t *testing.T) {
	whole := encodeResults([]*apiv1.TaskResult{aResult(1), aResult(2), aResult(3)})
	first := len(encodeResults([]*apiv1.TaskResult{aResult(1)}))
	// A file that is cut between results looks like a shorter, complete one.
	between := []int{len(magic), first, len(encodeResults([]*apiv1.TaskResult{aResult(1), aResult(2)}))}
	try := func(what string, at int, b []byte) {
		t.Helper()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "0000000000000001"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, kept := open(t, dir)
		if at >= first && !slices.Contains(kept, 1) {
			t.Fatalf("%s at %d: the first result is lost, it holds %v", what, at, kept)
		}
		if len(kept) == 3 {
			t.Fatalf("%s at %d went unseen", what, at)
		}
		names := strings.Join(files(t, dir), " ")
		if (what != "cut" || !slices.Contains(between, at)) && !strings.Contains(names, ".damaged") {
			t.Fatalf("%s at %d: nothing was set aside: %s", what, at, names)
		}
		_, again := open(t, dir)
		if !slices.Equal(again, kept) {
			t.Fatalf("%s at %d: it holds %v, and opened again %v", what, at, kept, again)
		}
		for _, n := range kept {
			if err := s.Forget(aResult(n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for at := range whole {
		try("cut", at, whole[:at])
		flipped := bytes.Clone(whole)
		flipped[at] ^= 0x40
		try("flip", at, flipped)
	}
}

func FuzzDecodeResults(f *testing.F) {
	f.Add([]byte(magic))
	f.Add(encodeResults([]*apiv1.TaskResult{aResult(1), aResult(2)}))
	f.Add([]byte(magic + "\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Add([]byte("something else"))
	f.Fuzz(func(t *testing.T, b []byte) {
		results, err := decodeResults(b)
		for _, r := range results {
			keyOf(r) // must not panic
		}
		if err != nil {
			return
		}
		again, err := decodeResults(encodeResults(results))
		if err != nil || len(again) != len(results) {
			t.Fatalf("%d results, written and read again %d: %v", len(results), len(again), err)
		}
	})
}

func TestIdentityIsNotGuessed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "id")
	if err := os.WriteFile(path, []byte("\x00\x01"), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := identity(path); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("%q, %v", id, err)
	}
}
