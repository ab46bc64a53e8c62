package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// definitions are the contents of an object through time; the first one is after its
// revision 1.
type definitions struct {
	object
	contents []Content
	at       []int64
	causes   []string
}

// change returns the next revision of the object.
func (d *definitions) change(to Content, atMs int64, cause []byte) Revision {
	var before Content
	if n := len(d.contents); n > 0 {
		before = d.contents[n-1]
	}
	d.contents, d.at, d.causes = append(d.contents, to), append(d.at, atMs), append(d.causes, string(cause))
	return Revision{
		App: d.app, Kind: d.kind, Name: d.name, Number: int64(len(d.contents)), AtMs: atMs,
		Cause: cause, Before: before, After: to,
	}
}

// check reads the revisions of the object in pages and compares all contents. The oldest
// one that is visible is the first argument.
func (d *definitions) check(t testing.TB, s *Store, first int) {
	t.Helper()
	for _, limit := range []int{1, 7, revisionsPage} {
		cursor, number := "", len(d.contents)
		for {
			revs, next, err := s.Revisions(d.app, d.kind, d.name, cursor, limit)
			if err != nil {
				t.Fatal(err)
			}
			if len(revs) > limit || len(revs) < limit && next != "" {
				t.Fatalf("a page of %d with the limit %d, next %q", len(revs), limit, next)
			}
			for _, r := range revs {
				if r.Number != int64(number) || r.AtMs != d.at[number-1] || string(r.Cause) != d.causes[number-1] {
					t.Fatalf("%v: revision %d at %d by %q where %d should be", d.object, r.Number, r.AtMs, r.Cause, number)
				}
				var want Content
				if number > 1 {
					want = d.contents[number-2]
				}
				if got, err := r.Before(d.contents[number-1]); got != want || err != nil {
					t.Fatalf("%v before revision %d: %q, %v, want %q", d.object, number, got, err, want)
				}
				number--
			}
			if cursor = next; cursor == "" {
				break
			}
		}
		if number != first-1 {
			t.Fatalf("%v: the revisions end with %d, not with %d", d.object, number+1, first)
		}
	}
}

// randomContent returns a content that resembles the one before it.
func randomContent(r *rand.Rand, before Content) Content {
	if r.IntN(10) == 0 {
		return Content{} // deleted
	}
	edit := func(text string) string {
		at := r.IntN(len(text) + 1)
		end := at + r.IntN(min(len(text)-at, 40)+1)
		return text[:at] + strings.Repeat(string(rune('a'+r.IntN(26))), r.IntN(50)) + text[end:]
	}
	next := before
	if r.IntN(4) == 0 {
		next.Shape = edit(before.Shape)
	}
	next.Own = edit(before.Own) + "."
	return next
}

// TestRevisions: the revisions of random objects of several apps lead back through all
// their contents, also after a restart.
func TestRevisions(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 16 << 10})
	var objects []*definitions
	for i := range 40 {
		objects = append(objects, &definitions{object: object{fmt.Sprint("app", i%3), []string{"job", "calendar"}[i%2], fmt.Sprint("name", i/2)}})
	}
	causes := [][]byte{[]byte("alice by the console"), []byte("bob"), nil}
	for n := range 60 {
		b := &Batch{Applied: uint64(n + 1), Finished: finishedRange(n, n+1)}
		for range r.IntN(100) {
			o := objects[r.IntN(len(objects))]
			var before Content
			if len(o.contents) > 0 {
				before = o.contents[len(o.contents)-1]
			}
			b.Revisions = append(b.Revisions, o.change(randomContent(r, before), recent+int64(n)-r.Int64N(3), causes[r.IntN(3)]))
		}
		commit(t, s, b)
	}
	if n := len(mustGlob(t, s.path("revisions/*.seg"))); n < 2 {
		t.Fatalf("%d segments", n)
	}
	for range 2 {
		for _, o := range objects {
			o.check(t, s, max(1, len(o.contents)-visibleRevisions+1))
		}
		s = reopen(t, s)
	}
	if revs, next, err := s.Revisions("app0", "job", "none", "", 10); len(revs) > 0 || next != "" || err != nil {
		t.Errorf("an object without revisions: %v, %q, %v", revs, next, err)
	}
	for _, limit := range []int{0, revisionsPage + 1} {
		if _, _, err := s.Revisions("app0", "job", "name1", "", limit); err == nil {
			t.Errorf("a page of %d is not refused", limit)
		}
	}
	for _, bad := range []string{"x", cursor{1, 2}.String(), revisionCursor{}.String(), revisionCursor{-1, 1, 1}.String(), revisionCursor{1, 3, 2}.String()} {
		if _, _, err := s.Revisions("app0", "job", "name1", bad, 1); !errors.Is(err, ErrCursor) {
			t.Errorf("cursor %q: %v", bad, err)
		}
	}
}

// TestVisibleRevisions: readers find the newest 100 revisions of an object, those of a new
// object only, and none from before the deletion of the app.
func TestVisibleRevisions(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	d := definitions{object: object{"a", "job", "j"}}
	for n := range 250 {
		commit(t, s, &Batch{Applied: uint64(n + 1), Revisions: []Revision{d.change(Content{"shape", fmt.Sprint("own ", n)}, int64(n), nil)}})
	}
	d.check(t, s, 151)
	revs, next, err := s.Revisions("a", "job", "j", "", 1)
	if err != nil || len(revs) != 1 {
		t.Fatal(revs, err)
	}
	if _, err := revs[0].Before(Content{"shape", "another"}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("from another content: %v", err)
	}
	commit(t, s, &Batch{Applied: 251, Revisions: []Revision{d.change(Content{"shape", "later"}, 250, nil)}})
	if revs, _, err = s.Revisions("a", "job", "j", next, 1); len(revs) != 1 || revs[0].Number != 249 || err != nil {
		t.Errorf("the second page begins with %+v, %v", revs, err)
	}
	s.SetRetention("a", Retention{SinceMs: 240})
	d.check(t, s, 241)
	s.SetRetention("a", Retention{})
	revs, next, err = s.Revisions("a", "job", "j", "", visibleRevisions)
	if len(revs) != visibleRevisions || next != "" || err != nil {
		t.Errorf("a page of all: %d revisions, %q, %v", len(revs), next, err)
	}
	again := definitions{object: d.object}
	commit(t, s, &Batch{Applied: 252, Revisions: []Revision{
		again.change(Content{"", "new"}, 300, []byte("x")), again.change(Content{"", "newer"}, 300, []byte("x")),
	}})
	again.check(t, s, 1)
}

// TestRevisionsTwice: a commit that failed behind the revisions, and is repeated, makes
// them visible once.
func TestRevisionsTwice(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	d := definitions{object: object{"a", "job", "j"}}
	commit(t, s, &Batch{Applied: 1, Revisions: []Revision{d.change(Content{"s", "1"}, 1, nil)}})
	b := &Batch{Applied: 2, Revisions: []Revision{d.change(Content{"s", "2"}, 2, nil), d.change(Content{"s", "3"}, 2, nil)}}
	blocks, err := new(revisionEncoder).encode(b.Revisions)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.revisions.Append(blocks...); err != nil {
		t.Fatal(err)
	}
	commit(t, s, b)
	d.check(t, s, 1)
	commit(t, s, &Batch{Applied: 3, Revisions: []Revision{d.change(Content{"s", "4"}, 2, nil)}})
	reopen(t, s)
}

// TestRefusedRevisions: a batch with a revision out of bounds writes nothing.
func TestRefusedRevisions(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	for name, r := range map[string]Revision{
		"long name":     {App: "a", Kind: "job", Name: strings.Repeat("x", maxKey), Number: 1},
		"large content": {App: "a", Kind: "job", Name: "j", Number: 2, Before: Content{Own: strings.Repeat("x", maxValue+1)}},
		"number 0":      {App: "a", Kind: "job", Name: "j"},
	} {
		err := s.Commit(&Batch{Applied: 1, Finished: finishedRange(0, 1), Revisions: []Revision{{App: "a", Kind: "job", Name: "fine", Number: 1}, r}})
		if err == nil || errors.Is(err, ErrFull) || s.Applied() != 0 || len(pages(t, s, RunQuery{})) > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if revs, _, err := s.Revisions("a", "job", "fine", "", 1); len(revs) > 0 || err != nil {
		t.Errorf("%v, %v", revs, err)
	}
}

// TestRevisionsMissing: after a loss in the middle the newer revisions are returned, and
// none behind the loss.
func TestRevisionsMissing(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	d := definitions{object: object{"a", "job", "j"}}
	var at []int64
	for n := range 10 {
		at = append(at, s.revisions.Length())
		commit(t, s, &Batch{Applied: uint64(n + 1), Revisions: []Revision{d.change(Content{"s", fmt.Sprint(n)}, 5, nil)}})
	}
	snapshot(t, s)
	closeStore(t, s)
	name := mustGlob(t, s.path("revisions/*.seg"))[0]
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	content[at[4]+20] ^= 1 // in the block of revision 5
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(s.cfg); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) {
		t.Fatalf("open: %v", err)
	}
	r, err := Repair(s.cfg.Dir)
	if err != nil || r.Quarantine == "" || damages(r.Parts) != 1 {
		t.Fatalf("repair: %+v, %v", r, err)
	}
	s = openStore(t, s.cfg)
	d.check(t, s, 6)
}

// TestRevisionFilesAreMissing: a store opens without its revisions after their files were
// removed.
func TestRevisionFilesAreMissing(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 4 << 10})
	commitNumbered(t, s, 100)
	snapshot(t, s)
	length := s.revisions.Length()
	closeStore(t, s)
	remove(t, s.path(revisionsName))
	s = openStore(t, s.cfg)
	for n := 51; n <= 100; n++ {
		r := numberedRevision(n)
		if revs, next, err := s.Revisions(r.App, r.Kind, r.Name, "", 10); len(revs) > 0 || next != "" || err != nil {
			t.Fatalf("%v, %q, %v", revs, next, err)
		}
	}
	if s.revisions.Length() < length {
		t.Errorf("the log continues at %d, not behind %d", s.revisions.Length(), length)
	}
	commitNumbered(t, s, 1)
	checkShares(t, s)
	s = reopen(t, s)
	checkShares(t, s)
	r := numberedRevision(101)
	revs, _, err := s.Revisions(r.App, r.Kind, r.Name, "", 10)
	if len(revs) != 1 || revs[0].Number != 3 || err != nil {
		t.Fatalf("%v, %v", revs, err)
	}
	if before, err := revs[0].Before(r.After); before != r.Before || err != nil {
		t.Errorf("%v, %v", before, err)
	}
}

// TestDamagedRevisions: a page before damage is returned, and the next one is an error.
func TestDamagedRevisions(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir(), SegmentBytes: 4 << 10})
	d := definitions{object: object{"a", "job", "j"}}
	r := rand.New(rand.NewPCG(1, 1))
	for n := range 20 {
		commit(t, s, &Batch{Applied: uint64(n + 1), Revisions: []Revision{d.change(Content{"", noise(r, 1000)}, 5, nil)}})
	}
	name := mustGlob(t, s.path("revisions/*.seg"))[2]
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	content[100] ^= 1
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	revs, next, err := s.Revisions("a", "job", "j", "", 100)
	if len(revs) < 5 || next == "" || err != nil {
		t.Fatalf("%d revisions, %q, %v", len(revs), next, err)
	}
	if _, _, err = s.Revisions("a", "job", "j", next, 100); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "store repair") {
		t.Errorf("the next page: %v", err)
	}
}

// TestOldStoresHaveNoRevisions opens a store with the row of an earlier version.
func TestOldStoresHaveNoRevisions(t *testing.T) {
	s := openStore(t, Config{Dir: t.TempDir()})
	commit(t, s, &Batch{Applied: 1, Finished: finishedRange(0, 10), Keys: []Keys{{"a", []byte("x")}}})
	m := meta{applied: 1, history: s.history.Length(), keys: s.KeysLength()}
	w := newWriter(s.db)
	if err := errors.Join(w.set(viewKey(), append([]byte{3}, m.encode()[1:25]...)), w.commit()); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	remove(t, s.path(revisionsName))
	s = openStore(t, s.cfg)
	d := definitions{object: object{"a", "job", "j"}}
	commit(t, s, &Batch{Applied: 2, Revisions: []Revision{d.change(Content{"s", "1"}, 1, nil)}})
	s = reopen(t, s)
	d.check(t, s, 1)
	if got := pages(t, s, RunQuery{}); len(got) != 10 {
		t.Errorf("%d runs", len(got))
	}
}

// TestRevisionBytes fixes the bytes of a block.
func TestRevisionBytes(t *testing.T) {
	cause := []byte("me")
	blocks, err := new(revisionEncoder).encode([]Revision{
		{App: "b", Kind: "job", Name: "x", Number: 1, AtMs: 1000, Cause: cause, After: Content{"S", "one"}},
		{App: "a", Kind: "job", Name: "y", Number: 1, AtMs: 1000, Cause: cause, After: Content{"S", "a"}},
		{App: "b", Kind: "job", Name: "x", Number: 2, AtMs: 990, Cause: cause, Before: Content{"S", "one"}, After: Content{"S", "once"}},
		{App: "b", Kind: "job", Name: "x", Number: 3, AtMs: 990, Cause: []byte("you"), Before: Content{"S", "once"}, After: Content{"TS", ""}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"\x00\x01a" + "\x01\x02" + "\x03job\x02me" + "\x00\x01y\x01\xd0\x0f\x01\x00",
		"\x00\x01b" + "\x03\x04" + "\x03job\x02me\x03you\x00" +
			"\x00\x01x\x01\xd0\x0f\x01\x00" +
			"\x00\x01x\x02\x13\x01\x01" + sumBytes(Content{"S", "once"}) + "\x02\x01\x00" +
			"\x00\x01x\x03\x00\x02\x02" + sumBytes(Content{"TS", ""}) + "\x00\x00\x04once" + "\x00\x01\x03",
	}
	for i, b := range blocks {
		if string(b.Payload) != want[i] {
			t.Errorf("block %d:\n%q, want\n%q", i, b.Payload, want[i])
		}
	}
	if sum := sumBytes(Content{"S", "once"}); sum != "\xa4\x85\x10\xf4" {
		t.Errorf("the sum is %q", sum)
	}
}

func sumBytes(c Content) string {
	sum, _ := c.sum(nil)
	return string([]byte{byte(sum), byte(sum >> 8), byte(sum >> 16), byte(sum >> 24)})
}

func FuzzRevisions(f *testing.F) {
	revs := []Revision{
		{App: "a", Kind: "job", Name: "x", Number: 1, AtMs: 1000, After: Content{"S", "one"}},
		{App: "a", Kind: "job", Name: "x", Number: 2, AtMs: 990, Cause: []byte("me"), Before: Content{"S", "one"}, After: Content{"T", strings.Repeat("once", 100)}},
		{App: "a", Kind: "job", Name: "x", Number: 3, AtMs: 990, Before: Content{"T", strings.Repeat("once", 100)}},
	}
	blocks, err := new(revisionEncoder).encode(revs)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(slices.Clone(blocks[0].Payload), "S", "one")
	f.Add([]byte{}, "", "")
	f.Add([]byte{codePlain, 1, 'a', 1, 255, 255, 255, 255, 15}, "", "") // texts without an end
	f.Add([]byte{codeS2, 1, 'a', 255, 255, 255, 255, 15, 0, 0}, "", "") // 4 GiB from some bytes
	f.Add(bytes.Repeat([]byte{255}, 30), "x", "y")
	f.Fuzz(func(t *testing.T, payload []byte, shape, own string) {
		found, err := parseRevisions(segment.Block{Payload: payload}, object{"a", "job", "x"})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not %v", err, ErrCorrupt)
			}
			return
		}
		after := Content{shape, own}
		for _, r := range found {
			if !r.delta.created {
				r.delta.sum, _ = after.sum(nil)
			}
			if _, err := r.Before(after); err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not %v", err, ErrCorrupt)
			}
		}
	})
}

func FuzzShares(f *testing.F) {
	p := part{shares: []share{{"a", 100, 5}, {"b", 1 << 40, -3}}}
	f.Add(p.encode())
	f.Add([]byte{sharesVersion, 255, 255, 255, 255, 15})
	f.Fuzz(func(t *testing.T, row []byte) {
		var p, again part
		if p.decode(row) && (!again.decode(p.encode()) || !slices.Equal(p.shares, again.shares)) {
			t.Fatalf("%+v reads as %+v", p, again)
		}
	})
}

// FuzzDelta: a delta leads from any content to any other one.
func FuzzDelta(f *testing.F) {
	f.Add("", "one", "S", "two")
	f.Add("S", strings.Repeat("a", 70)+"x"+strings.Repeat("b", 70), "S", strings.Repeat("a", 70)+strings.Repeat("b", 70))
	f.Add("aa", "aa", "aaa", "aaaa")
	f.Fuzz(func(t *testing.T, shape, own, shapeAfter, ownAfter string) {
		before, after := Content{shape, own}, Content{shapeAfter, ownAfter}
		blocks, err := new(revisionEncoder).encode([]Revision{{Number: 2, Before: before, After: after}})
		if err != nil {
			t.Fatal(err)
		}
		found, err := parseRevisions(blocks[0], object{})
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		if got, err := found[0].Before(after); got != before || err != nil {
			t.Fatalf("%q, %v, want %q", got, err, before)
		}
	})
}

// visibleOf returns the numbers of the oldest and the newest visible revision.
func visibleOf(t *testing.T, s *Store, d *definitions) (oldest, newest int64) {
	t.Helper()
	revs, _, err := s.Revisions(d.app, d.kind, d.name, "", visibleRevisions)
	if err != nil {
		t.Fatal(err)
	}
	if len(revs) == 0 {
		return 0, 0
	}
	return revs[len(revs)-1].Number, revs[0].Number
}

// noise returns a text that does not compress.
func noise(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// checkShares compares the shares with those that a start without rows counts.
func checkShares(t testing.TB, s *Store) {
	t.Helper()
	total := map[string]int64{}
	for i, at := range s.revisions.Segments() {
		p := s.shares.parts[i]
		want, err := s.countShares(at)
		if err != nil || p.base != at.From {
			t.Fatalf("segment %d at %d, shares of %d, %v", i, at.From, p.base, err)
		}
		for _, sh := range p.shares {
			if j, ok := want.find(sh.app); !ok || want.shares[j] != sh {
				t.Fatalf("segment %d: %+v, but the segment has %+v", i, sh, want.shares)
			}
			total[sh.app] += sh.bytes
		}
	}
	if len(s.shares.parts) != len(s.revisions.Segments()) || !maps.Equal(total, s.shares.total) {
		t.Fatalf("%d segments and %d parts, totals %v and %v", len(s.revisions.Segments()), len(s.shares.parts), total, s.shares.total)
	}
}

// TestRevisionBytesOfApps: an app shows the newest revisions up to its limit, whatever other
// apps do, and segments in which no app shows anything are removed.
func TestRevisionBytesOfApps(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	const limit = 64 << 10
	s := openStore(t, Config{Dir: t.TempDir(), RevisionBytes: limit})
	quiet := &definitions{object: object{"quiet", "job", "j"}}
	var busy []*definitions
	for i := range 10 {
		busy = append(busy, &definitions{object: object{"busy", "job", fmt.Sprint("j", i)}})
	}
	seq := uint64(0)
	put := func(revs ...Revision) {
		t.Helper()
		seq++
		commit(t, s, &Batch{Applied: seq, Rows: []Row{{Key: "seq", Value: fmt.Append(nil, seq)}}, Revisions: revs})
	}
	check := func() {
		t.Helper()
		s.shares.floor("busy")
		checkShares(t, s)
		quiet.check(t, s, 1)
		if got := s.shares.total["busy"]; got > limit || got < limit/2 {
			t.Fatalf("the busy app shows %d bytes of %d", got, limit)
		}
		for _, d := range busy {
			if oldest, newest := visibleOf(t, s, d); oldest < 5 || newest != int64(len(d.contents)) || newest-oldest > 20 {
				t.Fatalf("%s: revisions %d to %d are visible", d.name, oldest, newest)
			}
		}
	}
	for n := range 60 {
		if n%20 == 0 {
			put(quiet.change(Content{"", fmt.Sprint(n)}, 100, nil))
		}
		for _, d := range busy {
			put(d.change(Content{"", noise(r, 1000)}, 1000, nil))
		}
	}
	check()
	if before := s.revisions.Bytes(); before < 3*limit {
		t.Fatalf("%d bytes", before)
	}
	snapshot(t, s)
	check()
	if after := s.revisions.Bytes(); after > 2*limit {
		t.Errorf("%d bytes are left", after)
	}
	put() // deletes the rows of the removed segments
	rows := func() (n int) {
		err := s.db.View(func(txn *badger.Txn) error {
			return scan(txn, []byte{kindShares}, []byte{kindShares}, func(_, _ []byte) error { n++; return nil })
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if segments := len(s.revisions.Segments()); rows() != segments-1 {
		t.Errorf("%d rows for %d segments", rows(), segments)
	}
	s = reopen(t, s)
	check()

	// An app may have a limit of its own, also over a restart.
	s.SetRetention("busy", Retention{RevisionBytes: 4 * limit})
	for range 90 {
		for _, d := range busy {
			put(d.change(Content{"", noise(r, 1000)}, 1000, nil))
		}
	}
	for range 2 {
		if s.shares.floor("busy"); s.shares.total["busy"] < 3*limit || s.shares.total["busy"] > 4*limit {
			t.Errorf("with a limit of its own the app shows %d bytes", s.shares.total["busy"])
		}
		s = reopen(t, s)
		s.SetRetention("busy", Retention{RevisionBytes: 4 * limit})
	}
	s.SetRetention("busy", Retention{})
	snapshot(t, s)
	check()

	// A copy, and a view that is rebuilt, show the same.
	dir := t.TempDir()
	copyTo(t, s, dir, nil)
	original := s
	s = openStore(t, Config{Dir: dir, RevisionBytes: limit})
	check()
	s = original
	snapshot(t, s)
	closeStore(t, s)
	if _, err := Rebuild(s.cfg.Dir, RebuildOptions{}); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, s.cfg)
	check()

	// Deleted apps show nothing, and then have no space.
	segments := len(s.revisions.Segments())
	s.SetRetention("quiet", Retention{SinceMs: 500})
	put()
	snapshot(t, s)
	if got := len(s.revisions.Segments()); got >= segments || s.shares.total["quiet"] > 0 {
		t.Errorf("%d segments of %d, %v", got, segments, s.shares.total)
	}
	if _, newest := visibleOf(t, s, quiet); newest != 0 {
		t.Error("revisions of a deleted app are shown")
	}
	quiet.contents, quiet.at, quiet.causes = nil, nil, nil
	put(quiet.change(Content{"", "of the new app"}, 600, nil))
	if oldest, newest := visibleOf(t, s, quiet); oldest != 1 || newest != 1 {
		t.Errorf("revisions %d to %d of the new app", oldest, newest)
	}
}

// TestLargeCommitOfRevisions: the newest segment of an app stays visible even if it has more
// than the limit, until the app has a newer one.
func TestLargeCommitOfRevisions(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	s := openStore(t, Config{Dir: t.TempDir(), RevisionBytes: 64 << 10})
	d, other := definitions{object: object{"a", "job", "j"}}, definitions{object: object{"b", "job", "j"}}
	commit(t, s, &Batch{Applied: 1, Revisions: []Revision{d.change(Content{"", noise(r, 5000)}, 1, nil)}})
	b := &Batch{Applied: 2}
	for range 50 {
		b.Revisions = append(b.Revisions, d.change(Content{"", noise(r, 5000)}, 1, nil))
	}
	commit(t, s, b)
	commit(t, s, &Batch{Applied: 3, Revisions: []Revision{other.change(Content{"", noise(r, 5000)}, 1, nil)}})
	for range 2 {
		d.check(t, s, 2) // revision 1 is in an older segment
		other.check(t, s, 1)
		s = reopen(t, s)
	}
	commit(t, s, &Batch{Applied: 4, Revisions: []Revision{d.change(Content{"", "small"}, 1, nil)}})
	d.check(t, s, 52)
	if got := s.shares.floor("unknown"); got != segment.End {
		t.Errorf("an app without revisions shows some from %d", got)
	}
}

// TestUnreadableSharesStay: a segment that cannot be read whole, and whose row is damaged, is
// not removed, and does not keep the store from opening.
func TestUnreadableSharesStay(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	s := openStore(t, Config{Dir: t.TempDir(), RevisionBytes: 64 << 10})
	d := definitions{object: object{"a", "job", "j"}}
	for n := range 20 {
		commit(t, s, &Batch{Applied: uint64(n + 1), Revisions: []Revision{d.change(Content{"", noise(r, 1000)}, int64(n), nil)}})
	}
	damaged := s.revisions.Segments()[1]
	name := mustGlob(t, s.path("revisions/*.seg"))[1]
	w := newWriter(s.db)
	if err := errors.Join(w.set(sharesKey(damaged.From), []byte{99}), w.commit()); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	content[100] ^= 1
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, s.cfg)
	if !s.shares.parts[1].unread || s.shares.parts[0].unread || s.shares.parts[2].unread {
		t.Fatalf("%+v", s.shares.parts)
	}
	s.SetRetention("a", Retention{SinceMs: 1000}) // the app was deleted
	commit(t, s, &Batch{Applied: 21, Rows: []Row{{"x", []byte("y")}}})
	snapshot(t, s)
	if left := s.revisions.Segments(); len(left) != 2 || left[0] != damaged {
		t.Errorf("segments %v are left, want %v and the active one", left, damaged)
	}
}

// TestSharesRow: a row with shares reads back, and a damaged one is refused.
func TestSharesRow(t *testing.T) {
	p := part{shares: []share{{"a", 100, 5}, {"b", 1 << 40, -3}}}
	row := p.encode()
	var got part
	if !got.decode(row) || !slices.Equal(got.shares, p.shares) {
		t.Fatalf("%+v", got)
	}
	for _, bad := range [][]byte{nil, {2}, row[:len(row)-1], append(slices.Clone(row), row[1:]...)} {
		if got = (part{}); got.decode(bad) {
			t.Errorf("% x: %+v", bad, got)
		}
	}
}

// BenchmarkRevisions measures the cost that a revision adds to a commit.
func BenchmarkRevisions(b *testing.B) {
	cause, shape := []byte(`{"by":"alice","note":"apply of jobs.yaml"}`), strings.Repeat("shape of a job ", 20)
	own := strings.Repeat("name and schedule of a job ", 10)
	create := Revision{Number: 1, After: Content{shape, own}}
	update := Revision{Number: 2, Before: Content{shape, own + "*/5"}, After: Content{shape, own + "*/7"}}
	for _, c := range []struct {
		name  string
		batch int
		of    Revision
	}{
		{"create/batch=1", 1, create},
		{"create/batch=256", 256, create},
		{"update/batch=1", 1, update},
		{"update/batch=256", 256, update},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := openStore(b, Config{Dir: b.TempDir()})
			names := make([]string, 1<<16)
			for i := range names {
				names[i] = fmt.Sprint("tenant-", i, "-report")
			}
			revs := make([]Revision, c.batch)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				for i := range revs {
					revs[i] = c.of
					r := &revs[i]
					r.App, r.Kind, r.Name, r.AtMs, r.Cause = "default", "job", names[n%len(names)], recent+int64(n), cause
					n++
				}
				blocks, err := s.changes.encode(revs)
				if err == nil {
					_, err = s.revisions.Append(blocks...)
				}
				for i := range blocks {
					s.shares.add(s.revisions.Base(), s.changes.apps[i], &blocks[i])
				}
				if err != nil {
					b.Fatal(err)
				}
				s.changes.forget()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/revision")
			b.ReportMetric(float64(s.Stats().Revisions)/float64(n), "B/revision")
		})
	}
}
