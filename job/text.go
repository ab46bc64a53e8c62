package job

import "strings"

// texts is where the texts of a slot's jobs stand, one behind the other, in slabs.
// A million of them, each by itself, were as many things for the garbage collector to
// mark, and when jobs change all day each left a hole that fits only some others. A slab
// is garbage when no text in it is a job's, or a run's, any more; so that a few do not
// keep many slabs, texts are moved to new ones, two with each change of a job, when
// half of what was written is in use at most. The zero value is empty.
type texts struct {
	slab strings.Builder // the one that is filled; what was read from it stays
	size int             // of the next one, bytes

	live int64 // bytes of the texts of jobs
	held int64 // bytes that slabs may take because of them, at most
	old  int64 // while texts are moved: what was held when that began; then those slabs are garbage. 0: none is
	next uint32
}

const (
	minSlab = 256 // bytes; each is twice as large as the one before, up to
	maxSlab = 16 << 10
	// textSlack is what may be held in vain before texts are moved, bytes.
	textSlack = 64 << 10
	// movedAtOnce is how many texts are moved with each change.
	movedAtOnce = 2
)

// put writes a text of two parts down.
func (t *texts) put(name string, own []byte) string {
	n := len(name) + len(own)
	t.held += int64(n)
	if n > maxSlab/4 {
		return name + string(own) // a slab of its own
	}
	if n > t.slab.Cap()-t.slab.Len() {
		t.size = min(max(2*t.size, minSlab), maxSlab)
		for t.size < n {
			t.size *= 2
		}
		t.slab = strings.Builder{}
		t.slab.Grow(t.size)
	}
	from := t.slab.Len()
	t.slab.WriteString(name)
	t.slab.Write(own)
	return t.slab.String()[from:]
}

// write gives a job of the slot, or one that is about to be, its name and what its
// definition has of its own.
func (s *Slot) write(j *Job, name string, own []byte) {
	t := &s.texts
	t.live += int64(len(name) + len(own) - len(j.text))
	j.text, j.nameLen = t.put(name, own), uint8(len(name))
	s.moveTexts()
}

// erased says that a job is about to be none of the slot's any more.
func (s *Slot) erased(j *Job) {
	s.texts.live -= int64(len(j.text))
	s.moveTexts()
}

// moveTexts moves some texts to new slabs, if it is time to.
func (s *Slot) moveTexts() {
	t := &s.texts
	if t.old == 0 {
		if t.held <= 2*t.live+textSlack {
			return
		}
		t.old, t.next = t.held, 0
		t.slab = strings.Builder{} // what comes now is not to stand beside what is old
	}
	for range movedAtOnce {
		if t.next >= s.Jobs.numbers() {
			t.held, t.old = t.held-t.old, 0
			return
		}
		if j := s.Jobs.At(t.next); j != nil {
			j.text = t.put(j.text, nil)
		}
		t.next++
	}
}
