package local

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/journal/conform"
	"github.com/wheelworkhq/wheelwork/mq"
)

func TestConform(t *testing.T) {
	conform.Run(t, func(t *testing.T) conform.Open {
		dir := t.TempDir()
		return func(t *testing.T) journal.Journal {
			t.Helper()
			log, err := mq.Open(mq.Config{Dir: dir, SegmentBytes: 2 << 20, ReserveBytes: -1})
			if err != nil {
				t.Fatal(err)
			}
			j, err := Open(log, filepath.Join(dir, "closed"))
			if err != nil {
				t.Fatal(err)
			}
			return j
		}
	})
}

// TestKilledIsNotOrderly: the note does not exist while the journal is open, and a note
// with another end does not count. A later user leaves a note only after it has called
// Settle.
func TestKilledIsNotOrderly(t *testing.T) {
	dir := t.TempDir()
	note := filepath.Join(dir, "closed")
	open := func() *Journal {
		t.Helper()
		log, err := mq.Open(mq.Config{Dir: filepath.Join(dir, "log"), SegmentBytes: 2 << 20, ReserveBytes: -1})
		if err != nil {
			t.Fatal(err)
		}
		j, err := Open(log, note)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	shut := func(j *Journal) {
		t.Helper()
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	shut(open())
	old, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	j := open()
	if _, err := os.Stat(note); !j.Orderly() || !os.IsNotExist(err) {
		t.Errorf("orderly is %v; the note: %v", j.Orderly(), err)
	}
	if _, err := j.AppendLazy([]journal.Record{{Slot: journal.Slot{App: "a"}, Body: []byte("x")}}); err != nil {
		t.Fatal(err)
	}
	shut(j)
	for _, text := range []string{string(old), "", "x"} {
		if err := os.WriteFile(note, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		j := open()
		if j.Orderly() {
			t.Errorf("the note %q counts", text)
		}
		shut(j)
	}
	os.Remove(note) //nolint:errcheck // it was killed
	for range 2 {
		if j = open(); j.Orderly() {
			t.Error("one that was killed is orderly")
		}
		shut(j)
	}
	j = open()
	j.Settle()
	shut(j)
	if j = open(); !j.Orderly() {
		t.Error("one that was settled is not orderly")
	}
	shut(j)
}

func FuzzUnframe(f *testing.F) {
	recs, err := frame([]journal.Record{{Slot: journal.Slot{App: "app", Index: 3}, Body: []byte("body")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(recs.recs[0].Body)
	f.Add([]byte{0, 200})
	f.Fuzz(func(t *testing.T, b []byte) {
		slot, body, err := unframe(b)
		if err != nil {
			return
		}
		again, err := frame([]journal.Record{{Slot: slot, Body: body}})
		if err != nil || !bytes.Equal(again.recs[0].Body, b) {
			t.Fatalf("%x was read as %v %x", b, slot, body)
		}
	})
}
