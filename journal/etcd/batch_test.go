package etcd

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/wheelworkhq/wheelwork/journal"
)

func encodeBatch(recs ...journal.Record) []byte {
	b := binary.AppendUvarint(nil, uint64(len(recs)))
	for i := range recs {
		b = appendRecord(b, &recs[i])
	}
	return b
}

func FuzzBatch(f *testing.F) {
	f.Add(encodeBatch(rec("one"), rec(""), journal.Record{}))
	f.Add(encodeBatch())
	f.Add([]byte{0x81, 0x00, 0, 0, 0})
	f.Add(append(encodeBatch(rec("x")), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		var recs []journal.Record
		n, err := decodeBatch(b, func(i uint64, slot journal.Slot, body []byte) error {
			if i != uint64(len(recs)) {
				t.Fatalf("record %d comes after %d", i, len(recs))
			}
			recs = append(recs, journal.Record{Slot: slot, Body: body})
			return nil
		})
		if err != nil {
			if len(recs) > 0 {
				t.Fatal("records of a bad batch were told")
			}
			return
		}
		if n != uint64(len(recs)) || !bytes.Equal(encodeBatch(recs...), b) {
			t.Fatalf("%x was read as %v", b, recs)
		}
	})
}

func FuzzPart(f *testing.F) {
	p := part{last: true, created: 7, before: 9, body: []byte("body")}
	f.Add(p.encode(), 3)
	f.Add((&part{}).encode(), 0)
	f.Add([]byte{partVersion}, 0)
	f.Fuzz(func(t *testing.T, b []byte, flip int) {
		p, err := decodePart(b)
		if err != nil {
			return
		}
		if !bytes.Equal(p.encode(), b) {
			t.Fatalf("%x was read as %+v", b, p)
		}
		changed := slices.Clone(b)
		changed[uint(flip)%uint(len(b))] ^= 1 << (uint(flip) / 7 % 8)
		if q, err := decodePart(changed); err == nil {
			t.Fatalf("a changed bit went unseen: %+v", q)
		}
	})
}

func FuzzHead(f *testing.F) {
	f.Add([]byte(head{1, 2}.encode()))
	f.Add([]byte(head{}.encode()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeHead(b); err == nil && h.encode() != string(b) {
			t.Fatalf("%x was read as %+v", b, h)
		}
	})
}

func FuzzKey(f *testing.F) {
	f.Add("00000000000000ff/0001")
	f.Add("00000000000000FF/0001")
	f.Add("+000000000000001/0001")
	f.Fuzz(func(t *testing.T, s string) {
		if seq, index, err := parseKey(s); err == nil && partKey("", "n", seq, index) != "j/n/"+s {
			t.Fatalf("%q was read as %d, %d", s, seq, index)
		}
	})
}

// FuzzAssembler feeds parts in any order, as foreign programs could leave them in etcd.
// The result must be the parts of one batch, from the first to the last.
func FuzzAssembler(f *testing.F) {
	f.Add([]byte{1, 0x80, 1, 0, 1, 0x81, 2, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		var a assembler
		var want []byte
		next := -1 // index of the next part of the batch at
		at := uint64(0)
		for len(script) >= 2 {
			seq, index, last := uint64(script[0]%4), int(script[1]&0x3f), script[1]&0x80 == 0
			body := []byte{script[0], script[1]}
			script = script[2:]
			whole, err := a.add(seq, index, part{last: last, created: 1, body: body})
			fits := index == 0 || seq == at && index == next
			if fits != (err == nil) || whole != (fits && last) {
				t.Fatalf("part %d of %d after %d of %d: %v, %v", index, seq, next-1, at, whole, err)
			}
			if err != nil {
				return
			}
			if index == 0 {
				at, want = seq, nil
			}
			want = append(want, body...)
			if next = index + 1; last {
				next = -1
				if !bytes.Equal(a.body, want) || a.seq != seq {
					t.Fatalf("%x at %d, want %x at %d", a.body, a.seq, want, seq)
				}
			}
		}
	})
}

// TestPartsOfOneBatchAgree: a part that another owner wrote does not continue a batch.
func TestPartsOfOneBatchAgree(t *testing.T) {
	for _, second := range []part{{created: 2, before: 5}, {created: 1, before: 6}} {
		var a assembler
		if _, err := a.add(3, 0, part{created: 1, before: 5}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.add(3, 1, second); err == nil {
			t.Errorf("%+v was taken", second)
		}
	}
	var a assembler
	body := make([]byte, maxBatch/2+1)
	if _, err := a.add(3, 0, part{body: body}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.add(3, 1, part{body: body}); err == nil {
		t.Error("a batch without bounds was put together")
	}
}
