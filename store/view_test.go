package store

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/dgraph-io/badger/v4"
)

// TestLargeMemTables opens the logs that killed processes left: one of an older version
// with larger memtables, and one that was cut to its length by a later Open. Badger ends
// the process over a log that does not fit.
func TestLargeMemTables(t *testing.T) {
	const rows = 80_000 // small rows, which take more room in memory than in the log
	dir := t.TempDir()
	before, err := badger.Open(badgerOptions(dir, slog.New(slog.DiscardHandler)).WithMemTableSize(largeMemTable))
	if err != nil {
		t.Fatal(err)
	}
	w := newWriter(before)
	for n := range rows {
		if err := w.set(fmt.Appendf(nil, "%050d", n), []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.commit(); err != nil {
		t.Fatal(err)
	}
	killed, again := copyDir(t, dir), copyDir(t, dir)
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(again, "00001.mem")
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	end := len(text)
	for text[end-1] == 0 {
		end--
	}
	if err := os.Truncate(log, int64(end)); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"killed": killed, "killed again": again} {
		t.Run(name, func(t *testing.T) {
			if large, err := largeMemTables(dir); err != nil || !large {
				t.Fatalf("large: %v, %v", large, err)
			}
			for range 2 {
				db, err := openBadger(dir, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				if large, err := largeMemTables(dir); err != nil || large {
					t.Errorf("large while it is open: %v, %v", large, err)
				}
				n := 0
				err = db.View(func(txn *badger.Txn) error {
					rows := txn.NewIterator(badger.DefaultIteratorOptions)
					defer rows.Close()
					for rows.Rewind(); rows.Valid(); rows.Next() {
						n++
					}
					return nil
				})
				if n != rows || err != nil {
					t.Errorf("%d rows instead of %d, %v", n, rows, err)
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
