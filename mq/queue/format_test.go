package queue

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files of the present version; never those of a released one")

// samples returns one or two records of each kind.
func samples() []record {
	m := message{pos: 7, time: 1_000_000_007, due: 2_000_000_009, key: "key", dedup: "once", origin: "here", body: []byte("body")}
	published := m
	published.topic = 3
	copied := m
	copied.id, copied.due = 99, 0
	f := failure{count: 2, firstAt: 11, lastAt: 12, firstErr: "first", lastErr: "last"}
	return []record{
		&published,
		&message{topic: 1, time: 5},
		&topicRecord{3, "topic"},
		&groupRecord{4, 3, "group", 1 << 40},
		&ackRecord{4, []span{{0, 0}, {2, 9}, {300, 1 << 33}}},
		&ackRecord{4, []span{}},
		&retryRecord{4, 7, 2, 11, 12, "broken"},
		&deadRecord{4, 0, Permanent, 13, "topic", "group", f, copied},
		&deadRecord{4, 77, Attempts, 13, "topic", "group", f, copied},
		&putRecord{4, 0, copied},
		&putRecord{4, 77, copied},
		&dropRecord{[]uint64{77, 1 << 50}},
		&alarmedRecord{77},
		&lostRecord{3, 4, 100, 50},
		&forgetRecord{4},
		&checkpointRecord{1000, 1, 3, []byte("piece")},
	}
}

// golden compares got with a file that never changes.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", "v1", name)
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: the encoding has changed:\n%s\nwant:\n%s", name, got, want)
	}
}

func TestGoldenRecords(t *testing.T) {
	var b strings.Builder
	for _, r := range samples() {
		fmt.Fprintf(&b, "%d %d %s\n", r.kind(), r.queue(), hex.EncodeToString(r.append(nil)))
	}
	golden(t, "records", []byte(b.String()))
	// And back, from the file: records that were written once can always be read.
	file, err := os.ReadFile(filepath.Join("testdata", "v1", "records"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(file)), "\n") {
		var kind uint8
		var queue uint32
		var digits string
		if n, err := fmt.Sscan(line, &kind, &queue, &digits); n < 2 || err != nil && kind != kindForget {
			t.Fatal(line, err)
		}
		body, err := hex.DecodeString(digits)
		if err != nil {
			t.Fatal(err)
		}
		r, err := decode(kind, queue, body)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if m, ok := r.(*message); ok {
			m.size = 0
			if len(m.body) == 0 {
				m.body = nil
			}
		}
		if !reflect.DeepEqual(r, samples()[i]) {
			t.Errorf("decoded %+v, want %+v", r, samples()[i])
		}
	}
}

func sampleBlock() []byte {
	entries := make([]entry, blockEntries)
	for i := range entries {
		entries[i] = entry{uint64(i * 3), uint32(i), hashKey(fmt.Sprint(i)), int64(i) << 32}
	}
	return encodeBlock(5, 9, entries)
}

// sampleState returns a snapshot with an entry in every list.
func sampleState(t testing.TB) []byte {
	cfg := small(t.TempDir())
	q := open(t, cfg)
	publish(
		t, q, msg("a", "k", "1"), msg("a", "k", "2"), Message{Topic: "a", Dedup: "d", Body: []byte("3"), After: time.Hour},
		msg("b", "", "4"), msg("a", "", "5"),
	)
	c := consumer(t, q, "a", "g")
	ds := fetch(t, c, 10)
	nack(t, c, ds[0], false)
	nack(t, c, ds[1], true)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(cfg.Dir, "index", snapshotName))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestGoldenFiles(t *testing.T) {
	golden(t, "block", []byte(hex.EncodeToString(sampleBlock())+"\n"))
	if *update {
		golden(t, "state", []byte(hex.EncodeToString(sampleState(t))+"\n"))
	}
	digits, err := os.ReadFile(filepath.Join("testdata", "v1", "state"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := hex.DecodeString(strings.TrimSpace(string(digits)))
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeSnapshot(b)
	if err != nil {
		t.Fatal(err)
	}
	g := m.groups[0]
	if len(m.topics) != 2 || m.topics[0].name != "a" || m.topics[0].next != 4 || len(m.topics[0].tail) != 4 || len(m.groups) != 1 ||
		g.cursor != 4 || len(g.pending) != 3 || g.pending[0].fail == nil || len(m.letters) != 1 || m.letters[0].reason != Permanent ||
		len(m.keys) != 1 || m.keys[0].key != "d" || len(m.past) != 1 {
		t.Fatalf("decoded %+v", m)
	}
}

func FuzzRecord(f *testing.F) {
	for _, r := range samples() {
		f.Add(r.kind(), r.queue(), r.append(nil))
	}
	f.Fuzz(func(t *testing.T, kind uint8, queue uint32, body []byte) {
		r, err := decode(kind, queue, body)
		if err != nil {
			return
		}
		if r.kind() != kind || r.kind() != kindDrop && r.kind() != kindAlarmed && r.kind() != kindCheckpoint && r.queue() != queue {
			t.Fatalf("%+v is of kind %d, queue %d, want %d, %d", r, r.kind(), r.queue(), kind, queue)
		}
		b := r.append(nil)
		again, err := decode(kind, queue, b)
		if err != nil {
			t.Fatalf("%+v cannot be decoded again: %v", r, err)
		}
		if m, ok := again.(*message); ok {
			m.size = len(body) // the input may have longer numbers than needed
		}
		if !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v came back as %+v", r, again)
		}
	})
}

func FuzzBlock(f *testing.F) {
	f.Add(sampleBlock(), uint32(5), uint64(9))
	f.Add(make([]byte, blockSize), uint32(0), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, topic uint32, number uint64) {
		entries, ok := decodeBlock(b, topic, number)
		if ok && !bytes.Equal(encodeBlock(topic, number, entries), b) {
			t.Fatal("another block came back")
		}
	})
}

func FuzzState(f *testing.F) {
	b := sampleState(f)
	f.Add(b[snapshotHeader : len(b)-4])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeState(b)
		if err != nil {
			return
		}
		// A valid state can be used, and encodes to the same bytes.
		cfg := Config{Dir: "none"}
		if err := cfg.validate(); err != nil {
			t.Fatal(err)
		}
		q := &Queue{cfg: cfg, names: map[string]*topic{}, state: newState(), dedup: newDedup(cfg.DedupWindow, cfg.DedupKeys)}
		q.adopt(m, nil)
		once, _ := q.encodeState()
		again, err := decodeState(once)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		r := &Queue{cfg: cfg, names: map[string]*topic{}, state: newState(), dedup: newDedup(cfg.DedupWindow, cfg.DedupKeys)}
		r.adopt(again, nil)
		if twice, _ := r.encodeState(); !bytes.Equal(once, twice) {
			t.Fatal("the state changed on its way")
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	f.Add(sampleState(f))
	f.Add([]byte("WWQSTAT\n"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _ = decodeSnapshot(b) // must not panic on any input
	})
}
