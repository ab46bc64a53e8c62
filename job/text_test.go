package job

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
)

// TestTextsAreTheirJobs checks that after any writes, moves and removals each job has its
// own text, and that the unused bytes are bounded.
func TestTextsAreTheirJobs(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 7))
		s := NewSlot("a", 0)
		want := map[string]string{} // own bytes of the definitions
		names := 1 + r.IntN(2000)
		moved := 0
		for step := range 30_000 {
			name := fmt.Sprint("job-", r.IntN(names))
			j := s.Jobs.Get(name)
			switch {
			case j != nil && r.IntN(6) == 0:
				s.Jobs.remove(name)
				s.erased(j)
				delete(want, name)
			default:
				own := strings.Repeat(fmt.Sprint(step, " "), r.IntN(20))
				if r.IntN(500) == 0 {
					own = strings.Repeat("x", maxSlab/4+r.IntN(maxSlab))
				}
				fresh := j == nil
				if fresh {
					j = &Job{kind: s.unborn}
				}
				s.write(j, name, []byte(own))
				if fresh {
					s.Jobs.add(j)
				}
				want[name] = own
			}
			if s.texts.old > 0 {
				moved++
			}
			if x := &s.texts; x.held > 6*x.live+8*textSlack {
				t.Fatalf("seed %d, step %d: %d bytes are held for %d", seed, step, x.held, x.live)
			}
		}
		var live int64
		for name, own := range want {
			j := s.Jobs.Get(name)
			if j == nil || j.Name() != name || j.text[j.nameLen:] != own {
				t.Fatalf("seed %d: job %s has not its text", seed, name)
			}
			live += int64(len(j.text))
		}
		if live != s.texts.live || s.Jobs.Len() != len(want) || moved == 0 {
			t.Fatalf("seed %d: %d bytes of %d, %d jobs of %d, texts were moved in %d steps", seed, s.texts.live, live, s.Jobs.Len(), len(want), moved)
		}
	}
}

// TestFewTextsKeepFewSlabs checks that texts that never change do not retain the slabs of
// many texts that did.
func TestFewTextsKeepFewSlabs(t *testing.T) {
	s := NewSlot("a", 0)
	own := []byte(strings.Repeat("o", 100))
	write := func(n int) {
		name := fmt.Sprint("job-", n)
		j := s.Jobs.Get(name)
		fresh := j == nil
		if fresh {
			j = &Job{kind: s.unborn}
		}
		s.write(j, name, own)
		if fresh {
			s.Jobs.add(j)
		}
	}
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	// Each slab begins with one text that stays, followed by a hundred that change.
	const stay, change = 2000, 100
	before := inUse()
	for n := range stay {
		write(n)
		for i := range change {
			write(1_000_000 + i)
		}
	}
	if took := inUse() - before; took > 4<<20 { // one slab for each would be 32 MiB
		t.Errorf("%d jobs take %d bytes", s.Jobs.Len(), took)
	}
	runtime.KeepAlive(s)
}
