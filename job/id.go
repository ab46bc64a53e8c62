package job

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"strings"
	"time"
)

// Slots is the number of slots of an app.
const Slots = 16

// SlotOf returns the slot of a job: a hash of its name that never changes.
func SlotOf(name string) uint8 {
	h := fnv.New32a()
	h.Write([]byte(name)) //nolint:errcheck // a hash never fails
	return uint8(h.Sum32() % Slots)
}

// RunID identifies a run within its app.
//
//	| planned time, Unix ms, big endian (6) | slot (1) | rest (9) |
//
// An id begins with the planned time, so that ids sort by time and the rows of runs are
// written in order. It contains the slot, so that a look-up reads one slot only. The rest
// is a hash, so that an occurrence has the same id on every server and after every crash;
// for a run that is triggered without a time, it is random.
type RunID [16]byte

// NewRunID returns the id of a run of a job in the given slot.
func NewRunID(slot uint8, planned time.Time, rest [9]byte) RunID {
	var id RunID
	binary.BigEndian.PutUint64(id[:], uint64(planned.UnixMilli())<<16)
	id[6] = slot
	copy(id[7:], rest[:])
	return id
}

// OccurrenceID returns the id of an occurrence of a job. salt distinguishes occurrences
// of the same job in the same millisecond: "" for a scheduled run, the idempotency key
// for a run that is triggered for a given time.
func OccurrenceID(app, name string, planned time.Time, salt string) RunID {
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(planned.UnixMilli()))
	var room [256]byte
	b := room[:0] // all parts, for one call of the hash; most inputs fit, with a few dozen bytes
	for _, part := range [...]string{app, name, string(ms[:]), salt} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	sum := sha256.Sum256(b)
	return NewRunID(SlotOf(name), planned, [9]byte(sum[:]))
}

// PartID returns the id of part n of a run. It is deterministic.
func PartID(app, name string, planned time.Time, parent RunID, n int32) RunID {
	return OccurrenceID(app, name, planned, fmt.Sprintf("part/%d/%s", n, parent))
}

// runID reads an id from a record. Bytes of another length give the zero id, which no run
// has.
func runID(b []byte) RunID {
	if len(b) != len(RunID{}) {
		return RunID{}
	}
	return RunID(b)
}

// Slot returns the slot that the run belongs to.
func (id RunID) Slot() uint8 { return id[6] % Slots }

// Planned returns the planned time in the id.
func (id RunID) Planned() time.Time {
	var ms [8]byte
	copy(ms[2:], id[:6])
	return time.UnixMilli(int64(binary.BigEndian.Uint64(ms[:])))
}

// letters are the digits of Crockford's base32 in upper case. They are in ASCII order, so
// texts sort like ids.
const letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

var crockford = base32.NewEncoding(letters).WithPadding(base32.NoPadding)

func (id RunID) String() string {
	text := id.Text()
	return string(text[:])
}

// Text returns the characters of [RunID.String].
func (id RunID) Text() (text [26]byte) {
	high, low := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	for i := range text { // the topmost five bits that remain
		text[i] = letters[high>>59]
		high, low = high<<5|low>>59, low<<5
	}
	return text
}

// errRunID reports that a text is not the id of a run.
var errRunID = errors.New("not a run id: want 26 letters and digits, as `wheelwork run list` prints them")

// ParseRunID reads the text that [RunID.String] writes. It also accepts lower case.
func ParseRunID(s string) (RunID, error) {
	var id RunID
	b, err := crockford.DecodeString(strings.ToUpper(s))
	if err != nil || len(b) != len(id) {
		return id, errRunID
	}
	copy(id[:], b)
	if id.String() != strings.ToUpper(s) { // unused bits of the last letter are set
		return RunID{}, errRunID
	}
	return id, nil
}
