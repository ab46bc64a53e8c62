package local

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/wheelworkhq/wheelwork/journal"
	"github.com/wheelworkhq/wheelwork/mq"
)

func open(t *testing.T, dir string) *Journal {
	t.Helper()
	log, err := mq.Open(mq.Config{Dir: dir, SegmentBytes: 1 << 20, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	return New(log)
}

func appendSync(t *testing.T, j *Journal, recs ...journal.Record) uint64 {
	t.Helper()
	done := make(chan error, 1)
	last, err := j.Append(recs, func(err error) { done <- err })
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return last
}

func TestRecordsKeepTheirSlotAndOrder(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	var want []string
	for i := range 100 {
		r := journal.Record{Slot: journal.Slot{App: strings.Repeat("a", i), Index: uint8(i % 16)}, Body: bytes.Repeat([]byte{byte(i)}, i)}
		want = append(want, fmt.Sprint(i+1, r.Slot, r.Body))
		if i%3 == 0 {
			if _, err := j.AppendLazy([]journal.Record{r}); err != nil {
				t.Fatal(err)
			}
		} else if last := appendSync(t, j, r); last != uint64(i+1) {
			t.Fatalf("record %d has the sequence %d", i+1, last)
		}
	}
	appendSync(t, j) // no records: a barrier
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j = open(t, dir)
	defer j.Close() //nolint:errcheck // a test's journal
	if j.Next() != 101 {
		t.Fatalf("next is %d", j.Next())
	}
	var got []string
	err := j.Read(1, func(seq uint64, slot journal.Slot, body []byte) error {
		got = append(got, fmt.Sprint(seq, slot, body))
		return nil
	})
	if err != nil || strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("read %d of %d records, %v", len(got), len(want), err)
	}
}

func TestTrimmedRecordsAreSaidToBeGone(t *testing.T) {
	j := open(t, t.TempDir())
	defer j.Close() //nolint:errcheck // a test's journal
	body := make([]byte, 256<<10)
	var last uint64
	for range 10 { // more than two segments
		last = appendSync(t, j, journal.Record{Slot: journal.Slot{App: "a"}, Body: body})
	}
	if err := j.Trim(last); err != nil {
		t.Fatal(err)
	}
	err := j.Read(1, func(uint64, journal.Slot, []byte) error { return nil })
	if !errors.Is(err, journal.ErrTrimmed) {
		t.Fatalf("reading what was trimmed: %v", err)
	}
}

func FuzzUnframe(f *testing.F) {
	recs, err := frame([]journal.Record{{Slot: journal.Slot{App: "app", Index: 3}, Body: []byte("body")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(recs[0].Body)
	f.Add([]byte{0, 200})
	f.Fuzz(func(t *testing.T, b []byte) {
		slot, body, err := unframe(b)
		if err != nil {
			return
		}
		again, err := frame([]journal.Record{{Slot: slot, Body: body}})
		if err != nil || !bytes.Equal(again[0].Body, b) {
			t.Fatalf("%x was read as %v %x", b, slot, body)
		}
	})
}
