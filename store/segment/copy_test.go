package segment

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// TestPieces: a copy of a log at a random length has the contents of that moment, in
// spite of concurrent appends, seals and removals.
func TestPieces(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	l := mustOpen(t, t.TempDir(), testOptions)
	var written []Block
	type kept struct {
		length  int64
		blocks  int
		pieces  []Piece
		release func()
	}
	var all []kept
	for range 60 {
		length, n := l.Length(), len(written)
		more := randomBlocks(rnd, 1+rnd.IntN(4))
		appendAll(t, l, rnd, more) // behind the requested length
		written = append(written, more...)
		if length == l.active().base+headerSize || n == 0 {
			continue
		}
		pieces, release := l.Pieces(length)
		all = append(all, kept{length, n, pieces, release})
	}
	if freed, err := l.Retain(1 << 40); err != nil || freed != 0 {
		t.Fatalf("%d bytes were dropped while they are copied, %v", freed, err)
	}
	for _, k := range all {
		dir := t.TempDir()
		last := k.pieces[len(k.pieces)-1]
		if base, ok := parseName(last.Name); !ok || base+last.Size != k.length {
			t.Fatalf("the last piece is %s with %d bytes, for a length of %d", last.Name, last.Size, k.length)
		}
		for _, p := range k.pieces {
			content, err := io.ReadAll(p.Open())
			if err != nil || int64(len(content)) != p.Size {
				t.Fatal(len(content), err)
			}
			if err := os.WriteFile(filepath.Join(dir, p.Name), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		copied, err := Open(dir, Options{Kind: "test", SegmentBytes: 4 << 10, Length: k.length})
		if err != nil {
			t.Fatalf("at %d: %v", k.length, err)
		}
		if copied.Length() < k.length {
			t.Fatalf("its length is %d, want %d", copied.Length(), k.length)
		}
		checkFinds(t, copied, rnd, written[:k.blocks])
		if err := copied.Close(); err != nil {
			t.Fatal(err)
		}
		k.release()
	}
	if freed, err := l.Retain(1 << 40); err != nil || freed == 0 {
		t.Fatalf("nothing is dropped after the copies: %v", err)
	}
}
