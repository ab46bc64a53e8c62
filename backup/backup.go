package backup

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"path"
	"strings"
	"time"
)

// Form is the format version of the stream that this program writes. Readers accept it
// and older ones.
const Form = 1

var magic = [8]byte{'W', 'W', 'B', 'A', 'C', 'K', 'U', 'P'}

const (
	headBytes  = len(magic) + 2 // magic, format version
	frameHead  = 1 + 4 + 4      // kind, length of the body, checksum
	maxData    = 256 << 10      // limit for the body of a frame that a Writer writes
	maxBody    = 1 << 20        // limit for the body of a frame that a Reader accepts
	maxName    = 300
	sha256Size = sha256.Size
)

// Kinds of frames. A stream has one info frame, then files, then one end frame. A file is
// one file frame, its data frames and one foot frame.
const (
	kindInfo = 'i'
	kindFile = 'f'
	kindData = 'd'
	kindFoot = 'e'
	kindEnd  = 'z'
)

var (
	// ErrDamaged means that the bytes of a backup differ from those that were written.
	ErrDamaged = errors.New("the backup is damaged")
	// ErrCut means that a backup has no end frame: the program that made it was
	// interrupted.
	ErrCut = errors.New("the backup is cut short: what made it was interrupted")
)

// NewerError means that a backup has a format version that this program does not read.
type NewerError struct{ Form int }

func (e *NewerError) Error() string {
	return fmt.Sprintf("the backup has form %d, and this program reads up to form %d: use the version that made it, or a newer one", e.Form, Form)
}

// Info describes the server and the moment of a backup.
type Info struct {
	MadeAt  time.Time `json:"made_at"`
	Version string    `json:"version"` // version of the program that made the backup
	Server  string    `json:"server"`  // id of the server whose data this is
	Group   string    `json:"group,omitempty"`
	Units   int       `json:"units,omitempty"`   // number of partitions of a cluster with several; each has a store of its own
	Modules bool      `json:"modules,omitempty"` // the backup holds the code of modules
	Applied uint64    `json:"applied"`           // sequence of the last record included, in the journal of the first partition
	Bytes   int64     `json:"bytes"`             // approximate size, for a progress display
}

// Summary counts the contents of a whole backup.
type Summary struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"` // total size of the files
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameSum covers the kind, the number and the body of a frame. The number reveals frames
// that are out of order.
func frameSum(kind byte, number uint64, body []byte) uint32 {
	var at [9]byte
	at[0] = kind
	binary.LittleEndian.PutUint64(at[1:], number)
	return crc32.Update(crc32.Checksum(at[:], castagnoli), castagnoli, body)
}

// Writer writes a backup. Its first error is final.
type Writer struct {
	w      io.Writer
	all    hash.Hash
	number uint64
	buf    []byte
	open   bool // a file has been created and not finished
	data   []byte
	file   hash.Hash
	size   int64
	sum    Summary
	err    error
}

// NewWriter starts a backup and writes its info frame.
func NewWriter(w io.Writer, info Info) (*Writer, error) {
	b := &Writer{w: w, all: sha256.New(), file: sha256.New()}
	head := binary.LittleEndian.AppendUint16(append([]byte{}, magic[:]...), Form)
	b.put(head)
	text, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	b.frame(kindInfo, text)
	return b, b.err
}

func (b *Writer) put(p []byte) {
	if b.err == nil {
		b.all.Write(p)
		_, b.err = b.w.Write(p)
	}
}

func (b *Writer) frame(kind byte, body []byte) {
	b.buf = append(b.buf[:0], kind)
	b.buf = binary.LittleEndian.AppendUint32(b.buf, uint32(len(body)))
	b.buf = binary.LittleEndian.AppendUint32(b.buf, frameSum(kind, b.number, body))
	b.buf = append(b.buf, body...)
	b.number++
	b.put(b.buf)
}

// Create starts the next file and finishes the previous one.
func (b *Writer) Create(name string) (io.Writer, error) {
	b.finish()
	if err := checkName(name); err != nil {
		return nil, err
	}
	b.frame(kindFile, []byte(name))
	b.open, b.size = true, 0
	b.file.Reset()
	return b, b.err
}

// Write appends to the file of the last Create.
func (b *Writer) Write(p []byte) (int, error) {
	if !b.open {
		return 0, errors.New("backup: no file is open")
	}
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), maxData-len(b.data))
		b.data = append(b.data, p[:k]...)
		if p = p[k:]; len(b.data) == maxData {
			b.flush()
		}
	}
	return n, b.err
}

func (b *Writer) flush() {
	if len(b.data) > 0 {
		b.file.Write(b.data)
		b.size += int64(len(b.data))
		b.frame(kindData, b.data)
		b.data = b.data[:0]
	}
}

func (b *Writer) finish() {
	if !b.open {
		return
	}
	b.flush()
	b.frame(kindFoot, b.file.Sum(binary.LittleEndian.AppendUint64(nil, uint64(b.size))))
	b.open = false
	b.sum.Files++
	b.sum.Bytes += b.size
}

// Close writes the end frame. A backup without it is not valid.
func (b *Writer) Close() (Summary, error) {
	b.finish()
	body := binary.LittleEndian.AppendUint64(nil, uint64(b.sum.Files))
	body = binary.LittleEndian.AppendUint64(body, uint64(b.sum.Bytes))
	b.frame(kindEnd, b.all.Sum(body))
	return b.sum, b.err
}

// checkName accepts only clean relative paths. A restore therefore cannot write outside
// its directory.
func checkName(name string) error {
	plain := strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-~/") == ""
	if !plain || name == "" || len(name) > maxName || path.Clean(name) != name || path.IsAbs(name) || name == "." || name == ".." || strings.HasPrefix(name, "../") {
		return fmt.Errorf("%w: %.80q is no name of a file in it", ErrDamaged, name)
	}
	return nil
}

// Reader reads a backup and checks it on the way.
type Reader struct {
	r      *bufio.Reader
	all    hash.Hash
	number uint64
	info   Info
	body   []byte // body of the last frame
	rest   []byte // the part of body that Read has not returned yet
	open   bool
	file   hash.Hash
	size   int64
	name   string
	sum    Summary
	err    error
	names  map[string]bool
}

// NewReader reads the header and the info frame of a backup.
func NewReader(r io.Reader) (*Reader, error) {
	b := &Reader{r: bufio.NewReaderSize(r, 64<<10), all: sha256.New(), file: sha256.New(), names: map[string]bool{}}
	head := make([]byte, headBytes)
	if _, err := io.ReadFull(b.r, head); err != nil {
		return nil, cut(err)
	}
	if string(head[:len(magic)]) != string(magic[:]) {
		return nil, fmt.Errorf("%w: it does not begin as one", ErrDamaged)
	}
	if form := int(binary.LittleEndian.Uint16(head[len(magic):])); form != Form {
		return nil, &NewerError{form}
	}
	b.all.Write(head)
	kind, err := b.next()
	if err != nil {
		return nil, err
	}
	if kind != kindInfo || json.Unmarshal(b.body, &b.info) != nil {
		return nil, fmt.Errorf("%w: it does not say what it is of", ErrDamaged)
	}
	return b, nil
}

// cut turns an unexpected end of the input into ErrCut.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCut
	}
	return err
}

// Info returns the description in the backup.
func (b *Reader) Info() Info { return b.info }

// Summary returns the counts of the files read so far.
func (b *Reader) Summary() Summary { return b.sum }

// next reads a frame into b.body and checks it.
func (b *Reader) next() (kind byte, err error) {
	var head [frameHead]byte
	if _, err := io.ReadFull(b.r, head[:]); err != nil {
		return 0, cut(err)
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxBody {
		return 0, fmt.Errorf("%w: frame %d has a wrong length", ErrDamaged, b.number)
	}
	if cap(b.body) < int(n) {
		b.body = make([]byte, n)
	}
	b.body = b.body[:n]
	if _, err := io.ReadFull(b.r, b.body); err != nil {
		return 0, cut(err)
	}
	if frameSum(head[0], b.number, b.body) != binary.LittleEndian.Uint32(head[5:]) {
		return 0, fmt.Errorf("%w: the checksum of frame %d does not match", ErrDamaged, b.number)
	}
	b.number++
	if head[0] != kindEnd { // the end frame holds the checksum of all frames before it
		b.all.Write(head[:])
		b.all.Write(b.body)
	}
	return head[0], nil
}

// Next returns the name of the next file, for Read to read. It skips the unread rest of
// the previous file. io.EOF means that the backup is complete and valid.
func (b *Reader) Next() (string, error) {
	for b.open && b.err == nil {
		b.rest = nil
		b.fill()
	}
	if b.err != nil && b.err != io.EOF {
		return "", b.err
	}
	b.err = nil
	kind, err := b.next()
	switch {
	case err != nil:
	case kind == kindFile:
		b.name = string(b.body)
		if err = checkName(b.name); err == nil && b.names[b.name] {
			err = fmt.Errorf("%w: it has %s twice", ErrDamaged, b.name)
		}
		b.names[b.name], b.open, b.size, b.rest = true, true, 0, nil
		b.file.Reset()
	case kind == kindEnd:
		err = b.end()
	default:
		err = fmt.Errorf("%w: frame %d is out of place", ErrDamaged, b.number-1)
	}
	if err != nil {
		b.err, b.open = err, false
		return "", err
	}
	return b.name, nil
}

func (b *Reader) end() error {
	want := binary.LittleEndian.AppendUint64(nil, uint64(b.sum.Files))
	want = binary.LittleEndian.AppendUint64(want, uint64(b.sum.Bytes))
	if string(b.all.Sum(want)) != string(b.body) {
		return fmt.Errorf("%w: the sum at its end does not match", ErrDamaged)
	}
	if _, err := b.r.ReadByte(); err == nil {
		return fmt.Errorf("%w: there is more behind its end", ErrDamaged)
	} else if err != io.EOF {
		return err
	}
	return io.EOF
}

// Read reads the file that Next has returned. io.EOF means that the file is complete and
// that its checksum matches.
func (b *Reader) Read(p []byte) (int, error) {
	for len(b.rest) == 0 && b.open && b.err == nil {
		b.fill()
	}
	if len(b.rest) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// fill reads the next frame of the open file.
func (b *Reader) fill() {
	kind, err := b.next()
	switch {
	case err != nil:
		b.err, b.open = err, false
	case kind == kindData && len(b.body) > 0:
		b.file.Write(b.body)
		b.size += int64(len(b.body))
		b.rest = b.body
	case kind == kindFoot:
		b.open = false
		b.sum.Files++
		b.sum.Bytes += b.size
		if string(b.file.Sum(binary.LittleEndian.AppendUint64(nil, uint64(b.size)))) != string(b.body) {
			b.err = fmt.Errorf("%w: the checksum of %s does not match", ErrDamaged, b.name)
		}
	default:
		b.err, b.open = fmt.Errorf("%w: frame %d is out of place", ErrDamaged, b.number-1), false
	}
}
