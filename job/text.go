package job

import "strings"

// texts is the arena of the texts of a slot's jobs. It stores them one after another in
// slabs. As separate objects, a million texts would be as many objects for the garbage
// collector to mark, and each changed job would leave a hole that fits few other texts. A
// slab becomes garbage when no job or run uses a text in it. When at most half of the
// written bytes are in use, texts move to new slabs, two with each change of a job, so
// that a few texts do not retain many slabs. The zero value is empty.
//
// Gain: a server with a million jobs takes 13 to 15 MiB less (the rows memory of
// bench/sched), and the garbage collector has a million objects less to mark (ADR 27).
type texts struct {
	slab strings.Builder // the newest slab; strings in it stay valid
	size int             // of the newest slab, bytes

	live int64 // bytes of the texts of current jobs
	held int64 // bytes of the texts in all slabs, in use or not
	old  int64 // held when the current move began; these slabs are garbage after it. 0: no move
	next uint32
}

const (
	minSlab = 256 // bytes; each slab is twice as large as the one before, up to maxSlab
	maxSlab = 16 << 10
	// textSlack is the number of unused bytes beyond which texts move.
	textSlack = 64 << 10
	// movedAtOnce is the number of texts that move with each change.
	movedAtOnce = 2
)

// put stores a text of two parts and returns it.
func (t *texts) put(name string, own []byte) string {
	n := len(name) + len(own)
	t.held += int64(n)
	if n > maxSlab/4 {
		return name + string(own) // an object of its own
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

// write sets the name and the own bytes of the definition of a job that is in the slot or
// about to be added.
func (s *Slot) write(j *Job, name string, own []byte) {
	t := &s.texts
	grows := int64(len(name) + len(own) - len(j.text))
	t.live += grows
	s.Usage.Bytes += grows
	j.text, j.nameLen = t.put(name, own), uint8(len(name))
	s.moveTexts()
}

// erased updates the counts for a job that is about to leave the slot.
func (s *Slot) erased(j *Job) {
	s.texts.live -= int64(len(j.text))
	s.Usage.Bytes -= int64(len(j.text))
	s.moveTexts()
}

// moveTexts moves some texts to new slabs if too many bytes are unused.
func (s *Slot) moveTexts() {
	t := &s.texts
	if t.old == 0 {
		if t.held <= 2*t.live+textSlack {
			return
		}
		t.old, t.next = t.held, 0
		t.slab = strings.Builder{} // new texts must not share a slab with old ones
	}
	for range movedAtOnce {
		if t.next >= s.Jobs.table.Numbers() {
			t.held, t.old = t.held-t.old, 0
			return
		}
		if j := s.Jobs.At(t.next); j != nil {
			j.text = t.put(j.text, nil)
		}
		t.next++
	}
}
