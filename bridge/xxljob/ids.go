package xxljob

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"sync"
)

// ids are the numbers of jobs and groups for executors and scripts. A number is a hash of the
// names, from 1 to 2^31-1; when another name has it already, it is the next free one. The file has a
// line for each name, so that a number stays the same whatever comes later.
type ids struct {
	mu     sync.Mutex
	file   *os.File
	byName map[string]int32
	byID   map[int32]string
}

func openIDs(path string) (_ *ids, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	s := &ids{file: f, byName: map[string]int32{}, byID: map[int32]string{}}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		number, name, ok := strings.Cut(lines.Text(), " ")
		id, err := strconv.ParseInt(number, 10, 32)
		if !ok || err != nil {
			continue // the end of a line that was not written as a whole
		}
		s.byName[name], s.byID[int32(id)] = int32(id), name
	}
	if err := lines.Err(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	// Ends a line that was not written as a whole.
	if _, err := f.WriteString("\n"); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func (s *ids) close() error { return s.file.Close() }

// of returns the number of a job.
func (s *ids) of(app, job string) (int32, error) { return s.number(app + "/" + job) }

// ofGroup returns the number of a group of executors.
func (s *ids) ofGroup(group string) (int32, error) { return s.number("group " + group) }

func (s *ids) number(name string) (int32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id, ok := s.byName[name]; ok {
		return id, nil
	}
	id := hashed(name)
	for {
		if _, taken := s.byID[id]; !taken {
			break
		}
		id = max((id+1)&0x7fffffff, 1)
	}
	if _, err := fmt.Fprintf(s.file, "%d %s\n", id, name); err != nil {
		return 0, fmt.Errorf("store the id of %s: %w", name, err)
	}
	s.byName[name], s.byID[id] = id, name
	return id, nil
}

// name returns the name that has a number, "" if none has it.
func (s *ids) name(id int32) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id]
}

func hashed(name string) int32 {
	h := fnv.New32a()
	h.Write([]byte(name)) //nolint:errcheck // a hash never fails
	return max(int32(h.Sum32()&0x7fffffff), 1)
}
