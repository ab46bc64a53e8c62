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

// Form is the form of the stream that this program writes, and the newest that it reads.
const Form = 1

var magic = [8]byte{'W', 'W', 'B', 'A', 'C', 'K', 'U', 'P'}

const (
	headBytes  = len(magic) + 2 // magic, form
	frameHead  = 1 + 4 + 4      // kind, length of the body, checksum
	maxData    = 256 << 10      // of a frame that is written
	maxBody    = 1 << 20        // of a frame that is read
	maxName    = 300
	sha256Size = sha256.Size
)

// Kinds of frames, in the order in which they may come: info, files, end. A file
// is its head, its data and its foot.
const (
	kindInfo = 'i'
	kindFile = 'f'
	kindData = 'd'
	kindFoot = 'e'
	kindEnd  = 'z'
)

var (
	// ErrDamaged says that bytes of a backup are not what was written.
	ErrDamaged = errors.New("the backup is damaged")
	// ErrCut says that a backup ends before its end: what made it was interrupted.
	ErrCut = errors.New("the backup is cut short: what made it was interrupted")
)

// NewerError says that a backup has a form that this program does not read.
type NewerError struct{ Form int }

func (e *NewerError) Error() string {
	return fmt.Sprintf("the backup has form %d, and this program reads up to form %d: use the version that made it, or a newer one", e.Form, Form)
}

// Info says what a backup is of.
type Info struct {
	MadeAt  time.Time `json:"made_at"`
	Version string    `json:"version"` // of the program that made it
	Server  string    `json:"server"`  // the id of the server that it is of
	Group   string    `json:"group,omitempty"`
	Units   int       `json:"units,omitempty"`   // of a cluster, where it has several: each is a store
	Modules bool      `json:"modules,omitempty"` // their code is in it
	Applied uint64    `json:"applied"`           // the sequence of the last record that it includes, of the first unit
	Bytes   int64     `json:"bytes"`             // about: for those who show progress
}

// Summary is what is known of a backup at its end.
type Summary struct {
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"` // of the files
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameSum covers the kind, the number of the frame, which tells one that is in
// the wrong place, and the body.
func frameSum(kind byte, number uint64, body []byte) uint32 {
	var at [9]byte
	at[0] = kind
	binary.LittleEndian.PutUint64(at[1:], number)
	return crc32.Update(crc32.Checksum(at[:], castagnoli), castagnoli, body)
}

// Writer writes a backup.
type Writer struct {
	w      io.Writer
	all    hash.Hash
	number uint64
	buf    []byte
	open   bool // a file is
	data   []byte
	file   hash.Hash
	size   int64
	sum    Summary
	err    error
}

// NewWriter begins a backup.
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

// Create begins the next file, and ends the one before.
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

// Write adds to the file that was created last.
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

// Close ends the backup. Without it, it is none.
func (b *Writer) Close() (Summary, error) {
	b.finish()
	body := binary.LittleEndian.AppendUint64(nil, uint64(b.sum.Files))
	body = binary.LittleEndian.AppendUint64(body, uint64(b.sum.Bytes))
	b.frame(kindEnd, b.all.Sum(body))
	return b.sum, b.err
}

// checkName accepts relative paths in their shortest form alone: a backup writes
// nowhere else than into the directory that it is restored to.
func checkName(name string) error {
	plain := strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-~/") == ""
	if !plain || name == "" || len(name) > maxName || path.Clean(name) != name || path.IsAbs(name) || name == "." || name == ".." || strings.HasPrefix(name, "../") {
		return fmt.Errorf("%w: %.80q is no name of a file in it", ErrDamaged, name)
	}
	return nil
}

// Reader reads a backup.
type Reader struct {
	r      *bufio.Reader
	all    hash.Hash
	number uint64
	info   Info
	body   []byte // of the last frame
	rest   []byte // of it, not read yet
	open   bool
	file   hash.Hash
	size   int64
	name   string
	sum    Summary
	err    error
	names  map[string]bool
}

// NewReader begins to read a backup.
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

// cut tells the end of what is read from other errors.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrCut
	}
	return err
}

// Info returns what the backup is of.
func (b *Reader) Info() Info { return b.info }

// Summary returns what has been read.
func (b *Reader) Summary() Summary { return b.sum }

// next reads a frame into b.body.
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
	if head[0] != kindEnd { // which holds the sum of what is before it
		b.all.Write(head[:])
		b.all.Write(b.body)
	}
	return head[0], nil
}

// Next returns the name of the next file, whose bytes Read returns then. What of
// the one before was not read is passed over. io.EOF is the end of a backup that
// is whole.
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

// Read reads the file that Next returned. io.EOF is its end, and means that its
// checksum matches.
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

// fill reads the next frame of a file.
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
