package mq

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"
)

// TestCommitNamesExactlyItsRecords replaces a record of a committed group by another
// intact one of the same place and sequence, like a misdirected write. Only the commit's
// checksum of checksums reveals that.
func TestCommitNamesExactlyItsRecords(t *testing.T) {
	for _, closed := range []bool{true, false} {
		t.Run(fmt.Sprintf("closed=%v", closed), func(t *testing.T) {
			d := newSimDisk()
			l, err := openSim(d)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				mustWrite(t, l, Record{Queue: 7, Type: 3, Body: []byte("one")}, Record{Queue: 7, Type: 3, Body: []byte("two")})
			}
			if closed {
				mustClose(t, l)
			}
			c := d.clone()
			if !closed {
				mustClose(t, l)
			}
			_, b := c.lastSegment()
			h, _ := decodeHeader(b)
			const group = 2*(recordHeaderSize+8) + commitSize
			harm := func(group0 int64) {
				at := headerSize + group0*group
				seq := uint64(group0)*2 + 1
				putFrame(b[at:at+recordHeaderSize+8], segmentSeed(h.store, 1), at,
					frame{kind: 3, epoch: 1, queue: 7, seq: seq, body: []byte("ONE")})
			}
			harm(1)
			r, err := check(c)
			if err != nil || !slices.Equal(lostIn(r), []uint64{3, 4}) {
				t.Fatalf("Verify finds %v, %v", r.Damage, err)
			}
			var rot *CorruptError
			if _, err := loaded(c.clone()); !errors.As(err, &rot) {
				t.Fatalf("Open: %v", err)
			}
			if _, err := mend(c, SkipDamaged); err != nil {
				t.Fatal(err)
			}
			l, err = loaded(c)
			if err != nil {
				t.Fatal(err)
			}
			var lost *LostError
			if err := l.Read(2, func(Entry) error { return nil }); !errors.As(err, &lost) || lost.First != 3 || lost.End != 5 {
				t.Fatalf("Read after the repair: %v", err)
			}
			if got, err := readAll(l, 5); err != nil || len(got) != 2 {
				t.Fatalf("behind the hole: %v, %v", got, err)
			}
			if closed {
				return
			}
			// In the last group, without a later commit as proof, it is a torn tail: the
			// group is cut.
			c = d.clone()
			_, b = c.lastSegment()
			harm(2)
			clear(b[headerSize+3*group:])
			if l, err := loaded(c); err != nil || l.Next() != 5 {
				t.Fatalf("a torn last group: %v", err)
			}
		})
	}
}

// syncKind returns the purpose of a sync, derived from the unsynced writes of the file.
func syncKind(n *inode) string {
	if n == nil {
		return "directory"
	}
	kind := "filling"
	for _, w := range n.writes {
		switch {
		case w.off == 0 && bytes.HasPrefix(w.data, headerMagic[:]):
			return "header"
		case bytes.Contains(w.data, footerMagic[:]):
			return "footer"
		case !isAllZero(w.data):
			kind = "records"
		}
	}
	return kind
}

func isAllZero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// TestEverySyncErrorIsFinal fails one sync of each kind, once, with several producers.
// Later syncs would succeed.
func TestEverySyncErrorIsFinal(t *testing.T) {
	for _, kind := range []string{"records", "footer", "header", "directory"} {
		t.Run(kind, func(t *testing.T) {
			d := newSimDisk()
			l, err := openSim(d)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			failed, late := false, false
			d.mu.Lock()
			d.onSyncOf = func(n *inode) error {
				mu.Lock()
				defer mu.Unlock()
				if failed || syncKind(n) != kind {
					return nil
				}
				failed = true
				return errInjected
			}
			d.mu.Unlock()
			acked := map[uint64]int{} // size by sequence
			var refused []error
			var producers sync.WaitGroup
			for range 8 {
				producers.Go(func() {
					for {
						body := bodyFor(9, 2000)
						first, err := l.Append([]Record{{Body: body}}, nil)
						done := make(chan error, 1)
						if err == nil {
							_, err = l.Append(nil, func(err error) {
								mu.Lock()
								late = late || err == nil && l.Err() != nil
								mu.Unlock()
								done <- err
							})
						}
						if err == nil {
							err = <-done
						}
						mu.Lock()
						if err != nil {
							refused = append(refused, err)
							mu.Unlock()
							return
						}
						acked[first] = len(body)
						mu.Unlock()
					}
				})
			}
			producers.Wait()
			if len(refused) != 8 || late {
				t.Fatalf("%d of 8 producers were told; an acknowledgement after the failure: %v", len(refused), late)
			}
			for _, err := range refused {
				if !errors.Is(err, ErrReadOnly) || !errors.Is(err, errInjected) {
					t.Fatalf("a producer was told %v", err)
				}
			}
			if _, err := write(l, Record{}); !errors.Is(err, ErrReadOnly) || !errors.Is(l.Err(), errInjected) {
				t.Fatalf("Append afterwards: %v, Err %v", err, l.Err())
			}
			if got, err := readAll(l, 1); err != nil || len(got) < len(acked) {
				t.Fatalf("%d records can be read, %d were acknowledged; %v", len(got), len(acked), err)
			}
			for seed := range uint64(10) {
				after, err := loaded(d.crash(rand.New(rand.NewPCG(seed, 1))))
				if err != nil {
					t.Fatal(err)
				}
				got, err := readAll(after, 1)
				if err != nil || len(got) < len(acked) {
					t.Fatalf("%d records after a power cut, %d were acknowledged; %v", len(got), len(acked), err)
				}
			}
			if err := l.Close(); !errors.Is(err, errInjected) {
				t.Fatalf("Close: %v", err)
			}
		})
	}
}

// TestEveryWriteMayFail fails each write of a session in turn, once or permanently. The
// log refuses or continues, and acknowledged records are there after a power cut.
func TestEveryWriteMayFail(t *testing.T) {
	for _, errno := range []error{syscall.ENOSPC, syscall.EIO} {
		for _, lasting := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, lasting=%v", errno, lasting), func(t *testing.T) {
				readOnly, full, unhurt := 0, 0, 0
				for at := 0; ; at++ {
					writes := 0
					d := newSimDisk()
					d.onWrite = func() error {
						if writes++; writes == at+1 || lasting && writes > at {
							return errno
						}
						return nil
					}
					acked, err := failingSession(d)
					switch {
					case err == nil:
						unhurt++
					case errors.Is(err, ErrReadOnly) && errors.Is(err, errno):
						readOnly++
					case errors.Is(err, ErrFull) && errno == syscall.ENOSPC:
						full++
					case !errors.Is(err, errno):
						t.Fatalf("write %d fails: %v", at, err)
					}
					d.mu.Lock()
					reached := writes > at
					d.onWrite = nil
					d.mu.Unlock()
					after, err := loaded(d.crash(rand.New(rand.NewPCG(uint64(at), 2))))
					if err != nil {
						t.Fatalf("write %d fails, then the power: %v", at, err)
					}
					if err := checkUnits(after, func(uint64) int { return 5000 }, nil, acked); err != nil {
						t.Fatalf("write %d fails, then the power: %v", at, err)
					}
					if !reached {
						break
					}
				}
				t.Logf("%d sessions ended read-only, %d full, %d as if nothing had been", readOnly, full, unhurt)
				if readOnly == 0 || unhurt == 0 || errno == syscall.ENOSPC && lasting && full == 0 {
					t.Fatal("the failures did not reach what they must reach")
				}
			})
		}
	}
}

// failingSession opens a log, fills three segments and closes it. It returns the sequence
// behind the last acknowledged record and the first error.
func failingSession(d *simDisk) (acked uint64, err error) {
	l, err := openSim(d)
	if err != nil {
		return 1, err
	}
	acked = 1
	for range 30 {
		seq := l.Next()
		if _, err = write(l, Record{Body: bodyFor(seq, 5000)}); err != nil {
			break
		}
		acked = seq + 1
	}
	if errors.Is(err, ErrFull) {
		if _, again := l.AppendLazy(nil); again != nil {
			err = errors.Join(again, errors.New("a full log refuses even a barrier"))
		}
	}
	if closed := l.Close(); err == nil {
		err = closed
	}
	return acked, err
}
