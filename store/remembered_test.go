package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// keyBatch returns a batch with some KiB of keys of several apps, all with the number n.
func keyBatch(n int) *Batch {
	return &Batch{Applied: uint64(n), Keys: []Keys{
		{"a", []byte(strings.Repeat(fmt.Sprint(n, " "), 500))},
		{"b", []byte(fmt.Sprint(n))},
	}}
}

// TestForgottenKeysGo: a snapshot removes segments of forgotten keys. It never removes
// keys that are remembered or that the newest snapshot needs.
func TestForgottenKeysGo(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 4 << 10})
	var starts []int64
	for n := 1; n <= 100; n++ {
		starts = append(starts, s.KeysLength())
		b := keyBatch(n)
		if n > 10 {
			b.Forgotten = starts[n-10]
		}
		commit(t, s, b)
		if n == 20 {
			snapshot(t, s)
		}
	}
	// oldest returns the number in the oldest keys, and checks the keys behind them.
	oldest := func() (first int) {
		t.Helper()
		next := 0
		for k, at := range eachKeys(t, s) {
			var n int
			if _, err := fmt.Sscan(string(k.Value), &n); err != nil {
				t.Fatal(err)
			}
			if k.App == "a" {
				if first == 0 {
					first, next = n, n
				}
				if n != next || at < starts[n-1] || n < 100 && at >= starts[n] {
					t.Fatalf("keys of %d at %d where those of %d should be", n, at, next)
				}
				next++
			}
		}
		if next != 101 {
			t.Fatalf("the keys end before those of %d", next)
		}
		return first
	}
	if first := oldest(); first > 11 || first < 2 {
		t.Errorf("after a snapshot at 20 and much that was forgotten later they begin with %d", first)
	}
	s = reopen(t, s) // loses the position of forgotten keys, but no keys
	kept := s.remembered.Bytes()
	oldest()
	b := keyBatch(101)
	starts = append(starts, s.KeysLength())
	b.Forgotten, b.Keys = starts[95], nil
	commit(t, s, b)
	snapshot(t, s)
	if first := oldest(); first > 96 || first < 90 || s.remembered.Bytes() >= kept/2 {
		t.Errorf("they begin with %d and take %d bytes of %d", first, s.remembered.Bytes(), kept)
	}
	s = reopen(t, s)
	oldest()

	// The keys belong to the view, which is rebuilt from a snapshot.
	commit(t, s, &Batch{Applied: 102, Keys: []Keys{{"c", []byte("later")}}})
	dir := s.cfg.Dir
	closeStore(t, s)
	if _, err := Rebuild(dir, RebuildOptions{}); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, s.cfg)
	oldest()
	for k := range eachKeys(t, s) {
		if k.App == "c" {
			t.Error("keys are there that came behind what the view includes")
		}
	}
	if err := s.Commit(&Batch{Applied: 102, Forgotten: s.KeysLength() + 1}); !errors.Is(err, errForgotten) {
		t.Errorf("forgotten behind the end: %v", err)
	}
}

// TestKeysAreMissing: a store opens without its keys after their files were removed.
func TestKeysAreMissing(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	commit(t, s, &Batch{Applied: 1, Jobs: []JobRow{{"a", "j", []byte("1")}}, Finished: finishedRange(0, 10), Keys: []Keys{{"a", []byte("x")}}})
	snapshot(t, s)
	closeStore(t, s)
	if err := os.RemoveAll(filepath.Join(s.cfg.Dir, keysName)); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, s.cfg)
	wantDump(t, s, `job "a" "j" "1"`)
	if got := pages(t, s, RunQuery{}); len(got) != 10 {
		t.Errorf("%d runs", len(got))
	}
	commit(t, s, &Batch{Applied: 2, Keys: []Keys{{"a", []byte("y")}}})
	s = reopen(t, s)
	for k := range eachKeys(t, s) {
		if string(k.Value) != "y" {
			t.Errorf("keys %q", k.Value)
		}
	}
}

// TestStoreOfBefore: older versions stored no length of the keys, because keys were rows, and no
// length of the revisions or of the audit log.
func TestStoreOfBefore(t *testing.T) {
	m, err := decodeMeta([]byte{1, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0})
	if err != nil || m != (meta{applied: 7, history: 9}) {
		t.Errorf("form 1: %+v, %v", m, err)
	}
	m = meta{applied: 7, history: 9, keys: 4}
	for _, form := range []byte{2, 3} {
		if m2, err := decodeMeta(append([]byte{form}, m.encode()[1:25]...)); err != nil || m2 != m {
			t.Errorf("form %d: %+v, %v", form, m2, err)
		}
	}
	m.revisions = 5
	if m2, err := decodeMeta(append([]byte{4}, m.encode()[1:33]...)); err != nil || m2 != m {
		t.Errorf("form 4: %+v, %v", m2, err)
	}
	m.audit = 6
	if m2, err := decodeMeta(m.encode()); err != nil || m2 != m {
		t.Errorf("form 5: %+v, %v", m2, err)
	}
	for _, bad := range [][]byte{nil, {1}, append(m.encode(), 0), append([]byte{7}, m.encode()[1:]...), append([]byte{4}, m.encode()[1:]...), append([]byte{3}, m.encode()[1:]...), m.encode()[:25]} {
		if m, err := decodeMeta(bad); err == nil {
			t.Errorf("% x: %+v", bad, m)
		}
	}
}
