package local

import (
	"bytes"
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
			return New(log)
		}
	})
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
