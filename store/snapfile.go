package store

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/wheelworkhq/wheelwork/store/segment"
)

// A snapshot of the view is a chain of files. Link 0 holds all rows. Each further link
// holds the changes since the previous one, including deletions. A file is written under
// a temporary name, synced and renamed. Under its own name it is therefore complete,
// unless it was damaged later.
//
// Bytes of a file, little endian:
//
//	magic (8), chain (8), link (4), journal sequence of the link before (8), CRC-32C (4)
//	frames: length of the body (4), CRC-32C (4), body: rows, each
//	        length of the key, key, length of the value + 1 or 0 for deleted, value (lengths are uvarints)
//	0 (4), then: rows (8), journal sequence (8), length of the history (8), CRC-32C (4), magic (8)
//
// Each checksum also covers the offset in the file, the chain and the link.
var (
	snapMagic  = [8]byte{'W', 'W', 'S', 'N', 'A', 'P', 0, 1} // the last byte is the version of the format
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

const (
	snapHead    = 8 + 8 + 4 + 8 + 4
	snapTail    = 4 + 8 + 8 + 8 + 4 + 8
	frameHead   = 8
	frameBytes  = 256 << 10        // size at which a frame is closed
	maxFrame    = maxValue + 1<<20 // the largest row and a frame
	temporary   = ".tmp"
	snapPattern = "%010d-%02d.snap" // chain, link
)

// link is one file of a chain.
type link struct {
	chain  uint64
	number uint32
	since  uint64 // journal sequence of the previous link; 0 for link 0
	meta   meta
	rows   uint64
	size   int64
}

func (k link) filename() string { return fmt.Sprintf(snapPattern, k.chain, k.number) }

func parseLinkName(name string) (k link, ok bool) {
	_, err := fmt.Sscanf(name, snapPattern, &k.chain, &k.number)
	return k, err == nil && k.filename() == name
}

// checksum covers the content and its chain, link and offset.
func (k link) checksum(off int64, content []byte) uint32 {
	var at [20]byte
	binary.LittleEndian.PutUint64(at[:], k.chain)
	binary.LittleEndian.PutUint32(at[8:], k.number)
	binary.LittleEndian.PutUint64(at[12:], uint64(off))
	return crc32.Update(crc32.Update(0, castagnoli, at[:]), castagnoli, content)
}

func (k link) head() []byte {
	le := binary.LittleEndian
	b := append([]byte{}, snapMagic[:]...)
	b = le.AppendUint64(b, k.chain)
	b = le.AppendUint32(b, k.number)
	b = le.AppendUint64(b, k.since)
	return le.AppendUint32(b, k.checksum(0, b))
}

// tail returns the end of a file whose frames end at off.
func (k link) tail(off int64) []byte {
	le := binary.LittleEndian
	b := make([]byte, 4, snapTail)
	b = le.AppendUint64(b, k.rows)
	b = le.AppendUint64(b, k.meta.applied)
	b = le.AppendUint64(b, uint64(k.meta.history))
	b = le.AppendUint32(b, k.checksum(off, b))
	return append(b, snapMagic[:]...)
}

// snapWriter writes one file.
type snapWriter struct {
	link
	w     *bufio.Writer
	off   int64
	frame []byte
}

func newSnapWriter(w io.Writer, k link) *snapWriter {
	s := &snapWriter{link: k, w: bufio.NewWriter(w)}
	s.write(k.head())
	return s
}

// write counts bytes; bufio retains the first error until the end.
func (s *snapWriter) write(b []byte) {
	s.w.Write(b) //nolint:errcheck // see above
	s.off += int64(len(b))
}

// add writes a row, or the deletion of a row.
func (s *snapWriter) add(key, value []byte, deleted bool) {
	s.rows++
	s.frame = binary.AppendUvarint(s.frame, uint64(len(key)))
	s.frame = append(s.frame, key...)
	if deleted {
		s.frame = append(s.frame, 0)
	} else {
		s.frame = binary.AppendUvarint(s.frame, uint64(len(value))+1)
		s.frame = append(s.frame, value...)
	}
	if len(s.frame) >= frameBytes {
		s.flush()
	}
}

func (s *snapWriter) flush() {
	if len(s.frame) == 0 {
		return
	}
	var head [frameHead]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(s.frame)))
	binary.LittleEndian.PutUint32(head[4:], s.checksum(s.off, s.frame))
	s.write(head[:])
	s.write(s.frame)
	s.frame = s.frame[:0]
}

// finish completes the file and returns its description.
func (s *snapWriter) finish(m meta) (link, error) {
	s.flush()
	s.meta = m
	s.write(s.tail(s.off))
	s.size = s.off
	return s.link, s.w.Flush()
}

// readLink reads the head and the tail of a snapshot of size bytes and checks that it is
// k.
func readLink(r io.ReaderAt, size int64, k link) (link, error) {
	le := binary.LittleEndian
	if size < snapHead+snapTail {
		return link{}, fmt.Errorf("too short: %w", segment.ErrCorrupt)
	}
	head, tail := make([]byte, snapHead), make([]byte, snapTail)
	if _, err := r.ReadAt(head, 0); err != nil {
		return link{}, err
	}
	if _, err := r.ReadAt(tail, size-snapTail); err != nil {
		return link{}, err
	}
	k.since, k.size = le.Uint64(head[20:]), size
	k.rows = le.Uint64(tail[4:])
	k.meta = meta{applied: le.Uint64(tail[12:]), history: int64(le.Uint64(tail[20:]))}
	if string(head) != string(k.head()) || string(tail) != string(k.tail(size-snapTail)) {
		return link{}, fmt.Errorf("head or tail is damaged: %w", segment.ErrCorrupt)
	}
	return k, nil
}

// readRows calls fn for the rows of a snapshot. It reads r from the start; k and its size
// come from readLink. fn must not retain the slices.
func readRows(r io.Reader, k link, fn func(key, value []byte, deleted bool) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	if _, err := in.Discard(snapHead); err != nil {
		return err
	}
	var rows uint64
	var frame []byte
	off, end := int64(snapHead), k.size-snapTail
	for off < end {
		var head [frameHead]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return err
		}
		n := int64(binary.LittleEndian.Uint32(head[:]))
		if n > maxFrame || off+frameHead+n > end {
			return fmt.Errorf("frame at %d: wrong length: %w", off, segment.ErrCorrupt)
		}
		frame = slices.Grow(frame[:0], int(n))[:n]
		if _, err := io.ReadFull(in, frame); err != nil {
			return err
		}
		if k.checksum(off, frame) != binary.LittleEndian.Uint32(head[4:]) {
			return fmt.Errorf("frame at %d: checksum does not match: %w", off, segment.ErrCorrupt)
		}
		got, err := readFrame(frame, fn)
		if err != nil {
			return fmt.Errorf("frame at %d: %w", off, err)
		}
		rows += got
		off += frameHead + n
	}
	if rows != k.rows {
		return fmt.Errorf("%d rows instead of %d: %w", rows, k.rows, segment.ErrCorrupt)
	}
	return nil
}

func readFrame(b []byte, fn func(key, value []byte, deleted bool) error) (rows uint64, err error) {
	for ; len(b) > 0; rows++ {
		key, rest, ok := cutBytes(b, 0)
		if !ok || len(key) == 0 {
			return rows, segment.ErrCorrupt
		}
		if len(rest) > 0 && rest[0] == 0 {
			b, err = rest[1:], fn(key, nil, true)
		} else {
			var value []byte
			if value, b, ok = cutBytes(rest, 1); !ok {
				return rows, segment.ErrCorrupt
			}
			err = fn(key, value, false)
		}
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// cutBytes reads a length, from which it subtracts more, and that many bytes.
func cutBytes(b []byte, more uint64) (content, rest []byte, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || n < more || n-more > uint64(len(b)-w) {
		return nil, nil, false
	}
	end := w + int(n-more)
	return b[w:end], b[end:], true
}

// listLinks returns all snapshots in dir, in order.
func listLinks(dir string) (links []link, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if k, ok := parseLinkName(e.Name()); ok {
			links = append(links, k)
		}
	}
	return links, nil
}

// chain is a full snapshot and the changes after it.
type chain struct {
	number uint64 // 0: there are no snapshots
	links  []link
	// damaged is the reason why the chain ends before its last file. Such a chain must
	// not be loaded: the journal may have been trimmed up to the last file, so the
	// missing changes cannot be replayed.
	damaged error
}

// applied returns the last journal record in the chain, 0 for no chain.
func (c chain) applied() uint64 {
	if len(c.links) == 0 {
		return 0
	}
	return c.links[len(c.links)-1].meta.applied
}

func (c chain) bytes() (n int64) {
	for _, k := range c.links {
		n += k.size
	}
	return n
}

// newestChain returns the chain with the highest number. A new chain appears when its
// first link is complete, so older chains are not needed then. newestChain reads only the
// heads and tails of files.
func newestChain(dir string) (chain, error) {
	files, err := listLinks(dir)
	if err != nil || len(files) == 0 {
		return chain{}, err
	}
	c := chain{number: files[len(files)-1].chain}
	for _, k := range files {
		if k.chain != c.number {
			continue
		}
		if c.damaged = c.add(dir, k); c.damaged != nil {
			break
		}
	}
	if isTrouble(c.damaged) {
		return chain{}, c.damaged
	}
	return c, nil
}

// add adds the next link of the chain.
func (c *chain) add(dir string, k link) error {
	name := filepath.Join(dir, k.filename())
	if int(k.number) != len(c.links) {
		return fmt.Errorf("%s: the link before it is missing: %w", name, segment.ErrCorrupt)
	}
	k, err := openLink(name, k)
	if err == nil && k.since != c.applied() {
		err = fmt.Errorf("follows %d instead of %d: %w", k.since, c.applied(), segment.ErrCorrupt)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.links = append(c.links, k)
	return nil
}

func openLink(name string, k link) (link, error) {
	f, err := os.Open(name)
	if err != nil {
		return link{}, err
	}
	defer f.Close() //nolint:errcheck // only read
	info, err := f.Stat()
	if err != nil {
		return link{}, err
	}
	return readLink(f, info.Size(), k)
}
