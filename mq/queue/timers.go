package queue

// timer is a position and the time at which it is due.
type timer struct {
	due int64
	pos uint64
}

func (t timer) before(o timer) bool { return t.due < o.due || t.due == o.due && t.pos < o.pos }

// timers is a heap: the earliest timer is first, of equal ones that with the lowest
// position.
type timers []timer

func (h *timers) push(t timer) {
	a := append(*h, t)
	i := len(a) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !a[i].before(a[up]) {
			break
		}
		a[i], a[up] = a[up], a[i]
		i = up
	}
	*h = a
}

// pop removes the first timer. The heap must not be empty.
func (h *timers) pop() timer {
	a := *h
	first, n := a[0], len(a)-1
	a[0] = a[n]
	a = a[:n]
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			break
		}
		if right := down + 1; right < n && a[right].before(a[down]) {
			down = right
		}
		if !a[down].before(a[i]) {
			break
		}
		a[i], a[down] = a[down], a[i]
		i = down
	}
	*h = a
	return first
}
