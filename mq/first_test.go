package mq

import (
	"fmt"
	"testing"
)

// TestFirst: a new log starts at Config.First, and an existing log continues at its own
// sequence. Read and Verify accept the result.
func TestFirst(t *testing.T) {
	cfg := small(t.TempDir())
	cfg.First = 1_000_001
	for life := range 3 {
		l, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if l.First() != 1_000_001 || l.Next() != 1_000_001+uint64(life*300) || l.Durable() != l.Next() {
			t.Fatalf("life %d: %d to %d, durable to %d", life, l.First(), l.Next(), l.Durable())
		}
		for i := range 300 { // over several segments
			seq := mustWrite(t, l, Record{Body: []byte(fmt.Sprintf("%d %0500d", life*300+i, 0))})
			if seq != 1_000_001+uint64(life*300+i) {
				t.Fatalf("record %d of life %d has sequence %d", i, life, seq)
			}
		}
		want := uint64(1_000_001)
		err = l.Read(want, func(e Entry) error {
			if e.Seq != want || fmt.Sprint(e.Seq-1_000_001) != string(e.Body[:len(e.Body)-501]) {
				return fmt.Errorf("record %d is %.10q, %d is next", e.Seq, e.Body, want)
			}
			want++
			return nil
		})
		if err != nil || want != l.Next() {
			t.Fatalf("read to %d of %d: %v", want, l.Next(), err)
		}
		if r, err := l.Verify(nil); err != nil || len(r.Damage) > 0 || r.First != 1_000_001 {
			t.Fatalf("verify: %+v, %v", r, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		cfg.First = uint64(life) // the log exists, so this has no effect
	}
	cfg = small(t.TempDir())
	cfg.First = 1 << 63
	if l, err := Open(cfg); err == nil {
		l.Close() //nolint:errcheck // the log should not exist
		t.Error("a sequence that has no end was taken")
	}
}
