package store

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

func FuzzKeys(f *testing.F) {
	f.Add("app", "name", "1", []byte("0123456789abcdef"))
	f.Add("", "", "", []byte{})
	f.Add("a\x00", "\x00\x01", "\x00\xff", []byte{0})
	f.Fuzz(func(t *testing.T, a, b, c string, raw []byte) {
		if app, name, err := parseJobKey(jobKey(a, b)); app != a || name != b || err != nil {
			t.Errorf("job %q %q: got %q %q, %v", a, b, app, name, err)
		}
		if app, name, version, err := parseModuleKey(moduleKey(a, b, c)); app != a || name != b || version != c || err != nil {
			t.Errorf("module %q %q %q: got %q %q %q, %v", a, b, c, app, name, version, err)
		}
		var id [16]byte
		copy(id[:], raw)
		if app, got, err := parseRunKey(runKey(a, id)); app != a || got != id || err != nil {
			t.Errorf("run %q %x: got %q %x, %v", a, id, app, got, err)
		}
		if key := parseRowKey(rowKey(a)); key != a {
			t.Errorf("row %q: got %q", a, key)
		}
		if ka, kb := appendText(nil, a), appendText(nil, b); (a < b) != (bytes.Compare(ka, kb) < 0) {
			t.Errorf("%q and %q sort differently as keys", a, b)
		}
		for _, kind := range []byte{kindJob, kindStats, kindModule, kindRun} { // no panic, and an accepted key encodes to the same bytes
			key := append([]byte{kind}, raw...)
			if app, name, err := parseJobKey(key); kind == kindJob && err == nil && !bytes.Equal(jobKey(app, name), key) {
				t.Errorf("key %q reads as another job", key)
			}
			if app, name, version, err := parseModuleKey(key); kind == kindModule && err == nil && !bytes.Equal(moduleKey(app, name, version), key) {
				t.Errorf("key %q reads as another module", key)
			}
			if app, id, err := parseRunKey(key); kind == kindRun && err == nil && !bytes.Equal(runKey(app, id), key) {
				t.Errorf("key %q reads as another run", key)
			}
		}
	})
}

func FuzzParseRuns(f *testing.F) {
	blocks, err := new(encoder).encode(finishedRange(0, 5))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(blocks[0].Payload, bytes.Join(blocks[0].Rest, nil)...), 40)
	f.Add([]byte{1, 0, 0, 0, 27: 0, 31: 5}, 1) // older format: one run, a value of 5 bytes that are missing
	f.Add([]byte{}, 0)
	f.Add([]byte{255, 255, 255, 255}, 1)
	f.Fuzz(func(t *testing.T, payload []byte, keys int) {
		r, err := parseRuns(segment.Block{Payload: payload, Keys: make([]uint64, min(max(keys, 0), 1000))})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatalf("error %v is not %v", err, ErrCorrupt)
			}
			return
		}
		for i := range r.n {
			r.columns(i)
			r.id(i)
			r.copyValue(i)
		}
	})
}

func FuzzLogEntries(f *testing.F) {
	blocks, err := logBlocks([]LogEntry{{"a", id(1), 0, 2, []byte("lines")}, {"a", id(2), 0, 1, nil}}, 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(blocks[0].Payload, logKey("a", id(1)))
	f.Add([]byte{}, uint64(0))
	f.Add(bytes.Repeat([]byte{255}, entryHead), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, payload []byte, key uint64) {
		if _, err := entriesOf(segment.Block{Payload: payload}, key); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("error %v is not %v", err, ErrCorrupt)
		}
	})
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add(cursor{12, 3}.String())
	f.Add(cursor{math.MaxInt64, 3}.String())
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseCursor(s)
		if err != nil {
			if !errors.Is(err, ErrCursor) {
				t.Fatalf("error %v is not %v", err, ErrCursor)
			}
			return
		}
		if again, err := parseCursor(c.String()); again != c || err != nil || c.before() <= 0 {
			t.Fatalf("cursor %q reads as %v, then as %v, %v", s, c, again, err)
		}
	})
}

// snapshotBytes returns a snapshot with three rows, one of them deleted.
func snapshotBytes(t testing.TB, k link) []byte {
	var buf bytes.Buffer
	w := newSnapWriter(&buf, k)
	w.add([]byte("j1"), []byte("value"), false)
	w.add([]byte("j2"), nil, true)
	w.add([]byte("j3"), []byte{}, false)
	if _, err := w.finish(meta{applied: 9, history: 100}); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// FuzzSnapshot reads frames of any content with correct checksums.
func FuzzSnapshot(f *testing.F) {
	k := link{chain: 3, number: 1, since: 5}
	whole := snapshotBytes(f, k)
	f.Add(whole[snapHead+frameHead : len(whole)-snapTail])
	f.Add([]byte{})
	f.Add([]byte{1, 'k', 255, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Add([]byte{1, 'k', 0})
	f.Fuzz(func(t *testing.T, frame []byte) {
		var rows uint64
		again := newSnapWriter(new(bytes.Buffer), k)
		_, err := readFrame(frame, func(key, value []byte, deleted bool) error {
			rows++
			if deleted != (value == nil) || len(key) == 0 {
				t.Fatalf("key %q, value %q, deleted %v", key, value, deleted)
			}
			again.add(key, value, deleted)
			return nil
		})
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatalf("error %v is not %v", err, ErrCorrupt)
		}
		if rows != again.rows {
			t.Fatal("rows are lost")
		}
	})
}

// TestSnapshotBytes cuts a snapshot at every byte and flips every byte.
func TestSnapshotBytes(t *testing.T) {
	k := link{chain: 3, number: 1, since: 5}
	whole := snapshotBytes(t, k)
	read := func(content []byte) (rows []string, err error) {
		got, err := readLink(bytes.NewReader(content), int64(len(content)), link{chain: 3, number: 1})
		if err != nil {
			return nil, err
		}
		name := filepath.Join(t.TempDir(), got.filename())
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
		err = loadLink(filepath.Dir(name), got, func(key, value []byte, deleted bool) error {
			rows = append(rows, string(key)+"="+string(value))
			return nil
		})
		return rows, err
	}
	if rows, err := read(whole); err != nil || !slices.Equal(rows, []string{"j1=value", "j2=", "j3="}) {
		t.Fatal(rows, err)
	}
	for n := range whole {
		if _, err := read(whole[:n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes of %d: got %v, want %v", n, len(whole), err, ErrCorrupt)
		}
		bad := bytes.Clone(whole)
		bad[n] ^= 1 << (n % 8)
		if _, err := read(bad); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d flipped: got %v, want %v", n, err, ErrCorrupt)
		}
	}
}
