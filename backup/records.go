package backup

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Record is one record of a log, as a file of a backup holds it:
//
//	| queue (uvarint) | type (1) | length (uvarint) | body |
type Record struct {
	Queue uint32
	Type  uint8
	Body  []byte
}

// maxRecord is the largest length that a reader accepts, in bytes.
const maxRecord = 64 << 20

// AppendRecord appends the encoding of r to b.
func AppendRecord(b []byte, r Record) []byte {
	b = binary.AppendUvarint(b, uint64(r.Queue))
	b = append(b, r.Type)
	b = binary.AppendUvarint(b, uint64(len(r.Body)))
	return append(b, r.Body...)
}

// ReadRecords calls fn for every record in r. The body is valid until fn returns.
func ReadRecords(r io.Reader, fn func(Record) error) error {
	in := bufio.NewReader(r)
	var body []byte
	for {
		if _, err := in.Peek(1); err == io.EOF {
			return nil
		}
		queue, err := uvarint(in)
		if err != nil {
			return err
		}
		kind, err := in.ReadByte()
		if err != nil {
			return notWhole(err)
		}
		n, err := uvarint(in)
		if err != nil {
			return err
		}
		if n > maxRecord || queue > 1<<32-1 {
			return fmt.Errorf("%w: a record has a wrong length or queue", ErrDamaged)
		}
		if body, err = readBody(in, body[:0], n); err != nil {
			return notWhole(err)
		}
		if err := fn(Record{uint32(queue), kind, body}); err != nil {
			return err
		}
	}
}

func notWhole(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: a record is not whole", ErrDamaged)
	}
	return err
}

func uvarint(r io.ByteReader) (v uint64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		b, err := r.ReadByte()
		if err != nil {
			return 0, notWhole(err)
		}
		if v |= uint64(b&0x7f) << shift; b < 0x80 {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w: a record has a wrong number", ErrDamaged)
}

// readBody allocates as bytes arrive. A wrong length in the input therefore cannot
// exhaust memory.
func readBody(in io.Reader, body []byte, n uint64) ([]byte, error) {
	for uint64(len(body)) < n {
		at := len(body)
		body = append(body, make([]byte, min(n-uint64(at), 64<<10))...)
		if _, err := io.ReadFull(in, body[at:]); err != nil {
			return body, err
		}
	}
	return body, nil
}
