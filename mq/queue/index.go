package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"

	"github.com/wheelworkhq/wheelwork/mq"
)

// Sizes of the consume queue's format.
const (
	entrySize    = 24
	blockEntries = 170
	blockSize    = 4096 // 170 entries, topic 4, number of the block 8, crc 4
	fileBlocks   = 256  // 1 MiB

	indexSuffix = ".cq"
)

// entry describes a message in the consume queue. The sequence 0 means that the log no
// longer has the message.
type entry struct {
	seq  uint64
	size uint32 // bytes of the record's body
	hash uint32 // of the key, 0 if there is none
	due  int64  // Unix nanoseconds, 0 means at once
}

func (e entry) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, e.seq)
	b = binary.LittleEndian.AppendUint32(b, e.size)
	b = binary.LittleEndian.AppendUint32(b, e.hash)
	return binary.LittleEndian.AppendUint64(b, uint64(e.due))
}

func takeEntry(b []byte) entry {
	return entry{
		binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]),
		binary.LittleEndian.Uint32(b[12:]), int64(binary.LittleEndian.Uint64(b[16:])),
	}
}

// hashKey returns the hash by which messages of one key are ordered. Messages of two keys
// with the same hash wait for each other, which is slower but never wrong.
func hashKey(key string) uint32 {
	if key == "" {
		return 0
	}
	return max(crc32.Checksum([]byte(key), castagnoli), 1)
}

// encodeBlock returns a full block.
func encodeBlock(topic uint32, number uint64, entries []entry) []byte {
	b := make([]byte, 0, blockSize)
	for _, e := range entries {
		b = e.append(b)
	}
	b = binary.LittleEndian.AppendUint32(b, topic)
	b = binary.LittleEndian.AppendUint64(b, number)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// decodeBlock decodes a block and reports false if b is not this block.
func decodeBlock(b []byte, topic uint32, number uint64) ([]entry, bool) {
	if len(b) != blockSize || crc32.Checksum(b[:blockSize-4], castagnoli) != binary.LittleEndian.Uint32(b[blockSize-4:]) ||
		binary.LittleEndian.Uint32(b[blockSize-16:]) != topic || binary.LittleEndian.Uint64(b[blockSize-12:]) != number {
		return nil, false
	}
	entries := make([]entry, blockEntries)
	for i := range entries {
		entries[i] = takeEntry(b[i*entrySize:])
	}
	return entries, true
}

// index is the consume queue of a topic: an entry for each position. Full blocks are in
// files that are never synced, because the log can restore them. The block being filled
// is in memory. Guarded by Queue.mu.
type index struct {
	dir   string
	topic uint32
	log   *mq.Log
	start uint64  // first position ever added
	next  uint64  // behind the last position
	tail  []entry // the last next%blockEntries entries
	// repaired counts the blocks that were rebuilt from the log.
	repaired uint64
	warn     func(msg string, args ...any)
}

// block is a part of the index that a reader caches during a walk. The zero value is
// empty.
type block struct {
	number  uint64
	entries []entry
}

// begin makes an empty index start at a position.
func (x *index) begin(pos uint64) {
	x.start, x.next = pos, pos
	x.tail = append(x.tail[:0], make([]entry, pos%blockEntries)...)
}

// add appends the entry of a position. It ignores a position that is there already.
func (x *index) add(pos uint64, e entry) error {
	if pos < x.next {
		return nil
	}
	if pos > x.next {
		return fmt.Errorf("topic %d has position %d where %d must follow: %w", x.topic, pos, x.next, errShape)
	}
	x.tail = append(x.tail, e)
	x.next++
	if len(x.tail) == blockEntries {
		x.write(pos/blockEntries, x.tail)
		x.tail = x.tail[:0]
	}
	return nil
}

// at returns the entry of a position below next. near speeds up later calls for close
// positions.
func (x *index) at(pos uint64, near *block) (entry, error) {
	number := pos / blockEntries
	if number == x.next/blockEntries {
		return x.tail[pos%blockEntries], nil
	}
	if near.entries == nil || near.number != number {
		entries, err := x.read(number)
		if err != nil {
			return entry{}, err
		}
		*near = block{number, entries}
	}
	return near.entries[pos%blockEntries], nil
}

// find returns the first position from base on whose message is at or behind seq.
func (x *index) find(base, seq uint64) (uint64, error) {
	lo, hi := base, x.next
	var near block
	for lo < hi {
		mid := lo + (hi-lo)/2
		e, err := x.at(mid, &near)
		if err != nil {
			return 0, err
		}
		if e.seq < seq {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, nil
}

func (x *index) file(number uint64) string {
	return filepath.Join(x.dir, fmt.Sprintf("%08x-%012x%s", x.topic, number/fileBlocks, indexSuffix))
}

// write writes a full block to its file. A failure only costs time later: write then
// removes the file, so that no older block is taken for the new one, and reads rebuild
// the block from the log.
func (x *index) write(number uint64, entries []entry) {
	name := x.file(number)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.WriteAt(encodeBlock(x.topic, number, entries), int64(number%fileBlocks)*blockSize)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		x.warn("a block of a consume queue was not written; it will be read from the log", "error", err)
		_ = os.Remove(name) // all of its content can be rebuilt
	}
}

// read returns a full block, from the log if its file does not have it.
func (x *index) read(number uint64) ([]entry, error) {
	if entries, ok := x.load(number); ok {
		return entries, nil
	}
	return x.repair(number)
}

func (x *index) load(number uint64) ([]entry, bool) {
	f, err := os.Open(x.file(number))
	if err != nil {
		return nil, false
	}
	b := make([]byte, blockSize)
	_, err = f.ReadAt(b, int64(number%fileBlocks)*blockSize)
	_ = f.Close() // only read
	if err != nil {
		return nil, false
	}
	return decodeBlock(b, x.topic, number)
}

// repair reads a block's messages from the log and writes the block again.
func (x *index) repair(number uint64) ([]entry, error) {
	from := x.log.First()
	if number > 0 {
		if before, ok := x.load(number - 1); ok {
			from = max(from, before[blockEntries-1].seq+1)
		}
	}
	entries := make([]entry, blockEntries)
	end := (number + 1) * blockEntries
	err := x.log.Read(from, func(e mq.Entry) error {
		if e.Type != kindMessage || e.Queue != x.topic {
			return nil
		}
		c := &cursor{b: e.Body}
		m := c.message()
		if err := c.end(); err != nil {
			return fmt.Errorf("record %d: %w", e.Seq, err)
		}
		if m.pos >= end {
			return errEnough
		}
		if m.pos/blockEntries == number {
			entries[m.pos%blockEntries] = entry{e.Seq, uint32(len(e.Body)), hashKey(m.key), m.due}
		}
		if m.pos+1 == end {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("rebuild a consume queue: %w", err)
	}
	x.repaired++
	x.write(number, entries)
	return entries, nil
}

// errEnough ends a walk along the log.
var errEnough = errors.New("enough")

// forget removes the files that hold only positions below pos.
func (x *index) forget(pos uint64) {
	names, err := filepath.Glob(filepath.Join(x.dir, fmt.Sprintf("%08x-*%s", x.topic, indexSuffix)))
	if err != nil {
		return // the pattern is valid
	}
	keep := x.file(pos / blockEntries)
	for _, name := range names {
		if strings.Compare(name, keep) < 0 {
			_ = os.Remove(name) // the next trim retries it
		}
	}
}
