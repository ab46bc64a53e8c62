package segment

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// testOptions make small segments, so a few blocks fill several.
var testOptions = Options{Kind: "test", SegmentBytes: 4 << 10, Length: Tail}

func mustOpen(t testing.TB, dir string, opt Options) *Log {
	t.Helper()
	l, err := Open(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) //nolint:errcheck // tests that care close it themselves
	return l
}

// randomBlocks returns blocks with a few keys of a small range, so blocks share keys.
// Each has a distinct payload.
func randomBlocks(r *rand.Rand, n int) []Block {
	blocks := make([]Block, n)
	for i := range blocks {
		var keys []uint64
		for range r.IntN(8) {
			keys = append(keys, r.Uint64N(20))
		}
		slices.Sort(keys)
		at := r.Int64N(1000)
		blocks[i] = Block{Min: at, Max: at + r.Int64N(10), Keys: slices.Compact(keys), Payload: fmt.Appendf(nil, "%d/%0*d", r.Uint64(), r.IntN(300), 0)}
	}
	return blocks
}

func appendAll(t testing.TB, l *Log, r *rand.Rand, blocks []Block) {
	t.Helper()
	for len(blocks) > 0 {
		n := min(1+r.IntN(4), len(blocks))
		if _, err := l.Append(blocks[:n]...); err != nil {
			t.Fatal(err)
		}
		blocks = blocks[n:]
	}
}

func find(t testing.TB, l *Log, all [][]uint64, before int64) []Block {
	t.Helper()
	var out []Block
	for b, err := range l.Find(all, before) {
		if err != nil {
			t.Fatal(err)
		}
		b.Payload = bytes.Clone(b.Payload)
		out = append(out, b)
	}
	return out
}

// expect returns the expected result of Find, by a scan.
func expect(blocks []Block, all [][]uint64) [][]byte {
	var out [][]byte
	for _, b := range slices.Backward(blocks) {
		hit := true
		for _, group := range all {
			hit = hit && slices.ContainsFunc(group, func(k uint64) bool { return slices.Contains(b.Keys, k) })
		}
		if hit {
			out = append(out, b.Payload)
		}
	}
	return out
}

func payloads(blocks []Block) [][]byte {
	var out [][]byte
	for _, b := range blocks {
		out = append(out, b.Payload)
	}
	return out
}

func sameBytes(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

// checkFinds compares random searches with a scan.
func checkFinds(t testing.TB, l *Log, r *rand.Rand, blocks []Block) {
	t.Helper()
	got := find(t, l, nil, End)
	if want := expect(blocks, nil); !sameBytes(payloads(got), want) {
		t.Fatalf("all blocks: got %d, want %d", len(got), len(want))
	}
	for range 50 {
		var all [][]uint64
		for range r.IntN(4) {
			var group []uint64
			for range 1 + r.IntN(3) {
				group = append(group, r.Uint64N(22))
			}
			all = append(all, group)
		}
		want := expect(blocks, all)
		hits := find(t, l, all, End)
		if !sameBytes(payloads(hits), want) {
			t.Fatalf("find %v: got %d blocks, want %d", all, len(hits), len(want))
		}
		for range min(3, len(hits)) { // a search from any position yields the rest
			i := r.IntN(len(hits))
			if rest := find(t, l, all, hits[i].Pos); !sameBytes(payloads(rest), want[i+1:]) {
				t.Fatalf("find %v before %d: got %d blocks, want %d", all, hits[i].Pos, len(rest), len(want)-i-1)
			}
		}
	}
}

func TestFindEqualsScan(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		blocks := randomBlocks(r, 120)
		l := mustOpen(t, dir, testOptions)
		appendAll(t, l, r, blocks)
		checkFinds(t, l, r, blocks)
		if n := len(*l.files.Load()); n < 4 {
			t.Fatalf("only %d segments: the test does not test sealed ones", n)
		}
		length := l.Length()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for _, at := range []int64{Tail, length} {
			l = mustOpen(t, dir, Options{Kind: "test", SegmentBytes: 4 << 10, Length: at})
			if l.Length() != length {
				t.Fatalf("reopened at %d: length %d, want %d", at, l.Length(), length)
			}
			checkFinds(t, l, r, blocks)
		}
		more := randomBlocks(r, 30)
		appendAll(t, l, r, more)
		checkFinds(t, l, r, append(blocks, more...))
	}
}

// TestPagesOfPostings fills a segment with more postings and blocks than fit on one page
// of its index.
func TestPagesOfPostings(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	l := mustOpen(t, t.TempDir(), Options{Kind: "test", SegmentBytes: 100 << 10, Length: Tail})
	var blocks []Block
	for i := range 3000 {
		blocks = append(blocks, Block{Keys: []uint64{uint64(i % 7), 100 + uint64(i/2)}, Payload: fmt.Append(nil, i)})
	}
	appendAll(t, l, r, blocks)
	sealed := (*l.files.Load())[0].idx.(*disk)
	if len(sealed.fences) < 3 || sealed.count <= pageSpans {
		t.Fatalf("%d pages of postings, %d blocks: too few to test", len(sealed.fences), sealed.count)
	}
	for _, all := range [][][]uint64{{{3}}, {{0, 6}}, {{100}}, {{850, 101}}, {{3}, {101, 102, 1599}}, {{7}}, {{5000}}, {{1}, {2}}} {
		if got := find(t, l, all, End); !sameBytes(payloads(got), expect(blocks, all)) {
			t.Errorf("find %v: got %d blocks, want %d", all, len(got), len(expect(blocks, all)))
		}
	}
}

func TestCut(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	blocks := randomBlocks(r, 60)
	l := mustOpen(t, dir, testOptions)
	lengths := []int64{0}
	for _, b := range blocks {
		n, err := l.Append(b)
		if err != nil {
			t.Fatal(err)
		}
		lengths = append(lengths, n)
	}
	l.Close() //nolint:errcheck // read again below
	for n := len(blocks); n >= 0; n -= 1 + r.IntN(3) {
		l := mustOpen(t, dir, Options{Kind: "test", SegmentBytes: 4 << 10, Length: lengths[n]})
		checkFinds(t, l, r, blocks[:n])
		fresh := randomBlocks(r, 3)
		appendAll(t, l, r, fresh)
		checkFinds(t, l, r, append(slices.Clone(blocks[:n]), fresh...))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestShort(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	length, err := l.Append(Block{Payload: []byte("a")}, Block{Payload: []byte("b")})
	if err != nil {
		t.Fatal(err)
	}
	l.Close() //nolint:errcheck // see below
	_, err = Open(dir, Options{Kind: "test", SegmentBytes: 4 << 10, Length: length + 1})
	var short *ShortError
	if !errors.As(err, &short) || short.Have != length || short.Want != length+1 {
		t.Fatalf("got %v, want that it ends at %d", err, length)
	}
	far := Options{Kind: "test", SegmentBytes: 4 << 10, Length: length + 1000, AllowShort: true}
	for range 2 { // data behind the gap is cut as usual
		l = mustOpen(t, copyOf(t, dir), far)
		if end, err := l.Append(Block{Payload: []byte("c")}); err != nil || end <= far.Length {
			t.Fatalf("appended up to %d, %v", end, err)
		}
		if got := payloads(find(t, l, nil, End)); !sameBytes(got, [][]byte{[]byte("c"), []byte("b"), []byte("a")}) {
			t.Fatalf("got %q", got)
		}
		dir = l.dir
		l.Close() //nolint:errcheck // opened again
	}
	_, err = Open(dir, Options{Kind: "test", SegmentBytes: 4 << 10, Length: length - 1})
	if !errors.Is(err, ErrCorrupt) {
		t.Fatalf("cut inside a block: got %v, want %v", err, ErrCorrupt)
	}
}

func copyOf(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// TestTornTail cuts the active file at every length: whole blocks stay.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	var ends []int64
	for i := range 5 {
		n, err := l.Append(Block{Keys: []uint64{uint64(i)}, Payload: []byte("payload")})
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, n)
	}
	l.Close() //nolint:errcheck // copied below
	whole, err := os.ReadFile(filepath.Join(dir, filename(0)))
	if err != nil {
		t.Fatal(err)
	}
	for n := int64(headerSize); n <= int64(len(whole)); n++ {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, filename(0)), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		l := mustOpen(t, dir, testOptions)
		want := 0
		for want < len(ends) && ends[want] <= n {
			want++
		}
		if got := len(find(t, l, nil, End)); got != want {
			t.Fatalf("%d bytes: %d blocks, want %d", n, got, want)
		}
		if _, err := l.Append(Block{Payload: []byte("next")}); err != nil {
			t.Fatal(err)
		}
		if got := find(t, l, nil, End); len(got) != want+1 || string(got[0].Payload) != "next" {
			t.Fatalf("%d bytes: cannot go on", n)
		}
		l.Close() //nolint:errcheck // many files
	}
}

// TestFlippedBits flips every byte of a sealed and of an active file. Each result is
// correct, or is an error that names the damage.
func TestFlippedBits(t *testing.T) {
	dir := t.TempDir()
	opt := Options{Kind: "test", SegmentBytes: 400, Length: Tail}
	l := mustOpen(t, dir, opt)
	var want [][]byte
	for i := range 8 {
		b := Block{Keys: []uint64{1, uint64(2 + i)}, Payload: fmt.Append(nil, "payload ", i)}
		want = append(want, b.Payload)
		if _, err := l.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	slices.Reverse(want)
	length := l.Length()
	l.Close() //nolint:errcheck // copied below
	names, err := filepath.Glob(filepath.Join(dir, "*"+extension))
	if err != nil || len(names) < 2 {
		t.Fatal(names, err)
	}
	opt.Length = length
	var noticed, healed int
	for _, damaged := range names {
		whole, err := os.ReadFile(damaged)
		if err != nil {
			t.Fatal(err)
		}
		for i := range whole {
			bad := bytes.Clone(whole)
			bad[i] ^= 1 << (i % 8)
			if err := os.WriteFile(damaged, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readAll(dir, opt)
			switch {
			case err != nil && !errors.Is(err, ErrCorrupt):
				t.Fatalf("%s, byte %d: error %v is not %v", damaged, i, err, ErrCorrupt)
			case err != nil:
				noticed++
			case !sameBytes(got, want):
				t.Fatalf("%s, byte %d: wrong answer without an error", damaged, i)
			default:
				healed++
			}
		}
		if err := os.WriteFile(damaged, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if noticed == 0 || healed == 0 {
		t.Fatalf("noticed %d, healed (a damaged footer is made again) %d: the test tests nothing", noticed, healed)
	}
}

func readAll(dir string, opt Options) (got [][]byte, err error) {
	l, err := Open(dir, opt)
	if err != nil {
		return nil, err
	}
	defer l.Close() //nolint:errcheck // only read
	for b, err := range l.Find([][]uint64{{1}}, End) {
		if err != nil {
			return nil, err
		}
		got = append(got, bytes.Clone(b.Payload))
	}
	return got, nil
}

func TestRetain(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	for i := range 100 {
		if _, err := l.Append(Block{Min: int64(i), Max: int64(i), Payload: make([]byte, 200)}); err != nil {
			t.Fatal(err)
		}
	}
	before, length := l.Bytes(), l.Length()
	freed, err := l.Retain(50)
	if err != nil {
		t.Fatal(err)
	}
	if freed == 0 || l.Bytes() != before-freed {
		t.Fatalf("freed %d of %d, %d left", freed, before, l.Bytes())
	}
	got := find(t, l, nil, End)
	if oldest := got[len(got)-1].Min; len(got) < 50 || oldest > 50 || oldest < 25 {
		t.Fatalf("%d blocks, oldest %d", len(got), oldest)
	}
	if l.Length() != length {
		t.Fatalf("length %d, want %d", l.Length(), length)
	}
	if _, err := l.Retain(1000); err != nil { // includes the active segment
		t.Fatal(err)
	}
	if got := find(t, l, nil, End); len(got) != 0 {
		t.Fatalf("%d blocks left", len(got))
	}
	if l.Length() <= length {
		t.Fatal("positions are used twice")
	}
	length = l.Length()
	l.Close() //nolint:errcheck // opened again
	if l = mustOpen(t, dir, Options{Kind: "test", SegmentBytes: 4 << 10, Length: length}); l.Length() != length {
		t.Fatalf("reopened: length %d, want %d", l.Length(), length)
	}
}

// TestRemove removes segments in the middle: the others stay, and a new start does not count
// the removed ones as lost.
func TestRemove(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	for range 100 {
		if _, err := l.Append(Block{Payload: make([]byte, 200)}); err != nil {
			t.Fatal(err)
		}
	}
	spans := l.Segments()
	last := spans[len(spans)-1]
	if len(spans) < 5 || l.Base() != last.From || l.Length() != last.To {
		t.Fatalf("segments %v, base %d, length %d", spans, l.Base(), l.Length())
	}
	blocks := len(find(t, l, nil, End))
	_, release := l.Pieces(Tail)
	middle := func(at Span) bool { return at == spans[1] || at == spans[2] || at == last }
	if freed, err := l.Remove(middle); freed != 0 || err != nil {
		t.Errorf("freed %d while a copy is made, %v", freed, err)
	}
	release()
	if freed, err := l.Remove(middle); freed != spans[2].To-spans[1].From || err != nil {
		t.Errorf("freed %d, %v", freed, err)
	}
	want := slices.Delete(slices.Clone(spans), 1, 3) // the active segment stays
	length := l.Length()
	for range 2 {
		if got := l.Segments(); !slices.Equal(got, want) || l.Length() != length || len(l.Missing()) > 0 {
			t.Errorf("segments %v, want %v; missing %v", got, want, l.Missing())
		}
		if left := len(find(t, l, nil, End)); left >= blocks || left < blocks/3 {
			t.Errorf("%d blocks of %d", left, blocks)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		opt := testOptions
		opt.Length = length
		l = mustOpen(t, dir, opt)
	}
}

// TestTrim: segments that end before a position are removed. The log then opens with that
// length, with the next longer one and with each of its other lengths.
func TestTrim(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	var lengths []int64
	for range 100 {
		n, err := l.Append(Block{Payload: make([]byte, 200)})
		if err != nil {
			t.Fatal(err)
		}
		lengths = append(lengths, n)
	}
	_, release := l.Pieces(Tail)
	if freed, err := l.Trim(lengths[49]); freed != 0 || err != nil {
		t.Errorf("freed %d while a copy is made, %v", freed, err)
	}
	release()
	before := l.Bytes()
	for _, n := range []int{49, 48, 49, 10, 60} {
		if _, err := l.Trim(lengths[n]); err != nil {
			t.Fatal(err)
		}
	}
	freed := before - l.Bytes()
	if left := len(find(t, l, nil, End)); left < 40 || left > 60 || freed < before/3 {
		t.Fatalf("%d blocks are left, and %d bytes of %d freed", left, freed, before)
	}
	if freed, err := l.Trim(End); err != nil || freed == 0 || l.Length() != lengths[99] {
		t.Errorf("all but what is active: %d, %v, the length is %d of %d", freed, err, l.Length(), lengths[99])
	}
	if n, err := l.Append(Block{Payload: make([]byte, 200)}); err != nil || n <= lengths[99] {
		t.Errorf("the next one: %d, %v", n, err)
	}

	// At the end of each segment there is a valid length to open with.
	for n := range lengths {
		dir := t.TempDir()
		l := mustOpen(t, dir, testOptions)
		for range lengths {
			if _, err := l.Append(Block{Payload: make([]byte, 200)}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := l.Trim(lengths[n]); err != nil {
			t.Fatal(err)
		}
		l.Close() //nolint:errcheck // opened again
		opt := testOptions
		opt.Length = lengths[n]
		if l = mustOpen(t, dir, opt); l.Length() != lengths[n] {
			t.Fatalf("trimmed before %d: its length is %d", lengths[n], l.Length())
		}
		l.Close() //nolint:errcheck // only read
	}
}

func TestReadersBesideWriter(t *testing.T) {
	l := mustOpen(t, t.TempDir(), testOptions)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			last := int64(-1)
			for {
				select {
				case <-stop:
					return
				default:
				}
				newest, prev := int64(-1), int64(1<<62)
				for b, err := range l.Find([][]uint64{{1}}, End) {
					if err != nil {
						t.Error(err)
						return
					}
					if newest < 0 {
						newest = b.Min
					}
					if b.Min >= prev {
						t.Errorf("block %d after block %d", b.Min, prev)
					}
					prev = b.Min
				}
				if newest < last {
					t.Errorf("newest is %d after %d", newest, last)
				}
				last = newest
			}
		})
	}
	for i := range 2000 {
		if _, err := l.Append(Block{Min: int64(i), Max: int64(i), Keys: []uint64{1}, Payload: make([]byte, 50)}); err != nil {
			t.Fatal(err)
		}
		if i%500 == 499 {
			if _, err := l.Retain(int64(i - 300)); err != nil {
				t.Fatal(err)
			}
			if err := l.Sync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	readers.Wait()
}

func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions)
	for _, keys := range [][]uint64{{2, 1}, {1, 1}} {
		if _, err := l.Append(Block{Keys: keys}); err == nil {
			t.Errorf("keys %v are accepted", keys)
		}
	}
	l.Close() //nolint:errcheck // opened again
	if _, err := Open(dir, Options{Kind: "other", SegmentBytes: 4 << 10, Length: 0}); err != nil {
		t.Errorf("a log that is cut to nothing may change its kind: %v", err)
	}
	l = mustOpen(t, t.TempDir(), testOptions)
	if _, err := l.Append(Block{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(l.dir, Options{Kind: "other", SegmentBytes: 4 << 10, Length: l.Length()}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("another kind: got %v, want %v", err, ErrCorrupt)
	}
}

func FuzzParseBlock(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, b := range randomBlocks(r, 5) {
		f.Add(appendBlock(nil, &b, 77)[blockHead:])
	}
	f.Add([]byte{})
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, body []byte) {
		raw := make([]byte, blockHead, blockHead+len(body)) // the correct checksum lets the fuzzer past the check
		raw = append(raw, body...)
		raw[0], raw[1], raw[2], raw[3] = byte(len(body)), byte(len(body)>>8), byte(len(body)>>16), byte(len(body)>>24)
		sum := checksum(77, body)
		raw[4], raw[5], raw[6], raw[7] = byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24)
		b, err := parseBlock(raw, 77, nil)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not %v", err, ErrCorrupt)
			}
			return
		}
		if again := appendBlock(nil, &b, 77); !bytes.Equal(again, raw) {
			t.Fatal("written again, it is different")
		}
		if _, err := parseBlock(raw, 78, nil); err == nil {
			t.Fatal("accepted at another position")
		}
	})
}

func FuzzSegment(f *testing.F) {
	dir := f.TempDir()
	l := mustOpen(f, dir, Options{Kind: "test", SegmentBytes: 300, Length: Tail})
	for i := range 6 {
		if _, err := l.Append(Block{Keys: []uint64{1, uint64(i + 2)}, Payload: []byte("payload")}); err != nil {
			f.Fatal(err)
		}
	}
	names, _ := filepath.Glob(filepath.Join(dir, "*"+extension)) //nolint:errcheck // the pattern is good
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content[headerSize:])
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		dir := t.TempDir()
		content = append(appendHeader(nil, "test", 0), content...)
		if err := os.WriteFile(filepath.Join(dir, filename(0)), content, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(dir, testOptions)
		if err != nil {
			t.Fatalf("a log that keeps what is good must open: %v", err)
		}
		defer l.Close() //nolint:errcheck // see above
		for _, all := range [][][]uint64{nil, {{1}}, {{2, 3}, {1}}} {
			for _, err := range l.Find(all, End) {
				if err != nil && !errors.Is(err, ErrCorrupt) {
					t.Fatalf("error %v is not %v", err, ErrCorrupt)
				}
			}
		}
		if _, err := l.Append(Block{Keys: []uint64{9}, Payload: []byte("new")}); err != nil {
			t.Fatal(err)
		}
		for b, err := range l.Find([][]uint64{{9}}, End) {
			if err != nil || string(b.Payload) != "new" {
				t.Fatalf("got %q, %v", b.Payload, err)
			}
			break
		}
	})
}
