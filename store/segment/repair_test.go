package segment

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// harm damages a file, by kind of damage.
var harm = map[string]func(r *rand.Rand, b []byte) []byte{
	"flip":     func(r *rand.Rand, b []byte) []byte { b[r.IntN(len(b))] ^= 1 << r.IntN(8); return b },
	"truncate": func(r *rand.Rand, b []byte) []byte { return b[:r.IntN(len(b))] },
	"zeros":    func(r *rand.Rand, b []byte) []byte { clear(b[r.IntN(len(b)):]); return b },
	"scribble": func(r *rand.Rand, b []byte) []byte {
		at := r.IntN(len(b))
		for i := at; i < min(at+200, len(b)); i++ {
			b[i] = byte(r.Uint32())
		}
		return b
	},
	"remove": func(*rand.Rand, []byte) []byte { return nil },
}

// sights returns the blocks that Find and From yield, by position, and the damage that
// they report.
func sights(t *testing.T, l *Log) (map[int64]Block, []*DamagedError) {
	t.Helper()
	seen := map[int64]Block{}
	var damaged []*DamagedError
	for b, err := range l.Find(nil, End) {
		if d := (*DamagedError)(nil); errors.As(err, &d) {
			damaged = append(damaged, d)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		b.Keys, b.Payload = slices.Clone(b.Keys), bytes.Clone(b.Payload)
		seen[b.Pos] = b
	}
	again := 0
	for _, err := range l.From(0) {
		if err == nil {
			again++
		} else if !isDamage(err) {
			t.Fatal(err)
		}
	}
	if again != len(seen) {
		t.Fatalf("From sees %d blocks, and Find %d", again, len(seen))
	}
	return seen, damaged
}

// TestRepair damages a segment of a log in each way. Reads never return wrong data, and
// every loss is reported. After a repair the log has all other blocks at their positions.
func TestRepair(t *testing.T) {
	for kind, harm := range harm {
		t.Run(kind, func(t *testing.T) {
			for seed := range uint64(60) {
				repairOne(t, rand.New(rand.NewPCG(seed, 7)), kind, harm)
			}
		})
	}
}

func repairOne(t *testing.T, r *rand.Rand, kind string, harm func(*rand.Rand, []byte) []byte) {
	t.Helper()
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	appendAll(t, l, r, randomBlocks(r, 80))
	written, _ := sights(t, l)
	length := l.Length()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(dir, "test", length); err != nil || len(rep.Damage) > 0 || rep.Blocks != len(written) {
		t.Fatalf("a sound log: %+v, %v", rep, err)
	}
	bases, err := list(dir)
	if err != nil || len(bases) < 4 {
		t.Fatal(bases, err)
	}
	victim := bases[r.IntN(len(bases)-1)] // damage of the active segment is only detected with a known length
	name := filepath.Join(dir, filename(victim))
	before, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	after := harm(r, bytes.Clone(before))
	if after == nil {
		err = os.Remove(name)
	} else {
		err = os.WriteFile(name, after, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	opt := testOptions
	opt.Length = length
	l, err = Open(dir, opt)
	if err == nil {
		seen, damaged := sights(t, l)
		checkSeen(t, seen, written)
		if len(seen) < len(written) && len(damaged) == 0 && len(l.Missing()) == 0 {
			t.Fatalf("%s of %s: %d of %d blocks are left, and nothing says so", kind, name, len(seen), len(written))
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	} else if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("%s of %s: %v", kind, name, err)
	}
	told, err := Verify(dir, "test", length) // an index that the opening rebuilt is whole
	if err != nil {
		t.Fatal(err)
	}
	var kept []string
	rep, err := Repair(dir, "test", length, func(name string) error { kept = append(kept, name); return nil })
	if err != nil {
		t.Fatalf("%s of %s: %v", kind, name, err)
	}
	inFile := slices.ContainsFunc(told.Damage, func(d Damage) bool { return d.File != "" })
	if len(rep.Damage) != len(told.Damage) || inFile && !slices.Equal(kept, []string{filename(victim)}) {
		t.Fatalf("%s of %s: told %+v, repaired %+v, kept %q", kind, name, told.Damage, rep.Damage, kept)
	}
	if rep, err := Verify(dir, "test", length); err != nil || len(rep.Damage) > 0 {
		t.Fatalf("%s of %s: after a repair %+v, %v", kind, name, rep.Damage, err)
	}
	l = mustOpen(t, dir, opt)
	seen, damaged := sights(t, l)
	checkSeen(t, seen, written)
	if len(damaged) > 0 || len(l.Missing()) > 0 || len(seen) != told.Blocks {
		t.Fatalf("%s of %s: after a repair %v %v, %d blocks instead of %d", kind, name, damaged, l.Missing(), len(seen), told.Blocks)
	}
	next := bases[slices.Index(bases, victim)+1]
	for pos := range written { // only blocks within the damage are lost
		if _, ok := seen[pos]; !ok && !slices.ContainsFunc(told.Damage, func(d Damage) bool {
			// If the end of a file is missing, the new index overwrites the first blocks.
			return d.From <= pos && pos < d.To || d.File == "" && victim <= pos && pos < next
		}) {
			t.Fatalf("%s of %s: the block at %d is gone, damaged is %+v", kind, name, pos, told.Damage)
		}
	}
	appendAll(t, l, r, randomBlocks(r, 10))
	if all, _ := sights(t, l); len(all) != len(seen)+10 {
		t.Fatalf("%s of %s: %d blocks after 10 more than %d", kind, name, len(all), len(seen))
	}
}

func checkSeen(t *testing.T, seen, written map[int64]Block) {
	t.Helper()
	for pos, b := range seen {
		if w, ok := written[pos]; !ok || !bytes.Equal(w.Payload, b.Payload) || !slices.Equal(w.Keys, b.Keys) {
			t.Fatalf("the block at %d is not what was written there", pos)
		}
	}
}

// TestHealedIndex: a damaged page of an index costs time but no block.
func TestHealedIndex(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	blocks := randomBlocks(r, 80)
	appendAll(t, l, r, blocks)
	files := *l.files.Load()
	d := files[0].idx.(*disk)
	at := []int64{d.pages, d.table}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, off := range at {
		name := filepath.Join(dir, filename(0))
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		content[off] ^= 1
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		l := mustOpen(t, dir, testOptions)
		checkFinds(t, l, r, blocks)
		if rep, err := Verify(dir, "test", Tail); err != nil || len(rep.Damage) == 0 {
			t.Errorf("the index at %d: %+v, %v", off, rep, err)
		}
	}
}

// TestMissing: files that retention removes are accounted for across restarts; other
// missing files are reported.
func TestMissing(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	appendAll(t, l, r, randomBlocks(r, 150))
	files := *l.files.Load()
	if _, err := l.Trim(files[3].base); err != nil {
		t.Fatal(err)
	}
	lost := files[4]
	want := Gap{Span{lost.base, lost.end()}, files[3].max, files[5].min}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, testOptions)
	if got := l.Missing(); len(got) > 0 {
		t.Errorf("after retention these are missing: %v", got)
	}
	if err := errors.Join(l.Close(), os.Remove(filepath.Join(dir, filename(lost.base)))); err != nil {
		t.Fatal(err)
	}
	for range 2 { // until a repair
		l = mustOpen(t, dir, testOptions)
		if got := l.Missing(); len(got) != 1 || got[0].Span != want.Span || got[0].Before != want.Before {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, gapsName), []byte("scribble"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := mustOpen(t, dir, testOptions).Missing(); len(got) == 0 {
		t.Error("a damaged list of gaps accounts for a lost file")
	}
}

func FuzzGaps(f *testing.F) {
	f.Add([]byte(gapsHead + "0 10\n" + gapsCRC([]byte("0 10\n"))))
	f.Add([]byte(gapsHead + gapsCRC(nil)))
	f.Add([]byte("crc"))
	f.Fuzz(func(_ *testing.T, content []byte) { unite(parseGaps(content)) })
}
