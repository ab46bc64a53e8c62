package worker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/wheelworkhq/wheelwork/api/v1"
)

// spool stores unacknowledged results in files that are written once. It removes a file
// when every result in it was acknowledged. A file begins with magic. For each result
// follow its length and its CRC-32C, each of four bytes, little-endian, and the
// TaskResult.
//
// A result may be sent again after its acknowledgement, because others in its file had
// none. The server recognises it, so this does no harm.
type spool struct {
	dir  string
	log  *slog.Logger
	last uint64               // number of the newest file
	open map[uint64]int       // number of unacknowledged results by file
	of   map[resultKey]uint64 // file of a result
	kept []*apiv1.TaskResult  // results of earlier processes, until Kept
}

// resultKey identifies an attempt.
type resultKey struct {
	app     string
	run     [16]byte
	attempt int32
}

func keyOf(r *apiv1.TaskResult) resultKey { return resultKey{r.App, [16]byte(r.Run), r.Attempt} }

const (
	magic     = "WWRESLT1"
	spoolName = "%016x" // file name; the names sort in the order of writing
	// maxEntry bounds a result; its output and texts have lower limits.
	maxEntry = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// openSpool reads the results of earlier processes.
func openSpool(dir string, log *slog.Logger) (*spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	s := &spool{dir: dir, log: log, open: map[uint64]int{}, of: map[resultKey]uint64{}}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), tempPrefix) { // a process was killed while it wrote the file
			if err := os.Remove(path); err != nil {
				return nil, err
			}
			continue
		}
		n, err := strconv.ParseUint(e.Name(), 16, 64)
		if err != nil || len(e.Name()) != 16 {
			continue // a foreign or damaged file
		}
		s.last = n
		if err := s.read(n, path); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// read loads a file. It renames a damaged file and retains the results before the damage.
func (s *spool) read(n uint64, path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	results, damage := decodeResults(b)
	for _, r := range results {
		if k := keyOf(r); s.add(k, n) {
			s.kept = append(s.kept, r)
		}
	}
	if damage == nil {
		if s.open[n] == 0 { // earlier files hold all of its results
			return os.Remove(path)
		}
		return nil
	}
	aside := path + ".damaged"
	s.log.Error("a file of results is damaged and was set aside: runs whose results it lost are executed again", "file", aside, "error", damage, "read", len(results))
	if err := os.Rename(path, aside); err != nil {
		return err
	}
	if s.open[n] == 0 {
		return nil
	}
	return writeFile(path, encodeResults(results))
}

// add records the file of a result, unless the result is in a file already.
func (s *spool) add(k resultKey, n uint64) bool {
	if _, ok := s.of[k]; ok {
		return false
	}
	s.of[k] = n
	s.open[n]++
	return true
}

// Kept returns the results of earlier processes.
func (s *spool) Kept() ([]*apiv1.TaskResult, error) {
	kept := s.kept
	s.kept = nil
	return kept, nil
}

// Keep writes results to a new file; they are durable when it returns.
func (s *spool) Keep(results []*apiv1.TaskResult) error {
	n := s.last + 1
	if err := writeFile(filepath.Join(s.dir, fmt.Sprintf(spoolName, n)), encodeResults(results)); err != nil {
		return err
	}
	s.last = n
	for _, r := range results {
		s.add(keyOf(r), n)
	}
	return nil
}

// Forget marks a result as acknowledged, and removes its file when that was the last
// unacknowledged one in it.
func (s *spool) Forget(r *apiv1.TaskResult) error {
	k := keyOf(r)
	n, ok := s.of[k]
	if !ok {
		return nil
	}
	delete(s.of, k)
	if s.open[n]--; s.open[n] > 0 {
		return nil
	}
	delete(s.open, n)
	return os.Remove(filepath.Join(s.dir, fmt.Sprintf(spoolName, n)))
}

// Sync does nothing, because Keep syncs.
func (*spool) Sync() error { return nil }

func encodeResults(results []*apiv1.TaskResult) []byte {
	b := []byte(magic)
	for _, r := range results {
		body, err := proto.Marshal(r)
		if err != nil {
			continue // invalid UTF-8 would be the only reason to fail, and the texts are valid
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
		b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(body, castagnoli))
		b = append(b, body...)
	}
	return b
}

// decodeResults returns the results of a file before the first error.
func decodeResults(b []byte) (results []*apiv1.TaskResult, err error) {
	b, ok := bytes.CutPrefix(b, []byte(magic))
	if !ok {
		return nil, errors.New("not a file of results")
	}
	for len(b) > 0 {
		if len(b) < 8 {
			return results, errors.New("it ends within a result's head")
		}
		size, sum := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		if b = b[8:]; size > maxEntry || int(size) > len(b) {
			return results, errors.New("it ends within a result")
		}
		body := b[:size]
		b = b[size:]
		r := &apiv1.TaskResult{}
		switch {
		case crc32.Checksum(body, castagnoli) != sum:
			return results, errors.New("a result has another checksum")
		case proto.Unmarshal(body, r) != nil || len(r.Run) != 16:
			return results, errors.New("a result cannot be read")
		}
		results = append(results, r)
	}
	return slices.Clip(results), nil
}
